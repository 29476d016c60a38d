//! Which bits of an ID say what, and which time a tick stands for.
//!
//! A *tick* is a timestamp as it is stored in an ID: whole units since the epoch. With a unit of 1 ms a tick is
//! a millisecond; with a coarser unit it stands for all the milliseconds from [`Layout::tick_start`] to
//! [`Layout::tick_end`], and whoever issues in it must own all of them.

use crate::error::Error;
use crate::id::{Id, IdParts};

/// How an ID is laid out: timestamp, slot and sequence, from the highest bit to the lowest.
///
/// Only layouts that can work exist: the bits sum to at most 63 and the timestamps last for a year at least.
///
/// ```
/// use cosid_id::Layout;
///
/// let layout = Layout::builder().slot_bits(5).sequence_bits(17).build()?;
/// assert_eq!(layout.max_slot(), 31);
/// let id = layout.compose(1_700_000_000_000, 31, 7)?;
/// assert_eq!(layout.decompose(id)?.sequence(), 7);
/// # Ok::<(), cosid_id::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "LayoutBuilder", into = "LayoutBuilder"))]
pub struct Layout {
    timestamp_bits: u8,
    slot_bits: u8,
    sequence_bits: u8,
    unit_ms: u32,
    epoch_ms: u64,
    sequence_threshold: u32,
}

/// A bit short of the 64 of a page's state word, so that its closed mark and a carry both fit.
const MAX_STATE_BITS: u32 = 62;
const MAX_ID_BITS: u32 = 63;
/// Slots and sequences are `u32`; half of it is more than any known layout has.
const MAX_FIELD_BITS: u8 = 31;
const YEAR_MS: u128 = 365 * 24 * 3600 * 1000;

impl Layout {
    /// CosId's millisecond Snowflake, the default: 41 bits of ms since 2019-12-24T16:00Z, 10 of slot, 12 of
    /// sequence.
    pub const MILLISECOND: Self = Self {
        timestamp_bits: 41,
        slot_bits: 10,
        sequence_bits: 12,
        unit_ms: 1,
        epoch_ms: 1_577_203_200_000,
        sequence_threshold: 2047,
    };

    /// Starts from [`Layout::MILLISECOND`]; change what differs.
    pub const fn builder() -> LayoutBuilder {
        let Self { timestamp_bits, slot_bits, sequence_bits, unit_ms, epoch_ms, .. } = Self::MILLISECOND;
        LayoutBuilder {
            timestamp_bits,
            slot_bits,
            sequence_bits,
            unit_ms,
            epoch_ms,
            sequence_threshold: None,
        }
    }

    /// Bits of the timestamp.
    #[must_use]
    pub const fn timestamp_bits(&self) -> u8 {
        self.timestamp_bits
    }

    /// Bits of the slot.
    #[must_use]
    pub const fn slot_bits(&self) -> u8 {
        self.slot_bits
    }

    /// Bits of the sequence.
    #[must_use]
    pub const fn sequence_bits(&self) -> u8 {
        self.sequence_bits
    }

    /// Milliseconds of one tick.
    #[must_use]
    pub const fn unit_ms(&self) -> u32 {
        self.unit_ms
    }

    /// Unix ms of tick 0.
    #[must_use]
    pub const fn epoch_ms(&self) -> u64 {
        self.epoch_ms
    }

    /// The sequence from which on a new tick starts over (CosId's reset threshold). Below it a new tick goes
    /// on counting, so that `id % n` spreads evenly at low rates.
    #[must_use]
    pub const fn sequence_threshold(&self) -> u32 {
        self.sequence_threshold
    }

    /// The largest slot.
    #[must_use]
    pub const fn max_slot(&self) -> u32 {
        (1 << self.slot_bits) - 1
    }

    /// The largest sequence.
    #[must_use]
    pub const fn max_sequence(&self) -> u32 {
        (1 << self.sequence_bits) - 1
    }

    /// The largest tick.
    #[must_use]
    pub const fn max_tick(&self) -> u64 {
        (1 << self.timestamp_bits) - 1
    }

    /// Unix ms at which a tick begins. Saturates for ticks no layout has.
    #[must_use]
    pub const fn tick_start(&self, tick: u64) -> u64 {
        self.epoch_ms.saturating_add(tick.saturating_mul(self.unit_ms as u64))
    }

