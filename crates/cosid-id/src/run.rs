//! How a thread that is alone on a cell takes several IDs with one addition, and nobody can tell.
//!
//! An addition that other processors have to see costs as much as all the rest of an ID many times over. So a thread that
//! has made one ID after the other, with none of anybody else's in between, adds more than 1 to the state and serves
//! itself from this *run*. Before each ID it looks, which is cheap while nobody writes there, whether
//!
//! * the state is still where its run ends: if not, somebody else has taken IDs since, which are larger than what is left
//!   of the run. That is then thrown away, so that IDs grow across threads and processes, just as if each had been added;
//! * the gate is as it was: if not, the tick may be over.
//!
//! Threads that are not alone have runs too where a layout has more sequences than anybody can use up: what one throws away
//! costs less than to fetch the state from another processor for each ID.
//!
//! # Why it is safe
//!
//! * The numbers of a run are its thread's from the addition on. Nobody lowers the state, so once it has left the end of a
//!   run it never comes back there.
//! * A run lies below the limit that its thread read, and so in the window; whenever it is served.
//! * The mark of a closed cell moves the state off the end of each run, and what the state was before is not below any
//!   ID of a run.
//! * A forked child finds its gate off. Nobody opens it without having taken an ID, and that moves the state: of what
//!   its parent's threads had left it serves nothing.
//! * A signal handler may make IDs too. Where it interrupts its thread at work on the run it adds, and leaves the run as it
//!   is: the thread goes on to write what it had in mind. That is then thrown away, since the handler has moved the state.

use std::sync::atomic::{AtomicBool, AtomicU64 as OwnU64, Ordering::Relaxed, compiler_fence};

use crate::cell::Rules;
use crate::gate::{Added, CHECK, Edge, SHUT};
use crate::layout::Layout;
use crate::proof::bug;
use crate::sync::{AtomicU64, Ordering};

/// The longest run: what is thrown away at most, and IDs for which the clock is not asked.
const LONGEST: u64 = 64;
/// A run is one of so many IDs that the thread was alone for. No more than that is thrown away.
const SHARE_BITS: u32 = 6;
/// As long as it takes for the longest run.
const ALONE: u64 = LONGEST << SHARE_BITS;

/// What is left to a thread of what it took. Nobody else sees it but a signal handler that interrupts the thread, for which
/// it is atomic.
#[derive(Debug)]
pub struct Run {
    /// Whose it is: the number of a generator's gate.
    owner: OwnU64,
    /// The next number.
    next: OwnU64,
    /// The first number that is not in it, and the state after it was taken.
    end: OwnU64,
    /// The gate's when it was taken.
    limit: OwnU64,
    /// IDs since somebody else's was seen.
    alone: OwnU64,
    /// The thread is at work on these words: whoever sees this has interrupted it.
    is_busy: AtomicBool,
}

impl Run {
    /// Nothing of nobody.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "what a thread begins with has to be constant")]
    pub const fn new() -> Self {
        Self {
            owner: OwnU64::new(0),
            next: OwnU64::new(0),
            end: OwnU64::new(0),
            limit: OwnU64::new(0),
            alone: OwnU64::new(0),
            is_busy: AtomicBool::new(false),
        }
    }

    /// One whose thread has been alone for so long that it takes as many as it can.
    #[cfg(any(test, loom))]
    #[must_use]
    pub fn alone(owner: u64, state: u64) -> Self {
        let run = Self::new();
        run.owner.store(owner, Relaxed);
        run.end.store(state, Relaxed);
        run.alone.store(ALONE, Relaxed);
        run
    }

    /// A number of the run, if it has any that is still good. Never blocks.
    #[inline]
    pub fn serve(&self, owner: u64, state: &AtomicU64, gate: &AtomicU64) -> Option<u64> {
        self.serve_interrupted(owner, state, gate, || {})
    }

