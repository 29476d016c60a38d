//! The two questions that the product asks in the proof's build (`--cfg cosid_proof`), and in no other: whether a seeded
//! fault is on, and what time it is on a virtual clock. In every other build no crate of the product depends on this one.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The hash of the fault that is on; 0: none. One for the whole process: a run has one fault at most.
static ON: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static CLOCK: Cell<Option<fn() -> u64>> = const { Cell::new(None) };
}

/// Whether the fault of this name is on. A test program has it from the environment, see `from_environment`.
#[must_use]
pub fn bug(name: &str) -> bool {
    let on = match ON.load(Ordering::Relaxed) {
        0 => from_environment(),
        on => on,
    };
    on != NONE && on == hash(name)
}

/// Puts one fault on, and all others off; `None`: all off.
pub fn set_bug(name: Option<&str>) {
    ON.store(name.map_or(NONE, hash), Ordering::Relaxed);
}

/// The virtual clock of this thread, ms, if it has one.
#[must_use]
pub fn virtual_mono() -> Option<u64> {
    CLOCK.get().map(|clock| clock())
}

/// Gives this thread a virtual clock.
pub fn set_clock(clock: fn() -> u64) {
    CLOCK.set(Some(clock));
}

/// All faults are off; told apart from 0, nothing asked yet.
const NONE: u64 = 1;

/// `COSID_BUG`: for the tests of the product's own crates.
fn from_environment() -> u64 {
    let name = std::env::var("COSID_BUG").ok().filter(|name| !name.is_empty());
    set_bug(name.as_deref());
    ON.load(Ordering::Relaxed)
}

/// FNV-1a: the names are few and fixed.
const fn hash(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fault_is_on_at_a_time() {
        set_bug(Some("a"));
        assert!(bug("a") && !bug("b"));
        set_bug(None);
        assert!(!bug("a"));
    }
}
