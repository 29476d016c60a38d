//! The agent's directory: the socket, the lock, the state, the pages.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::error::{Error, LONGEST_SOCKET_PATH};

/// What an agent keeps in a file is far shorter, bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// An agent's directory, which no other live agent serves: the lock goes with the process, however it ends.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    socket: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes the socket's directory where it is missing, and locks it.
    ///
    /// # Errors
    /// [`Error::SocketPathTooLong`], [`Error::AlreadyServed`], [`Error::Io`].
    pub(crate) fn claim(socket: &Path) -> Result<Self, Error> {
        let length = socket.as_os_str().as_bytes().len();
        if length > LONGEST_SOCKET_PATH {
            return Err(Error::SocketPathTooLong { path: socket.into(), length });
        }
        let path = match socket.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        // Apps beside the agent may run as other users: who may come here is up to whoever made the directory.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(Error::io("can't make the directory", &path))?;
        let lock = lock(&path)?;
        Ok(Self { path, socket: socket.into(), _lock: lock })
    }

    /// Where the pages and the state are.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Listens on the socket, in place of a stale one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn listen(&self) -> Result<tokio::net::UnixListener, Error> {
        // Nobody can be listening: this process has the lock.
        remove_if_there(&self.socket)?;
        let listener = tokio::net::UnixListener::bind(&self.socket)
            .map_err(Error::io("can't listen on", &self.socket))?;
        // Apps in other containers have other user ids; the volume is what keeps strangers out.
        fs::set_permissions(&self.socket, fs::Permissions::from_mode(0o666))
            .map_err(Error::io("can't open to other users", &self.socket))?;
        Ok(listener)
    }

    /// Takes the socket away, so that apps see at once that nobody serves them.
    pub(crate) fn unlink_socket(&self) {
        if let Err(error) = remove_if_there(&self.socket) {
            tracing::warn!("{error}");
        }
    }
}

fn lock(directory: &Path) -> Result<File, Error> {
    let path = directory.join("agent.lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(Error::io("can't open", &path))?;
    if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(Error::io("can't lock", &path)(error.into()));
        }
        let mut pid = String::new();
        // Only for the message.
        let _ = file.read_to_string(&mut pid);
        return Err(Error::AlreadyServed { directory: directory.into(), pid: pid.trim().into() });
    }
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "{}", std::process::id())
    };
    // Only for another's message: a full disk is no reason to end.
    if let Err(error) = write(&mut file) {
        tracing::warn!("{}: can't write this process's id: {error}", path.display());
    }
    Ok(file)
}

/// Removes a file that may not be there.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("can't remove", path)(error)),
        _ => Ok(()),
    }
}

/// Reads a file of this directory. Apps can put anything in its place: a pipe without a writer is not waited for, a link
/// not followed, and a file without end not read to it.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file so that a reader sees the old text or the new, whatever happens in between. It outlives this process,
/// not a power cut: what is written here is of no use after one.
pub(crate) fn replace(path: &Path, text: &[u8]) -> Result<(), Error> {
    let draft = path.with_extension("draft");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(text)?;
        fs::rename(&draft, path)
    };
    write().map_err(|error| {
        // What was written of it may be what fills the disk. It is written anew next time, whatever becomes of it.
        let _ = fs::remove_file(&draft);
        Error::io("can't write", path)(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_agent_and_the_second_is_told_which() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("a/agent.sock");
        let first = Directory::claim(&socket).unwrap();
        let error = Directory::claim(&socket).unwrap_err().to_string();
        assert!(error.contains(&format!("(process {})", std::process::id())), "{error}");
        drop(first);
        Directory::claim(&socket).unwrap();
    }

    #[test]
    fn a_socket_path_of_108_bytes_is_refused_by_name() {
        let long = PathBuf::from(format!("/{}", "x".repeat(LONGEST_SOCKET_PATH)));
        match Directory::claim(&long).unwrap_err() {
            Error::SocketPathTooLong { path, length: 108 } => assert_eq!(path, long),
            other => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent.sock");
        let directory = Directory::claim(&socket).unwrap();
        drop(directory.listen().unwrap());
        assert!(socket.exists(), "a listener that is gone leaves its socket");
        directory.listen().unwrap();
    }
}
