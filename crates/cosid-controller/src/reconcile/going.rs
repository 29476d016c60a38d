//! Leases that go: their history is kept first, then the finalizer comes off.

use std::sync::Arc;

use cosid_kube::codec::FINALIZER;
use cosid_kube::pool::SlotPool;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

use super::observe::{Slots, State};
use super::provision;
use super::watermark::{Kept, Retirement, keep};
use super::{Again, NOW, Reconciler, begin};
use crate::events::Fact;
use crate::index::{PoolKey, PoolView};
use crate::proof::bug;
use crate::writes::CALLS_AT_ONCE;
use crate::{Error, tombstone};

impl Reconciler {
    /// Merges what Leases that are being deleted, or went without the controller, have used into the pool's watermark;
    /// after that takes the finalizer off those that are as they were when that was read.
    pub(super) async fn settle_going(&self, key: &PoolKey) -> Result<(), Error> {
        let view = self.writes.index().view(key);
        let going = going(&view);
        if going.is_empty() && view.lost.is_empty() {
            return Ok(());
        }
        // Whether a watermark covers them is not for a cache to say: the pool may be another one by now.
        let pool = self.writes.read_pool(key).await?.ok_or_else(|| Error::Conflict(format!("pool {key}")))?;
        let pool = self.ensure_watermark(key, &pool).await?;
        if bug("finalizer_off_before_the_merge") {
            self.let_go(going.clone()).await?;
        }
        let kept = Kept::of(pool.status.as_ref());
        let (needed, retirements) =
            keep(&kept, begin(&pool)?, history(&going, &view), &key.name, self.now()?);
        if !kept.covers(&needed) {
            self.keep(&pool, &needed).await?;
            self.tell_retired(&pool, retirements);
        }
        self.writes.index().settled(key, &view.lost);
        self.let_go(going).await
    }

    /// A pool that is gone, but not its Leases: somebody took its finalizer off. What they have used is kept for a pool
    /// to come.
    pub(super) async fn settle_without_pool(&self, key: &PoolKey) -> Result<Again, Error> {
        let view = self.writes.index().view(key);
        if view.leases.is_empty() && view.lost.is_empty() {
            return Ok(None);
        }
        if self.writes.read_pool(key).await?.is_some() {
            return Ok(NOW);
        }
        let going = going(&view);
        let found = self.writes.read_tombstone(key).await?;
        let kept = found.as_ref().map_or(Ok(Kept::default()), |found| tombstone::decode(key, found))?;
        let (needed, _) = keep(&kept, 0, history(&going, &view), &key.name, self.now()?);
        if !kept.covers(&needed) {
            let map = tombstone::encode(key, &needed, None, self.writes.own_namespace(), found);
            self.writes.put_tombstone(&map).await?;
        }
        // A pool made since then may have read what was kept before this. Then it has to take this in itself.
        if self.writes.read_pool(key).await?.is_some() {
            return Ok(NOW);
        }
        self.writes.index().settled(key, &view.lost);
        self.let_go(going).await?;

        let leases = self.writes.index().view(key).leases;
        let slots = Slots::of(&key.name, None, &leases, self.now()?);
        let owned = provision::evictable(&slots).filter(|seen| seen.foreign);
        if self.delete(owned).await? > 0 {
            return Ok(NOW);
        }
        let live = slots.count(|state| matches!(state, State::Live { .. })) > 0;
        Ok(if live { self.pause(&slots) } else { None })
    }

    /// The finalizer off, by a compare-and-set on the version whose history is kept.
    async fn let_go(&self, going: Vec<Arc<Lease>>) -> Result<(), Error> {
        stream::iter(going.into_iter().map(Ok))
            .try_for_each_concurrent(CALLS_AT_ONCE, async |lease: Arc<Lease>| {
                let mut lease = (*lease).clone();
                lease.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
                self.writes.put_lease(&lease, "lease-let-go").await
            })
            .await
    }

    /// Deletes Leases as they were read, and says how many. Those that changed since stay, and are looked at again. One
    /// without its finalizer would be gone at once, and its history with it: it stays until it has been mended.
    pub(super) async fn delete(
        &self,
        leases: impl Iterator<Item = &super::observe::Seen>,
    ) -> Result<usize, Error> {
        let leases = leases.map(|seen| Arc::clone(&seen.lease)).filter(|lease| has_finalizer(lease));
        let leases: Vec<Arc<Lease>> = leases.collect();
        let deleted = stream::iter(leases)
            .map(async |lease| match self.writes.delete_lease(&lease).await {
                Ok(()) => Ok(1),
                Err(Error::Conflict(_)) => Ok(0),
                Err(error) => Err(error),
            })
            .buffer_unordered(CALLS_AT_ONCE)
            .try_fold(0, async |sum, one| Ok(sum + one))
            .await?;
        Ok(deleted)
    }

    fn tell_retired(&self, pool: &SlotPool, retirements: Vec<Retirement>) {
        self.metrics.retired(retirements.len());
        for Retirement { slot, why } in retirements {
            self.announcer.tell(pool, &Fact::Retired { slot, why });
        }
    }
}

/// Leases that wait for their finalizer to come off.
fn going(view: &PoolView) -> Vec<Arc<Lease>> {
    let waits = |lease: &&Arc<Lease>| lease.metadata.deletion_timestamp.is_some() && has_finalizer(lease);
    view.leases.values().filter(waits).cloned().collect()
}

fn has_finalizer(lease: &Lease) -> bool {
    lease.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

fn history<'a>(going: &'a [Arc<Lease>], view: &'a PoolView) -> impl Iterator<Item = &'a Lease> {
    going.iter().chain(&view.lost).map(AsRef::as_ref)
}
