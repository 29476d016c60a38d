//! How an ID is taken from a cell's state word. [`format`](crate::format) says what the word holds.
//!
//! [`Rules::plan`] is the decision, pure: it gets the state, the time and the ceiling and says what to take.
//! [`Rules::take`] makes it so with one compare-and-swap. The clock may be read long before the swap, and the
//! ceiling too: a program can be stopped for minutes in between. What the plan takes is inside the window all
//! the same (the ceiling only grows) and unique all the same (the swap fails if anybody took anything since).
//!
//! The state holds the *next* ID's tick and sequence, so that adding to it takes an ID: room for a faster way
//! than compare-and-swap that needs no other page.

use crate::layout::{Layout, low_bits};
use crate::next_error::{NextError, Wait};
use crate::sync::{AtomicU64, Ordering};

/// The bit of a state word that says nothing can be issued any more.
pub const CLOSED: u64 = 1 << 63;

/// The state of a cell that never issued: the first tick that lies wholly above the floor.
pub(crate) fn first_state(layout: &Layout, floor: u64) -> u64 {
    // A floor past the layout's end (nothing can be issued at all) must not reach the closed bit.
    layout.first_tick_above(floor).min(layout.max_tick() + 1) << layout.sequence_bits()
}

/// Unix ms of the last timestamp that was issued to get to `state`; the floor if there is none.
pub(crate) fn last_issued(layout: &Layout, floor: u64, state: u64) -> u64 {
    let next = state & !CLOSED;
    if next <= first_state(layout, floor) {
        return floor;
    }
    layout.tick_end((next - 1) >> layout.sequence_bits())
}

/// What does not change while a cell lives.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    layout: Layout,
    first_state: u64,
}

/// IDs of one tick that now belong to the caller: `count` of them from `sequence` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The tick.
    pub tick: u64,
    /// The first sequence.
    pub sequence: u32,
    /// How many, at least 1.
    pub count: u32,
}

impl Rules {
    /// The rules of a cell with this layout, in a window above `floor` (Unix ms).
    #[must_use]
    pub fn new(layout: Layout, floor: u64) -> Self {
        Self { layout, first_state: first_state(&layout, floor) }
    }

    /// Takes up to `want` IDs of one tick (at least 1) in one atomic operation. Never blocks: it begins again
    /// only if somebody else took something.
    ///
    /// # Errors
    /// See [`NextError`].
    pub fn take(
        &self,
        state: &AtomicU64,
        ceiling: &AtomicU64,
        now_ms: u64,
        want: u32,
    ) -> Result<Taken, NextError> {
        let mut seen = state.load(Ordering::Acquire);
        loop {
            let taken = self.plan(seen, now_ms, ceiling.load(Ordering::Acquire), want)?;
            let next = self.pack(taken.tick, taken.sequence) + u64::from(taken.count);
            match state.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(taken),
                Err(changed) => seen = changed,
            }
        }
    }

    fn plan(&self, state: u64, now_ms: u64, ceiling: u64, want: u32) -> Result<Taken, NextError> {
        if state & CLOSED != 0 {
            return Err(NextError::SlotLost);
        }
        let layout = &self.layout;
        let now = layout
            .ticks_to(now_ms)
            .ok_or(NextError::BeforeEpoch { now: now_ms, epoch: layout.epoch_ms() })?;
        let held = state >> layout.sequence_bits();
        let next = low_bits(state, layout.sequence_bits());

        let (tick, sequence) = if now > held {
            (now, self.in_new_tick(next))
        } else if now == held || next != 0 {
            (held, next)
        } else {
            return Err(NextError::Wait(self.wait_for(state, held, now_ms)));
        };
        if tick > layout.max_tick() {
            return Err(NextError::LayoutUsedUp { last: layout.tick_end(layout.max_tick()) });
        }
        if layout.tick_end(tick) > ceiling {
            return Err(NextError::Wait(Wait::AboveCeiling { now: now_ms, ceiling }));
        }
        let left = layout.max_sequence() - sequence + 1;
        Ok(Taken { tick, sequence, count: want.clamp(1, left) })
    }

    /// CosId's rule: a new tick goes on counting, and starts over only once the last sequence has reached the
    /// threshold; then with 1, as CosId does.
    fn in_new_tick(&self, next: u32) -> u32 {
        let last = next.wrapping_sub(1) & self.layout.max_sequence();
        if last >= self.layout.sequence_threshold() { 1 } else { next }
    }

    /// Why the state is ahead of the clock: it has not issued yet, or it has issued all of the tick before.
    fn wait_for(&self, state: u64, held: u64, now: u64) -> Wait {
        let until = self.layout.tick_start(held);
        if state <= self.first_state {
            Wait::BelowFloor { now, until }
        } else {
            Wait::SequenceUsedUp { now, until }
        }
    }

    fn pack(&self, tick: u64, sequence: u32) -> u64 {
        (tick << self.layout.sequence_bits()) | u64::from(sequence)
    }
}
