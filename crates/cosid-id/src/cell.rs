//! How an ID is taken from a cell's state word. [`format`](crate::format) says what the word holds.
//!
//! [`Rules::plan`] is the decision, pure: it gets the state, the time and the ceiling and says what to take.
//! [`Rules::take`] makes it so with one compare-and-swap. The clock may be read long before the swap, and the
//! ceiling too: a program can be stopped for minutes in between. What the plan takes is inside the window all
//! the same (the ceiling only grows) and unique all the same (the swap fails if anybody took anything since).
//!
//! The state holds the *next* ID's tick and sequence, so that adding to it takes an ID: the faster way of
//! [`gate`](crate::gate), for as long as it is known that the clock need not be asked.

use crate::layout::{Layout, low_bits};
use crate::next_error::{NextError, Wait};
use crate::proof::bug;
use crate::sync::{AtomicU64, Ordering};

/// The bit of a state word that says nothing can be issued any more.
pub const CLOSED: u64 = 1 << 63;

/// The state of a cell that never issued: the first tick that lies wholly above the floor.
#[must_use]
pub fn first_state(layout: &Layout, floor: u64) -> u64 {
    // A floor past the layout's end (nothing can be issued at all) must not reach the closed bit.
    layout.first_tick_above(floor).min(layout.max_tick() + 1) << layout.sequence_bits()
}

/// Unix ms of the last timestamp that was issued to get to `state`; the floor if there is none.
#[must_use]
pub fn last_issued(layout: &Layout, floor: u64, state: u64) -> u64 {
    let next = state & !CLOSED;
    if next <= first_state(layout, floor) {
        return floor;
    }
    let tick = (next - 1) >> layout.sequence_bits();
    layout.tick_end(if bug("last_issued_is_the_tick_before") { tick - 1 } else { tick })
}

/// Ends a cell: the mark goes into the state itself, so that every compare-and-swap under way fails by it, and
/// the value below the mark, which is kept, is final. Doing it again changes nothing.
///
/// What the state was before is returned. It stays below the mark, but for additions that come too late.
pub fn close(state: &AtomicU64) -> u64 {
    if bug("closing_leaves_the_state") {
        return state.load(Ordering::Acquire);
    }
    if bug("closes_by_load_and_store") {
        let seen = state.load(Ordering::Acquire);
        state.store(seen | CLOSED, Ordering::Release);
        return seen;
    }
    state.fetch_or(CLOSED, Ordering::AcqRel)
}

