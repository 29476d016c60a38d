//! Making IDs, on whichever page the agent has now.

#[cfg(feature = "async")]
mod awaiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use cosid_id::{Generator as Issuer, Id, IdRange, Layout, MAX_BATCH, NextError, Wait};

use crate::client::{Agent, check_layout};
use crate::error::Error;
use crate::seat::Seat;

/// One request to the agent waits no longer than this; after that a fresh connection is tried.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The agent is asked again after this, doubling to the longest.
const FIRST_NAP: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(10);
/// How often a thread looks whether another one has found the new page.
const FOLLOWER_NAP: Duration = Duration::from_millis(1);
/// A window that is not moved on for this long may belong to an agent that has gone without closing its page. Nor is the
/// agent asked about it more often.
const ASK_AFTER: Duration = Duration::from_millis(ASK_AFTER_MS);
const ASK_AFTER_MS: u64 = 500;

/// Makes the IDs of one name. Cheap to clone; clones, and generators that the same client gave out for the same
/// name, move to a new page together. Threads may share one, and a process may fork at any time.
///
/// A generator keeps the page it was made with, so that it finds it at the cost of one load. After a loss it
/// looks its page up for each ID, some 12 ns; a fresh clone does not.
#[derive(Debug)]
pub struct Generator {
    named: Arc<Named>,
    timeout: Duration,
    /// The page's issuer when this was made, which is the current one as long as `moves` is what it was.
    first: Arc<Issuer>,
    moves: usize,
}

impl Clone for Generator {
    /// A generator of the page that is current now.
    fn clone(&self) -> Self {
        Self::new(self.named.clone(), self.timeout)
    }
}

impl Generator {
    pub(crate) fn new(named: Arc<Named>, timeout: Duration) -> Self {
        // In this order: a move in between makes `first` newer than it says, which costs time and no more.
        let moves = named.moves.load(Ordering::Acquire);
        let first = named.current.load_full();
        Self { named, timeout, first, moves }
    }

    /// The same generator, which waits for at most `timeout` where it waits; with zero only if it need not wait.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A generator of the same name which, where a millisecond is used up, takes IDs of later ones, up to `bound` ahead of the
    /// clock, rounded down to whole units of the layout; never past the window's end. Without this none is ahead.
    ///
    /// It is for bursts: of the default layout 50 ms are 204,800 IDs at once. Who decodes them sees times that are yet to
    /// come, and other generators of the name go on in the millisecond that this one has reached. It stays so on the pages
    /// to come. Never blocks, but takes some memory: make it once, and clone it.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// let orders = cosid_client::Client::connect()?.generator("orders")?.with_burst(Duration::from_millis(50));
    /// let mut ids = vec![0; 100_000];
    /// orders.next_ids(&mut ids)?;
    /// # Ok::<(), cosid_client::Error>(())
    /// ```
    #[must_use]
    pub fn with_burst(self, bound: Duration) -> Self {
        Self::new(Arc::new(self.named.with_burst(bound)), self.timeout)
    }

    /// The next ID. Does not block as long as there is one; else it waits (asleep) for at most the timeout, and
    /// moves to the agent's next page if the slot is lost: one thread asks, the others follow it.
    ///
    /// ```no_run
    /// let orders = cosid_client::Client::connect()?.generator("orders")?;
    /// println!("{}", orders.next_id()?);
    /// # Ok::<(), cosid_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotYet`] if the window or the clock did not allow one in time; [`Error::Impossible`] if it never
    /// will. After a loss what the agent said: [`Error::Exhausted`], [`Error::Refused`],
    /// [`Error::Blocked`], [`Error::Closing`] at once, [`Error::NoSlot`], [`Error::AgentAbsent`] or [`Error::SlotLost`] when the time is over, and those
    /// of [`Client::generator`](crate::Client::generator).
    #[inline]
    pub fn next_id(&self) -> Result<Id, Error> {
        match self.try_next_id() {
            Ok(id) => Ok(id),
            Err(_) => self.named.wait_for(&Bound::new(self.timeout), Issuer::next),
        }
    }

