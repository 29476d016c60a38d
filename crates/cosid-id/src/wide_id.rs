//! CosIdGenerator's IDs of 80 bits, which live as text.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, excerpt};
use crate::friendly::Friendly;
use crate::id::Id;
use crate::layout::Layout;
use crate::radix::{Radix, radix62};
use crate::zone::Zone;

/// An ID of CosId's `CosIdGenerator`: 44 bits of Unix ms, 20 of slot, 16 of sequence. Too wide for a number, it is kept
/// as text: 15 characters of radix 62 (8 + 4 + 3), which sort by bytes as the IDs do.
///
/// A pool's IDs have fewer bits, so each of them has one of these: [`WideId::from_id`] is how a table with such strings
/// is carried on, with the pool's layout (ms, at most 20 bits of slot and 16 of sequence).
///
/// ```
/// use cosid_id::{Layout, WideId};
///
/// let layout = Layout::MILLISECOND;
/// let wide = WideId::from_id(&layout, "295913926632165376".parse()?)?;
/// assert_eq!(wide.to_string(), "0T0b4Hki0005000");
/// assert_eq!((wide.timestamp(), wide.slot(), wide.sequence()), (1_647_754_577_924, 5, 0));
/// assert_eq!("0T0b4Hki0005000".parse::<WideId>()?, wide);
/// # Ok::<(), cosid_id::Error>(())
/// ```
// Ordered as its fields are, from the first on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WideId {
    timestamp: u64,
    slot: u32,
    sequence: u32,
}

impl WideId {
    /// The largest timestamp, Unix ms: 2^44 - 1, in the year 2527.
    pub const MAX_TIMESTAMP: u64 = (1 << 44) - 1;
    /// The largest slot, 2^20 - 1.
    pub const MAX_SLOT: u32 = (1 << 20) - 1;
    /// The largest sequence, 2^16 - 1.
    pub const MAX_SEQUENCE: u32 = (1 << 16) - 1;

    /// Puts an ID together, from Unix ms, slot and sequence.
    ///
    /// # Errors
    /// [`Error::PastLayout`], [`Error::SlotTooLarge`], [`Error::SequenceTooLarge`].
    pub const fn new(timestamp: u64, slot: u32, sequence: u32) -> Result<Self, Error> {
        if timestamp > Self::MAX_TIMESTAMP {
            return Err(Error::PastLayout { timestamp, last: Self::MAX_TIMESTAMP });
        }
        if slot > Self::MAX_SLOT {
            return Err(Error::SlotTooLarge { slot, max: Self::MAX_SLOT });
        }
        if sequence > Self::MAX_SEQUENCE {
            return Err(Error::SequenceTooLarge { sequence, max: Self::MAX_SEQUENCE });
        }
        Ok(Self { timestamp, slot, sequence })
    }

    /// The same timestamp, slot and sequence as an ID of a layout: different IDs of one layout never get equal.
    ///
    /// # Errors
    /// [`Error::IdTooWide`] for an ID of another, wider layout, and those of [`WideId::new`].
    pub fn from_id(layout: &Layout, id: Id) -> Result<Self, Error> {
        let parts = layout.decompose(id)?;
        Self::new(parts.timestamp(), parts.slot(), parts.sequence())
    }

    /// Unix ms.
    #[must_use]
    pub const fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// The slot (machine id).
    #[must_use]
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// The ID's number within its millisecond and slot.
    #[must_use]
    pub const fn sequence(&self) -> u32 {
        self.sequence
    }

    /// 17 characters of radix 36, `0-9A-Z` (9 + 4 + 4).
    ///
    /// ```
    /// use cosid_id::WideId;
    ///
    /// let id = WideId::new(1_647_754_577_924, 5, 35)?;
    /// assert_eq!(id.to_radix36(), "0L0YUJ5DW0005000Z");
    /// assert_eq!(WideId::from_radix36("0L0YUJ5DW0005000Z")?, id);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    #[must_use]
    pub fn to_radix36(&self) -> String {
        let mut text = String::with_capacity(17);
        let fields = [self.timestamp, self.slot.into(), self.sequence.into()];
        for (field, width) in fields.into_iter().zip(widths(Radix::R36)) {
            Radix::R36.push(field, width, &mut text);
        }
        text
    }

