//! The pods of rendered objects, and whether they may run where little is allowed.

use serde_json::{Value, json};

use crate::helm::called;

/// The pod template of a workload; a pod is its own.
pub(crate) fn template(object: &Value) -> Option<&Value> {
    match object["kind"].as_str()? {
        "Pod" => Some(object),
        "CronJob" => Some(&object["spec"]["jobTemplate"]["spec"]["template"]),
        _ => object["spec"].get("template"),
    }
}

/// All its containers.
pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array());
    lists.into_iter().flatten().flatten()
}

/// Fails unless the pod keeps to the standard `restricted`, in a namespace with a quota, on a root that is read-only.
pub(crate) fn check_restricted(object: &Value) {
    let name = called(object);
    let Some(pod) = template(object) else { return };
    for container in containers(pod) {
        let what = || format!("{name}, container {}", container["name"]);
        let (own, all) = (&container["securityContext"], &pod["spec"]["securityContext"]);
        let either = |key: &str| own.get(key).or(all.get(key)).cloned().unwrap_or_default();
        assert_eq!(own["allowPrivilegeEscalation"], json!(false), "{}", what());
        assert_eq!(own["readOnlyRootFilesystem"], json!(true), "{}", what());
        assert_eq!(own["capabilities"], json!({ "drop": ["ALL"] }), "{}", what());
        assert_eq!(either("runAsNonRoot"), json!(true), "{}", what());
        assert_eq!(either("seccompProfile"), json!({ "type": "RuntimeDefault" }), "{}", what());
        for kind in ["requests", "limits"] {
            for amount in ["cpu", "memory"] {
                assert!(
                    container["resources"][kind].get(amount).is_some(),
                    "{}: no {kind} of {amount}",
                    what()
                );
            }
        }
        let image = container["image"].as_str().unwrap();
        assert!(image.contains(':') && !image.ends_with(":latest"), "{}: {image}", what());
    }
}

/// A pod as a workload's controller would make it.
pub(crate) fn made(object: &Value, namespace: &str) -> Option<Value> {
    let pod = template(object)?;
    let name = format!("{}-0", object["metadata"]["name"].as_str()?);
    Some(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": pod["metadata"]["labels"],
            "annotations": pod["metadata"]["annotations"],
        },
        "spec": pod["spec"],
    }))
}