    /// The next ID, if there is one now. Never blocks and asks nobody.
    ///
    /// # Errors
    /// [`NextError::Wait`] says for what to wait and, if known, how long; [`NextError::SlotLost`] that
    /// [`Generator::reconnect`] or [`Generator::next_id`] is needed, by any one thread.
    #[inline]
    pub fn try_next_id(&self) -> Result<Id, NextError> {
        self.on_current(Issuer::try_next)
    }

    /// Fills a whole buffer of 1 to [`MAX_BATCH`] places, with one atomic operation for each millisecond it
    /// needs. In order, but not always without gaps. Blocks as [`Generator::next_id`], for at most the timeout
    /// in all.
    ///
    /// ```no_run
    /// let orders = cosid_client::Client::connect()?.generator("orders")?;
    /// let mut ids = [0; 1_000];
    /// orders.next_ids(&mut ids)?;
    /// # Ok::<(), cosid_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Generator::next_id`], and [`Error::Impossible`] for a buffer of another size. What the buffer
    /// then holds must not be used: which places were filled is not told.
    pub fn next_ids(&self, ids: &mut [u64]) -> Result<(), Error> {
        let mut places = ids.iter_mut();
        for range in self.ranges(places.len())? {
            // In this order: a range that has ended takes no place with it.
            for (id, place) in range?.zip(&mut places) {
                *place = id.get();
            }
        }
        Ok(())
    }

    /// `count` IDs, 1 to [`MAX_BATCH`], as an iterator of ranges of following IDs: one atomic operation each, and one for
    /// each millisecond that the batch needs. Blocks in the iterator's `next` as [`Generator::next_id`], for at most the
    /// timeout in all, counted from this call on.
    ///
    /// ```no_run
    /// let orders = cosid_client::Client::connect()?.generator("orders")?;
    /// for range in orders.ranges(10_000)? {
    ///     let range = range?;
    ///     println!("{} IDs from {:?} on, {} apart", range.len(), range.first(), range.step());
    /// }
    /// # Ok::<(), cosid_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Impossible`] for another count. A range can fail as [`Generator::next_id`] can, and is then the last one.
    pub fn ranges(&self, count: usize) -> Result<Ranges<'_>, Error> {
        if count == 0 || count > MAX_BATCH {
            return Err(NextError::BadCount { count, max: MAX_BATCH }.into());
        }
        Ok(Ranges { generator: self, left: count, bound: Bound::new(self.timeout) })
    }

    /// Moves to the agent's next page if the slot is lost; if it is not, this does nothing. Only programs that
    /// make IDs with [`Generator::try_next_id`] alone need it. Blocks for at most the timeout.
    ///
    /// # Errors
    /// As [`Generator::next_id`] after a loss.
    pub fn reconnect(&self) -> Result<(), Error> {
        let current = self.named.current.load();
        if current.page().is_closed() {
            self.named.move_on(&current, &Bound::new(self.timeout))?;
        }
        Ok(())
    }

    #[inline]
    fn on_current<T>(&self, act: impl FnOnce(&Issuer) -> T) -> T {
        if self.named.moves.load(Ordering::Acquire) == self.moves {
            act(&self.first)
        } else {
            act(&self.named.current.load())
        }
    }

    /// The generator's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.named.name
    }

    /// The layout of its IDs, to take them apart.
    #[must_use]
    pub fn layout(&self) -> Layout {
        *self.named.current.load().layout()
    }

    /// The slot that it makes IDs with now; it can change with every loss.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.named.current.load().page().header().slot
    }

    /// The fence of that slot: which of its holders this one is. Grows with every change of hands.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.named.current.load().page().header().fence
    }
}

/// The ranges that make up a batch, see [`Generator::ranges`]. Ends after an error.
#[derive(Debug)]
pub struct Ranges<'a> {
    generator: &'a Generator,
    left: usize,
    bound: Bound,
}

