//! IDs and texts compared with those of CosId itself, which runs beside these tests: its decoding of ours and ours of its are
//! equal.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy's leave for tests does not reach the functions that they share"
)]

mod numbers;
mod refusals;
mod texts;
mod values;
mod wide;
