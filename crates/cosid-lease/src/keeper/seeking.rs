//! Looking for a slot.

use std::collections::BTreeSet;

use crate::choose::{self, Choice, Unavailable};
use crate::keeper::backoff::{Backoff, longest_pause};
use crate::keeper::holding::Held;
use crate::keeper::releasing::Releasing;
use crate::keeper::{
    Action, Answer, Binding, Keeper, Report, Request, State, report::PoolRefusal, request_timeout, store_now,
    until,
};
use crate::{Millis, Now, Pool, PoolState, Record, Slot, StoreError, Terms, View, algebra};

/// A pool's terms before the pool is known: they time the first requests only.
const UNKNOWN: Terms = Terms { ttl: 30_000, tolerance: 0 };

/// After so many lost races the view is old: load it again.
const MOST_RACES: usize = 16;

/// More kinds of trouble than that are reported anew: an owner that seeks for days, with a store whose errors differ in
/// their text, must not grow without bound.
const MOST_REMEMBERED: usize = 4_096;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seeking<V> {
    pub(super) retry: Backoff,
    since: Millis,
    timed_out: bool,
    terms: Terms,
    view: Option<View<V>>,
    /// Slots of `view` that were lost to others since it was loaded.
    raced: BTreeSet<Slot>,
    /// The write under way.
    pending: Option<(Slot, Record)>,
    /// The last write whose outcome is unknown: it may have been done, or still be. A conflict on its slot may be with
    /// it, so that only a load tells; and a stop reads it back.
    unsure: Option<(Slot, Record)>,
    /// What was reported already, so that a repeated attempt says nothing new.
    reported: Vec<Report>,
}

impl<V> Seeking<V> {
    pub(super) fn start(mono: Millis) -> Self {
        Self {
            retry: Backoff::start(mono),
            since: mono,
            timed_out: false,
            terms: UNKNOWN,
            view: None,
            raced: BTreeSet::new(),
            pending: None,
            unsure: None,
            reported: Vec::new(),
        }
    }

    fn remember(&mut self, report: Report) {
        if self.reported.len() >= MOST_REMEMBERED {
            self.reported.clear();
        }
        self.reported.push(report);
    }
}

impl<V: Clone> Keeper<V> {
    pub(super) fn seek(&mut self, _now: Now) {
        let State::Seeking(seeking) = &mut self.state else { return };
        seeking.view = None;
        seeking.raced.clear();
        let timeout = request_timeout(seeking.terms);
        self.send(Request::Load, timeout);
    }

    pub(super) fn sought(&mut self, result: Result<Answer<V>, StoreError>, now: Now) {
        let State::Seeking(seeking) = &mut self.state else { return };
        match (result, seeking.pending.take()) {
            (Ok(Answer::Loaded(view)), None) => self.consider(view, now),
            (Ok(Answer::Written(version)), Some((slot, record))) => self.acquired(slot, record, version, now),
            (Err(StoreError::Conflict | StoreError::Gone), Some((slot, _))) => self.raced(slot, now),
            (Err(StoreError::NoPool { pool }), _) => {
                self.not_yet(Report::PoolRefused(PoolRefusal::NotFound { pool }), now);
            }
            (Err(error @ StoreError::Refused(_)), Some((slot, _))) => {
                // It would refuse this slot again; it may take another.
                self.failed(error, now);
                self.raced(slot, now);
            }
            (Err(error), pending) => {
                seeking.unsure = pending.or(seeking.unsure.take());
                self.failed(error, now);
            }
            (Ok(_), _) => {
                self.failed(StoreError::Unknown("an answer to another request".into()), now);
            }
        }
    }

    fn failed(&mut self, error: StoreError, now: Now) {
        let State::Seeking(seeking) = &self.state else { return };
        let failures = seeking.retry.failures().saturating_add(1);
        self.not_yet(Report::StoreFailed { what: "acquire", error, failures }, now);
    }

    fn consider(&mut self, view: View<V>, now: Now) {
        if let Some(refusal) = self.refusal(&view.pool) {
            if matches!(refusal, PoolRefusal::StoreRegressed { .. }) {
                self.forget_attempts();
            }
            return self.not_yet(Report::PoolRefused(refusal), now);
        }
        if now.store.is_none() {
            // A lease written by no clock would be expired from its start.
            let error = StoreError::Unknown("its answers don't tell its time".into());
            return self.failed(error, now);
        }
        self.report_oddities(&view, now);
        let State::Seeking(seeking) = &mut self.state else { return };
        seeking.terms = view.pool.terms;
        seeking.view = Some(view);
        self.try_next(now);
    }

