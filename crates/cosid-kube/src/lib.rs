//! The SlotPool resource, the Lease codec and the Kubernetes slot store.

mod auth;
pub mod clock;
pub mod codec;
pub mod config;
mod error;
pub mod pool;
mod tls;
pub mod transport;

pub use error::Error;
