//! How the state of a page's cell becomes an ID: in three steps, whatever the layout.

use crate::id::Id;
use crate::layout::{FieldOrder, Layout};

/// What a slot's IDs have in common, ready to be put around a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    /// The bits of a state that the slot goes below.
    above_slot: u64,
    slot_bits: u8,
    slot: u64,
}

impl Stamp {
    pub(crate) const fn new(layout: &Layout, slot: u32) -> Self {
        let above_slot = match layout.order() {
            FieldOrder::SlotSequence => !(layout.max_sequence() as u64),
            FieldOrder::SequenceSlot => u64::MAX,
        };
        let slot = (slot as u64) << layout.slot_shift();
        Self { above_slot, slot_bits: layout.slot_bits(), slot }
    }

    /// The ID with a state's tick and sequence.
    #[inline]
    pub(crate) const fn id(&self, state: u64) -> Id {
        Id::composed((state & self.above_slot) << self.slot_bits | self.slot | (state & !self.above_slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_makes_the_ids_that_the_layout_composes() {
        let layouts =
            [Layout::MILLISECOND, Layout::SECOND, Layout::JAVASCRIPT_MILLISECOND, Layout::SONYFLAKE];
        let no_slot = Layout::builder().slot_bits(0).build().unwrap();
        for layout in layouts.into_iter().chain([no_slot]) {
            for slot in [0, 1.min(layout.max_slot()), layout.max_slot()] {
                for tick in [0, 1, 12_345, layout.max_tick()] {
                    for sequence in [0, 1, layout.max_sequence()] {
                        let state = (tick << layout.sequence_bits()) | u64::from(sequence);
                        let composed = layout.compose_fields(tick, slot, sequence);
                        assert_eq!(Stamp::new(&layout, slot).id(state), composed);
                    }
                }
            }
        }
    }
}
