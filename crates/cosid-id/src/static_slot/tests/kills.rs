//! Processes that are killed at any moment, with clocks that are set back in between: whatever was issued is not issued
//! again.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use super::*;

const ROUNDS: u64 = 200;
/// Short, so that the file is written all the time and is likely to be being written at a kill.
const AHEAD_MS: u64 = 10;
/// A clock is set forward or back by up to twice this, ms.
const MOST_OFF_MS: u64 = 40;
const LONGEST_LIFE_MS: u64 = 120;
const DIRECTORY: &str = "COSID_TEST_STATIC_DIR";
const OFF: &str = "COSID_TEST_STATIC_OFF_MS";

/// The host's clock, set forward or back.
#[derive(Clone, Copy)]
struct Off(i64);

impl Clock for Off {
    fn unix_ms(&self) -> u64 {
        SystemClock.unix_ms().saturating_add_signed(self.0)
    }
    fn elapsed(&self) -> Duration {
        SystemClock.elapsed()
    }
    fn sleep(&self, duration: Duration) {
        SystemClock.sleep(duration);
    }
}

/// This program as a process that makes IDs until it is killed.
fn start(dir: &Path, off_ms: i64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "static_slot::tests::kills::a_process_that_makes_ids_until_it_is_killed"])
        .env(DIRECTORY, dir)
        .env(OFF, off_ms.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Does nothing unless started by one of the tests below.
#[test]
fn a_process_that_makes_ids_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let off = Off(std::env::var(OFF).unwrap().parse().unwrap());
    let builder = StaticSlot::builder(3).ahead(Duration::from_millis(AHEAD_MS));
    let mut slot = builder.open_with_clock(&dir.join("state"), off).unwrap();
    let cell = slot.assign("orders").unwrap();
    let page = Arc::clone(slot.page());
    let mut ids = OpenOptions::new().create(true).append(true).open(dir.join("ids")).unwrap();
    if off.0 == 0 {
        // The host's own clock: with everything that makes IDs fast.
        let orders = slot.generator("orders").unwrap();
        write_ids(&mut ids, || orders.next(Duration::from_secs(10)));
    } else {
        let orders = Generator::with_clock(page, cell, off).unwrap();
        write_ids(&mut ids, || orders.next(Duration::from_secs(10)));
    }
}

fn write_ids(file: &mut fs::File, next: impl Fn() -> Result<crate::Id, NextError>) {
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        for _ in 0..64 {
            bytes.extend(next().unwrap().get().to_le_bytes());
        }
        // One write of whole IDs: a kill comes before it or after.
        file.write_all(&bytes).unwrap();
    }
}

/// Good enough to spread moments; the same in each run.
struct Dice(u64);

impl Dice {
    fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % (most + 1)
    }
}

#[test]
fn killed_200_times_with_clock_steps_back_it_issues_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice(7);
    let (mut before, mut steps_back, mut productive, mut length) = (0, 0, 0, 0);
    for _ in 0..ROUNDS {
        let off = match dice.up_to(2) {
            0 => 0,
            _ => i64::try_from(dice.up_to(2 * MOST_OFF_MS)).unwrap() - i64::try_from(MOST_OFF_MS).unwrap(),
        };
        steps_back += u64::from(off < before);
        before = off;
        let mut child = start(dir.path(), off);
        std::thread::sleep(Duration::from_millis(dice.up_to(LONGEST_LIFE_MS)));
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        let now = fs::metadata(dir.path().join("ids")).map_or(0, |metadata| metadata.len());
        productive += u64::from(now > length);
        length = now;
    }
    let bytes = fs::read(dir.path().join("ids")).unwrap();
    let mut ids: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
    let count = ids.len();
    assert!(ids.is_sorted_by(|a, b| a < b), "each process goes on above the one before");
    ids.sort_unstable();
    ids.dedup();
    println!(
        "{count} IDs of {productive} of {ROUNDS} killed processes, {steps_back} steps back, {} equal",
        count - ids.len()
    );
    assert_eq!(ids.len(), count);
    assert!(productive > ROUNDS / 10, "too few were let live: {productive}");
}

#[test]
fn a_second_process_is_refused_while_the_first_lives_and_not_once_it_is_killed() {
    let place = Place::new();
    let dir = place.0.path();
    let mut child = start(dir, 0);
    until("no IDs", || fs::metadata(dir.join("ids")).is_ok_and(|metadata| metadata.len() > 0));
    let pid = child.id().to_string();
    let error = StaticSlot::builder(3).open(dir.join("state")).unwrap_err();
    assert!(matches!(&error, Error::StateInUse { process, .. } if *process == pid), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    StaticSlot::builder(3).open(dir.join("state")).unwrap();
}
