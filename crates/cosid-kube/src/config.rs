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
        return Config::incluster().map_err(|error| {
            Error::NotInCluster(format!(
                "this is a pod whose service account's token can't be read ({error}): does it have \
                 automountServiceAccountToken: false?"
            ))
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://api.example:6443'}}]
users: [{name: u, user: {token: secret}}]
contexts:
- {name: one, context: {cluster: c, user: u}}
- {name: two, context: {cluster: c, user: u, namespace: shop}}
current-context: one
";
        std::fs::write(file.path(), text).unwrap();
        file
    }

    async fn namespace(context: Option<&str>) -> Result<String, String> {
        let file = kubeconfig();
        let options =
            ClusterOptions { kubeconfig: Some(file.path().into()), context: context.map(str::to_owned) };
        load(&options).await.map(|config| config.default_namespace).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn the_context_named_is_taken_else_the_current_one() {
        assert_eq!(namespace(None).await.unwrap(), "default");
        assert_eq!(namespace(Some("two")).await.unwrap(), "shop");
    }

    #[tokio::test]
    async fn a_context_that_is_not_there_is_answered_with_those_that_are() {
        let why = namespace(Some("three")).await.unwrap_err();
        assert!(why.ends_with("its contexts are: one, two"), "{why}");
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named() {
        let options = ClusterOptions { kubeconfig: Some("/nowhere/config".into()), context: None };
        let why = load(&options).await.unwrap_err().to_string();
        assert!(why.contains("/nowhere/config"), "{why}");
    }
}
