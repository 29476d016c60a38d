//! The chart: what it renders, what it refuses, and its life on a real API server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy's leave for tests does not reach the functions that they share"
)]

mod examples;
mod helm;
mod life;
mod linted;
mod pods;
mod rendered;
mod served;
mod values;