    /// Reads what [`WideId::to_radix36`] writes.
    ///
    /// # Errors
    /// [`Error::BadText`], and those of [`WideId::new`].
    pub fn from_radix36(text: &str) -> Result<Self, Error> {
        Self::from_digits(Radix::R36, "radix 36", text)
    }

    /// `yyyyMMddHHmmssSSS-slot-sequence`, the timestamp as local time.
    ///
    /// ```
    /// use cosid_id::{WideId, Zone};
    ///
    /// let id = WideId::new(1_647_754_577_924, 5, 35)?;
    /// assert_eq!(id.to_friendly(&Zone::UTC), "20220320053617924-5-35");
    /// assert_eq!(WideId::from_friendly("20220320053617924-5-35", &Zone::UTC)?, id);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    #[must_use]
    pub fn to_friendly(&self, zone: &Zone) -> String {
        let mut text = String::with_capacity(32);
        friendly(zone).push(self.timestamp, self.slot, self.sequence, &mut text);
        text
    }

    /// Reads what [`WideId::to_friendly`] writes, except for times that came twice in the zone.
    ///
    /// # Errors
    /// [`Error::BadText`], and those of [`WideId::new`].
    pub fn from_friendly(text: &str, zone: &Zone) -> Result<Self, Error> {
        let parts = friendly(zone).parse(text);
        let (timestamp, slot, sequence) = parts.map_err(|why| bad_text(text, "friendly", why))?;
        Self::new(timestamp, slot, sequence)
    }

    /// 15 ASCII digits of radix 62, `0-9A-Za-z` (8 + 4 + 3), with no `String` around them: what `Display` writes.
    ///
    /// ```
    /// use cosid_id::WideId;
    ///
    /// assert_eq!(&WideId::new(1_647_754_577_924, 5, 35)?.to_radix62(), b"0T0b4Hki000500Z");
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn to_radix62(&self) -> [u8; 15] {
        let [_, _, _, a, b, c, d, e, f, g, h] = radix62(self.timestamp);
        let [.., i, j, k, l] = radix62(self.slot.into());
        let [.., m, n, o] = radix62(self.sequence.into());
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o]
    }

    fn from_digits(radix: Radix, form: &'static str, text: &str) -> Result<Self, Error> {
        let bad = |why| bad_text(text, form, why);
        let mut rest = text;
        let mut fields = [0; 3];
        for (field, width) in fields.iter_mut().zip(widths(radix)) {
            let (digits, after) = rest.split_at_checked(width).ok_or_else(|| bad("it is too short"))?;
            *field = radix.parse(digits, width).map_err(bad)?;
            rest = after;
        }
        if !rest.is_empty() {
            return Err(bad("it is too long"));
        }
        let [timestamp, slot, sequence] = fields;
        let field = |field: u64| u32::try_from(field).unwrap_or(u32::MAX);
        Self::new(timestamp, field(slot), field(sequence))
    }
}

/// In radix 62.
impl fmt::Display for WideId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All ASCII.
        f.pad(str::from_utf8(&self.to_radix62()).unwrap_or_default())
    }
}

impl FromStr for WideId {
    type Err = Error;

    /// Reads 15 characters of radix 62.
    ///
    /// # Errors
    /// [`Error::BadText`], and those of [`WideId::new`].
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::from_digits(Radix::R62, "radix 62", text)
    }
}

/// Digits of timestamp, slot and sequence.
fn widths(radix: Radix) -> [usize; 3] {
    [44, 20, 16].map(|bits| radix.width(bits))
}

fn friendly(zone: &Zone) -> Friendly {
    Friendly { zone: zone.clone(), whole_seconds: false, widths: (0, 0) }
}

fn bad_text(text: &str, form: &'static str, why: &str) -> Error {
    Error::BadText { text: excerpt(text), form, why: why.into() }
}
