//! Pointers from C: the one place that follows them.

use std::ffi::{CStr, c_char};
use std::slice;

use crate::failure::Failure;

/// What a handle points to.
///
/// # Safety
/// It is null, or points to a `T` that is not freed while the answer is used.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, null: &'static str) -> Result<&'a T, Failure> {
    // SAFETY: null is refused by `as_ref`; the rest is the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(Failure::Argument(null))
}

/// A text.
///
/// # Safety
/// It is null, or points to bytes ended by a zero that nobody changes while the answer is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, null: &'static str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::Argument(null));
    }
    // SAFETY: not null; that it ends with a zero is the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::Argument("the text is no UTF-8"))
}

/// Where an answer goes.
///
/// # Safety
/// It is null, or points to memory for a `T` that nobody else uses meanwhile. What is there already need not be a `T`.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::Argument("the pointer for the answer is null"));
    }
    // SAFETY: not null; that it is valid is the caller's promise.
    unsafe { pointer.write(value) };
    Ok(())
}

/// The buffer of a batch, set to zero: what is there already may never have been written.
///
/// # Safety
/// It is null, or points to memory for `count` numbers that nobody else uses while the answer is used.
pub(crate) unsafe fn buffer<'a>(pointer: *mut u64, count: usize) -> Result<&'a mut [u64], Failure> {
    if pointer.is_null() {
        return Err(Failure::Argument("the buffer for the IDs is null"));
    }
    // SAFETY: not null; that there is room for `count` is the caller's promise, and zeros are numbers.
    unsafe { pointer.write_bytes(0, count) };
    // SAFETY: as above, and all of it has just been written.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, count) })
}

/// Frees what [`Box::into_raw`] gave; null is nothing.
///
/// # Safety
/// It is null, or came from [`Box::into_raw`] and is used nowhere else, now or later.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(pointer) });
    }
}
