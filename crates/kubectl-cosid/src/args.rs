//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// See the slots of SlotPools.
#[derive(Debug, Parser)]
#[command(name = "kubectl cosid", bin_name = "kubectl cosid", version)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Cluster {
    /// The kubeconfig; default: $KUBECONFIG, else ~/.kube/config.
    #[arg(long, global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context.
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,
    /// The namespace; default: the context's.
    #[arg(long, short, global = true)]
    pub(crate) namespace: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The slot map of a pool: who holds which slot, until when, and where its next window starts.
    Slots(Slots),
}

/// Flags of `slots`.
#[derive(Debug, clap::Args)]
pub(crate) struct Slots {
    /// The pool: NAME or NAMESPACE/NAME; without it the namespace's only pool, else the one named `default`.
    pub(crate) pool: Option<String>,
    /// Show free slots that nobody has had yet, too.
    #[arg(long)]
    pub(crate) all: bool,
    /// How to print it.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For scripts.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
