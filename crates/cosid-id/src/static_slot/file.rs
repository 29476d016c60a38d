//! The state file: locked, read, replaced.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::state::{Identity, State};
use crate::error::Error;

/// Much more than a state has.
const MOST_BYTES: u64 = 64 * 1024;

/// A state file that no other live process has.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    identity: Identity,
    lock: Lock,
    fence: u64,
}

impl StateFile {
    /// Locks the file and reads it: `None` if there is none yet. Nothing is written. It is unlocked when this process
    /// drops the value, or, if it is killed, when everything that it has forked has ended too.
    ///
    /// # Errors
    /// [`Error::StateInUse`], [`Error::StateIo`], and those of [`Identity::decode`].
    pub(super) fn claim(path: &Path, identity: Identity) -> Result<(Self, Option<State>), Error> {
        let lock = Lock::take(path)?;
        let state = read(path, &identity)?;
        let fence = state.map_or(0, |state| state.fence).saturating_add(1);
        Ok((Self { path: path.into(), identity, lock, fence }, state))
    }

    /// The fence under which the slot is held now.
    pub(super) fn fence(&self) -> u64 {
        self.fence
    }

    /// The first write: the file belongs to this opening of the slot from here on.
    ///
    /// # Errors
    /// [`Error::StateIo`]. The file may have the old text or the new.
    pub(super) fn begin(&self, ceiling: u64) -> Result<(), Error> {
        self.replace(ceiling).map_err(|source| state_io("write", &self.path, source))
    }

    /// A later write. Blocks until the disk has it.
    ///
    /// # Errors
    /// [`Error::StateChanged`] where file or lock are no longer what this process made; [`Error::StateIo`], and the file
    /// may then have the old text or the new.
    pub(super) fn go_on(&self, ceiling: u64) -> Result<(), Error> {
        self.check_ours()?;
        self.begin(ceiling)
    }

    /// The lock is what keeps others off. But it can be removed, as can the whole directory, and then nobody would see it.
    fn check_ours(&self) -> Result<(), Error> {
        let changed = |what| Error::StateChanged { path: self.path.clone(), what };
        let place = |metadata: io::Result<fs::Metadata>| metadata.map(|it| (it.dev(), it.ino())).ok();
        if place(fs::metadata(lock_path(&self.path))) != place(self.lock.file.metadata()) {
            return Err(changed("its lock was removed"));
        }
        match read(&self.path, &self.identity)? {
            None => Err(changed("it was removed")),
            Some(state) if state.fence != self.fence => Err(changed("another process has written it")),
            Some(_) => Ok(()),
        }
    }

    /// Whoever reads it sees the old text or the new, also after a power cut at any moment.
    fn replace(&self, ceiling: u64) -> io::Result<()> {
        let text = self.identity.encode(State { fence: self.fence, ceiling });
        let draft = beside(&self.path, ".", ".draft");
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &self.path)?;
            File::open(directory(&self.path))?.sync_all()
        };
        write().inspect_err(|_| {
            // It may be what fills the disk, and is written anew next time, whatever becomes of it.
            let _ = fs::remove_file(&draft);
        })
    }
}

/// What is locked is a file beside the state file, which is itself replaced at each write.
#[derive(Debug)]
struct Lock {
    file: File,
    taken_by: u32,
}

impl Lock {
    fn take(path: &Path) -> Result<Self, Error> {
        let lock_path = lock_path(path);
        let failed_to = |action| move |source| state_io(action, path, source);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(failed_to("lock"))?;
        if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(state_io("lock", path, error.into()));
            }
            let mut process = String::new();
            // Only for the message.
            let _ = file.take(20).read_to_string(&mut process);
            return Err(Error::StateInUse { path: path.into(), process: process.trim().to_owned() });
        }
        let process = std::process::id();
        let mut write = || {
            file.set_len(0)?;
            file.rewind()?;
            write!(file, "{process}")
        };
        // Only for another's message: if the disk is full the first write of the state says so.
        let _ = write();
        Ok(Self { file, taken_by: process })
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a program that this process is just starting has a copy of it between its fork and
    /// its exec, and the slot's next opener would be told that it is in use.
    fn drop(&mut self) {
        // A forked child that drops its copy is not the one whose lock it is.
        if std::process::id() == self.taken_by {
            // If it can't, closing still does.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

fn read(path: &Path, identity: &Identity) -> Result<Option<State>, Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(state_io("read", path, error)),
    };
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(|source| state_io("read", path, source))?;
    identity.decode(path, &bytes).map(Some)
}

fn state_io(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::StateIo { action, path: path.into(), source }
}

pub(super) fn lock_path(path: &Path) -> PathBuf {
    beside(path, "", ".lock")
}

fn beside(path: &Path, before: &str, after: &str) -> PathBuf {
    let mut name = OsString::from(before);
    name.push(path.file_name().unwrap_or_default());
    name.push(after);
    path.with_file_name(name)
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn what_is_dropped_is_unlocked_although_a_program_that_is_being_started_has_a_copy_of_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders-3.state");
        let identity = || Identity { slot: 3, pool: "shop/orders".into(), layout: Layout::MILLISECOND };
        let (file, _) = StateFile::claim(&path, identity()).unwrap();
        // As a fork does.
        let copy = file.lock.file.try_clone().unwrap();
        drop(file);
        StateFile::claim(&path, identity()).unwrap();
        drop(copy);
    }
}
