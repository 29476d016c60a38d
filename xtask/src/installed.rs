//! CosId as a user installs it: the chart and the images, in a cluster with kubelets.

use std::path::Path;
use std::process::Command;

use crate::admin::Admin;
use crate::cluster::{self, Cluster};
use crate::images::{self, Build};
use crate::{Error, Result, paths, progress, tools};

/// The release's name and namespace.
pub const SYSTEM: &str = "cosid-system";

/// How many nodes a cluster of this machine gets.
const NODES: u8 = 2;

/// A cluster with CosId installed. A cluster of this machine ends with this value.
#[derive(Debug)]
pub struct Installed {
    /// Who may do everything there.
    pub admin: Admin,
}

impl Installed {
    /// Builds the images, starts a cluster of two nodes that have them (or takes the one that a context names, whose
    /// nodes must have them), and installs the chart with more `--set` values. Blocks until the controller is there.
    ///
    /// # Errors
    /// [`Error::Setup`] where nodes can't be had here; [`Error::Command`] with what helm or kubectl said.
    pub fn start(context: Option<&str>, values: &[&str]) -> Result<Self> {
        let helm = tools::helm()?;
        let admin = match context {
            Some(context) => Admin::Users { context: context.to_owned() },
            None => {
                cluster::check_nodes()?;
                let images = images::build(Build::Quick)?;
                let options = cluster::Options { nodes: NODES, ..cluster::Options::default() };
                let cluster = Cluster::start(options)?;
                progress::step("load the images", |_| {
                    images.iter().try_for_each(|image| cluster.load_image(&image.archive))
                })?;
                Admin::Own(Box::new(cluster))
            }
        };
        let installed = Self { admin };
        installed.install(&helm, values)?;
        Ok(installed)
    }

    /// The cluster, where it is this machine's own.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.admin {
            Admin::Own(cluster) => Some(cluster),
            Admin::Users { .. } => None,
        }
    }

    /// Installs the chart, or upgrades it to other values. Blocks until what it runs is ready.
    ///
    /// # Errors
    /// As [`Installed::start`].
    pub fn upgrade(&self, values: &[&str]) -> Result<()> {
        self.install(&tools::helm()?, values)
    }

    fn install(&self, helm: &Path, values: &[&str]) -> Result<()> {
        progress::step("install the chart", |_| {
            let mut command = Command::new(helm);
            match &self.admin {
                Admin::Own(cluster) => command.arg("--kubeconfig").arg(cluster.kubeconfig()),
                Admin::Users { context } => command.args(["--kube-context", context]),
            };
            command.args(["upgrade", "--install", "cosid"]).arg(paths::workspace().join("charts/cosid"));
            command.args(["--namespace", SYSTEM, "--create-namespace", "--wait", "--timeout=120s"]);
            let repository = |image: &str| format!("localhost/{image}");
            let agent = images::name("cosid-agent");
            let controller = repository("cosid-controller");
            let own = [format!("controller.image.repository={controller}"), format!("agent.image={agent}")];
            for value in own.iter().map(String::as_str).chain(values.iter().copied()) {
                command.args(["--set", value]);
            }
            let output = command.output().map_err(Error::io("start helm"))?;
            if output.status.success() {
                return Ok(());
            }
            let said = [output.stdout, output.stderr].concat();
            Err(Error::Command {
                command: "helm upgrade --install cosid".into(),
                status: output.status.to_string(),
                output: String::from_utf8_lossy(&said).into_owned(),
            })
        })
    }
}
