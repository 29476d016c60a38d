//! The API server's clock, read off the `Date` header of its answers.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use cosid_lease::{Millis, StoreClock, StoreTime};
use http::HeaderMap;
use http::header::DATE;

/// Milliseconds of a clock that never goes back, from the first call in this process on. Everything in a process that
/// compares such times must take them from here.
#[must_use]
pub fn monotonic() -> Millis {
    #[cfg(cosid_proof)]
    if let Some(mono) = cosid_proof_switch::virtual_mono() {
        return mono;
    }
    static START: OnceLock<Instant> = OnceLock::new();
    let passed = START.get_or_init(Instant::now).elapsed();
    Millis::try_from(passed.as_millis()).unwrap_or(Millis::MAX)
}

/// The API server's clock as its answers tell it. Clones share it.
///
/// ```
/// use cosid_kube::clock::{ApiClock, monotonic};
///
/// let clock = ApiClock::default();
/// assert_eq!(clock.now(), None);
/// let headers = [(http::header::DATE, "Tue, 14 Nov 2023 22:13:20 GMT".parse().unwrap())].into_iter().collect();
/// clock.observe(monotonic(), monotonic(), &headers);
/// assert!(clock.now().unwrap().latest >= 1_700_000_000_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ApiClock(Arc<Mutex<StoreClock>>);

impl ApiClock {
    /// Its time now, Unix ms: `None` before the first answer. Does not block.
    #[must_use]
    pub fn now(&self) -> Option<StoreTime> {
        self.lock().at(monotonic())
    }

    /// Takes in an answer's headers; `sent` and `received` are [`monotonic`] times, ms. Without a `Date` that can be
    /// read there is nothing to take in.
    pub fn observe(&self, sent: Millis, received: Millis, headers: &HeaderMap) {
        if let Some(date) = date(headers) {
            self.lock().observe(sent, received, date);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StoreClock> {
        // It is replaced as a whole: a panic elsewhere can't leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unix seconds of the `Date` header.
fn date(headers: &HeaderMap) -> Option<u64> {
    let date = jiff::fmt::rfc2822::parse(headers.get(DATE)?.to_str().ok()?).ok()?;
    u64::try_from(date.timestamp().as_second()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(date: &str) -> HeaderMap {
        HeaderMap::from_iter([(DATE, date.parse().unwrap())])
    }

    #[test]
    fn the_date_of_an_http_answer_is_read() {
        assert_eq!(date(&headers("Sun, 06 Nov 1994 08:49:37 GMT")), Some(784_111_777));
        assert_eq!(date(&headers("Mon, 30 Nov 2026 18:30:52 GMT")), Some(1_796_063_452));
    }

    #[test]
    fn an_answer_without_a_readable_date_changes_nothing() {
        let clock = ApiClock::default();
        for text in ["", "yesterday", "Sun, 06 Nov 1494 08:49:37 GMT", "Sun, 99 Nov 1994 08:49:37 GMT"] {
            clock.observe(0, 1, &headers(text));
        }
        clock.observe(0, 1, &HeaderMap::new());
        assert_eq!(clock.now(), None);
    }
}
