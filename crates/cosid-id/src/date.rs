//! Local times as dates: what a calendar says, without a time zone.

use crate::error::{Error, excerpt};
use crate::radix::Radix;

const DAY_MS: i64 = 86_400_000;

/// A local time by the Gregorian calendar. Signed throughout, so that nothing has to be converted on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Local {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: i64,
    /// 1 to 31.
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) milli: i64,
}

impl Local {
    /// From the ms since 1970-01-01T00:00 of the same calendar.
    pub(crate) fn from_ms(ms: i64) -> Self {
        let (days, ms) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
        // Years begin in March here, so that a leap day is the last of its year; 719,468 days are from the
        // beginning of such a year 0 to 1970, and 146,097 are 400 years.
        let days = days + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Self {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * march_month + 2) / 5 + 1,
            hour: ms / 3_600_000,
            minute: ms / 60_000 % 60,
            second: ms / 1_000 % 60,
            milli: ms % 1_000,
        }
    }

    /// The ms since 1970-01-01T00:00 of the same calendar; `None` if there is no such date or time.
    pub(crate) fn to_ms(self) -> Option<i64> {
        let Self { year, month, day, hour, minute, second, milli } = self;
        let march_year = year - i64::from(month <= 2);
        let (era, year_of_era) = (march_year.div_euclid(400), march_year.rem_euclid(400));
        let march_month = if month > 2 { month - 3 } else { month + 9 };
        let day_of_year = (153 * march_month + 2) / 5 + day - 1;
        let day_of_era = 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468;
        let ms = days * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1_000 + milli;
        // A 30 February or a 24 o'clock comes back as something else.
        (Self::from_ms(ms) == self).then_some(ms)
    }
}

/// A part of a date's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    Year,
    /// The last two digits.
    ShortYear,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Milli,
    /// A printable ASCII character that is neither a letter nor a digit.
    Literal(u8),
}

impl Item {
    const fn width(self) -> usize {
        match self {
            Self::Year => 4,
            Self::Milli => 3,
            Self::Literal(_) => 1,
            _ => 2,
        }
    }
}

/// Bytes of a date.
pub(crate) fn width(items: &[Item]) -> usize {
    items.iter().map(|item| item.width()).sum()
}

/// Appends a date of a year below 10000.
pub(crate) fn push(items: &[Item], local: &Local, to: &mut String) {
    for item in items {
        let number = match *item {
            Item::Year => local.year,
            Item::ShortYear => local.year % 100,
            Item::Month => local.month,
            Item::Day => local.day,
            Item::Hour => local.hour,
            Item::Minute => local.minute,
            Item::Second => local.second,
            Item::Milli => local.milli,
            Item::Literal(byte) => {
                to.push(char::from(byte));
                continue;
            }
        };
        Radix::R10.push(number.unsigned_abs(), item.width(), to);
    }
}

/// Whether a text could be some date: digits and literals where they belong.
pub(crate) fn has_shape(items: &[Item], text: &str) -> bool {
    let shape = items.iter().flat_map(|item| std::iter::repeat_n(*item, item.width()));
    text.len() == width(items)
        && text.bytes().zip(shape).all(|(byte, item)| match item {
            Item::Literal(literal) => byte == literal,
            _ => byte.is_ascii_digit(),
        })
}

/// Reads a pattern: `yyyy`, `yy`, `MM`, `dd`, `HH`, `mm`, `ss`, `SSS` and characters that are no letters or digits.
///
/// # Errors
/// [`Error::BadForm`].
pub(crate) fn items(pattern: &str) -> Result<Vec<Item>, Error> {
    const FIELDS: [(&str, Item); 8] = [
        ("yyyy", Item::Year),
        ("yy", Item::ShortYear),
        ("MM", Item::Month),
        ("dd", Item::Day),
        ("HH", Item::Hour),
        ("mm", Item::Minute),
        ("ss", Item::Second),
        ("SSS", Item::Milli),
    ];
    let mut items = Vec::new();
    let mut rest = pattern;
    while let Some(&byte) = rest.as_bytes().first() {
        let field = FIELDS.iter().find_map(|(name, item)| Some((*item, rest.strip_prefix(name)?)));
        let (item, after) = match field {
            Some(found) => found,
            None if byte.is_ascii_punctuation() || byte == b' ' => (Item::Literal(byte), &rest[1..]),
            None => {
                let why = format!(
                    "date pattern `{}` at `{}`: it can have yyyy, yy, MM, dd, HH, mm, ss, SSS and punctuation",
                    excerpt(pattern),
                    excerpt(rest)
                );
                return Err(Error::BadForm { why });
            }
        };
        items.push(item);
        rest = after;
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_the_day_after_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..2_932_000 {
            let local = Local::from_ms(days * DAY_MS + 3_723_004);
            assert_eq!((local.year, local.month, local.day), (year, month, day));
            assert_eq!((local.hour, local.minute, local.second, local.milli), (1, 2, 3, 4));
            assert_eq!(local.to_ms(), Some(days * DAY_MS + 3_723_004));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 => 28 + i64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, day) if day == last => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
        assert!(year > 9990);
    }

    #[test]
    fn what_no_calendar_or_clock_has_is_no_time() {
        let midnight = Local { year: 2023, month: 3, day: 1, hour: 0, minute: 0, second: 0, milli: 0 };
        assert!(midnight.to_ms().is_some());
        for no_time in [
            Local { month: 0, ..midnight },
            Local { month: 13, ..midnight },
            Local { day: 0, ..midnight },
            Local { day: 32, ..midnight },
            Local { month: 2, day: 29, ..midnight },
            Local { hour: 24, ..midnight },
            Local { minute: 60, ..midnight },
            Local { second: 60, ..midnight },
        ] {
            assert_eq!(no_time.to_ms(), None, "{no_time:?}");
        }
    }

    #[test]
    fn a_pattern_is_read_or_refused() {
        let local = Local::from_ms(1_647_754_577_924);
        for (pattern, expected) in
            [("yyyyMMdd", "20220320"), ("yy-MM.dd HH:mm:ss,SSS", "22-03.20 05:36:17,924"), ("", "")]
        {
            let items = items(pattern).unwrap();
            let mut text = String::new();
            push(&items, &local, &mut text);
            assert_eq!(text, expected);
            assert_eq!(width(&items), expected.len());
            assert!(has_shape(&items, expected) && !has_shape(&items, "2022032x"));
        }
        for pattern in ["y", "yyy", "YYYY", "M", "MMM", "yyyy1", "yyyyä", "'T'", "S"] {
            let refused = items(pattern);
            assert!(matches!(refused, Err(Error::BadForm { .. })), "{pattern}");
        }
    }
}
