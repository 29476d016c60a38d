//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use cosid_kube::ClusterOptions;
use tracing_subscriber::EnvFilter;

use crate::Error;
use crate::run::Settings;

/// Reconciles SlotPools: makes and opens their Leases, keeps their watermark, grants agents their rights.
#[derive(Clone, Debug, Parser)]
#[command(name = "cosid-controller", version)]
pub struct Args {
    /// A kubeconfig file. Without it, and without --context: the pod's own cluster, if this is a pod.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig.
    #[arg(long)]
    context: Option<String>,
    /// The controller's own namespace: its leader Lease and what is kept of pools that have gone are there.
    #[arg(long, env = "POD_NAMESPACE", default_value = "cosid-system")]
    namespace: String,
    /// Where /livez, /readyz and /metrics are served.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// This replica's name in the leader Lease. Without it the host's name.
    #[arg(long, env = "POD_NAME")]
    id: Option<String>,
    /// How long a leader that died is waited for, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(i32).range(3..=300))]
    leader_ttl: i32,
    /// What is logged, such as `info` or `cosid_controller=debug`.
    #[arg(long, env = "COSID_LOG", default_value = "info,kube_client=error,kube_runtime=error")]
    log: String,
    /// How.
    #[arg(long, env = "COSID_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Args {
    /// How the controller is to run.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            cluster: ClusterOptions {
                kubeconfig: self.kubeconfig.clone(),
                context: self.context.clone(),
                server: None,
            },
            namespace: self.namespace.clone(),
            listen: self.listen,
            id: self.id.clone().unwrap_or_else(host),
            leader_ttl: self.leader_ttl,
        }
    }

    /// Begins to log, to standard error.
    ///
    /// # Errors
    /// [`Error::Setup`] where `--log` can't be read.
    pub fn start_log(&self) -> Result<(), Error> {
        let filter = EnvFilter::try_new(&self.log)
            .map_err(|error| Error::Setup(format!("--log {}: {error}; try `info`", self.log)))?;
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => log.with_ansi(false).init(),
            LogFormat::Json => log.json().init(),
        }
        Ok(())
    }
}

/// The host's name, as the kernel has it; with the process's number where that can't be read.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { format!("cosid-controller-{}", std::process::id()) } else { name.to_owned() }
}
