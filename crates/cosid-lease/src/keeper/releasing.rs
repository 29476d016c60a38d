//! Giving a slot back after its window was closed.

use crate::keeper::backoff::{Backoff, longest_pause};
use crate::keeper::holding::above;
use crate::keeper::{Answer, Keeper, Report, Request, State, request_timeout, store_now};
use crate::regress::{Mark, has_lost_window};
use crate::{Fence, Millis, Now, Record, Regression, Slot, SlotState, StoreError, Terms, algebra};

/// A release is urgent: pauses between its attempts stay short whatever the ttl.
const URGENT: Terms = Terms { ttl: 3_000, tolerance: 0 };

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Releasing<V> {
    slot: Slot,
    record: Record,
    /// The fence whose window was closed: what is read back under another is not given back.
    fence: Fence,
    /// What the record was read at; `None`: read it back first.
    version: Option<V>,
    last_issued: Millis,
    pub(super) retry: Backoff,
    give_up_at: Millis,
    /// The release under way.
    pending: Option<Record>,
    /// The lease as the store acknowledged it; `None` where it is not known that it ever did.
    held: Option<Record>,
    /// What the store has lost of it, and has to have again before the release.
    behind: Option<(Record, Regression)>,
}

impl<V> Releasing<V> {
    pub(super) fn start(
        slot: Slot,
        record: Record,
        version: Option<V>,
        last_issued: Millis,
        mono: Millis,
        give_up_at: Millis,
    ) -> Self {
        let (fence, retry) = (record.fence, Backoff::start(mono));
        let (held, behind) = (None, None);
        Self { slot, record, fence, version, last_issued, retry, give_up_at, pending: None, held, behind }
    }

    /// The record is one that the store acknowledged.
    pub(super) fn held(self) -> Self {
        Self { held: Some(self.record.clone()), ..self }
    }
}

impl<V: Clone> Keeper<V> {
    pub(super) fn release(&mut self, now: Now) {
        let incarnation = self.config.owner.incarnation;
        let State::Releasing(releasing) = &mut self.state else { return };
        let slot = releasing.slot;
        let left = releasing.give_up_at.saturating_sub(now.mono);
        if left == 0 {
            self.report(Report::ReleaseAbandoned { slot });
            return self.finish();
        }
        // A hung connection must leave time for another attempt; a slow store is given time where there is some.
        let timeout = request_timeout(URGENT).max(left / 3).min(left);
        let Some(version) = releasing.version.clone() else {
            return self.send(Request::Read { slot }, timeout);
        };
        if let Some((record, regression)) = releasing.behind.clone() {
            return self.send(Request::PutBack { slot, version, record, regression }, timeout);
        }
        match algebra::release(&releasing.record, incarnation, releasing.fence, releasing.last_issued) {
            Ok(record) => {
                releasing.pending = Some(record.clone());
                self.send(Request::Write { slot, version, record }, timeout);
            }
            // Nothing to give back: it was done by an attempt whose answer was lost, or it is somebody else's by now.
            Err(_) => {
                let record = &releasing.record;
                let done = record.holding().is_none() && Some(record.fence) == releasing.fence.checked_add(1);
                if done && record.last_key() == Some(self.config.owner.key.as_str()) {
                    let next_floor = record.next_floor;
                    self.report(Report::Released { slot, next_floor });
                }
                self.finish();
            }
        }
    }

    pub(super) fn released(&mut self, result: Result<Answer<V>, StoreError>, now: Now) {
        let State::Releasing(releasing) = &mut self.state else { return };
        let slot = releasing.slot;
        match (result, releasing.pending.take()) {
            (Ok(Answer::Written(version)), None) if releasing.behind.is_some() => {
                if let Some((record, _)) = releasing.behind.take() {
                    releasing.record = record;
                }
                releasing.version = Some(version);
                releasing.retry.again(now.mono);
            }
            (Ok(Answer::Written(_)), Some(record)) => {
                self.report(Report::Released { slot, next_floor: record.next_floor });
                self.finish();
            }
            (Ok(Answer::Read(entry)), _) => match entry.map(|entry| (entry.version, entry.state)) {
                Some((version, SlotState::Open(record))) => self.found(version, record, now),
                // Deleted, or beyond reading: its next floor is in others' care.
                _ => self.finish(),
            },
            (Err(StoreError::Conflict), _) => {
                releasing.version = None;
                releasing.retry.contended(now.mono, longest_pause(URGENT), &mut self.jitter);
            }
            (Err(StoreError::Gone), _) => self.finish(),
            (Err(error), _) => {
                // Whether it was written is unknown: a release of what is free already writes nothing.
                releasing.retry.failed(now.mono, longest_pause(URGENT), &mut self.jitter);
                let due = releasing.retry.due().min(releasing.give_up_at);
                releasing.retry.at(due);
                let failures = releasing.retry.failures();
                self.report(Report::StoreFailed { what: "release", error, failures });
            }
            (Ok(Answer::Loaded(_) | Answer::Written(_)), _) => releasing.retry.again(now.mono),
        }
    }

    /// What the slot is at by now. A store that has lost some of the window gets it back before the release: the next
    /// holder would begin below what was issued.
    fn found(&mut self, version: V, record: Record, now: Now) {
        let State::Releasing(releasing) = &mut self.state else { return };
        let slot = releasing.slot;
        releasing.version = Some(version);
        releasing.behind = None;
        releasing.retry.again(now.mono);
        // Under a later fence it may be this owner's own release, whose answer was lost.
        let held = releasing
            .held
            .clone()
            .filter(|held| record.fence <= held.fence && has_lost_window(held, &record));
        releasing.record = record;
        let Some((held, mine)) = held.as_ref().and_then(|held| Some((held, held.holding()?))) else { return };
        let found = &releasing.record;
        let regression = Regression { slot, known: Mark::from(held), found: Mark::from(found) };
        let is_ours = found.is_held_by(mine.owner.incarnation, held.fence);
        let is_taken = !is_ours && (found.fence == held.fence || found.live(store_now(now)).is_some());
        let said = Report::StoreRegressed(regression.clone());
        if is_taken {
            self.report(said);
            return self.finish();
        }
        releasing.behind = Some((above(held, mine, found), regression));
        self.report(said);
    }
}
