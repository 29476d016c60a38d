//! Numbers as digits in radix 10, 36 and 62.

/// CosId's: in the order of ASCII, so that texts of one length sort as their numbers do.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Digits that any text here may have: all that a `u64` has in radix 10.
pub(crate) const MAX_WIDTH: usize = 20;
/// Digits in three words, eight in each.
const PLACES: usize = 24;
/// The first digit in the lowest byte of the first word.
type Words = [u64; 3];
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
    #[inline(always)]
    pub(crate) fn digits(self, value: u64, width: usize) -> Digits {
        let (words, needed) = match self {
            Self::R10 => (radix10(value), WIDTHS_10.of(value)),
            Self::R36 => (radix36(value), WIDTHS_36.of(value)),
            Self::R62 => (radix62_widened(value), WIDTHS_62.of(value)),
        };
        Digits::last(needed.max(width).min(MAX_WIDTH), words)
    }

    /// What [`Radix::digits`] makes as a `String`.
    #[inline]
    pub(crate) fn text(self, value: u64, width: usize) -> String {
        if self == Self::R10 && width == 0 {
            // The standard library knows that its digits are UTF-8; here they are checked.
            return value.to_string();
        }
        let digits = self.digits(value, width);
        let mut text = String::with_capacity(PLACES);
        text.push_str(digits.first(PLACES));
        text.truncate(digits.len);
        text
    }

    /// Appends what [`Radix::digits`] makes.
    #[inline]
    pub(crate) fn push(self, value: u64, width: usize, to: &mut String) {
        self.digits(value, width).push(to);
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
///
/// The bytes are put together in registers, eight to a word, and copied as a whole: a processor that is to load as a
/// word what it just stored as bytes waits for them.
pub(crate) struct Digits {
    /// The digits, and after them NUL. A word more than they need: UTF-8 is checked 16 bytes at a time.
    words: [[u8; 8]; 4],
    len: usize,
}

impl Digits {
    /// The last `len` (1 to [`MAX_WIDTH`]) of [`PLACES`] digits.
    #[inline(always)]
    fn last(len: usize, [first, second, third]: Words) -> Self {
        let (front, back) = (u128::from(first) | u128::from(second) << 64, u128::from(third));
        let drop = 8 * (PLACES - len);
        let (front, back) = if drop < 128 {
            (front >> drop | back << (128 - drop), back >> drop)
        } else {
            (back >> (drop - 128), 0)
        };
        let words = [low_word(front), low_word(front >> 64), low_word(back), 0];
        Self { words: words.map(u64::to_le_bytes), len }
    }

    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        self.first(self.len)
    }

    #[inline]
    fn first(&self, len: usize) -> &str {
        // The alphabet and NUL are ASCII.
        let whole = str::from_utf8(self.words.as_flattened()).unwrap_or_default();
        whole.get(..len).unwrap_or_default()
    }

    /// Copies a number of bytes that the compiler knows, if there is room for so many, and takes back those too many.
    #[inline(always)]
    fn push(&self, to: &mut String) {
        let end = to.len() + self.len;
        if to.capacity() - to.len() >= PLACES {
            to.push_str(self.first(PLACES));
            to.truncate(end);
        } else {
            to.push_str(self.as_str());
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "what is above is taken by another call")]
const fn low_word(value: u128) -> u64 {
    value as u64
}

/// How many digits numbers have, by a table: to count the zeros of digits that were just written one by one would have to
/// wait until they all are.
struct Widths {
    /// Digits of the largest number of so many bits.
    by_bits: [u8; 65],
    /// The smallest number with so many digits, from one on.
    smallest: [u64; MAX_WIDTH + 1],
}

static WIDTHS_10: Widths = Widths::new(10);
static WIDTHS_36: Widths = Widths::new(36);
static WIDTHS_62: Widths = Widths::new(62);

impl Widths {
    const fn new(base: u64) -> Self {
        let (mut by_bits, mut smallest) = ([1; 65], [0; MAX_WIDTH + 1]);
        let (mut power, mut width) = (base, 2);
        while width <= MAX_WIDTH {
            smallest[width] = power;
            let mut bits = power.ilog2() as usize + 1;
            while bits <= 64 {
                by_bits[bits] += 1;
                bits += 1;
            }
            width += 1;
            power = match power.checked_mul(base) {
                Some(power) => power,
                None => break,
            };
        }
        Self { by_bits, smallest }
    }

    #[inline]
    fn of(&self, value: u64) -> usize {
        let most = usize::from(self.by_bits[(u64::BITS - value.leading_zeros()) as usize]);
        most - usize::from(value < self.smallest[most])
    }
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

/// Eight zeros.
const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

// Digits go two at a time, in chains of at most three or four divisions that do not wait for each other. With the radix
// known the compiler divides by multiplying.

/// 24 digits, of which a number below 2^63 needs 19.
#[inline]
fn radix10(value: u64) -> Words {
    let pair = |value: u64| PAIRS_10[remainder(value, 100)];
    let eight = |value: u64| {
        let ([a, b], [c, d]) = (pair(value / 1_000_000), pair(value / 10_000));
        let ([e, f], [g, h]) = (pair(value / 100), pair(value));
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    };
    let (front, rest) = (value / 10_u64.pow(16), value % 10_u64.pow(16));
    let ([a, b], [c, d]) = (pair(front / 100), pair(front));
    let z = b'0';
    let front = u64::from_le_bytes([z, z, z, z, a, b, c, d]);
    [front, eight(rest / 10_u64.pow(8)), eight(rest % 10_u64.pow(8))]
}

/// A number below 2^63 as 13 digits, in front of them zeros.
#[inline]
fn radix36(value: u64) -> Words {
    const PAIR: u64 = 36 * 36;
    let (upper, lower) = (value / PAIR.pow(3), value % PAIR.pow(3));
    let pair = |value: u64| PAIRS_36[remainder(value, PAIR)];
    let first = ALPHABET[remainder(upper / PAIR.pow(3), 36)];
    let ([b, c], [d, e], [f, g]) = (pair(upper / PAIR.pow(2)), pair(upper / PAIR), pair(upper));
    let ([h, i], [j, k], [l, m]) = (pair(lower / PAIR.pow(2)), pair(lower / PAIR), pair(lower));
    let z = b'0';
    let front = [z, z, z, first, b, c, d, e];
    [ZEROS, u64::from_le_bytes(front), u64::from_le_bytes([f, g, h, i, j, k, l, m])]
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

/// The same, with zeros in front.
#[inline]
fn radix62_widened(value: u64) -> Words {
    let (z, [a, b, c, d, e, f, g, h, i, j, k]) = (b'0', radix62(value));
    let front = [z, z, z, z, z, a, b, c];
    [ZEROS, u64::from_le_bytes(front), u64::from_le_bytes([d, e, f, g, h, i, j, k])]
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
                for width in [0, 3, 8, 9, 13, MAX_WIDTH] {
                    let expected = one_at_a_time(radix, value, width);
                    assert_eq!(text(radix, value, width), expected, "{radix:?}, with no room");
                    assert_eq!(radix.text(value, width), expected, "{radix:?}");
                    let mut with_room = String::with_capacity(64);
                    with_room.push_str("ä-");
                    radix.push(value, width, &mut with_room);
                    assert_eq!(with_room.strip_prefix("ä-"), Some(&*expected), "{radix:?}, with room");
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
