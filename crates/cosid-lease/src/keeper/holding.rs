//! Keeping a slot: renewals, and noticing a loss.

use crate::keeper::backoff::{Backoff, Jitter, longest_pause};
use crate::keeper::{
    Action, Answer, Keeper, LossReason, Report, Request, Resuming, State, request_timeout, store_now,
};
use crate::proof::bug;
use crate::regress::{Mark, has_lost_window};
use crate::{Entry, Holding, Now, Record, Regression, Slot, SlotState, StoreError, Tenure, Terms, algebra};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held<V> {
    pub(super) slot: Slot,
    /// As the store last acknowledged it. Only what is acknowledged is issued under.
    pub(super) record: Record,
    pub(super) version: V,
    pub(super) retry: Backoff,
    terms: Terms,
    /// The renewal under way.
    pending: Option<Record>,
    expiry_reported: bool,
    /// What the store has lost of this lease, as far as that was reported.
    behind: Option<Regression>,
}

impl<V> Held<V> {
    /// The first renewal is due a third of the ttl after the acquisition; at once where a lease is found that was
    /// acquired before.
    pub(super) fn start(
        slot: Slot,
        record: Record,
        version: V,
        terms: Terms,
        now: Now,
        jitter: &mut Jitter,
    ) -> Self {
        let left = record.holding().map_or(0, |holding| holding.expires_at.saturating_sub(store_now(now)));
        let mut retry = Backoff::start(now.mono);
        let third = jitter.around(terms.ttl / 3).max(1);
        // Never later, however far away the expiry seems: the store's clock may have stepped back, and forward again.
        retry.rest(now.mono, left.saturating_sub(terms.ttl.saturating_sub(third)).min(third));
        Self { slot, record, version, retry, terms, pending: None, expiry_reported: false, behind: None }
    }
}

impl<V: Clone> Keeper<V> {
    pub(super) fn renew(&mut self, now: Now) {
        let State::Holding(held) = &mut self.state else { return };
        let (slot, terms) = (held.slot, held.terms);
        let incarnation = self.config.owner.incarnation;
        let renewed = algebra::renew(&held.record, incarnation, held.record.fence, store_now(now), terms);
        // The record is this owner's own, as acknowledged.
        let Ok(record) = renewed else { return };
        held.pending = Some(record.clone());
        if let Some(Holding { ceiling, expires_at, .. }) =
            record.holding().filter(|_| bug("extends_before_the_answer"))
        {
            let (ceiling, expires_at) = (*ceiling, *expires_at);
            self.actions.push_back(Action::Extend { ceiling, expires_at });
        }
        let version = held.version.clone();
        let expires_at = held.record.holding().map_or(0, |holding| holding.expires_at);
        let expired = !held.expiry_reported && store_now(now) >= expires_at;
        held.expiry_reported |= expired;
        self.check_skew(terms, now);
        if expired {
            self.report(Report::Expired { slot });
        }
        self.send(Request::Write { slot, version, record }, request_timeout(terms));
    }

    pub(super) fn renewed(&mut self, result: Result<Answer<V>, StoreError>, now: Now) {
        let State::Holding(held) = &mut self.state else { return };
        let slot = held.slot;
        match (result, held.pending.take()) {
            (Ok(Answer::Written(version)), Some(record)) => {
                held.record = record;
                held.version = version;
                held.expiry_reported = false;
                held.behind = None;
                held.retry.rest(now.mono, self.jitter.around(held.terms.ttl / 3).max(1));
                self.extend();
                self.report(Report::Renewed { slot });
            }
            // It may be nothing: an annotation was edited, or an earlier renewal arrived after all. Only a read tells.
            (Err(StoreError::Conflict), _) => {
                let timeout = request_timeout(held.terms);
                self.send(Request::Read { slot }, timeout);
            }
            (Ok(Answer::Read(entry)), _) => self.read_back(entry, now),
            (Err(StoreError::Gone), _) => self.lose(slot, LossReason::Deleted),
            (Err(StoreError::Refused(_)), Some(_)) if held.behind.is_some() => {
                if let Some(regression) = held.behind.take() {
                    self.missing = self.missing.max(Some(regression.known.next_floor));
                    self.lose(slot, LossReason::StoreRegressed(regression));
                }
            }
            (Err(error), _) => {
                held.retry.failed(now.mono, longest_pause(held.terms), &mut self.jitter);
                let failures = held.retry.failures();
                self.report(Report::StoreFailed { what: "renew", error, failures });
            }
            (Ok(Answer::Loaded(_) | Answer::Written(_)), _) => held.retry.again(now.mono),
        }
    }

