//! What is added to a pod: the agent's container, its volumes, and what the app's containers get of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::annotations::Wishes;
use crate::Error;

/// The agent's container.
pub const NAME: &str = "cosid-agent";
/// The volume that the agent and the app's containers share.
pub const VOLUME: &str = "cosid";
/// The volume with the agent's own token.
pub const TOKEN_VOLUME: &str = "cosid-token";
/// Where the shared volume is.
pub const DIRECTORY: &str = "/run/cosid";
/// The agent's socket in it.
pub const SOCKET: &str = "/run/cosid/agent.sock";
/// The variable that says so.
pub const SOCKET_VARIABLE: &str = "COSID_SOCKET";

/// How long an agent tries to release its slot, ms. The kubelet gives it what the apps have left of the grace period,
/// usually most of 30 s; an API server that is loaded by the very roll-out that ends the pod needs some of that. Where it
/// does not answer at all, the pod's end takes so much longer.
const RELEASE_TIMEOUT: &str = "10000";

/// Where programs look for their token. A mount there keeps the API server from adding one of its own.
const TOKEN_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How long a token lasts, in seconds. The kubelet fetches the next one at 80 % of that. With the shortest that the API
/// allows, 600, an API server that is away for two minutes comes back to agents whose token has run out, and they lose
/// their leases to a token. This leaves twelve minutes, and a token is worth nothing once its pod has gone.
const TOKEN_SECONDS: i32 = 3_600;

/// How many seconds the kubelet waits for an agent that waits for a slot, before it would restart it: a week.
const PATIENCE: i32 = 604_800;

/// The resources that an agent's container may ask for.
pub const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// What agents are, where their pod does not say otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The image.
    pub image: String,
    /// What is logged.
    pub log: String,
    /// Requests and limits.
    pub resources: Resources,
}

/// Requests and limits, by the names of [`RESOURCES`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// What is set aside for it.
    #[serde(default)]
    pub requests: BTreeMap<String, String>,
    /// The most it gets.
    #[serde(default)]
    pub limits: BTreeMap<String, String>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            image: concat!("cosid-agent:", env!("CARGO_PKG_VERSION")).to_owned(),
            log: "info".to_owned(),
            resources: Resources::default(),
        }
    }
}

impl Default for Resources {
    /// An agent uses about 4 MB, and CPU only as it starts and when it is asked for IDs over its socket. A limit for both,
    /// because a namespace's quota may demand one.
    fn default() -> Self {
        let map = |cpu: &str, memory: &str| {
            BTreeMap::from([("cpu".to_owned(), cpu.to_owned()), ("memory".to_owned(), memory.to_owned())])
        };
        Self { requests: map("5m", "8Mi"), limits: map("500m", "32Mi") }
    }
}

impl std::str::FromStr for Resources {
    type Err = Error;

    fn from_str(json: &str) -> Result<Self, Error> {
        let bad = |why: String| {
            let example = r#"{"requests":{"cpu":"5m","memory":"8Mi"},"limits":{"memory":"32Mi"}}"#;
            Error::Setup(format!("{why}; an example: {example}"))
        };
        let read: Self = serde_json::from_str(json).map_err(|error| bad(error.to_string()))?;
        let mut names = read.requests.keys().chain(read.limits.keys());
        match names.find(|name| !RESOURCES.contains(&name.as_str())) {
            Some(name) => Err(bad(format!("{name} is not one of {}", RESOURCES.join(", ")))),
            None => Ok(read),
        }
    }
}

/// The values of one pod's agent: texts, or expressions that make them.
pub(super) struct Filled {
    pub(super) image: String,
    pub(super) slot: String,
    pub(super) log: String,
    pub(super) resources: Value,
    /// The variable that names the pool, if one is named.
    pub(super) pool: Option<Value>,
}

