//! How the keeper behaves, in virtual time.

mod closing;
mod holding;
mod resuming;
mod rig;
mod seeking;
