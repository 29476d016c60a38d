//! An ID as a number, and the three fields it is made of.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, excerpt};
use crate::layout::Layout;
use crate::radix::radix62;

/// An ID: 63 bits, so that it fits every signed 64-bit column. Ordered as the number it is, which within one
/// slot and generator is the order of issue.
///
/// It is a bare number, eight bytes as in the column that it comes from, and does not know its layout: the same number is
/// another time and slot in another layout, and one that guessed would be wrong without a word. So what it says is asked
/// for with the layout: [`Id::timestamp`], [`Id::slot`], [`Id::sequence`], or all three by [`Layout::decompose`].
///
/// ```
/// use cosid_id::{Id, Layout};
///
/// let layout = Layout::MILLISECOND;
/// let id: Id = "295913926632165376".parse()?;
/// assert_eq!(id.timestamp(&layout)?, 1_647_754_577_924);
/// assert_eq!((id.slot(&layout)?, id.sequence(&layout)?), (5, 0));
/// assert_eq!(id.to_string(), "295913926632165376");
/// # Ok::<(), cosid_id::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Id(u64);

impl Id {
    /// The largest ID, 2^63 - 1.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The ID as a number, 0 to 2^63 - 1.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Unix ms at which the ID's tick began.
    ///
    /// ```
    /// use cosid_id::{Id, Layout};
    ///
    /// let id: Id = "295913926632165376".parse()?;
    /// assert_eq!(id.timestamp(&Layout::MILLISECOND)?, 1_647_754_577_924);
    /// // 64 bits of another scheme are no ID of these 53, and are not cut to some.
    /// assert!(id.timestamp(&Layout::JAVASCRIPT_MILLISECOND).is_err());
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IdTooWide`] for an ID of another, wider layout.
    pub fn timestamp(self, layout: &Layout) -> Result<u64, Error> {
        layout.decompose(self).map(|parts| parts.timestamp)
    }

    /// The slot (worker id, machine id) that made the ID.
    ///
    /// ```
    /// use cosid_id::{Id, Layout};
    ///
    /// let id: Id = "295913926632165376".parse()?;
    /// assert_eq!(id.slot(&Layout::MILLISECOND)?, 5);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IdTooWide`] for an ID of another, wider layout.
    pub fn slot(self, layout: &Layout) -> Result<u32, Error> {
        layout.decompose(self).map(|parts| parts.slot)
    }

    /// The ID's number within its tick and slot.
    ///
    /// ```
    /// use cosid_id::Layout;
    ///
    /// let layout = Layout::MILLISECOND;
    /// let id = layout.compose(1_647_754_577_924, 5, 7)?;
    /// assert_eq!(id.sequence(&layout)?, 7);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IdTooWide`] for an ID of another, wider layout.
    pub fn sequence(self, layout: &Layout) -> Result<u32, Error> {
        layout.decompose(self).map(|parts| parts.sequence)
    }

    /// Radix 62 as 11 ASCII digits `0-9A-Za-z`, zeros in front: the shortest text that sorts as the number, and the
    /// fastest to write. [`Form`](crate::Form) has all that can be around it.
    ///
    /// ```
    /// use cosid_id::Id;
    ///
    /// assert_eq!(&Id::MAX.to_radix62(), b"AzL8n0Y58m7");
    /// ```
    #[must_use]
    #[inline]
    pub fn to_radix62(self) -> [u8; 11] {
        radix62(self.0)
    }

    /// For numbers that a layout composed: its bits sum to at most 63.
    pub(crate) const fn composed(value: u64) -> Self {
        Self(value)
    }
}

impl From<Id> for u64 {
    fn from(id: Id) -> Self {
        id.0
    }
}

impl TryFrom<u64> for Id {
    type Error = Error;

    /// # Errors
    /// [`Error::BadId`] above 2^63 - 1.
    fn try_from(value: u64) -> Result<Self, Error> {
        if value > Self::MAX.0 {
            return Err(Error::BadId { text: value.to_string(), why: "it is too large" });
        }
        Ok(Self(value))
    }
}

impl TryFrom<i64> for Id {
    type Error = Error;

    /// # Errors
    /// [`Error::BadId`] below 0.
    fn try_from(value: i64) -> Result<Self, Error> {
        u64::try_from(value)
            .map(Self)
            .map_err(|_| Error::BadId { text: value.to_string(), why: "it is negative" })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Id {
    type Err = Error;

    /// Reads a decimal number: digits only, no sign, no spaces.
    ///
    /// # Errors
    /// [`Error::BadId`] for anything else and above 2^63 - 1.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why| Error::BadId { text: excerpt(text), why };
        if text.starts_with('-') {
            return Err(bad("it is negative"));
        }
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad("it is not made of digits only"));
        }
        let value = text.parse::<u64>().map_err(|_| bad("it is too large"))?;
        Self::try_from(value).map_err(|_| bad("it is too large"))
    }
}

/// What an ID says: when, where, and which one of that tick. See [`Layout::decompose`].
///
/// ```
/// use cosid_id::Layout;
///
/// let parts = Layout::MILLISECOND.decompose("295913926632165376".parse()?)?;
/// assert_eq!(parts.timestamp(), 1_647_754_577_924);
/// assert_eq!((parts.slot(), parts.sequence()), (5, 0));
/// # Ok::<(), cosid_id::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IdParts {
    pub(crate) timestamp: u64,
    pub(crate) slot: u32,
    pub(crate) sequence: u32,
}

impl IdParts {
    /// Unix ms at which the ID's tick began.
    #[must_use]
    pub const fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// The slot (worker id, machine id) that made the ID.
    #[must_use]
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// The ID's number within its tick and slot.
    #[must_use]
    pub const fn sequence(&self) -> u32 {
        self.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_id_reads_and_prints_the_same() {
        for text in ["0", "295913926632165376", "9223372036854775807"] {
            assert_eq!(text.parse::<Id>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_id_is_refused_and_never_wrapped() {
        for text in
            ["", "-1", "+1", " 1", "1 ", "0x1", "1e3", "9223372036854775808", "18446744073709551616", "١"]
        {
            let error = text.parse::<Id>().unwrap_err();
            assert!(matches!(error, Error::BadId { .. }), "{text}: {error}");
        }
        assert!(Id::try_from(-1_i64).is_err());
        assert!(Id::try_from(1_u64 << 63).is_err());
        assert_eq!(Id::try_from(i64::MAX).unwrap(), Id::MAX);
    }

    #[test]
    fn an_endless_text_gives_a_short_message() {
        let error = "9".repeat(1 << 20).parse::<Id>().unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}
