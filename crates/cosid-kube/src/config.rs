//! Which API server, and as whom.

use std::path::PathBuf;
use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::Error;

/// Where the API server is looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterOptions {
    /// A kubeconfig file. Without it, and with no context: the pod's own cluster if this is a pod, else `$KUBECONFIG`
    /// or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// One of its contexts, if not the current one.
    pub context: Option<String>,
}

/// How long a call may take if nobody says otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Finds the API server. Reads files; runs nothing.
///
/// # Errors
/// [`Error::NotInCluster`] or [`Error::Kubeconfig`], with what to do about it.
pub async fn load(options: &ClusterOptions) -> Result<Config, Error> {
    let ClusterOptions { kubeconfig, context } = options;
    // kube's own inference prefers a kubeconfig: in a pod the projected token is what is meant.
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    if in_pod && kubeconfig.is_none() && context.is_none() {
        return Config::incluster().map_err(|error| Error::NotInCluster(error.to_string()));
    }
    let found = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let found = found.map_err(|error| match kubeconfig {
        Some(_) => Error::Kubeconfig(error.to_string()),
        None => Error::NotInCluster(error.to_string()),
    })?;
    let contexts: Vec<String> = found.contexts.iter().map(|context| context.name.clone()).collect();
    let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(found, &options)
        .await
        .map_err(|error| Error::Kubeconfig(format!("{error}; its contexts are: {}", contexts.join(", "))))
}
