//! The window page of the lease that is held: made, extended, closed, and found again after a restart.

mod known;
mod saved;
mod sheet;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cosid_id::{Generator, Header, Layout, PageOwner, StaticSlot};
use cosid_lease::keeper::Binding;
use cosid_lease::{Fence, Holding, Millis, Slot};
use serde::Serialize;

use crate::directory::{read_file, remove_if_there, replace};
use crate::error::Error;
use crate::proof::bug;
use crate::status::{LeaseView, StatusBoard};
use known::Known;
use saved::{Place, Saved, boot_id};
use sheet::Sheet;

/// How often a page that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The page, shared by the keeper's driver and the socket's requests.
#[derive(Clone)]
pub struct Window(Arc<Shared>);

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
    /// The layouts of the names of pages before.
    known: Known,
}

impl Inner {
    /// The cell of a name, in the layout that was asked for, else in the pool's; `None` where there is no page.
    fn assign(
        &mut self,
        name: &str,
        layout: Option<Layout>,
    ) -> Result<Option<(&Open, usize)>, cosid_id::Error> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let header = open.sheet.page().header();
        let layout = layout.unwrap_or(header.layout);
        self.known.check(header, name, layout)?;
        let cell = open.sheet.assign(name, &layout)?;
        Ok(Some((open, cell)))
    }
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
    sheet: Sheet,
    file: String,
}

/// A named generator's place on the page.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assigned {
    /// Its name.
    pub generator: String,
    /// Its cell on the page.
    pub cell: usize,
    /// The pool, `namespace/name`.
    pub pool: String,
    /// The slot.
    pub slot: Slot,
    /// The fence.
    pub fence: u64,
    /// The page's file name, in the socket's directory.
    pub page: String,
    /// The layout of its IDs.
    pub layout: Layout,
}

/// A lease that was found after a restart.
#[derive(Debug)]
pub struct Resumable {
    /// The pool's name.
    pub pool: String,
    /// The binding, with the ceiling that the page has.
    pub binding: Binding,
}

impl Window {
    /// No page yet.
    #[must_use]
    pub fn new(directory: &Path, board: StatusBoard) -> Self {
        Self(Arc::new(Shared { directory: directory.into(), board, inner: Mutex::default() }))
    }

