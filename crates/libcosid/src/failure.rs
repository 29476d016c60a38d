//! What went wrong in this thread's last call, kept until it is asked for.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cosid_client::{Error, NextError};

use crate::status::CosidStatus;

/// Why a call did not work.
#[derive(Debug)]
pub(crate) enum Failure {
    Client(Error),
    /// Small and copied: a program at the cap has one every millisecond.
    Next(NextError),
    Argument(&'static str),
    Panicked,
}

impl Failure {
    fn status(&self) -> CosidStatus {
        match self {
            Self::Client(error) => error.into(),
            Self::Next(error) => (*error).into(),
            Self::Argument(_) => CosidStatus::BadArgument,
            Self::Panicked => CosidStatus::Internal,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Next(error) => error.fmt(f),
            Self::Argument(what) => f.write_str(what),
            Self::Panicked => {
                f.write_str("a fault in libcosid: please report it with what it wrote to stderr")
            }
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<NextError> for Failure {
    fn from(error: NextError) -> Self {
        Self::Next(error)
    }
}

/// The last failure, put into words only when somebody asks.
#[derive(Default)]
struct Last {
    failure: Option<Failure>,
    text: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

const NOTHING: &CStr = c"";

/// Runs what a function does. A panic ends here: to let it go on into C would end the program.
pub(crate) fn call(work: impl FnOnce() -> Result<(), Failure>) -> CosidStatus {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return CosidStatus::Ok,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::Panicked,
    };
    let status = failure.status();
    // While a thread ends there may be no place to keep it; the status says enough then.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.failure = Some(failure);
        }
    });
    status
}

/// What the last call of this thread that failed said, and what to do about it; empty if none has. UTF-8, ended by a zero.
/// Never null. Valid until the next call of a function of this library in this thread. Never blocks.
#[unsafe(no_mangle)]
pub extern "C" fn cosid_error() -> *const c_char {
    let text = LAST.try_with(|last| {
        let Ok(mut last) = last.try_borrow_mut() else { return NOTHING.as_ptr() };
        if let Some(failure) = last.failure.take() {
            let mut bytes = failure.to_string().into_bytes();
            bytes.retain(|&byte| byte != 0);
            last.text = CString::new(bytes).unwrap_or_default();
        }
        last.text.as_ptr()
    });
    text.unwrap_or(NOTHING.as_ptr())
}
