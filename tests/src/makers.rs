//! Programs that make IDs at an agent's socket and write them down: `cosid-ids`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::programs::{self, Program, until};

use crate::http::PATIENCE;
use crate::ids::{self, Count};

/// How fast they make them, IDs a second: slow enough that there is time to disturb them.
const RATE: u64 = 20_000;

/// A program that makes IDs.
#[derive(Debug)]
pub struct Maker {
    program: Program,
    file: PathBuf,
}

impl Maker {
    /// Starts one that makes so many, and waits until it has its generator. What it makes goes to `NAME.ids` in `dir`.
    #[must_use]
    pub fn start(dir: &Path, name: &str, socket: &Path, count: u64) -> Self {
        let file = dir.join(format!("{name}.ids"));
        let mut command = Command::new(programs::path("cosid-ids").unwrap());
        command.arg("--socket").arg(socket).arg("--out").arg(&file);
        command.args(["--count", &count.to_string(), "--rate", &RATE.to_string()]);
        let program = Program::start(name, command, dir).unwrap();
        program.wait_for_line("started", PATIENCE).unwrap();
        Self { program, file }
    }

    /// Waits until it has made another tenth of a second's worth.
    pub fn wait_for_more(&self) {
        let made = || std::fs::metadata(&self.file).map_or(0, |metadata| metadata.len() / 8);
        let enough = made() + RATE / 10;
        let what = || format!("no more IDs: {}", self.program.output());
        until(what, PATIENCE, || Ok((made() >= enough).then_some(()))).unwrap();
    }

    /// Waits until it says this: `refused`, `resumed` or `moved`.
    pub fn wait_until(&self, event: &str) {
        self.program.wait_for_line(&format!("\"event\":\"{event}\""), PATIENCE).unwrap();
    }

    /// What happened to it so far.
    #[must_use]
    pub fn events(&self) -> String {
        self.program.output()
    }

    /// Whether it has been refused an ID so far, or has moved to another slot.
    #[must_use]
    pub fn was_disturbed(&self) -> bool {
        ["refused", "moved"].iter().any(|event| self.events().contains(event))
    }

    /// Waits until it has made all of its IDs.
    pub fn finish(&mut self) {
        let status = self.program.wait(PATIENCE).unwrap();
        assert!(status.success(), "{}{}", self.program.log(), self.events());
    }
}

/// Counts what they all have made.
#[must_use]
pub fn count(makers: &[&Maker]) -> Count {
    let files: Vec<PathBuf> = makers.iter().map(|maker| maker.file.clone()).collect();
    ids::count(ids::read(&files).unwrap())
}
