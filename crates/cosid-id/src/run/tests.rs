use super::*;
use crate::cell::{close, first_state, last_issued};
use crate::gate::{OFF, shut};
use crate::layout::Layout;

const FLOOR: u64 = Layout::MILLISECOND.epoch_ms() + 1_000;
const CEILING: u64 = FLOOR + 1_000;
const NOW: u64 = FLOOR + 10;
const OWNER: u64 = 7;

/// A cell, and a process's gate to it that is open.
struct Cell {
    rules: Rules,
    state: AtomicU64,
    ceiling: AtomicU64,
    gate: AtomicU64,
}

/// What a thread did for an ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Served,
    Added,
    ByClock,
}

impl Cell {
    fn new() -> Self {
        let layout = Layout::MILLISECOND;
        let cell = Self {
            rules: Rules::new(layout, FLOOR),
            state: AtomicU64::new(first_state(&layout, FLOOR)),
            ceiling: AtomicU64::new(CEILING),
            gate: AtomicU64::new(SHUT),
        };
        cell.by_clock(&Run::new(), NOW);
        cell
    }

    fn state(&self) -> u64 {
        self.state.load(Relaxed)
    }

    fn by_clock(&self, run: &Run, now: u64) -> u64 {
        let state = self.rules.first_state_of(self.rules.take(&self.state, &self.ceiling, now, 1).unwrap());
        run.went_on(OWNER, state + 1);
        self.rules.open(&self.state, &self.gate, &self.ceiling, now);
        state
    }

    fn next(&self, run: &Run, now: u64) -> (u64, How) {
        if let Some(state) = run.serve(OWNER, &self.state, &self.gate) {
            return (state, How::Served);
        }
        let added = match run.add(OWNER, &self.rules, &self.state, &self.gate) {
            Added::Taken(state) => Some(state),
            Added::Edge(edge) => self.rules.settle(edge, &self.gate, now),
            Added::Shut => None,
        };
        added.map_or_else(|| (self.by_clock(run, now), How::ByClock), |state| (state, How::Added))
    }
}

#[test]
fn a_thread_that_is_alone_adds_seldom_and_loses_no_number() {
    let cell = Cell::new();
    let run = Run::new();
    let mut expected = cell.state();
    for (ms, at_most) in [(0, 500), (1, 200), (2, 200)] {
        let ids: Vec<_> = std::iter::repeat_with(|| cell.next(&run, NOW + ms)).take(4_094).collect();
        assert!(ids.iter().map(|id| id.0).eq(expected..expected + 4_094), "in order and without a gap");
        let added = ids.iter().filter(|id| id.1 == How::Added).count();
        assert!(added <= at_most, "{added} in ms {ms}");
        expected = ((expected >> 12) + 1) << 12;
        cell.state.store(expected, Relaxed);
        shut(&cell.gate);
    }
}

#[test]
fn at_the_first_id_of_somebody_else_the_rest_of_a_run_is_thrown_away() {
    let cell = Cell::new();
    let run = Run::alone(OWNER, cell.state());
    let first = cell.next(&run, NOW).0;
    assert_eq!(cell.next(&run, NOW), (first + 1, How::Served));
    let (others, how) = cell.next(&Run::new(), NOW);
    assert_eq!((others > first + 1, how), (true, How::Added));
    assert_eq!(cell.next(&run, NOW), (others + 1, How::Added), "larger than what the other has");
    for ours in 2..100 {
        assert_eq!(cell.next(&run, NOW), (others + ours, How::Added), "one by one, until it is alone again");
    }
}

#[test]
fn no_more_is_thrown_away_than_one_of_64_ids_that_the_thread_was_alone_for() {
    let cell = Cell::new();
    let (run, other) = (Run::new(), Run::new());
    let (mut made, before) = (0, cell.state());
    for alone in (0..800).step_by(100) {
        for _ in 0..alone {
            cell.next(&run, NOW);
        }
        cell.next(&other, NOW);
        made += alone + 1;
    }
    let taken = cell.state() - before;
    assert!(taken <= made + made / 64, "{made} of {taken}");
}

#[test]
fn threads_that_meet_have_runs_only_where_a_millisecond_has_sequences_to_spare() {
    let bits = |bits| shared_run(&Layout::builder().slot_bits(2).sequence_bits(bits).build().unwrap());
    assert_eq!([12, 15, 16, 17, 18, 20].map(bits), [1, 1, 2, 4, 8, 8]);
    assert_eq!(shared_run(&Layout::SECOND), 1);

    let mut cell = Cell::new();
    cell.rules.shared_run = 8;
    let threads = [Run::new(), Run::new()];
    let mut last = cell.state();
    for turn in 0..20 {
        let ids = [(); 3].map(|()| cell.next(&threads[turn % 2], NOW));
        assert!(ids[0].0 >= last && ids[1].0 > ids[0].0 && ids[2].0 > ids[1].0, "{ids:?} after {last}");
        assert_eq!(ids.map(|id| id.1), [How::Added, How::Served, How::Served]);
        last = ids[2].0 + 1;
    }
}

#[test]
fn a_run_ends_with_its_tick() {
    let cell = Cell::new();
    let run = Run::alone(OWNER, cell.state());
    cell.next(&run, NOW);
    assert_eq!(cell.next(&run, NOW).1, How::Served);
    shut(&cell.gate);
    let (state, how) = cell.next(&run, NOW + 1);
    assert_eq!((cell.rules.layout.tick_start(state >> 12), how), (NOW + 1, How::ByClock));
}

