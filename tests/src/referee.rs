//! The API server as referee, put in force in a cluster.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};

use cosid_controller::{cluster_role, own_role, referee};
use serde_json::json;
use xtask::cluster::Cluster;
use xtask::programs::until;

use crate::http::PATIENCE;

/// The controller's namespace.
pub const SYSTEM: &str = "cosid-system";

/// Makes the controller's service account with its rights, and the policies; returns once they are in force.
pub(crate) fn instate(cluster: &Cluster, dir: &Path) {
    let system = ["--namespace", SYSTEM];
    let kubectl = |args: &[&str]| cluster.kubectl(&[args, &system].concat());
    let apply = |what: &serde_json::Value| {
        let file = dir.join("applied.json");
        fs::write(&file, what.to_string()).unwrap();
        kubectl(&["apply", "--filename", file.to_str().unwrap(), "--warnings-as-errors"]).unwrap()
    };
    let account = "--serviceaccount=cosid-system:cosid-controller";
    kubectl(&["create", "serviceaccount", referee::CONTROLLER]).unwrap();
    apply(&json!(cluster_role()));
    apply(&json!(own_role(SYSTEM)));
    kubectl(&["create", "clusterrolebinding", "cosid-controller", "--clusterrole=cosid-controller", account])
        .unwrap();
    kubectl(&["create", "rolebinding", "cosid-controller", "--role=cosid-controller", account]).unwrap();

    // Somebody's Lease, by which it is seen when each policy is in force: that takes up to a second.
    apply(&json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "watched-0", "labels": { "cosid.dev/pool": "watched" } },
    }));
    for (policy, binding) in referee::policies(SYSTEM) {
        apply(&json!(policy));
        apply(&json!(binding));
    }
    let label = ["label", "lease", "watched-0", "cosid.dev/pool-", "--dry-run=server"];
    let delete = ["delete", "lease", "watched-0", "--dry-run=server"];
    for attempt in [&label[..], &delete] {
        let refused =
            || Ok(kubectl(attempt).err().filter(|why| why.to_string().contains("only the cosid controller")));
        until(|| format!("{attempt:?} is not refused: {:?}", kubectl(attempt)), PATIENCE, refused).unwrap();
    }
    kubectl(&["delete", "lease", "watched-0", "--as=system:serviceaccount:cosid-system:cosid-controller"])
        .unwrap();
}

/// The controller's own kubeconfig.
#[must_use]
pub fn as_controller(cluster: &Cluster) -> PathBuf {
    let token = cluster.token(SYSTEM, referee::CONTROLLER, None).unwrap();
    cluster.kubeconfig_with_token(referee::CONTROLLER, &token).unwrap()
}
