//! The time. This is the one place that reads the host's clock, and it does so through the C library, so that
//! a test that bends the clock there reaches every ID.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where a generator gets the time from and how it waits; tests have one of their own.
pub trait Clock {
    /// Unix ms. Should not go back within a process; nothing repeats if it does, but IDs may have to wait.
    fn unix_ms(&self) -> u64;
    /// Unix ms as the host has it now, steps back included: the way out for a clock whose own reading was
    /// carried off by a step forward that has since been corrected.
    fn host_ms(&self) -> u64 {
        self.unix_ms()
    }
    /// How long it is until the clock says `unix_ms`.
    fn until(&self, unix_ms: u64) -> Duration {
        Duration::from_millis(unix_ms.saturating_sub(self.unix_ms()))
    }
    /// Time since some fixed moment, for bounded waits: not moved by steps of the wall clock.
    fn elapsed(&self) -> Duration;
    /// Waits.
    fn sleep(&self, duration: Duration);
}

/// The host's clock, which within a process never goes back: if the host's clock steps back it goes on at its
/// own pace from where it was; if the host's clock steps forward it follows. All values share one state.
///
/// ```
/// use cosid_id::{Clock, SystemClock};
///
/// let before = SystemClock.unix_ms();
/// assert!(SystemClock.unix_ms() >= before);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemClock;

const NANOS_PER_MS: u64 = 1_000_000;
const SHORTEST_WAIT: Duration = Duration::from_micros(20);

static HOST: LazyLock<Steady> = LazyLock::new(Steady::new);

impl Clock for SystemClock {
    #[inline]
    fn unix_ms(&self) -> u64 {
        let host = &*HOST;
        host.reading(wall_ns(), || nanos(host.start.elapsed()))
    }

    fn host_ms(&self) -> u64 {
        wall_ns() / NANOS_PER_MS
    }

    fn until(&self, unix_ms: u64) -> Duration {
        let left = Duration::from_millis(unix_ms.saturating_sub(self.unix_ms()));
        let into_ms = Duration::from_nanos(wall_ns() % NANOS_PER_MS);
        // The two agree on the millisecond unless the wall clock stepped back: not to ask without end then.
        if left.is_zero() { left } else { left.saturating_sub(into_ms).max(SHORTEST_WAIT) }
    }

    fn elapsed(&self) -> Duration {
        HOST.start.elapsed()
    }

    fn sleep(&self, duration: Duration) {
        thread::sleep(duration);
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    fn unix_ms(&self) -> u64 {
        (**self).unix_ms()
    }
    fn host_ms(&self) -> u64 {
        (**self).host_ms()
    }
    fn until(&self, unix_ms: u64) -> Duration {
        (**self).until(unix_ms)
    }
    fn elapsed(&self) -> Duration {
        (**self).elapsed()
    }
    fn sleep(&self, duration: Duration) {
        (**self).sleep(duration);
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn unix_ms(&self) -> u64 {
        (**self).unix_ms()
    }
    fn host_ms(&self) -> u64 {
        (**self).host_ms()
    }
    fn until(&self, unix_ms: u64) -> Duration {
        (**self).until(unix_ms)
    }
    fn elapsed(&self) -> Duration {
        (**self).elapsed()
    }
    fn sleep(&self, duration: Duration) {
        (**self).sleep(duration);
    }
}

/// A reading that never goes back. The wall clock alone is read as long as it stays in the same millisecond;
/// at each new one it is tied to the monotonic clock, on which the reading goes on if the wall clock steps
/// back. Ahead of both it is never by more than the step.
struct Steady {
    start: Instant,
    /// The largest distance seen from the monotonic clock to the wall clock, ns.
    offset_ns: AtomicU64,
    last_ms: AtomicU64,
}

impl Steady {
    fn new() -> Self {
        Self { start: Instant::now(), offset_ns: AtomicU64::new(0), last_ms: AtomicU64::new(0) }
    }

    fn reading(&self, wall_ns: u64, monotonic_ns: impl FnOnce() -> u64) -> u64 {
        let wall_ms = wall_ns / NANOS_PER_MS;
        let last_ms = self.last_ms.load(Ordering::Relaxed);
        if wall_ms == last_ms {
            return wall_ms;
        }
        let monotonic_ns = monotonic_ns();
        let reading = if wall_ms > last_ms {
            self.offset_ns.fetch_max(wall_ns.saturating_sub(monotonic_ns), Ordering::Relaxed);
            wall_ms
        } else {
            monotonic_ns.saturating_add(self.offset_ns.load(Ordering::Relaxed)) / NANOS_PER_MS
        };
        self.last_ms.fetch_max(reading, Ordering::Relaxed).max(reading)
    }
}

/// 0 on a host whose clock stands before 1970.
fn wall_ns() -> u64 {
    nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Good until the year 2554.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn it_follows_the_wall_clock_and_its_forward_steps() {
        let clock = Steady::new();
        assert_eq!(clock.reading(1_000 * S, || 0), 1_000_000);
        assert_eq!(clock.reading(1_000 * S + 5 * MS, || 5 * MS), 1_000_005);
        assert_eq!(clock.reading(9_000 * S, || 6 * MS), 9_000_000);
    }

    #[test]
    fn when_the_wall_clock_steps_back_it_goes_on_at_its_own_pace() {
        let clock = Steady::new();
        assert_eq!(clock.reading(1_000 * S, || 0), 1_000_000);
        assert_eq!(clock.reading(400 * S, || 7 * MS), 1_000_007);
        assert_eq!(clock.reading(400 * S + 3 * MS, || 10 * MS), 1_000_010);
    }

    #[test]
    fn after_a_step_forward_and_back_it_goes_on_from_the_step() {
        let clock = Steady::new();
        clock.reading(1_000 * S, || 0);
        clock.reading(90_000 * S, || 1_000 * MS);
        assert_eq!(clock.reading(1_002 * S, || 2_000 * MS), 90_001_000);
    }

    #[test]
    fn the_monotonic_clock_is_left_alone_within_a_millisecond() {
        let clock = Steady::new();
        clock.reading(1_000 * S, || 0);
        assert_eq!(clock.reading(1_000 * S + 999_999, || panic!("read")), 1_000_000);
    }

    #[test]
    fn the_host_clock_says_the_time() {
        let wall = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        assert!(SystemClock.unix_ms() >= wall);
    }
}
