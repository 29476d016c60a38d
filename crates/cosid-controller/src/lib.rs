//! The SlotPool controller: provisions Leases, keeps what outlives them, counts, grants rights, tells.
//!
//! It is not on the path of a renewal or an acquisition: with it down, agents go on. Watches feed an [`index`]; a
//! [`schedule`] says which pool is next; [`reconcile`] decides by pure functions and changes things in one place,
//! [`writes`], where every change is a compare-and-set. So two controllers at once are safe, and [`leader`] only keeps
//! them from getting in each other's way.

pub mod args;
mod error;
pub mod events;
pub mod index;
pub mod inject;
pub mod leader;
pub mod metrics;
mod missing;
mod moment;
mod proof;
pub mod rbac;
pub mod reconcile;
pub mod referee;
mod run;
pub mod schedule;
mod serve;
pub mod tombstone;
mod watching;
pub mod webhook;
pub mod writes;

pub use error::Error;
pub use rbac::{cluster_role, injector_cluster_role, injector_own_role, own_role};
pub use run::{Injector, Settings, run};
