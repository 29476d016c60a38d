//! Time, as it is passed in, and the store's clock, as its answers tell it.

use crate::Millis;

/// The time at which an event is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// A clock that never goes back, from any start, milliseconds: for timers.
    pub mono: Millis,
    /// The host's wall clock, Unix ms: only to notice that it is off.
    pub host: Millis,
    /// The store's clock: `None` before its first answer.
    pub store: Option<StoreTime>,
}

/// Bounds on what the store's clock shows, Unix ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreTime {
    /// At least this. Leases are judged and written by it: late rather than early.
    pub earliest: Millis,
    /// At most this.
    pub latest: Millis,
}

/// The store's clock, estimated from its answers.
///
/// An answer shows the store's time in whole seconds (HTTP's `Date`), made between the moments the request went out
/// and the answer came in. So the offset from a local monotonic clock lies in an interval; the intervals of several
/// answers intersect to a few milliseconds. Where they no longer do, the store's clock has jumped (a fail-over to
/// another server, NTP): the latest answer is believed.
///
/// ```
/// use cosid_lease::StoreClock;
///
/// let mut clock = StoreClock::default();
/// clock.observe(1_000, 1_010, 1_700_000_000);
/// let time = clock.at(1_010).unwrap();
/// assert_eq!(time.earliest, 1_700_000_000_000);
/// assert_eq!(time.latest, 1_700_000_001_009);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreClock {
    estimate: Option<Estimate>,
}

/// `store - mono` lies in `low..=high` for an answer that came at `seen`.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    low: i128,
    high: i128,
    seen: Millis,
}

/// How far two healthy clocks may drift apart, parts per million; NTP's own limit is 500.
const DRIFT_PPM: i128 = 500;

impl StoreClock {
    /// Takes in an answer: sent and received at these times of the local monotonic clock (ms), and showing the store's
    /// time in Unix seconds, rounded down.
    pub fn observe(&mut self, sent: Millis, received: Millis, date: u64) {
        let date = i128::from(date) * 1000;
        // The store read its clock between `sent` and `received`, and it showed `date ..= date + 999`.
        let low = date - i128::from(received);
        let high = date + 999 - i128::from(sent);
        let estimate = match self.widened(received) {
            Some(old) if old.low <= high && low <= old.high => {
                Estimate { low: low.max(old.low), high: high.min(old.high), seen: received }
            }
            _ => Estimate { low, high, seen: received },
        };
        self.estimate = Some(estimate);
    }

    /// The store's time at this time of the local monotonic clock (ms): `None` before the first answer.
    #[must_use]
    pub fn at(&self, mono: Millis) -> Option<StoreTime> {
        let estimate = self.widened(mono)?;
        let mono = i128::from(mono);
        Some(StoreTime { earliest: millis(mono + estimate.low), latest: millis(mono + estimate.high) })
    }

    fn widened(&self, mono: Millis) -> Option<Estimate> {
        let Estimate { low, high, seen } = self.estimate?;
        let drift = (i128::from(mono.saturating_sub(seen)) * DRIFT_PPM + 999_999) / 1_000_000;
        Some(Estimate { low: low - drift, high: high + drift, seen })
    }
}

fn millis(value: i128) -> Millis {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: u64 = 1_700_000_000;

    #[test]
    fn several_answers_narrow_the_estimate() {
        let mut clock = StoreClock::default();
        assert_eq!(clock.at(5), None);
        // The true offset is DATE * 1000 + 400: a second's edge is seen at mono 600.
        clock.observe(100, 102, DATE);
        clock.observe(598, 599, DATE);
        clock.observe(600, 602, DATE + 1);
        let time = clock.at(602).unwrap();
        let truth = DATE * 1000 + 400 + 602;
        assert!(time.earliest <= truth && truth <= time.latest, "{time:?} holds {truth}");
        assert!(time.latest - time.earliest <= 5, "{time:?} is narrow");
    }

    #[test]
    fn a_clock_that_jumped_is_believed_at_its_latest_answer() {
        let mut clock = StoreClock::default();
        clock.observe(0, 1, DATE);
        clock.observe(1_000, 1_001, DATE - 3_600);
        let time = clock.at(1_001).unwrap();
        assert_eq!(time.earliest, (DATE - 3_600) * 1000);
    }

    #[test]
    fn an_old_estimate_widens_by_the_drift() {
        let mut clock = StoreClock::default();
        clock.observe(0, 0, DATE);
        let time = clock.at(1_000_000).unwrap();
        assert_eq!(time.earliest, DATE * 1000 + 1_000_000 - 500);
        assert_eq!(time.latest, DATE * 1000 + 999 + 1_000_000 + 500);
    }

    #[test]
    fn times_before_1970_are_clamped() {
        let mut clock = StoreClock::default();
        clock.observe(5_000, 5_000, 0);
        assert_eq!(clock.at(0).unwrap().earliest, 0);
    }
}
