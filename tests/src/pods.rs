//! Real pods: a cluster with kubelets in which CosId is installed, and namespaces in it with apps that make IDs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod app;
pub mod processes;
mod slots;
mod space;

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use cosid_kube::{ApiClock, ClusterOptions, config, transport};
use kube::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use xtask::admin::Admin;
use xtask::cluster::Cluster;
use xtask::images;
use xtask::installed::Installed;
use xtask::programs::until;

pub use app::App;
pub use slots::Slot;
pub use space::{PodSpace, counted, is_ready};

/// The longest that a test waits for anything: pods start in seconds, and a lost node is lost after some more.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Where the apps write their IDs, on the node.
const DISK: &str = "/var/lib/cosid-ids";

/// The namespace of the pods that read that.
const READERS: &str = "cosid-readers";

/// A cluster with kubelets and CosId.
pub struct PodGround {
    /// CosId in the cluster.
    pub installed: Installed,
    client: Client,
    runtime: Runtime,
}

impl PodGround {
    /// Starts it: a cluster of this machine with two nodes, or the one that `context` names. Blocks for half a minute;
    /// minutes where images or programs have to be built.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn start(context: Option<&str>) -> Self {
        let installed = Installed::start(context, &[]).unwrap();
        let options = ClusterOptions {
            kubeconfig: installed.cluster().map(|cluster| cluster.kubeconfig().to_owned()),
            context: context.map(str::to_owned),
            server: None,
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let connect = async {
            let config = config::load(&options).await.unwrap();
            transport::client(&config, Duration::from_secs(20), ApiClock::default()).unwrap()
        };
        let client = runtime.block_on(connect);
        let ground = Self { installed, client, runtime };
        ground.start_readers();
        ground
    }

    /// The cluster, where it is this machine's own: only there can nodes be cut off, or processes be killed from outside.
    ///
    /// # Panics
    /// Where it is not.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        self.installed.cluster().unwrap()
    }

    /// Runs `kubectl` as the administrator.
    ///
    /// # Panics
    /// Where it fails.
    #[must_use]
    pub fn kubectl(&self, args: &[&str]) -> String {
        self.try_kubectl(args).unwrap()
    }

    /// The same where it may fail.
    ///
    /// # Errors
    /// What it said.
    pub fn try_kubectl(&self, args: &[&str]) -> xtask::Result<String> {
        self.installed.admin.kubectl(args)
    }

    /// Applies an object, or several as YAML documents.
    ///
    /// # Panics
    /// Where the API server refuses it.
    pub fn apply(&self, namespace: &str, text: &str) {
        let _ = self.send("apply", namespace, text, &[]).unwrap();
    }

    /// Sends objects by a verb of `kubectl` that takes them, and gives what it says.
    ///
    /// # Errors
    /// What the API server said.
    fn send(&self, verb: &str, namespace: &str, text: &str, args: &[&str]) -> Result<String, String> {
        let mut command = self.installed.admin.command();
        command.args([verb, "--namespace", namespace, "--filename", "-"]).args(args);
        let mut kubectl =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        kubectl.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = kubectl.wait_with_output().unwrap();
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// A new namespace, with a pool `orders` of so many slots and this ttl in seconds.
    ///
    /// # Panics
    /// Where it can't be made, or the pool does not become ready.
    #[must_use]
    pub fn space(&self, name: &str, slots: u32, ttl_seconds: u32) -> PodSpace<'_> {
        let _ = self.kubectl(&["create", "namespace", name]);
        let space = PodSpace::new(self, name);
        space.apply(&json!({
            "apiVersion": "cosid.dev/v1", "kind": "SlotPool", "metadata": { "name": "orders" },
            "spec": { "slots": { "first": 0, "last": slots - 1 }, "ttlSeconds": ttl_seconds },
        }));
        space.wait("the pool is not ready", || {
            let ready = [
                "get",
                "slotpool",
                "orders",
                "--output",
                "jsonpath={.status.conditions[?(@.type=='Ready')].status}",
            ];
            (space.kubectl(&ready) == "True").then_some(())
        });
        space
    }

    /// What a file says whose IDs were written by the apps of a namespace, on whichever node: by file name.
    fn ids(&self, namespace: &str) -> Vec<(String, Vec<u64>)> {
        let readers = self.kubectl(&[
            "get",
            "pods",
            "--namespace",
            READERS,
            "--output",
            "name",
            "--selector",
            "app=reader",
        ]);
        let read = |reader: &str| {
            let dir = format!("/ids/{namespace}");
            let mut command = self.installed.admin.command();
            command.args(["exec", "--namespace", READERS, reader, "--", "/cosid-count", "--dump", &dir]);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            crate::ids::undump(&output.stdout).unwrap()
        };
        readers.lines().flat_map(read).collect()
    }

    /// On each node a pod that reads what apps have written there.
    fn start_readers(&self) {
        let _ = self.try_kubectl(&["create", "namespace", READERS]);
        let labels = json!({ "app": "reader" });
        let set = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "reader" },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "automountServiceAccountToken": false,
                        // Also on a node that has just been lost.
                        "tolerations": [{ "operator": "Exists" }],
                        "volumes": [disk()],
                        "containers": [{
                            "name": "reader",
                            "image": images::name("cosid-ids"),
                            "args": ["--socket=/none", "--idle"],
                            "securityContext": { "runAsUser": 0 },
                            "volumeMounts": [{ "name": "ids", "mountPath": "/ids" }],
                        }],
                    },
                },
            },
        });
        self.apply(READERS, &set.to_string());
        let rollout = ["rollout", "status", "daemonset/reader", "--namespace", READERS, "--timeout=60s"];
        let _ = self.kubectl(&rollout);
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

/// The volume of a node's directory for IDs.
fn disk() -> Value {
    json!({ "name": "ids", "hostPath": { "path": DISK, "type": "DirectoryOrCreate" } })
}

/// Looks until there is something.
///
/// # Panics
/// Where there is nothing within [`PATIENCE`].
pub fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let look = || {
        let found = look();
        if found.is_none() {
            // Each look is a request or a process.
            std::thread::sleep(Duration::from_millis(90));
        }
        Ok(found)
    };
    until(|| what.into(), PATIENCE, look).unwrap()
}

/// Whether the cluster is this machine's own.
#[must_use]
pub fn is_own(installed: &Installed) -> bool {
    matches!(installed.admin, Admin::Own(_))
}
