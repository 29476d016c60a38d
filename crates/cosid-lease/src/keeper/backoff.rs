//! When to try again.

use uuid::Uuid;

use crate::{Millis, Terms};

/// The first pause after a failure, milliseconds; each further failure doubles it.
const FIRST_PAUSE: Millis = 100;

/// The next attempt, and how many have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Backoff {
    due: Millis,
    failures: u32,
}

impl Backoff {
    /// Due at once.
    pub(super) fn start(mono: Millis) -> Self {
        Self { due: mono, failures: 0 }
    }

    pub(super) fn due(self) -> Millis {
        self.due
    }

    pub(super) fn failures(self) -> u32 {
        self.failures
    }

    /// After a failure: 100 ms, doubling, to at most a sixth of the ttl.
    pub(super) fn failed(&mut self, mono: Millis, longest: Millis, jitter: &mut Jitter) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(longest.max(1));
        self.failures = self.failures.saturating_add(1);
        self.due = mono.saturating_add(jitter.around(pause).min(longest.max(1)));
    }

    /// After a success: not before `pause` (ms) has passed.
    pub(super) fn rest(&mut self, mono: Millis, pause: Millis) {
        *self = Self { due: mono.saturating_add(pause), failures: 0 };
    }

    /// Again at once, without counting it as a failure.
    pub(super) fn again(&mut self, mono: Millis) {
        self.due = mono;
    }

    /// After losing to another change of the same slot: at once, but where that happens again without a success in
    /// between, as after a failure. A store that answers every write with a conflict must not be asked in a tight loop.
    pub(super) fn contended(&mut self, mono: Millis, longest: Millis, jitter: &mut Jitter) {
        if self.failures == 0 {
            *self = Self { due: mono, failures: 1 };
        } else {
            self.failed(mono, longest, jitter);
        }
    }

    /// Not before this, and the count of failures stays.
    pub(super) fn at(&mut self, due: Millis) {
        self.due = due;
    }
}

/// The longest pause between attempts.
pub(super) fn longest_pause(terms: Terms) -> Millis {
    terms.ttl / 6
}

/// Pseudo-random numbers (splitmix64) that keep agents from marching in step. Seeded by the incarnation, so that a
/// simulation repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) fn seeded(incarnation: Uuid) -> Self {
        let (high, low) = incarnation.as_u64_pair();
        Self(high ^ low)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0.9 to 1.1 of `pause`.
    pub(super) fn around(&mut self, pause: Millis) -> Millis {
        let spread = pause / 5;
        (pause - spread / 2).saturating_add(self.next().checked_rem(spread + 1).unwrap_or(0))
    }
}
