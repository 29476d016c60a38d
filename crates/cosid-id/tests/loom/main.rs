//! The words of a cell under every interleaving that the C11 memory model allows:
//! `RUSTFLAGS="--cfg loom" cargo test -p cosid-id --release --test loom`. With `--cfg cosid_proof` too, that it finds faults.

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "functions that tests share may stop them too")]

#[cfg(cosid_proof)]
mod faults;

use cosid_id::cell::{self, Rules};
use cosid_id::gate::{self, Added};
use cosid_id::run::Run;
use cosid_id::sync::{AtomicU64, Ordering};
use cosid_id::{Layout, NextError, Wait};
use loom::sync::Arc;
use loom::thread;

const EPOCH: u64 = Layout::MILLISECOND.epoch_ms();
const FLOOR: u64 = EPOCH + 100;

struct Cell {
    rules: Rules,
    layout: Layout,
    state: AtomicU64,
    ceiling: AtomicU64,
}

impl Cell {
    /// Four sequences a tick, so that ticks are used up.
    fn new(ceiling: u64) -> Arc<Self> {
        Self::with_sequence_bits(2, ceiling)
    }

    fn with_sequence_bits(bits: u8, ceiling: u64) -> Arc<Self> {
        Self::of(Layout::builder().sequence_bits(bits).build().unwrap(), ceiling)
    }

    fn of(layout: Layout, ceiling: u64) -> Arc<Self> {
        Arc::new(Self {
            rules: Rules::new(layout, FLOOR),
            layout,
            state: AtomicU64::new(cell::first_state(&layout, FLOOR)),
            ceiling: AtomicU64::new(ceiling),
        })
    }

    /// Timestamp and sequence of up to `want` IDs.
    fn take(&self, now: u64, want: u32) -> Result<Vec<(u64, u32)>, NextError> {
        let taken = self.rules.take(&self.state, &self.ceiling, now, want)?;
        let timestamp = self.layout.tick_start(taken.tick);
        Ok((0..taken.count).map(|index| (timestamp, taken.sequence + index)).collect())
    }

    fn close(&self) -> u64 {
        cell::last_issued(&self.layout, FLOOR, cell::close(&self.state))
    }

    fn last_issued(&self) -> u64 {
        cell::last_issued(&self.layout, FLOOR, self.state.load(Ordering::Acquire))
    }
}

/// A process with its gate to a cell.
struct Process {
    cell: Arc<Cell>,
    gate: AtomicU64,
}

impl Process {
    /// A process whose gate is open for the tick of `now`.
    fn open(cell: &Arc<Cell>, now: u64) -> Arc<Self> {
        let process = Self { cell: cell.clone(), gate: AtomicU64::new(gate::SHUT) };
        process.open_gate(now);
        Arc::new(process)
    }

    fn open_gate(&self, now: u64) {
        self.cell.rules.open(&self.cell.state, &self.gate, &self.cell.ceiling, now);
    }

    /// One ID as a generator makes it for a thread that is not alone: added if the gate is open.
    fn next(&self, now: u64) -> Result<(u64, u32), NextError> {
        self.next_of(&Run::new(), now)
    }

    /// One ID for a thread: of its run, if it has one.
    fn next_of(&self, run: &Run, now: u64) -> Result<(u64, u32), NextError> {
        let served = run.serve(1, &self.cell.state, &self.gate);
        let settled = served.or_else(|| match run.add(1, &self.cell.rules, &self.cell.state, &self.gate) {
            Added::Taken(state) => Some(state),
            Added::Edge(edge) => self.cell.rules.settle(edge, &self.gate, now),
            Added::Shut => None,
        });
        if let Some(state) = settled {
            let sequence = u32::try_from(state & u64::from(self.cell.layout.max_sequence())).unwrap();
            return Ok((self.cell.layout.tick_start(state >> self.cell.layout.sequence_bits()), sequence));
        }
        let taken = self.cell.take(now, 1)?;
        self.open_gate(now);
        Ok(taken[0])
    }
}

fn assert_distinct(ids: &[(u64, u32)]) {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), ids.len(), "an ID came twice: {ids:?}");
}

