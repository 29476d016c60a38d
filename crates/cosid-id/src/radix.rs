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

    /// A number below 2^63 with at least `width` digits, zeros in front (at most [`MAX_WIDTH`]).
    #[inline]
    pub(crate) fn digits(self, value: u64, width: usize) -> Digits {
        let digits = match self {
            Self::R10 => radix10(value),
            Self::R36 => radix36(value),
            Self::R62 => widened(radix62(value)),
        };
        // The last digit is always written.
        let zeros = zeros_in_front(&digits).min(MAX_WIDTH - 1);
        Digits { digits, start: zeros.min(MAX_WIDTH - width) }
    }

    /// Appends what [`Radix::digits`] makes.
    pub(crate) fn push(self, value: u64, width: usize, to: &mut String) {
        to.push_str(self.digits(value, width).as_str());
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

/// A number as text, with nothing allocated.
pub(crate) struct Digits {
    digits: [u8; MAX_WIDTH],
    start: usize,
}

impl Digits {
    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        // The alphabet is ASCII.
        str::from_utf8(&self.digits[self.start..]).unwrap_or_default()
    }
}

/// Counted as one number is, not byte by byte.
#[inline]
fn zeros_in_front(digits: &[u8; MAX_WIDTH]) -> usize {
    let [a, b, c, d, rest @ ..] = *digits;
    let front = u32::from_be_bytes([a, b, c, d]) ^ u32::from_be_bytes([b'0'; 4]);
    let rest = u128::from_be_bytes(rest) ^ u128::from_be_bytes([b'0'; 16]);
    let bits = if front == 0 { 32 + rest.leading_zeros() } else { front.leading_zeros() };
    bits as usize / 8
}

#[inline]
fn widened<const N: usize>(digits: [u8; N]) -> [u8; MAX_WIDTH] {
    let mut all = [b'0'; MAX_WIDTH];
    all[MAX_WIDTH - N..].copy_from_slice(&digits);
    all
}

#[allow(clippy::cast_possible_truncation, reason = "a remainder, below 4,000")]
const fn remainder(value: u64, divisor: u64) -> usize {
    (value % divisor) as usize
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

/// Two digits at once, all of them: 200 bytes in radix 10, 2.6 KB in radix 36, 7.5 KB in radix 62.
static PAIRS_10: [[u8; 2]; 100] = pairs(10);
static PAIRS_36: [[u8; 2]; 36 * 36] = pairs(36);
static PAIRS_62: [[u8; 2]; 62 * 62] = pairs(62);

const fn pairs<const COUNT: usize>(radix: usize) -> [[u8; 2]; COUNT] {
    let mut pairs = [[0; 2]; COUNT];
    let mut index = 0;
    while index < COUNT {
        pairs[index] = [ALPHABET[index / radix], ALPHABET[index % radix]];
        index += 1;
    }
    pairs
}

// Digits go two at a time, in chains of at most three or four divisions that do not wait for each other. With the radix
// known the compiler divides by multiplying.

/// 20 digits, of which a number below 2^63 needs 19.
#[inline]
fn radix10(value: u64) -> [u8; MAX_WIDTH] {
    let pair = |value: u64| PAIRS_10[remainder(value, 100)];
    let eight = |value: u64| {
        let ([a, b], [c, d]) = (pair(value / 1_000_000), pair(value / 10_000));
        let ([e, f], [g, h]) = (pair(value / 100), pair(value));
        [a, b, c, d, e, f, g, h]
    };
    let (front, rest) = (value / 10_u64.pow(16), value % 10_u64.pow(16));
    let ([a, b], [c, d]) = (pair(front / 100), pair(front));
    let [e, f, g, h, i, j, k, l] = eight(rest / 10_u64.pow(8));
    let [m, n, o, p, q, r, s, t] = eight(rest % 10_u64.pow(8));
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t]
}

/// A number below 2^63 as 13 digits, in front of them zeros.
#[inline]
fn radix36(value: u64) -> [u8; MAX_WIDTH] {
    const PAIR: u64 = 36 * 36;
    let (upper, lower) = (value / PAIR.pow(3), value % PAIR.pow(3));
    let pair = |value: u64| PAIRS_36[remainder(value, PAIR)];
    let first = ALPHABET[remainder(upper / PAIR.pow(3), 36)];
    let ([b, c], [d, e], [f, g]) = (pair(upper / PAIR.pow(2)), pair(upper / PAIR), pair(upper));
    let ([h, i], [j, k], [l, m]) = (pair(lower / PAIR.pow(2)), pair(lower / PAIR), pair(lower));
    widened([first, b, c, d, e, f, g, h, i, j, k, l, m])
}

/// A number below 2^63 as 11 digits.
#[inline]
pub(crate) fn radix62(value: u64) -> [u8; WIDTH_62] {
    const PAIR: u64 = 62 * 62;
    let (upper, lower) = (value / PAIR.pow(3), value % PAIR.pow(3));
    let pair = |value: u64| PAIRS_62[remainder(value, PAIR)];
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
    fn two_digits_at_once_are_what_one_at_a_time_is() {
        let mut random = 42_u64;
        let randoms = (0..100_000).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> (1 + (random >> 40) % 63)
        });
        let edges = [10, 36, 62].map(|base: u64| {
            (0..=base_digits(base)).flat_map(move |power| {
                let power = base.pow(power);
                [power - 1, power, power + 1]
            })
        });
        let randoms: Vec<u64> = randoms.collect();
        for (radix, edges) in [Radix::R10, Radix::R36, Radix::R62].into_iter().zip(edges) {
            for value in edges.chain(randoms.iter().copied()).chain([0, i64::MAX as u64]) {
                for width in [0, 3, 13, MAX_WIDTH] {
                    assert_eq!(text(radix, value, width), one_at_a_time(radix, value, width), "{radix:?}");
                }
            }
        }
    }

    /// The highest power below 2^63.
    fn base_digits(base: u64) -> u32 {
        (i64::MAX as u64).ilog(base)
    }

    fn one_at_a_time(radix: Radix, mut value: u64, width: usize) -> String {
        let mut digits = Vec::new();
        while value > 0 || digits.len() < width.max(1) {
            digits.push(ALPHABET[remainder(value, radix.base())]);
            value /= radix.base();
        }
        digits.reverse();
        String::from_utf8(digits).unwrap()
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
