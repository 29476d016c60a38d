//! Drills: each does one thing to a real cluster, or to those who use it, while programs make IDs all the time; then
//! `cosid-check` judges every ID, pause and slot. `cargo xtask drill` runs them in full length and prints the table of
//! `docs/drills.md`; `cargo test` runs them short.
//!
//! Those that need an API server share one, several at a time. Those that break it have another for themselves, one after
//! the other.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "a test stops at the first surprise, and is no library"
)]

mod chance;
mod clocks;
mod deaths;
mod leases;
mod net;
mod networks;
mod observer;
mod outages;
mod refuser;
mod stage;

use std::env;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use cosid_tests::ground::Ground;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::stage::Setting;

/// A drill.
pub type Drill = (&'static str, Needs, fn(&Ground, Setting));

/// What it has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// An API server that others use too.
    ApiServer,
    /// An API server and a controller of its own, to break them.
    OwnApiServer,
}

/// Most of a drill's time is waiting.
const AT_ONCE: usize = 6;

/// What all drills share.
#[derive(Default)]
struct Grounds {
    common: OnceLock<Ground>,
    /// Whoever has it may break it.
    own: Mutex<Option<Ground>>,
}

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    let full = env::var_os("COSID_DRILL_FULL").is_some();
    let wanted = env::var("COSID_DRILLS").unwrap_or_default();
    let wanted: Vec<&str> = wanted.split_whitespace().collect();
    let seed = env::var("COSID_DRILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(any_seed);
    let drills: Vec<Drill> =
        [outages::DRILLS, deaths::DRILLS, networks::DRILLS, clocks::DRILLS, leases::DRILLS].concat();
    let drills: Vec<Drill> =
        drills.into_iter().filter(|(name, ..)| wanted.is_empty() || wanted.contains(name)).collect();
    // Those that wait for their turn take a place, but no time.
    let waiting = drills.iter().filter(|(_, needs, _)| *needs == Needs::OwnApiServer).count();
    args.test_threads = Some(AT_ONCE + waiting);
    if !args.list {
        println!("seed {seed} (COSID_DRILL_SEED repeats its random points)");
    }
    let grounds = Arc::<Grounds>::default();
    let trial = |(name, needs, drill): Drill| {
        let grounds = Arc::clone(&grounds);
        Trial::test(name, move || run(&grounds, needs, drill, Setting { name, full, seed }))
    };
    let conclusion = libtest_mimic::run(&args, drills.into_iter().map(trial).collect());
    // The clusters end here, before the result is known to whoever waits for it.
    drop(grounds);
    conclusion.exit_code()
}

fn run(grounds: &Grounds, needs: Needs, drill: fn(&Ground, Setting), setting: Setting) -> Result<(), Failed> {
    match needs {
        Needs::ApiServer => timed(setting, || drill(grounds.common.get_or_init(Ground::start), setting)),
        Needs::OwnApiServer => {
            // One that failed may have left it broken: the next one starts another.
            let mut own = grounds.own.lock().unwrap_or_else(|poisoned| {
                grounds.own.clear_poison();
                let mut own = PoisonError::into_inner(poisoned);
                *own = None;
                own
            });
            let ground = own.get_or_insert_with(Ground::start);
            timed(setting, || drill(ground, setting));
        }
    }
    Ok(())
}

fn timed(setting: Setting, drill: impl FnOnce()) {
    let start = Instant::now();
    println!("{} begins", setting.name);
    drill();
    println!("{} took {:.1} s", setting.name, start.elapsed().as_secs_f64());
}

fn any_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| u64::from(since.subsec_nanos()))
}
