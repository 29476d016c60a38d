//! A namespace with pods that may do anything to its Leases, as far as roles go: what stops them is the referee.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use cosid_kube::codec::{self, lease_name};
use cosid_kube::{ApiClock, ClusterOptions, config, transport};
use cosid_lease::{Millis, Owner, Record, Terms, algebra};
use cosid_tests::ground::{Ground, Space};
use cosid_tests::http::PATIENCE;
use cosid_tests::referee;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use tokio::runtime::Runtime;
use xtask::programs::until;

pub(crate) const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };

pub(crate) struct Court<'g> {
    pub(crate) space: Space<'g>,
    runtime: Runtime,
    admin: Client,
}

/// Somebody who writes Leases.
pub(crate) struct Caller {
    pub(crate) owner: Owner,
    /// Empty where it has no pod.
    pub(crate) uid: Option<String>,
    pub(crate) client: Client,
    pub(crate) clock: ApiClock,
    namespace: String,
}

impl Caller {
    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// What it would write to have a slot.
    pub(crate) fn acquisition(&self, lease: &Lease, now: Millis) -> Lease {
        self.encode(lease, &algebra::acquire(&record(lease), &self.owner, now, TERMS).unwrap())
    }

    /// What it would write to extend its lease.
    pub(crate) fn renewal(&self, lease: &Lease, now: Millis) -> Lease {
        let before = record(lease);
        self.encode(
            lease,
            &algebra::renew(&before, self.owner.incarnation, before.fence, now, TERMS).unwrap(),
        )
    }

    /// What it would write to give its lease back.
    pub(crate) fn release(&self, lease: &Lease, last_issued: Millis) -> Lease {
        let before = record(lease);
        let freed = algebra::release(&before, self.owner.incarnation, before.fence, last_issued).unwrap();
        self.encode(lease, &freed)
    }

    fn encode(&self, lease: &Lease, record: &Record) -> Lease {
        codec::encode(lease, record, 30, self.uid.as_deref()).unwrap()
    }
}

impl<'g> Court<'g> {
    pub(crate) fn new(ground: &'g Ground, namespace: &str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (admin, _) = runtime.block_on(connect(ground.cluster.kubeconfig()));
        let court = Self { space: ground.space(namespace), runtime, admin };
        let group = format!("--group=system:serviceaccounts:{namespace}");
        court.kubectl(&["create", "role", "all", "--verb=*", "--resource=leases"]).unwrap();
        court.kubectl(&["create", "rolebinding", "all", "--role=all", &group]).unwrap();
        court
    }

    /// Runs kubectl as the administrator, in the namespace.
    pub(crate) fn kubectl(&self, args: &[&str]) -> xtask::Result<String> {
        self.space.ground.cluster.kubectl(&[args, &["--namespace", &self.space.name]].concat())
    }

