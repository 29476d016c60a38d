//! The Kubernetes slot store on a real API server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only #[test] functions for tests, not their fixtures"
)]

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use cosid_kube::codec::{self, FINALIZER, SlotLease, lease_name};
use cosid_kube::pool::{PoolLayout, SlotPoolStatus, SlotRange, Watermark, crd_yaml};
use cosid_kube::{
    ApiClock, ClusterOptions, KubeStore, LeaseVersion, SlotPool, SlotPoolSpec, config, find_pool, transport,
};
use cosid_lease::conformance::{self, CASES, Fixture, PoolSpec};
use cosid_lease::{Owner, Record, SlotState, SlotStore as _, StoreError, Terms, algebra};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use xtask::cluster::{Cluster, Options};

/// One control plane for all tests here; each has a namespace of its own.
static CLUSTER: LazyLock<Cluster> = LazyLock::new(start);

/// Another one, whose API server goes away at times: for one test alone.
static UNSTEADY: LazyLock<Cluster> = LazyLock::new(start);

fn start() -> Cluster {
    let cluster = Cluster::start(Options::default()).unwrap();
    let file = cluster.kubeconfig().with_file_name("crd.yaml");
    std::fs::write(&file, crd_yaml().unwrap()).unwrap();
    let said =
        cluster.kubectl(&["apply", "--warnings-as-errors", "--filename", file.to_str().unwrap()]).unwrap();
    assert!(said.contains("created"), "{said}");
    cluster.kubectl(&["wait", "--for=condition=Established", "crd/slotpools.cosid.dev"]).unwrap();
    cluster
}

const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };

/// A namespace, and the administrator's way to it.
struct Bench {
    cluster: &'static Cluster,
    namespace: String,
    client: Client,
    clock: ApiClock,
}

impl Bench {
    async fn new(namespace: &str) -> Self {
        Self::on(&CLUSTER, namespace).await
    }

    async fn on(cluster: &'static LazyLock<Cluster>, namespace: &str) -> Self {
        let cluster: &Cluster = tokio::task::spawn_blocking(|| &**cluster).await.unwrap();
        let (client, clock) = connect(cluster.kubeconfig()).await;
        let name = Namespace { metadata: named(namespace), ..Namespace::default() };
        Api::all(client.clone()).create(&PostParams::default(), &name).await.unwrap();
        Self { cluster, namespace: namespace.into(), client, clock }
    }

    /// A pool, made and opened as its controller does.
    async fn pool(&self, name: &str, spec: SlotPoolSpec) -> SlotPool {
        let pools = self.pools();
        let range = spec.slots.unwrap();
        pools.create(&PostParams::default(), &SlotPool::new(name, spec)).await.unwrap();
        let watermark = Some(Watermark { next_floor: 0, fence: 0 });
        let status = SlotPoolStatus { watermark, ..SlotPoolStatus::default() };
        let status = serde_json::json!({ "status": status });
        let patch = Patch::Merge(&status);
        let pool = pools.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        for slot in range.first..=range.last {
            self.slot(&pool, slot.try_into().unwrap()).await;
        }
        pool
    }

    async fn slot(&self, pool: &SlotPool, slot: u32) {
        let made = self.leases().create(&PostParams::default(), &codec::new_lease(pool, slot)).await.unwrap();
        let watermark = pool.status.as_ref().unwrap().watermark.unwrap();
        let opened = codec::open(&made, watermark, pool.spec.ttl_seconds).unwrap();
        let name = lease_name(pool.metadata.name.as_ref().unwrap(), slot);
        self.leases().replace(&name, &PostParams::default(), &opened).await.unwrap();
    }

    fn pools(&self) -> Api<SlotPool> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn store(&self, pool: &str) -> KubeStore {
        KubeStore::new(self.client.clone(), self.clock.clone(), &self.namespace, pool, None)
    }