impl Filled {
    /// As the pod wishes, else as the template has it.
    pub(super) fn of(agent: &Agent, wishes: &Wishes<'_>, hint: Option<cosid_lease::Slot>) -> Self {
        let mut resources = agent.resources.clone();
        for (name, wish) in [("cpu", wishes.cpu), ("memory", wishes.memory)] {
            if let Some(wish) = wish {
                for list in [&mut resources.requests, &mut resources.limits] {
                    list.insert(name.to_owned(), wish.to_owned());
                }
            }
        }
        Self {
            image: wishes.image.unwrap_or(&agent.image).to_owned(),
            slot: hint.map_or_else(|| wishes.slot.to_owned(), |slot| format!("prefer:{slot}")),
            log: wishes.log.unwrap_or(&agent.log).to_owned(),
            resources: json!(resources),
            pool: wishes.pool.map(|pool| variable("COSID_POOL", pool)),
        }
    }

    /// What the pod's status annotation says.
    pub(super) fn status(&self) -> String {
        format!("injected; version {}; agent {}", env!("CARGO_PKG_VERSION"), self.image)
    }

    /// The agent's container: an init container that stays, a native sidecar.
    pub(super) fn container(&self) -> Value {
        let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
        let mut env = vec![
            variable(SOCKET_VARIABLE, SOCKET),
            variable("COSID_SLOT", &self.slot),
            variable("COSID_LOG", &self.log),
            variable("COSID_RELEASE_TIMEOUT", RELEASE_TIMEOUT),
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            field("POD_UID", "metadata.uid"),
        ];
        env.extend(self.pool.clone());
        json!({
            "name": NAME,
            "image": self.image,
            "restartPolicy": "Always",
            "env": env,
            // The app starts once the agent holds a slot.
            "startupProbe": {
                "exec": { "command": ["/cosid-agent", "health", "--ready"] },
                "periodSeconds": 1,
                "timeoutSeconds": 5,
                "failureThreshold": PATIENCE,
            },
            // One that stands still is started again after half a minute, the default lease's length, and resumes its lease.
            // It would not hear that it is to end.
            "livenessProbe": {
                "exec": { "command": ["/cosid-agent", "health"] },
                "periodSeconds": 10,
                "timeoutSeconds": 5,
                "failureThreshold": 3,
                "terminationGracePeriodSeconds": 2,
            },
            "resources": self.resources,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] },
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [
                mount(),
                { "name": TOKEN_VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": true },
            ],
        })
    }
}

/// The shared volume and the token's, which only the agent mounts.
pub(super) fn volumes() -> [Value; 2] {
    [
        json!({ "name": VOLUME, "emptyDir": { "medium": "Memory", "sizeLimit": "4Mi" } }),
        json!({ "name": TOKEN_VOLUME, "projected": { "sources": [
            { "serviceAccountToken": { "path": "token", "expirationSeconds": TOKEN_SECONDS } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "downwardAPI": { "items": [
                { "path": "namespace", "fieldRef": { "fieldPath": "metadata.namespace" } },
            ] } },
        ] } }),
    ]
}

/// Where a container has the shared volume.
pub(super) fn mount() -> Value {
    json!({ "name": VOLUME, "mountPath": DIRECTORY })
}

/// How a container knows of the socket.
pub(super) fn socket() -> Value {
    variable(SOCKET_VARIABLE, SOCKET)
}

fn variable(name: &str, value: &str) -> Value {
    json!({ "name": name, "value": value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_read_strictly() {
        let read = |json: &str| json.parse::<Resources>().map_err(|error| error.to_string());
        let default = serde_json::to_string(&Resources::default()).unwrap();
        assert_eq!(read(&default), Ok(Resources::default()));
        assert!(read("{}").unwrap().limits.is_empty());
        for (bad, why) in [
            (r#"{"request":{}}"#, "unknown field `request`"),
            (r#"{"limits":{"gpu":"1"}}"#, "gpu is not one of cpu, memory, ephemeral-storage"),
            (r#"{"limits":{"cpu":1}}"#, "expected a string"),
            ("5m", "an example: {"),
        ] {
            assert!(read(bad).unwrap_err().contains(why), "{bad}: {:?}", read(bad));
        }
    }
}
