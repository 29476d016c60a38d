//! What the webhook does to pods.

use std::sync::Arc;

use cosid_kube::pool::SlotRange;
use cosid_kube::{SlotPool, SlotPoolSpec};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::ground::{Ground, SHOP, auto, blocking, is_injected, pod, refusal, space};

#[tokio::test(flavor = "multi_thread")]
async fn annotated_pods_are_injected_and_pass_the_strictest_namespace_and_its_quota() {
    let ground = Ground::new().await;
    let controller = ground.controller("first", &[]).await;
    ground.register(&controller.address, "Fail").await;

    let cluster = Arc::clone(&ground.cluster);
    blocking(move || {
        space(&cluster, "strict");
        let label = "pod-security.kubernetes.io/enforce=restricted";
        cluster.kubectl(&["label", "namespace", "strict", label]).unwrap();
        let hard = "--hard=requests.cpu=1,requests.memory=1Gi,limits.cpu=2,limits.memory=1Gi,pods=10";
        cluster.kubectl(&["create", "quota", "all", hard, "--namespace", "strict"]).unwrap();
        // What the controller manager would count.
        let patch = json!({ "status": {
            "hard": { "requests.cpu": "1", "requests.memory": "1Gi", "limits.cpu": "2", "limits.memory": "1Gi", "pods": "10" },
            "used": { "requests.cpu": "0", "requests.memory": "0", "limits.cpu": "0", "limits.memory": "0", "pods": "0" },
        }});
        let (patch, space) = (patch.to_string(), ["--namespace", "strict", "--subresource", "status"]);
        cluster.kubectl(&[&["patch", "quota", "all", "--type=merge", "--patch", &patch], &space[..]].concat()).unwrap();
    })
    .await;
    let made = ground.make_pod("strict", &auto()).await.unwrap();
    assert!(is_injected(&made), "{made:?}");
    let spec = made.spec.unwrap();
    let mounts = |container: &k8s_openapi::api::core::v1::Container| {
        let mounts = container.volume_mounts.as_ref().unwrap().iter();
        mounts.map(|mount| (mount.name.clone(), mount.mount_path.clone())).collect::<Vec<_>>()
    };
    // No token but its own, and nobody else has that.
    let place = "/var/run/secrets/kubernetes.io/serviceaccount".to_owned();
    let agent = mounts(&spec.init_containers.as_ref().unwrap()[0]);
    assert_eq!(agent, [("cosid".into(), "/run/cosid".into()), ("cosid-token".into(), place.clone())]);
    let app = mounts(&spec.containers[0]);
    assert!(app.iter().any(|(name, path)| name.starts_with("kube-api-access-") && *path == place), "{app:?}");
    assert!(app.iter().all(|(name, _)| name != "cosid-token"));
    assert!(made.metadata.annotations.unwrap()["cosid/status"].starts_with("injected; version "));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_wrongly_is_refused_and_who_does_not_ask_needs_no_webhook() {
    let ground = Ground::new().await;
    let mut controller = ground.controller("first", &[]).await;
    ground.register(&controller.address, "Fail").await;

    let why = refusal(ground.try_pod(&pod(&[("cosid/slot", "first")])).await);
    assert!(
        why.contains("annotation cosid/slot: \"first\" is not one of: auto, ordinal, prefer:ordinal, "),
        "{why}"
    );
    let why = refusal(ground.try_pod(&pod(&[("cosid/slot", "auto"), ("cosid/slots", "1")])).await);
    assert!(why.contains("annotation cosid/slots is not known; there are: cosid/slot, "), "{why}");

    blocking(move || controller.program.kill().unwrap()).await;
    // Those who ask now have nobody to answer; nobody else notices.
    let why = refusal(ground.try_pod(&auto()).await);
    assert!(why.contains("failed calling webhook \"inject.cosid.dev\""), "{why}");
    assert!(!is_injected(&ground.make_pod(SHOP, &pod(&[])).await.unwrap()));
    for namespace in ["kube-system", "cosid-system"] {
        let account = ["create", "serviceaccount", "default", "--namespace", namespace];
        let cluster = Arc::clone(&ground.cluster);
        // It is there already in one of them.
        let _ = blocking(move || cluster.kubectl(&account)).await;
        assert!(!is_injected(&ground.make_pod(namespace, &auto()).await.unwrap()), "{namespace}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_herd_of_new_pods_is_sent_to_different_free_slots() {
    let ground = Ground::new().await;
    let controller = ground.controller("first", &[]).await;
    ground.register(&controller.address, "Fail").await;
    let pools: Api<SlotPool> = Api::namespaced(ground.client.clone(), SHOP);
    let spec = SlotPoolSpec { slots: Some(SlotRange { first: 0, last: 9 }), ..SlotPoolSpec::default() };
    pools.create(&PostParams::default(), &SlotPool::new("orders", spec)).await.unwrap();
    let is_ready = |pool: Option<&SlotPool>| {
        let status = pool.and_then(|pool| pool.status.as_ref());
        status.and_then(|status| status.slots).is_some_and(|slots| slots.free == 10)
    };
    ground.wait(pools, "orders", is_ready).await;

    let mut slots = Vec::new();
    for _ in 0..10 {
        let made = ground.make_pod(SHOP, &auto()).await.unwrap();
        let env = made.spec.unwrap().init_containers.unwrap().remove(0).env.unwrap();
        slots.extend(env.into_iter().find(|variable| variable.name == "COSID_SLOT").unwrap().value);
    }
    slots.sort();
    let expected: Vec<String> = (0..10).map(|slot| format!("prefer:{slot}")).collect();
    assert_eq!(slots, expected);
    // More pods than slots: they find one by themselves.
    let made = ground.make_pod(SHOP, &auto()).await.unwrap();
    let env = made.spec.unwrap().init_containers.unwrap().remove(0).env.unwrap();
    assert!(env.iter().any(|variable| variable.value.as_deref() == Some("auto")), "{env:?}");
}
