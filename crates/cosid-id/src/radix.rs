//! Numbers as digits in radix 10, 36 and 62.

/// CosId's: in the order of ASCII, so that texts of one length sort as their numbers do.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Digits that any text here may have: all that a `u64` has in radix 10.
pub(crate) const MAX_WIDTH: usize = 20;
/// Digits of 63 bits in radix 62.
pub(crate) const WIDTH_62: usize = 11;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Radix {
    R10,
    R36,
    R62,
}

impl Radix {
    const fn base(self) -> u64 {
        match self {
            Self::R10 => 10,
            Self::R36 => 36,
            Self::R62 => 62,
        }
    }

    /// Digits of the largest number of so many bits (at most 64).
    pub(crate) fn width(self, bits: u8) -> usize {
        let largest = u64::MAX.checked_shr(64 - u32::from(bits)).unwrap_or(0);
        largest.checked_ilog(self.base()).map_or(1, |log| log as usize + 1)
    }

    /// Appends a number below 2^63 with at least `width` digits, zeros in front (at most [`MAX_WIDTH`]).
    pub(crate) fn push(self, value: u64, width: usize, to: &mut String) {
        let mut digits = [b'0'; MAX_WIDTH];
        let start = match self {
            Self::R10 => fill::<10>(value, &mut digits),
            Self::R36 => fill::<36>(value, &mut digits),
            Self::R62 => {
                digits[MAX_WIDTH - WIDTH_62..].copy_from_slice(&radix62(value));
                // All zeros but the last digit, which is always written.
                digits[..MAX_WIDTH - 1].iter().take_while(|&&digit| digit == b'0').count()
            }
        };
        // The alphabet is ASCII.
        to.push_str(str::from_utf8(&digits[start.min(MAX_WIDTH - width)..]).unwrap_or_default());
    }

    /// The number that [`Radix::push`] wrote with this width: any other text of it is refused.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(self, text: &str, width: usize) -> Result<u64, &'static str> {
        if text.is_empty() {
            return Err("it has no digits");
        }
        if text.len() < width {
            return Err("it is too short");
        }
        let number = match self {
            Self::R10 => read::<10>(text.as_bytes()),
            Self::R36 => read::<36>(text.as_bytes()),
            Self::R62 => read::<62>(text.as_bytes()),
        }?;
        if text.len() > width.max(1) && text.starts_with('0') {
            return Err("it has more zeros in front than this form writes");
        }
        Ok(number)
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a remainder, below 4,000")]
const fn remainder(value: u64, divisor: u64) -> usize {
    (value % divisor) as usize
}

/// Fills zeros from the last digit on, and says where the number begins. With the radix known the compiler divides by
/// multiplying.
fn fill<const BASE: u64>(mut value: u64, zeros: &mut [u8; MAX_WIDTH]) -> usize {
    let mut start = MAX_WIDTH - 1;
    zeros[start] = ALPHABET[remainder(value, BASE)];
    value /= BASE;
    while value != 0 && start > 0 {
        start -= 1;
        zeros[start] = ALPHABET[remainder(value, BASE)];
        value /= BASE;
    }
    start
}

fn read<const BASE: u64>(digits: &[u8]) -> Result<u64, &'static str> {
    let mut number = 0_u64;
    for &byte in digits {
        let digit = u64::from(VALUES[usize::from(byte)]);
        if digit >= BASE {
            return Err("it has other characters than digits");
        }
        number = number.checked_mul(BASE).and_then(|n| n.checked_add(digit)).ok_or("it is too large")?;
    }
    Ok(number)
}

/// What each byte is worth; a table, since digits that come at random would be guessed wrong by branches.
static VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0_u8;
    while value < 62 {
        values[ALPHABET[value as usize] as usize] = value;
        value += 1;
    }
    values
};

const PAIR: u64 = 62 * 62;
const PAIR_COUNT: usize = 62 * 62;

/// Two digits at once, all 3,844 of them: 7.5 KB.
static PAIRS: [[u8; 2]; PAIR_COUNT] = {
    let mut pairs = [[0; 2]; PAIR_COUNT];
    let mut index = 0;
    while index < pairs.len() {
        pairs[index] = [ALPHABET[index / 62], ALPHABET[index % 62]];
        index += 1;
    }
    pairs
};