    /// A pod, with a token that is bound to it.
    pub(crate) fn pod(&self, name: &str) -> Caller {
        let token = self.space.token(name);
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), &self.space.name);
        let uid = self.block_on(pods.get(name)).unwrap().metadata.uid;
        self.caller(name, &token, uid)
    }

    /// A service account, with a token that is bound to no pod.
    pub(crate) fn account(&self, name: &str) -> Caller {
        self.kubectl(&["create", "serviceaccount", name]).unwrap();
        let token = self.space.ground.cluster.token(&self.space.name, name, None).unwrap();
        self.caller(name, &token, None)
    }

    pub(crate) fn controller(&self) -> Caller {
        let kubeconfig = referee::as_controller(&self.space.ground.cluster);
        self.with_kubeconfig("controller", &kubeconfig, None)
    }

    fn caller(&self, name: &str, token: &str, uid: Option<String>) -> Caller {
        let file = format!("{}-{name}", self.space.name);
        let kubeconfig = self.space.ground.cluster.kubeconfig_with_token(&file, token).unwrap();
        let caller = self.with_kubeconfig(name, &kubeconfig, uid);
        // The API server's authorizer learns of a binding by a watch of its own.
        let learnt = || {
            let created = self.block_on(caller.leases().create(&DRY_RUN, &unlabelled()));
            Ok(created.is_ok().then_some(()))
        };
        until(|| format!("{name} may not create Leases"), PATIENCE, learnt).unwrap();
        caller
    }

    fn with_kubeconfig(&self, name: &str, kubeconfig: &Path, uid: Option<String>) -> Caller {
        let (client, clock) = self.block_on(connect(kubeconfig));
        let owner = Owner::new(format!("{}/{name}", self.space.name));
        Caller { owner, uid, client, clock, namespace: self.space.name.clone() }
    }

    /// A slot's Lease as it is now.
    pub(crate) fn lease(&self, pool: &str, slot: u32) -> Lease {
        self.block_on(self.leases().get(&lease_name(pool, slot))).unwrap()
    }

    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.admin.clone(), &self.space.name)
    }

    /// Writes, and gives what is there then.
    pub(crate) fn write(&self, caller: &Caller, lease: &Lease) -> Lease {
        self.put(caller, lease).unwrap_or_else(|why| panic!("{}: {why}", caller.owner.key))
    }

    fn put(&self, caller: &Caller, lease: &Lease) -> kube::Result<Lease> {
        let name = lease.metadata.name.as_ref().unwrap();
        self.block_on(caller.leases().replace(name, &PostParams::default(), lease))
    }

    /// Writes what must be refused, and gives the status code and what was said. Nothing has changed then.
    pub(crate) fn refusal(&self, caller: &Caller, lease: &Lease) -> (u16, String) {
        let name = lease.metadata.name.as_ref().unwrap();
        let version = || self.block_on(self.leases().get(name)).unwrap().metadata.resource_version;
        let before = version();
        let refused = said(name, self.put(caller, lease));
        assert_eq!(version(), before, "{name}: {refused:?}");
        refused
    }

    pub(crate) fn refused_creation(&self, caller: &Caller, lease: &Lease) -> (u16, String) {
        said("a creation", self.block_on(caller.leases().create(&PostParams::default(), lease)))
    }

    pub(crate) fn refused_deletion(&self, caller: &Caller, name: &str) -> (u16, String) {
        said(name, self.block_on(caller.leases().delete(name, &DeleteParams::default())))
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

const DRY_RUN: PostParams = PostParams { dry_run: true, field_manager: None };

fn unlabelled() -> Lease {
    let metadata = kube::core::ObjectMeta { name: Some("of-somebody".into()), ..Default::default() };
    Lease { metadata, spec: None }
}

fn said<T: std::fmt::Debug>(what: &str, result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("{what} was not refused: {other:?}"),
    }
}

async fn connect(kubeconfig: &Path) -> (Client, ApiClock) {
    let options = ClusterOptions { kubeconfig: Some(kubeconfig.into()), context: None, server: None };
    let config = config::load(&options).await.unwrap();
    let clock = ApiClock::default();
    (transport::client(&config, PATIENCE, clock.clone()).unwrap(), clock)
}

/// Unix ms.
pub(crate) fn now() -> Millis {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

pub(crate) fn record(lease: &Lease) -> Record {
    codec::read(lease).unwrap().unwrap()
}

/// A time that a Lease holds.
pub(crate) fn time(lease: &Lease, annotation: &str) -> i64 {
    lease.metadata.annotations.as_ref().unwrap()[annotation].parse().unwrap()
}

/// A Lease whose fence has moved by this more.
pub(crate) fn fence(lease: Lease, by: i32) -> Lease {
    lease.spec(|spec| spec.lease_transitions = spec.lease_transitions.map(|fence| fence + by))
}

/// A Lease, spoilt.
pub(crate) trait Spoil: Sized {
    fn with(self, annotation: &str, value: impl ToString) -> Self;
    fn without(self, annotation: &str) -> Self;
    fn spec(self, change: impl FnOnce(&mut LeaseSpec)) -> Self;
    fn metadata(self, change: impl FnOnce(&mut kube::core::ObjectMeta)) -> Self;
}

impl Spoil for Lease {
    fn with(self, annotation: &str, value: impl ToString) -> Self {
        let value = value.to_string();
        self.metadata(|metadata| {
            metadata.annotations.get_or_insert_default().insert(annotation.into(), value);
        })
    }

    fn without(self, annotation: &str) -> Self {
        self.metadata(|metadata| {
            metadata.annotations.get_or_insert_default().remove(annotation);
        })
    }

    fn spec(mut self, change: impl FnOnce(&mut LeaseSpec)) -> Self {
        change(self.spec.get_or_insert_default());
        self
    }

    fn metadata(mut self, change: impl FnOnce(&mut kube::core::ObjectMeta)) -> Self {
        change(&mut self.metadata);
        self
    }
}