#[test]
fn issue_against_issue_no_id_is_given_twice() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 50);
        let other = cell.clone();
        // One with an old reading of the clock, one in bulk.
        let late = thread::spawn(move || {
            let mut ids = other.take(FLOOR + 9, 1).unwrap_or_default();
            ids.extend(other.take(FLOOR + 10, 1).unwrap_or_default());
            ids
        });
        let mut ids = cell.take(FLOOR + 10, 3).unwrap();
        ids.extend(late.join().unwrap());
        assert_distinct(&ids);
        let largest = ids.iter().map(|&(timestamp, _)| timestamp).max();
        assert_eq!(largest, Some(cell.last_issued()));
    });
}

#[test]
fn three_issue_at_once_and_the_tick_holds_them_all_or_refuses() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 50);
        let others = [1, 2].map(|want| {
            let cell = cell.clone();
            thread::spawn(move || cell.take(FLOOR + 10, want))
        });
        let mut ids = cell.take(FLOOR + 10, 1).unwrap_or_default();
        for other in others {
            match other.join().unwrap() {
                Ok(taken) => ids.extend(taken),
                Err(error) => assert!(matches!(error, NextError::Wait(Wait::SequenceUsedUp { .. }))),
            }
        }
        assert_distinct(&ids);
        assert_eq!(ids.len(), 3, "sequences 1 to 3 of the tick");
    });
}

#[test]
fn issue_against_close_what_close_says_is_final() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 50);
        let makers = [FLOOR + 10, FLOOR + 20].map(|now| {
            let cell = cell.clone();
            thread::spawn(move || cell.take(now, 2))
        });
        let last = cell.close();
        assert_eq!(cell.take(FLOOR + 30, 1), Err(NextError::SlotLost), "closed");
        let mut largest = FLOOR;
        for maker in makers {
            match maker.join().unwrap() {
                Ok(ids) => largest = ids.iter().map(|&(timestamp, _)| timestamp).fold(largest, u64::max),
                Err(error) => assert_eq!(error, NextError::SlotLost),
            }
        }
        assert_eq!(last, largest, "what close said is not what was issued");
        assert_eq!(cell.close(), last);
    });
}

#[test]
fn close_against_close_both_say_the_same() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 50);
        let (maker, closer) = (cell.clone(), cell.clone());
        let maker = thread::spawn(move || maker.take(FLOOR + 10, 1).is_ok());
        let closer = thread::spawn(move || closer.close());
        let last = cell.close();
        assert_eq!(closer.join().unwrap(), last);
        let made = maker.join().unwrap();
        assert_eq!(last, if made { FLOOR + 10 } else { FLOOR });
    });
}

#[test]
fn issue_against_ceiling_moves_nothing_is_above_the_largest() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 5);
        let movers = [FLOOR + 10, FLOOR + 8].map(|ceiling| {
            let cell = cell.clone();
            thread::spawn(move || cell.ceiling.fetch_max(ceiling, Ordering::AcqRel))
        });
        for now in [FLOOR + 10, FLOOR + 11] {
            match cell.take(now, 1) {
                Ok(ids) => assert_eq!(ids[0].0, FLOOR + 10, "above the ceiling"),
                Err(error) => assert!(matches!(error, NextError::Wait(Wait::AboveCeiling { .. }))),
            }
        }
        for mover in movers {
            mover.join().unwrap();
        }
        assert_eq!(cell.ceiling.load(Ordering::Acquire), FLOOR + 10, "it never shrinks");
        assert!(cell.take(FLOOR + 10, 1).is_ok());
    });
}

/// 16 ms a unit, and a window that neither begins nor ends with one: one unit wholly above the floor, and one that a
/// ceiling which moves comes to own.
#[test]
fn issue_against_ceiling_moves_a_coarse_unit_is_owned_as_a_whole_or_not_at_all() {
    loom::model(|| {
        let epoch = FLOOR - 8;
        let layout = Layout::builder().sequence_bits(2).unit_ms(16).epoch_ms(epoch).build().unwrap();
        // The floor is in unit 0, the ceiling in unit 2, then at its end.
        let cell = Cell::of(layout, epoch + 2 * 16 + 14);
        let mover = cell.clone();
        let mover = thread::spawn(move || mover.ceiling.fetch_max(epoch + 2 * 16 + 15, Ordering::AcqRel));
        let other = cell.clone();
        let other = thread::spawn(move || other.take(FLOOR, 1));
        let outcomes = [cell.take(epoch + 2 * 16, 1), other.join().unwrap()];
        let ceiling = cell.ceiling.load(Ordering::Acquire);
        for (start, _) in outcomes.into_iter().flatten().flatten() {
            assert!(start > FLOOR, "half a unit at the floor");
            assert!(start + 15 <= ceiling, "half a unit at the ceiling");
        }
        mover.join().unwrap();
        assert!(cell.take(epoch + 2 * 16, 1).is_ok(), "its last millisecond is the ceiling");
    });
}

