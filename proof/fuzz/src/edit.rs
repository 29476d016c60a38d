//! How inputs are made from the files of a corpus.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::MOST_BYTES;

/// Decimal numbers at which something ends.
const NUMBERS: [&str; 18] = [
    "0",
    "-1",
    "1",
    "00",
    "255",
    "256",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "253402207200000",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "",
];

/// The same for binary ones.
const WORDS: [u64; 12] = [
    0,
    1,
    0xff,
    i32::MAX as u64,
    1 << 31,
    u32::MAX as u64,
    1 << 62,
    i64::MAX as u64 - 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// How one input is made: shrinking it leaves out edits.
#[derive(Clone, Debug)]
pub(crate) enum Recipe {
    /// Any bytes.
    Raw(Vec<u8>),
    /// A file of the corpus, edited, and mended or not.
    Edited { seed: Index, edits: Vec<Edit>, mended: bool },
}

#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Flip(Index, u8),
    Set(Index, u8),
    Truncate(Index),
    Cut(Index, usize),
    /// A piece, once more behind itself.
    Repeat(Index, usize),
    /// A piece, until the input is large.
    Swell(Index, usize),
    /// A piece of another file.
    Splice(Index, Index, usize, Index),
    /// A token, over so many bytes.
    Token(Index, Index, usize),
    /// A number at an edge, in place of digits.
    Number(Index, Index),
    /// The same for a binary one of 1 to 8 bytes.
    Word(Index, Index, usize),
}

pub(crate) fn recipe(seeds: usize, tokens: usize) -> impl Strategy<Value = Recipe> {
    let raw = vec(any::<u8>(), 0..600).prop_map(Recipe::Raw);
    let edited = (any::<Index>(), vec(edit(tokens > 0), 0..6), any::<bool>());
    let edited = edited.prop_map(|(seed, edits, mended)| Recipe::Edited { seed, edits, mended });
    debug_assert!(seeds > 0);
    prop_oneof![1 => raw, 15 => edited]
}

fn edit(tokens: bool) -> impl Strategy<Value = Edit> {
    let at = || any::<Index>();
    let len = || prop_oneof![1..4_usize, 1..64_usize];
    let piece = || (at(), len());
    prop_oneof![
        3 => (at(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        2 => (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        1 => at().prop_map(Edit::Truncate),
        2 => piece().prop_map(|(at, len)| Edit::Cut(at, len)),
        2 => piece().prop_map(|(at, len)| Edit::Repeat(at, len)),
        1 => (at(), 1..200_usize).prop_map(|(at, len)| Edit::Swell(at, len)),
        2 => (at(), at(), 1..200_usize, at()).prop_map(|(from, at, len, to)| Edit::Splice(from, at, len, to)),
        u32::from(tokens) * 4 => (at(), at(), 0..24_usize).prop_map(|(which, at, over)| Edit::Token(which, at, over)),
        4 => (at(), at()).prop_map(|(which, at)| Edit::Number(which, at)),
        2 => (at(), at(), prop_oneof![Just(1), Just(4), Just(8)]).prop_map(|(which, at, len)| Edit::Word(which, at, len)),
    ]
}

impl Recipe {
    /// The input, and whether it is to be mended.
    pub(crate) fn cook(&self, seeds: &[Vec<u8>], tokens: &[&str]) -> (Vec<u8>, bool) {
        match self {
            Self::Raw(bytes) => (bytes.clone(), false),
            Self::Edited { seed, edits, mended } => {
                let mut input = seed.get(seeds).clone();
                for edit in edits {
                    edit.apply(&mut input, seeds, tokens);
                    input.truncate(MOST_BYTES);
                }
                (input, *mended)
            }
        }
    }
}

impl Edit {
    fn apply(&self, input: &mut Vec<u8>, seeds: &[Vec<u8>], tokens: &[&str]) {
        if input.is_empty() {
            return;
        }
        let length = input.len();
        let range = |at: &Index, len: usize| {
            let from = at.index(length);
            from..(from + len).min(length)
        };
        match self {
            Self::Flip(at, bit) => input[at.index(length)] ^= 1 << bit,
            Self::Set(at, byte) => input[at.index(length)] = *byte,
            Self::Truncate(at) => input.truncate(at.index(length)),
            Self::Cut(at, len) => drop(input.drain(range(at, *len))),
            Self::Repeat(at, len) => {
                let piece = input[range(at, *len)].to_vec();
                let behind = range(at, *len).end;
                input.splice(behind..behind, piece);
            }
            Self::Swell(at, len) => {
                let piece = input[range(at, *len)].to_vec();
                let behind = range(at, *len).end;
                input.splice(behind..behind, piece.repeat(MOST_BYTES / 2 / piece.len()));
            }
            Self::Splice(which, at, len, to) => {
                let other = which.get(seeds);
                let from = at.index(other.len().max(1)).min(other.len());
                let piece = other[from..(from + len).min(other.len())].to_vec();
                let to = to.index(length);
                input.splice(to..to, piece);
            }
            Self::Token(which, at, over) => {
                if !tokens.is_empty() {
                    input.splice(range(at, *over), which.get(tokens).bytes());
                }
            }
            Self::Number(which, at) => {
                let digits = digits(input);
                if !digits.is_empty() {
                    let digits = at.get(&digits).clone();
                    input.splice(digits, which.get(&NUMBERS).bytes());
                }
            }
            Self::Word(which, at, len) => {
                let word = which.get(&WORDS).to_le_bytes();
                // Numbers are aligned in most formats.
                let from = at.index(length) / len * len;
                for (place, byte) in input[from..].iter_mut().zip(&word[..*len]) {
                    *place = *byte;
                }
            }
        }
    }
}

/// Where runs of digits are.
fn digits(input: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in input.iter().enumerate().filter(|(_, byte)| byte.is_ascii_digit()) {
        match found.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => found.push(at..at + 1),
        }
    }
    found
}
