//! The bytes of a window page, version 1, for programs in any language.
//!
//! All numbers are little-endian and aligned to their size; the file has exactly 16384 bytes. *Word* means 64
//! bits that are read and written atomically. Bytes not named here are zero and reserved.
//!
//! # Header, bytes 0 to 511
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 8 | magic: `cosid`, a zero byte, `pg` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | bytes of the header, 512 |
//! | 16 | 4 | bytes of a cell, 256 |
//! | 20 | 4 | number of cells, 62 |
//! | 24 | 8 | fence |
//! | 32 | 8 | floor, Unix ms: every timestamp issued is above it |
//! | 40 | 4 | slot |
//! | 44 | 4 | bytes of the pool's name, 1 to 336 |
//! | 48 | 32 | the pool's layout, see below |
//! | 80 | 336 | the pool's name, UTF-8, filled up with zeros |
//! | 432 | 8 | checksum: FNV-1a, 64 bits, of bytes 0 to 431 |
//! | 440 | 8 | word, closed: 0 open, 1 closed; never goes back |
//! | 448 | 8 | word, ceiling, Unix ms: no timestamp issued is above it; only grows |
//!
//! Bytes 0 to 439 never change once the file has its name.
//!
//! # Layout, 32 bytes
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 1 | timestamp bits |
//! | 1 | 1 | slot bits |
//! | 2 | 1 | sequence bits |
//! | 3 | 1 | order of the fields from the highest bits: 0 is timestamp, slot, sequence; 1 is timestamp, sequence, slot; others are refused |
//! | 4 | 4 | unit of the timestamp, ms |
//! | 8 | 8 | epoch, Unix ms |
//! | 16 | 4 | sequence threshold: from this sequence on a new tick starts over |
//!
//! # Cell `i`, bytes `512 + 256 * i` to `767 + 256 * i`
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 8 | word, state: bit 63 closed; below it the **next** ID's `tick << sequence bits \| sequence`; only grows |
//! | 64 | 8 | reserved |
//! | 128 | 8 | word, bytes of the generator's name; 0 while the cell is free. Stored last, with release |
//! | 136 | 64 | the generator's name, ASCII, filled up with zeros |
//! | 200 | 32 | the cell's own layout, if it is not all zero, which is the pool's. Slot bits at least the pool's, bits in all at most. Stored before the state and the name |
//! | 232 | 8 | reserved |
//!
//! A new page's cells all stand at `first tick above the floor << sequence bits`, free or not (one that gets a layout of its
//! own is set to that layout's, by compare-and-swap, before it has a name), so that closing
//! poisons every word that could ever issue. No ID issued is above the state minus 1, if the state is above
//! where it began; so no word for the last one is needed that could disagree with the state. (The state minus 1 is
//! the last one issued, unless somebody has added to the state and not used all numbers, see below.)
//!
//! # How to issue
//!
//! Read state, ceiling and clock. Refuse if bit 63 of the state is set. If the clock's tick is above the
//! state's, take the clock's tick; the sequence stays, or is 1 if the one before it (wrapping) has reached the
//! threshold. If not, take the state as it is; but if its sequence is 0 and its tick is still ahead of the
//! clock, wait for that tick. Refuse a tick whose last ms is above the ceiling. Then compare-and-swap the state
//! to the ID taken plus 1 (plus N for N of one tick); if that fails, begin again.
//!
//! Or, without a look at the clock, add 1 or N to the state. What is added to belongs to whoever added, but only what is
//! in the window and not ahead of the clock may be issued; the rest is lost. So this is for programs that know a limit
//! below which the state surely is so, and that do not add again once they found a number
//! above it. Bit 63 is above every limit. Programs that add and programs that swap may share a cell.
//!
//! The ID is then tick, slot and sequence side by side, in the layout's order. The state has no slot in it, and is
//! the same whatever the order.

use std::path::Path;

use crate::cell;
use crate::error::Error;
use crate::layout::{FieldOrder, Layout};

/// Bytes of a page.
pub(crate) const PAGE_LEN: usize = HEADER_LEN + CELLS * CELL_LEN;
/// Words of a page.
pub(crate) const PAGE_WORDS: usize = PAGE_LEN / 8;
/// Cells of a page: generators that one binding can have.
pub(crate) const CELLS: usize = 62;
/// Bytes that a generator's name may have.
pub(crate) const MAX_NAME_LEN: usize = 64;
/// Words of a generator's name.
pub(crate) const NAME_WORDS: usize = MAX_NAME_LEN / 8;
/// Words of a layout.
pub(crate) const LAYOUT_WORDS: usize = LAYOUT_LEN / 8;

