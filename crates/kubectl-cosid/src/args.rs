//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use cosid_kube::pool::LONGEST_TTL_SECONDS;

/// See the slots of SlotPools, and recover pools after a restore of etcd.
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
    /// After a restore of etcd from a backup: puts a barrier above everything that a pool's slots may have been used for,
    /// and lets slots be acquired again. Holders keep their slots.
    Recover(Recover),
}

/// Flags of `recover`.
#[derive(Debug, clap::Args)]
pub(crate) struct Recover {
    /// The pool: NAME or NAMESPACE/NAME; without it the namespace's only pool, else the one named `default`.
    pub(crate) pool: Option<String>,
    /// Don't ask.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The longest ttl that the pool has had since the backup, in seconds, if it was longer than now.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=LONGEST_TTL_SECONDS.into()))]
    pub(crate) longest_ttl: Option<u32>,
    /// How long to wait for the controller, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) timeout: u64,
    /// How to print it.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
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
