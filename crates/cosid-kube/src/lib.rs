//! The SlotPool resource, the Lease codec and the Kubernetes slot store.

pub mod codec;
mod error;
pub mod pool;

pub use error::Error;
