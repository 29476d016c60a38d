//! Random points in time that a seed repeats.

use std::time::Duration;

/// Pseudo-random numbers (splitmix64).
pub struct Chance(u64);

impl Chance {
    /// Those of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number in `0 .. end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// A length of time, milliseconds in `from .. to`.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}
