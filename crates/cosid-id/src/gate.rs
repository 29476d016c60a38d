//! How an ID is taken with one addition and no look at the clock.
//!
//! A process that makes IDs in masses keeps a *gate* for each generator: a word in memory of its own, which says up to
//! which state IDs may be taken by adding to it ([`run`](crate::run)). Clock and ceiling are in that one number, and so
//! one comparison checks both. Whoever takes an ID by [`Rules::take`], with a look at the clock, opens the gate for the rest of the
//! tick ([`Rules::open`]). It is shut when the tick is over ([`tick`](crate::tick)), by every 256th ID that finds it
//! over, and when the sequences come to their end.
//!
//! # Why it is safe
//!
//! * A limit stays true for ever: the clock does not go back in a process and the ceiling only grows. However old the
//!   limit is that a program read before it was stopped, what is below it is inside the window.
//! * Each number is handed out once: nobody lowers the state, and an addition gives each caller a number of its own.
//! * Closing a cell marks the state itself, above every limit. A shut gate closes nothing: somebody may be past it.
//! * An addition that comes too late, at or above the limit, costs a number and shuts the gate. So as many numbers can be
//!   lost, each time that it is opened, as there are threads between reading it and adding; and callers that hammer a
//!   shut gate add nothing. The last numbers of a tick are above the limit but still good, so that they are not lost.
//!   Only if more threads than those come too late at once is the state in the next tick before its time; an ID can
//!   then be a tick ahead of the clock, as after a step back of the clock, and still not past the ceiling.
//! * The gate is no part of the page: a process that dies or is stopped leaves nobody an open one, and what another
//!   process writes opens none here.

use crate::cell::{CLOSED, Rules};
use crate::proof::bug;
use crate::sync::{AtomicU64, Ordering};

/// The gate is out of use: nobody shuts it when a tick is over, and so nobody may open it.
pub const OFF: u64 = 0;
/// Shut for now; whoever has looked at the clock may open it. Every larger value is a limit.
pub const SHUT: u64 = 1;

/// An ID whose state has none of these bits looks at the clock, lest IDs lag where nobody gets to shut the gate.
pub const CHECK: u64 = 255;
const CHECK_OF_LARGE: u64 = 4095;

/// What came of an addition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// An ID: its tick and sequence, as in a state.
    Taken(u64),
    /// To be looked at: [`Rules::settle`].
    Edge(Edge),
    /// The gate is shut, and nothing was added: to be [taken](Rules::take) by the clock.
    Shut,
}

/// A number from which on the gate may have to be shut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    pub(crate) got: u64,
    pub(crate) limit: u64,
}

impl Rules {
    /// Takes `want` following numbers without a look at the clock, by one compare-and-swap; `None` unless the gate is open
    /// for all of them and none has to look at the clock. Never blocks.
    pub fn take_below(&self, state: &AtomicU64, gate: &AtomicU64, want: u32) -> Option<u64> {
        let limit = gate.load(Ordering::Acquire);
        let first = state.load(Ordering::Acquire);
        let end = first.saturating_add(want.into());
        let is_below = end <= limit || bug("takes_a_range_past_the_limit");
        let is_open = limit > SHUT && first >= self.first_state && is_below;
        if !is_open || Self::looks_at_clock(first, end) {
            return None;
        }
        state.compare_exchange(first, end, Ordering::AcqRel, Ordering::Relaxed).ok()
    }

    /// Whether a number from `first` to before `end` looks at the clock: every 256th, and of larger ranges every 4096th, or
    /// none would go without.
    pub fn looks_at_clock(first: u64, end: u64) -> bool {
        let check = if end.wrapping_sub(first) <= CHECK { CHECK } else { CHECK_OF_LARGE };
        (first.wrapping_sub(1) ^ end.wrapping_sub(1)) > check
    }

    /// Shuts the gate if its time is over, and says whether the number is good all the same; one that is not has to be
    /// [taken](Rules::take) by the clock.
    pub fn settle(&self, Edge { got, limit }: Edge, gate: &AtomicU64, now_ms: u64) -> Option<u64> {
        let bits = self.layout.sequence_bits();
        let last_tick = limit >> bits;
        let is_over =
            self.layout.ticks_to(now_ms).is_none_or(|now| now.saturating_add(self.ahead) > last_tick);
        if got >= limit || is_over {
            // Not if it has changed: whoever changed it has looked at the clock since.
            let _ = gate.compare_exchange(limit, SHUT, Ordering::AcqRel, Ordering::Relaxed);
        }
        let end = if bug("settles_for_any_number") { u64::MAX } else { (last_tick + 1) << bits };
        (self.first_state..end).contains(&got).then_some(got)
    }

    /// Opens a shut gate for the rest of the tick, if the window and the state allow it. For who has taken an ID at
    /// `now_ms`.
    pub fn open(&self, state: &AtomicU64, gate: &AtomicU64, ceiling: &AtomicU64, now_ms: u64) {
        let open = |state| self.limit(state, ceiling.load(Ordering::Acquire), now_ms);
        let seen = gate.load(Ordering::Relaxed);
        if (seen == SHUT || bug("opens_a_gate_out_of_use"))
            && let Some(limit) = open(state.load(Ordering::Acquire))
        {
            let _ = gate.compare_exchange(seen, limit, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The limit of a gate at this time; `None` if no ID can be added.
    fn limit(&self, state: u64, ceiling: u64, now_ms: u64) -> Option<u64> {
        let layout = &self.layout;
        let now = layout.ticks_to(now_ms)?;
        // Only whole ticks are ours. A clock past the window's end makes no IDs from before it.
        let last = layout.ticks_to(ceiling.checked_add(1)?)?.checked_sub(1)?.min(layout.max_tick());
        let last = last + u64::from(bug("a_gate_open_above_the_ceiling"));
        if now > last {
            return None;
        }
        let tick = now.saturating_add(self.ahead).min(last);
        let limit = ((tick + 1) << layout.sequence_bits()) - self.reserve();
        (state & CLOSED == 0 && (self.first_state..limit).contains(&state)).then_some(limit)
    }

    /// Sequences at the end of a tick that are taken with a look at the clock: 1 of 64, and at least one. As many threads
    /// can be between reading the gate and adding, and no number is lost.
    fn reserve(&self) -> u64 {
        ((u64::from(self.layout.max_sequence()) + 1) >> 6).clamp(1, 1024)
    }
}

/// The tick is over: shuts a gate that is open.
pub fn shut(gate: &AtomicU64) {
    let seen = gate.load(Ordering::Relaxed);
    if seen > SHUT {
        if bug("the_tick_shuts_by_a_store") {
            return gate.store(SHUT, Ordering::Release);
        }
        let _ = gate.compare_exchange(seen, SHUT, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
