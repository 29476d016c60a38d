//! A cluster, a controller's webhook, and somebody who makes pods.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use cosid_controller::inject::registration::{CONFIGURATION, PATH, configuration};
use cosid_controller::{cluster_role, injector_cluster_role, injector_own_role, own_role};
use cosid_kube::pool::crd_yaml;
use cosid_kube::{ApiClock, ClusterOptions, config, transport};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, WebhookClientConfig};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use kube_runtime::wait::{Condition, await_condition};
use serde_json::{Value, json};
use xtask::cluster::{Cluster, Options};
use xtask::programs::{self, Program, until};

/// The controller's own namespace.
pub(crate) const SYSTEM: &str = "cosid-system";
/// Where pods are made.
pub(crate) const SHOP: &str = "shop";
/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Ground {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) client: Client,
}

impl Ground {
    pub(crate) async fn new() -> Self {
        let cluster = blocking(|| {
            let cluster = Cluster::start(Options::default()).unwrap();
            let file = cluster.kubeconfig().with_file_name("crd.yaml");
            std::fs::write(&file, crd_yaml().unwrap()).unwrap();
            cluster.kubectl(&["apply", "--filename", file.to_str().unwrap()]).unwrap();
            cluster.kubectl(&["wait", "--for=condition=Established", "crd/slotpools.cosid.dev"]).unwrap();
            for namespace in [SYSTEM, SHOP] {
                space(&cluster, namespace);
            }
            account(&cluster);
            cluster
        })
        .await;
        let options =
            ClusterOptions { kubeconfig: Some(cluster.kubeconfig().into()), context: None, server: None };
        let config = config::load(&options).await.unwrap();
        let client = transport::client(&config, Duration::from_secs(10), ApiClock::default()).unwrap();
        Self { cluster: Arc::new(cluster), client }
    }

