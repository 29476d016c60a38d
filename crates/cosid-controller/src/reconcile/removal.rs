//! A pool that goes: as a bound volume does, it waits until nobody uses it.

use std::sync::Arc;

use cosid_kube::codec::{self, FINALIZER};
use cosid_kube::pool::{STORE_REGRESSED, SlotPool};
use cosid_lease::Pool;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

use super::status::Found;
use super::watermark::Kept;
use super::{Again, LEAST_PAUSE, NOW, Reconciler, provision};
use crate::index::PoolKey;
use crate::proof::bug;
use crate::{Error, tombstone};

impl Reconciler {
    /// One step towards the end of a pool that is being deleted.
    pub(super) async fn remove(
        &self,
        key: &PoolKey,
        pool: Arc<SlotPool>,
        model: &Pool,
    ) -> Result<Again, Error> {
        self.mend(&pool, &self.slots(key, &pool)?).await?;
        let slots = self.slots(key, &pool)?;
        // What would be kept of its slots is not all that they have used.
        if pool.is(STORE_REGRESSED) {
            self.say(&pool, model, Found { slots: &slots, missing: 0, occupied: &[] }).await?;
            return Ok(self.pause(&slots));
        }
        let evicted = self.delete(provision::evictable(&slots)).await?;
        if evicted > 0 {
            return Ok(NOW);
        }
        if !slots.0.is_empty() {
            self.say(&pool, model, Found { slots: &slots, missing: 0, occupied: &[] }).await?;
            return Ok(self.pause(&slots));
        }
        self.bury(key, &pool).await
    }

    /// The end: no Lease is left, what they used is kept, the finalizer comes off.
    async fn bury(&self, key: &PoolKey, pool: &SlotPool) -> Result<Again, Error> {
        // By a fresh list of all of the namespace's Leases: a cache may lag, and a label may have been taken off.
        let left = self.writes.read_leases(key).await?;
        let left: Vec<Lease> = left
            .into_iter()
            .filter(|lease| belongs(lease, key, pool) && !bug("buried_with_leases_left"))
            .collect();
        if !left.is_empty() {
            self.mend_left(pool, left).await?;
            return Ok(Some(LEAST_PAUSE));
        }
        let changed = || Error::Conflict(format!("pool {key}"));
        let fresh = self.writes.read_pool(key).await?.ok_or_else(changed)?;
        if fresh.uid() != pool.uid() {
            return Err(changed());
        }
        let mut freed = (*fresh).clone();
        freed.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
        if bug("watermark_kept_after_the_pool_is_gone") {
            self.writes.put_pool(&freed).await?;
        }
        let found = self.writes.read_tombstone(key).await?;
        let before = found.as_ref().map_or(Ok(Kept::default()), |found| tombstone::decode(key, found))?;
        let kept = before.merged(&Kept::of(fresh.status.as_ref()));
        if found.as_ref().and_then(tombstone::layout).is_none() || !before.covers(&kept) {
            let map = tombstone::encode(
                key,
                &kept,
                Some(tombstone::layout_of(&fresh)),
                self.writes.own_namespace(),
                found,
            );
            self.writes.put_tombstone(&map).await?;
        }
        // On the version whose watermark was just kept: if it has grown since, this is refused.
        self.writes.put_pool(&freed).await?;
        if freed.finalizers().is_empty() {
            self.writes.index().drop_pool(key);
        }
        Ok(None)
    }

    /// Takes Leases that the cache does not have into it, with their label put back if it is missing.
    async fn mend_left(&self, pool: &SlotPool, left: Vec<Lease>) -> Result<(), Error> {
        for lease in left {
            match provision::mended(&lease, pool) {
                Some(mended) => self.writes.put_lease(&mended, "lease-mended").await?,
                None => {
                    self.writes.index().put_lease(lease);
                }
            }
        }
        Ok(())
    }
}

/// Whether a Lease is one of the pool's slots. Its name alone does not make it one: somebody else's may have it.
fn belongs(lease: &Lease, key: &PoolKey, pool: &SlotPool) -> bool {
    let owners = lease.metadata.owner_references.as_deref().unwrap_or_default();
    codec::slot_of(lease, &key.name).is_some()
        && (PoolKey::of_lease(lease).as_ref() == Some(key)
            || lease.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
            || owners.iter().any(|owner| Some(&owner.uid) == pool.metadata.uid.as_ref()))
}
