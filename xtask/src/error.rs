//! The one error type of this crate.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine or the command line lacks something; nothing was started. Exit code 64.
    #[error("{0}")]
    Setup(String),
    /// Reading, writing, or starting a program failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, with the path or program.
        doing: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// A program ran to its end and reported a failure.
    #[error("`{command}` failed ({status}):\n{output}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status.
        status: String,
        /// The last lines it wrote.
        output: String,
    },
    /// A part of the cluster ended, or did not become ready in time.
    #[error("{name} {what}; the last lines it wrote:\n{tail}")]
    Daemon {
        /// Its name, such as `kube-apiserver` or `node1-kubelet`.
        name: String,
        /// What happened.
        what: String,
        /// The last lines of its output.
        tail: String,
    },
    /// A directory holds something that no `cluster up` of this version wrote.
    #[error("{}: {why}", path.display())]
    State {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it and what to do.
        why: String,
    },
    /// Something that was waited for did not happen.
    #[error("{what} (waited {:.1} s)", within.as_secs_f64())]
    TooLate {
        /// What did not happen, and where to look.
        what: String,
        /// How long it was waited for.
        within: std::time::Duration,
    },
    /// A result is not what it must be.
    #[error("{0}")]
    Wrong(String),
    /// A key or certificate could not be made.
    #[error("make the cluster's certificates: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// What a task returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The process exit code for this error: 64 (bad configuration) or 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Setup(_) => 64,
            _ => 1,
        }
    }

    /// Wraps an I/O error with what was being done: `.map_err(Error::io(format_args!("read {path}")))`.
    pub fn io(doing: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing: doing.to_string(), source }
    }
}
