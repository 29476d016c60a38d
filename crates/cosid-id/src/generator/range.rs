//! Batches: the IDs of one tick, and the ticks that a batch needs.

use std::time::Duration;

use super::Generator;
use crate::clock::{Clock, SystemClock};
use crate::id::Id;
use crate::next_error::NextError;

/// IDs of one tick whose sequences follow each other without a gap, in order; taken in one atomic operation.
///
/// A program that hands out the numbers itself needs no more than the first, their count and their distance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdRange {
    pub(super) next: u64,
    pub(super) left: u32,
    pub(super) step: u64,
}

impl IdRange {
    /// The next ID of the range, `None` at its end.
    #[must_use]
    pub fn first(&self) -> Option<Id> {
        (self.left > 0).then_some(Id::composed(self.next))
    }

    /// What has to be added to an ID to get the one after it: 1, unless the layout has the slot in its lowest bits.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step
    }
}

impl IdRange {
    /// Writes the IDs to the front of a buffer, as many as both have, and says how many.
    pub(super) fn write_to(&self, ids: &mut [u64]) -> usize {
        let count = ids.len().min(self.len());
        let mut next = self.next;
        // As simple as this it is compiled to several at a time.
        for place in &mut ids[..count] {
            *place = next;
            next += self.step;
        }
        count
    }
}

impl Iterator for IdRange {
    type Item = Id;

    fn next(&mut self) -> Option<Id> {
        self.left = self.left.checked_sub(1)?;
        let id = Id::composed(self.next);
        // At most one step past a number of 63 bits, and a step has at most 32.
        self.next += self.step;
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for IdRange {}

/// The ranges that make up a batch, see [`Generator::ranges`]. Ends after an error.
#[derive(Debug)]
pub struct Ranges<'a, C = SystemClock> {
    pub(super) generator: &'a Generator<C>,
    pub(super) left: usize,
    /// When it first had to wait.
    pub(super) start: Option<Duration>,
    pub(super) timeout: Duration,
}

impl<C: Clock> Iterator for Ranges<'_, C> {
    type Item = Result<IdRange, NextError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let (generator, left) = (self.generator, self.left);
        let range = match generator.try_range(left) {
            Err(NextError::Wait(_)) => {
                let now = generator.clock.elapsed();
                let waited = now.saturating_sub(*self.start.get_or_insert(now));
                generator.next_range(left, self.timeout.saturating_sub(waited))
            }
            outcome => outcome,
        };
        self.left = range.as_ref().map_or(0, |range| left - range.len());
        Some(range)
    }
}
