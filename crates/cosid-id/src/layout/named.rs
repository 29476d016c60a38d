//! The layouts that people already have in their tables.

use super::{FieldOrder, Layout};

/// CosId's: 2019-12-24T16:00Z.
const COSID_EPOCH_MS: u64 = 1_577_203_200_000;

/// Timestamp, slot and sequence bits, all of ms since CosId's epoch. That the numbers fit is a test.
const fn cosid(timestamp_bits: u8, slot_bits: u8, sequence_bits: u8) -> Layout {
    Layout {
        timestamp_bits,
        slot_bits,
        sequence_bits,
        unit_ms: 1,
        epoch_ms: COSID_EPOCH_MS,
        sequence_threshold: (1 << (sequence_bits - 1)) - 1,
        order: FieldOrder::SlotSequence,
    }
}

impl Layout {
    /// CosId's millisecond Snowflake, the default: 41 bits of ms since 2019-12-24T16:00Z, 10 of slot, 12 of
    /// sequence. 4,096 IDs a millisecond and slot, until 2089.
    pub const MILLISECOND: Self = cosid(41, 10, 12);

    /// CosId's second Snowflake: 31 bits of seconds since 2019-12-24T16:00Z, 10 of slot, 22 of sequence. 4,194,304
    /// IDs a second and slot, whenever in it they are asked for, until 2088.
    pub const SECOND: Self = Self { unit_ms: 1_000, ..cosid(31, 10, 22) };

    /// CosId's millisecond Snowflake for JavaScript, 53 bits: as [`Layout::MILLISECOND`] with 3 bits of slot and 9
    /// of sequence. 8 slots, 512 IDs a millisecond each.
    pub const JAVASCRIPT_MILLISECOND: Self = cosid(41, 3, 9);

    /// CosId's second Snowflake for JavaScript, 53 bits: as [`Layout::SECOND`] with 3 bits of slot and 19 of
    /// sequence. 8 slots, 524,288 IDs a second each.
    pub const JAVASCRIPT_SECOND: Self = Self { unit_ms: 1_000, ..cosid(31, 3, 19) };

    /// Twitter's: as [`Layout::MILLISECOND`], since 1288834974657 (2010-11-04T01:42:54.657Z); until 2080.
    pub const TWITTER: Self = Self { epoch_ms: 1_288_834_974_657, ..cosid(41, 10, 12) };

    /// Data centre and worker, 5 bits each, in the slot ([`SlotSplit`](crate::SlotSplit) takes it apart): a common
    /// scheme with leases in Redis. As [`Layout::MILLISECOND`], since 1483200000000 (2016-12-31T16:00Z); where the
    /// epoch is another one, build it.
    pub const DATACENTER_WORKER: Self = Self { epoch_ms: 1_483_200_000_000, ..cosid(41, 10, 12) };

    /// Sonyflake's: 39 bits of 10 ms since 2014-09-01T00:00Z, then 8 of **sequence**, then 16 of slot. 256 IDs in
    /// 10 ms and slot, until 2188.
    pub const SONYFLAKE: Self = Self {
        unit_ms: 10,
        epoch_ms: 1_409_529_600_000,
        order: FieldOrder::SequenceSlot,
        ..cosid(39, 16, 8)
    };
}
