//! Times for people.

use jiff::Timestamp;

/// Unix ms with RFC 3339 beside it; the number alone where it is past what a date can be.
pub(crate) fn moment(ms: impl TryInto<i64> + std::fmt::Display + Copy) -> String {
    let time = ms.try_into().ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| format!("{ms} (Unix ms)"), |time| format!("{ms} (Unix ms, {time})"))
}

#[cfg(test)]
mod tests {
    use super::moment;

    #[test]
    fn a_time_has_its_date_beside_it_where_there_is_one() {
        assert_eq!(moment(1_795_000_000_123_u64), "1795000000123 (Unix ms, 2026-11-18T11:06:40.123Z)");
        assert_eq!(moment(u64::MAX), "18446744073709551615 (Unix ms)");
    }
}