    /// The last Unix ms of a tick: with a unit of 1 ms the same as its start.
    #[must_use]
    pub const fn tick_end(&self, tick: u64) -> u64 {
        self.tick_start(tick).saturating_add(self.unit_ms as u64 - 1)
    }

    /// The tick that a time falls into.
    ///
    /// # Errors
    /// [`Error::BeforeEpoch`] and [`Error::PastLayout`].
    pub fn tick_at(&self, unix_ms: u64) -> Result<u64, Error> {
        let tick =
            self.ticks_to(unix_ms).ok_or(Error::BeforeEpoch { timestamp: unix_ms, epoch: self.epoch_ms })?;
        if tick > self.max_tick() {
            return Err(Error::PastLayout { timestamp: unix_ms, last: self.tick_end(self.max_tick()) });
        }
        Ok(tick)
    }

    /// Whole ticks from the epoch to a time, also more than the layout's bits hold; `None` before the epoch.
    pub(crate) fn ticks_to(&self, unix_ms: u64) -> Option<u64> {
        let since = unix_ms.checked_sub(self.epoch_ms)?;
        Some(since / u64::from(self.unit_ms))
    }

    /// The first tick that lies wholly above a floor (Unix ms, exclusive).
    pub(crate) fn first_tick_above(&self, floor: u64) -> u64 {
        self.ticks_to(floor).map_or(0, |tick| tick + 1)
    }

    /// Puts an ID together.
    ///
    /// # Errors
    /// [`Error::BeforeEpoch`], [`Error::PastLayout`], [`Error::SlotTooLarge`], [`Error::SequenceTooLarge`].
    pub fn compose(&self, unix_ms: u64, slot: u32, sequence: u32) -> Result<Id, Error> {
        let tick = self.tick_at(unix_ms)?;
        self.check_slot(slot)?;
        if sequence > self.max_sequence() {
            return Err(Error::SequenceTooLarge { sequence, max: self.max_sequence() });
        }
        Ok(self.compose_fields(tick, slot, sequence))
    }

    /// [`Layout::compose`] for fields that are known to fit: one ID costs two shifts.
    pub(crate) const fn compose_fields(&self, tick: u64, slot: u32, sequence: u32) -> Id {
        let high = (tick << self.slot_bits) | slot as u64;
        Id::composed((high << self.sequence_bits) | sequence as u64)
    }

    /// Takes an ID apart.
    ///
    /// # Errors
    /// [`Error::IdTooWide`] for an ID of another, wider layout.
    pub fn decompose(&self, id: Id) -> Result<IdParts, Error> {
        let bits = self.timestamp_bits + self.slot_bits + self.sequence_bits;
        let id = id.get();
        if id >> bits != 0 {
            return Err(Error::IdTooWide { id, bits });
        }
        Ok(IdParts {
            timestamp: self.tick_start(id >> (self.slot_bits + self.sequence_bits)),
            slot: low_bits(id >> self.sequence_bits, self.slot_bits),
            sequence: low_bits(id, self.sequence_bits),
        })
    }

    /// # Errors
    /// [`Error::SlotTooLarge`].
    pub(crate) const fn check_slot(&self, slot: u32) -> Result<(), Error> {
        if slot > self.max_slot() {
            return Err(Error::SlotTooLarge { slot, max: self.max_slot() });
        }
        Ok(())
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "masked to at most MAX_FIELD_BITS bits, fewer than u32 has"
)]
pub(crate) const fn low_bits(value: u64, bits: u8) -> u32 {
    (value & ((1 << bits) - 1)) as u32
}

/// What a layout is asked to be; [`LayoutBuilder::build`] says whether it can.
///
/// With the feature `serde` this is the JSON form of a layout, in which only the three bit widths are
/// required. An unknown field is an error: a newer layout read as an older one would make other IDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
#[must_use]
pub struct LayoutBuilder {
    timestamp_bits: u8,
    slot_bits: u8,
    sequence_bits: u8,
    #[cfg_attr(feature = "serde", serde(rename = "unitMillis", default = "default_unit"))]
    unit_ms: u32,
    #[cfg_attr(feature = "serde", serde(rename = "epoch", default = "default_epoch"))]
    epoch_ms: u64,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    sequence_threshold: Option<u32>,
}

