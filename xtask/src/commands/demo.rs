//! `cargo xtask demo`.

use std::process::ExitCode;

use clap::Args;
use xtask::{Result, demo};

/// Flags of the demo.
#[derive(Args)]
pub(crate) struct Demo {
    /// With no cluster: keep the slots in this machine's memory
    #[arg(long, conflicts_with = "context")]
    memory: bool,
    /// Use this context of your kubeconfig instead of a control plane made for the demo
    #[arg(long)]
    context: Option<String>,
}

impl Demo {
    pub(crate) fn run(self) -> Result<ExitCode> {
        demo::run(&demo::Options { memory: self.memory, context: self.context })?;
        Ok(ExitCode::SUCCESS)
    }
}
