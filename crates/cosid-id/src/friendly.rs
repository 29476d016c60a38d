//! Times, slots and sequences as people read them: `yyyyMMddHHmmssSSS-slot-sequence`.

use crate::date::{self, Item, Local};
use crate::radix::Radix;
use crate::zone::Zone;

const SECONDS: [Item; 6] = [Item::Year, Item::Month, Item::Day, Item::Hour, Item::Minute, Item::Second];
const MILLISECONDS: [Item; 7] =
    [Item::Year, Item::Month, Item::Day, Item::Hour, Item::Minute, Item::Second, Item::Milli];

/// How the three are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Friendly {
    pub(crate) zone: Zone,
    /// Without the milliseconds, as CosId has it for layouts in seconds.
    pub(crate) whole_seconds: bool,
    /// Least digits of slot and sequence; 0 is as many as they need.
    pub(crate) widths: (usize, usize),
}

impl Friendly {
    fn items(&self) -> &'static [Item] {
        if self.whole_seconds { &SECONDS } else { &MILLISECONDS }
    }

    pub(crate) fn push(&self, unix_ms: u64, slot: u32, sequence: u32, to: &mut String) {
        date::push(self.items(), &self.zone.local(unix_ms), to);
        for (number, width) in [(slot, self.widths.0), (sequence, self.widths.1)] {
            to.push('-');
            Radix::R10.push(number.into(), width, to);
        }
    }

    /// Unix ms, slot and sequence.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(&self, text: &str) -> Result<(u64, u32, u32), &'static str> {
        let three = "it is not a time, a slot and a sequence with a `-` between them";
        let (time, rest) = text.split_once('-').ok_or(three)?;
        let (slot, sequence) = rest.split_once('-').ok_or(three)?;
        let local =
            read_local(time, self.items()).ok_or("its time has another number of digits or no digits")?;
        let number = |text, width| {
            let number = Radix::R10.parse(text, width)?;
            u32::try_from(number).map_err(|_| "its slot or sequence is too large")
        };
        Ok((self.zone.unix_ms(local)?, number(slot, self.widths.0)?, number(sequence, self.widths.1)?))
    }
}

fn read_local(text: &str, items: &[Item]) -> Option<Local> {
    if !date::has_shape(items, text) {
        return None;
    }
    // All digits, so that any range of bytes is one of characters; the milliseconds may be missing.
    let number = |from: usize, to: usize| text.get(from..to).map_or(Some(0), |digits| digits.parse().ok());
    Some(Local {
        year: number(0, 4)?,
        month: number(4, 6)?,
        day: number(6, 8)?,
        hour: number(8, 10)?,
        minute: number(10, 12)?,
        second: number(12, 14)?,
        milli: number(14, 17)?,
    })
}