    /// `interrupt` is where a signal handler can do the most harm.
    #[inline]
    fn serve_interrupted(
        &self,
        owner: u64,
        state: &AtomicU64,
        gate: &AtomicU64,
        interrupt: impl FnOnce(),
    ) -> Option<u64> {
        self.alone_with(|| {
            let (next, end) = (self.next.load(Relaxed), self.end.load(Relaxed));
            let is_good = next < end
                && self.owner.load(Relaxed) == owner
                && gate.load(Ordering::Acquire) == self.limit.load(Relaxed)
                && (state.load(Ordering::Acquire) == end || bug("serves_a_run_without_a_look"));
            interrupt();
            if is_good {
                self.next.store(next + 1, Relaxed);
            }
            is_good.then_some(next)
        })
        .flatten()
    }

    /// Takes a number by adding to the state, if the gate is open, and more where the thread is alone. Never blocks.
    #[inline]
    pub fn add(&self, owner: u64, rules: &Rules, state: &AtomicU64, gate: &AtomicU64) -> Added {
        self.add_interrupted(owner, rules, state, gate, || {})
    }

    #[inline]
    fn add_interrupted(
        &self,
        owner: u64,
        rules: &Rules,
        state: &AtomicU64,
        gate: &AtomicU64,
        interrupt: impl FnOnce(),
    ) -> Added {
        let limit = gate.load(Ordering::Acquire);
        if limit <= SHUT {
            return Added::Shut;
        }
        let taken = self.alone_with(|| {
            let (alone, expected) = if self.owner.load(Relaxed) == owner {
                (self.alone.load(Relaxed), self.end.load(Relaxed))
            } else {
                (0, 0)
            };
            // One more look before it takes many: what it knows may be old.
            let want = match length(alone, expected, limit) {
                many if many > rules.shared_run && state.load(Ordering::Acquire) == expected => many,
                _ => rules.shared_run,
            };
            let got = state.fetch_add(want, Ordering::AcqRel);
            let end = got.wrapping_add(want);
            let is_below = end <= limit || bug("adds_past_the_limit");
            let is_whole = got >= rules.first_state && is_below;
            interrupt();
            self.owner.store(owner, Relaxed);
            self.next.store(if is_whole { got + 1 } else { u64::MAX }, Relaxed);
            self.end.store(end, Relaxed);
            self.limit.store(limit, Relaxed);
            self.alone.store(if got == expected { (alone + want).min(ALONE) } else { 0 }, Relaxed);
            (got, is_whole)
        });
        let (got, is_whole) = taken.unwrap_or_else(|| {
            let got = state.fetch_add(1, Ordering::AcqRel);
            (got, got >= rules.first_state && got < limit)
        });
        // The floor holds even if a broken program wrote a state from before it.
        if is_whole && got & CHECK != 0 { Added::Taken(got) } else { Added::Edge(Edge { got, limit }) }
    }

    /// The thread took the last number before `state` by the clock: likely nobody else's has come in between.
    pub fn went_on(&self, owner: u64, state: u64) {
        self.alone_with(|| {
            if self.owner.load(Relaxed) == owner {
                self.next.store(u64::MAX, Relaxed);
                self.end.store(state, Relaxed);
                self.alone.store(self.alone.load(Relaxed).min(ALONE / 8), Relaxed);
            }
        });
    }

    /// Works on the run; `None` in a signal handler that interrupts such work.
    #[inline]
    fn alone_with<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        if self.is_busy.load(Relaxed) {
            return None;
        }
        self.is_busy.store(true, Relaxed);
        compiler_fence(Ordering::SeqCst);
        let done = work();
        compiler_fence(Ordering::SeqCst);
        self.is_busy.store(false, Relaxed);
        Some(done)
    }
}

/// How many numbers threads that meet take at once: 1, unless a millisecond has 2^16 sequences or more. Each addition waits
/// for the other processor, 50 ns at the least; so at most 20,000 of them in a millisecond, and no tick is used up by
/// what is thrown away.
pub(crate) fn shared_run(layout: &Layout) -> u64 {
    let in_one_ms = (u64::from(layout.max_sequence()) + 1) / u64::from(layout.unit_ms());
    (in_one_ms >> 15).clamp(1, 8)
}

/// How many numbers to add: not past the limit, and not over one that looks at the clock.
fn length(alone: u64, expected: u64, limit: u64) -> u64 {
    let up_to_check = (!expected & CHECK) + 1;
    let up_to_limit = limit.saturating_sub(expected);
    (alone >> SHARE_BITS).min(up_to_check).min(up_to_limit).max(1)
}

#[cfg(test)]
mod tests;
