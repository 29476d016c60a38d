//! A cluster with a controller, and somebody who may do everything in it.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cosid_controller::{Injector, Settings};
use cosid_kube::codec::{self, lease_name};
use cosid_kube::pool::{SlotRange, crd_yaml};
use cosid_kube::{
    ApiClock, ClusterOptions, KubeStore, LeaseVersion, SlotPool, SlotPoolSpec, config, transport,
};
use cosid_lease::{Owner, Record, SlotStore as _, Terms, algebra};
use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use kube_runtime::wait::{Condition, await_condition};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use xtask::cluster::{Cluster, Options};

/// Where the pools are.
pub(crate) const SHOP: &str = "shop";
/// The controller's own namespace.
pub(crate) const SYSTEM: &str = "cosid-system";

/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Bench {
    pub(crate) cluster: Arc<Cluster>,
    namespace: &'static str,
    pub(crate) client: Client,
    pub(crate) clock: ApiClock,
}

/// A controller in this process.
pub(crate) struct Controller {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), cosid_controller::Error>>,
}

impl Controller {
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let cluster = blocking(|| {
            let cluster = Cluster::start(Options::default()).unwrap();
            let file = cluster.kubeconfig().with_file_name("crd.yaml");
            std::fs::write(&file, crd_yaml().unwrap()).unwrap();
            cluster.kubectl(&["apply", "--filename", file.to_str().unwrap()]).unwrap();
            cluster.kubectl(&["wait", "--for=condition=Established", "crd/slotpools.cosid.dev"]).unwrap();
            for namespace in [SHOP, SYSTEM] {
                cluster.kubectl(&["create", "namespace", namespace]).unwrap();
            }
            cluster
        })
        .await;
        let (client, clock) = connect(cluster.kubeconfig()).await;
        Self { cluster: Arc::new(cluster), namespace: SHOP, client, clock }
    }

    /// The same, with the pools of another namespace.
    pub(crate) fn in_namespace(&self, namespace: &'static str) -> Self {
        let (cluster, client, clock) = (Arc::clone(&self.cluster), self.client.clone(), self.clock.clone());
        Self { cluster, namespace, client, clock }
    }

    pub(crate) fn settings(&self, id: &str) -> Settings {
        Settings {
            cluster: options(self.cluster.kubeconfig()),
            namespace: SYSTEM.into(),
            listen: ([127, 0, 0, 1], 0).into(),
            id: id.into(),
            leader_ttl: 3,
            injector: Injector::None,
        }
    }

    pub(crate) fn controller(&self) -> Controller {
        self.controller_as(self.settings("in-process"))
    }

    pub(crate) fn controller_as(&self, settings: Settings) -> Controller {
        let (stop, told) = oneshot::channel();
        let stopped = async {
            let _ = told.await;
        };
        Controller { stop, task: tokio::spawn(cosid_controller::run(settings, stopped)) }
    }

    pub(crate) fn pools(&self) -> Api<SlotPool> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    pub(crate) async fn create(&self, name: &str, spec: SlotPoolSpec) -> SlotPool {
        self.pools().create(&PostParams::default(), &SlotPool::new(name, spec)).await.unwrap()
    }

    /// Makes a pool and waits until it can be used.
    pub(crate) async fn ready(&self, name: &str, spec: SlotPoolSpec) -> SlotPool {
        self.create(name, spec).await;
        self.pool_that(name, |pool| is(pool, "Ready")).await
    }

    /// Waits, by a watch, until a pool is as wanted.
    pub(crate) async fn pool_that(&self, name: &str, wanted: impl Fn(&SlotPool) -> bool) -> SlotPool {
        let wanted = |pool: Option<&SlotPool>| pool.is_some_and(&wanted);
        self.wait(self.pools(), name, wanted).await.unwrap()
    }

    pub(crate) async fn pool_gone(&self, name: &str) {
        self.wait(self.pools(), name, |pool: Option<&SlotPool>| pool.is_none()).await;
    }

    pub(crate) async fn lease_that(&self, name: &str, wanted: impl Fn(&Lease) -> bool) -> Lease {
        let wanted = |lease: Option<&Lease>| lease.is_some_and(&wanted);
        self.wait(self.leases(), name, wanted).await.unwrap()
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

    pub(crate) async fn delete_pool(&self, name: &str) {
        self.pools().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn annotate(&self, lease: &str, annotations: serde_json::Value) {
        let patch = serde_json::json!({ "metadata": { "annotations": annotations } });
        self.leases().patch(lease, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(crate) fn store(&self, pool: &str) -> KubeStore {
        KubeStore::new(self.client.clone(), self.clock.clone(), self.namespace, pool, None)
    }

    /// Holds a slot, as an agent would.
    pub(crate) async fn hold(&self, pool: &str, slot: u32, owner: &Owner) -> Held {
        let store = self.store(pool);
        let view = store.load().await.unwrap();
        let entry = view.entries.into_iter().find(|entry| entry.slot == slot).unwrap();
        let (now, terms) = (store.now().unwrap().earliest, view.pool.terms);
        let record = algebra::acquire(entry.state.record().unwrap(), owner, now, terms).unwrap();
        let version = store.write(slot, &entry.version, &record).await.unwrap();
        Held { store, slot, version, record, terms }
    }

    pub(crate) async fn role(&self, name: &str) -> Role {
        Api::<Role>::namespaced(self.client.clone(), self.namespace).get(name).await.unwrap()
    }

    /// Waits for an event about a pool, for this reason.
    pub(crate) async fn event(&self, reason: &str) -> Event {
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace);
        let params = WatchParams::default().fields(&format!("reason={reason}"));
        let mut stream = pin!(events.watch(&params, "0").await.unwrap());
        let first = async {
            loop {
                if let WatchEvent::Added(event) = stream.try_next().await.unwrap().unwrap() {
                    return event;
                }
            }
        };
        within(LONG, first).await
    }

    /// How many changes of pools came after one version, up to another.
    pub(crate) async fn writes_to_pools_between(&self, after: &str, upto: &str) -> usize {
        let mut stream = pin!(self.pools().watch(&WatchParams::default(), after).await.unwrap());
        let mut count = 0;
        loop {
            if let WatchEvent::Modified(pool) = within(LONG, stream.try_next()).await.unwrap().unwrap() {
                count += 1;
                if pool.metadata.resource_version.as_deref() == Some(upto) {
                    return count;
                }
            }
        }
    }

    pub(crate) async fn record(&self, pool: &str, slot: u32) -> Option<Record> {
        let lease = self.leases().get_opt(&lease_name(pool, slot)).await.unwrap()?;
        codec::read(&lease).unwrap()
    }
}

/// A slot that is held.
pub(crate) struct Held {
    pub(crate) store: KubeStore,
    slot: u32,
    pub(crate) version: LeaseVersion,
    pub(crate) record: Record,
    terms: Terms,
}

impl Held {
    pub(crate) async fn renew(&mut self) {
        let holding = self.record.holding().unwrap();
        let now = self.store.now().unwrap().earliest;
        let renewed =
            algebra::renew(&self.record, holding.owner.incarnation, self.record.fence, now, self.terms)
                .unwrap();
        self.version = self.store.write(self.slot, &self.version, &renewed).await.unwrap();
        self.record = renewed;
    }

    pub(crate) async fn release(self, last_issued: u64) -> Record {
        let holding = self.record.holding().unwrap();
        let freed = algebra::release(&self.record, holding.owner.incarnation, self.record.fence, last_issued)
            .unwrap();
        self.store.write(self.slot, &self.version, &freed).await.unwrap();
        freed
    }
}

pub(crate) async fn connect(kubeconfig: &Path) -> (Client, ApiClock) {
    let config = config::load(&options(kubeconfig)).await.unwrap();
    let clock = ApiClock::default();
    (transport::client(&config, Duration::from_secs(10), clock.clone()).unwrap(), clock)
}

fn options(kubeconfig: &Path) -> ClusterOptions {
    ClusterOptions { kubeconfig: Some(kubeconfig.into()), context: None, server: None }
}

/// The cluster's own calls block.
pub(crate) async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(call).await.unwrap()
}

pub(crate) fn slots(last: i32) -> SlotPoolSpec {
    SlotPoolSpec { slots: Some(SlotRange { first: 0, last }), ..SlotPoolSpec::default() }
}

pub(crate) fn is(pool: &SlotPool, condition: &str) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|found| found.type_ == condition && found.status == "True")
}

pub(crate) fn message(pool: &SlotPool, condition: &str) -> String {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .find(|found| found.type_ == condition)
        .map(|found| found.message.clone())
        .unwrap_or_default()
}

pub(crate) fn counts(pool: &SlotPool) -> (i32, i32, i32, i32) {
    let slots = pool.status.as_ref().unwrap().slots.unwrap();
    (slots.total, slots.held, slots.free, slots.cooling)
}

pub(crate) async fn within<T>(time: Duration, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(time, what).await.unwrap()
}
