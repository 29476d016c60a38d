//! What a store keeps of one slot.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A point in time, Unix milliseconds; or a length of time, milliseconds. The name of the value says which.
pub type Millis = u64;

/// A slot: the worker id (machine id) of a Snowflake-style generator, `0 .. 2^bits` of its pool.
pub type Slot = u32;

/// Grows by 1 at each change of ownership; a renewal leaves it.
pub type Fence = u32;

/// The largest fence that a Kubernetes Lease can hold (`leaseTransitions` is an int32).
pub const MAX_FENCE: Fence = i32::MAX as Fence;

/// How a pool leases its slots. Both belong to the pool, so that all its holders agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// How long a lease lasts without a renewal, milliseconds.
    pub ttl: Millis,
    /// How long past the expiry a holder may go on issuing, milliseconds.
    pub tolerance: Millis,
}

/// Who wants or holds a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The logical identity, in Kubernetes `<namespace>/<pod>`. Two owners may have the same key by mistake: the
    /// incarnation tells them apart.
    pub key: String,
    /// Made anew at each start that has no state to resume, and after each loss.
    pub incarnation: Uuid,
}

impl Owner {
    /// An owner with a random incarnation.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), incarnation: Uuid::new_v4() }
    }

    /// The same key's next incarnation, derived from this one, for use after a loss. The lease that was lost may
    /// still stand in this incarnation's name; only another one makes sure it is never taken for a fresh one.
    #[must_use]
    pub fn succeed(&self) -> Self {
        Self { key: self.key.clone(), incarnation: Uuid::new_v5(&self.incarnation, b"successor") }
    }
}

/// One slot in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// See [`Fence`].
    pub fence: Fence,
    /// The floor that the next holder gets: no timestamp above it can have been issued, nor ever will be under the
    /// present fence.
    pub next_floor: Millis,
    /// Free or held.
    pub tenure: Tenure,
}

/// Whether somebody holds a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Tenure {
    /// Nobody does.
    Free {
        /// The key of the last owner, for whom the slot is the first choice.
        last_key: Option<String>,
    },
    /// An owner does, until it expires.
    Held(Holding),
}

/// A lease and its window.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holding {
    /// Who holds it.
    pub owner: Owner,
    /// The window's exclusive lower end, Unix ms.
    pub floor: Millis,
    /// The window's inclusive upper end, Unix ms.
    pub ceiling: Millis,
    /// When others may take the slot, Unix ms by the store's clock.
    pub expires_at: Millis,
    /// When this owner got it, Unix ms by the store's clock.
    pub acquired_at: Millis,
}

impl Record {
    /// A free slot with no owner before, whose first window starts above `next_floor`.
    #[must_use]
    pub fn open(fence: Fence, next_floor: Millis) -> Self {
        Self { fence, next_floor, tenure: Tenure::Free { last_key: None } }
    }

    /// The lease, where there is one, expired or not.
    #[must_use]
    pub fn holding(&self) -> Option<&Holding> {
        match &self.tenure {
            Tenure::Held(holding) => Some(holding),
            Tenure::Free { .. } => None,
        }
    }

    /// The lease, where it has not expired at `now` (Unix ms, store clock).
    #[must_use]
    pub fn live(&self, now: Millis) -> Option<&Holding> {
        self.holding().filter(|holding| now < holding.expires_at)
    }

    /// Whether this incarnation holds the slot under this fence.
    #[must_use]
    pub fn is_held_by(&self, incarnation: Uuid, fence: Fence) -> bool {
        self.fence == fence && self.holding().is_some_and(|holding| holding.owner.incarnation == incarnation)
    }

    /// The key of the present owner, or of the last.
    #[must_use]
    pub fn last_key(&self) -> Option<&str> {
        match &self.tenure {
            Tenure::Held(holding) => Some(&holding.owner.key),
            Tenure::Free { last_key } => last_key.as_deref(),
        }
    }
}
