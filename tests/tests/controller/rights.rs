use cosid_kube::{ApiClock, SlotPoolSpec};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::bench::{Bench, LONG, SHOP, SYSTEM, blocking, connect, slots, within};

/// A service account of a namespace.
async fn account(bench: &Bench, namespace: &'static str) -> (Client, ApiClock) {
    let cluster = std::sync::Arc::clone(&bench.cluster);
    let kubeconfig = blocking(move || {
        cluster.kubectl(&["create", "serviceaccount", "agent", "--namespace", namespace]).unwrap();
        let token = cluster.token(namespace, "agent", None).unwrap();
        cluster.kubeconfig_with_token(namespace, &token).unwrap()
    });
    connect(&kubeconfig.await).await
}

async fn namespace(bench: &Bench, name: &'static str) {
    let cluster = std::sync::Arc::clone(&bench.cluster);
    blocking(move || cluster.kubectl(&["create", "namespace", name]).unwrap()).await;
}

fn is_refused<T: std::fmt::Debug>(result: kube::Result<T>) -> bool {
    matches!(&result, Err(kube::Error::Api(status)) if status.code == 403)
        || panic!("{result:?} is no refusal")
}

/// The API server's authorizer learns of a binding by a watch of its own, which nobody else can follow.
async fn once_allowed(leases: &Api<Lease>, name: &str) -> Lease {
    within(LONG, async {
        loop {
            if let Ok(lease) = leases.get(name).await {
                return lease;
            }
        }
    })
    .await
}

async fn until_refused(leases: &Api<Lease>, name: &str) {
    within(LONG, async { while leases.get(name).await.is_ok() {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn allowed_namespaces_use_the_pools_leases_and_nothing_else() {
    let bench = Bench::new().await;
    namespace(&bench, "guest").await;
    namespace(&bench, "stranger").await;
    let controller = bench.controller();
    bench.ready("orders", SlotPoolSpec { allowed_namespaces: vec!["guest".into()], ..slots(3) }).await;
    let other = Lease { metadata: json_metadata("leader-of-somebody"), spec: None };
    bench.leases().create(&PostParams::default(), &other).await.unwrap();

    for namespace in [SHOP, "guest"] {
        let (client, _) = account(&bench, namespace).await;
        let leases: Api<Lease> = Api::namespaced(client, SHOP);
        let mut lease = once_allowed(&leases, "orders-0").await;
        assert!(leases.list(&ListParams::default()).await.unwrap().items.len() >= 5);
        lease.labels_mut().insert("seen-by".into(), namespace.into());
        leases.replace("orders-0", &PostParams::default(), &lease).await.unwrap();
        let params = PatchParams::default();
        assert!(is_refused(leases.patch("orders-0", &params, &Patch::Merge(&json!({}))).await));
        assert!(is_refused(leases.create(&PostParams::default(), &other).await));
        assert!(is_refused(leases.delete("orders-0", &DeleteParams::default()).await));
        assert!(is_refused(leases.get("leader-of-somebody").await));
        let mut foreign = bench.leases().get("leader-of-somebody").await.unwrap();
        foreign.labels_mut().insert("seen-by".into(), namespace.into());
        assert!(is_refused(leases.replace("leader-of-somebody", &PostParams::default(), &foreign).await));
    }
    let (client, _) = account(&bench, "stranger").await;
    let leases: Api<Lease> = Api::namespaced(client, SHOP);
    assert!(is_refused(leases.get("orders-0").await));
    assert!(is_refused(leases.list(&ListParams::default()).await));

    // What the pool says is what holds.
    let allow = |namespaces: &[&str]| json!({ "spec": { "allowedNamespaces": namespaces } });
    let patch = |patch: serde_json::Value| {
        let pools = bench.pools();
        async move { pools.patch("orders", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap() }
    };
    patch(allow(&["*"])).await;
    once_allowed(&leases, "orders-0").await;
    patch(allow(&[])).await;
    until_refused(&leases, "orders-0").await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_own_rights_are_enough_for_all_it_does() {
    let bench = Bench::new().await;
    let cluster = std::sync::Arc::clone(&bench.cluster);
    let roles = [
        serde_json::to_string(&cosid_controller::cluster_role()).unwrap(),
        serde_json::to_string(&cosid_controller::own_role(SYSTEM)).unwrap(),
    ];
    let kubeconfig = blocking(move || {
        let system = ["--namespace", SYSTEM];
        let kubectl = |args: &[&str]| cluster.kubectl(&[args, &system].concat()).unwrap();
        for (number, role) in roles.iter().enumerate() {
            let file = cluster.kubeconfig().with_file_name(format!("role-{number}.json"));
            std::fs::write(&file, role).unwrap();
            kubectl(&["apply", "--filename", file.to_str().unwrap()]);
        }
        kubectl(&["create", "serviceaccount", "controller"]);
        let account = "--serviceaccount=cosid-system:controller";
        kubectl(&["create", "clusterrolebinding", "controller", "--clusterrole=cosid-controller", account]);
        kubectl(&["create", "rolebinding", "controller", "--role=cosid-controller", account]);
        let token = cluster.token(SYSTEM, "controller", None).unwrap();
        cluster.kubeconfig_with_token("controller", &token).unwrap()
    });
    let mut settings = bench.settings("limited");
    settings.cluster.kubeconfig = Some(kubeconfig.await);
    let controller = bench.controller_as(settings);
    bench.ready("orders", SlotPoolSpec { allowed_namespaces: vec!["*".into()], ..slots(3) }).await;
    bench.event("Ready").await;
    bench.leases().delete("orders-0", &DeleteParams::default()).await.unwrap();
    bench.delete_pool("orders").await;
    bench.pool_gone("orders").await;
    bench.ready("orders", slots(3)).await;
    controller.stop().await;
}

fn json_metadata(name: &str) -> kube::core::ObjectMeta {
    kube::core::ObjectMeta { name: Some(name.into()), ..Default::default() }
}
