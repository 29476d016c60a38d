//! Making IDs.

use std::sync::Arc;
use std::time::Duration;

use crate::cell::Rules;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::id::Id;
use crate::layout::Layout;
use crate::next_error::{NextError, Wait};
use crate::page::Page;

/// IDs that one batch may have.
pub const MAX_BATCH: usize = 100_000;

/// While it waits a generator looks again at least this often: the ceiling may have moved, the page closed.
const LONGEST_NAP: Duration = Duration::from_millis(20);
/// The agent moves the ceiling every few seconds; nobody notices this much more.
const CEILING_NAP: Duration = Duration::from_millis(10);
/// A tick that ends within the current millisecond: on average half of one is left.
const TICK_NAP: Duration = Duration::from_micros(200);

/// Makes the IDs of one cell. Any number of generators, in threads, forked children and other processes, may
/// share a cell: none repeats an ID and none ever waits for another.
///
/// A generator has no state of its own, so a clone is the same generator. See
/// [`PageOwner`](crate::PageOwner) for an example.
#[derive(Clone, Debug)]
pub struct Generator<C = SystemClock> {
    page: Arc<Page>,
    cell: usize,
    slot: u32,
    layout: Layout,
    rules: Rules,
    clock: C,
}

impl Generator {
    /// A generator on a cell that the agent gave out, with the host's clock.
    ///
    /// # Errors
    /// [`Error::NoSuchCell`], [`Error::NewerCell`]. A closed page is no error here: the first ID is.
    pub fn new(page: Arc<Page>, cell: usize) -> Result<Self, Error> {
        Self::with_clock(page, cell, SystemClock)
    }
}

impl<C: Clock> Generator<C> {
    /// A generator with another clock, for tests on virtual time.
    ///
    /// # Errors
    /// Those of [`Generator::new`].
    pub fn with_clock(page: Arc<Page>, cell: usize, clock: C) -> Result<Self, Error> {
        page.check_cell(cell)?;
        let (slot, layout) = (page.header().slot, page.header().layout);
        let rules = Rules::new(layout, page.header().floor);
        Ok(Self { page, cell, slot, layout, rules, clock })
    }

    /// The next ID. Never blocks and never sleeps.
    ///
    /// # Errors
    /// See [`NextError`].
    pub fn try_next(&self) -> Result<Id, NextError> {
        self.take(1).map(|range| Id::composed(range.next))
    }

    /// As many IDs as the current tick still has, at most `want` and at least one, taken in one atomic
    /// operation. They follow each other without a gap. Never blocks.
    ///
    /// # Errors
    /// See [`NextError`]; [`NextError::BadCount`] unless `want` is 1 to [`MAX_BATCH`].
    pub fn try_range(&self, want: usize) -> Result<IdRange, NextError> {
        match u32::try_from(want) {
            Ok(count @ 1..) if want <= MAX_BATCH => self.take(count),
            _ => Err(NextError::BadCount { count: want, max: MAX_BATCH }),
        }
    }

    /// Fills the front of a buffer with as many IDs as the current tick still has, in one atomic operation,
    /// and says how many that are (at least 1). Never blocks.
    ///
    /// # Errors
    /// Those of [`Generator::try_range`].
    pub fn try_fill(&self, ids: &mut [u64]) -> Result<usize, NextError> {
        let range = self.try_range(ids.len())?;
        let count = range.len();
        for (place, id) in ids.iter_mut().zip(range) {
            *place = id.get();
        }
        Ok(count)
    }

    /// The next ID, waited for at most `timeout`. Blocks; while it waits it sleeps.
    ///
    /// # Errors
    /// What [`Generator::try_next`] said last when the time was over; at once if waiting cannot help.
    pub fn next(&self, timeout: Duration) -> Result<Id, NextError> {
        self.within(timeout, || self.try_next())
    }

    /// Fills a whole buffer of 1 to [`MAX_BATCH`] places, one atomic operation for each tick it needs, within
    /// `timeout`. Blocks; while it waits it sleeps.
    ///
    /// # Errors
    /// As [`Generator::next`]. The IDs in the buffer are then lost to others, which hurts nobody.
    pub fn fill(&self, ids: &mut [u64], timeout: Duration) -> Result<(), NextError> {
        if ids.is_empty() || ids.len() > MAX_BATCH {
            return Err(NextError::BadCount { count: ids.len(), max: MAX_BATCH });
        }
        let start = self.clock.elapsed();
        let mut filled = 0;
        while filled < ids.len() {
            let left = timeout.saturating_sub(self.clock.elapsed().saturating_sub(start));
            filled += self.within(left, || self.try_fill(&mut ids[filled..]))?;
        }
        Ok(())
    }

    /// The page it makes IDs from.
    #[must_use]
    pub fn page(&self) -> &Arc<Page> {
        &self.page
    }

    /// Its cell on the page.
    #[must_use]
    pub fn cell(&self) -> usize {
        self.cell
    }

    fn take(&self, want: u32) -> Result<IdRange, NextError> {
        let (state, ceiling) = (self.page.state_word(self.cell), self.page.ceiling_word());
        let take_at = |now| self.rules.take(state, ceiling, now, want);
        let taken = match take_at(self.clock.unix_ms()) {
            // The host's clock may have been ahead for a moment and be right again, while our reading never
            // goes back: without this only a restart would help. The state keeps what is issued growing.
            Err(NextError::Wait(Wait::AboveCeiling { .. })) => take_at(self.clock.host_ms())?,
            outcome => outcome?,
        };
        let first = self.layout.compose_fields(taken.tick, self.slot, taken.sequence).get();
        Ok(IdRange { next: first, left: taken.count })
    }

    fn within<T>(
        &self,
        timeout: Duration,
        mut attempt: impl FnMut() -> Result<T, NextError>,
    ) -> Result<T, NextError> {
        // The common case, an ID at once, is not to pay for another reading of the clock.
        let mut start = None;
        loop {
            let wait = match attempt() {
                Err(NextError::Wait(wait)) => wait,
                outcome => return outcome,
            };
            let elapsed = self.clock.elapsed();
            let left = timeout.saturating_sub(elapsed.saturating_sub(*start.get_or_insert(elapsed)));
            if left.is_zero() {
                return Err(wait.into());
            }
            self.clock.sleep(nap(wait).min(left));
        }
    }
}

fn nap(wait: Wait) -> Duration {
    match (wait, wait.remaining()) {
        (Wait::SequenceUsedUp { .. }, Some(remaining)) if remaining.as_millis() <= 1 => TICK_NAP,
        (_, Some(remaining)) => remaining.min(LONGEST_NAP),
        (_, None) => CEILING_NAP,
    }
}

/// IDs of one tick that follow each other without a gap, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdRange {
    next: u64,
    left: u32,
}

impl Iterator for IdRange {
    type Item = Id;

    fn next(&mut self) -> Option<Id> {
        self.left = self.left.checked_sub(1)?;
        let id = Id::composed(self.next);
        self.next += 1;
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for IdRange {}