#[test]
fn ceiling_moves_against_close_nothing_comes_back() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 9);
        let process = Process::open(&cell, FLOOR + 9);
        let (mover, maker) = (cell.clone(), process.clone());
        // The renewal whose answer comes as the page is being closed.
        let mover = thread::spawn(move || mover.ceiling.fetch_max(FLOOR + 50, Ordering::AcqRel));
        let maker = thread::spawn(move || maker.next(FLOOR + 10).map_or(FLOOR, |(timestamp, _)| timestamp));
        let last = cell.close();
        mover.join().unwrap();
        assert_eq!(process.next(FLOOR + 20), Err(NextError::SlotLost), "closed");
        assert!(maker.join().unwrap() <= last, "what close said is not what was issued");
    });
}

#[test]
fn the_tick_against_a_gate_that_goes_out_of_use_it_stays_so() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let ticker = process.clone();
        let ticker = thread::spawn(move || gate::shut(&ticker.gate));
        // Loom has no order of a store and a swap of two threads, which every processor has: so both are swaps here.
        process.gate.swap(gate::OFF, Ordering::AcqRel);
        ticker.join().unwrap();
        process.open_gate(FLOOR + 11);
        assert_eq!(process.gate.load(Ordering::Acquire), gate::OFF, "out of use");
    });
}

#[test]
fn additions_against_additions_no_id_is_given_twice_and_none_is_ahead_of_the_clock() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let makers = [1, 2].map(|_| {
            let process = process.clone();
            thread::spawn(move || process.next(FLOOR + 10))
        });
        let mut ids = vec![process.next(FLOOR + 10).unwrap()];
        ids.extend(makers.into_iter().filter_map(|maker| maker.join().unwrap().ok()));
        assert_distinct(&ids);
        assert!(ids.iter().all(|&(timestamp, _)| timestamp <= FLOOR + 10));
        assert_eq!(ids.len(), 3, "the tick has room for all of them");
    });
}

#[test]
fn additions_against_a_swap_of_another_process_no_id_is_given_twice_and_none_is_early() {
    loom::model(|| {
        let cell = Cell::with_sequence_bits(3, FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let other = cell.clone();
        let swapper = thread::spawn(move || other.take(FLOOR + 11, 2).unwrap());
        let adder = process.clone();
        let adder = thread::spawn(move || adder.next(FLOOR + 10));
        let mut ids = vec![process.next(FLOOR + 11).unwrap()];
        ids.extend(swapper.join().unwrap());
        ids.push(adder.join().unwrap().unwrap());
        assert_distinct(&ids);
        assert!(ids.iter().all(|&(timestamp, _)| timestamp <= FLOOR + 11), "{ids:?}");
    });
}

#[test]
fn additions_against_the_tick_it_shuts_the_gate_and_stops_nobody() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let ticker = process.clone();
        let ticker = thread::spawn(move || gate::shut(&ticker.gate));
        let other = process.clone();
        let other = thread::spawn(move || other.next(FLOOR + 11).unwrap());
        let id = process.next(FLOOR + 11).unwrap();
        let ids = [id, other.join().unwrap()];
        ticker.join().unwrap();
        assert_distinct(&ids);
        assert!(ids.iter().all(|&(timestamp, _)| timestamp > FLOOR && timestamp <= FLOOR + 11));
        assert_eq!(process.next(FLOOR + 12).map(|(timestamp, _)| timestamp >= FLOOR + 11), Ok(true));
    });
}

#[test]
fn a_gate_that_went_out_of_use_is_not_opened_by_a_latecomer() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let late = process.clone();
        let late = thread::spawn(move || late.next(FLOOR + 11).is_ok());
        // What the thread does when it ends.
        process.gate.store(gate::OFF, Ordering::Release);
        assert!(late.join().unwrap());
        assert_eq!(process.gate.load(Ordering::Acquire), gate::OFF, "out of use");
    });
}

