//! How a static slot is opened.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use super::file::StateFile;
use super::keeping::{Hook, Keeping};
use super::state::Identity;
use super::{StaticSlot, StaticWarning};
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::format::Header;
use crate::layout::Layout;
use crate::page::PageOwner;

const AHEAD: Duration = Duration::from_secs(10);
/// Half of it is left when it is moved on, and the tick under way has to end below the ceiling.
const LEAST_TICKS_AHEAD: u64 = 4;
/// Later than any layout ends, and not so late that it overflows.
const FOR_EVER: u64 = i64::MAX as u64;

/// What a static slot is to be; from [`StaticSlot::builder`] and [`StaticSlot::of_host`].
#[must_use]
pub struct StaticSlotBuilder {
    slot: u32,
    pool: String,
    layout: Layout,
    not_before: u64,
    ahead: Duration,
    page: Option<PathBuf>,
    hook: Option<Hook>,
}

impl StaticSlotBuilder {
    pub(super) fn new(slot: u32) -> Self {
        Self {
            slot,
            pool: "static".into(),
            layout: Layout::MILLISECOND,
            not_before: 0,
            ahead: AHEAD,
            page: None,
            hook: None,
        }
    }

    /// The slot.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// What the ID space is called, 1 to 336 bytes; default `static`. It is in the state file, so that the file of another
    /// is noticed.
    pub fn pool(mut self, name: impl Into<String>) -> Self {
        self.pool = name.into();
        self
    }

    /// How IDs are put together; default [`Layout::MILLISECOND`].
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Unix ms: every ID has a later timestamp. For a slot that something else used until then, or whose state file is
    /// lost.
    pub fn not_before(mut self, unix_ms: u64) -> Self {
        self.not_before = unix_ms;
        self
    }

    /// How far ahead of the clock the written ceiling goes; default 10 s, and at least four of the layout's units. It is
    /// how long IDs wait after a kill, and twice the time between two writes.
    pub fn ahead(mut self, ahead: Duration) -> Self {
        self.ahead = ahead;
        self
    }

    /// Makes the page as a file, which must not exist yet, so that other processes can map it. It stays when the slot is
    /// closed. Default: a page in memory, for this process and those that it forks.
    pub fn page(mut self, path: impl Into<PathBuf>) -> Self {
        self.page = Some(path.into());
        self
    }

    /// Called after each try to extend, by the thread that extends, with the new ceiling (Unix ms) or what stood in the
    /// way: for logs. It must not panic, or the slot is no longer extended.
    pub fn on_extension(mut self, hook: impl FnMut(Result<u64, &Error>) + Send + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Opens the slot with its state file, which is made if it is missing; its directory has to exist. A lock beside it,
    /// `FILE.lock`, is held for as long as the slot lives. Blocks until the disk has the first ceiling.
    ///
    /// IDs begin above the file's ceiling and [`not_before`](Self::not_before); where the file is new, above now.
    ///
    /// # Errors
    /// [`Error::StateInUse`], [`Error::CorruptState`], [`Error::NewerState`], [`Error::StateOfAnother`],
    /// [`Error::StateIo`], [`Error::StateThread`]; [`Error::SlotTooLarge`], [`Error::BadPoolName`], and those of
    /// [`PageOwner::create`].
    pub fn open(self, state: impl AsRef<Path>) -> Result<StaticSlot, Error> {
        self.open_with_clock(state.as_ref(), SystemClock)
    }

    pub(super) fn open_with_clock(
        self,
        path: &Path,
        clock: impl Clock + Send + 'static,
    ) -> Result<StaticSlot, Error> {
        let identity = Identity { pool: self.pool.clone(), slot: self.slot, layout: self.layout };
        let (file, found) = StateFile::claim(path, identity)?;
        let now = clock.unix_ms();
        let floor = found.map_or(now, |state| state.ceiling).max(self.not_before);
        let page = self.make_page(floor, file.fence())?;
        let ahead_ms = self.ahead_ms();
        // In this order: whatever the page allows the disk has.
        let ceiling = floor.max(now.saturating_add(ahead_ms));
        let begun = file.begin(ceiling).and_then(|()| {
            page.set_ceiling(ceiling);
            Keeping::start(file, Arc::clone(page.page()), ahead_ms, clock, self.hook)
        });
        let keeping = begun.inspect_err(|_| {
            page.close();
            if let Some(path) = &self.page {
                // Nobody was told of it.
                let _ = fs::remove_file(path);
            }
        })?;
        let warning = found.is_none().then(|| StaticWarning::NewFile { path: path.into() });
        Ok(StaticSlot { page, opened_by: process::id(), keeping: Some(keeping), warning })
    }

    /// Opens the slot without a state file: nothing is remembered, IDs begin above now and
    /// [`not_before`](Self::not_before), and nothing keeps a second process off the slot. What that means
    /// [`StaticSlot::warning`] says.
    ///
    /// # Errors
    /// [`Error::SlotTooLarge`], [`Error::BadPoolName`], and those of [`PageOwner::create`].
    pub fn open_without_file(self) -> Result<StaticSlot, Error> {
        let now = SystemClock.unix_ms();
        // Clients of a page that is a file tell this opening from the last by the fence.
        let page = self.make_page(now.max(self.not_before), now)?;
        page.set_ceiling(FOR_EVER);
        let warning = Some(StaticWarning::NoFile { slot: self.slot });
        Ok(StaticSlot { page, opened_by: process::id(), keeping: None, warning })
    }

    fn make_page(&self, floor: u64, fence: u64) -> Result<PageOwner, Error> {
        let header = Header { pool: self.pool.clone(), slot: self.slot, fence, floor, layout: self.layout };
        match &self.page {
            Some(path) => PageOwner::create(path, &header),
            None => PageOwner::in_memory(&header),
        }
    }

    fn ahead_ms(&self) -> u64 {
        let ahead = u64::try_from(self.ahead.as_millis()).unwrap_or(u64::MAX);
        ahead.max(LEAST_TICKS_AHEAD * u64::from(self.layout.unit_ms()))
    }
}

impl fmt::Debug for StaticSlotBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticSlotBuilder")
            .field("slot", &self.slot)
            .field("pool", &self.pool)
            .field("layout", &self.layout)
            .field("not_before", &self.not_before)
            .field("ahead", &self.ahead)
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}
