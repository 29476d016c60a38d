//! Which bits of an ID say what, and which time a tick stands for.
//!
//! A *tick* is a timestamp as it is stored in an ID: whole units since the epoch. With a unit of 1 ms a tick is
//! a millisecond; with a coarser unit it stands for all the milliseconds from [`Layout::tick_start`] to
//! [`Layout::tick_end`], and whoever issues in it must own all of them.

mod builder;
mod named;

pub use builder::{FieldOrder, LayoutBuilder};

use crate::error::Error;
use crate::id::{Id, IdParts};
use crate::proof::bug;

/// How an ID is laid out: the timestamp in the highest bits, then slot and sequence in either order.
///
/// What people already have in their tables has a name here ([`Layout::TWITTER`], [`Layout::SONYFLAKE`] and so on);
/// [`Layout::builder`] makes any other.
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
    order: FieldOrder,
}

/// A bit short of the 64 of a page's state word, so that its closed mark and a carry both fit.
const MAX_STATE_BITS: u32 = 62;
const MAX_ID_BITS: u32 = 63;
/// Slots and sequences are `u32`; half of it is more than any known layout has.
const MAX_FIELD_BITS: u8 = 31;
const YEAR_MS: u128 = 365 * 24 * 3600 * 1000;

impl Layout {
    /// Starts from [`Layout::MILLISECOND`]; change what differs.
    pub const fn builder() -> LayoutBuilder {
        LayoutBuilder::new(Self::MILLISECOND)
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

    /// Which field follows the timestamp.
    #[must_use]
    pub const fn order(&self) -> FieldOrder {
        self.order
    }

    /// Bits of an ID: the sum of its fields', at most 63.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.timestamp_bits + self.slot_bits + self.sequence_bits
    }

    /// Whether JavaScript's numbers hold every ID exactly (53 bits). IDs of other layouts must go there as strings.
    ///
    /// ```
    /// use cosid_id::Layout;
    ///
    /// assert!(Layout::JAVASCRIPT_MILLISECOND.is_javascript_safe());
    /// assert!(!Layout::MILLISECOND.is_javascript_safe());
    /// ```
    #[must_use]
    pub const fn is_javascript_safe(&self) -> bool {
        self.bits() <= 53
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
        let half = self.unit_ms > 1 && bug("half_a_unit_at_the_floor");
        self.ticks_to(floor).map_or(0, |tick| tick + u64::from(!half))
    }

    /// Puts an ID together, from Unix ms (rounded down to the unit), slot and sequence.
    ///
    /// ```
    /// use cosid_id::Layout;
    ///
    /// let id = Layout::MILLISECOND.compose(1_647_754_577_924, 5, 0)?;
    /// assert_eq!(id.to_string(), "295913926632165376");
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
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

    /// [`Layout::compose`] for fields that are known to fit.
    pub(crate) const fn compose_fields(&self, tick: u64, slot: u32, sequence: u32) -> Id {
        let low = (slot as u64) << self.slot_shift() | (sequence as u64) << self.sequence_shift();
        Id::composed(tick << (self.slot_bits + self.sequence_bits) | low)
    }

    /// Takes an ID apart.
    ///
    /// ```
    /// use cosid_id::Layout;
    ///
    /// let parts = Layout::MILLISECOND.decompose("295913926632165376".parse()?)?;
    /// assert_eq!((parts.timestamp(), parts.slot(), parts.sequence()), (1_647_754_577_924, 5, 0));
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IdTooWide`] for an ID of another, wider layout.
    pub fn decompose(&self, id: Id) -> Result<IdParts, Error> {
        self.check_id(id)?;
        let timestamp = self.timestamp(id);
        let id = id.get();
        Ok(IdParts {
            timestamp,
            slot: low_bits(id >> self.slot_shift(), self.slot_bits),
            sequence: low_bits(id >> self.sequence_shift(), self.sequence_bits),
        })
    }

    /// Unix ms at which the tick of an ID of this layout began.
    pub(crate) const fn timestamp(&self, id: Id) -> u64 {
        self.tick_start(id.get() >> (self.slot_bits + self.sequence_bits))
    }

    /// How far up an ID's slot is.
    pub(crate) const fn slot_shift(&self) -> u8 {
        match self.order {
            FieldOrder::SlotSequence => self.sequence_bits,
            FieldOrder::SequenceSlot => 0,
        }
    }

    /// How far up an ID's sequence is: IDs that follow each other within a tick are `1 << sequence_shift` apart.
    pub(crate) const fn sequence_shift(&self) -> u8 {
        match self.order {
            FieldOrder::SlotSequence => 0,
            FieldOrder::SequenceSlot => self.slot_bits,
        }
    }

    /// # Errors
    /// [`Error::IdTooWide`].
    pub(crate) const fn check_id(&self, id: Id) -> Result<(), Error> {
        let (id, bits) = (id.get(), self.bits());
        if id >> bits != 0 {
            return Err(Error::IdTooWide { id, bits });
        }
        Ok(())
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