#[test]
fn a_run_looks_at_the_clock_at_every_256th_number() {
    let cell = Cell::new();
    let run = Run::alone(OWNER, cell.state());
    let late = NOW + 3;
    let in_time =
        (0..1_000).take_while(|_| cell.next(&run, late).0 >> 12 == cell.rules.layout.ticks_to(NOW).unwrap());
    assert_eq!(in_time.count(), 255, "number 1 was made with the gate");
}

#[test]
fn a_run_never_passes_the_limit() {
    let cell = Cell::new();
    let limit = cell.gate.load(Relaxed);
    cell.state.store(limit - 5, Relaxed);
    let run = Run::alone(OWNER, limit - 5);
    let ids: Vec<_> = (0..5).map(|_| cell.next(&run, NOW)).collect();
    assert!(ids.iter().map(|id| id.0).eq(limit - 5..limit));
    assert_eq!(cell.state(), limit);
    assert_eq!(cell.next(&run, NOW), (limit, How::Added), "above the limit, and good");
}

#[test]
fn a_closed_cell_ends_a_run_and_knows_it() {
    let cell = Cell::new();
    let run = Run::alone(OWNER, cell.state());
    let id = cell.next(&run, NOW).0;
    let before = close(&cell.state);
    assert!(before > id);
    assert_eq!(last_issued(&cell.rules.layout, FLOOR, before), NOW);
    assert_eq!(run.serve(OWNER, &cell.state, &cell.gate), None);
}

#[test]
fn a_forked_child_serves_nothing_that_its_parent_has() {
    let mut parent = Cell::new();
    let run = Run::alone(OWNER, parent.state());
    let first = parent.next(&run, NOW).0;
    // A copy of the thread's words, and a gate of zeros; the page is shared.
    let copy = Run::alone(OWNER, run.end.load(Relaxed));
    copy.next.store(run.next.load(Relaxed), Relaxed);
    copy.limit.store(run.limit.load(Relaxed), Relaxed);
    let parents_gate = std::mem::replace(&mut parent.gate, AtomicU64::new(OFF));
    let mut child = parent;
    let childs: Vec<_> = (0..3).map(|_| child.next(&copy, NOW)).collect();
    assert!(childs.iter().all(|id| id.1 == How::ByClock && id.0 >= first + 64), "{childs:?}");
    // The child makes many; its gate gets the limit that its parent's has.
    child.gate.store(SHUT, Relaxed);
    child.by_clock(&copy, NOW);
    assert_eq!(child.gate.load(Relaxed), parents_gate.load(Relaxed));
    assert_eq!(child.next(&copy, NOW).1, How::Added);
    child.gate = parents_gate;
    let behind_it = child.state();
    assert_eq!(child.next(&run, NOW), (behind_it, How::Added), "the parent throws its run away too");
}

#[test]
fn a_run_of_another_generator_is_not_served() {
    let cell = Cell::new();
    let run = Run::alone(OWNER, cell.state());
    cell.next(&run, NOW);
    assert_eq!(run.serve(OWNER + 1, &cell.state, &cell.gate), None);
    assert!(run.serve(OWNER, &cell.state, &cell.gate).is_some());
}

/// What a signal handler makes, by whichever way is open to it.
fn handler(cell: &Cell, run: &Run, got: &mut Vec<u64>) {
    got.extend((0..3).map(|_| cell.next(run, NOW).0));
}

/// 100 more IDs of the interrupted thread, and whether all are different.
fn all_differ(cell: &Cell, run: &Run, mut got: Vec<u64>) -> bool {
    got.extend((0..100).map(|_| cell.next(run, NOW).0));
    let made = got.len();
    got.sort_unstable();
    got.dedup();
    got.len() == made
}

#[test]
fn a_signal_handler_that_interrupts_a_thread_which_serves_itself_leaves_it_nothing_to_repeat() {
    let cell = Cell::new();
    let run = Run::alone(OWNER, cell.state());
    let mut got = vec![cell.next(&run, NOW).0];
    let served =
        run.serve_interrupted(OWNER, &cell.state, &cell.gate, || handler(&cell, &run, &mut got)).unwrap();
    assert!(got.iter().skip(1).all(|&id| id > served), "{got:?} in the midst of {served}");
    got.push(served);
    assert!(all_differ(&cell, &run, got));
}

#[test]
fn a_signal_handler_that_interrupts_a_thread_which_adds_leaves_it_nothing_to_repeat() {
    for run in [Run::new(), Run::alone(OWNER, 0)] {
        let cell = Cell::new();
        run.end.store(cell.state(), Relaxed);
        let mut got = Vec::new();
        let interrupt = || handler(&cell, &run, &mut got);
        match run.add_interrupted(OWNER, &cell.rules, &cell.state, &cell.gate, interrupt) {
            Added::Taken(state) => got.push(state),
            other => panic!("{other:?}"),
        }
        assert!(all_differ(&cell, &run, got));
    }
}

#[test]
fn a_signal_handler_that_takes_by_the_clock_leaves_its_thread_nothing_to_repeat() {
    let cell = Cell::new();
    let run = Run::alone(OWNER, cell.state());
    let mut got = vec![cell.next(&run, NOW).0];
    let interrupt = || got.push(cell.by_clock(&run, NOW));
    let served = run.serve_interrupted(OWNER, &cell.state, &cell.gate, interrupt).unwrap();
    got.push(served);
    assert!(all_differ(&cell, &run, got));
}

#[test]
fn a_state_from_before_the_floor_does_not_undo_the_floor() {
    let cell = Cell::new();
    let run = Run::alone(OWNER, 7);
    cell.state.store(7, Relaxed);
    for _ in 0..3 {
        let state = cell.next(&run, NOW).0;
        assert!(cell.rules.layout.tick_start(state >> 12) > FLOOR);
        cell.state.store(run.end.load(Relaxed), Relaxed);
    }
}
