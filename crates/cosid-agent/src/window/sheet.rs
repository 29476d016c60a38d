//! A page and who answers for its ceiling.

use std::sync::Arc;

use cosid_id::{Layout, Page, PageOwner, StaticSlot};
use cosid_lease::Millis;

/// A page that apps make IDs from.
pub(super) enum Sheet {
    /// A leased slot's: the keeper moves its ceiling.
    Leased(PageOwner),
    /// A static slot's, which moves its ceiling itself.
    Static(StaticSlot),
}

impl Sheet {
    pub(super) fn page(&self) -> &Arc<Page> {
        match self {
            Self::Leased(page) => page.page(),
            Self::Static(slot) => slot.page(),
        }
    }

    /// # Errors
    /// As [`PageOwner::assign_in`].
    pub(super) fn assign(&mut self, name: &str, layout: &Layout) -> Result<usize, cosid_id::Error> {
        match self {
            Self::Leased(page) => page.assign_in(name, layout),
            Self::Static(slot) => slot.assign_in(name, layout),
        }
    }

    /// Ends it for good and gives the last timestamp issued, Unix ms. A static slot's is written to its state file, which
    /// blocks until the disk has it.
    pub(super) fn close(self) -> Millis {
        match self {
            Self::Leased(page) => page.close().last_issued,
            Self::Static(slot) => {
                let page = Arc::clone(slot.page());
                if let Err(error) = slot.close() {
                    tracing::warn!("{error}; the next start waits until the ceiling has passed");
                }
                page.last_issued()
            }
        }
    }
}
