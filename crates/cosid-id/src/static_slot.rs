//! A slot that no cluster leases: it is this process's by configuration, and a file remembers how far it has got.
//!
//! Two things have to be true for its IDs to be unique. That nobody else has the slot's number is up to whoever
//! configures it (a StatefulSet's ordinals, say). That a restart goes on above everything that was issued before,
//! whatever the clock does meanwhile, is what the state file is for: it holds a ceiling, which is on the disk before the
//! first ID below it is made, and the next start's floor is at least that.

mod builder;
mod file;
mod keeping;
mod state;
#[cfg(test)]
mod tests;

pub use builder::StaticSlotBuilder;

use std::fmt;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;

use crate::error::Error;
use crate::generator::Generator;
use crate::layout::Layout;
use crate::page::{Closed, Page, PageOwner};
use keeping::Keeping;

/// A slot given by configuration, with the window check of a leased one.
///
/// ```
/// use std::time::Duration;
/// use cosid_id::StaticSlot;
///
/// # let dir = tempfile::tempdir()?;
/// # let state = dir.path().join("orders-3.state");
/// let mut slot = StaticSlot::builder(3).pool("shop/orders").open(&state)?;
/// if let Some(warning) = slot.warning() {
///     eprintln!("{warning}");
/// }
/// let orders = slot.generator("orders")?;
/// let id = orders.next(Duration::from_secs(1))?;
/// slot.close()?; // the next start goes on right above the last ID
/// # let mut again = StaticSlot::builder(3).pool("shop/orders").open(&state)?;
/// # assert!(again.generator("orders")?.next(Duration::from_secs(1))? > id);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What a restart costs
///
/// After [`StaticSlot::close`] (or drop) nothing. After a kill or a power cut IDs begin above the ceiling that the file
/// has, at most 10 s ahead of the last ID; until then a generator says [`Wait::BelowFloor`](crate::Wait::BelowFloor) and
/// how long that is. If the host's clock was set back meanwhile it is that much longer.
///
/// # When the disk fails
///
/// While the file can't be written IDs go on up to the ceiling that it has, and then stop with
/// [`Wait::AboveCeiling`](crate::Wait::AboveCeiling); [`StaticSlot::health`] has the reason. They go on by themselves
/// once it can be written again.
///
/// # Forked workers
///
/// Generators go on in a forked child, on the same page, for as long as the process that opened the slot lives and a
/// ceiling longer. The slot itself stays that process's: in a child closing is an error and dropping does nothing. A child
/// keeps the state file's lock of a killed parent until it ends, so that the slot can't be opened anew over workers that
/// are left. Once the slot is closed they make no IDs, and keep nothing.
pub struct StaticSlot {
    page: PageOwner,
    /// The process that opened it.
    opened_by: u32,
    /// `None` without a state file, and once it is closed.
    keeping: Option<Keeping>,
    warning: Option<StaticWarning>,
}

/// What a static slot goes without. Its IDs are unique all the same as long as the host's clock never went back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StaticWarning {
    /// There is no state file.
    #[error(
        "slot {slot} has no state file: if this host's clock goes back over a restart its IDs repeat, and nothing keeps a \
         second process off the slot; give it a file on a disk that outlives restarts"
    )]
    NoFile {
        /// The slot.
        slot: u32,
    },
    /// The state file was made just now.
    #[error(
        "state file {} is new: IDs begin now. If the slot was used before and the file is lost, they repeat if this host's \
         clock went back; start with a not-before that is later than every ID of the slot then", path.display()
    )]
    NewFile {
        /// The state file.
        path: PathBuf,
    },
}

impl StaticSlot {
    /// A slot by its number.
    pub fn builder(slot: u32) -> StaticSlotBuilder {
        StaticSlotBuilder::new(slot)
    }

    /// The slot whose number is at the end of a StatefulSet pod's host name: `web-3` is 3. Of a name with dots the first
    /// part counts.
    ///
    /// ```
    /// use cosid_id::{Error, StaticSlot};
    ///
    /// assert_eq!(StaticSlot::of_host("web-3.web.shop.svc")?.slot(), 3);
    /// assert!(matches!(StaticSlot::of_host("web-7d9f"), Err(Error::NoOrdinal { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoOrdinal`].
    pub fn of_host(name: &str) -> Result<StaticSlotBuilder, Error> {
        let host = name.split('.').next().unwrap_or_default();
        let ordinal = host.rsplit_once('-').map(|(_, digits)| digits);
        // Kubernetes writes no sign and no zeros in front.
        let digits = ordinal.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let slot = digits.and_then(|digits| digits.parse().ok());
        slot.map(Self::builder).ok_or_else(|| Error::NoOrdinal { host: crate::error::excerpt(name) })
    }