    fn read_back(&mut self, entry: Option<Entry<V>>, now: Now) {
        let State::Holding(held) = &mut self.state else { return };
        let slot = held.slot;
        match standing(entry, slot, &held.record, now) {
            Standing::Ours(record, version) => {
                held.record = record;
                held.version = version;
                held.retry.contended(now.mono, longest_pause(held.terms), &mut self.jitter);
                self.extend();
            }
            Standing::Behind { record, version, regression } => {
                held.version = version;
                self.put_back(record, regression, now);
            }
            Standing::Forked(regression) => self.lose_to_regression(regression),
            Standing::Lost(reason) => self.lose(slot, reason),
        }
    }

    /// The store has lost some of this lease, and nobody else has the slot: it is put back, renewed, so that no newcomer
    /// takes the slot for a free one. Until that is acknowledged the window ends where it did.
    fn put_back(&mut self, record: Record, regression: Regression, now: Now) {
        let incarnation = self.config.owner.incarnation;
        let State::Holding(held) = &mut self.state else { return };
        let (slot, terms, version) = (held.slot, held.terms, held.version.clone());
        let Ok(record) = algebra::renew(&record, incarnation, record.fence, store_now(now), terms) else {
            return;
        };
        held.pending = Some(record.clone());
        if held.behind.replace(regression.clone()).is_none() {
            self.report(Report::StoreRegressed(regression.clone()));
        }
        self.send(Request::PutBack { slot, version, record, regression }, request_timeout(terms));
    }

    /// Somebody else has the slot in a store that lost this lease. Both windows are in use: this one ends at once, and
    /// nothing is acquired before a barrier is above it.
    fn lose_to_regression(&mut self, regression: Regression) {
        self.missing = self.missing.max(Some(regression.known.next_floor));
        self.report(Report::StoreRegressed(regression.clone()));
        self.lose(regression.slot, LossReason::StoreRegressed(regression));
    }

    /// A resumed lease was read back from the store.
    pub(super) fn resumed(&mut self, result: Result<Answer<V>, StoreError>, now: Now) {
        let State::Resuming(resuming) = &mut self.state else { return };
        let slot = resuming.slot;
        let entry = match result {
            Ok(Answer::Read(entry)) => entry,
            Ok(Answer::Loaded(_) | Answer::Written(_)) => return resuming.retry.again(now.mono),
            Err(StoreError::Gone) => None,
            Err(error) => {
                resuming.retry.failed(now.mono, longest_pause(resuming.terms), &mut self.jitter);
                let failures = resuming.retry.failures();
                return self.report(Report::StoreFailed { what: "resume", error, failures });
            }
        };
        let Resuming { record, terms, .. } = resuming;
        let (terms, fence) = (*terms, record.fence);
        // Renewed at once: how long it stood still is unknown.
        let held = |record, version| Held {
            slot,
            record,
            version,
            retry: Backoff::start(now.mono),
            terms,
            pending: None,
            expiry_reported: false,
            behind: None,
        };
        match standing(entry, slot, record, now) {
            Standing::Ours(record, version) => {
                self.state = State::Holding(held(record, version));
                self.extend();
                self.report(Report::Resumed { slot, fence });
            }
            Standing::Behind { record: lifted, version, regression } => {
                self.state = State::Holding(held(record.clone(), version));
                self.report(Report::Resumed { slot, fence });
                self.put_back(lifted, regression, now);
            }
            Standing::Forked(regression) => self.lose_to_regression(regression),
            Standing::Lost(reason) => self.lose(slot, reason),
        }
    }

