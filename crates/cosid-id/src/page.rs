//! The window page: a small file that an agent makes for each binding (slot and fence) and that all programs
//! of a pod map. [`format`](crate::format) has it byte by byte.
//!
//! # Who may do what
//!
//! Whoever holds the lease has a [`PageOwner`]: it makes the file, raises the ceiling, gives out cells and
//! closes. Everybody else opens the file as a [`Page`], which can only be read and issued from. The split is in
//! the types so that no client can raise its own ceiling by mistake. There must be one owner at a time; the
//! agent sees to that with its own lock.
//!
//! # One page, one binding
//!
//! A closed page never comes back to life. Closing first sets the closed word, then poisons the state of
//! *every* cell, free ones too. A cell that is given out while the page is being closed is therefore either
//! refused or poisoned, whatever the order: there is no word left from which an ID could come.
//!
//! # Truncation
//!
//! The length is checked when a page is opened. A file that is cut short while it is mapped kills its readers
//! with SIGBUS; no program but the owner has a reason to write the file other than through the mapping.

mod cells;
#[cfg(test)]
mod fork_tests;
mod map;

pub(crate) use map::{OwnWords, Word};

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::ops::Deref;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cell;
use crate::error::Error;
use crate::format::{
    CEILING_WORD, CELLS, CLOSED_WORD, HEADER_LEN, Header, MAX_NAME_LEN, NAME_WORDS, PAGE_LEN, name_len_word,
    name_word, state_word,
};
use crate::sync::{AtomicU64, Ordering};
use map::Mapping;

/// Everybody may read and write: the containers of a pod run as different users, without a common group unless
/// somebody set one. Whoever can write a page can make IDs, so it is the directory that keeps strangers out.
const MODE: u32 = 0o666;

/// A mapped window page, as its clients see it.
pub struct Page {
    path: PathBuf,
    header: Header,
    mapping: Mapping,
}

/// A cell that belongs to a generator.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CellInfo {
    /// The cell's number on its page.
    pub cell: usize,
    /// The generator's name.
    pub name: String,
    /// Unix ms of the last timestamp issued, the page's floor if there is none.
    pub last_issued: u64,
}

/// The proof that a page issues no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Closed {
    /// Unix ms of the last timestamp issued from any cell, the page's floor if there is none. Final: this is
    /// what a release hands on as the next holder's floor (a lease clamps it to its own window, should a
    /// hostile program have written nonsense into the page). It is exact, unless more threads than a tick has
    /// sequences to spare (1 of 64) came too late for it at once; it is then a tick later, which is no less safe.
    pub last_issued: u64,
}

impl Page {
    /// Maps an existing page; a closed one too (its generators say so). Blocks for file I/O only.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotAPage`], [`Error::NewerPage`], [`Error::Truncated`], [`Error::WrongSize`],
    /// [`Error::CorruptPage`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let failed_to = |action| move |source| io_error(action, path, source);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed_to("open"))?;
        let metadata = file.metadata().map_err(failed_to("open"))?;
        if !metadata.is_file() {
            return Err(Error::NotAPage { path: path.to_path_buf() });
        }
        let mut head = Vec::with_capacity(HEADER_LEN);
        (&file).take(HEADER_LEN as u64).read_to_end(&mut head).map_err(failed_to("read"))?;
        let header = Header::decode(path, metadata.len(), &head)?;
        let mapping = Mapping::new(&file).map_err(failed_to("map"))?;
        Ok(Self { path: path.to_path_buf(), header, mapping })
    }

    /// What the page says of its binding. A client compares pool, slot and fence with what the agent told it.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The file, as it was given to [`Page::open`].
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unix ms: the largest timestamp that may be issued now. It only grows.
    #[must_use]
    pub fn ceiling(&self) -> u64 {
        self.ceiling_word().load(Ordering::Acquire)
    }

    /// Whether the slot is gone; once true it stays true.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.words()[CLOSED_WORD].load(Ordering::Acquire) != 0
    }

    /// The cell of a named generator, if it has one.
    #[must_use]
    pub fn cell(&self, name: &str) -> Option<usize> {
        (0..CELLS).find(|&cell| self.cell_name(cell).is_some_and(|bytes| bytes == name.as_bytes()))
    }

    /// All cells that belong to a generator.
    #[must_use]
    pub fn cells(&self) -> Vec<CellInfo> {
        let info = |cell| {
            let name = String::from_utf8_lossy(&self.cell_name(cell)?).into_owned();
            Some(CellInfo { cell, name, last_issued: self.last_issued_of(cell) })
        };
        (0..CELLS).filter_map(info).collect()
    }

    /// Unix ms of the last timestamp issued so far from any cell, the floor if there is none. As long as the
    /// page is open more can follow at any moment; only [`PageOwner::close`] gives a final value.
    #[must_use]
    pub fn last_issued(&self) -> u64 {
        (0..CELLS).map(|cell| self.last_issued_of(cell)).fold(self.header.floor, u64::max)
    }

    pub(crate) fn state_word(&self, cell: usize) -> &AtomicU64 {
        &self.words()[state_word(cell)]
    }

    pub(crate) fn ceiling_word(&self) -> &AtomicU64 {
        &self.words()[CEILING_WORD]
    }

    /// For who holds the slot: [`PageOwner::set_ceiling`].
    pub(crate) fn raise_ceiling(&self, unix_ms: u64) -> u64 {
        self.ceiling_word().fetch_max(unix_ms, Ordering::AcqRel).max(unix_ms)
    }

    fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    /// The name's bytes, `None` for a free cell. The length is read first: it was stored last.
    fn cell_name(&self, cell: usize) -> Option<Vec<u8>> {
        let len = self.words()[name_len_word(cell)].load(Ordering::Acquire);
        let len = usize::try_from(len).unwrap_or(MAX_NAME_LEN).min(MAX_NAME_LEN);
        let words = &self.words()[name_word(cell)..][..NAME_WORDS];
        let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        (len > 0).then(|| bytes.take(len).collect())
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page")
            .field("path", &self.path)
            .field("header", &self.header)
            .field("ceiling", &self.ceiling())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// A page in the hands of whoever holds the lease.
///
/// ```
/// use std::time::Duration;
/// use cosid_id::{Clock, Generator, Header, Layout, PageOwner, SystemClock};
///
/// let dir = tempfile::tempdir()?;
/// let now = SystemClock.unix_ms();
/// let header =
///     Header { pool: "shop/orders".into(), slot: 5, fence: 1, floor: now - 1, layout: Layout::MILLISECOND };
/// let mut owner = PageOwner::create(dir.path().join("5-1.page"), &header)?;
/// let cell = owner.assign("orders")?;
/// owner.set_ceiling(now + 30_000);
///
/// let generator = Generator::new(owner.page().clone(), cell)?;
/// let id = generator.next(Duration::from_secs(1))?;
/// let closed = owner.close();
/// assert_eq!(closed.last_issued, header.layout.decompose(id)?.timestamp());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PageOwner {
    page: Arc<Page>,
}

