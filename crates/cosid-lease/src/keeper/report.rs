//! What a keeper tells people.

use std::fmt;

use thiserror::Error;

use crate::keeper::{Keeper, until};
use crate::{Fence, Millis, Now, Regression, Slot, StoreError, Terms};

/// Something that people want to know. The display text names the thing and the next step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Report {
    /// A slot was acquired.
    Acquired {
        /// Which.
        slot: Slot,
        /// Under which fence.
        fence: Fence,
        /// How long until its floor is passed, milliseconds: the first ID waits for it.
        floor_wait: Millis,
    },
    /// A lease from before a restart was found in place, and goes on.
    Resumed {
        /// Which slot.
        slot: Slot,
        /// Under which fence.
        fence: Fence,
    },
    /// No slot is to be had now; it is tried on.
    Exhausted {
        /// The pool's name.
        pool: String,
        /// How many slots it has.
        size: usize,
        /// When the first lease expires, Unix ms by the store's clock.
        earliest_expiry: Option<Millis>,
        /// How far away that is, milliseconds.
        wait: Option<Millis>,
    },
    /// The only slot wanted is not to be had now; it is tried on.
    Occupied {
        /// The pool's name.
        pool: String,
        /// Which slot.
        slot: Slot,
        /// Its holder's key, if it is held.
        holder: Option<String>,
        /// When it expires, Unix ms by the store's clock.
        until: Option<Millis>,
    },
    /// The acquire timeout has passed without a slot. What stands in the way was reported before; it is tried on.
    AcquireTimedOut {
        /// How long it was, milliseconds.
        after: Millis,
        /// What stood in the way last.
        cause: Box<Report>,
    },
    /// The pool can't serve this owner as it is; it is tried on.
    PoolRefused(PoolRefusal),
    /// Somebody else holds a slot under the same key: two owners believe to be the same.
    DuplicateOwner {
        /// The key.
        key: String,
        /// The other's slot.
        slot: Slot,
        /// The other's fence.
        fence: Fence,
    },
    /// A slot's record can't be read; it is passed over.
    Quarantined {
        /// Which.
        slot: Slot,
        /// Why.
        why: String,
    },
    /// A request failed; it is tried on.
    StoreFailed {
        /// What was being done: `acquire`, `renew`, `resume` or `release`.
        what: &'static str,
        /// Why it failed.
        error: StoreError,
        /// How often in a row it has.
        failures: u32,
    },
    /// The lease was extended.
    Renewed {
        /// Which slot.
        slot: Slot,
    },
    /// The expiry has passed without a renewal: others may take the slot, and IDs stop at the ceiling.
    Expired {
        /// Which slot.
        slot: Slot,
    },
    /// The slot is somebody else's now, or gone.
    Lost {
        /// Which.
        slot: Slot,
        /// Why.
        reason: LossReason,
    },
    /// The store shows the slot as it was before: it was restored from a backup. The holder puts its lease back, or
    /// loses it.
    StoreRegressed(Regression),
    /// The host's clock is off from the store's by more than the tolerance, or no longer is.
    ClockSkew(Skew),
    /// The lease was given back.
    Released {
        /// Which slot.
        slot: Slot,
        /// The floor of its next holder, Unix ms.
        next_floor: Millis,
    },
    /// The lease could not be given back in time; it expires by itself.
    ReleaseAbandoned {
        /// Which slot.
        slot: Slot,
    },
}

/// What is wrong with the pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum PoolRefusal {
    /// The store has none of that name.
    #[error("there is no pool {pool}: create it, or name another (`kubectl get slotpools -A` lists them)")]
    NotFound {
        /// The name.
        pool: String,
    },
    /// It is being deleted.
    #[error("pool {pool} is being deleted: no slot can be acquired from it; create it again once it is gone")]
    Deleting {
        /// The name.
        pool: String,
    },
    /// The store went backwards, and nobody has put a barrier above what it lost.
    #[error(
        "pool {pool}: StoreRegressed: its store was restored from a backup, so slots may look free that are in use. No slot \
         is acquired until somebody runs `kubectl cosid recover {name} -n {namespace}`",
        name = pool.rsplit('/').next().unwrap_or_default(),
        namespace = pool.split('/').next().unwrap_or_default()
    )]
    StoreRegressed {
        /// The name.
        pool: String,
    },
    /// The controller has not made it ready.
    #[error("pool {pool} is not ready: it has no watermark yet; is the controller running?")]
    Unready {
        /// The name.
        pool: String,
    },
    /// Its slot field has another width.
    #[error(
        "pool {pool} has {found} slot bits, not the {expected} asked for: ask for {found}, or use another pool"
    )]
    OtherBits {
        /// The name.
        pool: String,
        /// The pool's.
        found: u8,
        /// The caller's.
        expected: u8,
    },
    /// Its tolerance is another.
    #[error(
        "pool {pool} has a tolerance of {found} ms, not the {expected} ms asked for: ask for {found} ms, or use another pool"
    )]
    OtherTolerance {
        /// The name.
        pool: String,
        /// The pool's, ms.
        found: Millis,
        /// The caller's, ms.
        expected: Millis,
    },
    /// The slot asked for does not belong to it.
    #[error(
        "slot {slot} is not one of pool {pool}: its slots are {first} to {last}, less those reserved or retired"
    )]
    SlotNotInPool {
        /// The name.
        pool: String,
        /// The slot.
        slot: Slot,
        /// The pool's first.
        first: Slot,
        /// The pool's last.
        last: Slot,
    },
}

