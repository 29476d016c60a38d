//! The webhook and the policies do the same.

use cosid_controller::inject::Agent;
use cosid_controller::inject::policy::{Defaults, policies};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::ground::{Ground, SYSTEM, auto, pod, refusal};

/// A pod, changed.
fn with(annotations: &[(&str, &str)], change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = pod(annotations);
    change(&mut pod);
    pod
}

fn plain(name: &str) -> Value {
    json!({ "name": name, "image": "x:1" })
}

fn good() -> Vec<Value> {
    const AUTO: (&str, &str) = ("cosid/slot", "auto");
    vec![
        auto(),
        pod(&[("cosid/slot", "prefer:17"), ("cosid/pool", "other/orders"), ("a", "b")]),
        with(&[("cosid/slot", "prefer:ordinal")], |pod| {
            pod["metadata"] = json!({
                "name": "web-3", "annotations": pod["metadata"]["annotations"],
            })
        }),
        pod(&[
            AUTO,
            ("cosid/agent-image", "mirror.example.com/agent:2"),
            ("cosid/agent-cpu", "0.5"),
            ("cosid/agent-memory", "64Mi"),
            ("cosid/agent-log", "warn,cosid_agent=debug"),
            ("cosid/status", "copied from somewhere"),
        ]),
        with(&[AUTO], |pod| {
            pod["spec"]["automountServiceAccountToken"] = json!(false);
            pod["spec"]["initContainers"] = json!([plain("migrate"), plain("warm")]);
            pod["spec"]["containers"].as_array_mut().unwrap().push(plain("proxy"));
            pod["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
        }),
        with(&[AUTO, ("cosid/containers", "app , warm")], |pod| {
            pod["spec"]["initContainers"] = json!([plain("migrate"), plain("warm")]);
            pod["spec"]["containers"].as_array_mut().unwrap().insert(0, plain("proxy"));
            pod["spec"]["containers"][1]["env"] = json!([
                { "name": "A", "value": "1" }, { "name": "B", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            ]);
            pod["spec"]["containers"][0]["env"] = json!([{ "name": "COSID_SOCKET", "value": "/own" }]);
            pod["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
            pod["spec"]["containers"][1]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
        }),
        with(&[AUTO], |pod| {
            pod["spec"]["containers"][0]["env"] = json!([
                { "name": "COSID_SOCKET", "value": "/run/cosid/agent.sock" }, { "name": "A", "value": "$(COSID_SOCKET)" },
            ]);
        }),
    ]
}

fn bad() -> Vec<Value> {
    const AUTO: (&str, &str) = ("cosid/slot", "auto");
    let mut all = vec![
        pod(&[AUTO, ("cosid/agentcpu", "1")]),
        pod(&[("cosid/slot", "ordinal")]),
        pod(&[AUTO, ("cosid/containers", "app, web")]),
        with(&[AUTO], |pod| pod["spec"]["initContainers"] = json!([plain("cosid-agent")])),
        with(&[AUTO, ("cosid/status", "x")], |pod| {
            pod["spec"]["initContainers"] = json!([plain("cosid-agent")])
        }),
        with(&[AUTO], |pod| pod["spec"]["containers"].as_array_mut().unwrap().push(plain("cosid-agent"))),
        with(&[AUTO], |pod| pod["spec"]["volumes"] = json!([{ "name": "cosid", "emptyDir": {} }])),
        with(&[AUTO], |pod| {
            pod["spec"]["containers"][0]["env"] = json!([{ "name": "COSID_SOCKET", "value": "/x" }]);
        }),
        with(&[AUTO], |pod| {
            pod["spec"]["volumes"] = json!([{ "name": "x", "emptyDir": {} }]);
            pod["spec"]["containers"][0]["volumeMounts"] =
                json!([{ "name": "x", "mountPath": "/run/cosid/" }]);
        }),
        with(&[AUTO], |pod| {
            pod["spec"]["volumes"] = json!([{ "name": "x", "emptyDir": {} }]);
            pod["spec"]["containers"][0]["volumeMounts"] =
                json!([{ "name": "x", "mountPath": "/run/.//cosid/." }]);
        }),
        with(&[AUTO], |pod| pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/os": "windows" })),
        with(&[AUTO], |pod| {
            // With these the API server itself refuses it.
            pod["spec"].as_object_mut().unwrap().remove("securityContext");
            pod["spec"]["containers"][0].as_object_mut().unwrap().remove("securityContext");
            pod["spec"]["os"] = json!({ "name": "windows" });
        }),
    ];
    let values = [
        ("cosid/slot", "'it''s' \"{{x}}\" \\"),
        ("cosid/slot", "1048576"),
        ("cosid/pool", "a/b/c"),
        ("cosid/containers", ","),
        ("cosid/slot", "auto\n"),
        ("cosid/agent-image", "a b"),
        ("cosid/agent-image", "a:1:2"),
        ("cosid/agent-cpu", "0"),
        ("cosid/agent-memory", "7Mi"),
        ("cosid/agent-log", "loud"),
    ];
    all.extend(values.map(|value| pod(&[AUTO, value])));
    all
}

/// What the pods look like afterwards, but for the random names that the API server gives.
async fn results(ground: &Ground) -> Vec<Value> {
    let mut results = Vec::new();
    for pod in good() {
        let made = json!(ground.try_pod(&pod).await.unwrap());
        let text =
            json!({ "annotations": made["metadata"]["annotations"], "spec": made["spec"] }).to_string();
        let mut parts = text.split("\"kube-api-access-");
        let mut plain = parts.next().unwrap().to_owned();
        parts.for_each(|part| plain.extend(["\"kube-api-access", part.trim_start_matches(|c| c != '"')]));
        results.push(serde_json::from_str(&plain).unwrap());
    }
    results
}

async fn refusals(ground: &Ground, after: &str) -> Vec<String> {
    let mut refusals = Vec::new();
    for pod in bad() {
        let why = refusal(ground.try_pod(&pod).await);
        refusals.push(why.split_once(after).unwrap_or_else(|| panic!("{why}")).1.to_owned());
    }
    refusals
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policies_do_what_the_webhook_does_and_refuse_what_it_refuses_in_the_same_words() {
    let ground = Ground::new().await;
    let controller = ground.controller("first", &[]).await;
    ground.register(&controller.address, "Fail").await;
    let by_webhook = (results(&ground).await, refusals(&ground, "denied the request: ").await);
    ground.registrations().delete("cosid-injector", &DeleteParams::default()).await.unwrap();
    // It takes the API server a moment to forget it.
    while ground.try_pod(&auto()).await.is_ok_and(|pod| crate::ground::is_injected(&pod)) {}

    let Agent { image, log, resources } = Agent::default();
    let [image, log, requests, limits] =
        [json!(image), json!(log), json!(resources.requests), json!(resources.limits)]
            .map(|value| value.to_string());
    let defaults = Defaults { image: &image, log: &log, requests: &requests, limits: &limits };
    ground.apply(policies(SYSTEM, &defaults)).await;
    ground.once_injected().await;
    let refused = async { while ground.try_pod(&pod(&[("cosid/slot", "x")])).await.is_ok() {} };
    tokio::time::timeout(crate::ground::LONG, refused).await.unwrap();

    for (policy, webhook) in results(&ground).await.iter().zip(&by_webhook.0) {
        assert_eq!(
            serde_json::to_string_pretty(policy).unwrap(),
            serde_json::to_string_pretty(webhook).unwrap()
        );
    }
    assert_eq!(refusals(&ground, "denied request: ").await, by_webhook.1);
    beside_another_injector(&ground).await;
}

/// One that comes after, and adds a container of its own: that one gets IDs, too.
async fn beside_another_injector(ground: &Ground) {
    let name = "other-injector";
    let object = |kind: &str, spec: Value| json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    let proxy =
        "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'proxy', image: 'proxy:1'}]}}";
    let rule =
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] });
    let policy = json!({
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": { "resourceRules": [rule] },
        "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": proxy } }],
    });
    ground
        .apply(vec![
            object("MutatingAdmissionPolicy", policy),
            object("MutatingAdmissionPolicyBinding", json!({ "policyName": name })),
        ])
        .await;
    let containers = async {
        loop {
            let spec = ground.try_pod(&auto()).await.unwrap().spec.unwrap();
            assert_eq!(spec.init_containers.unwrap().len(), 1);
            if spec.containers.len() == 2 {
                return spec.containers;
            }
        }
    };
    for container in tokio::time::timeout(crate::ground::LONG, containers).await.unwrap() {
        let told = container.env.iter().flatten().any(|variable| variable.name == "COSID_SOCKET");
        let mounted = container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == "/run/cosid");
        assert!(told && mounted, "{container:?}");
    }
}
