//! The languages that examples are written in, which a machine need not have.

use crate::cluster::find_on_path;
use crate::{Error, Result, go, java};

/// The Go that the example needs.
const GO: &str = "1.22.0";

/// A language of `examples/languages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Over libcosid.
    C,
    /// Over libcosid.
    Python,
    /// Over the socket.
    Go,
    /// Over the socket.
    Java,
    /// Over the socket.
    Node,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::C, Self::Python, Self::Go, Self::Java, Self::Node];

    /// Whether its example can be built and run here.
    ///
    /// # Errors
    /// [`Error::Setup`] with what is missing; [`Error::Command`] where a compiler does not say its version.
    pub fn check(self) -> Result<()> {
        match self {
            Self::C => program("gcc"),
            Self::Python => program("python3"),
            Self::Go => go::version(GO).map(drop),
            Self::Java => java::check_jdk(),
            Self::Node => program("node"),
        }
    }
}

fn program(name: &str) -> Result<()> {
    match find_on_path(name) {
        Some(_) => Ok(()),
        None => Err(Error::Setup(format!("{name} is not on PATH: install it"))),
    }
}
