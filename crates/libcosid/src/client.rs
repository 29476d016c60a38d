//! A program's way to its agent.

use std::ffi::c_char;
use std::ptr;

use cosid_client::Client;

use crate::failure::{Failure, call};
use crate::pointer::{free, put, text};
use crate::status::CosidStatus;

/// A program's way to its agent. Threads may share it. It holds no connection and no open file: a process may fork at any
/// time, and use it on both sides.
pub struct CosidClient(pub(crate) Client);

/// Finds the agent and asks it once whether it is there; whether it holds a slot does not matter yet. Blocks for at most 2 s.
///
/// `socket` is the path of the agent's socket; null is that in the environment variable `COSID_SOCKET`. `client` gets the
/// handle, or null after a failure.
///
/// # Safety
/// `socket` is null or a text ended by a zero; `client` is null or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cosid_open(socket: *const c_char, client: *mut *mut CosidClient) -> CosidStatus {
    call(|| {
        // SAFETY: as this function's caller promises.
        unsafe { put(client, ptr::null_mut()) }?;
        let opened = if socket.is_null() {
            Client::connect()?
        } else {
            // SAFETY: as this function's caller promises.
            Client::connect_to(unsafe { text(socket, NULL) }?)?
        };
        // SAFETY: as this function's caller promises.
        unsafe { put(client, Box::into_raw(Box::new(CosidClient(opened)))) }
    })
}

pub(crate) const NULL: &str = "the client is null: cosid_open makes one";

/// Frees a client; null is nothing. Its generators go on. Never blocks.
///
/// # Safety
/// `client` is null or came from `cosid_open`, and no thread uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cosid_close(client: *mut CosidClient) {
    call(|| {
        // SAFETY: as this function's caller promises.
        unsafe { free(client) };
        Ok::<(), Failure>(())
    });
}
