//! The processes in containers, seen from the machine that the nodes are on.

use std::fs;

/// The name of the agent's container.
pub const AGENT: &str = "cosid-agent";

/// The variable by which an app is found: `POD-UID.CONTAINER`, in test pods and the demo's.
pub const APP_VARIABLE: &str = "APP";

/// The process of a pod's agent, or of an app whose environment has [`APP_VARIABLE`]; the machine's id of it.
#[must_use]
pub fn process(pod_uid: &str, container: &str) -> Option<i32> {
    let wanted = match container {
        AGENT => format!("POD_UID={pod_uid}"),
        app => format!("{APP_VARIABLE}={pod_uid}.{app}"),
    };
    let pids = fs::read_dir("/proc").ok()?;
    let mut pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.find(|pid: &i32| {
        // One that ends meanwhile has no environment any more.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    })
}
