//! A cluster's administrator: of a cluster of this machine, or of one that the user has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use crate::cluster::Cluster;
use crate::{Error, Result};

/// Who may do everything.
#[derive(Debug)]
pub enum Admin {
    /// In a cluster of this machine, which ends with this value.
    Own(Box<Cluster>),
    /// In a cluster of the user's.
    Users {
        /// The context of the user's kubeconfig.
        context: String,
    },
}

impl Admin {
    /// A `kubectl` command; the caller adds the arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        match self {
            Self::Own(cluster) => cluster.kubectl_command(cluster.kubeconfig()),
            Self::Users { context } => {
                let mut command = Command::new("kubectl");
                command.args(["--context", context]);
                command
            }
        }
    }

    /// Runs `kubectl` and returns what it wrote to stdout. Blocks.
    ///
    /// # Errors
    /// [`Error::Command`] with what it said.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output = self.command().args(args).output().map_err(Error::io("start kubectl"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Error::Command {
            command: format!("kubectl {}", args.join(" ")),
            status: output.status.to_string(),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Applies objects, by a file in `dir`.
    ///
    /// # Errors
    /// As [`Admin::kubectl`].
    pub(crate) fn apply(&self, objects: &serde_json::Value, dir: &Path) -> Result<()> {
        let path = dir.join("objects.json");
        fs::write(&path, objects.to_string()).map_err(Error::io(format_args!("write {}", path.display())))?;
        self.kubectl(&["apply", "-f", &path.to_string_lossy()]).map(drop)
    }

    /// Makes a service account, and what it needs to be one at the API server.
    pub(crate) fn access(&self, namespace: &str, account: &str) -> Result<Access> {
        if self.kubectl(&["get", "serviceaccount", account, "-n", namespace]).is_err() {
            self.kubectl(&["create", "serviceaccount", account, "-n", namespace])?;
        }
        let token = self.kubectl(&["create", "token", account, "-n", namespace])?.trim().to_owned();
        let view = self.kubectl(&["config", "view", "--raw", "--minify", "--flatten", "-o", "json"])?;
        let wrong = |what: &str| Error::Wrong(format!("`kubectl config view` has no {what}"));
        let view: serde_json::Value =
            serde_json::from_str(&view).map_err(|error| wrong(&error.to_string()))?;
        let cluster = &view["clusters"][0]["cluster"];
        let server = cluster["server"].as_str().ok_or_else(|| wrong("server"))?.to_owned();
        let ca =
            cluster["certificate-authority-data"].as_str().and_then(|data| BASE64_STANDARD.decode(data).ok());
        Ok(Access { server, ca: ca.ok_or_else(|| wrong("certificate authority"))?, token })
    }

    /// A kubeconfig with a service account's token, as people have them.
    pub(crate) fn kubeconfig_of(&self, namespace: &str, account: &str, dir: &Path) -> Result<PathBuf> {
        let Access { server, ca, token } = self.access(namespace, account)?;
        let cluster = json!({ "server": server, "certificate-authority-data": BASE64_STANDARD.encode(ca) });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": account,
            "clusters": [{ "name": "cluster", "cluster": cluster }],
            "users": [{ "name": account, "user": { "token": token } }],
            "contexts": [{ "name": account, "context": { "cluster": "cluster", "user": account, "namespace": namespace } }],
        });
        let path = dir.join(format!("{account}.kubeconfig"));
        fs::write(&path, config.to_string()).map_err(Error::io(format_args!("write {}", path.display())))?;
        Ok(path)
    }
}

/// What a service account needs to be one at the API server.
pub(crate) struct Access {
    pub(crate) server: String,
    /// PEM.
    pub(crate) ca: Vec<u8>,
    pub(crate) token: String,
}
