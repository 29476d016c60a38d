//! `cargo xtask bench`: what an ID costs here and elsewhere.

use std::process::ExitCode;

use clap::Args;
use xtask::{Error, Result, paths, programs};

/// Flags of the benchmark.
#[derive(Args)]
pub(crate) struct Bench {
    /// Measure only what the project aims at, and fail if an aim is missed
    #[arg(long)]
    aims: bool,
}

impl Bench {
    /// The benchmark is a workspace of its own, with the crates to compare with; nothing else builds those.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let target = paths::workspace().join("target");
        let mut command = programs::cargo();
        command
            .args(["run", "--quiet", "--locked", "--release", "--manifest-path"])
            .arg(paths::workspace().join("benches/Cargo.toml"))
            .arg("--target-dir")
            .arg(target.join("bench-build"))
            .arg("--");
        if self.aims {
            command.arg("--aims");
        } else {
            command.arg(target.join("bench"));
        }
        let status = command.status().map_err(Error::io("start cargo"))?;
        match status.code() {
            Some(0) => Ok(ExitCode::SUCCESS),
            Some(1) if self.aims => Ok(ExitCode::FAILURE),
            _ => {
                let command = "cargo run --manifest-path benches/Cargo.toml".into();
                Err(Error::Command { command, status: status.to_string(), output: "see above".into() })
            }
        }
    }
}
