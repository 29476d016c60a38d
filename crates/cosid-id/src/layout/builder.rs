//! Layouts from numbers, checked.

use super::{Layout, MAX_FIELD_BITS, MAX_ID_BITS, MAX_STATE_BITS, YEAR_MS};
use crate::error::Error;

/// Which field follows the timestamp.
///
/// Either way IDs of one slot and generator grow. Across slots they are ordered by timestamp, and within a tick by the
/// field that follows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub enum FieldOrder {
    /// Timestamp, slot, sequence: Twitter's and CosId's.
    #[default]
    SlotSequence,
    /// Timestamp, sequence, slot: Sonyflake's.
    SequenceSlot,
}

/// What a layout is asked to be; [`LayoutBuilder::build`] says whether it can.
///
/// With the feature `serde` this is the JSON form of a layout, in which only the three bit widths are
/// required. `order` is `slotSequence` or `sequenceSlot`. An unknown field is an error: a newer layout read as an older one would make other IDs.
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
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    order: FieldOrder,
}

#[cfg(feature = "serde")]
fn is_default(order: &FieldOrder) -> bool {
    *order == FieldOrder::default()
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
    pub(super) const fn new(layout: Layout) -> Self {
        let Layout { timestamp_bits, slot_bits, sequence_bits, unit_ms, epoch_ms, order, .. } = layout;
        Self { timestamp_bits, slot_bits, sequence_bits, unit_ms, epoch_ms, sequence_threshold: None, order }
    }

    /// Bits of the timestamp, default 41.
    ///
    /// ```
    /// use cosid_id::Layout;
    ///
    /// let layout = Layout::builder().timestamp_bits(40).build()?;
    /// assert_eq!(layout.max_tick(), (1 << 40) - 1);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    pub const fn timestamp_bits(mut self, bits: u8) -> Self {
        self.timestamp_bits = bits;
        self
    }

    /// Bits of the slot, 0 to 31, default 10.
    ///
    /// ```
    /// use cosid_id::Layout;
    ///
    /// assert_eq!(Layout::builder().slot_bits(8).build()?.max_slot(), 255);
    /// assert!(Layout::builder().slot_bits(11).build().is_err(), "41 + 11 + 12 bits are more than 63");
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    pub const fn slot_bits(mut self, bits: u8) -> Self {
        self.slot_bits = bits;
        self
    }

    /// Bits of the sequence, 1 to 31, default 12.
    ///
    /// ```
    /// use cosid_id::Layout;
    ///
    /// let layout = Layout::builder().slot_bits(8).sequence_bits(14).build()?;
    /// assert_eq!(layout.max_sequence(), 16_383);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    pub const fn sequence_bits(mut self, bits: u8) -> Self {
        self.sequence_bits = bits;
        self
    }

    /// Milliseconds of one tick, default 1.
    ///
    /// ```
    /// use cosid_id::Layout;
    ///
    /// let layout = Layout::builder().timestamp_bits(38).unit_ms(10).build()?;
    /// let id = layout.compose(1_647_754_577_924, 5, 0)?;
    /// assert_eq!(id.timestamp(&layout)?, 1_647_754_577_920);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    pub const fn unit_ms(mut self, unit_ms: u32) -> Self {
        self.unit_ms = unit_ms;
        self
    }

    /// Unix ms of tick 0, default 1577203200000 (2019-12-24T16:00Z).
    ///
    /// ```
    /// use cosid_id::Layout;
    ///
    /// let layout = Layout::builder().epoch_ms(1_700_000_000_000).build()?;
    /// assert_eq!(layout.tick_at(1_700_000_000_007)?, 7);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    pub const fn epoch_ms(mut self, epoch_ms: u64) -> Self {
        self.epoch_ms = epoch_ms;
        self
    }

    /// The sequence from which on a new tick starts over; default: the last one of the lower half.
    ///
    /// ```
    /// use cosid_id::Layout;
    ///
    /// assert_eq!(Layout::builder().build()?.sequence_threshold(), 2_047);
    /// // Each tick starts over: at a slow pace nearly all IDs are then odd.
    /// let layout = Layout::builder().sequence_threshold(0).build()?;
    /// assert_eq!(layout.sequence_threshold(), 0);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    pub const fn sequence_threshold(mut self, threshold: u32) -> Self {
        self.sequence_threshold = Some(threshold);
        self
    }

    /// Which field follows the timestamp, default the slot.
    ///
    /// ```
    /// use cosid_id::{FieldOrder, Layout};
    ///
    /// let layout = Layout::builder().order(FieldOrder::SequenceSlot).build()?;
    /// let id = layout.compose(layout.epoch_ms(), 5, 1)?;
    /// assert_eq!(id.get(), 1 << 10 | 5);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    pub const fn order(mut self, order: FieldOrder) -> Self {
        self.order = order;
        self
    }

    /// The layout of a *new* ID space, which at `now` (Unix ms) has begun and lasts for a year at least.
    ///
    /// An ID space that exists is better built by [`LayoutBuilder::build`]: it goes on until its last timestamp.
    ///
    /// ```
    /// use cosid_id::{Error, Layout};
    ///
    /// let now = 1_700_000_000_000;
    /// assert!(Layout::builder().build_new(now).is_ok());
    /// let tomorrow = Layout::builder().epoch_ms(now + 86_400_000);
    /// assert!(matches!(tomorrow.build_new(now), Err(Error::BadLayout { .. })));
    /// ```
    ///
    /// # Errors
    /// [`Error::BadLayout`] says which number does not fit.
    pub fn build_new(self, now: u64) -> Result<Layout, Error> {
        let layout = self.build()?;
        let refuse = |why| Err(Error::BadLayout { why });
        let epoch = layout.epoch_ms;
        if epoch > now {
            return refuse(format!("its epoch {epoch} is in the future, it is {now} now (Unix ms)"));
        }
        let last = layout.tick_end(layout.max_tick());
        if u128::from(last) < u128::from(now) + YEAR_MS {
            return refuse(format!("its last timestamp {last} is within a year of {now} (Unix ms)"));
        }
        Ok(layout)
    }

    /// # Errors
    /// [`Error::BadLayout`] says which number does not fit.
    pub fn build(self) -> Result<Layout, Error> {
        let Self { timestamp_bits, slot_bits, sequence_bits, unit_ms, epoch_ms, order, .. } = self;
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
        Ok(Layout { timestamp_bits, slot_bits, sequence_bits, unit_ms, epoch_ms, sequence_threshold, order })
    }
}

impl From<Layout> for LayoutBuilder {
    fn from(layout: Layout) -> Self {
        let half = layout.max_sequence() >> 1;
        let sequence_threshold = (layout.sequence_threshold != half).then_some(layout.sequence_threshold);
        Self { sequence_threshold, ..Self::new(layout) }
    }
}

impl TryFrom<LayoutBuilder> for Layout {
    type Error = Error;

    fn try_from(builder: LayoutBuilder) -> Result<Self, Error> {
        builder.build()
    }
}
