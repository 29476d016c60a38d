//! The controller on a real API server. A controller serves all pools of a cluster, so each test has one of its own.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy's leave for tests does not reach the functions that they share"
)]

mod bench;
mod deletion;
mod interrupted;
mod leading;
mod provisioning;
mod rights;
