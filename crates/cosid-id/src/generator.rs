//! Making IDs.

mod range;

use std::sync::Arc;
use std::time::Duration;

use crate::cell::{Rules, Taken};
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::gate::{Added, Edge};
use crate::id::Id;
use crate::layout::Layout;
use crate::next_error::{NextError, Wait};
use crate::page::{Page, Word};
use crate::run::Run;
use crate::stamp::Stamp;
use crate::tick::Gate;

pub use range::{IdRange, Ranges};

/// IDs that one batch may have.
pub const MAX_BATCH: usize = 100_000;

/// While it waits a generator looks again at least this often: the ceiling may have moved, the page closed.
const LONGEST_NAP: Duration = Duration::from_millis(20);
/// With fewer bits for the sequence a tick is used up before a gate would pay.
const GATE_BITS: u8 = 12;
/// The agent moves the ceiling every few seconds; nobody notices this much more.
const CEILING_NAP: Duration = Duration::from_millis(10);

thread_local! {
    /// What the thread has taken from the gate that it used last.
    static RUN: Run = const { Run::new() };
}

/// Makes the IDs of one cell. Any number of generators, in threads, forked children and other processes, may
/// share a cell: none repeats an ID and none ever waits for another.
///
/// Sequences are CosId's: a new tick goes on counting until the last sequence has reached the layout's threshold,
/// and only then starts over, with 1, so that `id % n` spreads evenly also where a tick has an ID or two. So the first
/// ID of a fresh cell has sequence 1, as with CosId. (Sequence 0 is for the tick right after one that was used up, or
/// right above the floor.)
///
/// A generator has no state of its own, so a clone is the same generator. See
/// [`PageOwner`](crate::PageOwner) for an example.
///
/// While a process makes more than half a million IDs a second, a thread in it looks at the clock for them once a
/// millisecond, and an ID costs an addition. Keep a generator, and clone it: one made anew begins without.
#[derive(Clone, Debug)]
pub struct Generator<C = SystemClock> {
    /// The cell's, on the page.
    state: Word<Page>,
    /// `None` where it would not pay, and with a clock that the thread does not know.
    gate: Option<Word<Gate>>,
    /// By which a thread knows whose run it has; 0 without a gate.
    gate_number: u64,
    rules: Rules,
    stamp: Stamp,
    layout: Layout,
    cell: usize,
    clock: C,
}

impl Generator {
    /// A generator on a cell that the agent gave out, with the host's clock.
    ///
    /// # Errors
    /// [`Error::NoSuchCell`], [`Error::NewerCell`]. A closed page is no error here: the first ID is.
    pub fn new(page: Arc<Page>, cell: usize) -> Result<Self, Error> {
        let generator = Self::with_clock(page, cell, SystemClock)?;
        let is_worth_it = generator.layout.sequence_bits() >= GATE_BITS;
        Ok(generator.with_gate(if is_worth_it { Gate::new() } else { None }))
    }
}

impl<C: Clock> Generator<C> {
    /// A generator with another clock, for tests on virtual time.
    ///
    /// # Errors
    /// Those of [`Generator::new`].
    pub fn with_clock(page: Arc<Page>, cell: usize, clock: C) -> Result<Self, Error> {
        let layout = page.layout_of(cell)?;
        let slot = page.header().slot;
        let rules = Rules::new(layout, page.header().floor);
        let stamp = Stamp::new(&layout, slot);
        let state = Word::new(page, |page| page.state_word(cell));
        Ok(Self { state, gate: None, gate_number: 0, rules, stamp, layout, cell, clock })
    }

