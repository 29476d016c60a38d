//! The one place where the agent reads the host's wall clock. It is read through the C library, so that a test can
//! bend it.

use std::time::{SystemTime, UNIX_EPOCH};

use cosid_lease::Millis;

/// The host's wall clock, Unix ms; 0 before 1970.
#[must_use]
pub(crate) fn host_now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
