//! A cluster with a controller, and namespaces in it, in which agents run as they do in pods: each as a service account
//! of its own, with a token that is bound to its pod, and with the rights that the controller gives it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod launches;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cosid_kube::codec::{self, lease_name};
use cosid_kube::pool::{SlotRange, crd_yaml};
use cosid_kube::{ApiClock, ClusterOptions, SlotPool, SlotPoolSpec, config, transport};
use cosid_lease::Record;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use xtask::cluster::{Cluster, Options};
use xtask::programs::{self, Program, until};

use crate::http::PATIENCE;
use crate::referee;

/// A control plane with the CRD and a controller. It ends with this value.
pub struct Ground {
    /// The control plane.
    pub cluster: Cluster,
    client: Client,
    runtime: Runtime,
    kubeconfig: PathBuf,
    // Before the control plane that it talks to has gone.
    controller: Mutex<Program>,
    dir: TempDir,
}

impl Ground {
    /// Starts it. Blocks for some seconds.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::with(|cluster, _| cluster.kubeconfig().into())
    }

    /// Starts it with the API server as referee. The controller runs as its own service account, with its own rights.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn refereed() -> Self {
        Self::with(|cluster, dir| {
            referee::instate(cluster, dir);
            referee::as_controller(cluster)
        })
    }

    /// `kubeconfig` says as whom the controller runs.
    fn with(kubeconfig: impl FnOnce(&Cluster, &Path) -> PathBuf) -> Self {
        Self::prepared(|cluster, dir| {
            let file = dir.join("crd.yaml");
            fs::write(&file, crd_yaml().unwrap()).unwrap();
            cluster.kubectl(&["apply", "--filename", file.to_str().unwrap()]).unwrap();
            cluster.kubectl(&["wait", "--for=condition=Established", "crd/slotpools.cosid.dev"]).unwrap();
            cluster.kubectl(&["create", "namespace", "cosid-system"]).unwrap();
            kubeconfig(cluster, dir)
        })
    }

    /// Starts a control plane with nothing in it; `prepare` puts there what the controller needs, and says as whom it
    /// runs.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn prepared(prepare: impl FnOnce(&Cluster, &Path) -> PathBuf) -> Self {
        let dir = tempfile::Builder::new().prefix("cosid-").tempdir().unwrap();
        let cluster = Cluster::start(Options::default()).unwrap();
        let kubeconfig = prepare(&cluster, dir.path());
        let controller = Mutex::new(controller(&kubeconfig, dir.path()));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(connect(cluster.kubeconfig()));
        Self { cluster, client, runtime, kubeconfig, controller, dir }
    }

    /// A new namespace.
    #[must_use]
    pub fn space(&self, name: &str) -> Space<'_> {
        let object = json!({ "metadata": { "name": name } });
        let object: Namespace = serde_json::from_value(object).unwrap();
        let all: Api<Namespace> = Api::all(self.client.clone());
        self.runtime.block_on(all.create(&PostParams::default(), &object)).unwrap();
        let dir = self.dir.path().join(name);
        fs::create_dir(&dir).unwrap();
        Space { ground: self, name: name.into(), dir }
    }

    /// Everything the controller logged so far.
    #[must_use]
    pub fn controller_log(&self) -> String {
        self.controller().log()
    }

    /// Kills the controller (SIGKILL) and starts another one.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn replace_controller(&self) {
        let mut running = self.controller();
        running.kill().unwrap();
        *running = controller(&self.kubeconfig, self.dir.path());
    }

    /// Another controller beside the one that is there, which ends with this value.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn second_controller(&self) -> Program {
        controller(&self.kubeconfig, self.dir.path())
    }

    /// Stops the controller (SIGSTOP) as it is, or lets it go on (SIGCONT).
    ///
    /// # Panics
    /// Where it can't be signalled.
    pub fn signal_controller(&self, signal: Signal) {
        self.controller().signal(signal).unwrap();
    }

    fn controller(&self) -> MutexGuard<'_, Program> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the controller answers to a GET of this path.
    ///
    /// # Panics
    /// Where it is not served.
    #[must_use]
    pub fn ask_controller(&self, path: &str) -> String {
        let address = || {
            let log = self.controller_log();
            let address = log
                .rsplit("listen=")
                .next()
                .filter(|_| log.contains("listen="))
                .and_then(|rest| rest.split_ascii_whitespace().next());
            Ok(address.map(str::to_owned))
        };
        let address = until(|| self.controller_log(), PATIENCE, address).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: controller\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The head of the API server's answer to whoever has this token: its headers are there whatever the answer is.
    ///
    /// # Panics
    /// Where there is no answer.
    #[must_use]
    pub fn answer_to(&self, token: &str, method: &str, path: &str) -> http::response::Parts {
        let kubeconfig = self.cluster.kubeconfig_with_token("asking", token).unwrap();
        let request = http::Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = self.runtime.block_on(async { connect(&kubeconfig).await.send(request).await });
        answer.unwrap().into_parts().0
    }

    /// Where requests are worked on, for what goes on beside a test.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// What the API server was asked by a service account since its start, as `verb resource`, in the order it was
    /// answered.
    #[must_use]
    pub fn calls(&self, space: &str, account: &str) -> Vec<String> {
        let user = format!("system:serviceaccount:{space}:{account}");
        let log = fs::read_to_string(self.cluster.audit_log()).unwrap();
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mine = events.filter(|event| event["user"]["username"] == user.as_str());
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        mine.map(|event| format!("{} {}", word(&event["verb"]), word(&event["objectRef"]["resource"])))
            .collect()
    }
}

