//! A slot's [`Record`](cosid_lease::Record) as a `coordination.k8s.io/v1` Lease, and back.
//!
//! | field | holds |
//! |---|---|
//! | `spec.holderIdentity` | owner key; absent when free |
//! | `spec.leaseTransitions` | fence |
//! | `spec.leaseDurationSeconds` | ttl, whole seconds |
//! | `spec.renewTime` | `expires_at - ttl`, so that standard tools read the Lease rightly |
//! | `spec.acquireTime` | when this holder got it |
//! | annotations | see the constants below: decimal Unix ms, the incarnation, the last owner's key, the pod's UID |
//!
//! Reading is strict: what is not exactly as it is written here is [`SlotState::Corrupt`](cosid_lease::SlotState::Corrupt), never given a default. A
//! Lease without `next-floor` is shut only if it bears no other trace of use either: one that lost the annotation
//! would be opened again below its holder's window.

mod lease;
mod read;
mod write;

use cosid_lease::{Millis, Slot};
use thiserror::Error;

pub use lease::SlotLease;
pub use read::{decode, read, slot_of};
pub use write::{encode, new_lease, open};

/// The label that has the pool's name.
pub const POOL_LABEL: &str = "cosid.dev/pool";
/// Keeps a Lease until its next floor is in the pool's watermark.
pub const FINALIZER: &str = "cosid.dev/watermark";
/// The window's exclusive lower end; only while held.
pub const FLOOR: &str = "cosid.dev/floor";
/// The window's inclusive upper end; only while held.
pub const CEILING: &str = "cosid.dev/ceiling";
/// The floor of the next holder; absent as long as the Lease is shut.
pub const NEXT_FLOOR: &str = "cosid.dev/next-floor";
/// The holder's incarnation, a UUID; only while held.
pub const INCARNATION: &str = "cosid.dev/incarnation";
/// The key of the last owner; only while free.
pub const LAST_OWNER: &str = "cosid.dev/last-owner";
/// The UID of the holder's pod, where it runs in one; only while held.
pub const POD_UID: &str = "cosid.dev/pod-uid";

/// The slot can't be acquired: its store went backwards. Until the pool's next barrier.
pub const BARRED: &str = "cosid.dev/barred";

/// What the store had lost of this slot when its holder put it back; until the pool's next barrier.
pub const STORE_REGRESSED: &str = "cosid.dev/store-regressed";

/// The latest time that a Lease can hold, Unix ms: annotations are int64 to the API server's policies.
pub const MAX_TIME: Millis = i64::MAX as Millis;

/// What is wrong with a Lease, or a record that is to become one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// A field has a value that it can't have.
    #[error("{field}: {value:?} {why}")]
    Value {
        /// The field, as in the Lease.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A field is missing.
    #[error("{field} is missing: {why}")]
    Missing {
        /// The field, as in the Lease.
        field: &'static str,
        /// Why it has to be there.
        why: &'static str,
    },
    /// The Lease as a whole can't be read.
    #[error("it can't be read: {0}")]
    Unreadable(String),
}

/// The name of a slot's Lease.
#[must_use]
pub fn lease_name(pool: &str, slot: Slot) -> String {
    format!("{pool}-{slot}")
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
