//! The line between a keeper and the store, and what can go wrong on it.

use std::collections::VecDeque;

use crate::keeper::{Answer, Request};
use crate::{Record, Slot, SlotStore, StoreError};

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is done, and its answer is lost.
    Lose,
    /// It never arrives.
    Drop,
    /// It is given up, and arrives when [`Line::arrive`] says.
    Delay,
    /// It is done twice; the first answer comes back.
    Twice,
}

/// One keeper's way to the store.
pub(super) struct Line<'s, S: SlotStore> {
    store: &'s S,
    /// What happens to the next writes; without, they are done.
    pub(super) faults: VecDeque<Fault>,
    /// Writes that are still to arrive.
    delayed: Vec<(Slot, S::Version, Record)>,
}

impl<'s, S: SlotStore> Line<'s, S> {
    pub(super) fn new(store: &'s S) -> Self {
        Self { store, faults: VecDeque::new(), delayed: Vec::new() }
    }

    pub(super) async fn ask(
        &mut self,
        request: Request<S::Version>,
    ) -> Result<Answer<S::Version>, StoreError> {
        match request {
            Request::Load => self.store.load().await.map(Answer::Loaded),
            Request::Read { slot } => self.store.read(slot).await.map(Answer::Read),
            Request::Write { slot, version, record } | Request::PutBack { slot, version, record, .. } => {
                self.write(slot, version, record).await.map(Answer::Written)
            }
        }
    }

    async fn write(
        &mut self,
        slot: Slot,
        version: S::Version,
        record: Record,
    ) -> Result<S::Version, StoreError> {
        let lost = |what: &str| Err(StoreError::Unknown(what.into()));
        match self.faults.pop_front() {
            None => self.store.write(slot, &version, &record).await,
            Some(Fault::Lose) => {
                self.store.write(slot, &version, &record).await?;
                lost("the answer was lost")
            }
            Some(Fault::Drop) => lost("the request was dropped"),
            Some(Fault::Delay) => {
                self.delayed.push((slot, version, record));
                lost("the request is late")
            }
            Some(Fault::Twice) => {
                let first = self.store.write(slot, &version, &record).await;
                match self.store.write(slot, &version, &record).await {
                    Err(StoreError::Conflict) => first,
                    other => {
                        lost(&format!("a second write at one version gave {:?}", other.map(|_| "a version")))
                    }
                }
            }
        }
    }

    /// The delayed writes arrive, and this came of each.
    pub(super) async fn arrive(&mut self) -> Vec<Result<S::Version, StoreError>> {
        let mut results = Vec::new();
        for (slot, version, record) in std::mem::take(&mut self.delayed) {
            results.push(self.store.write(slot, &version, &record).await);
        }
        results
    }
}
