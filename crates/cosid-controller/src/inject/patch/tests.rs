use std::cell::Cell;

use super::*;

/// A pod with these annotations and a container `app`, changed by `change`.
fn pod(annotations: &[(&str, &str)], change: impl FnOnce(&mut Value)) -> Value {
    let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
    let mut pod = json!({
        "metadata": { "generateName": "shop-", "annotations": annotations },
        "spec": { "containers": [{ "name": "app", "image": "shop:1" }] },
    });
    change(&mut pod);
    pod
}

fn auto(change: impl FnOnce(&mut Value)) -> Value {
    pod(&[("cosid/slot", "auto")], change)
}

fn operations(pod: &Value) -> Result<Vec<Value>, Refusal> {
    patch(&serde_json::from_value(pod.clone()).unwrap(), &Agent::default(), |_| None)
}

fn apply(pod: &Value, operations: Vec<Value>) -> Value {
    let mut patched = pod.clone();
    let operations: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
    json_patch::patch(&mut patched, &operations).unwrap();
    patched
}

fn injected(pod: &Value) -> Value {
    apply(pod, operations(pod).unwrap())
}

fn env<'a>(container: &'a Value, name: &str) -> Option<&'a Value> {
    container["env"].as_array()?.iter().find(|variable| variable["name"] == name).map(|found| &found["value"])
}

fn has_share(container: &Value) -> bool {
    let mounts = container["volumeMounts"].as_array();
    let mounted =
        mounts.is_some_and(|mounts| mounts.contains(&json!({ "name": "cosid", "mountPath": "/run/cosid" })));
    let told = env(container, "COSID_SOCKET") == Some(&json!("/run/cosid/agent.sock"));
    assert_eq!(mounted, told, "{container}");
    mounted
}

#[test]
fn a_pod_that_does_not_ask_is_left_as_it_is() {
    for pod in
        [pod(&[], |_| {}), pod(&[("cosid/pool", "orders")], |_| {}), json!({ "metadata": {}, "spec": null })]
    {
        assert_eq!(operations(&pod), Ok(Vec::new()));
    }
}

#[test]
fn the_agent_is_the_first_init_container_and_stays() {
    let pod = injected(&auto(|pod| pod["spec"]["initContainers"] = json!([{ "name": "migrate" }])));
    let init = &pod["spec"]["initContainers"];
    assert_eq!((&init[0]["name"], &init[1]["name"]), (&json!("cosid-agent"), &json!("migrate")));
    assert_eq!(init[0]["restartPolicy"], "Always");
    assert_eq!(init[0]["startupProbe"]["exec"]["command"], json!(["/cosid-agent", "health", "--ready"]));
    assert_eq!(init[0]["startupProbe"]["initialDelaySeconds"], Value::Null);
    assert!(has_share(&init[0]) && has_share(&init[1]) && has_share(&pod["spec"]["containers"][0]));
    assert_eq!(
        pod["metadata"]["annotations"]["cosid/status"],
        concat!(
            "injected; version ",
            env!("CARGO_PKG_VERSION"),
            "; agent cosid-agent:",
            env!("CARGO_PKG_VERSION")
        )
    );
}

