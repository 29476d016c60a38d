//! The words of a cell under every interleaving that the C11 memory model allows:
//! `RUSTFLAGS="--cfg loom" cargo test -p cosid-id --release --test loom`

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "functions that tests share may stop them too")]

use cosid_id::cell::{self, Rules};
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
        let layout = Layout::builder().sequence_bits(2).build().unwrap();
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
        cell::close(&self.state);
        self.last_issued()
    }

    fn last_issued(&self) -> u64 {
        cell::last_issued(&self.layout, FLOOR, self.state.load(Ordering::Acquire))
    }
}

fn assert_distinct(ids: &[(u64, u32)]) {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), ids.len(), "{ids:?}");
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
        assert_eq!(cell.take(FLOOR + 30, 1), Err(NextError::SlotLost));
        let mut largest = FLOOR;
        for maker in makers {
            match maker.join().unwrap() {
                Ok(ids) => largest = ids.iter().map(|&(timestamp, _)| timestamp).fold(largest, u64::max),
                Err(error) => assert_eq!(error, NextError::SlotLost),
            }
        }
        assert_eq!(last, largest);
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
                Ok(ids) => assert_eq!(ids[0].0, FLOOR + 10),
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
