//! Keeping a slot: renewals, and noticing a loss.

use crate::keeper::backoff::{Backoff, Jitter, longest_pause};
use crate::keeper::{
    Action, Answer, Keeper, LossReason, Report, Request, Resuming, State, request_timeout, store_now,
};
use crate::proof::bug;
use crate::{Entry, Holding, Millis, Now, Record, Slot, SlotState, StoreError, Tenure, Terms, algebra};

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
        Self { slot, record, version, retry, terms, pending: None, expiry_reported: false }
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
        match still_ours(entry, &held.record) {
            Ok((record, version)) => {
                held.record = record;
                held.version = version;
                held.retry.contended(now.mono, longest_pause(held.terms), &mut self.jitter);
                self.extend();
            }
            Err(reason) => self.lose(slot, reason),
        }
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
        match still_ours(entry, record) {
            Ok((record, version)) => {
                let (terms, fence) = (*terms, record.fence);
                // Renewed at once: how long it stood still is unknown.
                let retry = Backoff::start(now.mono);
                let held =
                    Held { slot, record, version, retry, terms, pending: None, expiry_reported: false };
                self.state = State::Holding(held);
                self.extend();
                self.report(Report::Resumed { slot, fence });
            }
            Err(reason) => self.lose(slot, reason),
        }
    }

    fn extend(&mut self) {
        let State::Holding(held) = &self.state else { return };
        let Some(holding) = held.record.holding() else { return };
        let (ceiling, expires_at) = (holding.ceiling, holding.expires_at);
        self.actions.push_back(Action::Extend { ceiling, expires_at });
    }
}

/// The record as the store has it, where it still is under the same incarnation and fence as `known`; no end of the
/// window is lower than known before.
fn still_ours<V>(entry: Option<Entry<V>>, known: &Record) -> Result<(Record, V), LossReason> {
    let Some(Entry { version, state, .. }) = entry else { return Err(LossReason::Deleted) };
    let found = match state {
        SlotState::Open(found) => found,
        SlotState::Shut | SlotState::Deleting => return Err(LossReason::Deleted),
        SlotState::Corrupt(why) => return Err(LossReason::Corrupt(why)),
    };
    let Some(mine) = known.holding() else { return Err(LossReason::Deleted) };
    if !found.is_held_by(mine.owner.incarnation, known.fence) {
        if bug("a_conflict_is_never_a_loss") {
            return Ok((known.clone(), version));
        }
        let fence = found.fence;
        return Err(match found.holding() {
            Some(holding) => LossReason::Taken { holder: holding.owner.key.clone(), fence },
            None => LossReason::Freed { fence },
        });
    }
    let mut record = found;
    let lowest: Millis = known.next_floor;
    record.next_floor = record.next_floor.max(lowest);
    if let Tenure::Held(holding) = &mut record.tenure {
        holding.floor = holding.floor.max(mine.floor);
        holding.ceiling = holding.ceiling.max(mine.ceiling);
        holding.expires_at = holding.expires_at.max(mine.expires_at);
    }
    Ok((record, version))
}
