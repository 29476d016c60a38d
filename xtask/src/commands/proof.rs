//! `cargo xtask model` and `cargo xtask sim`: build the proof and run it with what follows. What it is: `docs/proof.md`.

use std::process::ExitCode;

use clap::Args;
use xtask::{Error, Result, paths, programs, progress};

/// What is passed on to the model checker.
#[derive(Args, Default)]
pub(crate) struct Model {
    /// Put each of the seeded faults on in turn, and fail when one is not found
    #[arg(long)]
    seeded_bugs: bool,
    /// Only configurations, or faults, with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// With this seeded fault put on
    #[arg(long, value_name = "NAME", conflicts_with = "seeded_bugs")]
    bug: Option<String>,
}

/// What is passed on to the simulator.
#[derive(Args, Default)]
pub(crate) struct Sim {
    /// Replay one seed, with what happened in it
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "seeds"])]
    seed: Option<u64>,
    /// The first seed of a range (default 0)
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// How many seeds (default 1000)
    #[arg(long, value_name = "M")]
    seeds: Option<u64>,
    /// With this seeded fault put on
    #[arg(long, value_name = "NAME")]
    bug: Option<String>,
}

impl Model {
    /// All configurations.
    pub(crate) fn whole() -> Result<ExitCode> {
        Self::default().run()
    }

    /// All seeded faults.
    pub(crate) fn seeded() -> Result<ExitCode> {
        Self { seeded_bugs: true, ..Self::default() }.run()
    }

    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut args = vec!["model".to_owned()];
        if self.seeded_bugs {
            args.push("--seeded-bugs".into());
        }
        option(&mut args, "--only", self.only);
        option(&mut args, "--bug", self.bug);
        run(&args)
    }
}

impl Sim {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut args = vec!["sim".to_owned()];
        option(&mut args, "--seed", self.seed);
        option(&mut args, "--from", self.from);
        option(&mut args, "--seeds", self.seeds);
        option(&mut args, "--bug", self.bug);
        run(&args)
    }
}

fn option(args: &mut Vec<String>, name: &str, value: Option<impl ToString>) {
    args.extend(value.into_iter().flat_map(|value| [name.to_owned(), value.to_string()]));
}

/// Builds the proof and runs it.
///
/// The wrapper gives the cfg to the workspace's own crates only, and cargo keeps what comes of it apart from the development
/// build of the same crates. All others are the development build's: that they are only as long as no `--package` narrows
/// who has a say in their features, as in `programs::build`.
fn run(args: &[String]) -> Result<ExitCode> {
    let cargo = |command: &str| {
        let mut cargo = programs::cargo();
        cargo.args([command, "--quiet", "--locked", "--bin", "cosid-proof"]);
        cargo.env("RUSTC_WORKSPACE_WRAPPER", paths::workspace().join("proof/rustc"));
        // The many small pieces of an incremental build are slow code.
        cargo.env("CARGO_INCREMENTAL", "0");
        cargo
    };
    let started = Error::io("start cargo");
    let built = progress::step("build the proof", |_| cargo("build").status().map_err(started))?;
    if !built.success() {
        return Ok(ExitCode::FAILURE);
    }
    let status = cargo("run").arg("--").args(args).status().map_err(Error::io("start cargo"))?;
    // It has said itself what it found.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