    /// Starts a controller with a webhook, as its own service account.
    pub(crate) async fn controller(&self, id: &'static str, args: &'static [&'static str]) -> Injecting {
        let cluster = Arc::clone(&self.cluster);
        blocking(move || {
            let token = cluster.token(SYSTEM, "cosid-controller", None).unwrap();
            let kubeconfig = cluster.kubeconfig_with_token(id, &token).unwrap();
            let mut command = Command::new(programs::path("cosid-controller").unwrap());
            command.arg("--kubeconfig").arg(kubeconfig).args([
                "--namespace",
                SYSTEM,
                "--id",
                id,
                "--leader-ttl",
                "3",
            ]);
            command.args(["--listen", "127.0.0.1:0", "--injector", "webhook", "--webhook-drain", "0"]);
            command.args(["--webhook-listen", "127.0.0.1:0", "--webhook-name", "127.0.0.1"]).args(args);
            let program = Program::start(id, command, cluster.kubeconfig().parent().unwrap()).unwrap();
            let served = || {
                let log = program.log();
                let address = log.split("the webhook is served address=").nth(1);
                Ok(address.and_then(|rest| rest.split_whitespace().next()).map(str::to_owned))
            };
            let address = until(|| format!("no webhook: {}", program.log()), LONG, served).unwrap();
            Injecting { program, address }
        })
        .await
    }

    /// Registers a webhook at this address, and waits until it is trusted and called.
    pub(crate) async fn register(&self, address: &str, failure_policy: &str) {
        let url = Some(format!("https://{address}{PATH}"));
        let client = WebhookClientConfig { url, ..WebhookClientConfig::default() };
        let object = configuration(SYSTEM, failure_policy, client);
        self.registrations().create(&PostParams::default(), &object).await.unwrap();
        self.trusted().await;
        self.once_injected().await;
    }

    /// Waits until the registration has certificates in it.
    pub(crate) async fn trusted(&self) -> MutatingWebhookConfiguration {
        let is_trusted = |found: Option<&MutatingWebhookConfiguration>| !bundle(found).is_empty();
        self.wait(self.registrations(), CONFIGURATION, is_trusted).await.unwrap()
    }

    /// API servers take up to a second to know a registration or a policy, which nobody else can follow.
    pub(crate) async fn once_injected(&self) {
        let injected = async {
            while !self.try_pod(&auto()).await.is_ok_and(|pod| is_injected(&pod)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LONG, injected).await.unwrap();
    }

    pub(crate) fn registrations(&self) -> Api<MutatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    pub(crate) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// What would become of a pod.
    pub(crate) async fn try_pod(&self, pod: &Value) -> kube::Result<Pod> {
        let pod = serde_json::from_value(pod.clone()).unwrap();
        self.pods(SHOP).create(&PostParams { dry_run: true, field_manager: None }, &pod).await
    }

    pub(crate) async fn make_pod(&self, namespace: &str, pod: &Value) -> kube::Result<Pod> {
        let pod = serde_json::from_value(pod.clone()).unwrap();
        self.pods(namespace).create(&PostParams::default(), &pod).await
    }

    pub(crate) async fn apply(&self, objects: Vec<Value>) {
        let cluster = Arc::clone(&self.cluster);
        blocking(move || objects.iter().for_each(|object| apply(&cluster, object))).await;
    }

    pub(crate) async fn wait<K>(&self, api: Api<K>, name: &str, wanted: impl Condition<K>) -> Option<K>
    where
        K: kube::Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
    {
        let waited = tokio::time::timeout(LONG, await_condition(api.clone(), name, wanted)).await;
        match waited {
            Ok(found) => found.unwrap(),
            Err(_) => panic!("{name} is not as wanted: {:?}", api.get_opt(name).await),
        }
    }
}

/// A controller that injects.
pub(crate) struct Injecting {
    pub(crate) program: Program,
    pub(crate) address: String,
}

/// A namespace in which pods can be made: there is no controller manager that would make the service account.
pub(crate) fn space(cluster: &Cluster, name: &str) {
    cluster.kubectl(&["create", "namespace", name]).unwrap();
    cluster.kubectl(&["create", "serviceaccount", "default", "--namespace", name]).unwrap();
}

/// The controller's account with the rights that the chart gives it.
fn account(cluster: &Cluster) {
    let system = ["--namespace", SYSTEM];
    let kubectl = |args: &[&str]| cluster.kubectl(&[args, &system].concat()).unwrap();
    let account = "--serviceaccount=cosid-system:cosid-controller";
    kubectl(&["create", "serviceaccount", "cosid-controller"]);
    for role in [cluster_role(), injector_cluster_role(true)] {
        apply(cluster, &json!(role));
        let name = role.metadata.name.unwrap();
        kubectl(&["create", "clusterrolebinding", &name, &format!("--clusterrole={name}"), account]);
    }
    for role in [own_role(SYSTEM), injector_own_role(SYSTEM)] {
        apply(cluster, &json!(role));
        let name = role.metadata.name.unwrap();
        kubectl(&["create", "rolebinding", &name, &format!("--role={name}"), account]);
    }
}

pub(crate) fn apply(cluster: &Cluster, object: &Value) {
    let file = cluster.kubeconfig().with_file_name("applied.json");
    std::fs::write(&file, object.to_string()).unwrap();
    cluster.kubectl(&["apply", "--filename", file.to_str().unwrap(), "--warnings-as-errors"]).unwrap();
}

pub(crate) fn bundle(found: Option<&MutatingWebhookConfiguration>) -> String {
    let webhooks = found.and_then(|found| found.webhooks.as_ref()).into_iter().flatten();
    let bundles = webhooks.filter_map(|webhook| webhook.client_config.ca_bundle.as_ref());
    bundles.map(|bundle| String::from_utf8(bundle.0.clone()).unwrap()).collect()
}

/// A pod that passes the `restricted` standard, with these annotations.
pub(crate) fn pod(annotations: &[(&str, &str)]) -> Value {
    let annotations: std::collections::BTreeMap<_, _> = annotations.iter().copied().collect();
    json!({
        "metadata": { "generateName": "web-", "annotations": annotations },
        "spec": {
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "app", "image": "app:1",
                "resources": { "requests": { "cpu": "10m", "memory": "8Mi" }, "limits": { "cpu": "20m", "memory": "16Mi" } },
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    })
}

pub(crate) fn auto() -> Value {
    pod(&[("cosid/slot", "auto")])
}

pub(crate) fn is_injected(pod: &Pod) -> bool {
    let init = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
    init.is_some_and(|init| init.first().is_some_and(|first| first.name == "cosid-agent"))
}

/// What the API server says of a pod that it does not take.
pub(crate) fn refusal(made: kube::Result<Pod>) -> String {
    match made {
        Err(kube::Error::Api(status)) => status.message.clone(),
        other => panic!("{other:?} is no refusal"),
    }
}

/// The cluster's own calls block.
pub(crate) async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(call).await.unwrap()
}
