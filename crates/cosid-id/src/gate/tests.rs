use super::*;
use crate::cell::{close, first_state, last_issued};
use crate::layout::Layout;
use crate::next_error::{NextError, Wait};
use crate::run::Run;

const EPOCH: u64 = Layout::MILLISECOND.epoch_ms();
const FLOOR: u64 = EPOCH + 1_000;
const CEILING: u64 = FLOOR + 1_000;
const NOW: u64 = FLOOR + 10;

/// One cell in a window from FLOOR to CEILING, and a process's gate to it, which is in use and shut.
struct Cell {
    rules: Rules,
    state: AtomicU64,
    ceiling: AtomicU64,
    gate: AtomicU64,
}

impl Cell {
    fn new(layout: Layout) -> Self {
        Self {
            rules: Rules::new(layout, FLOOR),
            state: AtomicU64::new(first_state(&layout, FLOOR)),
            ceiling: AtomicU64::new(CEILING),
            gate: AtomicU64::new(SHUT),
        }
    }

    /// 128 sequences a tick, of which the last two are kept back.
    fn small() -> Self {
        Self::new(Layout::builder().sequence_bits(7).build().unwrap())
    }

    /// What a generator does for one ID of a thread that is not alone: Unix ms and sequence, and whether it was added.
    fn next(&self, now: u64) -> Result<(u64, u64, bool), NextError> {
        let settled = match Run::new().add(1, &self.rules, &self.state, &self.gate) {
            Added::Taken(state) => Some(state),
            Added::Edge(edge) => self.rules.settle(edge, &self.gate, now),
            Added::Shut => None,
        };
        if let Some(state) = settled {
            let bits = self.rules.layout.sequence_bits();
            return Ok((self.rules.layout.tick_start(state >> bits), state & ((1 << bits) - 1), true));
        }
        let taken = self.rules.take(&self.state, &self.ceiling, now, 1)?;
        self.rules.open(&self.state, &self.gate, &self.ceiling, now);
        Ok((self.rules.layout.tick_start(taken.tick), taken.sequence.into(), false))
    }

    fn is_open(&self) -> bool {
        self.gate.load(Ordering::Relaxed) > SHUT
    }
}

#[test]
fn the_first_id_looks_at_the_clock_and_the_rest_of_the_tick_is_added() {
    let cell = Cell::small();
    assert_eq!(cell.next(NOW), Ok((NOW, 1, false)));
    for sequence in 2..=126 {
        assert_eq!(cell.next(NOW), Ok((NOW, sequence, true)));
    }
    assert!(!cell.is_open(), "126 is above the limit, and good");
    assert_eq!(cell.next(NOW), Ok((NOW, 127, false)), "not one is lost");
    let used_up = Wait::SequenceUsedUp { now: NOW, until: NOW + 1 };
    for _ in 0..1_000 {
        assert_eq!(cell.next(NOW), Err(used_up.into()));
    }
    assert_eq!(cell.next(NOW + 1), Ok((NOW + 1, 0, false)), "those who hammered took nothing");
    assert_eq!(cell.next(NOW + 1), Ok((NOW + 1, 1, true)));
}

#[test]
fn sequences_go_on_over_ticks_and_start_over_from_the_threshold_on_as_without_a_gate() {
    let cell = Cell::small();
    for sequence in 1..=3 {
        assert_eq!(cell.next(NOW).map(|id| id.1), Ok(sequence));
    }
    shut(&cell.gate);
    assert_eq!(cell.next(NOW + 1), Ok((NOW + 1, 4, false)));
    for sequence in 5..=63 {
        assert_eq!(cell.next(NOW + 1).map(|id| id.1), Ok(sequence));
    }
    shut(&cell.gate);
    assert_eq!(cell.next(NOW + 2), Ok((NOW + 2, 1, false)), "63 has reached the threshold, half of 127");
}

#[test]
fn a_gate_that_nobody_shuts_is_shut_by_every_256th_id_that_finds_its_tick_over() {
    let cell = Cell::new(Layout::MILLISECOND);
    assert!(cell.next(NOW).is_ok());
    let late = NOW + 7;
    for sequence in 2..=256 {
        assert_eq!(cell.next(late), Ok((NOW, sequence, true)));
    }
    assert_eq!(cell.next(late), Ok((late, 257, false)));
}

#[test]
fn the_ceiling_is_inclusive_and_a_clock_past_it_opens_nothing() {
    let cell = Cell::small();
    assert_eq!(cell.next(CEILING).map(|id| id.0), Ok(CEILING));
    assert_eq!(cell.next(CEILING), Ok((CEILING, 2, true)));
    let above = CEILING + 1;
    shut(&cell.gate);
    cell.rules.open(&cell.state, &cell.gate, &cell.ceiling, above);
    assert!(!cell.is_open());
    assert_eq!(cell.next(above), Err(Wait::AboveCeiling { now: above, ceiling: CEILING }.into()));
}

#[test]
fn a_small_range_is_taken_without_the_clock_if_all_of_it_is_below_the_limit() {
    let cell = Cell::small();
    let take = |want| cell.rules.take_below(&cell.state, &cell.gate, want).map(|state| state & 127);
    assert_eq!(take(1), None, "the gate is shut");
    assert_eq!(cell.next(NOW), Ok((NOW, 1, false)));
    assert_eq!([take(16), take(100), take(9), take(1)], [Some(2), Some(18), None, Some(118)]);
    assert_eq!([take(8), take(7), take(1)], [None, Some(119), None], "up to the limit");

    let cell = Cell::new(Layout::MILLISECOND);
    assert!(cell.next(NOW).is_ok());
    let take = |want| cell.rules.take_below(&cell.state, &cell.gate, want).map(|state| state & 4_095);
    assert_eq!([take(255), take(254), take(1)], [None, Some(2), None], "number 256 looks at the clock");
    assert_eq!([take(256), take(1_024)], [Some(256), Some(512)], "of large ranges number 4096");
    close(&cell.state);
    assert_eq!(take(1), None);
    cell.state.store(7, Ordering::Relaxed);
    assert_eq!(take(1), None, "below the floor");
}

