//! Brings one pool to what it should be, in named steps. What is to be done is decided by functions that take lists and
//! the time and touch nothing ([`watermark`], [`observe`], [`provision`], [`status`], [`crate::rbac`]); the steps here
//! read, decide, and write through [`Writes`].
//!
//! Every step may be cut off between any two writes, by a crash or a new leader, and is safe to begin again:
//!
//! ```text
//! a pool:           finalizer -> watermark (from what is kept of an earlier pool) -> Leases made shut -> Roles
//!                   -> pool read again -> Leases opened with the watermark just read
//! a store restored from a backup: signs judged by fresh lists -> watermark and condition -> (asked for) a barrier on each
//!                   Lease -> the condition off
//! a Lease that goes: its history into the watermark (or its slot retired) -> finalizer off, if it has not changed
//! a pool that goes: free Leases deleted -> (each goes) -> none left, by a fresh list -> watermark kept -> finalizer off
//! ```

mod going;
pub mod observe;
mod opening;
pub mod provision;
mod recovery;
mod regression;
mod removal;
pub mod status;
#[cfg(test)]
mod tests;
pub mod watermark;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use cosid_kube::ApiClock;
use cosid_kube::codec::FINALIZER;
use cosid_kube::pool::{SlotPool, Watermark, to_pool};
use cosid_lease::{Millis, Pool, PoolState, Slot};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;

use crate::events::{Announcer, Fact, oddities};
use crate::index::PoolKey;
use crate::metrics::Metrics;
use crate::proof::bug;
use crate::writes::Writes;
use crate::{Error, rbac, tombstone};
use observe::Slots;
use status::{Found, condition};
use watermark::Kept;

/// Changes by time alone are looked at no more often than this, ms.
const LEAST_PAUSE: Millis = 1_000;

/// What reconciliations share.
pub struct Reconciler {
    /// Reads and writes.
    pub writes: Writes,
    /// The API server's clock.
    pub clock: ApiClock,
    /// Events.
    pub announcer: Announcer,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// The Roles that were last written or found right, by pool: they are read again only after a change or a resync.
    granted: Mutex<HashMap<PoolKey, Vec<(Role, RoleBinding)>>>,
}

/// When to look again if nothing happens, ms; `None`: only a change matters.
pub type Again = Option<Millis>;

/// At once: something was started that goes on.
const NOW: Again = Some(0);

impl Reconciler {
    /// Begins with nothing known of Roles.
    #[must_use]
    pub fn new(writes: Writes, clock: ApiClock, announcer: Announcer, metrics: Arc<Metrics>) -> Self {
        Self { writes, clock, announcer, metrics, granted: Mutex::default() }
    }

    /// Brings a pool to what it should be, as far as is possible now.
    ///
    /// # Errors
    /// [`Error::Conflict`] where something changed meanwhile: try again soon. Any other: try again later.
    pub async fn reconcile(&self, key: &PoolKey) -> Result<Again, Error> {
        let Some(pool) = self.writes.index().view(key).pool else {
            return self.settle_without_pool(key).await;
        };
        let done = self.reconcile_pool(key, Arc::clone(&pool)).await;
        if let Err(
            error @ (Error::Tombstone { .. }
            | Error::OtherLayout { .. }
            | Error::UnusableLayout(_)
            | Error::Kube(_)
            | Error::Occupied { .. }),
        ) = &done
        {
            self.say_unserved(key, error).await?;
            if pool.status.as_ref().is_none_or(|status| status.watermark.is_none()) {
                // It never had a Lease. Agents are to read in the pool why, not that they may not read it.
                self.grant(key, &pool, std::iter::empty()).await?;
            }
        }
        done
    }

