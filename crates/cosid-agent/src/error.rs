//! What can stop an agent. The API server never does.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The longest path that a Unix socket's address holds, bytes.
pub(crate) const LONGEST_SOCKET_PATH: usize = 107;

/// Why an agent does not start, or ends before it was asked to.
#[derive(Debug, Error)]
pub enum Error {
    /// The socket's path does not fit into an address.
    #[error(
        "socket path {path} has {length} bytes; a Unix socket's path has at most {LONGEST_SOCKET_PATH}: \
         choose a shorter one with --socket or COSID_SOCKET"
    )]
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length, bytes.
        length: usize,
    },
    /// A live agent serves this directory.
    #[error(
        "{directory} is already served by a live agent (process {pid}): stop it, or give this one another directory \
         with --socket"
    )]
    AlreadyServed {
        /// The directory of socket, state and pages.
        directory: PathBuf,
        /// The other's process id, as it wrote it.
        pid: String,
    },
    /// The directory of another user, or one that others may write to, holds a shared store.
    #[error("{directory} is not this user's alone: remove it, or choose another with --store-dir")]
    NotPrivate {
        /// The directory.
        directory: PathBuf,
    },
    /// A path is missing where it is needed, and has no default here.
    #[error("{what} has no default here: set it with {option}")]
    NoDefault {
        /// What it is.
        what: &'static str,
        /// How to set it.
        option: &'static str,
    },
    /// A value of the command line or the environment makes no sense.
    #[error("{option}: {value:?} is not one of: {allowed}")]
    BadValue {
        /// Where it was given.
        option: &'static str,
        /// The value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Reading or writing something failed.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was done.
        what: &'static str,
        /// To which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The local store can't be read.
    #[error(
        "{path} can't be read as a store of slots: {why}. Nothing was changed; move it away to begin anew"
    )]
    CorruptStore {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The static slot that was asked for can't be.
    #[error("--static: {0}")]
    Static(#[from] cosid_id::Error),
    /// There is no way to the cluster.
    #[error("{}{}", .0, instead(.0))]
    Cluster(#[from] cosid_kube::Error),
    /// The runtime did not start.
    #[error("can't start: {0}")]
    Runtime(io::Error),
    /// A health check found no healthy agent.
    #[error("no healthy agent at {socket}: {why}")]
    Unhealthy {
        /// The socket asked.
        socket: PathBuf,
        /// What came instead.
        why: String,
    },
}

/// What else there is where no cluster is.
fn instead(error: &cosid_kube::Error) -> &'static str {
    match error {
        cosid_kube::Error::NotInCluster(_) => {
            "; or keep the slots in this machine's memory with --store memory"
        }
        _ => "",
    }
}

impl Error {
    /// Wraps an I/O error with what was done to which path.
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    /// The exit code: 64 (as `sysexits.h` has it) for what a changed command line mends, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::SocketPathTooLong { .. }
            | Self::NoDefault { .. }
            | Self::BadValue { .. }
            | Self::Static(_)
            | Self::Cluster(cosid_kube::Error::PoolReference { .. }) => 64,
            Self::AlreadyServed { .. }
            | Self::NotPrivate { .. }
            | Self::Io { .. }
            | Self::CorruptStore { .. }
            | Self::Cluster(_)
            | Self::Runtime(_)
            | Self::Unhealthy { .. } => 1,
        }
    }
}
