//! A namespace with a pool, and apps in it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use cosid_id::Layout;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{App, PodGround, Slot, wait};
use crate::ids::{self, Count};

/// All IDs that were counted in this process.
static COUNTED: AtomicUsize = AtomicUsize::new(0);

/// A namespace with a pool `orders`. Its deletion begins when this value goes.
pub struct PodSpace<'g> {
    /// The cluster.
    pub ground: &'g PodGround,
    /// The namespace.
    pub name: String,
}

impl<'g> PodSpace<'g> {
    pub(super) fn new(ground: &'g PodGround, name: &str) -> Self {
        Self { ground, name: name.into() }
    }

    /// Runs `kubectl` in this namespace.
    #[must_use]
    pub fn kubectl(&self, args: &[&str]) -> String {
        self.ground.kubectl(&[&["--namespace", self.name.as_str()], args].concat())
    }

    /// Applies an object in it.
    pub fn apply(&self, object: &Value) {
        self.ground.apply(&self.name, &object.to_string());
    }

    /// Waits; what is there at the end of a vain wait is shown.
    pub fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let start = std::time::Instant::now();
        let mut told = false;
        wait(what, || {
            let found = look();
            if found.is_none() && !told && start.elapsed() > super::PATIENCE * 9 / 10 {
                told = true;
                eprintln!(
                    "{what}, and this is there:\n{}",
                    self.kubectl(&["get", "pods,leases", "--output", "wide"])
                );
                eprintln!("{}", self.kubectl(&["get", "events", "--sort-by=.lastTimestamp"]));
            }
            found
        })
    }

    /// Runs an app as a Deployment.
    pub fn deploy(&self, name: &str, replicas: u32, app: &App) {
        self.apply(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": { "app": name } },
                "template": app.template(name, "Always"),
            },
        }));
    }

    /// Runs an app as a StatefulSet whose pods start all at once and are counted from `first`.
    pub fn deploy_stateful(&self, name: &str, first: u32, replicas: u32, app: &App) {
        self.apply(&json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name },
            "spec": {
                "replicas": replicas,
                "serviceName": name,
                "podManagementPolicy": "Parallel",
                "ordinals": { "start": first },
                "selector": { "matchLabels": { "app": name } },
                "template": app.template(name, "Always"),
            },
        }));
    }

    /// Runs an app as a Job.
    pub fn run_job(&self, name: &str, app: &App) {
        self.apply(&json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
            "spec": { "backoffLimit": 3, "template": app.template(name, "OnFailure") },
        }));
    }

    /// Runs an app as a pod of its own.
    pub fn run_pod(&self, name: &str, app: &App) {
        self.apply(&app.pod(name));
    }

    /// Asks for an object, with more arguments for `kubectl create`, and gives what it says.
    ///
    /// # Errors
    /// What the API server said.
    pub fn create(&self, object: &Value, args: &[&str]) -> Result<String, String> {
        self.ground.send("create", &self.name, &object.to_string(), args)
    }

    /// Changes a Deployment's or StatefulSet's number of pods.
    pub fn scale(&self, what: &str, replicas: u32) {
        let _ = self.kubectl(&["scale", what, &format!("--replicas={replicas}")]);
    }

    /// The pods of an app that have not ended, by name.
    #[must_use]
    pub fn pods(&self, app: &str) -> BTreeMap<String, Pod> {
        let pods: Api<Pod> = Api::namespaced(self.ground.client.clone(), &self.name);
        let list = self.ground.block_on(pods.list(&ListParams::default().labels(&format!("app={app}"))));
        // An API server that a test has just killed answers again soon.
        let pods = list.map(|list| list.items).unwrap_or_default();
        pods.into_iter().filter_map(|pod| Some((pod.metadata.name.clone()?, pod))).collect()
    }

    /// A pod that is there.
    #[must_use]
    pub fn pod(&self, name: &str) -> Option<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.ground.client.clone(), &self.name);
        self.ground.block_on(pods.get_opt(name)).ok().flatten()
    }

    /// Waits until so many pods of an app are there, all ready and none on its way out.
    pub fn wait_ready(&self, app: &str, count: usize) -> BTreeMap<String, Pod> {
        self.wait(&format!("there are not {count} ready pods of {app}"), || {
            let pods = self.pods(app);
            let all = pods.len() == count && pods.values().all(is_ready);
            all.then_some(pods)
        })
    }

    /// Waits until no pod of an app is left.
    pub fn wait_gone(&self, app: &str) {
        self.wait(&format!("pods of {app} are left"), || self.pods(app).is_empty().then_some(()));
    }

    /// The pool's slots that are open, by number.
    #[must_use]
    pub fn slots(&self) -> Vec<Slot> {
        let leases: Api<Lease> = Api::namespaced(self.ground.client.clone(), &self.name);
        let of_pool = ListParams::default().labels("cosid.dev/pool=orders");
        let list = self.ground.block_on(leases.list(&of_pool)).unwrap();
        let mut slots: Vec<Slot> = list.items.iter().filter_map(Slot::read).collect();
        slots.sort_by_key(|slot| slot.number);
        slots
    }

    /// Which slot each holder has: `POD` to number.
    #[must_use]
    pub fn held(&self) -> BTreeMap<String, u32> {
        let slots = self.slots();
        let pod = |slot: &Slot| Some(slot.holder()?.rsplit_once('/')?.1.to_owned());
        slots.iter().filter_map(|slot| Some((pod(slot)?, slot.number))).collect()
    }

    /// What an app has said so far: its events.
    #[must_use]
    pub fn says(&self, pod: &str) -> Vec<Value> {
        self.log(pod, "app").lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// What a container has logged so far; empty where it has not started.
    #[must_use]
    pub fn log(&self, pod: &str, container: &str) -> String {
        let args = ["--namespace", self.name.as_str(), "logs", pod, "--container", container];
        self.ground.try_kubectl(&args).unwrap_or_default()
    }

    /// Waits until an app says something.
    pub fn wait_says(&self, pod: &str, event: &str) -> Value {
        self.wait(&format!("{pod} does not say {event}"), || {
            self.says(pod).into_iter().find(|said| said["event"] == event)
        })
    }

    /// All IDs that were made here, by file: `POD.UID.CONTAINER`.
    #[must_use]
    pub fn ids(&self) -> Vec<(String, Vec<u64>)> {
        self.ground.ids(&self.name)
    }

    /// The last timestamp that was used on each slot, Unix ms.
    #[must_use]
    pub fn last_timestamps(&self) -> BTreeMap<u32, u64> {
        let mut last = BTreeMap::new();
        for id in self.ids().into_iter().flat_map(|(_, ids)| ids) {
            let parts = Layout::MILLISECOND.decompose(id.try_into().unwrap()).unwrap();
            let at = last.entry(parts.slot()).or_insert(0);
            *at = parts.timestamp().max(*at);
        }
        last
    }

    /// Counts the IDs that were made here; no two may be equal.
    ///
    /// # Panics
    /// Where some are, or where there is none.
    pub fn count(&self) -> usize {
        let all: Vec<u64> = self.ids().into_iter().flat_map(|(_, ids)| ids).collect();
        let Count { ids, equal, example } = ids::count(all);
        assert!(equal == 0 && ids > 0, "{}: {ids} IDs, {equal} equal: {example:?}", self.name);
        COUNTED.fetch_add(ids, Ordering::Relaxed);
        println!("{}: {ids} IDs, 0 equal", self.name);
        ids
    }
}

impl Drop for PodSpace<'_> {
    fn drop(&mut self) {
        // Its pods end while other tests run. After a failure it stays, for a look.
        if !std::thread::panicking() {
            let _ = self.ground.try_kubectl(&["delete", "namespace", &self.name, "--wait=false"]);
        }
    }
}

/// How many IDs all tests of this process have counted, none of them equal to another.
#[must_use]
pub fn counted() -> usize {
    COUNTED.load(Ordering::Relaxed)
}

/// Whether all containers of a pod are ready, and it stays.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().any(|found| found.type_ == "Ready" && found.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}