    /// Somebody with these rules in the namespace and no others.
    async fn subject(&self, name: &str, rules: &[[&str; 2]]) -> (Client, ApiClock) {
        let cluster = self.cluster;
        let (namespace, name, rules) = (self.namespace.clone(), name.to_owned(), rules.to_vec());
        let rules: Vec<_> = rules.iter().map(|rule| rule.map(str::to_owned)).collect();
        let kubeconfig = tokio::task::spawn_blocking(move || {
            let kubectl =
                |args: &[&str]| cluster.kubectl(&[args, &["--namespace", &namespace]].concat()).unwrap();
            kubectl(&["create", "serviceaccount", &name]);
            for (index, [verbs, resource]) in rules.iter().enumerate() {
                let role = format!("{name}-{index}");
                kubectl(&["create", "role", &role, "--verb", verbs, "--resource", resource]);
                let account = format!("--serviceaccount={namespace}:{name}");
                kubectl(&["create", "rolebinding", &role, "--role", &role, &account]);
            }
            let token = cluster.token(&namespace, &name, None).unwrap();
            cluster.kubeconfig_with_token(&format!("{namespace}-{name}"), &token).unwrap()
        });
        connect(&kubeconfig.await.unwrap()).await
    }
}

const DEADLINE: Duration = Duration::from_secs(5);

async fn connect(kubeconfig: &Path) -> (Client, ApiClock) {
    let options = ClusterOptions { kubeconfig: Some(kubeconfig.into()), context: None, server: None };
    let config = config::load(&options).await.unwrap();
    let clock = ApiClock::default();
    (transport::client(&config, DEADLINE, clock.clone()).unwrap(), clock)
}

fn named(name: &str) -> kube::core::ObjectMeta {
    kube::core::ObjectMeta { name: Some(name.into()), ..Default::default() }
}

fn slots(first: i32, last: i32) -> SlotPoolSpec {
    SlotPoolSpec { slots: Some(SlotRange { first, last }), ..SlotPoolSpec::default() }
}

/// Loads, and acquires the first slot.
async fn acquire(store: &KubeStore, owner: &Owner) -> (LeaseVersion, Record) {
    let view = store.load().await.unwrap();
    let entry = &view.entries[0];
    let now = store.now().unwrap().earliest;
    let record = algebra::acquire(entry.state.record().unwrap(), owner, now, view.pool.terms).unwrap();
    (store.write(entry.slot, &entry.version, &record).await.unwrap(), record)
}

impl Fixture for Bench {
    type Store = KubeStore;