impl PageOwner {
    /// Makes a page whose window is still empty: `ceiling = floor`.
    ///
    /// The file is complete, with all its blocks allocated, before it gets its name, so that nobody opens half
    /// a page and a full disk is an error here and not a SIGBUS later. It is not synced: after a reboot the
    /// page is worth nothing. Its mode is 0666. Blocks for file I/O only.
    ///
    /// # Errors
    /// [`Error::PageExists`], [`Error::DiskFull`], [`Error::Io`], [`Error::SlotTooLarge`],
    /// [`Error::BadPoolName`].
    pub fn create(path: impl AsRef<Path>, header: &Header) -> Result<Self, Error> {
        let path = path.as_ref();
        let image = header.encode()?;
        let draft = draft_path(path);
        let published = write_draft(&draft, &image).and_then(|()| fs::hard_link(&draft, path));
        // Not by rename: that would replace an existing page under clients which have the old one mapped.
        let removed = fs::remove_file(&draft);
        published.and(removed).map_err(|source| io_error("create", path, source))?;
        Self::open(path)
    }

    /// A page in memory, without a name: for this process and those that it forks.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::SlotTooLarge`], [`Error::BadPoolName`].
    pub(crate) fn in_memory(header: &Header) -> Result<Self, Error> {
        let image = header.encode()?;
        let path = PathBuf::from(format!("of slot {} in memory", header.slot));
        let failed = |source: io::Error| io_error("create", &path, source);
        let memory = rustix::fs::memfd_create("cosid-page", rustix::fs::MemfdFlags::CLOEXEC);
        let mut file = File::from(memory.map_err(|errno| failed(errno.into()))?);
        file.write_all(&image).map_err(failed)?;
        let mapping = Mapping::new(&file).map_err(failed)?;
        Ok(Self { page: Arc::new(Page { path, header: header.clone(), mapping }) })
    }

    /// Takes over an existing page, as an agent does that was restarted.
    ///
    /// # Errors
    /// Those of [`Page::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self { page: Arc::new(Page::open(path)?) })
    }

    /// The page as its clients see it, for generators in the owner's own process.
    #[must_use]
    pub fn page(&self) -> &Arc<Page> {
        &self.page
    }

    /// Raises the ceiling to `unix_ms`; a lower value changes nothing. The ceiling that now holds is returned.
    pub fn set_ceiling(&self, unix_ms: u64) -> u64 {
        self.page.raise_ceiling(unix_ms)
    }

    /// Ends the page for good: when this returns no ID can come from it any more, in any process. May be called
    /// again, also by a restarted agent, with the same result, or one that late additions have made a tick later, see
    /// [`Closed`]. Never blocks.
    pub fn close(&self) -> Closed {
        let words = self.page.words();
        words[CLOSED_WORD].store(1, Ordering::Release);
        let last_issued = (0..CELLS)
            .map(|cell| self.page.last_issued_at(cell, cell::close(&words[state_word(cell)])))
            .fold(self.page.header.floor, u64::max);
        Closed { last_issued }
    }
}

impl Deref for PageOwner {
    type Target = Page;

    fn deref(&self) -> &Page {
        &self.page
    }
}

/// Where a page is written before it gets its name: next to it, hidden.
fn draft_path(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".draft");
    path.with_file_name(name)
}

fn write_draft(draft: &Path, image: &[u8]) -> io::Result<()> {
    // An owner that was killed here left its draft behind; nobody has it mapped.
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(draft)?;
    // The umask must not take the group's right to write.
    file.set_permissions(Permissions::from_mode(MODE))?;
    allocate(&file, image.len() as u64)?;
    file.write_all(image)
}

/// Reserves the blocks. Where the file system cannot, writing every byte of the image has to do.
fn allocate(file: &File, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len) {
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        outcome => outcome.map_err(io::Error::from),
    }
}

/// A failed operation on the page's file; a full disk and a page that exists have variants of their own.
fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    let path = path.to_path_buf();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Error::DiskFull { path, bytes: PAGE_LEN as u64, source }
        }
        io::ErrorKind::AlreadyExists => Error::PageExists { path },
        _ => Error::Io { action, path, source },
    }
}
