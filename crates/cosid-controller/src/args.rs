//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, ValueEnum};
use cosid_kube::ClusterOptions;
use tracing_subscriber::EnvFilter;

use crate::Error;
use crate::inject::registration::{CONFIGURATION, SECRET, SERVICE};
use crate::inject::{Agent, Resources};
use crate::run::{Injector, Settings};
use crate::webhook::WebhookSettings;

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
    #[command(flatten)]
    injection: InjectionArgs,
    /// What is logged, such as `info` or `cosid_controller=debug`.
    #[arg(long, env = "COSID_LOG", default_value = "info,kube_client=error,kube_runtime=error")]
    log: String,
    /// How.
    #[arg(long, env = "COSID_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// Agents in annotated pods.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Injection")]
struct InjectionArgs {
    /// Who injects agents into pods annotated `cosid/slot`.
    #[arg(long, value_enum, default_value_t = InjectorKind::None)]
    injector: InjectorKind,
    /// Where the webhook is served, over TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:9443")]
    webhook_listen: SocketAddr,
    /// The Service of the controller's namespace by which API servers reach the webhook: its certificates are for
    /// SERVICE.NAMESPACE.svc.
    #[arg(long, value_name = "NAME", default_value = SERVICE)]
    webhook_service: String,
    /// A further DNS name or IP address that the webhook is reached by. May be given several times.
    #[arg(long, value_name = "DNS-OR-IP")]
    webhook_name: Vec<String>,
    /// The MutatingWebhookConfiguration that is told which certificates to trust. Nothing else of it is changed.
    #[arg(long, value_name = "NAME", default_value = CONFIGURATION)]
    webhook_configuration: String,
    /// The Secret of the controller's namespace that keeps the webhook's certificates. It is made where it is missing.
    #[arg(long, value_name = "NAME", default_value = SECRET)]
    webhook_secret: String,
    /// How long a certificate of the webhook is valid. At two thirds of it the next one is made, and both are trusted for
    /// the last third.
    #[arg(long, value_name = "SECONDS", default_value_t = 90 * 86_400, value_parser = clap::value_parser!(u64).range(6..=315_360_000))]
    certificate_lifetime: u64,
    /// How long the webhook still answers after the controller was asked to end: until API servers send no more pods here.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=300))]
    webhook_drain: u64,
    /// The agent's image, where a pod's annotation names no other.
    #[arg(long, value_name = "IMAGE", default_value_t = Agent::default().image)]
    agent_image: String,
    /// The agent's requests and limits of cpu, memory and ephemeral-storage, where a pod's annotations ask for no others.
    /// Default: requests of 5m CPU and 8Mi memory, limits of 500m and 32Mi.
    #[arg(long, value_name = "JSON")]
    agent_resources: Option<Resources>,
    /// What agents log, where a pod's annotation says nothing else.
    #[arg(long, value_name = "LEVEL", default_value_t = Agent::default().log)]
    agent_log: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InjectorKind {
    /// This program, by a webhook.
    Webhook,
    /// The API server itself, by a policy that the chart brings; pods that slipped through are reported here.
    Policy,
    /// Nobody.
    None,
}

impl InjectionArgs {
    fn settings(&self) -> Injector {
        match self.injector {
            InjectorKind::None => Injector::None,
            InjectorKind::Policy => Injector::Policy,
            InjectorKind::Webhook => Injector::Webhook(Box::new(WebhookSettings {
                listen: self.webhook_listen,
                agent: Agent {
                    image: self.agent_image.clone(),
                    log: self.agent_log.clone(),
                    resources: self.agent_resources.clone().unwrap_or_default(),
                },
                service: self.webhook_service.clone(),
                names: self.webhook_name.clone(),
                configuration: self.webhook_configuration.clone(),
                secret: self.webhook_secret.clone(),
                lifetime: Duration::from_secs(self.certificate_lifetime),
                drain: Duration::from_secs(self.webhook_drain),
            })),
        }
    }
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
            injector: self.injection.settings(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound_and_injects_nothing_unless_told_to() {
        use clap::CommandFactory;
        Args::command().debug_assert();
        let read =
            |args: &[&str]| Args::try_parse_from([&["cosid-controller"], args].concat()).unwrap().settings();
        assert!(matches!(read(&[]).injector, Injector::None));
        let Injector::Webhook(webhook) = read(&["--injector", "webhook"]).injector else { panic!() };
        assert_eq!((webhook.agent, webhook.listen.port()), (Agent::default(), 9443));
    }

    #[test]
    fn resources_that_cannot_be_are_refused() {
        let read =
            Args::try_parse_from(["cosid-controller", "--agent-resources", "{\"limits\":{\"gpu\":\"1\"}}"]);
        assert!(read.unwrap_err().to_string().contains("gpu is not one of cpu, memory, ephemeral-storage"));
    }
}
