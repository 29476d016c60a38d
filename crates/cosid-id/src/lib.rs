//! Snowflake-style IDs from a shared window page: layouts, generators, decoding.
//!
//! A lease gives the right to issue timestamps `t` on a slot with `floor < t <= ceiling`. Whoever holds it
//! makes a [page](PageOwner), a small file that all programs of a pod map; a [`Generator`] takes each ID from
//! it with at most one atomic operation and a check of the window, so that threads, forked workers and whole containers
//! share one slot, and the owner always knows the last timestamp.
//!
//! A [`Layout`] says how an ID is put together, a [`Form`] how it is written; `docs/ids.md` which to take when.
//!
//! Where no cluster leases slots, a [`StaticSlot`] is one by configuration, with a file that remembers its ceiling.
//!
//! The crate reads one clock ([`SystemClock`]) and files; it knows no network and no Kubernetes.

#[cfg(not(loom))]
mod clock;
mod date;
mod error;
mod form;
#[cfg(not(loom))]
pub mod format;
mod friendly;
#[cfg(loom)]
pub mod gate;
#[cfg(not(loom))]
#[allow(unreachable_pub, reason = "public under cfg(loom), for the model's tests")]
mod gate;
#[cfg(not(loom))]
mod generator;
mod id;
#[cfg(feature = "serde")]
mod id_serde;
mod layout;
mod next_error;
#[cfg(not(loom))]
mod page;
mod proof;
mod radix;
#[cfg(loom)]
pub mod run;
#[cfg(not(loom))]
#[allow(unreachable_pub, reason = "public under cfg(loom), for the model's tests")]
mod run;
mod slot_split;
#[cfg(not(loom))]
mod stamp;
#[cfg(not(loom))]
mod static_slot;

#[cfg(loom)]
#[allow(missing_docs, reason = "public for the model's tests only")]
pub mod sync;
#[cfg(not(loom))]
mod sync;

#[cfg(not(loom))]
mod tick;
mod wide_id;
mod zone;

#[cfg(loom)]
pub mod cell;
#[cfg(not(loom))]
#[allow(unreachable_pub, reason = "public under cfg(loom), for the model's tests")]
mod cell;

#[cfg(not(loom))]
pub use clock::{Clock, SystemClock};
pub use error::Error;
pub use form::{DatePrefix, Form};
#[cfg(not(loom))]
pub use format::Header;
#[cfg(not(loom))]
pub use generator::{Generator, IdRange, MAX_BATCH, Ranges};
pub use id::{Id, IdParts};
#[cfg(feature = "serde")]
pub use id_serde::serde_string;
pub use layout::{FieldOrder, Layout, LayoutBuilder};
pub use next_error::{NextError, Wait};
#[cfg(not(loom))]
pub use page::{CellInfo, Closed, Page, PageOwner};
pub use slot_split::SlotSplit;
#[cfg(not(loom))]
pub use static_slot::{StaticSlot, StaticSlotBuilder, StaticWarning};
pub use wide_id::WideId;
pub use zone::Zone;

/// The examples in `docs/ids.md` are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/ids.md")]
struct Ids;

/// And those in `docs/static.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/static.md")]
struct Static;