impl Iterator for Ranges<'_> {
    type Item = Result<IdRange, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let left = self.left;
        if left == 0 {
            return None;
        }
        let range = self.generator.on_current(|issuer| issuer.try_range(left)).or_else(|_| {
            self.generator.named.wait_for(&self.bound, |issuer, timeout| issuer.next_range(left, timeout))
        });
        self.left = range.as_ref().map_or(0, |range| left - range.len());
        Some(range)
    }
}

/// What all generators of a name share, but those with a burst of their own.
#[derive(Debug)]
pub(crate) struct Named {
    agent: Arc<Agent>,
    name: String,
    /// The layout asked for, on each page anew; without one it is the pool's.
    layout: Option<Layout>,
    /// How far ahead of the clock its IDs may be.
    burst: Duration,
    /// Replaced at each loss. What it replaced is unmapped when the last reader is done with it.
    current: ArcSwap<Issuer>,
    /// How often it was replaced.
    moves: AtomicUsize,
    /// Who asks the agent.
    seat: Seat,
    made: Instant,
    /// When it may be asked about a window that stands still, ms since `made`.
    ask_at: AtomicU64,
    /// For whom a thread asks it on behalf of tasks.
    #[cfg(feature = "async")]
    asking: Seat,
}

impl Named {
    /// Asks the agent until it has a slot, for as long as the bound allows.
    pub(crate) fn find(
        agent: Arc<Agent>,
        name: &str,
        layout: Option<Layout>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let asked = layout.as_ref();
        let placed =
            ask(&Bound::new(timeout), |timeout| agent.issuer(&agent.place(name, asked, timeout)?, asked))?;
        Ok(Self::new(agent, name.to_owned(), layout, Duration::ZERO, placed))
    }

    fn new(
        agent: Arc<Agent>,
        name: String,
        layout: Option<Layout>,
        burst: Duration,
        current: Issuer,
    ) -> Self {
        Self {
            agent,
            name,
            layout,
            burst,
            current: ArcSwap::from_pointee(current),
            moves: AtomicUsize::new(0),
            seat: Seat::default(),
            made: Instant::now(),
            ask_at: AtomicU64::new(0),
            #[cfg(feature = "async")]
            asking: Seat::default(),
        }
    }

    /// It moves to a new page by itself: its issuers are others.
    fn with_burst(&self, burst: Duration) -> Self {
        let current = Issuer::clone(&self.current.load()).with_burst(burst);
        Self::new(Arc::clone(&self.agent), self.name.clone(), self.layout, burst, current)
    }