/// Why a slot was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum LossReason {
    /// It expired and was acquired by another.
    #[error("taken by {holder} under fence {fence} after it expired")]
    Taken {
        /// The new holder's key.
        holder: String,
        /// The new fence.
        fence: Fence,
    },
    /// It is free, though its owner did not release it.
    #[error("nobody holds it under fence {fence} any more: its Lease was made anew, or edited")]
    Freed {
        /// The fence found.
        fence: Fence,
    },
    /// The store was restored to a state from before this lease, and the lease can't be put back.
    #[error("its store was restored from a backup: {0}")]
    StoreRegressed(Regression),
    /// Its object is being deleted, or gone.
    #[error("its Lease was deleted")]
    Deleted,
    /// Its record can't be read any more.
    #[error("its Lease can't be read: {0}")]
    Corrupt(String),
}

/// How the host's clock stands to the store's, beyond the pool's tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Skew {
    /// The host is ahead by at least this, ms: its generators reach their ceiling early and wait for renewals.
    Ahead(Millis),
    /// The host is behind by at least this, ms: a new holder waits longer to get above its floor.
    Behind(Millis),
    /// Within the tolerance again.
    Within,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquired { slot, fence, floor_wait: 0 } => {
                write!(f, "acquired slot {slot} under fence {fence}")
            }
            Self::Acquired { slot, fence, floor_wait } => {
                write!(f, "acquired slot {slot} under fence {fence}; its floor is passed in {floor_wait} ms")
            }
            Self::Resumed { slot, fence } => write!(f, "resumed slot {slot} under fence {fence}"),
            Self::Exhausted { pool, size, wait: Some(wait), .. } => write!(
                f,
                "pool {pool} is exhausted: all its {size} slots are taken; the earliest expires in {wait} ms. \
                 Waiting; a larger slot range gives room at once where the layout has bits for more slots, \
                 else another pool does"
            ),
            Self::Exhausted { pool, size, wait: None, .. } => write!(
                f,
                "pool {pool} is exhausted: none of its {size} slots can be acquired and none is held. \
                 Waiting; see `kubectl get leases -l cosid.dev/pool`"
            ),
            Self::Occupied { pool, slot, holder: Some(holder), until } => write!(
                f,
                "slot {slot} of pool {pool} is held by {holder} until {} (Unix ms). Waiting for it",
                until.unwrap_or_default()
            ),
            Self::Occupied { pool, slot, holder: None, .. } => write!(
                f,
                "slot {slot} of pool {pool} is not open for acquisition. Waiting for it; is the controller running?"
            ),
            Self::AcquireTimedOut { after, cause } => write!(f, "no slot within {after} ms: {cause}"),
            Self::PoolRefused(refusal) => refusal.fmt(f),
            Self::DuplicateOwner { key, slot, fence } => write!(
                f,
                "slot {slot} is held under fence {fence} by another owner with the same key {key}: \
                 give each its own key. No ID can repeat; both work on slots of their own"
            ),
            Self::Quarantined { slot, why } => {
                write!(f, "slot {slot} is passed over: its Lease can't be read: {why}")
            }
            Self::StoreFailed { what, error, failures } => {
                write!(f, "{what} failed ({failures} in a row): {error}; trying on")
            }
            Self::Renewed { slot } => write!(f, "renewed slot {slot}"),
            Self::Expired { slot } => {
                write!(
                    f,
                    "slot {slot} has expired without a renewal: IDs stop at its ceiling until one succeeds"
                )
            }
            Self::Lost { slot, reason } => write!(f, "lost slot {slot}: {reason}"),
            Self::StoreRegressed(regression) => write!(
                f,
                "StoreRegressed: {regression}: the store was restored from a backup. Run `kubectl cosid recover` for \
                 this pool"
            ),
            Self::ClockSkew(Skew::Ahead(by)) => write!(
                f,
                "the host's clock is at least {by} ms ahead of the store's: IDs wait at the ceiling; check its NTP"
            ),
            Self::ClockSkew(Skew::Behind(by)) => write!(
                f,
                "the host's clock is at least {by} ms behind the store's: the first ID waits longer; check its NTP"
            ),
            Self::ClockSkew(Skew::Within) => write!(f, "the host's clock agrees with the store's again"),
            Self::Released { slot, next_floor } => {
                write!(f, "released slot {slot}; its next floor is {next_floor}")
            }
            Self::ReleaseAbandoned { slot } => {
                write!(f, "slot {slot} could not be released in time; it expires by itself")
            }
        }
    }
}

impl<V: Clone> Keeper<V> {
    /// Reports when the host's clock leaves the tolerance around the store's, and when it is back.
    pub(super) fn check_skew(&mut self, terms: Terms, now: Now) {
        let Some(store) = now.store else { return };
        let ahead = now.host.saturating_sub(store.latest);
        let behind = store.earliest.saturating_sub(now.host);
        let skew = match (ahead > terms.tolerance, behind > terms.tolerance) {
            (true, _) => Some(Skew::Ahead(ahead)),
            (_, true) => Some(Skew::Behind(behind)),
            _ => None,
        };
        let kind = skew.as_ref().map(std::mem::discriminant);
        if kind != self.skew.as_ref().map(std::mem::discriminant) {
            self.report(Report::ClockSkew(skew.unwrap_or(Skew::Within)));
        }
        self.skew = skew;
    }

    /// How long until a store time, for a report.
    pub(super) fn wait(at: Option<Millis>, now: Now) -> Option<Millis> {
        at.map(|at| until(at, now.store))
    }
}
