//! The template of a pod whose app makes IDs and writes them to the node's disk.

use serde_json::{Value, json};
use xtask::images;

use super::disk;

/// A pod with one app, `app`, that makes IDs in batches of 100 until it is told to end.
#[derive(Clone, Debug)]
pub struct App {
    slot: String,
    args: Vec<String>,
    annotations: Vec<(String, String)>,
    grace_seconds: u32,
    memory: &'static str,
    containers: Vec<String>,
}

impl App {
    /// With the annotation `cosid/slot` of this value.
    #[must_use]
    pub fn new(slot: &str) -> Self {
        Self {
            slot: slot.into(),
            args: vec!["--rate=5000".into()],
            annotations: Vec::new(),
            grace_seconds: 10,
            memory: "64Mi",
            containers: vec!["app".into()],
        }
    }

    /// At most so many IDs a second.
    #[must_use]
    pub fn rate(mut self, per_second: u32) -> Self {
        self.args[0] = format!("--rate={per_second}");
        self
    }

    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.into());
        self
    }

    /// With one more annotation.
    #[must_use]
    pub fn annotate(mut self, name: &str, value: &str) -> Self {
        self.annotations.push((name.into(), value.into()));
        self
    }

    /// So long until it is killed after it was told to end.
    #[must_use]
    pub fn grace(mut self, seconds: u32) -> Self {
        self.grace_seconds = seconds;
        self
    }

    /// With this limit of memory for each container.
    #[must_use]
    pub fn memory(mut self, limit: &'static str) -> Self {
        self.memory = limit;
        self
    }

    /// With several containers that share the slot.
    #[must_use]
    pub fn containers(mut self, names: &[&str]) -> Self {
        self.containers = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// A pod of its own of this name.
    #[must_use]
    pub fn pod(&self, name: &str) -> Value {
        let template = self.template(name, "Always");
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": template["metadata"]["labels"],
                "annotations": template["metadata"]["annotations"],
            },
            "spec": template["spec"],
        })
    }

    /// The pod template, labelled `app: NAME`. `restart` is its restart policy.
    pub(super) fn template(&self, name: &str, restart: &str) -> Value {
        let mut annotations = serde_json::Map::new();
        annotations.insert("cosid/slot".into(), self.slot.as_str().into());
        for (name, value) in &self.annotations {
            annotations.insert(name.clone(), value.as_str().into());
        }
        let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
        let container = |container: &String| {
            let out = format!("--out=/ids/$(APP_NAMESPACE)/$(APP_POD).$(APP_UID).{container}");
            let args: Vec<&str> = self.args.iter().map(String::as_str).chain([out.as_str()]).collect();
            json!({
                "name": container,
                "image": images::name("cosid-ids"),
                "args": args,
                // The node's disk is root's.
                "securityContext": { "runAsUser": 0 },
                "env": [
                    field("APP_NAMESPACE", "metadata.namespace"),
                    field("APP_POD", "metadata.name"),
                    field("APP_UID", "metadata.uid"),
                ],
                "resources": { "requests": { "cpu": "1m", "memory": "8Mi" }, "limits": { "memory": self.memory } },
                "volumeMounts": [{ "name": "ids", "mountPath": "/ids" }],
            })
        };
        json!({
            "metadata": { "labels": { "app": name }, "annotations": annotations },
            "spec": {
                "restartPolicy": restart,
                "terminationGracePeriodSeconds": self.grace_seconds,
                "automountServiceAccountToken": false,
                "volumes": [disk()],
                "containers": self.containers.iter().map(container).collect::<Vec<_>>(),
            },
        })
    }
}
