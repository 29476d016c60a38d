//! A pool that a case works on, and owners in it that live in time of their own.

use std::future::poll_fn;
use std::task::Poll;

use super::line::{Fault, Line};
use super::{Outcome, TERMS};
use crate::keeper::{Binding, Event};
use crate::{
    Action, Entry, Keeper, KeeperConfig, Millis, Now, Owner, Record, Report, Slot, SlotState, SlotStore,
    StoreTime, View,
};

/// More steps than any case needs.
const MOST_STEPS: usize = 2_000;

/// A pool's store, and the store time at which the case begins.
pub(super) struct Stand<S> {
    pub(super) store: S,
    base: Millis,
}

impl<S: SlotStore> Stand<S> {
    pub(super) async fn new(store: S) -> Outcome<Self> {
        store.load().await.map_err(|error| format!("loading the new pool: {error}"))?;
        let now = store.now().ok_or("the store's clock is unknown after an answer")?;
        Ok(Self { store, base: now.earliest })
    }

    /// The store time, ms, at this many ms after the case's beginning.
    pub(super) fn time(&self, at: Millis) -> Millis {
        self.base + at
    }

    pub(super) async fn load(&self) -> Outcome<View<S::Version>> {
        self.store.load().await.map_err(|error| format!("loading: {error}"))
    }

    pub(super) async fn entry(&self, slot: Slot) -> Outcome<Entry<S::Version>> {
        let entry = self.store.read(slot).await.map_err(|error| format!("reading slot {slot}: {error}"))?;
        entry.ok_or_else(|| format!("slot {slot} is not there"))
    }

    pub(super) async fn record(&self, slot: Slot) -> Outcome<Record> {
        match self.entry(slot).await?.state {
            SlotState::Open(record) => Ok(record),
            other => Err(format!("slot {slot} is {other:?}")),
        }
    }

    /// An owner of this key that wants any slot, this many ms after the case's beginning.
    pub(super) fn actor(&self, key: &str, at: Millis) -> Actor<'_, S> {
        self.starting(KeeperConfig::new(Owner::new(key)), at)
    }

    pub(super) fn starting(&self, config: KeeperConfig, at: Millis) -> Actor<'_, S> {
        self.driving(at, |now| Keeper::new(config, now))
    }

    /// An owner that comes back with this lease.
    pub(super) fn resuming(&self, binding: &Binding, at: Millis) -> Actor<'_, S> {
        let config = KeeperConfig::new(binding.holding.owner.clone());
        let mut actor = self.driving(at, |now| Keeper::resume(config, binding.clone(), now));
        actor.ceiling = binding.holding.ceiling;
        actor
    }

    fn driving(&self, at: Millis, keeper: impl FnOnce(Now) -> Keeper<S::Version>) -> Actor<'_, S> {
        let keeper = keeper(now(self.base, at));
        Actor {
            line: Line::new(&self.store),
            base: self.base,
            mono: at,
            keeper,
            binding: None,
            ceiling: 0,
            reports: Vec::new(),
            closed: false,
            finished: false,
            last_issued: 0,
        }
    }
}

fn now(base: Millis, mono: Millis) -> Now {
    let store = base + mono;
    Now { mono, host: store, store: Some(StoreTime { earliest: store, latest: store }) }
}

/// One owner: its keeper, and what the keeper has said so far.
pub(super) struct Actor<'s, S: SlotStore> {
    pub(super) line: Line<'s, S>,
    base: Millis,
    mono: Millis,
    keeper: Keeper<S::Version>,
    /// The slot it holds.
    pub(super) binding: Option<Binding>,
    /// The ceiling it was told last.
    pub(super) ceiling: Millis,
    pub(super) reports: Vec<Report>,
    /// Whether it was told to close its window, and did.
    pub(super) closed: bool,
    finished: bool,
    /// What it says was issued last when it closes its window.
    last_issued: Millis,
}

impl<S: SlotStore> Actor<'_, S> {
    /// Does the next thing the keeper wants; where that is nothing, its time jumps to when it wants to be asked again.
    pub(super) async fn step(&mut self) -> Outcome {
        let now = now(self.base, self.mono);
        match self.keeper.poll(now) {
            Some(Action::Send { id, request, .. }) => {
                let result = self.line.ask(request).await;
                self.keeper.handle(Event::Answered { id, result }, now);
            }
            Some(Action::Hold(binding)) => {
                self.ceiling = binding.holding.ceiling;
                self.closed = false;
                self.binding = Some(binding);
            }
            Some(Action::Extend { ceiling, .. }) => {
                if ceiling < self.ceiling {
                    return Err(format!("the ceiling fell from {} to {ceiling}", self.ceiling));
                }
                self.ceiling = ceiling;
            }
            Some(Action::Close) => {
                self.closed = true;
                self.keeper.handle(Event::Closed { last_issued: self.last_issued }, now);
            }
            Some(Action::Report(report)) => self.reports.push(report),
            Some(Action::Waiting(_)) => {}
            Some(Action::Finish) => self.finished = true,
            None => {
                let wake_at = self.keeper.wake_at().ok_or("the keeper waits for nothing")?;
                self.mono = self.mono.max(wake_at);
            }
        }
        yield_once().await;
        Ok(())
    }

    /// Goes on until this is so.
    pub(super) async fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Outcome {
        for _ in 0..MOST_STEPS {
            if done(self) {
                return Ok(());
            }
            self.step().await?;
        }
        Err(format!("not reached: {what}; reported: {:?}", self.reports))
    }

    /// Goes on until it has reported something of this kind anew.
    pub(super) async fn until_report(&mut self, what: &str, kind: impl Fn(&Report) -> bool) -> Outcome {
        let seen = self.reports.len();
        self.until(what, |actor| actor.reports[seen..].iter().any(&kind)).await
    }

    /// Goes on until it holds a slot it did not hold before.
    pub(super) async fn acquire(&mut self) -> Outcome<Binding> {
        self.binding = None;
        self.until("a slot is held", |actor| actor.binding.is_some()).await?;
        self.binding.clone().ok_or_else(|| "no slot is held".into())
    }

    /// Goes on until its lease was renewed.
    pub(super) async fn renew(&mut self) -> Outcome {
        self.until_report("a renewal", |report| matches!(report, Report::Renewed { .. })).await
    }

    /// Stops it with this as the last timestamp issued, and goes on until its end.
    pub(super) async fn stop(&mut self, last_issued: Millis) -> Outcome {
        self.last_issued = last_issued;
        self.keeper.handle(Event::Stop, now(self.base, self.mono));
        self.until("its end", |actor| actor.finished).await
    }

    /// Time passes while it stands still.
    pub(super) fn pass(&mut self, by: Millis) {
        self.mono += by;
    }

    /// The store's clock steps back for it.
    pub(super) fn step_back(&mut self, by: Millis) {
        self.base -= by;
    }

    /// This happens to its next write.
    pub(super) fn fault(&mut self, fault: Fault) {
        self.line.faults.push_back(fault);
    }

    /// The store's time as it sees it.
    pub(super) fn store_time(&self) -> Millis {
        self.base + self.mono
    }

    pub(super) fn count(&self, kind: impl Fn(&Report) -> bool) -> usize {
        self.reports.iter().filter(|report| kind(report)).count()
    }
}

/// Past the expiry of a lease acquired at the case's beginning.
pub(super) const EXPIRED: Millis = TERMS.ttl;

/// Lets others that are joined go on.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