/// A number below 2^63 as 11 digits. Its upper five and its lower six digits do not wait for each other, and go two at
/// a time: five divisions by constants instead of eleven, in two chains of three.
#[inline]
pub(crate) fn radix62(value: u64) -> [u8; WIDTH_62] {
    let (upper, lower) = (value / PAIR.pow(3), value % PAIR.pow(3));
    let pair = |value: u64| PAIRS[remainder(value, PAIR)];
    let first = ALPHABET[remainder(upper / PAIR.pow(2), 62)];
    let ([b, c], [d, e]) = (pair(upper / PAIR), pair(upper));
    let ([f, g], [h, i], [j, k]) = (pair(lower / PAIR.pow(2)), pair(lower / PAIR), pair(lower));
    [first, b, c, d, e, f, g, h, i, j, k]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(radix: Radix, value: u64, width: usize) -> String {
        let mut text = String::new();
        radix.push(value, width, &mut text);
        text
    }

    #[test]
    fn the_widths_are_cosids() {
        for (radix, widths) in [(Radix::R62, [3, 4, 7, 8, 9]), (Radix::R36, [4, 4, 8, 9, 10])] {
            assert_eq!([16, 20, 40, 44, 48].map(|bits| radix.width(bits)), widths);
        }
        assert_eq!([Radix::R62, Radix::R36, Radix::R10].map(|radix| radix.width(63)), [11, 13, 19]);
        assert_eq!([Radix::R62, Radix::R36, Radix::R10].map(|radix| radix.width(0)), [1, 1, 1]);
        assert_eq!(Radix::R10.width(64), 20);
    }

    #[test]
    fn the_digits_are_cosids() {
        for (value, expected) in [(0, "0"), (35, "Z"), (36, "a"), (3843, "zz"), (3844, "100")] {
            assert_eq!(text(Radix::R62, value, 0), expected);
            assert_eq!(Radix::R62.parse(expected, 0), Ok(value));
        }
        assert_eq!(text(Radix::R62, i64::MAX as u64, 0), "AzL8n0Y58m7");
        assert_eq!(text(Radix::R36, i64::MAX as u64, 0), "1Y2P0IJ32E8E7");
        assert_eq!(text(Radix::R62, 35, 11), "0000000000Z");
        assert_eq!(text(Radix::R36, 35, 2), "0Z");
    }

    #[test]
    fn two_digits_at_once_are_what_one_at_a_time_are() {
        let powers =
            (0..11).flat_map(|power| [62_u64.pow(power) - 1, 62_u64.pow(power), 62_u64.pow(power) + 1]);
        let mut random = 42_u64;
        let randoms = (0..100_000).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> (1 + (random >> 40) % 63)
        });
        for value in powers.chain(randoms).chain([0, i64::MAX as u64]) {
            let mut digits = [b'0'; MAX_WIDTH];
            fill::<62>(value, &mut digits);
            assert_eq!(radix62(value), digits[MAX_WIDTH - WIDTH_62..], "{value}");
        }
    }

    #[test]
    fn a_number_has_one_text_and_no_other_is_read() {
        for (radix, refused) in [
            (Radix::R62, &["", "0Z", "-1", "+1", " 1", "1 ", "1_0", "ä", "AzL8n0Y58m7AzL8n0Y58m7"][..]),
            (Radix::R36, &["a", "0Z", "1Y2P0IJ32E8E71Y2P"]),
            (Radix::R10, &["A", "00", "18446744073709551616"]),
        ] {
            for text in refused {
                assert!(radix.parse(text, 0).is_err(), "{text}");
            }
        }
        assert_eq!(Radix::R62.parse("0000000000Z", 11), Ok(35));
        assert_eq!(Radix::R62.parse("100", 2), Ok(3844));
        for text in ["Z", "000000000Z", "00000000000Z"] {
            assert!(Radix::R62.parse(text, 11).is_err(), "{text}");
        }
    }
}
