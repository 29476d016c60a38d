//! What a slot store must do.

use std::collections::BTreeSet;
use std::future::Future;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Millis, Record, Regression, Slot, StoreTime, Terms};

/// Where the slots of one pool are kept. Every change is one compare-and-set of one slot.
///
/// Loads and reads decide safety, so they must never come from a cache. No call retries by itself: the [`Keeper`]
/// does, within the lease's time. Each must end by itself or be safe to drop.
///
/// [`Keeper`]: crate::Keeper
pub trait SlotStore: Send + Sync {
    /// What a slot was read at. A write with it succeeds only if the slot has not changed since.
    type Version: Clone + Send + Sync + 'static;

    /// The pool and all its slots.
    ///
    /// # Errors
    /// [`StoreError`], but never a [`Conflict`](StoreError::Conflict).
    fn load(&self) -> impl Future<Output = Result<View<Self::Version>, StoreError>> + Send;

    /// One slot; `None` where the store has nothing of that name.
    ///
    /// # Errors
    /// [`StoreError`], but never a [`Conflict`](StoreError::Conflict).
    fn read(
        &self,
        slot: Slot,
    ) -> impl Future<Output = Result<Option<Entry<Self::Version>>, StoreError>> + Send;

    /// Replaces a slot's record if it still is at `version`, and gives the version that it has then.
    ///
    /// # Errors
    /// [`StoreError::Conflict`]: it is not at that version, nothing was written. [`StoreError::Unknown`]: it may or
    /// may not have been written.
    fn write(
        &self,
        slot: Slot,
        version: &Self::Version,
        record: &Record,
    ) -> impl Future<Output = Result<Self::Version, StoreError>> + Send;

    /// Puts back a record that the store acknowledged before and has lost, as `regression` says. As [`write`](Self::write),
    /// but where observers of the store can be told of it, it leaves a note for them.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn put_back(
        &self,
        slot: Slot,
        version: &Self::Version,
        record: &Record,
        _regression: &Regression,
    ) -> impl Future<Output = Result<Self::Version, StoreError>> + Send {
        self.write(slot, version, record)
    }

    /// The store's clock as known now, without asking it: `None` before its first answer. Does not block.
    fn now(&self) -> Option<StoreTime>;
}

/// What a load finds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View<V> {
    /// The pool.
    pub pool: Pool,
    /// Its slots, in any order.
    pub entries: Vec<Entry<V>>,
}

/// One ID space: slots, and how they are leased.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pool {
    /// How messages name it, in Kubernetes `<namespace>/<name>`.
    pub name: String,
    /// The width of the slot field: slots are below `2^bits`.
    pub bits: u8,
    /// The lowest slot that may be leased.
    pub first: Slot,
    /// The highest slot that may be leased.
    pub last: Slot,
    /// Slots in between that are never leased: reserved for others, or retired.
    pub withheld: BTreeSet<Slot>,
    /// How they are leased.
    pub terms: Terms,
    /// Whether they are.
    pub state: PoolState,
    /// Where slots began, Unix ms, when they were last lifted above all that a store that went backwards may have lost;
    /// 0: never. [`Millis::MAX`] where nobody can do that, so that nobody waits for it.
    pub barrier: Millis,
}

impl Pool {
    /// Whether this slot may ever be leased.
    #[must_use]
    pub fn allows(&self, slot: Slot) -> bool {
        (self.first..=self.last).contains(&slot) && !self.withheld.contains(&slot)
    }

    /// How many slots may be leased.
    #[must_use]
    pub fn size(&self) -> usize {
        let withheld = self.withheld.iter().filter(|&&slot| (self.first..=self.last).contains(&slot)).count();
        (self.last as usize + 1).saturating_sub(self.first as usize).saturating_sub(withheld)
    }
}

/// Whether a pool's slots can be acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolState {
    /// They can.
    Ready,
    /// It has no watermark yet: what an earlier pool of its name used isn't known to be taken into account.
    Unready,
    /// It is being deleted: holders keep their slots, nobody gets a new one.
    Deleting,
    /// Its store went backwards, and what its slots have used is not known to be taken into account: holders keep their
    /// slots, nobody gets a new one.
    Regressed,
}

/// One slot as a store gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry<V> {
    /// Which.
    pub slot: Slot,
    /// What it was read at.
    pub version: V,
    /// What was read.
    pub state: SlotState,
}

/// What a store holds of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// Made, but not opened: its history isn't known to be taken into account, nobody can acquire it.
    Shut,
    /// In use, or ready for it.
    Open(Record),
    /// Being deleted. It is lost to its holder, who must not write it again.
    Deleting,
    /// It can't be read, and why. Nobody can acquire it until somebody mends it.
    Corrupt(String),
}

impl SlotState {
    /// The record, where it can be used.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Open(record) => Some(record),
            Self::Shut | Self::Deleting | Self::Corrupt(_) => None,
        }
    }
}

/// Why a store did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum StoreError {
    /// The slot is not at the version given. Nothing was written.
    #[error("the slot has changed since it was read")]
    Conflict,
    /// The slot is gone. Nothing was written.
    #[error("the slot's object is gone")]
    Gone,
    /// There is no such pool.
    #[error("there is no pool {pool}: create it, or name another (`kubectl get slotpools -A` lists them)")]
    NoPool {
        /// The name asked for.
        pool: String,
    },
    /// The store does not let this caller. Not final: rights and tokens come and go.
    #[error("{0}")]
    Denied(String),
    /// The store refuses this request, and would again.
    #[error("refused: {0}")]
    Refused(String),
    /// No answer, or one that tells nothing: it may or may not have been done.
    #[error("no answer: {0}")]
    Unknown(String),
}

/// How long until a store time is surely reached, for messages and timers: `at - now`, 0 where it has passed.
#[must_use]
pub(crate) fn until(at: Millis, now: Option<StoreTime>) -> Millis {
    now.map_or(0, |now| at.saturating_sub(now.earliest))
}
