//! The thread that moves a static slot's ceiling on.
//!
//! It sleeps, looks at the clock once a second, and writes the state file once in half of `ahead`, whether IDs are made or
//! not: so an ID after a long pause waits for no disk. It is stopped, and waited for, when the slot is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::file::StateFile;
use crate::clock::Clock;
use crate::error::Error;
use crate::page::Page;

/// It writes a small file and calls the hook; a signal handler of the program may run on it too.
const STACK: usize = 256 * 1024;
/// A clock that was set forward, or a machine that slept, is noticed so soon.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// What is called after each try to extend, with the new ceiling (Unix ms) or what stood in the way.
pub(super) type Hook = Box<dyn FnMut(Result<u64, &Error>) + Send>;

/// The thread of a slot that has a state file, and what it works with.
pub(super) struct Keeping {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    file: StateFile,
    page: Arc<Page>,
    ahead_ms: u64,
    is_over: AtomicBool,
    /// Why the last try to extend failed.
    failure: Mutex<Option<Arc<Error>>>,
}

impl Keeping {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::StateThread`].
    pub(super) fn start(
        file: StateFile,
        page: Arc<Page>,
        ahead_ms: u64,
        clock: impl Clock + Send + 'static,
        hook: Option<Hook>,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            file,
            page,
            ahead_ms,
            is_over: AtomicBool::new(false),
            failure: Mutex::default(),
        });
        let work = {
            let shared = Arc::clone(&shared);
            move || shared.keep(&clock, hook)
        };
        let thread = thread::Builder::new().name("cosid-static".into()).stack_size(STACK).spawn(work);
        Ok(Self { thread: thread.map_err(|source| Error::StateThread { source })?, shared })
    }

    /// Why the last try to extend failed; `None` after one that did not.
    pub(super) fn failure(&self) -> Option<Arc<Error>> {
        self.shared.failure().clone()
    }

    /// Ends the thread and writes the last timestamp of the closed page. Blocks until the disk has it.
    pub(super) fn end(self, last_issued: u64) -> Result<(), Error> {
        self.stop().file.go_on(last_issued)
    }

    fn stop(self) -> Arc<Shared> {
        self.shared.is_over.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // It panics only if the hook does; the slot was then no longer extended.
        let _ = self.thread.join();
        self.shared
    }

    /// As if the process were killed here, but for the lock.
    #[cfg(test)]
    pub(super) fn abandon(self) {
        drop(self.stop());
    }
}

impl Shared {
    fn keep(&self, clock: &impl Clock, mut hook: Option<Hook>) {
        let nap = Duration::from_millis(self.ahead_ms / 10).min(LONGEST_NAP);
        while !self.is_over.load(Ordering::Acquire) {
            let (now, ceiling) = (clock.unix_ms(), self.page.ceiling());
            let target = now.saturating_add(self.ahead_ms);
            if ceiling < target.saturating_sub(self.ahead_ms / 2) {
                let extended = self.extend(target);
                if let Some(hook) = &mut hook {
                    hook(extended.as_ref().map(|()| target).map_err(|error| &**error));
                }
                *self.failure() = extended.err();
            }
            thread::park_timeout(nap);
        }
    }

    /// In this order: whatever the page allows the disk has.
    fn extend(&self, ceiling: u64) -> Result<(), Arc<Error>> {
        self.file.go_on(ceiling)?;
        self.page.raise_ceiling(ceiling);
        Ok(())
    }

    fn failure(&self) -> MutexGuard<'_, Option<Arc<Error>>> {
        // Each change is one assignment.
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
