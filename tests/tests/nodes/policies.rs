//! What the cluster says about the chart's policies.

use cosid_tests::pods::{PodGround, wait};
use serde_json::Value;

use super::{Case, Needs};

pub(super) const CASES: &[Case] =
    &[("kubernetes_finds_no_type_error_in_the_policies_expressions", Needs::AnyCluster, typed)];

fn typed(ground: &PodGround) {
    let policies = || {
        let text = ground.kubectl(&["get", "validatingadmissionpolicies", "--output", "json"]);
        let list: Value = serde_json::from_str(&text).unwrap();
        let policies = list["items"].as_array().cloned().unwrap_or_default();
        let ours = |policy: &Value| policy["metadata"]["name"].as_str().unwrap().starts_with("cosid");
        policies.into_iter().filter(ours).collect::<Vec<_>>()
    };
    let checked = wait("the policies have not been checked", || {
        let policies = policies();
        let is_checked = |policy: &Value| {
            policy["status"]["observedGeneration"] == policy["metadata"]["generation"]
                && !policy["status"]["typeChecking"].is_null()
        };
        (policies.len() >= 2 && policies.iter().all(is_checked)).then_some(policies)
    });
    for policy in checked {
        let warnings = &policy["status"]["typeChecking"]["expressionWarnings"];
        assert!(warnings.is_null(), "{}: {warnings}", policy["metadata"]["name"]);
    }
}
