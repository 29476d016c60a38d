//! `cargo xtask test`.

use std::env;
use std::process::ExitCode;

use clap::Args;
use xtask::images::{self, Build};
use xtask::languages::Language;
use xtask::{Error, Result, cluster, demo, java, programs, progress, tools};

use super::proof::{Model, Sim};

/// Flags of the tests.
#[derive(Args)]
pub(crate) struct Test {
    /// Only what needs no cluster
    #[arg(long)]
    memory: bool,
    /// Only the tests in pods, in the cluster of this context of your kubeconfig, whose nodes have the images of
    /// `cargo xtask image --quick`; those that pull a node's cable are left out
    #[arg(long, conflicts_with = "memory")]
    context: Option<String>,
    /// Also the model checker, the seeded bugs and the simulator, which are steps of their own in `.ci/run`
    #[arg(long, conflicts_with = "context")]
    all: bool,
}

impl Test {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(context) = &self.context {
            return in_users_cluster(context);
        }
        let nodes = if self.memory { false } else { prepare()? };
        let left_out = languages()?;
        programs::build()?;
        if self.memory {
            // What needs a control plane is in these two packages.
            let without = ["--exclude", "cosid-tests", "--exclude", "xtask"];
            cargo(&[&["test", "--workspace", "--locked"], &without[..]].concat(), &[])?;
            // Of which these need none.
            let with = ["--test", "cosid_java", "--test", "examples", "--test", "languages"];
            cargo(&[&["test", "-p", "cosid-tests", "--locked"], &with[..]].concat(), &[])?;
        } else {
            cargo(&["test", "--workspace", "--locked"], &[])?;
        }
        // What is behind features that no program here has: time zones by name; waiting in async programs.
        cargo(&["test", "-p", "cosid-id", "-p", "cosid-client", "--all-features", "--locked"], &[])?;
        // The page's words under every interleaving; another build, since loom replaces the atomics.
        let words = ["test", "-p", "cosid-id", "--release", "--locked", "--test", "loom"];
        cargo(&[&words[..], &["--target-dir", "target/loom"]].concat(), &[("RUSTFLAGS", "--cfg loom")])?;
        let options = demo::Options { memory: self.memory, context: None, no_nodes: true };
        progress::step("the demo without nodes", |_| demo::run(&options))?;
        if nodes {
            progress::step("the demo in pods", |_| demo::run(&demo::Options::default()))?;
        }
        let proof = if self.all { proof()? } else { ExitCode::SUCCESS };
        for missing in left_out {
            println!("NOT run: {missing}");
        }
        if self.memory {
            println!("NOT run: the tests on an API server (without --memory they are)");
        } else if !nodes {
            println!(
                "NOT run: the tests in pods (as root they are, or with --context in a cluster that you have)"
            );
        }
        Ok(proof)
    }
}

/// The proof; the first part that fails says so by its exit code.
fn proof() -> Result<ExitCode> {
    for run in [Model::whole, Model::seeded, || Sim::default().run()] {
        let code = run()?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds what takes minutes on a new machine, first and with its progress shown: it is also the reason to stop where it
/// can't be. Says whether this machine can have nodes.
fn prepare() -> Result<bool> {
    let nodes = match cluster::check_nodes() {
        Ok(()) => true,
        Err(missing) if env::var("COSID_TEST_NODES").is_ok_and(|value| value == "require") => {
            return Err(missing);
        }
        Err(missing) => {
            eprintln!("the tests in pods are left out: {missing}");
            false
        }
    };
    cluster::prepare(nodes)?;
    tools::helm()?;
    tools::kube_score()?;
    if nodes {
        images::build(Build::Quick)?;
    }
    Ok(nodes)
}

/// What is left out because this machine lacks a language, or CosId itself to compare with, which then is in the cache.
fn languages() -> Result<Vec<String>> {
    let required = |variable| env::var(variable).is_ok_and(|value| value == "require");
    let mut left_out = Vec::new();
    match java::check() {
        Ok(()) => java::cosid().map(drop)?,
        Err(missing) if required("COSID_TEST_JAVA") => return Err(missing),
        Err(missing) => left_out.push(format!("the comparison with CosId: {missing}")),
    }
    for language in Language::ALL {
        match language.check() {
            Ok(()) => {}
            Err(missing) if required("COSID_TEST_LANGUAGES") => return Err(missing),
            Err(missing) => left_out.push(format!("the example in {language:?}: {missing}")),
        }
    }
    Ok(left_out)
}

fn in_users_cluster(context: &str) -> Result<ExitCode> {
    cargo(&["test", "-p", "cosid-tests", "--locked", "--test", "nodes"], &[("COSID_TEST_CONTEXT", context)])?;
    Ok(ExitCode::SUCCESS)
}

fn cargo(args: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let mut command = programs::cargo();
    let status = command.args(args).envs(environment.iter().copied()).status();
    let status = status.map_err(Error::io("start cargo"))?;
    if status.success() {
        return Ok(());
    }
    let command = format!("cargo {}", args.join(" "));
    Err(Error::Command { command, status: status.to_string(), output: "see above".into() })
}