    fn extend(&mut self) {
        let State::Holding(held) = &self.state else { return };
        let Some(holding) = held.record.holding() else { return };
        let (ceiling, expires_at) = (holding.ceiling, holding.expires_at);
        self.actions.push_back(Action::Extend { ceiling, expires_at });
    }
}

/// How a lease stands in the store.
enum Standing<V> {
    /// As it should.
    Ours(Record, V),
    /// The store has lost some of it, and `record` can be put back.
    Behind { record: Record, version: V, regression: Regression },
    /// The store has lost it, and somebody else has the slot.
    Forked(Regression),
    /// It is over.
    Lost(LossReason),
}

/// How the lease that is known as `known` stands in the store; no end of its window is lower than known before.
fn standing<V>(entry: Option<Entry<V>>, slot: Slot, known: &Record, now: Now) -> Standing<V> {
    let Some(Entry { version, state, .. }) = entry else { return Standing::Lost(LossReason::Deleted) };
    let found = match state {
        SlotState::Open(found) => found,
        SlotState::Shut | SlotState::Deleting => return Standing::Lost(LossReason::Deleted),
        SlotState::Corrupt(why) => return Standing::Lost(LossReason::Corrupt(why)),
    };
    let Some(mine) = known.holding() else { return Standing::Lost(LossReason::Deleted) };
    let is_ours = found.is_held_by(mine.owner.incarnation, known.fence);
    if has_lost_window(known, &found) {
        let regression = Regression { slot, known: Mark::from(known), found: Mark::from(&found) };
        let is_taken = found.fence >= known.fence || found.live(store_now(now)).is_some();
        if !is_ours && is_taken {
            return Standing::Forked(regression);
        }
        return Standing::Behind { record: above(known, mine, &found), version, regression };
    }
    if is_ours {
        return Standing::Ours(above(known, mine, &found), version);
    }
    if bug("a_conflict_is_never_a_loss") {
        return Standing::Ours(known.clone(), version);
    }
    let fence = found.fence;
    Standing::Lost(match found.holding() {
        Some(holding) => LossReason::Taken { holder: holding.owner.key.clone(), fence },
        None => LossReason::Freed { fence },
    })
}

/// The known lease, with nothing lower than it is or was in the store. What the store shows in place of it may be from
/// an earlier holder: then this one began above, however early that one let go.
pub(super) fn above(known: &Record, mine: &Holding, found: &Record) -> Record {
    let seen = found.holding();
    let same = seen.is_some_and(|seen| {
        found.is_held_by(mine.owner.incarnation, known.fence) && seen.owner == mine.owner
    });
    let floor = match seen {
        Some(seen) if same => mine.floor.max(seen.floor),
        _ => mine.floor.max(found.next_floor),
    };
    let ceiling = mine.ceiling.max(floor).max(seen.filter(|_| same).map_or(0, |seen| seen.ceiling));
    let expires_at = mine.expires_at.max(seen.filter(|_| same).map_or(0, |seen| seen.expires_at));
    let acquired_at = match seen {
        Some(seen) if same => seen.acquired_at,
        Some(seen) => mine.acquired_at.max(seen.expires_at),
        None => mine.acquired_at,
    };
    let next_floor = known.next_floor.max(found.next_floor).max(ceiling);
    let holding = Holding { owner: mine.owner.clone(), floor, ceiling, expires_at, acquired_at };
    Record { fence: known.fence, next_floor, tenure: Tenure::Held(holding) }
}