#[test]
fn only_the_agent_sees_its_token() {
    let pod = injected(&auto(|_| {}));
    let mounts = |container: &Value, volume: &str| {
        let mounts = container["volumeMounts"].as_array().unwrap();
        mounts.iter().find(|mount| mount["name"] == volume).map(|mount| mount["mountPath"].clone())
    };
    let spec = &pod["spec"];
    let place = json!("/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!(mounts(&spec["initContainers"][0], "cosid-token"), Some(place));
    assert_eq!(mounts(&spec["containers"][0], "cosid-token"), None);
    assert_eq!(spec["volumes"][0]["emptyDir"], json!({ "medium": "Memory", "sizeLimit": "4Mi" }));
    assert_eq!(
        spec["volumes"][1]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"],
        3600
    );
}

#[test]
fn what_the_pod_wishes_wins_over_the_defaults() {
    let wishes = [
        ("cosid/slot", "prefer:ordinal"),
        ("cosid/pool", "shop/orders"),
        ("cosid/agent-image", "mirror/agent:2"),
        ("cosid/agent-cpu", "20m"),
        ("cosid/agent-memory", "64Mi"),
        ("cosid/agent-log", "debug"),
    ];
    let pod = injected(&pod(&wishes, |pod| pod["metadata"]["name"] = json!("shop-3")));
    let agent = &pod["spec"]["initContainers"][0];
    assert_eq!(agent["image"], "mirror/agent:2");
    for (variable, value) in
        [("COSID_SLOT", "prefer:ordinal"), ("COSID_POOL", "shop/orders"), ("COSID_LOG", "debug")]
    {
        assert_eq!(env(agent, variable), Some(&json!(value)));
    }
    let both = json!({ "cpu": "20m", "memory": "64Mi" });
    assert_eq!(agent["resources"], json!({ "requests": both, "limits": both }));
    let default = injected(&auto(|_| {}))["spec"]["initContainers"][0].clone();
    assert_eq!((env(&default, "COSID_POOL"), env(&default, "COSID_SLOT")), (None, Some(&json!("auto"))));
    assert_eq!(default["resources"]["limits"], json!({ "cpu": "500m", "memory": "32Mi" }));
}

#[test]
fn only_the_containers_that_are_named_get_ids() {
    let two = |pod: &mut Value| {
        pod["spec"]["containers"] = json!([{ "name": "app" }, { "name": "proxy" }]);
        pod["spec"]["initContainers"] = json!([{ "name": "migrate" }]);
    };
    let pod = injected(&pod(&[("cosid/slot", "auto"), ("cosid/containers", "app , migrate")], two));
    let containers = &pod["spec"]["containers"];
    assert!(has_share(&containers[0]) && !has_share(&containers[1]));
    assert!(has_share(&pod["spec"]["initContainers"][1]));
}

#[test]
fn run_on_its_own_output_it_changes_nothing() {
    for change in [
        (|_| {}) as fn(&mut Value),
        |pod| pod["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]),
        |pod| {
            pod["spec"]["containers"][0]["env"] =
                json!([{ "name": "COSID_SOCKET", "value": "/run/cosid/agent.sock" }])
        },
        |pod| {
            pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }])
        },
    ] {
        let once = injected(&auto(change));
        assert_eq!(operations(&once), Ok(Vec::new()), "{once}");
    }
}

#[test]
fn a_container_that_another_injector_adds_gets_its_share_and_the_agent_stays() {
    let mut pod = injected(&auto(|_| {}));
    let agent = pod["spec"]["initContainers"][0].clone();
    pod["spec"]["containers"].as_array_mut().unwrap().insert(0, json!({ "name": "proxy" }));
    pod["spec"]["initContainers"].as_array_mut().unwrap().insert(0, json!({ "name": "proxy-init" }));
    let again =
        patch(&serde_json::from_value(pod.clone()).unwrap(), &Agent::default(), |_| panic!("no new hint"));
    let again = apply(&pod, again.unwrap());
    assert!(has_share(&again["spec"]["containers"][0]) && has_share(&again["spec"]["initContainers"][0]));
    assert_eq!(again["spec"]["initContainers"][1], agent);
    assert_eq!(again["spec"]["initContainers"].as_array().unwrap().len(), 2);
    assert_eq!(again["spec"]["volumes"], pod["spec"]["volumes"]);
}