    /// Roles are read again at the next reconciliations: somebody may have changed them.
    pub fn resync(&self) {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn reconcile_pool(&self, key: &PoolKey, pool: Arc<SlotPool>) -> Result<Again, Error> {
        let deleting = pool.metadata.deletion_timestamp.is_some();
        let has_finalizer = pool.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
        let pool = match (has_finalizer, deleting) {
            (true, _) => pool,
            (false, false) => self.add_finalizer(&pool).await?,
            // Let go already; something else holds it.
            (false, true) => return Ok(None),
        };
        self.ensure_watermark(key, &pool).await?;
        self.settle_going(key).await?;
        self.settle_regression(key).await?;
        self.recover(key).await?;
        // The steps may have read it anew.
        let pool =
            self.writes.index().view(key).pool.ok_or_else(|| Error::Conflict(format!("pool {key}")))?;
        let model = to_pool(&pool)?;
        if deleting { self.remove(key, pool, &model).await } else { self.provide(key, pool, &model).await }
    }

    /// Leases made, Roles granted, Leases opened, the status said.
    async fn provide(&self, key: &PoolKey, pool: Arc<SlotPool>, model: &Pool) -> Result<Again, Error> {
        self.mend(&pool, &self.slots(key, &pool)?).await?;
        let slots = self.slots(key, &pool)?;
        let outdated = self.delete(provision::outdated(&slots)).await?;
        let missing = provision::missing(model, &slots);
        let occupied = self.make(&pool, &missing).await?;
        let slots = self.slots(key, &pool)?;
        self.grant(key, &pool, slots.0.keys().copied()).await?;
        // What is opened now would begin where the store has forgotten more.
        let pool = if model.state == PoolState::Regressed {
            pool
        } else {
            self.open(key, pool, model, &slots).await?
        };

        let slots = self.slots(key, &pool)?;
        let model = to_pool(&pool)?;
        let still_missing = provision::missing(&model, &slots).len().saturating_sub(occupied.len());
        let found = Found { slots: &slots, missing: still_missing, occupied: &occupied };
        self.say(&pool, &model, found).await?;
        if model.state == PoolState::Regressed && self.bar(key).await? > 0 {
            return Ok(Some(LEAST_PAUSE));
        }
        if outdated > 0 {
            return Ok(NOW);
        }
        Ok(if still_missing > 0 { Some(LEAST_PAUSE) } else { self.pause(&slots) })
    }

    async fn add_finalizer(&self, pool: &SlotPool) -> Result<Arc<SlotPool>, Error> {
        let mut pool = pool.clone();
        pool.finalizers_mut().push(FINALIZER.to_owned());
        self.writes.put_pool(&pool).await
    }

    /// A pool without a watermark gets the one that is kept of an earlier pool of its name. The pool is read first, what
    /// was kept after it: what another controller keeps later, it keeps of a pool that is this one or a later one.
    async fn ensure_watermark(&self, key: &PoolKey, pool: &Arc<SlotPool>) -> Result<Arc<SlotPool>, Error> {
        let has = |pool: &SlotPool| pool.status.as_ref().is_some_and(|status| status.watermark.is_some());
        if has(pool) {
            return Ok(Arc::clone(pool));
        }
        let read_before = match bug("kept_read_before_the_pool") {
            true => Some(self.writes.read_tombstone(key).await?),
            false => None,
        };
        let fresh =
            self.writes.read_pool(key).await?.ok_or_else(|| Error::Conflict(format!("pool {key}")))?;
        if has(&fresh) {
            return Ok(fresh);
        }
        usable_layout(&fresh, self.now()?)?;
        let found = match read_before {
            Some(found) => found,
            None => self.writes.read_tombstone(key).await?,
        };
        let kept = match found {
            Some(_) if bug("a_new_pool_begins_at_zero") => Kept::default(),
            Some(kept) => {
                same_layout(&fresh, &kept)?;
                tombstone::decode(key, &kept)?
            }
            None => Kept::default(),
        };
        let watermark = Watermark { next_floor: begin(&fresh)?, fence: 0 };
        let begin = Kept { watermark, retired: BTreeSet::new() };
        self.keep(&fresh, &kept.merged(&begin)).await
    }

    /// Merges this into what the pool's status keeps: a compare-and-set on the pool as it was read.
    async fn keep(&self, pool: &SlotPool, kept: &Kept) -> Result<Arc<SlotPool>, Error> {
        let merged = Kept::of(pool.status.as_ref()).merged(kept);
        let mut pool = pool.clone();
        let slots = 1_i32 << pool.spec.bits.clamp(0, 20);
        let status = pool.status.get_or_insert_default();
        status.watermark = Some(merged.watermark);
        // An earlier pool of this name may have been wider; what is beyond stays in what was kept of it.
        let retired = merged.retired.iter().filter_map(|&slot| i32::try_from(slot).ok());
        status.retired = retired.filter(|&slot| slot < slots).collect();
        self.writes.put_status(&pool).await
    }

    /// Roles and bindings as they should be, written where they are not.
    async fn grant(
        &self,
        key: &PoolKey,
        pool: &SlotPool,
        slots: impl Iterator<Item = Slot>,
    ) -> Result<(), Error> {
        let wanted = rbac::for_pool(pool, slots);
        let known = self.granted.lock().unwrap_or_else(PoisonError::into_inner).get(key) == Some(&wanted);
        if known {
            return Ok(());
        }
        for (role, binding) in &wanted {
            let (namespace, name) = (&key.namespace, role.name_any());
            let found = self.writes.read_role(namespace, &name).await?;
            if let Some(role) = rbac::corrected(role, found, |found, role| found.rules = role.rules.clone())?
            {
                self.writes.put_role(&role).await?;
            }
            let found = self.writes.read_binding(namespace, &name).await?;
            let subjects =
                |found: &mut RoleBinding, wanted: &RoleBinding| found.subjects = wanted.subjects.clone();
            if let Some(binding) = rbac::corrected(binding, found, subjects)? {
                self.writes.put_binding(&binding).await?;
            }
        }
        self.granted.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), wanted);
        Ok(())
    }

    /// Writes the status where it differs, and tells what changed.
    async fn say(&self, pool: &SlotPool, model: &Pool, found: Found<'_>) -> Result<(), Error> {
        let status = status::status(pool, model, found, self.timestamp()?);
        let before = pool.status.clone().unwrap_or_default();
        if status != before {
            let mut changed = pool.clone();
            changed.status = Some(status.clone());
            self.writes.put_status(&changed).await?;
        }
        for (kind, fact) in [
            (condition::READY, Fact::Ready),
            (condition::EXHAUSTED, Fact::Exhausted),
            (condition::DELETING, Fact::DeletionWaits),
        ] {
            if status::is(&status, kind) && !status::is(&before, kind) {
                self.announcer.tell(pool, &fact);
            }
        }
        self.announcer.now(pool, oddities(found.slots));
        Ok(())
    }

    async fn say_unserved(&self, key: &PoolKey, error: &Error) -> Result<(), Error> {
        let Some(pool) = self.writes.index().view(key).pool else { return Ok(()) };
        let status = status::unserved(&pool, error.reason(), error.to_string(), self.timestamp()?);
        if pool.status.as_ref() != Some(&status) {
            let mut changed = (*pool).clone();
            changed.status = Some(status);
            self.writes.put_status(&changed).await?;
            self.announcer.tell(&pool, &Fact::Failed { reason: error.reason(), why: error.to_string() });
        }
        Ok(())
    }

    fn slots(&self, key: &PoolKey, pool: &SlotPool) -> Result<Slots, Error> {
        let leases = self.writes.index().view(key).leases;
        Ok(Slots::of(&key.name, pool.uid().as_deref(), &leases, self.now()?))
    }

    fn pause(&self, slots: &Slots) -> Again {
        let now = self.now().ok()?;
        // Past it by a moment, so that it has surely changed by then.
        slots.next_change().map(|at| at.saturating_sub(now).max(LEAST_PAUSE) + 10)
    }

    /// Late rather than early: the lower bound of the API server's clock, Unix ms.
    fn now(&self) -> Result<Millis, Error> {
        self.clock.now().map(|time| time.earliest).ok_or(Error::NoTime)
    }

    fn timestamp(&self) -> Result<Timestamp, Error> {
        let now = i64::try_from(self.now()? / 1_000).unwrap_or(0);
        Timestamp::from_second(now).map_err(|_| Error::NoTime)
    }
}