#[test]
fn additions_against_ceiling_moves_nothing_is_above_the_largest() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 9);
        let process = Process::open(&cell, FLOOR + 9);
        let mover = cell.clone();
        let mover = thread::spawn(move || mover.ceiling.fetch_max(FLOOR + 10, Ordering::AcqRel));
        let other = process.clone();
        let other = thread::spawn(move || other.next(FLOOR + 10));
        for outcome in [process.next(FLOOR + 11), other.join().unwrap()] {
            match outcome {
                Ok((timestamp, _)) => assert!(timestamp <= FLOOR + 10, "above the ceiling"),
                Err(error) => assert!(matches!(error, NextError::Wait(Wait::AboveCeiling { .. }))),
            }
        }
        mover.join().unwrap();
    });
}

#[test]
fn additions_ahead_of_the_clock_against_each_other_nothing_is_above_the_ceiling() {
    loom::model(|| {
        let layout = Layout::builder().sequence_bits(2).build().unwrap();
        let cell = Arc::new(Cell {
            rules: Rules::new(layout, FLOOR).ahead(3),
            layout,
            state: AtomicU64::new(cell::first_state(&layout, FLOOR)),
            ceiling: AtomicU64::new(FLOOR + 11),
        });
        while cell.last_issued() < FLOOR + 11 {
            cell.take(FLOOR + 10, 1).unwrap();
        }
        let process = Process::open(&cell, FLOOR + 10);
        let other = process.clone();
        let other = thread::spawn(move || other.next(FLOOR + 10).ok());
        let mut ids: Vec<_> = (0..4).filter_map(|_| process.next(FLOOR + 10).ok()).collect();
        ids.extend(other.join().unwrap());
        assert!(ids.iter().all(|&(timestamp, _)| timestamp <= FLOOR + 11), "above the ceiling: {ids:?}");
        assert_distinct(&ids);
    });
}

#[test]
fn additions_against_close_what_close_says_is_final() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let (adder, swapper) = (process.clone(), cell.clone());
        let adder = thread::spawn(move || adder.next(FLOOR + 10).map(|id| vec![id]));
        let swapper = thread::spawn(move || swapper.take(FLOOR + 11, 1));
        let closed_at = cell.close();
        assert_eq!(process.next(FLOOR + 12), Err(NextError::SlotLost), "closed");
        let mut largest = FLOOR;
        for maker in [adder, swapper] {
            match maker.join().unwrap() {
                Ok(ids) => largest = largest.max(ids[0].0),
                Err(error) => assert_eq!(error, NextError::SlotLost),
            }
        }
        assert_eq!(closed_at, largest, "exact, and nothing came after it");
    });
}

/// A run of a thread that was alone so far.
fn run_on(cell: &Cell) -> Run {
    cell.take(FLOOR + 10, 1).unwrap();
    Run::alone(1, cell.state.load(Ordering::Acquire))
}