#[cfg(feature = "serde")]
const fn default_unit() -> u32 {
    Layout::MILLISECOND.unit_ms
}

#[cfg(feature = "serde")]
const fn default_epoch() -> u64 {
    Layout::MILLISECOND.epoch_ms
}

impl LayoutBuilder {
    /// Bits of the timestamp, default 41.
    pub const fn timestamp_bits(mut self, bits: u8) -> Self {
        self.timestamp_bits = bits;
        self
    }

    /// Bits of the slot, 0 to 31, default 10.
    pub const fn slot_bits(mut self, bits: u8) -> Self {
        self.slot_bits = bits;
        self
    }

    /// Bits of the sequence, 1 to 31, default 12.
    pub const fn sequence_bits(mut self, bits: u8) -> Self {
        self.sequence_bits = bits;
        self
    }

    /// Milliseconds of one tick, default 1.
    pub const fn unit_ms(mut self, unit_ms: u32) -> Self {
        self.unit_ms = unit_ms;
        self
    }

    /// Unix ms of tick 0, default 1577203200000 (2019-12-24T16:00Z).
    pub const fn epoch_ms(mut self, epoch_ms: u64) -> Self {
        self.epoch_ms = epoch_ms;
        self
    }

    /// The sequence from which on a new tick starts over; default: the last one of the lower half.
    pub const fn sequence_threshold(mut self, threshold: u32) -> Self {
        self.sequence_threshold = Some(threshold);
        self
    }

    /// # Errors
    /// [`Error::BadLayout`] says which number does not fit.
    pub fn build(self) -> Result<Layout, Error> {
        let Self { timestamp_bits, slot_bits, sequence_bits, unit_ms, epoch_ms, .. } = self;
        let refuse = |why: String| Err(Error::BadLayout { why });
        if sequence_bits == 0 {
            return refuse("it has no sequence bits, at least 1 is needed".into());
        }
        if slot_bits > MAX_FIELD_BITS || sequence_bits > MAX_FIELD_BITS {
            return refuse(format!(
                "{slot_bits} slot and {sequence_bits} sequence bits, at most {MAX_FIELD_BITS} each"
            ));
        }
        let state_bits = u32::from(timestamp_bits) + u32::from(sequence_bits);
        if state_bits > MAX_STATE_BITS || state_bits + u32::from(slot_bits) > MAX_ID_BITS {
            return refuse(format!(
                "{timestamp_bits} + {slot_bits} + {sequence_bits} bits: at most {MAX_ID_BITS} in all, and \
                 {MAX_STATE_BITS} without the slot's"
            ));
        }
        let span_ms = u128::from(unit_ms) << timestamp_bits;
        if span_ms < YEAR_MS {
            return refuse(format!("{timestamp_bits} bits of {unit_ms} ms are used up within a year"));
        }
        if u128::from(epoch_ms) + span_ms > i64::MAX as u128 {
            return refuse(format!("its last timestamp, from epoch {epoch_ms} on, is beyond 63 bits of ms"));
        }
        let max_sequence = (1 << sequence_bits) - 1;
        let sequence_threshold = self.sequence_threshold.unwrap_or(max_sequence >> 1);
        if sequence_threshold > max_sequence {
            return refuse(format!(
                "sequence threshold {sequence_threshold} above the largest sequence {max_sequence}"
            ));
        }
        Ok(Layout { timestamp_bits, slot_bits, sequence_bits, unit_ms, epoch_ms, sequence_threshold })
    }
}

impl From<Layout> for LayoutBuilder {
    fn from(layout: Layout) -> Self {
        let Layout { timestamp_bits, slot_bits, sequence_bits, unit_ms, epoch_ms, sequence_threshold } =
            layout;
        let default = layout.max_sequence() >> 1;
        let sequence_threshold = (sequence_threshold != default).then_some(sequence_threshold);
        Self { timestamp_bits, slot_bits, sequence_bits, unit_ms, epoch_ms, sequence_threshold }
    }
}

impl TryFrom<LayoutBuilder> for Layout {
    type Error = Error;

    fn try_from(builder: LayoutBuilder) -> Result<Self, Error> {
        builder.build()
    }
}
