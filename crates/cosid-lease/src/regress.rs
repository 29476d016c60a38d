//! A store that went backwards: restored from a backup, it shows records that are older than ones it acknowledged.
//!
//! A single reader of it can't tell. Who knows what it said before can: a holder knows its own window, an observer what it
//! saw last. Both ask whether what they find can have come after what they know.

use std::fmt;

use crate::{Fence, Millis, Record, Slot};

/// A slot that the store has lost history of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Regression {
    /// Which.
    pub slot: Slot,
    /// What the store acknowledged before.
    pub known: Mark,
    /// What it shows now.
    pub found: Mark,
}

/// How far a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Its fence.
    pub fence: Fence,
    /// Its next floor, Unix ms.
    pub next_floor: Millis,
}

impl From<&Record> for Mark {
    fn from(record: &Record) -> Self {
        Self { fence: record.fence, next_floor: record.next_floor }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fence {} and next floor {}", self.fence, self.next_floor)
    }
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, known, found } = self;
        write!(f, "slot {slot} was at {known}, and is at {found}")
    }
}

/// Whether a slot seen as `known` can't have become `found` by the three changes and by lifts of its next floor. Both are
/// as the store gave them, `found` later.
#[must_use]
pub fn went_back(known: &Record, found: &Record) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let mine = |record: &Record| record.holding().map(|holding| holding.owner.incarnation);
    match found.fence.cmp(&known.fence) {
        // One that was made anew by somebody who did not know the fence, but began above all windows, lost none.
        Less => start(found) <= known.next_floor,
        Equal => {
            let other_holder = mine(found).is_some() && mine(found) != mine(known);
            other_holder || is_lower(known, found)
        }
        // The holder may have released it: down to its floor.
        Greater => start(found) < start(known),
    }
}

/// Whether the store has lost some of this holder's own window: `known` is its record as acknowledged, and it has not
/// given it back.
#[must_use]
pub fn has_lost_window(known: &Record, found: &Record) -> bool {
    let Some(mine) = known.holding() else { return false };
    if found.is_held_by(mine.owner.incarnation, known.fence) {
        return is_lower(known, found);
    }
    start(found) < mine.ceiling
}

/// Where IDs of the present holder begin, or of the next one.
fn start(record: &Record) -> Millis {
    record.holding().map_or(record.next_floor, |holding| holding.floor)
}

fn is_lower(known: &Record, found: &Record) -> bool {
    let ceiling = |record: &Record| record.holding().map(|holding| holding.ceiling);
    let shrunk = matches!((ceiling(known), ceiling(found)), (Some(known), Some(found)) if found < known);
    shrunk || found.next_floor < known.next_floor
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Owner, Terms, algebra};

    const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };

    /// One slot's history: each step is some time, and what is done then.
    fn history(steps: &[(u64, u8)]) -> Vec<Record> {
        let mut all = vec![Record::open(1, 500)];
        let mut now = 1_000;
        for &(passed, what) in steps {
            now += passed;
            let last = all.last().unwrap();
            let next = match (what % 4, last.holding()) {
                (0, Some(holding)) => {
                    algebra::renew(last, holding.owner.incarnation, last.fence, now, TERMS).ok()
                }
                (1, Some(holding)) => algebra::release(last, holding.owner.incarnation, last.fence, now).ok(),
                (3, _) => Some(Record { next_floor: last.next_floor + 7, ..last.clone() }),
                _ => algebra::acquire(last, &Owner::new("a"), now, TERMS).ok(),
            };
            all.extend(next);
        }
        all
    }

    proptest! {
        #[test]
        fn what_came_later_never_went_back_and_what_came_earlier_did(
            steps in proptest::collection::vec((0..40_000_u64, 0..8_u8), 1..24),
            a in 0..24_usize,
            b in 0..24_usize,
        ) {
            let all = history(&steps);
            let (a, b) = (a.min(all.len() - 1), b.min(all.len() - 1));
            let (earlier, later) = (&all[a.min(b)], &all[a.max(b)]);
            prop_assert!(!went_back(earlier, later), "{earlier:?} {later:?}");
            // A renewal within the same millisecond changes nothing.
            if earlier != later && Mark::from(earlier) != Mark::from(later) {
                prop_assert!(went_back(later, earlier), "{earlier:?} {later:?}");
            }
        }

        #[test]
        fn a_holder_misses_its_window_in_every_record_from_before_its_last_renewal(
            steps in proptest::collection::vec((1..40_000_u64, 0..8_u8), 1..24),
        ) {
            let all = history(&steps);
            let last = all.last().unwrap();
            let Some(mine) = last.holding() else { return Ok(()) };
            for record in &all {
                let lost = has_lost_window(last, record);
                let shown = record.is_held_by(mine.owner.incarnation, last.fence);
                if !shown || record.holding().unwrap().ceiling < mine.ceiling {
                    // One that began at its ceiling issued nothing it could repeat.
                    prop_assert!(lost || start(record) >= mine.ceiling, "{record:?} {last:?}");
                }
            }
            prop_assert!(!has_lost_window(last, last));
            let taken = algebra::acquire(last, &Owner::new("b"), mine.expires_at, TERMS).unwrap();
            prop_assert!(!has_lost_window(last, &taken), "{taken:?}");
        }
    }

    #[test]
    fn another_holder_under_the_same_fence_is_a_fork() {
        let open = Record::open(4, 500);
        let one = algebra::acquire(&open, &Owner::new("a"), 1_000, TERMS).unwrap();
        let other = algebra::acquire(&open, &Owner::new("b"), 90_000, TERMS).unwrap();
        assert!(went_back(&one, &other) && has_lost_window(&one, &other));
    }

    #[test]
    fn a_slot_that_was_made_anew_above_all_windows_lost_none() {
        let held = algebra::acquire(&Record::open(4, 500), &Owner::new("a"), 1_000, TERMS).unwrap();
        let anew = Record::open(0, held.next_floor + 1);
        assert!(!went_back(&held, &anew) && !has_lost_window(&held, &anew));
    }
}