#[test]
fn runs_against_additions_no_id_is_given_twice_and_they_grow_from_call_to_call() {
    loom::model(|| {
        let cell = Cell::with_sequence_bits(9, FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let run = run_on(&cell);
        let mut ids = vec![process.next_of(&run, FLOOR + 10).unwrap()];
        let other = process.clone();
        let other = thread::spawn(move || other.next(FLOOR + 10).unwrap());
        ids.push(process.next_of(&run, FLOOR + 10).unwrap());
        let others = other.join().unwrap();
        // The other call has ended before this one begins.
        let last = process.next_of(&run, FLOOR + 10).unwrap();
        assert!(last > others, "{last:?} after {others:?}");
        assert!(ids[0] < others, "the other began after {ids:?}");
        ids.extend([others, last]);
        assert_distinct(&ids);
    });
}

#[test]
fn runs_against_runs_no_id_is_given_twice() {
    loom::model(|| {
        let cell = Cell::with_sequence_bits(9, FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let two = |process: &Process, run: &Run| [(); 2].map(|()| process.next_of(run, FLOOR + 10).unwrap());
        let (other, run) = (process.clone(), run_on(&cell));
        let other = thread::spawn(move || two(&other, &run));
        let run = run_on(&cell);
        let ids = [two(&process, &run), other.join().unwrap()];
        assert!(ids.iter().all(|ids| ids[0] < ids[1]), "{ids:?}");
        assert_distinct(&ids.concat());
    });
}

#[test]
fn small_ranges_against_runs_and_close_no_id_is_given_twice_and_close_is_final() {
    loom::model(|| {
        let cell = Cell::with_sequence_bits(9, FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let (other, run) = (process.clone(), run_on(&cell));
        let ranges = thread::spawn(move || other.cell.rules.take_below(&other.cell.state, &other.gate, 3));
        let mut ids: Vec<u64> = [(); 2]
            .iter()
            .filter_map(|()| process.next_of(&run, FLOOR + 10).ok().map(|(_, sequence)| sequence.into()))
            .collect();
        let before = cell::close(&cell.state) & 511;
        ids.extend(ranges.join().unwrap().into_iter().flat_map(|state| (state & 511)..(state & 511) + 3));
        assert!(ids.iter().all(|&id| id < before), "{ids:?}: close said {before}");
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    });
}

#[test]
fn runs_against_the_tick_and_another_process_no_id_is_given_twice() {
    loom::model(|| {
        let cell = Cell::with_sequence_bits(9, FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let ticker = process.clone();
        let run = run_on(&cell);
        let mut ids = vec![process.next_of(&run, FLOOR + 10).unwrap()];
        let ticker = thread::spawn(move || {
            gate::shut(&ticker.gate);
            ticker.cell.take(FLOOR + 11, 2).unwrap()
        });
        ids.push(process.next_of(&run, FLOOR + 11).unwrap());
        let others = ticker.join().unwrap();
        let last = process.next_of(&run, FLOOR + 11).unwrap();
        assert!(last > others[1], "{last:?} after {others:?}");
        ids.extend(others);
        ids.push(last);
        assert_distinct(&ids);
    });
}

#[test]
fn runs_against_close_what_close_says_is_final() {
    loom::model(|| {
        let cell = Cell::with_sequence_bits(9, FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let run = run_on(&cell);
        let closer = cell.clone();
        let closer = thread::spawn(move || cell::close(&closer.state));
        let mut largest = 0;
        for _ in 0..3 {
            match process.next_of(&run, FLOOR + 10) {
                Ok((_, sequence)) => largest = sequence,
                Err(error) => assert_eq!(error, NextError::SlotLost),
            }
        }
        let before = closer.join().unwrap() & 511;
        assert!(u64::from(largest) < before || largest == 0, "{largest} is above what close said: {before}");
        assert_eq!(process.next_of(&run, FLOOR + 10), Err(NextError::SlotLost));
    });
}

/// Teeth: a run that is served without a look at the state goes back behind somebody else's ID.
#[test]
#[should_panic(expected = "went back")]
fn a_run_served_without_a_look_at_the_state_is_found() {
    loom::model(|| {
        let cell = Cell::with_sequence_bits(9, FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let run = run_on(&cell);
        process.next_of(&run, FLOOR + 10).unwrap();
        let seen = AtomicU64::new(cell.state.load(Ordering::Acquire));
        let other = process.clone();
        let others = thread::spawn(move || other.next(FLOOR + 10).unwrap()).join().unwrap();
        let state = run.serve(1, &seen, &process.gate).unwrap();
        assert!(u32::try_from(state & 511).unwrap() > others.1, "went back");
    });
}

/// Teeth again: shutting the gate closes nothing, for somebody may be past it.
#[test]
#[should_panic(expected = "above what close said")]
fn a_close_that_only_shuts_the_gate_is_found() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 50);
        let process = Process::open(&cell, FLOOR + 10);
        let other = process.clone();
        let maker = thread::spawn(move || {
            match Run::new().add(1, &other.cell.rules, &other.cell.state, &other.gate) {
                Added::Taken(state) => Some(state),
                _ => None,
            }
        });
        gate::shut(&process.gate);
        let closed_at = cell.state.load(Ordering::Acquire);
        if let Some(state) = maker.join().unwrap() {
            assert!(state < closed_at, "above what close said");
        }
    });
}

/// The model has teeth: a close that only shuts the ceiling lets an ID through that was past its check.
#[test]
#[should_panic(expected = "above what close said")]
fn a_close_that_only_shuts_the_ceiling_is_found() {
    loom::model(|| {
        let cell = Cell::new(FLOOR + 50);
        let other = cell.clone();
        let maker = thread::spawn(move || other.take(FLOOR + 10, 1));
        cell.ceiling.store(0, Ordering::SeqCst);
        let last = cell.last_issued();
        if let Ok(ids) = maker.join().unwrap() {
            assert!(ids[0].0 <= last, "above what close said");
        }
    });
}