fn controller(kubeconfig: &Path, dir: &Path) -> Program {
    let mut command = Command::new(programs::path("cosid-controller").unwrap());
    command.arg("--kubeconfig").arg(kubeconfig).args(["--listen", "127.0.0.1:0"]);
    Program::start("controller", command, dir).unwrap()
}

async fn connect(kubeconfig: &Path) -> Client {
    let options = ClusterOptions { kubeconfig: Some(kubeconfig.into()), context: None, server: None };
    let config = config::load(&options).await.unwrap();
    transport::client(&config, PATIENCE, ApiClock::default()).unwrap()
}

/// A namespace, and a directory for those who run in it.
pub struct Space<'g> {
    /// Where it is.
    pub ground: &'g Ground,
    /// Its name.
    pub name: String,
    /// A directory of its own.
    pub dir: PathBuf,
}

impl Space<'_> {
    /// A pool that is ready, with so many slots from 0.
    pub fn pool(&self, name: &str, slots: i32, ttl_seconds: i32) {
        let slots = Some(SlotRange { first: 0, last: slots - 1 });
        self.create_pool(name, SlotPoolSpec { slots, ttl_seconds, ..SlotPoolSpec::default() });
        self.wait_ready(name);
    }

    /// Makes a pool, ready or not.
    pub fn create_pool(&self, name: &str, spec: SlotPoolSpec) {
        self.block_on(self.pools().create(&PostParams::default(), &SlotPool::new(name, spec))).unwrap();
    }

    /// Waits until a pool's slots can be acquired.
    pub fn wait_ready(&self, name: &str) {
        let is_ready = |pool: SlotPool| {
            let conditions = pool.status.into_iter().flat_map(|status| status.conditions);
            conditions.into_iter().any(|found| found.type_ == "Ready" && found.status == "True")
        };
        let look = || Ok(self.block_on(self.pools().get(name)).ok().filter(|pool| is_ready(pool.clone())));
        until(|| format!("pool {name} is not ready"), PATIENCE, look).unwrap();
    }

    /// Waits until a condition of a pool is false for this reason, with a message that has this in it.
    pub fn wait_condition(&self, name: &str, kind: &str, reason: &str, message: &str) {
        let conditions = || {
            let pool = self.block_on(self.pools().get(name)).ok();
            pool.and_then(|pool| pool.status).map(|status| status.conditions).unwrap_or_default()
        };
        let is_it = |found: &Condition| {
            (found.type_.as_str(), found.status.as_str(), found.reason.as_str()) == (kind, "False", reason)
                && found.message.contains(message)
        };
        let look = || Ok(conditions().iter().any(is_it).then_some(()));
        until(|| format!("pool {name} has no such condition: {:?}", conditions()), PATIENCE, look).unwrap();
    }

    /// What `kubectl cosid recover` prints of a pool.
    #[must_use]
    pub fn recover(&self, pool: &str, args: &[&str]) -> String {
        let mut command = Command::new(programs::path("kubectl-cosid").unwrap());
        command.args(["recover", pool, "--timeout", "20", "-n", &self.name, "--kubeconfig"]);
        let output = command.arg(self.ground.cluster.kubeconfig()).args(args).output().unwrap();
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{why}{}", self.ground.controller_log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until a condition of a pool is true, and gives its message.
    #[must_use]
    pub fn wait_true(&self, name: &str, kind: &str) -> String {
        let look = || {
            let pool = self.block_on(self.pools().get(name)).ok();
            let conditions =
                pool.and_then(|pool| pool.status).map(|status| status.conditions).unwrap_or_default();
            let mut found =
                conditions.into_iter().filter(|found| (&*found.type_, &*found.status) == (kind, "True"));
            Ok(found.next().map(|found| found.message))
        };
        until(
            || format!("{kind} of pool {name} is not true: {}", self.ground.controller_log()),
            PATIENCE,
            look,
        )
        .unwrap()
    }

    /// Asks for a pool's deletion.
    pub fn delete_pool(&self, name: &str) {
        self.block_on(self.pools().delete(name, &DeleteParams::default())).unwrap();
    }

    /// Whether there is such a pool.
    #[must_use]
    pub fn has_pool(&self, name: &str) -> bool {
        self.block_on(self.pools().get_opt(name)).unwrap().is_some()
    }

    /// Changes a pool's spec.
    pub fn change_pool(&self, name: &str, spec: &Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.block_on(self.pools().patch(name, &PatchParams::default(), &patch)).unwrap();
    }

    /// Changes a slot's Lease, as somebody does who may.
    pub fn change_lease(&self, pool: &str, slot: u32, patch: &Value) {
        let name = lease_name(pool, slot);
        self.block_on(self.leases().patch(&name, &PatchParams::default(), &Patch::Merge(patch))).unwrap();
    }

    /// Deletes a slot's Lease, and takes its finalizer away where the controller does not.
    pub fn force_delete_lease(&self, pool: &str, slot: u32) {
        let name = lease_name(pool, slot);
        self.block_on(self.leases().delete(&name, &DeleteParams::default())).unwrap();
        let gone = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        // The controller may have been first.
        let _ = self.block_on(self.leases().patch(&name, &PatchParams::default(), &gone));
    }

    /// What a slot's Lease says; `None` where it says nothing yet.
    #[must_use]
    pub fn record(&self, pool: &str, slot: u32) -> Option<Record> {
        let lease = self.block_on(self.leases().get_opt(&lease_name(pool, slot))).unwrap()?;
        codec::read(&lease).unwrap()
    }

    /// Deletes a pod at once: tokens that are bound to it are worth nothing from then on.
    pub fn delete_pod(&self, pod: &str) {
        self.block_on(self.pods().delete(pod, &DeleteParams::default().grace_period(0))).unwrap();
    }

    /// The pools.
    #[must_use]
    pub fn pools(&self) -> Api<SlotPool> {
        Api::namespaced(self.ground.client.clone(), &self.name)
    }

    /// The Leases, those of all pools.
    #[must_use]
    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.ground.client.clone(), &self.name)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.ground.client.clone(), &self.name)
    }

    /// Waits for what is asked of the API server.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.ground.runtime.block_on(work)
    }
}
