//! Cases that wait more than they compute, run several at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// A case: its name, and what it does on the ground that all share. It fails by a panic.
pub type Case<G> = (&'static str, fn(&G));

/// Runs all cases, at most `at_once` at a time, and prints each with its time. With `COSID_CASE` set only those whose
/// name has that in it. Blocks.
///
/// # Panics
/// At the end, with the names of those that failed.
#[allow(clippy::panic, reason = "this is how a test fails")]
pub fn run<G: Sync>(ground: &G, at_once: usize, cases: &[Case<G>]) {
    let wanted = std::env::var("COSID_CASE").unwrap_or_default();
    let cases: Vec<_> = cases.iter().filter(|(name, _)| name.contains(&wanted)).collect();
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    let work = || {
        while let Some((name, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            // Each case has a namespace and processes of its own: one that stopped half-way leaves the others alone.
            let passed = catch_unwind(AssertUnwindSafe(|| case(ground))).is_ok();
            let outcome = if passed { "ok" } else { "FAILED" };
            println!("  case {name} ... {outcome} ({:.1} s)", start.elapsed().as_secs_f64());
            if !passed && let Ok(mut failed) = failed.lock() {
                failed.push(*name);
            }
        }
    };
    thread::scope(|scope| {
        for number in 0..at_once.min(cases.len()) {
            let named = thread::Builder::new().name(format!("case-runner-{number}"));
            // Without more threads the cases run on those there are.
            let _ = named.spawn_scoped(scope, work);
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    let unrun = cases.len().saturating_sub(next.load(Ordering::Relaxed));
    assert!(failed.is_empty() && unrun == 0, "{} of {} cases failed: {failed:?}", failed.len(), cases.len());
}

/// The cases that are these functions, for [`run`].
#[macro_export]
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        &[$((stringify!($case), $case)),+]
    };
}