#[test]
fn a_hint_is_asked_for_a_new_pod_that_takes_any_slot_only() {
    let named = |pod: &mut Value| pod["metadata"]["name"] = json!("shop-3");
    for (slot, change, expected) in [
        ("auto", (|_| {}) as fn(&mut Value), "prefer:7"),
        // It may have had a slot before: the agent finds that one by its name.
        ("auto", named, "auto"),
        ("ordinal", named, "ordinal"),
        ("prefer:3", |_| {}, "prefer:3"),
        ("3", |_| {}, "3"),
    ] {
        let pod = pod(&[("cosid/slot", slot)], change);
        let asked = Cell::new(false);
        let hint = |_: &Wishes<'_>| {
            asked.set(true);
            Some(7)
        };
        let done = patch(&serde_json::from_value(pod.clone()).unwrap(), &Agent::default(), hint).unwrap();
        let done = apply(&pod, done);
        assert_eq!(env(&done["spec"]["initContainers"][0], "COSID_SLOT"), Some(&json!(expected)));
        assert_eq!(asked.get(), expected == "prefer:7", "{slot}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_next_step() {
    let table: [(Value, &str); 17] = [
        (
            pod(&[("cosid/slot", "first")], |_| {}),
            "annotation cosid/slot: \"first\" is not one of: auto, ordinal, ",
        ),
        (pod(&[("cosid/slot", "ordinal")], |_| {}), "need a pod whose name ends in its number"),
        (
            pod(&[("cosid/slot", "ordinal")], |pod| pod["metadata"]["name"] = json!("shop-7d9f")),
            "use auto, or a StatefulSet",
        ),
        (
            pod(&[("cosid/slot", "auto"), ("cosid/containers", "app,web")], |_| {}),
            "the pod has no container \"web\"; it has: app",
        ),
        (
            auto(|pod| pod["spec"]["initContainers"] = json!([{ "name": "cosid-agent" }])),
            "take all of it out, or the annotation cosid/slot",
        ),
        (
            auto(|pod| pod["spec"]["containers"] = json!([{ "name": "cosid-agent" }])),
            "a part of the agent that was not injected",
        ),
        (auto(|pod| pod["spec"]["volumes"] = json!([{ "name": "cosid" }])), "not injected"),
        (auto(|pod| pod["spec"]["volumes"] = json!([{ "name": "cosid-token" }])), "not injected"),
        (
            injected(&auto(|_| {})).as_object_mut().map_or(Value::Null, |pod| {
                pod["spec"]["volumes"] = json!([]);
                json!(pod)
            }),
            "not injected",
        ),
        (
            auto(|pod| {
                pod["spec"]["containers"][0]["env"] = json!([{ "name": "COSID_SOCKET", "value": "/x" }])
            }),
            "container app sets COSID_SOCKET itself",
        ),
        (
            auto(|pod| {
                pod["spec"]["containers"][0]["env"] = json!([
                    { "name": "COSID_SOCKET", "value": "/run/cosid/agent.sock" },
                    { "name": "COSID_SOCKET", "value": "/x" },
                ]);
            }),
            "container app sets COSID_SOCKET itself",
        ),
        (
            auto(|pod| {
                pod["spec"]["containers"][0]["volumeMounts"] = json!([
                    { "name": "cosid", "mountPath": "/run/cosid" },
                    { "name": "x", "mountPath": "/run/cosid/" },
                ]);
            }),
            "container app mounts another volume at /run/cosid",
        ),
        (
            auto(|pod| {
                pod["spec"]["containers"][0]["volumeMounts"] =
                    json!([{ "name": "x", "mountPath": "/run/cosid/" }]);
            }),
            "container app mounts another volume at /run/cosid",
        ),
        (
            auto(|pod| {
                pod["spec"]["containers"][0]["volumeMounts"] =
                    json!([{ "name": "x", "mountPath": "/run/.//cosid/." }]);
            }),
            "container app mounts another volume at /run/cosid",
        ),
        (
            auto(|pod| pod["spec"]["os"] = json!({ "name": "windows" })),
            "agents run on Linux only, and this pod is for Windows",
        ),
        (
            auto(|pod| pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/os": "windows" })),
            "agents run on Linux only, and this pod is for Windows",
        ),
        (
            pod(&[("cosid/slot", "auto"), ("cosid/agentcpu", "1")], |_| {}),
            "annotation cosid/agentcpu is not known",
        ),
    ];
    for (pod, expected) in table {
        let why = operations(&pod).unwrap_err().to_string();
        assert!(why.contains(expected), "{why}\n{expected}");
    }
}

#[test]
fn what_is_not_chosen_may_use_the_name_and_the_place_otherwise() {
    let other = |pod: &mut Value| {
        pod["spec"]["containers"] = json!([
            { "name": "app" },
            { "name": "other", "env": [{ "name": "COSID_SOCKET", "value": "/x" }],
              "volumeMounts": [{ "name": "x", "mountPath": "/run/cosid" }] },
        ]);
    };
    let pod = pod(&[("cosid/slot", "auto"), ("cosid/containers", "app")], other);
    assert_eq!(injected(&pod)["spec"]["containers"][1], pod["spec"]["containers"][1]);
}
