//! `cargo xtask demo`.

use std::process::ExitCode;

use clap::Args;
use xtask::{Result, demo};

/// Flags of the demo.
#[derive(Args)]
pub(crate) struct Demo {
    /// How many nodes the demo's cluster has. With 0 it is a control plane only, which needs no root: the agents are then
    /// processes of this machine
    #[arg(long, default_value_t = 2, value_parser = nodes)]
    nodes: u8,
    /// With no cluster: keep the slots in this machine's memory
    #[arg(long, conflicts_with = "context")]
    memory: bool,
    /// Use this context of your kubeconfig instead of a control plane made for the demo
    #[arg(long)]
    context: Option<String>,
}

impl Demo {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let Self { nodes, memory, context } = self;
        demo::run(&demo::Options { memory, context, no_nodes: nodes == 0 })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The story is one of two nodes, or of none.
fn nodes(text: &str) -> std::result::Result<u8, String> {
    match text {
        "0" => Ok(0),
        "2" => Ok(2),
        _ => Err("the demo plays on 2 nodes, or on 0".into()),
    }
}
