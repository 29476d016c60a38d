//! Slots of a Kubernetes cluster: the `SlotPool` resource, the Lease codec, and the slot store.
//!
//! * [`pool`]: `SlotPool`, one ID space, as people declare it.
//! * [`codec`]: a slot's record as a Lease, and back.
//! * [`config`], [`transport`]: a kube client whose calls end, and tell the API server's time to a [`clock`].
//! * [`store`]: the Leases of a pool as a [`SlotStore`](cosid_lease::SlotStore). [`find`]: which pool is meant.
//! * [`drive`](mod@drive): runs a [`Keeper`](cosid_lease::Keeper) on tokio, on any store.

mod auth;
pub mod clock;
pub mod codec;
pub mod config;
pub mod drive;
mod error;
pub mod find;
pub mod pool;
mod proof;
mod rest;
pub mod store;
mod tls;
pub mod transport;

pub use clock::{ApiClock, monotonic};
pub use config::ClusterOptions;
pub use drive::{Holder, drive};
pub use error::Error;
pub use find::{PoolName, find_pool};
pub use pool::{SlotPool, SlotPoolSpec, SlotPoolStatus, to_pool};
pub use store::{KubeStore, LeaseVersion};
