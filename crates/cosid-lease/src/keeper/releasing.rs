//! Giving a slot back after its window was closed.

use crate::keeper::backoff::{Backoff, longest_pause};
use crate::keeper::{Answer, Keeper, Report, Request, State, request_timeout};
use crate::{Fence, Millis, Now, Record, Slot, SlotState, StoreError, Terms, algebra};

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
        Self { slot, record, fence, version, last_issued, retry, give_up_at, pending: None }
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
            (Ok(Answer::Written(_)), Some(record)) => {
                self.report(Report::Released { slot, next_floor: record.next_floor });
                self.finish();
            }
            (Ok(Answer::Read(entry)), _) => match entry.map(|entry| (entry.version, entry.state)) {
                Some((version, SlotState::Open(record))) => {
                    releasing.record = record;
                    releasing.version = Some(version);
                    releasing.retry.again(now.mono);
                }
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
}
