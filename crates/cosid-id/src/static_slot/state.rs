//! What the state file of a static slot says. It is text, so that whoever has to decide about a file can read it:
//!
//! ```text
//! cosid static slot 1
//! pool "shop/orders"
//! slot 3
//! layout 41/10/12 bits, unit 1 ms, epoch 1577203200000, threshold 2047, timestamp-slot-sequence
//! fence 7
//! ceiling 1795000010000
//! checksum 5b0d1c7f0a2e9c44
//! ```
//!
//! The number in the first line is the version. The checksum is FNV-1a of all bytes before its line. A file is read only
//! if it is, byte by byte, what would be written for what it says.

use std::path::Path;

use crate::error::{Error, excerpt};
use crate::format::fnv1a;
use crate::layout::{FieldOrder, Layout};

const MAGIC: &str = "cosid static slot ";
const VERSION: u32 = 1;
const CHECKSUM: &str = "checksum ";

/// Whose state it is; that of another is of no use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) pool: String,
    pub(super) slot: u32,
    pub(super) layout: Layout,
}

/// What changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State {
    /// Grows by 1 each time that the slot is opened.
    pub(super) fence: u64,
    /// Unix ms: no ID of the slot has a later timestamp.
    pub(super) ceiling: u64,
}

impl Identity {
    pub(super) fn encode(&self, State { fence, ceiling }: State) -> String {
        let Self { pool, slot, layout } = self;
        let layout = layout_text(layout);
        // Quoted, a name can have no line's end.
        let body = format!(
            "{MAGIC}{VERSION}\npool {pool:?}\nslot {slot}\nlayout {layout}\nfence {fence}\nceiling {ceiling}\n"
        );
        format!("{body}{CHECKSUM}{:016x}\n", fnv1a(body.as_bytes()))
    }

    /// # Errors
    /// [`Error::NewerState`], [`Error::CorruptState`], [`Error::StateOfAnother`].
    pub(super) fn decode(&self, path: &Path, bytes: &[u8]) -> Result<State, Error> {
        let corrupt = |what: &str| Error::CorruptState { path: path.into(), what: what.to_owned() };
        let text = str::from_utf8(bytes).map_err(|_| corrupt("it is no text"))?;
        let (first, rest) = text.split_once('\n').ok_or_else(|| corrupt("it has no first line"))?;
        let version = first.strip_prefix(MAGIC).and_then(|version| version.parse::<u32>().ok());
        let version = version.ok_or_else(|| corrupt("it does not begin as a state file does"))?;
        if version > VERSION {
            return Err(Error::NewerState { path: path.into(), version, newest: VERSION });
        }
        let body = text.rfind(CHECKSUM).map(|at| &text[..at]).ok_or_else(|| corrupt("it is cut short"))?;
        if text[body.len()..] != format!("{CHECKSUM}{:016x}\n", fnv1a(body.as_bytes())) {
            return Err(corrupt("its checksum is wrong"));
        }
        let field = |name: &str| rest.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let number = |name| field(name).and_then(|digits| digits.parse::<u64>().ok());
        let names = |pool: &str, slot: &str, layout: &str| format!("slot {slot} of pool {pool}, {layout}");
        let found = ["pool", "slot", "layout"].map(|name| field(name).unwrap_or("?"));
        let expected = [format!("{:?}", self.pool), self.slot.to_string(), layout_text(&self.layout)];
        if found != expected {
            return Err(Error::StateOfAnother {
                path: path.into(),
                // A file may have any text there.
                found: names(&excerpt(found[0]), &excerpt(found[1]), &excerpt(found[2])),
                expected: names(&expected[0], &expected[1], &expected[2]),
            });
        }
        match (number("fence"), number("ceiling")) {
            (Some(fence), Some(ceiling)) if self.encode(State { fence, ceiling }) == text => {
                Ok(State { fence, ceiling })
            }
            _ => Err(corrupt("it has lines that no state file has")),
        }
    }
}

fn layout_text(layout: &Layout) -> String {
    let order = match layout.order() {
        FieldOrder::SlotSequence => "timestamp-slot-sequence",
        FieldOrder::SequenceSlot => "timestamp-sequence-slot",
    };
    format!(
        "{}/{}/{} bits, unit {} ms, epoch {}, threshold {}, {order}",
        layout.timestamp_bits(),
        layout.slot_bits(),
        layout.sequence_bits(),
        layout.unit_ms(),
        layout.epoch_ms(),
        layout.sequence_threshold()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { pool: "shop/orders".into(), slot: 3, layout: Layout::MILLISECOND }
    }

    const STATE: State = State { fence: 7, ceiling: 1_795_000_010_000 };

    fn read(bytes: &[u8]) -> Result<State, Error> {
        identity().decode(Path::new("/state"), bytes)
    }

    #[test]
    fn what_is_written_is_read() {
        let text = identity().encode(STATE);
        let start = "cosid static slot 1\npool \"shop/orders\"\nslot 3\nlayout 41/10/12 bits, unit 1 ms, epoch \
                     1577203200000, threshold 2047, timestamp-slot-sequence\nfence 7\nceiling 1795000010000\nchecksum ";
        assert!(text.starts_with(start), "{text}");
        assert_eq!(read(text.as_bytes()).unwrap(), STATE);
    }

    #[test]
    fn a_changed_byte_wherever_it_is_and_a_cut_wherever_it_is_are_refused_by_name() {
        let text = identity().encode(STATE).into_bytes();
        let mut refused = 0;
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut broken = text.clone();
                broken[at] ^= 1 << bit;
                let error = read(&broken).unwrap_err();
                assert!(
                    matches!(error, Error::CorruptState { .. } | Error::NewerState { .. }),
                    "byte {at}, bit {bit}: {error}"
                );
                assert!(error.to_string().contains("/state"), "{error}");
                refused += 1;
            }
            let error = read(&text[..at]).unwrap_err();
            assert!(matches!(error, Error::CorruptState { .. } | Error::NewerState { .. }), "{at}: {error}");
        }
        println!("{refused} changed bits in {} bytes, all refused", text.len());
        assert!(read(&[&text[..], b"\n"].concat()).is_err(), "more than was written");
        assert!(read(&[&text[..], &text[..]].concat()).is_err(), "twice");
    }

    #[test]
    fn the_state_of_another_slot_pool_or_layout_is_refused_and_both_are_named() {
        let layout = Layout::builder().order(FieldOrder::SequenceSlot).build().unwrap();
        for other in [
            Identity { slot: 4, ..identity() },
            Identity { pool: "shop/users".into(), ..identity() },
            Identity { layout, ..identity() },
            Identity { layout: Layout::TWITTER, ..identity() },
        ] {
            let error = read(other.encode(STATE).as_bytes()).unwrap_err();
            assert!(matches!(&error, Error::StateOfAnother { .. }), "{error}");
            assert!(error.to_string().contains("slot 3 of pool \"shop/orders\""), "{error}");
        }
    }

    #[test]
    fn a_newer_version_is_refused_as_such() {
        let text = identity().encode(STATE).replace("slot 1\n", "slot 2\n");
        assert!(matches!(read(text.as_bytes()), Err(Error::NewerState { version: 2, newest: 1, .. })));
    }

    #[test]
    fn a_pool_s_name_can_not_add_a_line() {
        let pool = "a\"\nceiling 1\nx".to_owned();
        let identity = Identity { pool, ..identity() };
        let text = identity.encode(STATE);
        assert_eq!(text.lines().count(), 7);
        assert_eq!(identity.decode(Path::new("/state"), text.as_bytes()).unwrap(), STATE);
    }
}
