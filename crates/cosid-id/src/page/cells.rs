//! Which generator has which cell, and in which layout.

use super::{Page, PageOwner};
use crate::cell;
use crate::error::{Error, excerpt};
use crate::format::{
    CELLS, LAYOUT_WORDS, MAX_NAME_LEN, decode_layout, encode_layout, layout_word, name_len_word, name_word,
    state_word,
};
use crate::layout::Layout;
use crate::sync::Ordering;

impl Page {
    /// The layout of a cell's IDs: the pool's, unless its generator was made with one of its own.
    ///
    /// # Errors
    /// [`Error::NoSuchCell`], [`Error::NewerCell`].
    pub fn layout_of(&self, cell: usize) -> Result<Layout, Error> {
        let path = || self.path.clone();
        // The name first: it was stored last.
        if cell >= CELLS || self.cell_name(cell).is_none() {
            return Err(Error::NoSuchCell { cell, path: path() });
        }
        self.stored_layout(cell).ok_or_else(|| Error::NewerCell { cell, path: path() })
    }

    /// `None` for one that is not known, or that the slot does not fit.
    pub(super) fn stored_layout(&self, cell: usize) -> Option<Layout> {
        let words = &self.words()[layout_word(cell)..][..LAYOUT_WORDS];
        let mut bytes = [0; LAYOUT_WORDS * 8];
        for (word, place) in words.iter().zip(bytes.chunks_exact_mut(8)) {
            place.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        if bytes.iter().all(|&byte| byte == 0) {
            return Some(self.header.layout);
        }
        decode_layout(&bytes).ok().filter(|layout| layout.check_slot(self.header.slot).is_ok())
    }

    pub(super) fn last_issued_of(&self, cell: usize) -> u64 {
        let state = self.state_word(cell).load(Ordering::Acquire);
        self.last_issued_at(cell, state)
    }

    /// A cell in a layout that is not known may have issued up to the ceiling.
    pub(super) fn last_issued_at(&self, cell: usize, state: u64) -> u64 {
        let floor = self.header.floor;
        self.stored_layout(cell)
            .map_or_else(|| self.ceiling().max(floor), |layout| cell::last_issued(&layout, floor, state))
    }
}

impl PageOwner {
    /// The cell of the generator `name`, which gets a free one if it has none yet; its IDs have the pool's layout. Each name
    /// is an ID space of its own: two generators of one page make equal numbers.
    ///
    /// # Errors
    /// [`Error::BadGeneratorName`], [`Error::CellsUsedUp`], [`Error::PageClosed`]; [`Error::OtherLayout`] if it has a layout
    /// of its own.
    pub fn assign(&mut self, name: &str) -> Result<usize, Error> {
        let layout = self.page.header.layout;
        self.assign_in(name, &layout)
    }

    /// [`PageOwner::assign`] with a layout of the generator's own: with room for each slot of the pool, and in all no more
    /// bits than the pool's. Whoever asks first fixes it for as long as the page lives.
    ///
    /// A name must have the same layout always and everywhere: on this page whoever wants another one is refused, but
    /// other pages of the pool, and those to come, are not known here. Equal numbers can come of two layouts of one name.
    ///
    /// # Errors
    /// Those of [`PageOwner::assign`]; [`Error::UnfitLayout`].
    pub fn assign_in(&mut self, name: &str, layout: &Layout) -> Result<usize, Error> {
        let bytes = name.as_bytes();
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        if bytes.is_empty() || bytes.len() > MAX_NAME_LEN || !bytes.iter().all(allowed) {
            return Err(Error::BadGeneratorName { name: excerpt(name), max: MAX_NAME_LEN });
        }
        if self.page.is_closed() {
            return Err(Error::PageClosed { path: self.page.path.clone() });
        }
        let pools = self.page.header.layout;
        if layout.slot_bits() < pools.slot_bits() || layout.bits() > pools.bits() {
            let (slot_bits, bits) = (pools.slot_bits(), pools.bits());
            return Err(Error::UnfitLayout { name: name.to_owned(), layout: *layout, slot_bits, bits });
        }
        if let Some(cell) = self.page.cell(name) {
            let has = self.page.layout_of(cell)?;
            return if has == *layout {
                Ok(cell)
            } else {
                Err(Error::OtherLayout { name: name.to_owned(), has, asked: *layout })
            };
        }
        let cell = (0..CELLS)
            .find(|&cell| self.is_free(cell, layout))
            .ok_or_else(|| Error::CellsUsedUp { name: name.to_owned(), cells: CELLS })?;
        if *layout != pools {
            self.lay_out(cell, layout)?;
        }
        let mut padded = [0; MAX_NAME_LEN];
        padded[..bytes.len()].copy_from_slice(bytes);
        let words = self.page.words();
        for (index, chunk) in padded.as_chunks::<8>().0.iter().enumerate() {
            words[name_word(cell) + index].store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        words[name_len_word(cell)].store(bytes.len() as u64, Ordering::Release);
        Ok(cell)
    }

    /// One that an owner began to lay out and did not name, since it was killed, is left alone; so is, for a layout of its
    /// own, one whose state has moved: it would be set back.
    fn is_free(&self, cell: usize, layout: &Layout) -> bool {
        let words = self.page.words();
        let stored = &words[layout_word(cell)..][..LAYOUT_WORDS];
        let is_untouched = || words[state_word(cell)].load(Ordering::Acquire) == self.first_state();
        self.page.cell_name(cell).is_none()
            && stored.iter().all(|word| word.load(Ordering::Relaxed) == 0)
            && (*layout == self.page.header.layout || is_untouched())
    }

    /// The layout comes first: whoever closes the page in between reads the state by it. The name comes later, and until
    /// then nobody makes IDs here.
    fn lay_out(&self, cell: usize, layout: &Layout) -> Result<(), Error> {
        let words = self.page.words();
        for (index, chunk) in encode_layout(layout).as_chunks::<8>().0.iter().enumerate() {
            words[layout_word(cell) + index].store(u64::from_le_bytes(*chunk), Ordering::Release);
        }
        let first = cell::first_state(layout, self.page.header.floor);
        // Not a store: it would take the mark off a page that is being closed.
        let outcome = words[state_word(cell)].compare_exchange(
            self.first_state(),
            first,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        outcome.map(drop).map_err(|_| Error::PageClosed { path: self.page.path.clone() })
    }

    fn first_state(&self) -> u64 {
        cell::first_state(&self.page.header.layout, self.page.header.floor)
    }
}