#[test]
fn a_whole_unit_has_to_be_in_the_window() {
    let cell = Cell::new(Layout::SECOND);
    let second = EPOCH + 5_000;
    cell.ceiling.store(second + 999, Ordering::Relaxed);
    assert_eq!(cell.next(second), Ok((second, 1, false)));
    assert_eq!(cell.next(second + 999), Ok((second, 2, true)));
    shut(&cell.gate);
    cell.ceiling.store(second + 998, Ordering::Relaxed);
    cell.rules.open(&cell.state, &cell.gate, &cell.ceiling, second);
    assert!(!cell.is_open());
}

#[test]
fn a_gate_out_of_use_is_not_opened() {
    let cell = Cell::small();
    cell.gate.store(OFF, Ordering::Relaxed);
    for sequence in 1..10 {
        assert_eq!(cell.next(NOW), Ok((NOW, sequence, false)));
    }
    shut(&cell.gate);
    assert_eq!(cell.gate.load(Ordering::Relaxed), OFF);
}

#[test]
fn a_closed_cell_has_no_id_behind_an_open_gate() {
    let cell = Cell::small();
    assert!(cell.next(NOW).is_ok() && cell.is_open());
    let state = close(&cell.state);
    assert_eq!(last_issued(&cell.rules.layout, FLOOR, state), NOW);
    assert_eq!(cell.next(NOW), Err(NextError::SlotLost));
    assert!(!cell.is_open());
    cell.rules.open(&cell.state, &cell.gate, &cell.ceiling, NOW);
    assert!(!cell.is_open());
    let later = cell.state.load(Ordering::Relaxed);
    assert_eq!(last_issued(&cell.rules.layout, FLOOR, later), NOW, "an addition too late changes nothing");
}

#[test]
fn when_another_process_has_gone_on_to_the_next_tick_one_number_is_lost_and_none_is_early() {
    let cell = Cell::small();
    assert!(cell.next(NOW).is_ok());
    assert_eq!(cell.rules.take(&cell.state, &cell.ceiling, NOW + 1, 5).map(|taken| taken.sequence), Ok(2));
    assert_eq!(cell.next(NOW + 1), Ok((NOW + 1, 8, false)), "7 is lost");
    assert_eq!(cell.next(NOW + 1), Ok((NOW + 1, 9, true)));
}

#[test]
fn a_state_from_before_the_floor_does_not_undo_the_floor() {
    let cell = Cell::small();
    assert!(cell.next(NOW).is_ok() && cell.is_open());
    cell.state.store(7, Ordering::Relaxed);
    assert_eq!(cell.next(NOW).map(|id| id.0), Ok(NOW));
    cell.state.store(7, Ordering::Relaxed);
    shut(&cell.gate);
    cell.rules.open(&cell.state, &cell.gate, &cell.ceiling, NOW);
    assert!(!cell.is_open());
}

#[test]
fn ahead_of_the_clock_by_the_bound_and_never_past_the_ceiling() {
    let mut cell = Cell::small();
    cell.rules = cell.rules.ahead(2);
    let mut ids = Vec::new();
    while let Ok((timestamp, sequence, _)) = cell.next(NOW) {
        ids.push((timestamp, sequence));
    }
    let all = (NOW..=NOW + 2).flat_map(|ms| (0..128).map(move |sequence| (ms, sequence)));
    assert_eq!(ids, all.skip(1).collect::<Vec<_>>());
    assert_eq!(cell.next(NOW), Err(Wait::SequenceUsedUp { now: NOW, until: NOW + 1 }.into()));

    let mut cell = Cell::small();
    cell.rules = cell.rules.ahead(2);
    let mut last = 0;
    while let Ok((timestamp, ..)) = cell.next(CEILING - 1) {
        last = timestamp;
    }
    assert_eq!(last, CEILING);
    assert_eq!(cell.next(CEILING - 1), Err(Wait::AboveCeiling { now: CEILING - 1, ceiling: CEILING }.into()));
}

#[test]
fn who_may_be_ahead_follows_the_clock_as_soon_as_the_tick_is_over() {
    let mut cell = Cell::small();
    cell.rules = cell.rules.ahead(50);
    assert!(cell.next(NOW).is_ok() && cell.is_open());
    shut(&cell.gate);
    assert_eq!(cell.next(NOW + 1).map(|id| id.0), Ok(NOW + 1));
}

#[test]
fn times_and_states_out_of_bounds_are_no_panic() {
    for state in [0, 1, u64::MAX, CLOSED - 1, CLOSED, 1 << 62] {
        for now in [0, EPOCH - 1, EPOCH, NOW, u64::MAX] {
            for ceiling in [0, EPOCH - 1, CEILING, u64::MAX] {
                let cell = Cell::new(Layout::MILLISECOND);
                cell.state.store(state, Ordering::Relaxed);
                cell.ceiling.store(ceiling, Ordering::Relaxed);
                cell.rules.open(&cell.state, &cell.gate, &cell.ceiling, now);
                let _ = cell.next(now);
                let _ = cell.rules.ahead(u64::MAX).limit(state, ceiling, now);
            }
        }
    }
}