    /// # Errors
    /// [`Error::OtherLayout`].
    pub(crate) fn check_layout(&self, asked: Option<Layout>) -> Result<(), Error> {
        check_layout(&self.current.load(), &self.name, asked.as_ref())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// An ID or a range of them within the bound, on this page or the next. The attempt waits for at most the time that
    /// it is given.
    #[cold]
    fn wait_for<T>(
        &self,
        bound: &Bound,
        attempt: impl Fn(&Issuer, Duration) -> Result<T, NextError>,
    ) -> Result<T, Error> {
        loop {
            let current = self.current.load();
            // A short call keeps half of its time for the question: else a program that makes no other would never ask.
            let wait = match attempt(&current, bound.left().min(ASK_AFTER).min(bound.half())) {
                Ok(made) => return Ok(made),
                Err(NextError::SlotLost) => {
                    self.move_on(&current, bound)?;
                    continue;
                }
                Err(NextError::Wait(wait)) => wait,
                Err(error) => return Err(error.into()),
            };
            if bound.left().is_zero() {
                return Err(Error::NotYet(wait));
            }
            if matches!(wait, Wait::AboveCeiling { .. }) && self.may_ask() {
                self.look_for_other_page(&current, bound);
            }
        }
    }

    /// Returns when the current page is another than the lost one. One thread asks, the others wait for it; if
    /// it gives up, the next one asks.
    fn move_on(&self, lost: &Arc<Issuer>, bound: &Bound) -> Result<(), Error> {
        while !self.has_left(lost) {
            if let Some(_seated) = self.seat.take() {
                // The one who sat here before may have found it since this thread looked.
                if self.has_left(lost) {
                    return Ok(());
                }
                let next = ask(bound, |timeout| match self.other_issuer(lost, timeout)? {
                    Some(next) => Ok(next),
                    None => Err(Error::SlotLost { waited: bound.elapsed() }),
                })?;
                self.replace(next);
                return Ok(());
            }
            if bound.left().is_zero() {
                return Err(Error::SlotLost { waited: bound.timeout });
            }
            thread::sleep(FOLLOWER_NAP);
        }
        Ok(())
    }

    /// Whether it is time to ask about a window that stands still, if it does.
    fn may_ask(&self) -> bool {
        let now = u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        let due = self.ask_at.load(Ordering::Relaxed);
        let next = now.saturating_add(ASK_AFTER_MS);
        now >= due && self.ask_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// For an open page whose window stands still: asks once, if nobody does, whether the agent has another. An
    /// agent that cannot be asked changes nothing: the caller goes on waiting for the window.
    fn look_for_other_page(&self, current: &Arc<Issuer>, bound: &Bound) {
        let Some(_seated) = self.seat.take() else { return };
        if self.has_left(current) {
            return;
        }
        if let Ok(Some(next)) = self.other_issuer(current, bound.left().min(ASK_AFTER)) {
            self.replace(next);
        }
    }

    fn replace(&self, next: Issuer) {
        self.current.store(Arc::new(next));
        self.moves.fetch_add(1, Ordering::AcqRel);
    }

    fn has_left(&self, issuer: &Arc<Issuer>) -> bool {
        !Arc::ptr_eq(&self.current.load(), issuer)
    }

    /// Asks once. `None` as long as the agent tells of the same binding, or of one that has ended already.
    fn other_issuer(&self, old: &Issuer, timeout: Duration) -> Result<Option<Issuer>, Error> {
        let placement = self.agent.place(&self.name, self.layout.as_ref(), timeout)?;
        let header = old.page().header();
        if (header.slot, header.fence) == (placement.slot, placement.fence) && header.pool == placement.pool {
            return Ok(None);
        }
        let next = self.agent.issuer(&placement, self.layout.as_ref())?;
        if next.page().is_closed() {
            return Ok(None);
        }
        Ok(Some(if self.burst.is_zero() { next } else { next.with_burst(self.burst) }))
    }
}

/// Tries until it works, fails for good, or the time is over; the last failure is then the answer.
fn ask<T>(bound: &Bound, mut attempt: impl FnMut(Duration) -> Result<T, Error>) -> Result<T, Error> {
    let mut nap = FIRST_NAP;
    let mut before = None;
    loop {
        let error = match attempt(bound.left().min(REQUEST_TIMEOUT)) {
            Err(error) if error.is_passing() => error,
            outcome => return outcome,
        };
        let error = more_telling(before.take(), error);
        if bound.left() <= nap {
            return Err(error);
        }
        before = Some(error);
        thread::sleep(nap);
        nap = (nap * 2).min(LONGEST_NAP);
    }
}

/// An attempt cut short by the end of the time says less than the one before it.
fn more_telling(before: Option<Error>, last: Error) -> Error {
    match last {
        Error::AgentSlow { .. } => before.unwrap_or(last),
        _ => last,
    }
}

/// A call's time.
#[derive(Debug)]
struct Bound {
    start: Instant,
    timeout: Duration,
}

impl Bound {
    fn new(timeout: Duration) -> Self {
        Self { start: Instant::now(), timeout }
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn half(&self) -> Duration {
        self.timeout / 2
    }

    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.elapsed())
    }
}
