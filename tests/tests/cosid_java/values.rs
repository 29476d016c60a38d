//! What is compared: every edge of each field with every edge of the others, and values at random.

use cosid_id::{Id, Layout};

/// Random values of each layout and form, besides the edges.
pub(crate) const RANDOM: usize = 10_000;

/// The layouts that CosId has, by the name that the Java program knows them by.
pub(crate) fn layouts() -> [(&'static str, Layout); 5] {
    // Where nobody gives it another, CosId takes its epoch in seconds for one in milliseconds here: 1970-01-19.
    let since_1970 = Layout::builder().slot_bits(3).sequence_bits(9).epoch_ms(1_577_203_200);
    [
        ("ms", Layout::MILLISECOND),
        ("s", Layout::SECOND),
        ("js-ms", Layout::JAVASCRIPT_MILLISECOND),
        ("js-default-ms", since_1970.build().unwrap()),
        ("js-s", Layout::JAVASCRIPT_SECOND),
    ]
}

/// The same numbers in each run, so that a failure can be looked at again.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 0 to `most`.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The upper half is the good one.
        let high = u128::from(self.0 >> 32 << 32 | self.0.rotate_left(29) >> 32);
        u64::try_from((high * (u128::from(most) + 1)) >> 64).unwrap()
    }

    pub(crate) fn up_to_u32(&mut self, most: u32) -> u32 {
        self.up_to(most.into()).try_into().unwrap()
    }
}

/// Tick, slot and sequence.
pub(crate) type Fields = (u64, u32, u32);

/// Fields up to these largest ones: edges, then random ones.
pub(crate) fn fields(max: Fields, seed: u64) -> Vec<Fields> {
    let edges = |max: u64| {
        let mut edges = vec![0, 1, 2, 9, 10, 35, 36, 61, 62, max / 2, max / 2 + 1, max - 1, max];
        edges.retain(|&edge| edge <= max);
        edges.sort_unstable();
        edges.dedup();
        edges
    };
    let narrow = |value: u64| u32::try_from(value).unwrap();
    let mut all = Vec::new();
    for tick in edges(max.0) {
        for slot in edges(max.1.into()) {
            all.extend(
                edges(max.2.into()).into_iter().map(|sequence| (tick, narrow(slot), narrow(sequence))),
            );
        }
    }
    let mut random = Random::new(seed);
    all.extend((0..RANDOM).map(|_| (random.up_to(max.0), random.up_to_u32(max.1), random.up_to_u32(max.2))));
    all
}

/// IDs of a layout: edges of all fields, then random ones.
pub(crate) fn ids(layout: &Layout, seed: u64) -> Vec<Id> {
    let max = (layout.max_tick(), layout.max_slot(), layout.max_sequence());
    let compose = |(tick, slot, sequence)| layout.compose(layout.tick_start(tick), slot, sequence).unwrap();
    fields(max, seed).into_iter().map(compose).collect()
}
