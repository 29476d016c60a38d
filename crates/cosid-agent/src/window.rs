//! The window page of the lease that is held: made, extended, closed, and found again after a restart.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cosid_id::{Generator, Header, Layout, PageOwner};
use cosid_lease::keeper::Binding;
use cosid_lease::{Fence, Holding, Millis, Owner, Slot, Terms};
use serde::{Deserialize, Serialize};

use crate::directory::{remove_if_there, replace};
use crate::error::Error;
use crate::status::{LeaseView, StatusBoard};

/// How often a page that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The page, shared by the keeper's driver and the socket's requests.
#[derive(Clone)]
pub(crate) struct Window(Arc<Shared>);

struct Shared {
    directory: PathBuf,
    board: StatusBoard,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    open: Option<Open>,
    /// A lease whose page could not be made yet.
    blocked: Option<Blocked>,
}

struct Blocked {
    binding: Binding,
    pool: String,
    /// The pool's layout, or why it can't be used.
    layout: Result<Layout, String>,
    /// What was said of it last, so that it is said once.
    said: String,
}

struct Open {
    page: PageOwner,
    file: String,
    binding: Binding,
}

/// A named generator's place on the page.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Assigned {
    /// Its name.
    pub generator: String,
    /// Its cell on the page.
    pub cell: usize,
    /// The pool, `namespace/name`.
    pub pool: String,
    /// The slot.
    pub slot: Slot,
    /// The fence.
    pub fence: Fence,
    /// The page's file name, in the socket's directory.
    pub page: String,
}

/// What outlives a restart of the agent, but not of the machine.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Saved {
    /// The kernel's id of this boot. After another boot no process of the old one is left that could use the page, but
    /// its memory may be gone too: nothing is resumed.
    boot_id: String,
    /// Which directory this is, whatever it is called. A copy of it resumes nothing: two agents would keep one lease, with
    /// a page each.
    directory: Place,
    pool: String,
    owner: Owner,
    slot: Slot,
    fence: Fence,
    floor: Millis,
    acquired_at: Millis,
    terms: Terms,
    layout: Layout,
    page: String,
}

/// A directory: its device and inode, which no copy of it has.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    device: u64,
    inode: u64,
}