    async fn pool(&self, spec: &PoolSpec) -> Result<KubeStore, String> {
        let PoolSpec { name, bits, first, last, terms } = spec;
        let number = |number: u64| i32::try_from(number).map_err(|error| error.to_string());
        let spec = SlotPoolSpec {
            bits: i32::from(*bits),
            ttl_seconds: number(terms.ttl / 1000)?,
            tolerance_milliseconds: number(terms.tolerance)?,
            ..slots(number((*first).into())?, number((*last).into())?)
        };
        Bench::pool(self, name, spec).await;
        Ok(self.store(name))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_passes_every_case_of_the_suite() {
    let passed = match conformance::run(&Bench::new("suite").await).await {
        Ok(passed) => passed,
        Err(failure) => panic!("{failure}"),
    };
    assert_eq!(passed, CASES);
}

#[tokio::test]
async fn a_record_comes_back_from_the_api_server_as_it_was_written() {
    let bench = Bench::new("codec").await;
    bench.pool("orders", slots(0, 0)).await;
    let store = bench.store("orders");
    let owner = Owner::new("codec/web-0");
    let (written, record) = acquire(&store, &owner).await;
    let read = store.read(0).await.unwrap().unwrap();
    assert_eq!(read.state, SlotState::Open(record.clone()));
    let resource_version = |version: &LeaseVersion| version.lease().unwrap().metadata.resource_version;
    assert_eq!(resource_version(&read.version), resource_version(&written));
    assert_eq!(
        read.version.lease().unwrap().metadata.finalizers.as_deref(),
        Some([FINALIZER.to_owned()].as_slice())
    );
    let released = algebra::release(&record, owner.incarnation, record.fence, 0).unwrap();
    store.write(0, &written, &released).await.unwrap();
    assert_eq!(store.read(0).await.unwrap().unwrap().state, SlotState::Open(released));
    // The managed fields that are not sent back are still there.
    let lease = bench.leases().get("orders-0").await.unwrap();
    assert!(!lease.metadata.managed_fields.unwrap().is_empty());
}

#[tokio::test]
async fn a_write_on_a_stale_version_is_a_conflict() {
    let bench = Bench::new("stale").await;
    bench.pool("orders", slots(0, 0)).await;
    let store = bench.store("orders");
    let stale = store.load().await.unwrap().entries.remove(0);
    let (_, record) = acquire(&store, &Owner::new("a")).await;
    assert_eq!(store.write(0, &stale.version, &record).await.unwrap_err(), StoreError::Conflict);
}

#[tokio::test]
async fn a_deleted_lease_is_not_brought_back_by_its_holder() {
    let bench = Bench::new("deleted").await;
    let pool = bench.pool("orders", slots(0, 0)).await;
    let agent = bench.subject("agent", &[["get,list,update", "leases"], ["get,list", "slotpools"]]).await;
    let agent = KubeStore::new(agent.0, agent.1, "deleted", "orders", None);
    let owner = Owner::new("a");
    let (version, record) = acquire(&agent, &owner).await;

    bench.leases().delete("orders-0", &DeleteParams::default()).await.unwrap();
    assert_eq!(agent.read(0).await.unwrap().unwrap().state, SlotState::Deleting);
    let gone = serde_json::json!({ "metadata": { "finalizers": null } });
    bench.leases().patch("orders-0", &PatchParams::default(), &Patch::Merge(&gone)).await.unwrap();
    assert!(agent.read(0).await.unwrap().is_none());

    let admin = bench.store("orders");
    admin.load().await.unwrap();
    for store in [&agent, &admin] {
        assert_eq!(store.write(0, &version, &record).await.unwrap_err(), StoreError::Conflict);
        assert!(bench.leases().get_opt("orders-0").await.unwrap().is_none());
    }
    // Another Lease of the same name is not the one that was read.
    bench.slot(&pool, 0).await;
    for store in [&agent, &admin] {
        assert_eq!(store.write(0, &version, &record).await.unwrap_err(), StoreError::Conflict);
    }
    assert_eq!(agent.read(0).await.unwrap().unwrap().state, SlotState::Open(Record::open(0, 0)));
}

#[tokio::test]
async fn a_lease_with_another_uid_at_the_same_version_is_a_conflict() {
    let bench = Bench::new("uid").await;
    bench.pool("orders", slots(0, 0)).await;
    let store = bench.store("orders");
    let (version, record) = acquire(&store, &Owner::new("a")).await;
    let mut other = version.lease().unwrap();
    other.metadata.uid = Some("00000000-0000-4000-8000-000000000000".into());
    let refused = store
        .write(0, &LeaseVersion::from_json(serde_json::to_vec(&other).unwrap()), &record)
        .await
        .unwrap_err();
    assert_eq!(refused, StoreError::Conflict);
}

#[tokio::test]
async fn one_corrupt_lease_leaves_the_others() {
    let bench = Bench::new("corrupt").await;
    bench.pool("orders", slots(0, 2)).await;
    let spoil = serde_json::json!({
        "metadata": { "annotations": { codec::NEXT_FLOOR: "soon" } },
        // Later than any time that can be read.
        "spec": { "renewTime": "9999-12-31T23:59:59.999999Z" },
    });
    let leases: Api<SlotLease> = Api::namespaced(bench.client.clone(), "corrupt");
    leases.patch("orders-1", &PatchParams::default(), &Patch::Merge(&spoil)).await.unwrap();
    let view = bench.store("orders").load().await.unwrap();
    let states: Vec<_> = view.entries.iter().map(|entry| (entry.slot, &entry.state)).collect();
    let open = SlotState::Open(Record::open(0, 0));
    assert_eq!((states[0], states[2]), ((0, &open), (2, &open)));
    assert!(matches!(states[1], (1, SlotState::Corrupt(_))), "{:?}", states[1]);
    assert_eq!(leases.list(&ListParams::default()).await.unwrap().items.len(), 3);
}

#[tokio::test]
async fn what_is_missing_is_named_with_the_next_step() {
    let bench = Bench::new("missing").await;
    let nothing = bench.store("nothing").load().await.unwrap_err();
    assert_eq!(nothing, StoreError::NoPool { pool: "missing/nothing".into() });

    let (client, clock) = bench.subject("stranger", &[]).await;
    let StoreError::Denied(why) =
        KubeStore::new(client, clock, "missing", "orders", None).load().await.unwrap_err()
    else {
        panic!("a stranger is denied")
    };
    assert!(why.starts_with("no SlotPool orders can be read in namespace missing: make it"), "{why}");
    assert!(
        why.contains("system:serviceaccount:missing:stranger") && why.contains("allowedNamespaces"),
        "{why}"
    );

    let kubeconfig = CLUSTER.kubeconfig_with_token("missing-nobody", "not-a-token").unwrap();
    let (client, clock) = connect(&kubeconfig).await;
    let unknown = KubeStore::new(client, clock, "missing", "orders", None).load().await.unwrap_err();
    assert!(
        matches!(&unknown, StoreError::Denied(why) if why.contains("does not know this caller")),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn a_pool_is_found_by_name_alone_or_as_the_default() {
    let bench = Bench::new("find").await;
    let find = async |reference| match find_pool(&bench.client, "find", reference).await {
        Ok(found) => found.to_string(),
        Err(error) => error.to_string(),
    };
    assert!(find(None).await.contains("there is no pool in namespace find"));
    bench.pool("orders", slots(0, 0)).await;
    assert_eq!(find(None).await, "find/orders");
    bench.pool("invoices", slots(0, 0)).await;
    assert!(find(None).await.ends_with("name one of invoices, orders"));
    bench.pool("default", slots(0, 0)).await;
    assert_eq!(find(None).await, "find/default");
    assert_eq!(find(Some("elsewhere/orders")).await, "elsewhere/orders");
}

#[tokio::test]
async fn an_acquisition_is_three_calls_and_a_renewal_one() {
    let bench = Bench::new("calls").await;
    bench.pool("orders", slots(0, 3)).await;
    let rights = [["get,list,update", "leases"], ["get,list", "slotpools"]];
    let (client, clock) = bench.subject("counted", &rights).await;
    let store = KubeStore::new(client, clock, "calls", "orders", None);
    let owner = Owner::new("a");
    let (version, record) = acquire(&store, &owner).await;
    assert_eq!(calls("counted"), ["get slotpools", "list leases", "update leases"]);
    let renewed =
        algebra::renew(&record, owner.incarnation, record.fence, store.now().unwrap().earliest, TERMS)
            .unwrap();
    store.write(0, &version, &renewed).await.unwrap();
    assert_eq!(calls("counted").len(), 4);
}

/// What the API server was asked by this service account, in the order of the words.
fn calls(account: &str) -> Vec<String> {
    let log = std::fs::read_to_string(CLUSTER.audit_log()).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mine = events.filter(|event| {
        event["user"]["username"].as_str().is_some_and(|name| name.ends_with(&format!(":{account}")))
    });
    let word = |value: &serde_json::Value| value.as_str().unwrap_or("").to_owned();
    let mut calls: Vec<_> = mine
        .map(|event| format!("{} {}", word(&event["verb"]), word(&event["objectRef"]["resource"])))
        .collect();
    calls.sort();
    calls
}

#[tokio::test]
async fn the_crd_fills_in_the_defaults_that_this_version_has() {
    let bench = Bench::new("defaults").await;
    let empty = serde_json::json!({
        "apiVersion": "cosid.dev/v1", "kind": "SlotPool", "metadata": { "name": "orders" }, "spec": {},
    });
    let request = kube::core::Request::new(<SlotPool as kube::Resource>::url_path(&(), Some("defaults")));
    let request = request.create(&PostParams::default(), empty.to_string().into_bytes()).unwrap();
    let made: serde_json::Value = bench.client.request(request).await.unwrap();
    assert_eq!(made["spec"], serde_json::to_value(SlotPoolSpec::default()).unwrap());
}

#[tokio::test]
async fn the_api_server_refuses_a_pool_that_could_not_work() {
    let bench = Bench::new("bad-pools").await;
    let refused = async |spec: SlotPoolSpec| {
        let made = bench.pools().create(&PostParams::default(), &SlotPool::new("bad", spec)).await;
        match made.unwrap_err() {
            kube::Error::Api(status) => status.message,
            other => panic!("{other}"),
        }
    };
    let spec = SlotPoolSpec::default;
    let layout = |layout: PoolLayout| SlotPoolSpec { layout, ..spec() };
    assert!(refused(SlotPoolSpec { bits: 0, ..spec() }).await.contains("spec.bits"));
    assert!(refused(SlotPoolSpec { bits: 21, ..spec() }).await.contains("spec.bits"));
    assert!(refused(SlotPoolSpec { bits: 12, ..spec() }).await.contains("at most 63"));
    assert!(refused(slots(0, 1024)).await.contains("below 2^bits"));
    assert!(refused(slots(3, 2)).await.contains("first must not be above last"));
    assert!(refused(SlotPoolSpec { reserved: vec![1024], ..spec() }).await.contains("below 2^bits"));
    assert!(
        refused(SlotPoolSpec { reserved: vec![5], ..slots(6, 9) }).await.contains("in the range of slots")
    );
    assert!(refused(SlotPoolSpec { reserved: vec![5, 5], ..spec() }).await.contains("Duplicate"));
    assert!(refused(SlotPoolSpec { ttl_seconds: 2, ..spec() }).await.contains("spec.ttlSeconds"));
    assert!(refused(SlotPoolSpec { ttl_seconds: 1801, ..spec() }).await.contains("spec.ttlSeconds"));
    let tolerance = SlotPoolSpec { tolerance_milliseconds: 60_001, ..spec() };
    assert!(refused(tolerance).await.contains("spec.toleranceMilliseconds"));
    assert!(refused(SlotPoolSpec { not_before: Some("soon".into()), ..spec() }).await.contains("date-time"));
    let allowed = SlotPoolSpec { allowed_namespaces: vec!["Not one".into()], ..spec() };
    assert!(refused(allowed).await.contains("spec.allowedNamespaces[0]"));
    let unit = PoolLayout { unit_milliseconds: 7, epoch: 0, ..PoolLayout::default() };
    assert!(refused(layout(unit)).await.contains("must be 1, 10 or 1000"));
    let epoch = PoolLayout { unit_milliseconds: 1000, epoch: 1, ..PoolLayout::default() };
    assert!(refused(layout(epoch)).await.contains("whole number of units"));
    for (unit_milliseconds, timestamp_bits) in [(1, 34), (10, 31), (1000, 24)] {
        let short = PoolLayout { timestamp_bits, unit_milliseconds, epoch: 0, ..PoolLayout::default() };
        assert!(refused(layout(short)).await.contains("used up within a year"), "{unit_milliseconds} ms");
        let long = PoolLayout { timestamp_bits: timestamp_bits + 1, ..short };
        let long = SlotPool::new(&format!("of-{unit_milliseconds}"), layout(long));
        bench.pools().create(&PostParams::default(), &long).await.unwrap();
    }
    let long = SlotPool::new(&"a".repeat(64), spec());
    let long = bench.pools().create(&PostParams::default(), &long).await.unwrap_err().to_string();
    assert!(long.contains("longer than 63 characters"), "{long}");
}

#[tokio::test]
async fn the_api_server_keeps_what_a_pool_may_never_change() {
    let bench = Bench::new("fixed").await;
    bench.pool("orders", slots(0, 0)).await;
    let pools = bench.pools();
    let patch = async |patch: serde_json::Value| {
        let patch = Patch::Merge(patch);
        pools.patch("orders", &PatchParams::default(), &patch).await.map_err(|error| error.to_string())
    };
    let refused =
        async |spec: serde_json::Value| patch(serde_json::json!({ "spec": spec })).await.unwrap_err();
    assert!(refused(serde_json::json!({ "bits": 9 })).await.contains("bits never change"));
    let tolerance = serde_json::json!({ "toleranceMilliseconds": 5 });
    assert!(refused(tolerance).await.contains("toleranceMilliseconds never changes"));
    assert!(refused(serde_json::json!({ "layout": { "epoch": 0 } })).await.contains("layout never changes"));
    let order = serde_json::json!({ "layout": { "order": "timestamp-sequence-slot" } });
    assert!(refused(order).await.contains("layout never changes"));
    let unknown = serde_json::json!({ "layout": { "order": "sequence-first" } });
    assert!(refused(unknown).await.contains("Unsupported value: \"sequence-first\""));
    patch(serde_json::json!({ "spec": { "ttlSeconds": 60, "slots": null } })).await.unwrap();

    let status = async |watermark: serde_json::Value| {
        let patch = Patch::Merge(serde_json::json!({ "status": { "watermark": watermark } }));
        let patched = pools.patch_status("orders", &PatchParams::default(), &patch).await;
        patched.map(|_| ()).map_err(|error| error.to_string())
    };
    status(serde_json::json!({ "nextFloor": 10, "fence": 2 })).await.unwrap();
    let lower = status(serde_json::json!({ "nextFloor": 9, "fence": 2 })).await.unwrap_err();
    assert!(lower.contains("only grows"), "{lower}");
    let none = status(serde_json::Value::Null).await.unwrap_err();
    assert!(none.contains("can't be taken away"), "{none}");
}

#[tokio::test]
async fn a_token_that_was_replaced_is_read_again_within_the_call() {
    let bench = Bench::new("token").await;
    bench.pool("orders", slots(0, 0)).await;
    let admin = ClusterOptions { kubeconfig: Some(CLUSTER.kubeconfig().into()), context: None, server: None };
    let admin = config::load(&admin).await.unwrap();
    let file = CLUSTER.kubeconfig().with_file_name("token-of-agent");
    std::fs::write(&file, "expired").unwrap();
    let mut config = kube::Config::new(admin.cluster_url);
    config.root_cert = admin.root_cert;
    config.auth_info.token_file = Some(file.to_str().unwrap().to_owned());
    let clock = ApiClock::default();
    let client = transport::client(&config, DEADLINE, clock.clone()).unwrap();
    let store = KubeStore::new(client, clock, "token", "orders", None);
    assert!(matches!(store.load().await.unwrap_err(), StoreError::Denied(_)));

    bench.subject("agent", &[["get,list,update", "leases"], ["get,list", "slotpools"]]).await;
    let token = tokio::task::spawn_blocking(|| CLUSTER.token("token", "agent", None)).await.unwrap().unwrap();
    std::fs::write(&file, token).unwrap();
    assert_eq!(store.load().await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn an_api_server_that_goes_away_is_no_answer_and_is_found_again() {
    let bench = Bench::on(&UNSTEADY, "away").await;
    bench.pool("orders", slots(0, 0)).await;
    let store = bench.store("orders");
    let owner = Owner::new("a");
    let (version, record) = acquire(&store, &owner).await;
    let cluster = bench.cluster;
    let blocking = async |work: fn(&Cluster) -> xtask::Result<()>| {
        tokio::task::spawn_blocking(move || work(cluster)).await.unwrap().unwrap();
    };

    blocking(Cluster::pause_apiserver).await;
    let StoreError::Unknown(why) = store.write(0, &version, &record).await.unwrap_err() else {
        panic!("a write without an answer may have been done")
    };
    assert!(why.contains("no answer from the API server within 5000 ms"), "{why}");
    blocking(Cluster::resume_apiserver).await;
    // Nothing waits on the connection that hung.
    assert!(store.read(0).await.unwrap().is_some());

    blocking(Cluster::kill_apiserver).await;
    let StoreError::Unknown(why) = store.load().await.unwrap_err() else { panic!("nobody is there") };
    assert!(why.contains("can't be reached"), "{why}");
    blocking(Cluster::start_apiserver).await;
    assert_eq!(store.load().await.unwrap().entries.len(), 1);
}
