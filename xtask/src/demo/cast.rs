//! Who plays: agents, and clients that make IDs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cosid_client::{Id, Layout};

use crate::demo::RATE;
use crate::demo::ground::Ground;
use crate::programs::{self, Program, until};
use crate::{Error, Result};

/// An agent in a directory of its own.
pub(super) struct Agent {
    pub(super) name: String,
    pub(super) socket: PathBuf,
    pub(super) program: Program,
}

impl Agent {
    /// Starts an agent. With `beside`, it serves the apps of another agent which has ended (or stays stopped, and then
    /// gets a directory of its own), and wishes for a slot.
    pub(super) fn start(ground: &Ground, dir: &Path, name: &str, beside: Option<(&Agent, &str)>) -> Result<Self> {
        let mut command = ground.agent(name)?;
        let mut socket = dir.join(name).join("agent.sock");
        if let Some((other, slot)) = beside {
            command.args(["--slot", slot]);
            if !other.socket.exists() {
                socket.clone_from(&other.socket);
            }
        }
        command.arg("--socket").arg(&socket);
        let program = Program::start(name, command, dir)?;
        Ok(Self { name: name.into(), socket, program })
    }
}

/// A client that writes its IDs to a file.
pub(super) struct Ids {
    pub(super) name: String,
    pub(super) file: PathBuf,
    pub(super) program: Program,
}

impl Ids {
    pub(super) fn start(dir: &Path, name: &str, socket: &Path, count: u64) -> Result<Self> {
        let file = dir.join(format!("{name}.ids"));
        let mut command = Command::new(programs::path("cosid-ids")?);
        command.arg("--socket").arg(socket).arg("--out").arg(&file);
        command.args(["--count", &count.to_string(), "--rate", &RATE.to_string()]);
        let program = Program::start(name, command, dir)?;
        Ok(Self { name: name.into(), file, program })
    }

    /// How many IDs it has written.
    pub(super) fn made(&self) -> Result<u64> {
        match fs::metadata(&self.file) {
            Ok(metadata) => Ok(metadata.len() / 8),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(Error::io(format_args!("look at {}", self.file.display()))(error)),
        }
    }

    pub(super) fn wait_until_made(&self, count: u64, within: Duration) -> Result<()> {
        let what = || format!("{} has not made {count} IDs", self.name);
        until(what, within, || Ok((self.made()? >= count).then_some(())))
    }

    /// The timestamp of the last ID it has written, Unix ms.
    pub(super) fn last_timestamp(&self, layout: &Layout) -> Result<u64> {
        let bytes = fs::read(&self.file).map_err(Error::io(format_args!("read {}", self.file.display())))?;
        let (ids, _) = bytes.as_chunks::<8>();
        let wrong = |error: cosid_client::PageError| Error::Wrong(format!("{}: {error}", self.file.display()));
        let last = ids.iter().map(|id| u64::from_le_bytes(*id)).max().unwrap_or_default();
        let id = Id::try_from(last).map_err(wrong)?;
        Ok(layout.decompose(id).map_err(wrong)?.timestamp())
    }

    /// Waits for its end, and that it went well.
    pub(super) fn finish(&mut self, within: Duration) -> Result<()> {
        let status = self.program.wait(within)?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Wrong(format!("{} failed: {}", self.name, self.program.log())))
    }
}
