//! Injection on a real API server: by the webhook of a controller that has no more rights than the chart gives it, and by
//! policies. Nothing runs the pods.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy's leave for tests does not reach the functions that they share"
)]

mod admission;
mod ground;
mod rotation;
mod slipped;
mod ways;
