//! `cargo xtask test`.

use std::process::ExitCode;

use clap::Args;
use xtask::{Error, Result, demo, programs, progress};

/// Flags of the tests.
#[derive(Args)]
pub(crate) struct Test {
    /// Only what needs no cluster
    #[arg(long)]
    memory: bool,
}

impl Test {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if !self.memory {
            // Minutes on a new machine, and the reason to stop where it can't be: first, and with its progress shown.
            xtask::cluster::prepare(false)?;
        }
        programs::build()?;
        if self.memory {
            // What needs a control plane is in these two packages.
            cargo(
                &["test", "--workspace", "--exclude", "cosid-tests", "--exclude", "xtask", "--locked"],
                None,
            )?;
        } else {
            cargo(&["test", "--workspace", "--locked"], None)?;
        }
        // What is behind features that no program here has, such as time zones by name.
        cargo(&["test", "-p", "cosid-id", "--all-features", "--locked"], None)?;
        // The page's words under every interleaving; another build, since loom replaces the atomics.
        let words = [
            "test",
            "-p",
            "cosid-id",
            "--release",
            "--locked",
            "--test",
            "loom",
            "--target-dir",
            "target/loom",
        ];
        cargo(&words, Some("--cfg loom"))?;
        progress::step("the demo", |_| {
            demo::run(&demo::Options { memory: self.memory, context: None, no_nodes: true })
        })?;
        if self.memory {
            println!("NOT run: the tests on an API server (without --memory they are)");
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn cargo(args: &[&str], rustflags: Option<&str>) -> Result<()> {
    let mut command = programs::cargo();
    command.args(args);
    if let Some(flags) = rustflags {
        command.env("RUSTFLAGS", flags);
    }
    let status = command.status().map_err(Error::io("start cargo"))?;
    if status.success() {
        return Ok(());
    }
    let command = format!("cargo {}", args.join(" "));
    Err(Error::Command { command, status: status.to_string(), output: "see above".into() })
}