impl Place {
    fn of(directory: &Path) -> Result<Self, Error> {
        let metadata =
            fs::metadata(directory).map_err(Error::io("can't look at the directory", directory))?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// A lease that was found after a restart.
#[derive(Debug)]
pub(crate) struct Resumable {
    /// The pool's name.
    pub pool: String,
    /// The binding, with the ceiling that the page has.
    pub binding: Binding,
}

impl Window {
    /// No page yet.
    #[must_use]
    pub(crate) fn new(directory: &Path, board: StatusBoard) -> Self {
        Self(Arc::new(Shared { directory: directory.into(), board, inner: Mutex::default() }))
    }

    /// Finds the lease of an agent that served this directory before, was of the same key and pool, and did not close
    /// its page. All other pages are closed, so that apps that still map them move on, and removed.
    ///
    /// # Errors
    /// [`Error::Io`] where the directory can't be read. State or pages that can't be used are no error: they are
    /// dropped with a warning, and a new slot is acquired.
    pub(crate) fn resume(&self, key: &str, pool: Option<&str>) -> Result<Option<Resumable>, Error> {
        let resumed = match self.saved() {
            Some(saved) if saved.owner.key != key || pool.is_some_and(|pool| pool != saved.pool) => {
                tracing::info!(
                    "not resuming slot {} of pool {}: it was kept for {}",
                    saved.slot,
                    saved.pool,
                    saved.owner.key
                );
                None
            }
            Some(saved) => self.reopen(saved),
            None => None,
        };
        let keep = resumed.as_ref().map(|(_, file)| file.as_str());
        self.clear_pages(keep)?;
        if resumed.is_none() {
            remove_if_there(&self.state_path())?;
        }
        Ok(resumed.map(|(resumable, _)| resumable))
    }

    /// Makes the page of a lease that was acquired, and tries on where that fails.
    pub(crate) fn hold(&self, pool: &str, layout: Result<Layout, String>, binding: Binding) {
        let blocked = {
            let mut inner = self.lock();
            inner.blocked = Some(Blocked { binding, pool: pool.into(), layout, said: String::new() });
            self.make(&mut inner);
            inner.blocked.is_some()
        };
        if blocked {
            let window = self.clone();
            tokio::spawn(async move {
                while window.is_blocked() {
                    tokio::time::sleep(RETRY).await;
                    window.make(&mut window.lock());
                }
            });
        }
    }

    /// Raises the ceiling.
    pub(crate) fn extend(&self, ceiling: Millis, expires_at: Millis) {
        let mut inner = self.lock();
        if let Some(open) = &mut inner.open {
            open.page.set_ceiling(ceiling);
            open.binding.holding.ceiling = ceiling;
            open.binding.holding.expires_at = expires_at;
            self.0.board.extended(ceiling, expires_at);
        } else if let Some(blocked) = &mut inner.blocked {
            blocked.binding.holding.ceiling = ceiling;
            blocked.binding.holding.expires_at = expires_at;
        }
    }

    /// Ends the page for good and gives the last timestamp that was issued from it, Unix ms: its floor if there was
    /// none.
    #[must_use]
    pub(crate) fn close(&self) -> Millis {
        let mut inner = self.lock();
        let never_used = inner.blocked.take().map_or(0, |blocked| blocked.binding.holding.floor);
        let Some(open) = inner.open.take() else { return never_used };
        self.0.board.closing();
        let last_issued = open.page.close().last_issued;
        // The file may go: whoever maps it still sees that it is closed.
        for path in [self.0.directory.join(&open.file), self.state_path()] {
            if let Err(error) = remove_if_there(&path) {
                tracing::warn!("{error}");
            }
        }
        last_issued
    }

    /// The place of a named generator; `None` where there is no page.
    ///
    /// # Errors
    /// [`cosid_id::Error`]: the name is bad, or there is no room for another.
    pub(crate) fn assign(&self, name: &str) -> Result<Option<Assigned>, cosid_id::Error> {
        let mut inner = self.lock();
        let Some(open) = &mut inner.open else { return Ok(None) };
        let cell = open.page.assign(name)?;
        Ok(Some(Assigned {
            generator: name.into(),
            cell,
            pool: open.page.page().header().pool.clone(),
            slot: open.binding.slot,
            fence: open.binding.fence,
            page: open.file.clone(),
        }))
    }

    /// The generator of that name, for IDs made by the agent itself; `None` where there is no page.
    ///
    /// # Errors
    /// As [`Window::assign`].
    pub(crate) fn generator(&self, name: &str) -> Result<Option<Generator>, cosid_id::Error> {
        let mut inner = self.lock();
        let Some(open) = &mut inner.open else { return Ok(None) };
        let cell = open.page.assign(name)?;
        Generator::new(Arc::clone(open.page.page()), cell).map(Some)
    }

    /// The layout of the page; `None` where there is no page.
    #[must_use]
    pub(crate) fn layout(&self) -> Option<Layout> {
        self.lock().open.as_ref().map(|open| open.page.page().header().layout)
    }

    fn is_blocked(&self) -> bool {
        self.lock().blocked.is_some()
    }

    /// Makes the page of the blocked lease, and tells where that fails.
    fn make(&self, inner: &mut Inner) {
        let Some(mut blocked) = inner.blocked.take() else { return };
        match self.open(&blocked) {
            Ok(open) => inner.open = Some(open),
            Err(why) => {
                if blocked.said != why {
                    let slot = blocked.binding.slot;
                    tracing::error!("holds slot {slot}, but can't make its page: {why}; trying on");
                }
                self.0.board.blocked(&blocked.binding, &why);
                blocked.said = why;
                inner.blocked = Some(blocked);
            }
        }
    }

    /// The state is written before the page is made: else a restarted agent would not know that the page is in use. A
    /// state without its page resumes nothing.
    fn open(&self, Blocked { binding, pool, layout, .. }: &Blocked) -> Result<Open, String> {
        let layout = layout.clone()?;
        let file = format!("slot-{}-fence-{}.page", binding.slot, binding.fence);
        let header = Header {
            pool: pool.clone(),
            slot: binding.slot,
            fence: binding.fence.into(),
            floor: binding.holding.floor,
            layout,
        };
        self.save(binding, pool, layout, &file).map_err(|error| error.to_string())?;
        let page =
            PageOwner::create(self.0.directory.join(&file), &header).map_err(|error| error.to_string())?;
        page.set_ceiling(binding.holding.ceiling);
        self.publish(binding, layout, &file);
        Ok(Open { page, file, binding: binding.clone() })
    }

    fn publish(&self, binding: &Binding, layout: Layout, file: &str) {
        let Holding { floor, ceiling, expires_at, .. } = binding.holding;
        let (slot, fence, page) = (binding.slot, binding.fence, file.into());
        self.0.board.held(LeaseView { slot, fence, floor, ceiling, expires_at, layout, page });
    }

    fn save(&self, binding: &Binding, pool: &str, layout: Layout, file: &str) -> Result<(), Error> {
        let saved = Saved {
            boot_id: boot_id()?,
            directory: Place::of(&self.0.directory)?,
            pool: pool.into(),
            owner: binding.holding.owner.clone(),
            slot: binding.slot,
            fence: binding.fence,
            floor: binding.holding.floor,
            acquired_at: binding.holding.acquired_at,
            terms: binding.terms,
            layout,
            page: file.into(),
        };
        let text = serde_json::to_vec(&saved)
            .map_err(|error| Error::io("can't encode", self.state_path())(error.into()))?;
        replace(&self.state_path(), &text)
    }

    fn saved(&self) -> Option<Saved> {
        let path = self.state_path();
        let text = fs::read(&path).ok()?;
        match serde_json::from_slice::<Saved>(&text) {
            Ok(saved) if boot_id().is_ok_and(|boot| boot != saved.boot_id) => None,
            Ok(saved) if Place::of(&self.0.directory).is_ok_and(|place| place == saved.directory) => {
                Some(saved)
            }
            Ok(saved) => {
                tracing::warn!("can't resume slot {}: this directory is a copy", saved.slot);
                None
            }
            Err(error) => {
                tracing::warn!("{}: not a state that this agent can resume: {error}", path.display());
                None
            }
        }
    }

    /// Opens the page of a saved lease, where it still is that lease's and open.
    fn reopen(&self, saved: Saved) -> Option<(Resumable, String)> {
        let path = self.0.directory.join(&saved.page);
        let page = match PageOwner::open(&path) {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!("can't resume slot {}: {error}", saved.slot);
                return None;
            }
        };
        let found = page.page().header();
        let expected = Header {
            pool: saved.pool.clone(),
            slot: saved.slot,
            fence: saved.fence.into(),
            floor: saved.floor,
            layout: saved.layout,
        };
        if *found != expected || page.page().is_closed() {
            tracing::warn!("can't resume slot {}: its page is closed or another's", saved.slot);
            return None;
        }
        let ceiling = page.page().ceiling();
        let binding = Binding {
            slot: saved.slot,
            fence: saved.fence,
            holding: Holding {
                owner: saved.owner,
                floor: saved.floor,
                ceiling,
                expires_at: ceiling.saturating_sub(saved.terms.tolerance),
                acquired_at: saved.acquired_at,
            },
            terms: saved.terms,
        };
        self.0.board.found_pool(&saved.pool);
        self.publish(&binding, saved.layout, &saved.page);
        self.lock().open = Some(Open { page, file: saved.page.clone(), binding: binding.clone() });
        Some((Resumable { pool: saved.pool, binding }, saved.page))
    }

    /// Closes and removes all pages and drafts but one page: an app that maps such a page would wait at its ceiling for ever.
    fn clear_pages(&self, keep: Option<&str>) -> Result<(), Error> {
        let directory = &self.0.directory;
        let entries = fs::read_dir(directory).map_err(Error::io("can't read the directory", directory))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let path = entry.path();
            let is = |kind: &str| path.extension().is_some_and(|extension| extension == kind);
            // A draft is what an agent was writing when it was killed: it has no other name.
            if !(is("page") || is("draft")) || keep.is_some_and(|keep| name == keep) {
                continue;
            }
            if let Ok(page) = PageOwner::open(&path) {
                let _ = page.close();
            }
            remove_if_there(&path)?;
        }
        Ok(())
    }

