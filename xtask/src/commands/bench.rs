//! `cargo xtask bench`: what an ID costs here and elsewhere.

use std::process::ExitCode;

use clap::Args;
use xtask::{Error, Result, go, java, paths, programs};

/// Flags of the benchmark.
#[derive(Args)]
pub(crate) struct Bench {
    /// Measure only what the project aims at, and fail if an aim is missed
    #[arg(long)]
    aims: bool,
    /// CosId itself too: needs a JDK and Maven
    #[arg(long)]
    java: bool,
    /// bwmarrin/snowflake too: needs Go
    #[arg(long)]
    go: bool,
    /// All of them
    #[arg(long)]
    all_peers: bool,
}

/// The Go that `benches/go` needs.
const GO: &str = "1.26.0";

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
        if self.java || self.all_peers {
            command.arg("--java").arg(java::with_cosid("benches/java/Turns.java")?);
        }
        if self.go || self.all_peers {
            command.arg("--go").arg(go::program("benches/go", GO, &target.join("bench/bwmarrin"))?);
        }
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