    /// Chooses a slot of the view and tries to acquire it.
    fn try_next(&mut self, now: Now) {
        let spread = self.jitter.next();
        let State::Seeking(seeking) = &mut self.state else { return };
        let Some(view) = &seeking.view else { return seeking.retry.again(now.mono) };
        let store_now = store_now(now);
        let owner = &self.config.owner;
        match choose::choose(view, owner, self.config.preference, store_now, &seeking.raced, spread) {
            Choice::Held(index) => {
                let entry = &view.entries[index];
                let Some(record) = entry.state.record().cloned() else { return };
                let (slot, version) = (entry.slot, entry.version.clone());
                self.acquired(slot, record, version, now);
            }
            Choice::Take(index) => {
                let entry = &view.entries[index];
                let taken = entry
                    .state
                    .record()
                    .map(|record| algebra::acquire(record, owner, store_now, seeking.terms));
                // The choice takes only what the algebra grants.
                let Some(Ok(record)) = taken else { return };
                let (slot, version) = (entry.slot, entry.version.clone());
                seeking.pending = Some((slot, record.clone()));
                let timeout = request_timeout(seeking.terms);
                self.send(Request::Write { slot, version, record }, timeout);
            }
            Choice::None(unavailable) => self.unavailable(unavailable, now),
        }
    }

    fn acquired(&mut self, slot: Slot, record: Record, version: V, now: Now) {
        let State::Seeking(seeking) = &mut self.state else { return };
        let terms = seeking.terms;
        let Some(holding) = record.holding().cloned() else { return };
        let fence = record.fence;
        let floor_wait = until(holding.floor, now.store);
        self.state = State::Holding(Held::start(slot, record, version, terms, now, &mut self.jitter));
        self.actions.push_back(Action::Hold(Binding { slot, fence, holding, terms }));
        self.report(Report::Acquired { slot, fence, floor_wait });
        self.check_skew(terms, now);
    }

    fn raced(&mut self, slot: Slot, now: Now) {
        let longest = self.longest_seeking_pause();
        let State::Seeking(seeking) = &mut self.state else { return };
        seeking.raced.insert(slot);
        if seeking.unsure.as_ref().is_some_and(|(unsure, _)| *unsure == slot) {
            seeking.retry.again(now.mono);
        } else if seeking.raced.len() >= MOST_RACES {
            seeking.retry.failed(now.mono, longest, &mut self.jitter);
        } else {
            self.try_next(now);
        }
    }

    fn unavailable(&mut self, unavailable: Unavailable, now: Now) {
        let State::Seeking(seeking) = &mut self.state else { return };
        let Some(view) = &seeking.view else { return };
        let pool = view.pool.name.clone();
        let size = view.pool.size();
        let (first, last) = (view.pool.first, view.pool.last);
        if !seeking.raced.is_empty() {
            // The view says exhausted only because of races lost since it was loaded.
            let longest = self.longest_seeking_pause();
            let State::Seeking(seeking) = &mut self.state else { return };
            return seeking.retry.failed(now.mono, longest, &mut self.jitter);
        }
        let (report, at) = match unavailable {
            Unavailable::Exhausted { earliest_expiry } => {
                let wait = Self::wait(earliest_expiry, now);
                (Report::Exhausted { pool, size, earliest_expiry, wait }, earliest_expiry)
            }
            Unavailable::Occupied { slot, holder, until } => {
                (Report::Occupied { pool, slot, holder, until }, until)
            }
            Unavailable::NotInPool { slot } => {
                let refusal = PoolRefusal::SlotNotInPool { pool, slot, first, last };
                return self.not_yet(Report::PoolRefused(refusal), now);
            }
        };
        self.not_yet(report, now);
        // A slot may be released or renewed at any time: look every third of a ttl, and when the first expires.
        let State::Seeking(seeking) = &mut self.state else { return };
        let often = self.jitter.around(seeking.terms.ttl / 3).max(100);
        let spread = self.jitter.next() % 100;
        let pause = Self::wait(at, now).map_or(often, |wait| wait.saturating_add(spread).max(100).min(often));
        seeking.retry.at(now.mono.saturating_add(pause));
        self.wake_for_the_timeout();
    }

