//! Leases made, put right, and opened.

use std::sync::Arc;

use cosid_kube::codec;
use cosid_kube::pool::{SlotPool, Watermark};
use cosid_lease::{Pool, Slot, Terms};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

use super::observe::{Slots, State};
use super::{Reconciler, begin, provision};
use crate::Error;
use crate::index::PoolKey;
use crate::proof::bug;
use crate::writes::{CALLS_AT_ONCE, Made};

impl Reconciler {
    /// Makes the Leases of these slots, shut. Gives the slots whose name is taken by something else.
    pub(super) async fn make(&self, pool: &SlotPool, slots: &[Slot]) -> Result<Vec<Slot>, Error> {
        let made = stream::iter(slots.iter().copied())
            .map(async |slot| self.make_one(pool, slot).await.map(|made| (!made).then_some(slot)))
            .buffer_unordered(CALLS_AT_ONCE)
            .try_collect::<Vec<Option<Slot>>>()
            .await?;
        let mut occupied: Vec<Slot> = made.into_iter().flatten().collect();
        occupied.sort_unstable();
        Ok(occupied)
    }

    async fn make_one(&self, pool: &SlotPool, slot: Slot) -> Result<bool, Error> {
        let Made::Other(other) = self.writes.create_lease(&codec::new_lease(pool, slot)).await? else {
            return Ok(true);
        };
        // This pool's own, but for its label: somebody took that off.
        let owners = other.metadata.owner_references.as_deref().unwrap_or_default();
        if !owners.iter().any(|owner| Some(&owner.uid) == pool.metadata.uid.as_ref()) {
            return Ok(false);
        }
        self.mend_one(pool, &other).await?;
        Ok(true)
    }

    /// Puts back labels, finalizers and owners that somebody took off.
    pub(super) async fn mend(&self, pool: &SlotPool, slots: &Slots) -> Result<(), Error> {
        for seen in slots.0.values() {
            self.mend_one(pool, &seen.lease).await?;
        }
        Ok(())
    }

    async fn mend_one(&self, pool: &SlotPool, lease: &Lease) -> Result<(), Error> {
        match provision::mended(lease, pool) {
            Some(mended) => match self.writes.put_lease(&mended, "lease-mended").await {
                // It was renewed meanwhile; the next reconciliation sees it.
                Err(Error::Conflict(_)) | Ok(()) => Ok(()),
                Err(error) => Err(error),
            },
            None => Ok(()),
        }
    }

    /// Opens the shut Leases, each by a compare-and-set, with the watermark of the pool read after all of them were
    /// made. Gives the pool as read.
    pub(super) async fn open(
        &self,
        key: &PoolKey,
        pool: Arc<SlotPool>,
        model: &Pool,
        slots: &Slots,
    ) -> Result<Arc<SlotPool>, Error> {
        let shut: Vec<(Slot, Arc<Lease>)> = slots
            .that(|state| *state == State::Shut)
            .filter(|(slot, seen)| model.allows(*slot) && !seen.foreign)
            .map(|(slot, seen)| (slot, Arc::clone(&seen.lease)))
            .collect();
        if shut.is_empty() {
            return Ok(pool);
        }
        // A Lease that was seen to be missing may have gone since the last were settled: what it used is known by now.
        self.settle_going(key).await?;
        let changed = || Error::Conflict(format!("pool {key}"));
        let fresh = if bug("opened_with_the_watermark_read_before") {
            Arc::clone(&pool)
        } else {
            self.writes.read_pool(key).await?.ok_or_else(changed)?
        };
        if fresh.uid() != pool.uid() || fresh.metadata.deletion_timestamp.is_some() {
            return Err(changed());
        }
        let watermark = fresh.status.as_ref().and_then(|status| status.watermark).ok_or_else(changed)?;
        let watermark = Watermark { next_floor: watermark.next_floor.max(begin(&fresh)?), ..watermark };
        let beyond =
            Watermark { next_floor: watermark.next_floor.max(self.beyond_live(model)?), ..watermark };
        let served = fresh.status.as_ref().is_some_and(|status| status.slots.is_some());
        let made_below = if served { provision::made_below(model, slots) } else { 0 };
        stream::iter(shut.into_iter().map(Ok))
            .try_for_each_concurrent(CALLS_AT_ONCE, async |(slot, lease): (Slot, Arc<Lease>)| {
                let watermark = if slot < made_below { beyond } else { watermark };
                let opened = codec::open(&lease, watermark, fresh.spec.ttl_seconds)
                    .map_err(|error| Error::Kube(error.into()))?;
                match self.writes.put_lease(&opened, "lease-opened").await {
                    // Opened by another, or being deleted: its watch event tells.
                    Err(Error::Conflict(_)) | Ok(()) => Ok(()),
                    Err(error) => Err(error),
                }
            })
            .await?;
        Ok(fresh)
    }

    /// Where a slot begins that had a Lease before, Unix ms: above every window that can be live now. Its Lease may have
    /// been torn out, finalizer and all, while no controller saw it; then nobody knows of its history, nor that its holder
    /// is still in its window. Where it was deleted in order this costs little: its floor is about as high then.
    fn beyond_live(&self, model: &Pool) -> Result<i64, Error> {
        let latest = self.clock.now().ok_or(Error::NoTime)?.latest;
        let Terms { ttl, tolerance } = model.terms;
        let beyond = latest.saturating_add(ttl).saturating_add(tolerance);
        Ok(i64::try_from(beyond).unwrap_or(i64::MAX))
    }
}
