//! Which Leases a pool needs, which of them are not as they should be, and which may go.

use cosid_kube::codec::{self, FINALIZER, POOL_LABEL};
use cosid_kube::pool::SlotPool;
use cosid_lease::{Pool, Slot};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

use super::observe::{Seen, Slots, State};
use crate::proof::bug;

/// Up to so many slots, all have a Lease from the start. A thousand Leases are made in seconds and take about 1 MB of
/// etcd; a pool with the widest slots would take 1 GB.
pub const ALL_UP_TO: usize = 1024;

/// The least number of free slots that a larger pool keeps ready.
const AHEAD: usize = 64;

/// How many free slots a larger pool keeps ready for this many held: a quarter, so that the number of rounds to any size
/// grows with its logarithm, and the Leases made for nothing stay a fixed share. A Deployment that doubles at once waits
/// for four rounds of creations, each under way as soon as the first acquisitions are seen.
fn ahead(held: usize) -> usize {
    AHEAD.max(held / 4)
}

/// The slots for which Leases are to be made, lowest first.
#[must_use]
pub fn missing(pool: &Pool, slots: &Slots) -> Vec<Slot> {
    let unmade = (pool.first..=pool.last).filter(|&slot| pool.allows(slot) && !slots.0.contains_key(&slot));
    if pool.size() <= ALL_UP_TO {
        return unmade.collect();
    }
    let held = slots.count(|state| matches!(state, State::Live { .. }));
    let free = slots.count(|state| matches!(state, State::Free | State::Cooling { .. } | State::Shut));
    unmade.take(ahead(held).saturating_sub(free)).collect()
}

/// Below which slot every slot of a pool that has been served had a Lease before its present one: all of a small pool's
/// had, and of a larger one, which grows from the lowest slot up, those below one that is in use. (The highest of a larger
/// pool that were torn out can't be told from those that were never made.)
#[must_use]
pub fn made_below(pool: &Pool, slots: &Slots) -> Slot {
    if pool.size() <= ALL_UP_TO {
        return Slot::MAX;
    }
    slots.that(|state| !matches!(state, State::Shut)).map(|(slot, _)| slot).max().unwrap_or(0)
}

/// The Lease with its label, finalizer and owner put back, where somebody took one off. What its slot's record says is
/// never touched.
#[must_use]
pub fn mended(lease: &Lease, pool: &SlotPool) -> Option<Lease> {
    let slot = codec::slot_of(lease, &pool.name_any())?;
    let owners = lease.metadata.owner_references.as_deref().unwrap_or_default();
    let is_whole = lease.labels().get(POOL_LABEL) == pool.metadata.name.as_ref()
        && lease.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
        && !owners.is_empty();
    // One that is being deleted takes no finalizer any more.
    if is_whole || lease.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let whole = codec::new_lease(pool, slot).metadata;
    let mut mended = lease.clone();
    mended.labels_mut().extend(whole.labels.unwrap_or_default());
    mended.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
    mended.finalizers_mut().extend(whole.finalizers.unwrap_or_default());
    if owners.is_empty() {
        mended.metadata.owner_references = whole.owner_references;
    }
    Some(mended)
}

/// The Leases that go before a pool does: all but those that are live, and those on their way already.
pub fn evictable(slots: &Slots) -> impl Iterator<Item = &Seen> {
    let stays = |state: &State| match state {
        State::Live { .. } => !bug("evicts_the_living"),
        state => *state == State::Going,
    };
    slots.that(move |state| !stays(state)).map(|(_, seen)| seen)
}

/// The Leases of an earlier pool of this name that nobody holds: they are made anew under this one.
pub fn outdated(slots: &Slots) -> impl Iterator<Item = &Seen> {
    evictable(slots).filter(|seen| seen.foreign)
}