const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"cosid\0pg";
pub(crate) const HEADER_LEN: usize = 512;
const CELL_LEN: usize = 256;
const LAYOUT_LEN: usize = 32;
const MAX_POOL_LEN: usize = 336;

const VERSION_AT: usize = 8;
const HEADER_LEN_AT: usize = 12;
const CELL_LEN_AT: usize = 16;
const CELLS_AT: usize = 20;
const FENCE_AT: usize = 24;
const FLOOR_AT: usize = 32;
const SLOT_AT: usize = 40;
const POOL_LEN_AT: usize = 44;
const LAYOUT_AT: usize = 48;
const POOL_AT: usize = 80;
const CHECKSUM_AT: usize = 432;

/// Index of the closed word.
pub(crate) const CLOSED_WORD: usize = 440 / 8;
/// Index of the ceiling word.
pub(crate) const CEILING_WORD: usize = 448 / 8;

/// Indexes of a cell's words.
pub(crate) const fn state_word(cell: usize) -> usize {
    (HEADER_LEN + cell * CELL_LEN) / 8
}
pub(crate) const fn name_len_word(cell: usize) -> usize {
    state_word(cell) + 128 / 8
}
pub(crate) const fn name_word(cell: usize) -> usize {
    state_word(cell) + 136 / 8
}
pub(crate) const fn layout_word(cell: usize) -> usize {
    state_word(cell) + 200 / 8
}

/// What a page says of its binding; it never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The pool, as `namespace/name`: 1 to 336 bytes.
    pub pool: String,
    /// The slot, one that fits the layout.
    pub slot: u32,
    /// The fence of the lease: grows by 1 at each change of ownership.
    pub fence: u64,
    /// Unix ms: every timestamp issued is above it.
    pub floor: u64,
    /// The pool's layout.
    pub layout: Layout,
}

impl Header {
    /// A whole new page: this header, an open window that is empty (`ceiling = floor`), all cells free.
    ///
    /// # Errors
    /// [`Error::SlotTooLarge`], [`Error::BadPoolName`].
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        self.layout.check_slot(self.slot)?;
        let len = self.pool.len();
        let bad_name = || Error::BadPoolName { len, max: MAX_POOL_LEN };
        let pool_len = u32::try_from(len).map_err(|_| bad_name())?;
        if len == 0 || len > MAX_POOL_LEN {
            return Err(bad_name());
        }

        let mut page = vec![0; PAGE_LEN];
        put(&mut page, 0, &MAGIC);
        put(&mut page, VERSION_AT, &VERSION.to_le_bytes());
        for (at, value) in [(HEADER_LEN_AT, HEADER_LEN), (CELL_LEN_AT, CELL_LEN), (CELLS_AT, CELLS)] {
            put(&mut page, at, &(value as u64).to_le_bytes()[..4]);
        }
        put(&mut page, FENCE_AT, &self.fence.to_le_bytes());
        put(&mut page, FLOOR_AT, &self.floor.to_le_bytes());
        put(&mut page, SLOT_AT, &self.slot.to_le_bytes());
        put(&mut page, POOL_LEN_AT, &pool_len.to_le_bytes());
        put(&mut page, LAYOUT_AT, &encode_layout(&self.layout));
        put(&mut page, POOL_AT, self.pool.as_bytes());
        let checksum = fnv1a(&page[..CHECKSUM_AT]);
        put(&mut page, CHECKSUM_AT, &checksum.to_le_bytes());

