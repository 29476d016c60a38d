//! How agents are started in a namespace: as whom, and by which way to the API server.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::Space;
use crate::agent::{Agent, Launch};

impl Space<'_> {
    /// How to start an agent in a pod of this name, as a service account of that name.
    #[must_use]
    pub fn launch(&self, pod: &str) -> Launch {
        let token = self.token(pod);
        let name = format!("{}-{pod}", self.name);
        let kubeconfig = self.ground.cluster.kubeconfig_with_token(&name, &token).unwrap();
        self.launch_with(pod, &kubeconfig)
    }

    /// The same with a kubeconfig that is there already.
    #[must_use]
    pub fn launch_with(&self, pod: &str, kubeconfig: &Path) -> Launch {
        let uid = self.block_on(self.pods().get(pod)).ok().and_then(|pod| pod.metadata.uid);
        Launch::default()
            .path("--kubeconfig", kubeconfig)
            .env("POD_NAMESPACE", &self.name)
            .env("POD_NAME", pod)
            .env("POD_UID", &uid.unwrap_or_default())
    }

    /// The same with a token that is read from a file, which may be replaced.
    #[must_use]
    pub fn launch_with_token_file(&self, pod: &str, token: &Path) -> Launch {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster":
                { "server": self.ground.cluster.server_url(), "certificate-authority": self.ground.cluster.ca() } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": { "tokenFile": token } }],
        });
        let kubeconfig = self.dir.join(format!("{pod}.kubeconfig"));
        fs::write(&kubeconfig, config.to_string()).unwrap();
        self.launch_with(pod, &kubeconfig)
    }

    /// How to start an agent that reaches the API server at another address, as by a relay.
    #[must_use]
    pub fn launch_at(&self, pod: &str, address: SocketAddr) -> Launch {
        let token = self.token(pod);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": {
                "server": format!("https://{address}"),
                "tls-server-name": "127.0.0.1",
                "certificate-authority": self.ground.cluster.ca(),
            } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": { "token": token } }],
        });
        let kubeconfig = self.dir.join(format!("{pod}.kubeconfig"));
        fs::write(&kubeconfig, config.to_string()).unwrap();
        self.launch_with(pod, &kubeconfig)
    }

    /// Where the API server listens.
    ///
    /// # Panics
    /// Where its address is none.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        self.ground.cluster.server_url().trim_start_matches("https://").parse().unwrap()
    }

    /// Starts an agent in a pod of this name, with more arguments.
    #[must_use]
    pub fn agent(&self, pod: &str, args: &[&str]) -> Agent {
        self.launch(pod).args(args).start(&self.dir.join(pod))
    }

    /// A token of the pod's service account, bound to the pod. Both are made if need be.
    #[must_use]
    pub fn token(&self, pod: &str) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.ground.client.clone(), &self.name);
        let account = serde_json::from_value(json!({ "metadata": { "name": pod } })).unwrap();
        let object = json!({
            "metadata": { "name": pod },
            "spec": { "serviceAccountName": pod, "automountServiceAccountToken": false,
                      "containers": [{ "name": "app", "image": "app" }] },
        });
        let object = serde_json::from_value(object).unwrap();
        // They may be there.
        let _ = self.block_on(accounts.create(&PostParams::default(), &account));
        let _ = self.block_on(self.pods().create(&PostParams::default(), &object));
        let bound = BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: Some(pod.into()),
            uid: None,
        };
        let spec = TokenRequestSpec {
            audiences: Vec::new(),
            bound_object_ref: Some(bound),
            expiration_seconds: None,
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let made = self.block_on(accounts.create_token_request(pod, &PostParams::default(), &request));
        made.unwrap().status.unwrap().token
    }
}
