//! What a request shows to say who it comes from.

#[cfg(feature = "kubeconfig")]
mod plugin;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cosid_lease::Millis;
use http::HeaderValue;
use kube::Config;
use secrecy::ExposeSecret as _;

use crate::Error;
use crate::clock::monotonic;

/// After so long a token is read again, milliseconds. The kubelet replaces a projected token when a fifth of its life
/// is left, so this is early enough by far.
const FRESH: Millis = 60_000;

/// The `Authorization` of every request, and where the next one comes from.
#[derive(Debug)]
pub(crate) struct Credentials {
    source: Source,
    last: Mutex<Option<(HeaderValue, Millis)>>,
}

#[derive(Debug)]
enum Source {
    /// A client certificate, or nothing.
    None,
    /// The same for ever.
    Fixed(HeaderValue),
    /// A token that somebody replaces.
    File(PathBuf),
    /// A program that gives one, run by kube.
    #[cfg(feature = "kubeconfig")]
    Plugin(Box<Config>),
}

impl Credentials {
    /// # Errors
    /// [`Error::Credentials`] where what the configuration has can't be sent in a header.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let auth = &config.auth_info;
        let source = if let Some(token) = &auth.token {
            Source::Fixed(bearer(token.expose_secret())?)
        } else if let Some(path) = &auth.token_file {
            Source::File(path.into())
        } else if auth.exec.is_some() || auth.auth_provider.is_some() {
            #[cfg(not(feature = "kubeconfig"))]
            return Err(Error::Credentials(
                "this build runs no credential plugins: use a token or its file".into(),
            ));
            #[cfg(feature = "kubeconfig")]
            Source::Plugin(Box::new(config.clone()))
        } else if let (Some(user), Some(password)) = (&auth.username, &auth.password) {
            let encoded = BASE64_STANDARD.encode(format!("{user}:{}", password.expose_secret()));
            Source::Fixed(sensitive(&format!("Basic {encoded}"))?)
        } else {
            Source::None
        };
        Ok(Self { source, last: Mutex::new(None) })
    }

    /// What to send now.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, Error> {
        let last = self.last();
        match last {
            Some((header, at)) if monotonic().saturating_sub(at) < FRESH => Ok(Some(header)),
            last => self.fetch(last.map(|(header, _)| header)).await,
        }
    }

    /// What to send after this was turned down: `None` if there is nothing else.
    pub(crate) async fn after_refusal(
        &self,
        sent: Option<&HeaderValue>,
    ) -> Result<Option<HeaderValue>, Error> {
        let fetched = self.fetch(sent.cloned()).await?;
        Ok(fetched.filter(|fetched| Some(fetched) != sent))
    }

    async fn fetch(&self, last: Option<HeaderValue>) -> Result<Option<HeaderValue>, Error> {
        let fetched = match &self.source {
            Source::None => return Ok(None),
            Source::Fixed(header) => return Ok(Some(header.clone())),
            Source::File(path) => read_token(path),
            #[cfg(feature = "kubeconfig")]
            Source::Plugin(config) => plugin::run(config.clone()).await,
        };
        // A token that can't be read now was good a moment ago: the API server decides whether it still is.
        let header = match (fetched, last) {
            (Ok(header), _) | (Err(_), Some(header)) => header,
            (Err(error), None) => return Err(error),
        };
        let fetched = Some((header.clone(), monotonic()));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = fetched;
        Ok(Some(header))
    }

    fn last(&self) -> Option<(HeaderValue, Millis)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Blocks for a read of a small file, in a pod one in memory.
fn read_token(path: &Path) -> Result<HeaderValue, Error> {
    let token =
        std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    bearer(token.trim())
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    sensitive(&format!("Bearer {token}"))
}

/// Never shown by a `Debug` of it.
fn sensitive(text: &str) -> Result<HeaderValue, Error> {
    let mut header = HeaderValue::from_str(text).map_err(|_| {
        Error::Credentials("the token holds characters that a header can't; make it anew".into())
    })?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use kube::config::{KubeConfigOptions, Kubeconfig};

    use super::*;

    async fn header(user: &str) -> Result<Option<String>, String> {
        let text = format!(
            "
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: 'https://api.example:6443'}}}}]
users: [{{name: u, user: {user}}}]
contexts: [{{name: one, context: {{cluster: c, user: u}}}}]
current-context: one
"
        );
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let credentials = Credentials::new(&config).map_err(|error| error.to_string())?;
        let header = credentials.header().await.map_err(|error| error.to_string())?;
        assert!(!format!("{:?}{header:?}", credentials.last()).contains("secret"), "a token is never shown");
        Ok(header.map(|header| header.to_str().unwrap().to_owned()))
    }

    fn plugin(status: &str) -> String {
        let answer = format!(
            r#"{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}}}"#
        );
        let args = serde_json::json!(["-c", format!("echo '{answer}'")]);
        format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: {args}, interactiveMode: Never}}}}"
        )
    }

    #[tokio::test]
    async fn each_kind_of_credentials_is_shown_as_the_api_server_wants_it() {
        assert_eq!(header("{}").await.unwrap(), None);
        assert_eq!(header("{token: secret}").await.unwrap().unwrap(), "Bearer secret");
        assert_eq!(header("{username: a, password: secret}").await.unwrap().unwrap(), "Basic YTpzZWNyZXQ=");
        let from_plugin = header(&plugin(r#"{"token":"secret"}"#)).await;
        assert_eq!(from_plugin.unwrap().unwrap(), "Bearer secret");
    }

    #[tokio::test]
    async fn a_plugin_that_gives_no_token_is_an_error_that_says_what_to_use() {
        let pair = r#"{"clientCertificateData":"a","clientKeyData":"b"}"#;
        let why = header(&plugin(pair)).await.unwrap_err();
        assert!(why.contains("use a kubeconfig with a token or a certificate"), "{why}");
        let missing = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /nowhere/plugin, interactiveMode: Never}}";
        let why = header(missing).await.unwrap_err();
        assert!(why.contains("credential plugin"), "{why}");
    }
}
