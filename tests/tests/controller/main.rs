//! The controller on a real API server. A controller serves all pools of a cluster, so each test has one of its own.

mod bench;
mod deletion;
mod interrupted;
mod leading;
mod provisioning;
mod rights;