    fn state_path(&self) -> PathBuf {
        self.0.directory.join("lease.json")
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each change is one assignment: a panic elsewhere leaves nothing half done.
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn boot_id() -> Result<String, Error> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(path).map_err(Error::io("can't read", path))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "ns/orders";

    fn binding(fence: Fence) -> Binding {
        let holding = Holding {
            owner: Owner::new("ns/pod"),
            floor: 0,
            ceiling: u64::MAX >> 20,
            expires_at: 5,
            acquired_at: 1,
        };
        Binding { slot: 3, fence, holding, terms: Terms { ttl: 30_000, tolerance: 1_000 } }
    }

    fn window(dir: &Path) -> (Window, StatusBoard) {
        let board = StatusBoard::new("ns/pod");
        (Window::new(dir, board.clone()), board)
    }

    fn pages(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".page")).collect()
    }

    #[tokio::test]
    async fn a_restarted_agent_goes_on_with_page_and_incarnation() {
        let dir = tempfile::tempdir().unwrap();
        let (before, _) = window(dir.path());
        let held = binding(7);
        before.hold(POOL, Ok(Layout::MILLISECOND), held.clone());
        let first = before.generator("orders").unwrap().unwrap().try_next().unwrap();
        before.extend(held.holding.ceiling + 9, 9);

        let (after, board) = window(dir.path());
        let resumed = after.resume("ns/pod", None).unwrap().unwrap();
        assert_eq!(resumed.pool, POOL);
        assert_eq!(resumed.binding.holding.owner, held.holding.owner);
        assert_eq!(resumed.binding.holding.ceiling, held.holding.ceiling + 9);
        assert_eq!(board.now().state, crate::status::State::Held);
        let second = after.generator("orders").unwrap().unwrap().try_next().unwrap();
        assert!(second > first, "the same cell goes on");
    }

    #[tokio::test]
    async fn another_key_pool_or_boot_resumes_nothing_and_closes_the_page() {
        let edits: [fn(&mut Saved); 3] = [
            |saved| saved.owner.key = "ns/other".into(),
            |saved| saved.pool = "ns/other".into(),
            |saved| saved.boot_id = "another".into(),
        ];
        for edit in edits {
            let dir = tempfile::tempdir().unwrap();
            let (before, _) = window(dir.path());
            before.hold(POOL, Ok(Layout::MILLISECOND), binding(7));
            let generator = before.generator("orders").unwrap().unwrap();
            let mut saved = before.saved().unwrap();
            edit(&mut saved);
            fs::write(before.state_path(), serde_json::to_vec(&saved).unwrap()).unwrap();

            let (after, _) = window(dir.path());
            assert!(after.resume("ns/pod", Some(POOL)).unwrap().is_none());
            assert_eq!(pages(dir.path()), [""; 0]);
            assert!(!after.state_path().exists());
            assert_eq!(generator.try_next(), Err(cosid_id::NextError::SlotLost));
        }
    }

    #[tokio::test]
    async fn a_state_that_is_nonsense_or_whose_page_is_gone_or_closed_resumes_nothing() {
        let breaks: [fn(&Window, &Path); 3] = [
            |window, _| fs::write(window.state_path(), "{").unwrap(),
            |_, dir| fs::remove_file(dir.join("slot-3-fence-7.page")).unwrap(),
            |_, dir| {
                let _ = PageOwner::open(dir.join("slot-3-fence-7.page")).unwrap().close();
            },
        ];
        for break_it in breaks {
            let dir = tempfile::tempdir().unwrap();
            let (before, _) = window(dir.path());
            before.hold(POOL, Ok(Layout::MILLISECOND), binding(7));
            break_it(&before, dir.path());
            let (after, _) = window(dir.path());
            assert!(after.resume("ns/pod", None).unwrap().is_none());
            assert_eq!(pages(dir.path()), [""; 0]);
        }
    }

    #[tokio::test]
    async fn a_copy_of_the_directory_resumes_nothing() {
        let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (before, _) = window(original.path());
        before.hold(POOL, Ok(Layout::MILLISECOND), binding(7));
        for entry in fs::read_dir(original.path()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let (copied, _) = window(copy.path());
        assert!(copied.resume("ns/pod", Some(POOL)).unwrap().is_none(), "two pages of one window");
        assert_eq!(pages(copy.path()), [""; 0]);
        let (after, _) = window(original.path());
        assert!(after.resume("ns/pod", Some(POOL)).unwrap().is_some(), "the original goes on");
    }

    #[tokio::test]
    async fn closing_gives_the_exact_last_timestamp_or_the_floor() {
        let dir = tempfile::tempdir().unwrap();
        let (window, _) = window(dir.path());
        let mut held = binding(7);
        held.holding.floor = 1_600_000_000_000;
        window.hold(POOL, Ok(Layout::MILLISECOND), held.clone());
        assert_eq!(window.close(), 1_600_000_000_000);
        held.fence = 8;
        window.hold(POOL, Ok(Layout::MILLISECOND), held);
        let id = window.generator("orders").unwrap().unwrap().try_next().unwrap();
        assert_eq!(window.close(), Layout::MILLISECOND.decompose(id).unwrap().timestamp());
        assert!(window.assign("orders").unwrap().is_none());
        assert_eq!(pages(dir.path()), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_can_not_be_made_is_made_once_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("not-there");
        let (window, board) = window(&inside);
        window.hold(POOL, Ok(Layout::MILLISECOND), binding(7));
        assert_eq!(board.now().state, crate::status::State::Blocked);
        assert!(window.assign("orders").unwrap().is_none());
        fs::create_dir(&inside).unwrap();
        let mut changes = board.watch();
        changes.wait_for(|status| status.state == crate::status::State::Held).await.unwrap();
        assert_eq!(window.assign("orders").unwrap().unwrap().fence, 7);
    }
}