    /// Reports what stands in the way, unless it was, and tries later.
    fn not_yet(&mut self, cause: Report, now: Now) {
        let longest = self.longest_seeking_pause();
        let State::Seeking(seeking) = &mut self.state else { return };
        seeking.retry.failed(now.mono, longest, &mut self.jitter);
        self.actions.push_back(Action::Waiting(cause.clone()));
        let after = self.config.acquire_timeout.unwrap_or(seeking.terms.ttl);
        let timed_out = !seeking.timed_out && now.mono.saturating_sub(seeking.since) >= after;
        seeking.timed_out |= timed_out;
        let known = seeking.reported.iter().any(|report| report.is_like(&cause));
        if !known {
            seeking.remember(cause.clone());
        }
        if timed_out {
            self.report(Report::AcquireTimedOut { after, cause: Box::new(cause) });
        } else if !known {
            self.report(cause);
        }
        self.wake_for_the_timeout();
    }

    /// The acquire timeout is reported when it passes, not at the attempt after it.
    fn wake_for_the_timeout(&mut self) {
        let State::Seeking(seeking) = &mut self.state else { return };
        if !seeking.timed_out {
            let after = self.config.acquire_timeout.unwrap_or(seeking.terms.ttl);
            seeking.retry.at(seeking.retry.due().min(seeking.since.saturating_add(after)));
        }
    }

    fn report_oddities(&mut self, view: &View<V>, now: Now) {
        let key = &self.config.owner.key;
        let duplicates = choose::duplicates(view, &self.config.owner, store_now(now))
            .into_iter()
            .map(|other| Report::DuplicateOwner { key: key.clone(), slot: other.slot, fence: other.fence });
        let corrupt = choose::corrupt(view).map(|(slot, why)| Report::Quarantined { slot, why: why.into() });
        let odd: Vec<Report> = duplicates.chain(corrupt).collect();
        let State::Seeking(seeking) = &mut self.state else { return };
        for report in odd {
            if !seeking.reported.contains(&report) {
                seeking.remember(report.clone());
                self.actions.push_back(Action::Report(report));
            }
        }
    }

    fn refusal(&self, pool: &Pool) -> Option<PoolRefusal> {
        let name = || pool.name.clone();
        let expect = self.config.expect;
        if let Some(expected) = expect.bits.filter(|&bits| bits != pool.bits) {
            return Some(PoolRefusal::OtherBits { pool: name(), found: pool.bits, expected });
        }
        let found = pool.terms.tolerance;
        if let Some(expected) = expect.tolerance.filter(|&tolerance| tolerance != found) {
            return Some(PoolRefusal::OtherTolerance { pool: name(), found, expected });
        }
        match pool.state {
            PoolState::Regressed => Some(PoolRefusal::StoreRegressed { pool: name() }),
            // What this owner knows of is above what the store knows of.
            PoolState::Ready if self.missing.is_some_and(|ceiling| pool.barrier < ceiling) => {
                Some(PoolRefusal::StoreRegressed { pool: name() })
            }
            PoolState::Ready => None,
            PoolState::Unready => Some(PoolRefusal::Unready { pool: name() }),
            PoolState::Deleting => Some(PoolRefusal::Deleting { pool: name() }),
        }
    }

    /// An acquisition of unknown outcome may have been made in a store that lost history. It is never used: after the
    /// barrier its window would begin below it.
    fn forget_attempts(&mut self) {
        let State::Seeking(seeking) = &mut self.state else { return };
        if seeking.unsure.take().is_some() {
            self.config.owner = self.config.owner.succeed();
        }
    }

    fn longest_seeking_pause(&self) -> Millis {
        match &self.state {
            State::Seeking(seeking) => longest_pause(seeking.terms),
            _ => longest_pause(UNKNOWN),
        }
    }

    /// A stop while seeking: an acquisition under way, or one of unknown outcome, may have succeeded, so the slot is
    /// read back and released.
    pub(super) fn stop_seeking(&mut self, seeking: Seeking<V>, now: Now) {
        self.waiting = false;
        let Some((slot, record)) = seeking.pending.or(seeking.unsure) else { return self.finish() };
        // Nothing was issued: the release hands on the floor, whatever it is.
        let last_issued = 0;
        let give_up_at = now.mono.saturating_add(self.config.release_timeout);
        let releasing = Releasing::start(slot, record, None, last_issued, now.mono, give_up_at);
        self.state = State::Releasing(releasing);
    }
}

impl Report {
    /// Whether it says the same, but for numbers that change with every attempt.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::StoreFailed { error: a, .. }, Self::StoreFailed { error: b, .. }) => a == b,
            (Self::Exhausted { .. }, Self::Exhausted { .. }) => true,
            (Self::Occupied { holder: a, .. }, Self::Occupied { holder: b, .. }) => a == b,
            (a, b) => a == b,
        }
    }
}