        put(&mut page, CEILING_WORD * 8, &self.floor.to_le_bytes());
        let first = cell::first_state(&self.layout, self.floor);
        for cell in 0..CELLS {
            put(&mut page, state_word(cell) * 8, &first.to_le_bytes());
        }
        Ok(page)
    }

    /// Reads the header off the first bytes of a file (all of it, if it is shorter than a header).
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::NotAPage`], [`Error::NewerPage`], [`Error::WrongSize`],
    /// [`Error::CorruptPage`].
    pub(crate) fn decode(path: &Path, file_len: u64, head: &[u8]) -> Result<Self, Error> {
        let path = || path.to_path_buf();
        let truncated = || Error::Truncated { path: path(), len: file_len, expected: PAGE_LEN as u64 };
        let corrupt = |what: String| Error::CorruptPage { path: path(), what };

        if !MAGIC.starts_with(&head[..head.len().min(MAGIC.len())]) {
            return Err(Error::NotAPage { path: path() });
        }
        if head.len() < VERSION_AT + 4 {
            return Err(truncated());
        }
        // The version comes first: nothing else of a newer page can be trusted to be where it is here.
        let version = u32_at(head, VERSION_AT);
        if version > VERSION {
            return Err(Error::NewerPage { path: path(), version, newest: VERSION });
        }
        if file_len < PAGE_LEN as u64 || head.len() < HEADER_LEN {
            return Err(truncated());
        }
        if file_len > PAGE_LEN as u64 {
            return Err(Error::WrongSize { path: path(), len: file_len, expected: PAGE_LEN as u64 });
        }
        if u64_at(head, CHECKSUM_AT) != fnv1a(&head[..CHECKSUM_AT]) {
            return Err(corrupt("the header's checksum is wrong".into()));
        }
        let sizes = [HEADER_LEN_AT, CELL_LEN_AT, CELLS_AT].map(|at| u32_at(head, at) as usize);
        if version != VERSION || sizes != [HEADER_LEN, CELL_LEN, CELLS] {
            return Err(corrupt(format!("version {version} with sizes {sizes:?}")));
        }

        let layout = decode_layout(&head[LAYOUT_AT..LAYOUT_AT + LAYOUT_LEN]).map_err(corrupt)?;
        let slot = u32_at(head, SLOT_AT);
        layout.check_slot(slot).map_err(|error| corrupt(error.to_string()))?;
        let pool_len = u32_at(head, POOL_LEN_AT) as usize;
        if pool_len == 0 || pool_len > MAX_POOL_LEN {
            return Err(corrupt(format!("a pool name of {pool_len} bytes")));
        }
        let pool = str::from_utf8(&head[POOL_AT..POOL_AT + pool_len])
            .map_err(|_| corrupt("the pool's name is not UTF-8".into()))?;
        let header = Self {
            pool: pool.to_owned(),
            slot,
            fence: u64_at(head, FENCE_AT),
            floor: u64_at(head, FLOOR_AT),
            layout,
        };
        // A program that comes later may give a reserved byte a meaning; without knowing it nobody may issue.
        if header.encode()?[..CHECKSUM_AT] != head[..CHECKSUM_AT] {
            return Err(corrupt("it has something in reserved bytes".into()));
        }
        Ok(header)
    }
}

pub(crate) fn encode_layout(layout: &Layout) -> [u8; LAYOUT_LEN] {
    let mut bytes = [0; LAYOUT_LEN];
    let widths = [layout.timestamp_bits(), layout.slot_bits(), layout.sequence_bits()];
    put(&mut bytes, 0, &widths);
    bytes[3] = match layout.order() {
        FieldOrder::SlotSequence => 0,
        FieldOrder::SequenceSlot => 1,
    };
    put(&mut bytes, 4, &layout.unit_ms().to_le_bytes());
    put(&mut bytes, 8, &layout.epoch_ms().to_le_bytes());
    put(&mut bytes, 16, &layout.sequence_threshold().to_le_bytes());
    bytes
}

pub(crate) fn decode_layout(bytes: &[u8]) -> Result<Layout, String> {
    let [timestamp_bits, slot_bits, sequence_bits, order] = [bytes[0], bytes[1], bytes[2], bytes[3]];
    let order = match order {
        0 => FieldOrder::SlotSequence,
        1 => FieldOrder::SequenceSlot,
        _ => return Err(format!("field order {order} of the layout is unknown")),
    };
    if bytes[20..].iter().any(|&byte| byte != 0) {
        return Err("the layout says more than is known here".into());
    }
    Layout::builder()
        .timestamp_bits(timestamp_bits)
        .slot_bits(slot_bits)
        .sequence_bits(sequence_bits)
        .unit_ms(u32_at(bytes, 4))
        .epoch_ms(u64_at(bytes, 8))
        .sequence_threshold(u32_at(bytes, 16))
        .order(order)
        .build()
        .map_err(|error| error.to_string())
}

/// FNV-1a, 64 bits: every single changed byte changes it, and it is five lines in any language.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}
