//! The agent beside an app: keeps one slot of a pool and serves its window of timestamps on a Unix socket.
//!
//! It acquires a slot, makes the window page that generators map, renews the lease in time, and closes and releases in
//! order at the end. Nothing it does is on the path of an ID. See [`Args`] for its command line, and the project's
//! `docs/socket.md` for what it serves.

mod api;
mod args;
mod clock;
mod cluster;
mod directory;
mod error;
mod health;
mod holder;
mod local;
mod metrics;
mod proof;
mod run;
mod serve;
mod static_slot;
mod status;
mod window;

pub use args::{Args, Command, LogFormat, SlotWish, StoreKind};
pub use error::Error;
pub use local::LocalStore;
pub use run::run;
pub use static_slot::StaticWish;
pub use status::StatusBoard;
pub use window::{Assigned, Resumable, Window};
