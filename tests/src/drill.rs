//! Drills: faults on a real API server while programs make IDs, and what is judged afterwards from what everybody wrote
//! down. The judge is `cosid-check`, which knows nothing of generators or agents.
//!
//! A drill's evidence is a directory: `*.runs`, one for each life of a program, its IDs ([`runs`]); `store.jsonl`, each
//! change of each slot as the API server told it ([`history`]); and `drill.json`, what was done and promised ([`plan`]).

pub mod check;
pub mod evidence;
pub mod history;
pub mod plan;
pub mod runs;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time that all parts of a drill agree on, nanoseconds: of the machine's monotonic clock, which nobody bends.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let since = Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0));
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
