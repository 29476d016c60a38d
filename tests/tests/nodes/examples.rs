//! The examples, as a reader applies them, in a namespace with all that makes pods hard to admit.

use std::collections::BTreeSet;
use std::fs;

use cosid_tests::pods::PodGround;
use serde_json::{Value, json};
use xtask::paths;

use super::{Case, Needs};

pub(super) const CASES: &[Case] =
    &[("the_examples_run_under_the_restricted_profile_and_a_quota", Needs::AnyCluster, examples)];

fn examples(ground: &PodGround) {
    let space = ground.space("examples", 64, 30);
    let restricted = ["label", "namespace", "examples", "pod-security.kubernetes.io/enforce=restricted"];
    let _ = ground.kubectl(&restricted);
    space.apply(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "quota" },
        "spec": { "hard": { "requests.cpu": "4", "requests.memory": "4Gi", "limits.cpu": "100", "limits.memory": "16Gi" } },
    }));
    for name in ["deployment", "statefulset", "job", "cronjob", "shared-slot", "forked-workers"] {
        let text = fs::read_to_string(paths::workspace().join(format!("examples/{name}.yaml"))).unwrap();
        ground.apply(&space.name, &text);
    }
    let _ = space.kubectl(&["create", "job", "tonight", "--from=cronjob/nightly"]);
    for what in ["deployment/id-service", "statefulset/ledger", "deployment/shared-slot"] {
        let _ = space.kubectl(&["rollout", "status", what, "--timeout=120s"]);
    }
    for job in ["import", "forked-workers", "tonight"] {
        let complete = ["wait", "--for=condition=Complete", "--timeout=120s"];
        let _ = space.kubectl(&[&complete[..], &[&format!("job/{job}")]].concat());
    }

    let mut ids = BTreeSet::new();
    for _ in 0..20 {
        let path = format!("/api/v1/namespaces/{}/services/id-service:80/proxy/", space.name);
        let answer: Value = serde_json::from_str(&ground.kubectl(&["get", "--raw", &path])).unwrap();
        let id: u64 = answer["id"].as_str().unwrap().parse().unwrap();
        assert!(ids.insert(id), "{id} was there before");
    }
    // In the StatefulSet's own pool.
    for number in 0..3 {
        let holder = ["get", "lease", &format!("ledger-{number}"), "-o", "jsonpath={.spec.holderIdentity}"];
        assert_eq!(space.kubectl(&holder), format!("{}/ledger-{number}", space.name));
    }
    let held = space.held();
    let shared = held.keys().filter(|pod| pod.starts_with("shared-slot-")).count();
    assert_eq!(shared, 2, "one slot a pod, whatever its containers: {held:?}");
    let log = space.kubectl(&["logs", "job/forked-workers", "--container", "workers"]);
    assert!(log.contains("400000 IDs of 8 workers, 0 equal"), "{log}");
}
