//! What an app links: from the agent's socket to unique IDs; synchronous and small.
//!
//! ```no_run
//! let id = cosid_client::Client::connect()?.generator("orders")?.next_id()?;
//! # Ok::<(), cosid_client::Error>(())
//! ```
//!
//! `COSID_SOCKET` says where the agent's socket is. Make the generator once and keep it: clones are cheap, and
//! threads may share one.
//!
//! ```no_run
//! use cosid_client::Client;
//!
//! let client = Client::connect()?;
//! let orders = client.generator("orders")?;
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| println!("{:?}", orders.next_id()));
//!     }
//! });
//! # Ok::<(), cosid_client::Error>(())
//! ```
//!
//! # What is unique
//!
//! A pool and a generator's name are one ID space: no two IDs of it are equal, whichever thread, forked worker,
//! process, container, pod or node made them. Two *names* make equal numbers. Where there is no slot there is no
//! ID but an [`Error`]: the client never makes a slot up.
//!
//! # What happens when
//!
//! | what | the client |
//! |---|---|
//! | an ID is made | at most one atomic operation on a page shared with the agent; no message, no lock |
//! | all IDs of the millisecond are used up, or the lease's window has to be moved on | [`Generator::next_id`] waits, at most its timeout |
//! | the slot is lost | [`Generator::next_id`] asks the agent for the next slot's page and goes on there |
//! | the process forks | parent and child go on; they share the page, and no connection outlives a request |
//! | the agent is killed | IDs go on until the window ends, and again when the agent is back |
//! | there is no agent | [`Error::AgentAbsent`], [`Error::NoSocket`] |
//!
//! # What it costs
//!
//! No async runtime, no TLS, no open file between requests; pages of 16 and 4 KiB mapped for each generator; and while a
//! program makes more than half a million IDs a second a thread, `cosid-tick`, that looks at the clock for it. On top of the ID itself comes one load of a word that only a loss changes. After a loss, a
//! generator made before it reads a pointer more for each ID (`arc-swap`: no reader ever waits or writes what
//! another thread writes); a clone made then does not.
//!
//! # In an async program
//!
//! With the feature `async` there is `Generator::next_id_async`, for any executor: it waits where [`Generator::next_id`]
//! does, and blocks nobody. Make client and generator where blocking is allowed: that is one request to the agent.
//!
//! ```
//! # #[cfg(feature = "async")]
//! async fn order(orders: &cosid_client::Generator) -> Result<cosid_client::Id, cosid_client::Error> {
//!     orders.next_id_async().await
//! }
//! ```
//!
//! Its timer is its own, a thread that lives while a task waits: an executor's would tie the crate to it, and those that
//! are late by a millisecond miss every other tick where IDs are made as fast as the layout has them.
//!
//! Without the feature: [`Generator::try_next_id`] never blocks; on [`NextError::Wait`] sleep for what it says, on
//! [`NextError::SlotLost`] run [`Generator::reconnect`] where blocking is allowed.

mod answer;
mod client;
mod error;
mod generator;
mod http;
mod lease;
mod seat;
#[cfg(feature = "async")]
mod timer;

pub use client::{Client, DEFAULT_TIMEOUT, SOCKET_VARIABLE};
pub use cosid_id::Error as PageError;
pub use cosid_id::{
    DatePrefix, FieldOrder, Form, Id, IdParts, IdRange, Layout, MAX_BATCH, NextError, SlotSplit, Wait,
    WideId, Zone, serde_string,
};
pub use error::Error;
pub use generator::{Generator, Ranges};
pub use lease::{Held, Lease, LeaseState};
