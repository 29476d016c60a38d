//! The keeper: acquires a slot, renews it, backs off, loses it, acquires anew, and closes in order.
//!
//! A state machine without I/O. Whoever drives it takes [`Action`]s from [`Keeper::poll`] until there are none, does
//! them, and hands back what came of them with [`Keeper::handle`]; it polls again after each event and at
//! [`Keeper::wake_at`]. At most one request is under way at a time.
//!
//! ```text
//!            Hold                        Close                 Close
//! seeking ----------> holding --(lost)--------> closing --+   (stop)
//!    ^                   |                                |      |
//!    +-------------------|--------------------------------+      v
//!                        +--(stop)--> closing --> releasing --> finished
//! ```
//!
//! After a loss it seeks as another incarnation ([`Owner::succeed`]), so that a lease whose page was closed is never
//! taken for one that nothing was issued under.

mod backoff;
mod holding;
mod releasing;
mod report;
mod seeking;

use std::collections::VecDeque;

use crate::choose::Preference;
use crate::proof::bug;
use crate::store::until;
use crate::{Entry, Fence, Holding, Millis, Now, Owner, Record, Regression, Slot, StoreError, Terms, View};

use backoff::Jitter;
use holding::Held;
use releasing::Releasing;
pub use report::{LossReason, PoolRefusal, Report, Skew};
use seeking::Seeking;

/// How a keeper behaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeeperConfig {
    /// Who it keeps a slot for. The incarnation must be random, or the one of the state that is resumed.
    pub owner: Owner,
    /// Which slot.
    pub preference: Preference,
    /// How long until a [`Report::AcquireTimedOut`], milliseconds; `None`: the pool's ttl. It tries on after it.
    pub acquire_timeout: Option<Millis>,
    /// How long a release may take once the page is closed, milliseconds. Past it the lease is left to expire.
    pub release_timeout: Millis,
    /// The bits and tolerance that the pool must have, if the caller relies on any. They never change in a pool; with
    /// others, nothing is acquired.
    pub expect: Expect,
}

/// What a caller relies on in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expect {
    /// The width of the slot field.
    pub bits: Option<u8>,
    /// The tolerance, milliseconds.
    pub tolerance: Option<Millis>,
}

impl KeeperConfig {
    /// Any slot for this owner, with the defaults: a timeout of the pool's ttl, 1.5 s for a release.
    #[must_use]
    pub fn new(owner: Owner) -> Self {
        Self {
            owner,
            preference: Preference::Any,
            acquire_timeout: None,
            release_timeout: 1_500,
            expect: Expect::default(),
        }
    }
}

/// A slot held under a fence: what a window page is made for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The slot.
    pub slot: Slot,
    /// The fence it is held under.
    pub fence: Fence,
    /// The owner's incarnation, and the window as acknowledged by the store.
    pub holding: Holding,
    /// The pool's terms.
    pub terms: Terms,
}

/// What a keeper wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action<V> {
    /// Send a request to the store, and hand back [`Event::Answered`] with the same number. Where no answer comes
    /// within `timeout` (ms), hand back [`StoreError::Unknown`]; an answer after that is dropped.
    Send {
        /// Which request: answers to others than the newest are ignored.
        id: u64,
        /// What to ask.
        request: Request<V>,
        /// How long to wait, milliseconds.
        timeout: Millis,
    },
    /// A slot is held: its window may be used. Where a restart can resume it, the binding is recorded before the first
    /// ID: an owner that comes back without it, but with its incarnation, would be given the same window afresh.
    Hold(Binding),
    /// The window goes further: raise the ceiling.
    Extend {
        /// The new ceiling, Unix ms.
        ceiling: Millis,
        /// The new expiry, Unix ms by the store's clock.
        expires_at: Millis,
    },
    /// End the window for good, then hand back [`Event::Closed`].
    Close,
    /// What stands in the way of a slot just now, after each attempt that found none: for those who ask how it stands.
    /// What people are to be told of it comes as a report, once.
    Waiting(Report),
    /// Something that people want to know.
    Report(Report),
    /// The end: nothing is held any more, or what is held will expire.
    Finish,
}

