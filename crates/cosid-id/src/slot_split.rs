//! A slot of two parts.

use crate::error::Error;

/// How a slot is made of two parts, as in the schemes that have a data centre and a worker instead of one number.
///
/// The upper part is in the higher bits. Here the slot as a whole is what is leased; the parts are a way to read it.
///
/// ```
/// use cosid_id::{Layout, SlotSplit};
///
/// let id = Layout::DATACENTER_WORKER.compose(1_700_000_000_000, SlotSplit::FIVE_FIVE.join(3, 17)?, 0)?;
/// let slot = Layout::DATACENTER_WORKER.decompose(id)?.slot();
/// assert_eq!(slot, 3 * 32 + 17);
/// assert_eq!(SlotSplit::FIVE_FIVE.split(slot)?, (3, 17));
/// # Ok::<(), cosid_id::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotSplit {
    upper_bits: u8,
    lower_bits: u8,
}

impl SlotSplit {
    /// 5 bits of data centre, 5 of worker.
    pub const FIVE_FIVE: Self = Self { upper_bits: 5, lower_bits: 5 };

    /// Bits of the upper part (data centre) and of the lower one (worker).
    ///
    /// # Errors
    /// [`Error::BadLayout`] if they sum to more than the 31 that a slot can have.
    pub fn new(upper_bits: u8, lower_bits: u8) -> Result<Self, Error> {
        if u16::from(upper_bits) + u16::from(lower_bits) > 31 {
            return Err(Error::BadLayout {
                why: format!("a slot of {upper_bits} + {lower_bits} bits, at most 31 in all"),
            });
        }
        Ok(Self { upper_bits, lower_bits })
    }

    /// The slot made of these parts.
    ///
    /// ```
    /// use cosid_id::SlotSplit;
    ///
    /// let split = SlotSplit::new(2, 8)?;
    /// assert_eq!(split.join(3, 17)?, 3 * 256 + 17);
    /// assert!(split.join(4, 17).is_err(), "two bits hold 0 to 3");
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SlotTooLarge`] names the part that does not fit.
    pub const fn join(self, upper: u32, lower: u32) -> Result<u32, Error> {
        if upper >> self.upper_bits != 0 {
            return Err(Error::SlotTooLarge { slot: upper, max: (1 << self.upper_bits) - 1 });
        }
        if lower >> self.lower_bits != 0 {
            return Err(Error::SlotTooLarge { slot: lower, max: (1 << self.lower_bits) - 1 });
        }
        Ok(upper << self.lower_bits | lower)
    }

    /// The upper and the lower part of a slot.
    ///
    /// ```
    /// use cosid_id::SlotSplit;
    ///
    /// let split = SlotSplit::new(2, 8)?;
    /// assert_eq!(split.split(3 * 256 + 17)?, (3, 17));
    /// assert!(split.split(1024).is_err());
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SlotTooLarge`] for a slot of more bits.
    pub const fn split(self, slot: u32) -> Result<(u32, u32), Error> {
        let bits = self.upper_bits + self.lower_bits;
        if slot >> bits != 0 {
            return Err(Error::SlotTooLarge { slot, max: (1 << bits) - 1 });
        }
        Ok((slot >> self.lower_bits, slot & ((1 << self.lower_bits) - 1)))
    }
}
