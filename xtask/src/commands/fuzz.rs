//! `cargo xtask fuzz` and `cargo xtask miri`. What they are: `docs/proof.md`.

use std::process::ExitCode;

use clap::Args;
use xtask::{Error, Result, programs};

/// Target, package, and the test's path in it.
const TARGETS: [(&str, &str, &str); 8] = [
    ("page", "cosid-id", "fuzz::page"),
    ("id_texts", "cosid-id", "fuzz::id_texts"),
    ("static_state", "cosid-id", "static_slot::tests::fuzz::static_state"),
    ("lease_codec", "cosid-kube", "codec::fuzz::lease_codec"),
    ("slot_pool", "cosid-kube", "pool::fuzz::slot_pool"),
    ("client_answer", "cosid-client", "http::fuzz::client_answer"),
    ("agent_request", "cosid-agent", "serve::fuzz::agent_request"),
    ("agent_state", "cosid-agent", "window::fuzz::agent_state"),
];

/// Flags of fuzzing.
#[derive(Args)]
pub(crate) struct Fuzz {
    /// One target; without it all, one after the other
    target: Option<String>,
    /// Minutes for each
    #[arg(long, value_name = "N", default_value_t = 1)]
    minutes: u32,
}

impl Fuzz {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let is_wanted = |name: &str| self.target.as_deref().is_none_or(|target| target == name);
        let wanted: Vec<_> = TARGETS.into_iter().filter(|(name, ..)| is_wanted(name)).collect();
        if wanted.is_empty() {
            let names = TARGETS.map(|(name, ..)| name).join(", ");
            return Err(Error::Wrong(format!("no such target; there are {names}")));
        }
        let seconds = (u64::from(self.minutes) * 60).to_string();
        for (_, package, test) in wanted {
            let mut command = programs::cargo();
            command.args(["test", "--quiet", "--locked", "-p", package]);
            // Those of cosid-id's public face are in its integration tests.
            command.args(if test.starts_with("fuzz::") { &["--test", "it"][..] } else { &["--lib"] });
            command.args(["--", "--exact", test, "--nocapture"]).env("COSID_FUZZ_SECONDS", &seconds);
            if !command.status().map_err(Error::io("start cargo"))?.success() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Miri takes no flags: what it can run is known.
#[derive(Args)]
pub(crate) struct Miri {}

impl Miri {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let words = ["cell::", "gate::", "run::", "stamp::"];
        let runs: [(&str, &[&str]); 2] = [("cosid-lease", &[]), ("cosid-id", &words)];
        for (package, tests) in runs {
            // By rustup: the cargo that runs this is of another toolchain.
            let mut command = std::process::Command::new("rustup");
            command.args(["run", "nightly", "cargo", "miri", "test", "--locked", "-p", package, "--lib"]);
            command.args(["--target-dir", "target/miri", "--"]).args(tests).args(["--skip", "static_slot"]);
            command.env_remove("CARGO").env("MIRIFLAGS", "-Zmiri-disable-isolation");
            let status = command.status().map_err(Error::io("start rustup"))?;
            if !status.success() {
                eprintln!("Miri comes with `rustup toolchain install nightly --component miri`");
                return Ok(ExitCode::FAILURE);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