    /// [`StaticSlot::of_host`] with the name of this host.
    ///
    /// # Errors
    /// [`Error::NoOrdinal`].
    pub fn of_this_host() -> Result<StaticSlotBuilder, Error> {
        Self::of_host(&rustix::system::uname().nodename().to_string_lossy())
    }

    /// What the slot goes without; for the program's log.
    #[must_use]
    pub fn warning(&self) -> Option<&StaticWarning> {
        self.warning.as_ref()
    }

    /// The generator of a name, which gets a cell if it has none yet. Each name is an ID space of its own. Never blocks.
    ///
    /// # Errors
    /// Those of [`StaticSlot::assign`].
    pub fn generator(&mut self, name: &str) -> Result<Generator, Error> {
        let cell = self.assign(name)?;
        Generator::new(Arc::clone(self.page.page()), cell)
    }

    /// The generator of a name, with a layout of its own, which it must have at every start: see
    /// [`PageOwner::assign_in`]. Never blocks.
    ///
    /// ```
    /// use cosid_id::{Error, Layout, StaticSlot};
    ///
    /// let mut slot = StaticSlot::builder(3).open_without_file()?;
    /// let seconds = Layout::builder().timestamp_bits(31).sequence_bits(22).unit_ms(1000).build()?;
    /// let parcels = slot.generator_in("parcels", &seconds)?;
    /// assert_eq!(parcels.layout(), &seconds);
    /// assert!(matches!(slot.generator("parcels"), Err(Error::OtherLayout { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`StaticSlot::assign`]; [`Error::OtherLayout`], [`Error::UnfitLayout`].
    pub fn generator_in(&mut self, name: &str, layout: &Layout) -> Result<Generator, Error> {
        let cell = self.assign_in(name, layout)?;
        Generator::new(Arc::clone(self.page.page()), cell)
    }

    /// The cell of a name on the page, for other processes that map it; see [`PageOwner::assign`].
    ///
    /// # Errors
    /// [`Error::BadGeneratorName`], [`Error::CellsUsedUp`], [`Error::PageClosed`], [`Error::OtherLayout`]; [`Error::NotTheOpener`] for a new name
    /// in a forked child, since its parent would not know of it.
    pub fn assign(&mut self, name: &str) -> Result<usize, Error> {
        let layout = self.page.page().header().layout;
        self.assign_in(name, &layout)
    }

    /// [`StaticSlot::assign`] with a layout of the generator's own, see [`PageOwner::assign_in`].
    ///
    /// # Errors
    /// Those of [`StaticSlot::assign`]; [`Error::UnfitLayout`].
    pub fn assign_in(&mut self, name: &str, layout: &Layout) -> Result<usize, Error> {
        if self.page.cell(name).is_none() && !self.is_opener() {
            return Err(Error::NotTheOpener { opened_by: self.opened_by });
        }
        self.page.assign_in(name, layout)
    }

    /// The page: slot, layout, floor, ceiling, last timestamp.
    #[must_use]
    pub fn page(&self) -> &Arc<Page> {
        self.page.page()
    }

    /// Whether the ceiling is moved on, as far as this process knows. It is after an error too, once a later try works.
    ///
    /// # Errors
    /// Why the last try failed: [`Error::StateIo`], [`Error::StateChanged`], [`Error::CorruptState`] and so on.
    pub fn health(&self) -> Result<(), Arc<Error>> {
        // A child may have been forked while the parent's thread had the lock.
        let keeping = self.keeping.as_ref().filter(|_| self.is_opener());
        keeping.and_then(Keeping::failure).map_or(Ok(()), Err)
    }

    /// Ends the slot: no generator makes another ID from it, in any process. The exact last timestamp is written, above
    /// which the next start goes on at once. Blocks until the disk has it.
    ///
    /// # Errors
    /// [`Error::StateIo`], [`Error::StateChanged`] and so on if it can't be written: the file has the ceiling then, so that
    /// the next start waits longer, and nothing repeats. [`Error::NotTheOpener`] in a forked child, which ends nothing.
    pub fn close(mut self) -> Result<Closed, Error> {
        self.end()
    }

    fn end(&mut self) -> Result<Closed, Error> {
        let keeping = self.keeping.take();
        if !self.is_opener() {
            // The thread that it would end is the parent's.
            std::mem::forget(keeping);
            return Err(Error::NotTheOpener { opened_by: self.opened_by });
        }
        // In this order: what the page says is then final.
        let closed = self.page.close();
        match keeping {
            Some(keeping) => keeping.end(closed.last_issued).map(|()| closed),
            None => Ok(closed),
        }
    }

    fn is_opener(&self) -> bool {
        process::id() == self.opened_by
    }
}

impl Drop for StaticSlot {
    fn drop(&mut self) {
        // Whoever wants to know calls `close`; again it changes nothing.
        let _ = self.end();
    }
}

impl fmt::Debug for StaticSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticSlot")
            .field("page", self.page.page())
            .field("warning", &self.warning)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
