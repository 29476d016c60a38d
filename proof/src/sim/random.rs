//! Random numbers that a seed repeats (splitmix64).

/// See the [module's text](self).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        // Neighbouring seeds are not to give neighbouring histories.
        let mut random = Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5851_f42d_4c95_7f2d);
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `low` to `high`, both included.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// As often as `per_mille` of a thousand.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1_000 < per_mille
    }

    /// Around zero, at most `most` away.
    pub(crate) fn either_way(&mut self, most: i64) -> i64 {
        let most = most.unsigned_abs();
        let far = i64::try_from(self.within(0, 2 * most)).unwrap_or(0);
        far - i64::try_from(most).unwrap_or(0)
    }

    /// One of them.
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let index = usize::try_from(self.next().checked_rem(of.len() as u64)?).ok()?;
        of.get(index).cloned()
    }
}
