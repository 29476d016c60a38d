//! Making IDs.

use std::ffi::c_char;
use std::ptr;
use std::time::Duration;

use cosid_client::{Generator, Id, NextError};

use crate::client::{self, CosidClient};
use crate::failure::{Failure, call};
use crate::pointer::{buffer, free, handle, put, text};
use crate::status::CosidStatus;

/// Makes the IDs of one name. Threads may share one, and a process may fork at any time.
pub struct CosidGenerator(Generator);

const NULL: &str = "the generator is null: cosid_generator_open makes one";

/// What an ID says.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CosidParts {
    /// Unix ms at which the ID's tick began.
    pub timestamp: u64,
    /// The slot that made it.
    pub slot: u32,
    /// Its number within its tick and slot.
    pub sequence: u32,
}

/// The generator of that name: 1 to 64 letters, digits, `.`, `_` or `-`. A pool and a name are one ID space; two names make
/// equal numbers. While the agent has no slot yet this waits, for at most 2 s.
///
/// `generator` gets the handle, or null after a failure.
///
/// # Safety
/// `client` is null or came from `cosid_open` and is not closed; `name` is null or a text ended by a zero; `generator` is
/// null or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cosid_generator_open(
    client: *const CosidClient,
    name: *const c_char,
    generator: *mut *mut CosidGenerator,
) -> CosidStatus {
    call(|| {
        // SAFETY: as this function's caller promises.
        unsafe { put(generator, ptr::null_mut()) }?;
        // SAFETY: as this function's caller promises.
        let client = unsafe { handle(client, client::NULL) }?;
        // SAFETY: as this function's caller promises.
        let name = unsafe { text(name, "the generator's name is null") }?;
        let made = Box::new(CosidGenerator(client.0.generator(name)?));
        // SAFETY: as this function's caller promises.
        unsafe { put(generator, Box::into_raw(made)) }
    })
}

/// Frees a generator; null is nothing. Never blocks.
///
/// # Safety
/// `generator` is null or came from `cosid_generator_open`, and no thread uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cosid_generator_close(generator: *mut CosidGenerator) {
    call(|| {
        // SAFETY: as this function's caller promises.
        unsafe { free(generator) };
        Ok::<(), Failure>(())
    });
}

/// The next ID. Does not block as long as there is one; else it waits, asleep, for at most `timeout_ms`, and moves to the
/// agent's next slot if this one is lost.
///
/// # Safety
/// `generator` is null or came from `cosid_generator_open` and is not closed; `id` is null or room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cosid_next(
    generator: *const CosidGenerator,
    timeout_ms: u32,
    id: *mut u64,
) -> CosidStatus {
    call(|| {
        // SAFETY: as this function's caller promises.
        let generator = unsafe { handle(generator, NULL) }?;
        refuse_null(id)?;
        let next = match generator.0.try_next_id() {
            Ok(next) => next,
            Err(_) => waiting(&generator.0, timeout_ms).next_id()?,
        };
        // SAFETY: as this function's caller promises.
        unsafe { put(id, next.get()) }
    })
}

/// The next ID, if there is one now. Never blocks and asks nobody.
///
/// After `COSID_STATUS_NOT_YET` `until` gets the Unix ms at which it is worth to try again, 0 if that depends on the agent; it
/// may be null. After `COSID_STATUS_SLOT_LOST` any one thread has to call `cosid_reconnect` or `cosid_next`.
///
/// # Safety
/// `generator` is null or came from `cosid_generator_open` and is not closed; `id` and `until` are null or room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cosid_try_next(
    generator: *const CosidGenerator,
    id: *mut u64,
    until: *mut u64,
) -> CosidStatus {
    call(|| {
        // SAFETY: as this function's caller promises.
        let generator = unsafe { handle(generator, NULL) }?;
        refuse_null(id)?;
        match generator.0.try_next_id() {
            // SAFETY: as this function's caller promises.
            Ok(next) => unsafe { put(id, next.get()) },
            Err(error) => {
                if let (NextError::Wait(wait), false) = (error, until.is_null()) {
                    // SAFETY: as this function's caller promises.
                    unsafe { put(until, wait.until().unwrap_or(0)) }?;
                }
                Err(error.into())
            }
        }
    })
}

/// Fills `ids` with `count` IDs, 1 to 100000, which grow but not always without gaps: one atomic operation for each
/// millisecond that the batch needs. Blocks as `cosid_next`, for at most `timeout_ms` in all. After a failure `ids` holds
/// zeros or IDs that must not be used.
///
/// # Safety
/// `generator` is null or came from `cosid_generator_open` and is not closed; `ids` is null or room for `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cosid_next_batch(
    generator: *const CosidGenerator,
    timeout_ms: u32,
    ids: *mut u64,
    count: usize,
) -> CosidStatus {
    call(|| {
        // SAFETY: as this function's caller promises.
        let generator = unsafe { handle(generator, NULL) }?;
        if count == 0 || count > cosid_client::MAX_BATCH {
            return Err(NextError::BadCount { count, max: cosid_client::MAX_BATCH }.into());
        }
        // SAFETY: as this function's caller promises.
        let ids = unsafe { buffer(ids, count) }?;
        waiting(&generator.0, timeout_ms).next_ids(ids).map_err(Failure::from)
    })
}

/// Moves to the agent's next slot if this one is lost; else this does nothing. Only for programs that make IDs with
/// `cosid_try_next` alone. Blocks for at most `timeout_ms`.
///
/// # Safety
/// `generator` is null or came from `cosid_generator_open` and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cosid_reconnect(generator: *const CosidGenerator, timeout_ms: u32) -> CosidStatus {
    call(|| {
        // SAFETY: as this function's caller promises.
        let generator = unsafe { handle(generator, NULL) }?;
        waiting(&generator.0, timeout_ms).reconnect().map_err(Failure::from)
    })
}

/// Takes an ID of this generator's pool apart. Never blocks.
///
/// # Safety
/// `generator` is null or came from `cosid_generator_open` and is not closed; `parts` is null or room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cosid_decode(
    generator: *const CosidGenerator,
    id: u64,
    parts: *mut CosidParts,
) -> CosidStatus {
    call(|| {
        // SAFETY: as this function's caller promises.
        let generator = unsafe { handle(generator, NULL) }?;
        let bad = |_| Failure::Argument("this is no ID of the generator's layout: it has too many bits");
        let found = Id::try_from(id).and_then(|id| generator.0.layout().decompose(id)).map_err(bad)?;
        let found =
            CosidParts { timestamp: found.timestamp(), slot: found.slot(), sequence: found.sequence() };
        // SAFETY: as this function's caller promises.
        unsafe { put(parts, found) }
    })
}

/// Before an ID is made that then has no place to go.
fn refuse_null(id: *mut u64) -> Result<(), Failure> {
    if id.is_null() { Err(Failure::Argument("the pointer for the ID is null")) } else { Ok(()) }
}

/// A clone: of the page that is current now, and with this call's time.
fn waiting(generator: &Generator, timeout_ms: u32) -> Generator {
    generator.clone().with_timeout(Duration::from_millis(timeout_ms.into()))
}