/// A watermark says nothing of IDs that are put together in another way. A pool that is being deleted makes none.
fn same_layout(pool: &SlotPool, kept: &ConfigMap) -> Result<(), Error> {
    let own = tombstone::layout_of(pool);
    match tombstone::layout(kept) {
        Some(earlier) if earlier != own && pool.metadata.deletion_timestamp.is_none() => {
            Err(Error::OtherLayout { own, earlier: earlier.to_owned() })
        }
        _ => Ok(()),
    }
}

/// What the API server can't say without a clock: a new pool's epoch has been, and its timestamps last for a year. A pool
/// that is being deleted makes none.
fn usable_layout(pool: &SlotPool, now: Millis) -> Result<(), Error> {
    if pool.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    match pool.layout()?.build_new(now) {
        Ok(_) => Ok(()),
        Err(cosid_id::Error::BadLayout { why }) => {
            Err(Error::UnusableLayout(format!("its layout can't work: {why}")))
        }
        Err(other) => Err(Error::UnusableLayout(other.to_string())),
    }
}

/// Before this no slot of the pool begins, Unix ms: the operator says so.
fn begin(pool: &SlotPool) -> Result<i64, Error> {
    Ok(i64::try_from(pool.not_before()?.unwrap_or(0)).unwrap_or(i64::MAX))
}
