//! How the keeper behaves, in virtual time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

mod closing;
mod holding;
mod regressing;
mod resuming;
mod rig;
mod seeking;