    /// The same generator, but where a tick is used up it takes IDs of later ones, up to `bound` ahead of the clock,
    /// rounded down to whole ticks; never past the ceiling. Without this it takes none.
    ///
    /// It is for bursts: of the default layout 50 ms are 204,800 IDs at once. Who decodes them sees times that are yet to
    /// come. Generators of the same cell go on in the tick that this one has reached.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use cosid_id::{Clock, Generator, Header, Layout, PageOwner, SystemClock};
    /// # let dir = tempfile::tempdir()?;
    /// # let floor = SystemClock.unix_ms() - 1;
    /// # let header = Header { pool: "shop/orders".into(), slot: 5, fence: 1, floor, layout: Layout::MILLISECOND };
    /// # let mut owner = PageOwner::create(dir.path().join("5-1.page"), &header)?;
    /// # let cell = owner.assign("orders")?;
    /// # owner.set_ceiling(floor + 30_000);
    /// let generator = Generator::new(owner.page().clone(), cell)?.with_burst(Duration::from_millis(50));
    /// for _ in 0..100_000 {
    ///     generator.try_next()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_burst(self, bound: Duration) -> Self {
        let ms = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
        let rules = self.rules.ahead(ms / u64::from(self.layout.unit_ms()));
        // A gate is open up to a bound.
        let gate = self.gate.as_ref().and_then(|_| Gate::new());
        Self { rules, ..self }.with_gate(gate)
    }

    fn with_gate(self, gate: Option<Arc<Gate>>) -> Self {
        let gate_number = gate.as_ref().map_or(0, |gate| gate.number());
        Self { gate: gate.map(|gate| Word::new(gate, Gate::word)), gate_number, ..self }
    }

    /// The next ID. Never blocks and never sleeps. Why there is none now, until when, and what to do, is in the error.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use cosid_id::{Clock, Generator, Header, Layout, NextError, PageOwner, SystemClock};
    /// # let dir = tempfile::tempdir()?;
    /// # let floor = SystemClock.unix_ms() - 1;
    /// # let header = Header { pool: "shop/orders".into(), slot: 5, fence: 1, floor, layout: Layout::MILLISECOND };
    /// # let mut owner = PageOwner::create(dir.path().join("5-1.page"), &header)?;
    /// # let cell = owner.assign("orders")?;
    /// # owner.set_ceiling(floor + 30_000);
    /// # let generator = Generator::new(owner.page().clone(), cell)?;
    /// match generator.try_next() {
    ///     Ok(id) => println!("{id}"),
    ///     // The tick is used up, or the window is not open yet (or no longer): time may help.
    ///     Err(NextError::Wait(wait)) => match wait.remaining() {
    ///         Some(time) => println!("{wait}: in {time:?}"),
    ///         None => println!("{wait}: when the agent has renewed"),
    ///     },
    ///     // Time does not help.
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`NextError`].
    #[inline]
    pub fn try_next(&self) -> Result<Id, NextError> {
        self.at_once().map_or_else(|| self.try_next_by_clock(), Ok)
    }

    /// An ID without a look at the clock, if that is possible. It is what most calls come to, and so returned in registers.
    #[inline]
    fn at_once(&self) -> Option<Id> {
        let gate = self.gate.as_ref()?;
        let served = RUN.with(|run| run.serve(self.gate_number, &self.state, gate));
        served.or_else(|| self.add(gate)).map(|state| self.stamp.id(state))
    }

    #[inline(never)]
    fn add(&self, gate: &Word<Gate>) -> Option<u64> {
        match RUN.with(|run| run.add(self.gate_number, &self.rules, &self.state, gate)) {
            Added::Taken(state) => Some(state),
            Added::Edge(edge) => self.settle(edge, gate),
            Added::Shut => None,
        }
    }

    /// As many IDs as the current tick still has, at most `want` and at least one, taken in one atomic
    /// operation. Their sequences follow each other without a gap. Never blocks.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use cosid_id::{Clock, Generator, Header, Layout, NextError, PageOwner, SystemClock};
    /// # let dir = tempfile::tempdir()?;
    /// # let floor = SystemClock.unix_ms() - 1;
    /// # let header = Header { pool: "shop/orders".into(), slot: 5, fence: 1, floor, layout: Layout::MILLISECOND };
    /// # let mut owner = PageOwner::create(dir.path().join("5-1.page"), &header)?;
    /// # let cell = owner.assign("orders")?;
    /// # owner.set_ceiling(floor + 30_000);
    /// # let generator = Generator::new(owner.page().clone(), cell)?;
    /// let range = generator.try_range(100)?;
    /// assert!((1..=100).contains(&range.len()));
    /// for id in range {
    ///     println!("{id}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`NextError`]; [`NextError::BadCount`] unless `want` is 1 to [`MAX_BATCH`].
    pub fn try_range(&self, want: usize) -> Result<IdRange, NextError> {
        let count = match u32::try_from(want) {
            Ok(count @ 1..) if want <= MAX_BATCH => count,
            _ => return Err(NextError::BadCount { count: want, max: MAX_BATCH }),
        };
        let below = self.gate.as_ref().and_then(|gate| self.rules.take_below(&self.state, gate, count));
        let (state, left) = match below {
            Some(state) => (state, count),
            None => self.take_by_clock(count)?,
        };
        Ok(IdRange { next: self.stamp.id(state).get(), left, step: 1 << self.layout.sequence_shift() })
    }

    /// Fills the front of a buffer with as many IDs as the current tick still has, in one atomic operation,
    /// and says how many that are (at least 1). Never blocks.
    ///
    /// # Errors
    /// Those of [`Generator::try_range`].
    pub fn try_fill(&self, ids: &mut [u64]) -> Result<usize, NextError> {
        Ok(self.try_range(ids.len())?.write_to(ids))
    }

    /// The next ID, waited for at most `timeout`. Blocks; while it waits it sleeps.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use cosid_id::{Clock, Generator, Header, Layout, NextError, PageOwner, SystemClock};
    /// # let dir = tempfile::tempdir()?;
    /// # let floor = SystemClock.unix_ms() - 1;
    /// # let header = Header { pool: "shop/orders".into(), slot: 5, fence: 1, floor, layout: Layout::MILLISECOND };
    /// # let mut owner = PageOwner::create(dir.path().join("5-1.page"), &header)?;
    /// # let cell = owner.assign("orders")?;
    /// # owner.set_ceiling(floor + 30_000);
    /// # let generator = Generator::new(owner.page().clone(), cell)?;
    /// let (first, second) = (generator.next(Duration::from_secs(1))?, generator.next(Duration::from_secs(1))?);
    /// assert!(first < second);
    /// assert_eq!(second.slot(&Layout::MILLISECOND)?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What [`Generator::try_next`] said last when the time was over; at once if waiting cannot help.
    #[inline]
    pub fn next(&self, timeout: Duration) -> Result<Id, NextError> {
        self.at_once().map_or_else(|| self.next_by_clock(timeout), Ok)
    }

    /// [`Generator::try_range`], waited for at most `timeout`. Blocks; while it waits it sleeps.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use cosid_id::{Clock, Generator, Header, Layout, PageOwner, SystemClock};
    /// # let dir = tempfile::tempdir()?;
    /// # let floor = SystemClock.unix_ms() - 1;
    /// # let header = Header { pool: "shop/orders".into(), slot: 5, fence: 1, floor, layout: Layout::MILLISECOND };
    /// # let mut owner = PageOwner::create(dir.path().join("5-1.page"), &header)?;
    /// # let cell = owner.assign("orders")?;
    /// # owner.set_ceiling(floor + 30_000);
    /// # let generator = Generator::new(owner.page().clone(), cell)?;
    /// let mut range = generator.next_range(100, Duration::from_secs(1))?;
    /// let (first, count) = (range.first(), range.len());
    /// assert!((1..=100).contains(&count));
    /// assert_eq!(range.next(), first);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Generator::try_range`], as in [`Generator::next`].
    pub fn next_range(&self, want: usize, timeout: Duration) -> Result<IdRange, NextError> {
        self.within(timeout, || self.try_range(want))
    }

    /// `count` IDs, 1 to [`MAX_BATCH`], as an iterator of ranges: one atomic operation each, and one for each tick
    /// that the batch needs. All of them together are waited for at most `timeout`. Blocks in the iterator's `next`;
    /// while it waits it sleeps.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use cosid_id::{Clock, Generator, Header, Layout, PageOwner, SystemClock};
    /// # let dir = tempfile::tempdir()?;
    /// # let floor = SystemClock.unix_ms() - 1;
    /// # let header = Header { pool: "shop/orders".into(), slot: 5, fence: 1, floor, layout: Layout::MILLISECOND };
    /// # let mut owner = PageOwner::create(dir.path().join("5-1.page"), &header)?;
    /// # let cell = owner.assign("orders")?;
    /// # owner.set_ceiling(floor + 30_000);
    /// # let generator = Generator::new(owner.page().clone(), cell)?;
    /// let mut count = 0;
    /// for range in generator.ranges(10_000, Duration::from_secs(1))? {
    ///     count += range?.len();
    /// }
    /// assert_eq!(count, 10_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NextError::BadCount`]. A range can fail as [`Generator::next`] can, and is then the last one.
    pub fn ranges(&self, count: usize, timeout: Duration) -> Result<Ranges<'_, C>, NextError> {
        if count == 0 || count > MAX_BATCH {
            return Err(NextError::BadCount { count, max: MAX_BATCH });
        }
        Ok(Ranges { generator: self, left: count, start: None, timeout })
    }

    /// Fills a whole buffer of 1 to [`MAX_BATCH`] places, one atomic operation for each tick it needs, within
    /// `timeout`. Blocks; while it waits it sleeps.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use cosid_id::{Clock, Generator, Header, Layout, NextError, PageOwner, SystemClock};
    /// # let dir = tempfile::tempdir()?;
    /// # let floor = SystemClock.unix_ms() - 1;
    /// # let header = Header { pool: "shop/orders".into(), slot: 5, fence: 1, floor, layout: Layout::MILLISECOND };
    /// # let mut owner = PageOwner::create(dir.path().join("5-1.page"), &header)?;
    /// # let cell = owner.assign("orders")?;
    /// # owner.set_ceiling(floor + 30_000);
    /// # let generator = Generator::new(owner.page().clone(), cell)?;
    /// let mut ids = [0; 10_000];
    /// generator.fill(&mut ids, Duration::from_secs(1))?;
    /// assert!(ids.is_sorted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Generator::next`]. The IDs in the buffer are then lost to others, which hurts nobody.
    pub fn fill(&self, ids: &mut [u64], timeout: Duration) -> Result<(), NextError> {
        let mut filled = 0;
        for range in self.ranges(ids.len(), timeout)? {
            filled += range?.write_to(&mut ids[filled..]);
        }
        Ok(())
    }

    /// The page it makes IDs from.
    #[must_use]
    pub fn page(&self) -> &Arc<Page> {
        self.state.owner()
    }

    /// The layout of its IDs.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its cell on the page.
    #[must_use]
    pub fn cell(&self) -> usize {
        self.cell
    }

    /// One of 256 IDs comes here, and one that is the last of its tick.
    #[cold]
    #[inline(never)]
    fn settle(&self, edge: Edge, gate: &Word<Gate>) -> Option<u64> {
        gate.owner().set_used();
        self.rules.settle(edge, gate, self.clock.unix_ms())
    }

    /// One ID of the time that the clock says.
    #[cold]
    #[inline(never)]
    fn try_next_by_clock(&self) -> Result<Id, NextError> {
        self.take_by_clock(1).map(|(state, _)| self.stamp.id(state))
    }

    /// The first of up to `want` IDs of the time that the clock says, as a state, and how many there are. For the rest of the
    /// tick the gate is then open.
    fn take_by_clock(&self, want: u32) -> Result<(u64, u32), NextError> {
        let now = self.clock.unix_ms();
        let taken = self.take(now, want)?;
        let state = self.rules.first_state_of(taken);
        let end = state + u64::from(taken.count);
        if let Some(gate) = &self.gate {
            RUN.with(|run| run.went_on(self.gate_number, end));
            gate.owner().count(now);
            self.rules.open(&self.state, gate, self.page().ceiling_word(), now);
            if Rules::looks_at_clock(state, end) {
                gate.owner().set_used();
            }
        }
        Ok((state, taken.count))
    }

    #[cold]
    #[inline(never)]
    fn next_by_clock(&self, timeout: Duration) -> Result<Id, NextError> {
        self.within(timeout, || self.try_next_by_clock())
    }

    fn take(&self, now: u64, want: u32) -> Result<Taken, NextError> {
        let take_at = |now| self.rules.take(&self.state, self.page().ceiling_word(), now, want);
        match take_at(now) {
            // The host's clock may have been ahead for a moment and be right again, while our reading never
            // goes back: without this only a restart would help. The state keeps what is issued growing.
            Err(NextError::Wait(Wait::AboveCeiling { .. })) => take_at(self.clock.host_ms()),
            outcome => outcome,
        }
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
            let nap = wait.until().map_or(CEILING_NAP, |until| self.clock.until(until).min(LONGEST_NAP));
            self.clock.sleep(nap.min(left));
        }
    }
}
