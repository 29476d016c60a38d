//! The crate as its callers see it. One binary, a module a subject.

#![allow(clippy::unwrap_used, clippy::panic, reason = "functions that tests share may stop them too")]

mod form;
mod fuzz;
mod generator;
#[cfg(feature = "serde")]
mod json;
mod layout;
mod own_layout;
mod page;
mod processes;
mod properties;
mod spread;
mod threads;
mod virtual_time;
mod wide_id;