/// What does not change while a cell lives.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub(crate) layout: Layout,
    pub(crate) first_state: u64,
    /// Ticks that IDs may be ahead of the clock.
    pub(crate) ahead: u64,
    /// Numbers that threads which meet may take at once, see [`run`](crate::run).
    pub(crate) shared_run: u64,
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
        let shared_run = crate::run::shared_run(&layout);
        Self { layout, first_state: first_state(&layout, floor), ahead: 0, shared_run }
    }

    /// The same, but where the tick of the clock is used up IDs of up to `ticks` later ones are taken.
    #[must_use]
    pub fn ahead(self, ticks: u64) -> Self {
        // More than any layout has ticks must not overflow.
        Self { ahead: ticks.min(self.layout.max_tick()), ..self }
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
            if bug("takes_without_a_swap") {
                state.store(next, Ordering::Release);
                return Ok(taken);
            }
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
        // The floor holds even if a broken program wrote a state from before it.
        let state = state.max(self.first_state);
        let layout = &self.layout;
        let now = layout
            .ticks_to(now_ms)
            .ok_or(NextError::BeforeEpoch { now: now_ms, epoch: layout.epoch_ms() })?;
        let held = state >> layout.sequence_bits();
        let next = low_bits(state, layout.sequence_bits());

        let (tick, sequence) = if now > held {
            (now, self.in_new_tick(next))
        } else if held <= now.saturating_add(self.ahead) || next != 0 {
            (held, next)
        } else {
            return Err(NextError::Wait(self.wait_for(state, held, now_ms)));
        };
        if tick > layout.max_tick() {
            return Err(NextError::LayoutUsedUp { last: layout.tick_end(layout.max_tick()) });
        }
        let end =
            if bug("half_a_unit_at_the_ceiling") { layout.tick_start(tick) } else { layout.tick_end(tick) };
        if end > ceiling + u64::from(bug("one_above_the_ceiling")) {
            return Err(NextError::Wait(Wait::AboveCeiling { now: now_ms, ceiling }));
        }
        let left = layout.max_sequence() - sequence + 1;
        Ok(Taken { tick, sequence, count: want.clamp(1, left) })
    }

    /// CosId's rule: a new tick goes on counting, and starts over only once the last sequence has reached the
    /// threshold; then with 1, as CosId does. (Sequence 0 is for who comes in the very next tick after one that
    /// was used up; in CosId that is the caller who waited for it.)
    fn in_new_tick(&self, next: u32) -> u32 {
        let last = next.wrapping_sub(1) & self.layout.max_sequence();
        if last >= self.layout.sequence_threshold() { 1 } else { next }
    }

    /// Why the state is ahead of the clock: it has not issued yet, or it has issued all of the tick before.
    fn wait_for(&self, state: u64, held: u64, now: u64) -> Wait {
        let until = self.layout.tick_start(held.saturating_sub(self.ahead));
        if state <= self.first_state {
            Wait::BelowFloor { now, until }
        } else {
            Wait::SequenceUsedUp { now, until }
        }
    }

    /// The tick and the first sequence of what was taken, as in a state.
    #[must_use]
    pub fn first_state_of(&self, taken: Taken) -> u64 {
        self.pack(taken.tick, taken.sequence)
    }

    fn pack(&self, tick: u64, sequence: u32) -> u64 {
        (tick << self.layout.sequence_bits()) | u64::from(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: u64 = Layout::MILLISECOND.epoch_ms();
    const FLOOR: u64 = EPOCH + 1_000;
    const CEILING: u64 = FLOOR + 1_000;

    /// Four sequences a tick, which start over from sequence 2 on.
    fn small() -> Layout {
        Layout::builder().sequence_bits(2).sequence_threshold(2).build().unwrap()
    }

    fn seconds() -> Layout {
        Layout::builder().timestamp_bits(31).sequence_bits(22).unit_ms(1000).build().unwrap()
    }

    /// One cell in a window from FLOOR to CEILING.
    struct Cell {
        rules: Rules,
        state: AtomicU64,
        ceiling: AtomicU64,
    }

    impl Cell {
        fn new(layout: Layout) -> Self {
            Self {
                rules: Rules::new(layout, FLOOR),
                state: AtomicU64::new(first_state(&layout, FLOOR)),
                ceiling: AtomicU64::new(CEILING),
            }
        }

        fn take(&self, now: u64, want: u32) -> Result<Taken, NextError> {
            self.rules.take(&self.state, &self.ceiling, now, want)
        }

        /// Unix ms and sequence of one ID.
        fn one(&self, now: u64) -> Result<(u64, u32), NextError> {
            self.take(now, 1).map(|taken| (self.rules.layout.tick_start(taken.tick), taken.sequence))
        }

        fn last(&self) -> u64 {
            last_issued(&self.rules.layout, FLOOR, self.state.load(Ordering::Relaxed))
        }
    }

    fn wait<T>(wait: Wait) -> Result<T, NextError> {
        Err(NextError::Wait(wait))
    }

    #[test]
    fn the_floor_is_exclusive() {
        let cell = Cell::new(Layout::MILLISECOND);
        for now in [EPOCH, FLOOR - 1, FLOOR] {
            assert_eq!(cell.one(now), wait(Wait::BelowFloor { now, until: FLOOR + 1 }));
        }
        assert_eq!(cell.one(FLOOR + 1), Ok((FLOOR + 1, 0)));
    }

    #[test]
    fn the_ceiling_is_inclusive() {
        let cell = Cell::new(Layout::MILLISECOND);
        assert_eq!(cell.one(CEILING), Ok((CEILING, 1)));
        let above = CEILING + 1;
        assert_eq!(cell.one(above), wait(Wait::AboveCeiling { now: above, ceiling: CEILING }));
        cell.ceiling.store(above, Ordering::Relaxed);
        assert_eq!(cell.one(above), Ok((above, 2)));
    }

    #[test]
    fn a_fresh_cell_begins_with_sequence_1_as_cosid_does() {
        assert_eq!(Cell::new(Layout::MILLISECOND).one(FLOOR + 5), Ok((FLOOR + 5, 1)));
    }

    #[test]
    fn a_new_tick_goes_on_counting_below_the_threshold_and_starts_over_from_it_on() {
        let cell = Cell::new(small());
        assert_eq!(cell.one(FLOOR + 5), Ok((FLOOR + 5, 1)));
        assert_eq!(cell.one(FLOOR + 6), Ok((FLOOR + 6, 2)), "1 is below the threshold");
        assert_eq!(cell.one(FLOOR + 7), Ok((FLOOR + 7, 1)), "2 has reached it");
    }

    #[test]
    fn a_used_up_tick_waits_for_the_next_one_which_begins_with_0() {
        let cell = Cell::new(small());
        let now = FLOOR + 5;
        assert_eq!(cell.take(now, 100).map(|taken| (taken.sequence, taken.count)), Ok((1, 3)));
        assert_eq!(cell.one(now), wait(Wait::SequenceUsedUp { now, until: now + 1 }));
        assert_eq!(cell.last(), now);
        assert_eq!(cell.one(now + 1), Ok((now + 1, 0)));
    }

    #[test]
    fn after_a_step_back_it_goes_on_in_the_last_tick_until_that_is_used_up() {
        let cell = Cell::new(small());
        let (then, now) = (FLOOR + 500, FLOOR + 5);
        assert_eq!(cell.one(then), Ok((then, 1)));
        assert_eq!(cell.one(now), Ok((then, 2)));
        assert_eq!(cell.one(now), Ok((then, 3)));
        assert_eq!(cell.one(now), wait(Wait::SequenceUsedUp { now, until: then + 1 }));
    }

    #[test]
    fn a_clock_outside_the_layout_is_an_error_and_no_panic() {
        let cell = Cell::new(Layout::MILLISECOND);
        cell.ceiling.store(u64::MAX, Ordering::Relaxed);
        let now = EPOCH - 1;
        assert_eq!(cell.one(now), Err(NextError::BeforeEpoch { now, epoch: EPOCH }));
        let last = EPOCH + (1 << 41) - 1;
        assert_eq!(cell.one(last), Ok((last, 1)));
        for now in [last + 1, u64::MAX] {
            assert_eq!(cell.one(now), Err(NextError::LayoutUsedUp { last }));
        }
        assert_eq!(cell.take(last, 100_000).map(|taken| taken.count), Ok(4094));
        assert_eq!(cell.one(last), wait(Wait::SequenceUsedUp { now: last, until: last + 1 }));
        assert_eq!(cell.last(), last);
    }

    #[test]
    fn a_floor_before_the_epoch_or_past_the_layout_is_no_panic() {
        let layout = Layout::MILLISECOND;
        assert_eq!(first_state(&layout, 0), 0);
        assert_eq!(last_issued(&layout, 0, 0), 0);
        assert_eq!(last_issued(&layout, 0, 1), EPOCH);
        assert_eq!(first_state(&layout, u64::MAX) & CLOSED, 0);
        let late = Rules::new(layout, u64::MAX);
        let state = AtomicU64::new(first_state(&layout, u64::MAX));
        let end = layout.tick_end(layout.max_tick());
        let refused = late.take(&state, &AtomicU64::new(u64::MAX), end, 1);
        assert_eq!(refused, wait(Wait::BelowFloor { now: end, until: end + 1 }));
        let refused = late.take(&state, &AtomicU64::new(u64::MAX), end + 1, 1);
        assert_eq!(refused, Err(NextError::LayoutUsedUp { last: end }));
    }

    #[test]
    fn any_state_that_a_broken_program_wrote_is_no_panic() {
        for state in [0, 1, u64::MAX, CLOSED - 1, CLOSED, 1 << 62] {
            let cell = Cell::new(Layout::MILLISECOND);
            cell.state.store(state, Ordering::Relaxed);
            let _ = cell.one(FLOOR + 5);
            let _ = cell.last();
        }
    }

    #[test]
    fn a_state_from_before_the_floor_does_not_undo_the_floor() {
        let cell = Cell::new(Layout::MILLISECOND);
        cell.state.store(7, Ordering::Relaxed);
        assert_eq!(cell.one(FLOOR), wait(Wait::BelowFloor { now: FLOOR, until: FLOOR + 1 }));
        assert_eq!(cell.one(FLOOR + 1), Ok((FLOOR + 1, 0)));
    }

    #[test]
    fn a_closed_cell_keeps_its_last_timestamp_and_issues_nothing() {
        let cell = Cell::new(Layout::MILLISECOND);
        assert_eq!(cell.one(FLOOR + 5), Ok((FLOOR + 5, 1)));
        for _ in 0..2 {
            close(&cell.state);
            assert_eq!(cell.one(FLOOR + 6), Err(NextError::SlotLost));
            assert_eq!(cell.last(), FLOOR + 5);
        }
        let unused = Cell::new(Layout::MILLISECOND);
        close(&unused.state);
        assert_eq!(unused.last(), FLOOR);
    }

    #[test]
    fn a_coarse_unit_owns_whole_units_at_both_ends() {
        let cell = Cell::new(seconds());
        // The floor lies at the start of second 1, which others may have used; second 2 is the first whole one.
        let until = EPOCH + 2_000;
        for now in [FLOOR + 1, until - 1] {
            assert_eq!(cell.one(now), wait(Wait::BelowFloor { now, until }));
        }
        cell.ceiling.store(until + 998, Ordering::Relaxed);
        assert_eq!(cell.one(until), wait(Wait::AboveCeiling { now: until, ceiling: until + 998 }));
        assert_eq!(cell.last(), FLOOR);
        cell.ceiling.store(until + 999, Ordering::Relaxed);
        assert_eq!(cell.one(until), Ok((until, 0)));
        assert_eq!(cell.last(), until + 999);
    }
}
