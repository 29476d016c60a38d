//! A store in this process: for tests, and for programs that need no other.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::{Entry, Pool, Record, Slot, SlotState, SlotStore, StoreError, StoreTime, View};

/// Keeps a pool's slots in memory. All clones of an `Arc` of it share them; they end with the process.
pub struct MemoryStore {
    clock: Box<dyn Fn() -> StoreTime + Send + Sync>,
    state: Mutex<State>,
}

struct State {
    pool: Pool,
    slots: BTreeMap<Slot, (u64, SlotState)>,
    /// The newest version of any slot: a slot that is made again never gets an old one.
    newest: u64,
}

impl MemoryStore {
    /// A pool with all its slots open, first floor 0. `clock` is the store's clock.
    pub fn new(pool: Pool, clock: impl Fn() -> StoreTime + Send + Sync + 'static) -> Self {
        let allowed = (pool.first..=pool.last).filter(|&slot| pool.allows(slot));
        let slots = allowed.map(|slot| (slot, (0, SlotState::Open(Record::open(0, 0))))).collect();
        Self { clock: Box::new(clock), state: Mutex::new(State { pool, slots, newest: 0 }) }
    }

    /// Changes the pool, as its controller would.
    pub fn edit_pool(&self, edit: impl FnOnce(&mut Pool)) {
        edit(&mut self.lock().pool);
    }

    /// Puts a slot into any state, as somebody with all rights could; `None` takes it away.
    pub fn put(&self, slot: Slot, state: Option<SlotState>) {
        let mut inner = self.lock();
        inner.newest += 1;
        let version = inner.newest;
        match state {
            Some(state) => inner.slots.insert(slot, (version, state)),
            None => inner.slots.remove(&slot),
        };
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic elsewhere can't leave it half changed: each change is one insertion.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotStore for MemoryStore {
    type Version = u64;

    async fn load(&self) -> Result<View<u64>, StoreError> {
        let inner = self.lock();
        let entries = inner
            .slots
            .iter()
            .map(|(&slot, (version, state))| Entry { slot, version: *version, state: state.clone() })
            .collect();
        Ok(View { pool: inner.pool.clone(), entries })
    }

    async fn read(&self, slot: Slot) -> Result<Option<Entry<u64>>, StoreError> {
        let inner = self.lock();
        Ok(inner.slots.get(&slot).map(|(version, state)| Entry {
            slot,
            version: *version,
            state: state.clone(),
        }))
    }

    async fn write(&self, slot: Slot, version: &u64, record: &Record) -> Result<u64, StoreError> {
        let mut inner = self.lock();
        match inner.slots.get(&slot) {
            None => Err(StoreError::Gone),
            Some((found, _)) if found != version => Err(StoreError::Conflict),
            Some(_) => {
                inner.newest += 1;
                let version = inner.newest;
                inner.slots.insert(slot, (version, SlotState::Open(record.clone())));
                Ok(version)
            }
        }
    }

    fn now(&self) -> Option<StoreTime> {
        Some((self.clock)())
    }
}
