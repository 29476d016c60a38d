//! Which API server, and as whom.

use std::path::PathBuf;
use std::time::Duration;

use kube::Config;
#[cfg(feature = "kubeconfig")]
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::Error;

/// Where the API server is looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterOptions {
    /// The API server by its address, before anything else.
    pub server: Option<Server>,
    /// A kubeconfig file. Without it, and with no context: the pod's own cluster if this is a pod, else `$KUBECONFIG`
    /// or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// One of its contexts, if not the current one.
    pub context: Option<String>,
}

/// An API server by its address, and who to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its address, `https://HOST:PORT`.
    pub url: String,
    /// The certificates (PEM) that its own must be signed with.
    pub ca_file: PathBuf,
    /// The file of a service account's token. It is read again, so that it may be replaced.
    pub token_file: PathBuf,
}

/// How long a call may take if nobody says otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Finds the API server. Reads files; runs nothing.
///
/// # Errors
/// [`Error::NotInCluster`] or [`Error::Kubeconfig`], with what to do about it.
pub async fn load(options: &ClusterOptions) -> Result<Config, Error> {
    if let Some(server) = &options.server {
        return by_address(server);
    }
    // kube's own inference prefers a kubeconfig: in a pod the projected token is what is meant.
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    if in_pod && options.kubeconfig.is_none() && options.context.is_none() {
        return Config::incluster().map_err(|error| {
            Error::NotInCluster(format!(
                "this is a pod whose service account's token can't be read ({error}): does it have \
                 automountServiceAccountToken: false?"
            ))
        });
    }
    by_kubeconfig(options).await
}

fn by_address(server: &Server) -> Result<Config, Error> {
    let url = server.url.parse().map_err(|error| Error::NotInCluster(format!("{}: {error}", server.url)))?;
    let mut config = Config::new(url);
    config.root_cert_file = Some(server.ca_file.clone());
    config.auth_info.token_file = Some(server.token_file.display().to_string());
    Ok(config)
}

#[cfg(not(feature = "kubeconfig"))]
async fn by_kubeconfig(_: &ClusterOptions) -> Result<Config, Error> {
    Err(Error::NotInCluster(
        "this is no pod (KUBERNETES_SERVICE_HOST is not set), and this build reads no kubeconfig".into(),
    ))
}

#[cfg(feature = "kubeconfig")]
async fn by_kubeconfig(options: &ClusterOptions) -> Result<Config, Error> {
    let found = match &options.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let found = found.map_err(|error| match &options.kubeconfig {
        Some(_) => Error::Kubeconfig(error.to_string()),
        None => Error::NotInCluster(error.to_string()),
    })?;
    let contexts: Vec<String> = found.contexts.iter().map(|context| context.name.clone()).collect();
    let options = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(found, &options)
        .await
        .map_err(|error| Error::Kubeconfig(format!("{error}; its contexts are: {}", contexts.join(", "))))
}

#[cfg(test)]
#[cfg(feature = "kubeconfig")]
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
        let options = ClusterOptions {
            kubeconfig: Some(file.path().into()),
            context: context.map(str::to_owned),
            server: None,
        };
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
        let options =
            ClusterOptions { kubeconfig: Some("/nowhere/config".into()), context: None, server: None };
        let why = load(&options).await.unwrap_err().to_string();
        assert!(why.contains("/nowhere/config"), "{why}");
    }
}
