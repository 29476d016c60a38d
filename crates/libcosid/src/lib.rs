//! `libcosid`: [`cosid_client`] as a C library. `docs/c.md` is its manual, `include/cosid.h` its header.
//!
//! Rust programs use [`cosid_client`] itself.
//!
//! Every function may be called with null pointers and says so; none lets a panic go on into the caller; what a function
//! asks of its other pointers is what C programs expect: that they are valid, and that a handle has not been closed.
#![allow(unsafe_code, reason = "pointers come from C, and symbols have to keep their names")]

mod client;
mod failure;
mod generator;
mod lease;
mod pointer;
mod status;

pub use client::{CosidClient, cosid_close, cosid_open};
pub use failure::cosid_error;
pub use generator::{
    CosidGenerator, CosidParts, cosid_decode, cosid_generator_close, cosid_generator_open, cosid_next,
    cosid_next_batch, cosid_reconnect, cosid_try_next,
};
pub use lease::{CosidLease, CosidState, cosid_lease};
pub use status::{CosidStatus, cosid_is_transient};