    /// Where its pages are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// Finds the lease of an agent that served this directory before, was of the same key and pool, and did not close
    /// its page. All other pages are closed, so that apps that still map them move on, and removed.
    ///
    /// # Errors
    /// [`Error::Io`] where the directory can't be read. State or pages that can't be used are no error: they are
    /// dropped with a warning, and a new slot is acquired.
    pub fn resume(&self, key: &str, pool: Option<&str>) -> Result<Option<Resumable>, Error> {
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
            warned(remove_if_there(&self.state_path()));
        }
        Ok(resumed.map(|(resumable, _)| resumable))
    }

    /// Resumes nothing: all pages are closed, so that apps that still map them move on, and removed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn clear(&self) -> Result<(), Error> {
        self.clear_pages(None)?;
        warned(remove_if_there(&self.state_path()));
        Ok(())
    }

    /// Takes a static slot, whose page is this file.
    pub(crate) fn hold_static(&self, slot: StaticSlot, file: String) {
        let page = slot.page();
        let Header { slot: number, fence, floor, layout, .. } = *page.header();
        let view = LeaseView {
            slot: number,
            fence,
            floor,
            ceiling: page.ceiling(),
            expires_at: page.ceiling(),
            layout,
            page: file.clone(),
        };
        self.lock().open = Some(Open { sheet: Sheet::Static(slot), file });
        self.0.board.held(view);
    }

    /// Makes the page of a lease that was acquired, and tries on where that fails.
    pub fn hold(&self, pool: &str, layout: Result<Layout, String>, binding: Binding) {
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
    pub fn extend(&self, ceiling: Millis, expires_at: Millis) {
        let mut inner = self.lock();
        if let Some(Open { sheet: Sheet::Leased(page), .. }) = &inner.open {
            page.set_ceiling(ceiling);
            self.0.board.extended(ceiling, expires_at);
        } else if let Some(blocked) = &mut inner.blocked {
            blocked.binding.holding.ceiling = ceiling;
            blocked.binding.holding.expires_at = expires_at;
        }
    }

    /// Ends the page for good and gives the last timestamp that was issued from it, Unix ms: its floor if there was
    /// none.
    #[must_use]
    pub fn close(&self) -> Millis {
        let (never_used, open) = {
            let mut inner = self.lock();
            let never_used = inner.blocked.take().map_or(0, |blocked| blocked.binding.holding.floor);
            let open = inner.open.take();
            if let Some(open) = &open {
                inner.known.learn(open.sheet.page());
            }
            (never_used, open)
        };
        // Requests see that it is gone already: none waits for a static slot's disk.
        let Some(open) = open else { return never_used };
        self.0.board.closing();
        let last_issued = open.sheet.close();
        // The file may go: whoever maps it still sees that it is closed.
        for path in [self.0.directory.join(&open.file), self.state_path()] {
            if let Err(error) = remove_if_there(&path) {
                tracing::warn!("{error}");
            }
        }
        last_issued
    }

    /// The place of a named generator, in the layout that was asked for, else in the pool's; `None` where there is no page.
    ///
    /// # Errors
    /// [`cosid_id::Error`]: the name is bad, it has another layout, the layout does not fit the pool, or there is no room for
    /// another name.
    pub fn assign(&self, name: &str, layout: Option<Layout>) -> Result<Option<Assigned>, cosid_id::Error> {
        let mut inner = self.lock();
        let Some((open, cell)) = inner.assign(name, layout)? else { return Ok(None) };
        let page = open.sheet.page();
        let Header { pool, slot, fence, .. } = page.header().clone();
        let layout = page.layout_of(cell)?;
        Ok(Some(Assigned {
            generator: name.into(),
            cell,
            pool,
            slot,
            fence,
            page: open.file.clone(),
            layout,
        }))
    }

    /// The generator of that name, for IDs made by the agent itself; `None` where there is no page.
    ///
    /// # Errors
    /// As [`Window::assign`].
    pub(crate) fn generator(
        &self,
        name: &str,
        layout: Option<Layout>,
    ) -> Result<Option<Generator>, cosid_id::Error> {
        let mut inner = self.lock();
        let Some((open, cell)) = inner.assign(name, layout)? else { return Ok(None) };
        Generator::new(Arc::clone(open.sheet.page()), cell).map(Some)
    }

    /// The layout of a name, `Some(None)` for one that nobody has asked for; `None` where there is no page.
    ///
    /// # Errors
    /// [`cosid_id::Error::NewerCell`].
    pub(crate) fn layout_of(&self, name: &str) -> Result<Option<Option<Layout>>, cosid_id::Error> {
        let inner = self.lock();
        let Some(open) = &inner.open else { return Ok(None) };
        let page = open.sheet.page();
        match page.cell(name) {
            Some(cell) => page.layout_of(cell).map(|layout| Some(Some(layout))),
            None => Ok(Some(inner.known.layout(page.header(), name))),
        }
    }

    /// The layout of the page; `None` where there is no page.
    #[must_use]
    pub(crate) fn layout(&self) -> Option<Layout> {
        self.lock().open.as_ref().map(|open| open.sheet.page().header().layout)
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
        let file = page_name(binding.slot, binding.fence);
        let header = Header {
            pool: pool.clone(),
            slot: binding.slot,
            fence: binding.fence.into(),
            floor: binding.holding.floor,
            layout,
        };
        self.save(binding, pool, layout, &file).map_err(|error| error.to_string())?;
        let path = self.0.directory.join(&file);
        // What is there was made by an attempt of ours that failed after it: nobody was told of it.
        remove_if_there(&path).map_err(|error| error.to_string())?;
        let page = PageOwner::create(path, &header).map_err(|error| error.to_string())?;
        page.set_ceiling(binding.holding.ceiling);
        self.publish(binding, layout, &file);
        Ok(Open { sheet: Sheet::Leased(page), file })
    }

    fn publish(&self, binding: &Binding, layout: Layout, file: &str) {
        let Holding { floor, ceiling, expires_at, .. } = binding.holding;
        let (slot, fence, page) = (binding.slot, binding.fence.into(), file.into());
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
        let text = read_file(&path).ok()?;
        match serde_json::from_slice::<Saved>(&text) {
            Ok(saved) if !is_this_boot(&saved) => None,
            Ok(saved) if self.is_its_directory(&saved) => Some(saved),
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

    fn is_its_directory(&self, saved: &Saved) -> bool {
        let place = Place::of(&self.0.directory);
        bug("resumes_from_a_copy") || place.is_ok_and(|place| place == saved.directory)
    }

    /// Opens the page of a saved lease, where it still is that lease's and open.
    fn reopen(&self, saved: Saved) -> Option<(Resumable, String)> {
        // Under another name, or in another directory, clients would not find it, and it would be closed with the old pages.
        if saved.page != page_name(saved.slot, saved.fence) {
            tracing::warn!("can't resume slot {}: its page has another name", saved.slot);
            return None;
        }
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
        let closed = page.page().is_closed() && !bug("reopens_a_closed_page");
        if *found != expected || closed {
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
        self.lock().open = Some(Open { sheet: Sheet::Leased(page), file: saved.page.clone() });
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
            // Apps write here too: what is no file is none of ours, and opening it could block.
            if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
                tracing::warn!("{}: an app left something here that is no page; remove it", path.display());
                continue;
            }
            if let Ok(page) = PageOwner::open(&path) {
                // An agent that was killed gave them out: what its apps ask for next has to be the same.
                self.lock().known.learn(page.page());
                let _ = page.close();
            }
            warned(remove_if_there(&path));
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

/// The file name of a binding's page.
fn page_name(slot: Slot, fence: Fence) -> String {
    format!("slot-{slot}-fence-{fence}.page")
}

/// An app that shares the directory can make a removal fail: that is no reason to serve nobody.
fn warned(removal: Result<(), Error>) {
    if let Err(error) = removal {
        tracing::warn!("{error}");
    }
}

fn is_this_boot(saved: &Saved) -> bool {
    bug("resumes_after_another_boot") || boot_id().is_ok_and(|boot| boot == saved.boot_id)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