/// A request to the store, as [`SlotStore`](crate::SlotStore) has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request<V> {
    /// The pool and all its slots.
    Load,
    /// One slot.
    Read {
        /// Which.
        slot: Slot,
    },
    /// A compare-and-set of one slot.
    Write {
        /// Which.
        slot: Slot,
        /// What it must be at.
        version: V,
        /// What it becomes.
        record: Record,
    },
    /// The same, for a record that the store has lost.
    PutBack {
        /// Which.
        slot: Slot,
        /// What it must be at.
        version: V,
        /// What it becomes again.
        record: Record,
        /// What was lost.
        regression: Regression,
    },
}

/// An answer to a [`Request`].
#[derive(Clone, Debug)]
pub enum Answer<V> {
    /// To a load.
    Loaded(View<V>),
    /// To a read.
    Read(Option<Entry<V>>),
    /// To a write: the version it made.
    Written(V),
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event<V> {
    /// A request was answered, or failed.
    Answered {
        /// The number of the request.
        id: u64,
        /// What came.
        result: Result<Answer<V>, StoreError>,
    },
    /// The window is closed: nothing can be issued from it ever again.
    Closed {
        /// The last timestamp that was issued from it, Unix ms; its floor if there was none.
        last_issued: Millis,
    },
    /// Close in order, release, finish.
    Stop,
}

/// See the [module's text](self). `V` is the store's version of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keeper<V> {
    config: KeeperConfig,
    state: State<V>,
    actions: VecDeque<Action<V>>,
    /// The number of the newest request, and whether it is still to be answered.
    request: u64,
    waiting: bool,
    stopping: bool,
    jitter: Jitter,
    skew: Option<Skew>,
    /// The ceiling of a window that the store has lost, Unix ms: without a barrier above it nothing is acquired.
    missing: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State<V> {
    Seeking(Seeking<V>),
    /// A resumed lease that has not been read back from the store yet.
    Resuming(Resuming),
    Holding(Held<V>),
    /// The window is being closed after a loss.
    ClosingLost,
    /// The window is being closed for a release; the version is unknown where a resumed lease was not read back.
    ClosingHeld(Slot, Record, Option<V>),
    Releasing(Releasing<V>),
    Finished,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Resuming {
    slot: Slot,
    record: Record,
    terms: Terms,
    retry: backoff::Backoff,
}

impl<V: Clone> Keeper<V> {
    /// A keeper that has nothing yet.
    #[must_use]
    pub fn new(config: KeeperConfig, now: Now) -> Self {
        let state = State::Seeking(Seeking::start(now.mono));
        Self::at(config, state)
    }

    /// A keeper that goes on with a lease that its owner held before a restart, and whose window still stands. It is
    /// first read back from the store; until then the window may be used up to the ceiling it has. The incarnation is
    /// the binding's, whatever the configuration says.
    #[must_use]
    pub fn resume(mut config: KeeperConfig, binding: Binding, now: Now) -> Self {
        let Binding { slot, fence, holding, terms } = binding;
        config.owner.incarnation = holding.owner.incarnation;
        let record = Record { fence, next_floor: holding.ceiling, tenure: crate::Tenure::Held(holding) };
        let retry = backoff::Backoff::start(now.mono);
        Self::at(config, State::Resuming(Resuming { slot, record, terms, retry }))
    }

    fn at(config: KeeperConfig, state: State<V>) -> Self {
        let jitter = Jitter::seeded(config.owner.incarnation);
        Self {
            config,
            state,
            actions: VecDeque::new(),
            request: 0,
            waiting: false,
            stopping: false,
            jitter,
            skew: None,
            missing: None,
        }
    }

    /// Who it keeps a slot for, with the present incarnation.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.config.owner
    }

    /// The next thing to do. Call until it gives `None`.
    pub fn poll(&mut self, now: Now) -> Option<Action<V>> {
        if self.actions.is_empty() && !self.waiting {
            self.advance(now);
        }
        self.actions.pop_front()
    }

    /// Whether there is something to do now, whatever the time: a poll gives it.
    #[must_use]
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// When to poll again if nothing happens before, ms of the monotonic clock; `None`: only an event changes anything.
    #[must_use]
    pub fn wake_at(&self) -> Option<Millis> {
        if self.waiting {
            return None;
        }
        match &self.state {
            State::Seeking(seeking) => Some(seeking.retry.due()),
            State::Resuming(resuming) => Some(resuming.retry.due()),
            State::Holding(held) => Some(held.retry.due()),
            State::Releasing(releasing) => Some(releasing.retry.due()),
            State::ClosingLost | State::ClosingHeld(..) | State::Finished => None,
        }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, event: Event<V>, now: Now) {
        match event {
            Event::Answered { id, result } => {
                if self.waiting && id == self.request {
                    self.waiting = false;
                    self.answered(result, now);
                }
            }
            Event::Closed { last_issued } => self.closed(last_issued, now),
            Event::Stop => self.stop(now),
        }
    }

    /// Sends what is due. Nothing is under way here.
    fn advance(&mut self, now: Now) {
        let due = self.wake_at().is_some_and(|at| at <= now.mono);
        if !due {
            return;
        }
        match &self.state {
            State::Seeking(_) => self.seek(now),
            State::Resuming(Resuming { slot, terms, .. }) => {
                let (slot, timeout) = (*slot, request_timeout(*terms));
                self.send(Request::Read { slot }, timeout);
            }
            State::Holding(_) => self.renew(now),
            State::Releasing(_) => self.release(now),
            State::ClosingLost | State::ClosingHeld(..) | State::Finished => {}
        }
    }

    fn answered(&mut self, result: Result<Answer<V>, StoreError>, now: Now) {
        match &self.state {
            State::Seeking(_) => self.sought(result, now),
            State::Resuming(_) => self.resumed(result, now),
            State::Holding(_) => self.renewed(result, now),
            State::Releasing(_) => self.released(result, now),
            State::ClosingLost | State::ClosingHeld(..) | State::Finished => {}
        }
    }

    fn closed(&mut self, last_issued: Millis, now: Now) {
        match std::mem::replace(&mut self.state, State::Finished) {
            State::ClosingLost if self.stopping => self.finish(),
            State::ClosingLost => {
                if !bug("same_incarnation_after_a_loss") {
                    self.config.owner = self.config.owner.succeed();
                }
                self.state = State::Seeking(Seeking::start(now.mono));
            }
            State::ClosingHeld(slot, record, version) => {
                let give_up_at = now.mono.saturating_add(self.config.release_timeout);
                let last_issued = if bug("release_forgets_what_was_issued") { 0 } else { last_issued };
                let releasing = Releasing::start(slot, record, version, last_issued, now.mono, give_up_at);
                self.state = State::Releasing(releasing.held());
            }
            // Nothing is open in these states: a stray answer to an earlier close.
            other => self.state = other,
        }
    }

    fn stop(&mut self, now: Now) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        match std::mem::replace(&mut self.state, State::Finished) {
            State::Holding(held) => {
                // A renewal under way no longer matters: whichever of it and the release comes first wins, and the
                // release reads back and tries again.
                self.waiting = false;
                self.state = State::ClosingHeld(held.slot, held.record, Some(held.version));
                self.actions.push_back(Action::Close);
            }
            State::Resuming(resuming) => {
                self.waiting = false;
                self.state = State::ClosingHeld(resuming.slot, resuming.record, None);
                self.actions.push_back(Action::Close);
            }
            // An acquisition under way may have succeeded: it is given back once that is known.
            State::Seeking(seeking) => self.stop_seeking(seeking, now),
            State::ClosingLost => self.state = State::ClosingLost,
            other => self.state = other,
        }
    }

    fn lose(&mut self, slot: Slot, reason: LossReason) {
        self.state = State::ClosingLost;
        self.actions.push_back(Action::Close);
        self.report(Report::Lost { slot, reason });
    }

    fn finish(&mut self) {
        self.state = State::Finished;
        self.actions.push_back(Action::Finish);
    }

    fn send(&mut self, request: Request<V>, timeout: Millis) {
        self.request += 1;
        self.waiting = true;
        self.actions.push_back(Action::Send { id: self.request, request, timeout });
    }

    fn report(&mut self, report: Report) {
        self.actions.push_back(Action::Report(report));
    }
}

/// The store's time as leases are judged and written by: late rather than early. Before the store's first answer it is
/// the beginning of time, by which nothing has expired.
fn store_now(now: Now) -> Millis {
    now.store.map_or(0, |time| time.earliest)
}

/// A request's deadline: short enough for at least three attempts between a renewal's first try and the ceiling.
fn request_timeout(terms: Terms) -> Millis {
    (terms.ttl / 6).max(1)
}
