//! The chart on a real API server, and a controller with the rights that it gives.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cosid_tests::cases::{self, Case};
use cosid_tests::ground::Ground;
use cosid_tests::http::PATIENCE;
use cosid_tests::referee::{SYSTEM, as_controller};
use serde_json::{Value, json};
use xtask::cluster::Cluster;
use xtask::programs::until;

use crate::examples::manifests;
use crate::helm::{EVERYTHING, called, chart, find, helm, read, render, set, template};
use crate::pods;

/// A namespace in which little is allowed.
const NARROW: &str = "narrow";

#[test]
fn the_chart_on_an_api_server() {
    let cases: &[Case<Ground>] = cosid_tests::cases![
        alerts_ask_for_metrics_that_exist,
        an_agents_requests_have_their_own_queue_and_others_have_not,
        every_example_is_accepted_and_its_pods_fit_a_narrow_namespace,
        the_controllers_pods_fit_a_narrow_namespace,
        a_second_release_is_refused,
    ];
    cases::run(&Ground::prepared(install), 2, cases);
}

/// Installs the chart; the controller then runs as its service account.
fn install(cluster: &Cluster, dir: &Path) -> PathBuf {
    apply(cluster, dir, &json!({ "apiVersion": "v1", "kind": "List", "items": prometheus() }), &[]);
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
    cluster.kubectl(&["create", "namespace", SYSTEM]).unwrap();
    let file = dir.join("all.yaml");
    fs::write(&file, template(&set(&EVERYTHING)).unwrap()).unwrap();
    let dry = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors"];
    cluster.kubectl(&[&dry[..], &["--filename", file.to_str().unwrap()]].concat()).unwrap();

    let (chart, kubeconfig) = (chart(), cluster.kubeconfig().to_str().unwrap());
    let how = ["--namespace", SYSTEM, "--kubeconfig", kubeconfig];
    // No kubelet runs the webhook here, and pods are to be judged all the same.
    let values = [set(&EVERYTHING), set(&["injector.failurePolicy=Ignore"])].concat();
    let said = helm(&[&["install", "cosid", chart.to_str().unwrap()], &how[..], &values].concat());
    let said = said.unwrap();
    assert!(said.contains("kubectl rollout status deployment/cosid-controller -n cosid-system"), "{said}");
    cluster.kubectl(&["wait", "--for=condition=Established", "crd/slotpools.cosid.dev"]).unwrap();
    narrow(cluster, dir);
    as_controller(cluster)
}

/// The Prometheus operator's resources, as far as they are needed to accept one of them.
fn prometheus() -> Vec<Value> {
    let resource = |kind: &str, plural: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.monitoring.coreos.com") },
            "spec": {
                "group": "monitoring.coreos.com",
                "names": { "kind": kind, "plural": plural },
                "scope": "Namespaced",
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    } },
                }],
            },
        })
    };
    vec![resource("PodMonitor", "podmonitors"), resource("PrometheusRule", "prometheusrules")]
}

/// A namespace for `restricted` pods only, with a quota for all that one can ask for.
fn narrow(cluster: &Cluster, dir: &Path) {
    let levels = ["enforce", "warn"].map(|mode| (format!("pod-security.kubernetes.io/{mode}"), "restricted"));
    let labels: serde_json::Map<_, _> = levels.map(|(key, level)| (key, json!(level))).into_iter().collect();
    let hard = json!({ "requests.cpu": "4", "requests.memory": "4Gi", "limits.cpu": "16", "limits.memory": "4Gi", "pods": "20" });
    let used: serde_json::Map<_, _> =
        hard.as_object().unwrap().keys().map(|key| (key.clone(), json!("0"))).collect();
    let objects = json!([
        { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NARROW, "labels": labels } },
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": NARROW } },
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "cosid-controller", "namespace": NARROW } },
        { "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "all", "namespace": NARROW }, "spec": { "hard": hard } },
    ]);
    apply(cluster, dir, &json!({ "apiVersion": "v1", "kind": "List", "items": objects }), &[]);
    // As the quota's controller does, which is not there: until then nothing is admitted.
    let status = json!({ "status": { "hard": hard, "used": used } }).to_string();
    let patch =
        ["patch", "resourcequota", "all", "--namespace", NARROW, "--subresource=status", "--type=merge"];
    cluster.kubectl(&[&patch[..], &["--patch", &status]].concat()).unwrap();
}

fn apply(cluster: &Cluster, dir: &Path, object: &Value, how: &[&str]) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or("list");
    let file = dir.join(format!("{name}.json"));
    fs::write(&file, object.to_string()).unwrap();
    let apply = ["apply", "--filename", file.to_str().unwrap(), "--warnings-as-errors", "--validate=strict"];
    cluster.kubectl(&[&apply[..], how].concat()).unwrap()
}

fn alerts_ask_for_metrics_that_exist(ground: &Ground) {
    let space = ground.space("busy");
    space.pool("orders", 1, 30);
    let agent = space.agent("shop", &[]);
    agent.wait_held();
    let exhausted = "cosid_controller_pool_conditions{condition=\"Exhausted\"} 1";
    let counted =
        || Ok(ground.ask_controller("/metrics").lines().any(|line| line == exhausted).then_some(()));
    until(|| ground.ask_controller("/metrics"), PATIENCE, counted).unwrap();
    let metrics =
        ground.ask_controller("/metrics") + &ground.cluster.kubectl(&["get", "--raw", "/metrics"]).unwrap();

    let rules = render(&set(&EVERYTHING));
    let rules =
        find(&rules, "PrometheusRule", "cosid")["spec"]["groups"][0]["rules"].as_array().unwrap().clone();
    let mut used = BTreeSet::new();
    for rule in &rules {
        let expression = rule["expr"].as_str().unwrap();
        assert!(rule["annotations"]["summary"].is_string() && rule["annotations"]["description"].is_string());
        for series in series(expression) {
            let found = metrics.lines().any(|line| {
                line.strip_prefix(series.name).is_some_and(|rest| {
                    rest.starts_with(['{', ' ']) && series.labels.iter().all(|label| rest.contains(label))
                })
            });
            assert!(found, "{}: no {} with {:?} in\n{metrics}", rule["alert"], series.name, series.labels);
            used.insert(series.name.to_owned());
        }
    }
    assert_eq!(rules.len(), 11);
    assert!(used.contains("cosid_controller_pool_conditions") && used.len() >= 7, "{used:?}");
}

/// A metric that an expression asks for, with the labels that it must have.
struct Series<'a> {
    name: &'a str,
    labels: Vec<&'a str>,
}

fn series(expression: &str) -> Vec<Series<'_>> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for prefix in ["cosid_", "apiserver_"] {
        for (at, _) in expression.match_indices(prefix) {
            let rest = &expression[at..];
            let (name, after) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            let selector =
                after.strip_prefix('{').and_then(|after| after.split('}').next()).unwrap_or_default();
            let labels = selector.split(',').filter(|label| label.contains("=\"") && !label.contains("!="));
            found.push(Series { name, labels: labels.collect() });
        }
    }
    assert!(!found.is_empty(), "{expression}");
    found
}

fn an_agents_requests_have_their_own_queue_and_others_have_not(ground: &Ground) {
    let space = ground.space("queued");
    let uid = ["get", "flowschema", "cosid-slots", "--output=jsonpath={.metadata.uid}"];
    let uid = ground.cluster.kubectl(&uid).unwrap();
    let token = space.token("tenant");
    let queue = |method: &str, path: &str| {
        let head = ground.answer_to(&token, method, path);
        head.headers["x-kubernetes-pf-flowschema-uid"].to_str().unwrap().to_owned()
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/queued/leases";
    let lease = format!("{leases}/orders-0");
    // It is in force a moment after it was installed.
    until(|| "no queue".into(), PATIENCE, || Ok((queue("GET", &lease) == uid).then_some(()))).unwrap();
    // Whoever sends it and whether it is allowed or not: the line is chosen first.
    for (method, path) in [("PUT", lease.as_str()), ("GET", &lease), ("GET", leases)] {
        assert_eq!(queue(method, path), uid, "{method} {path}");
    }
    let pods = "/api/v1/namespaces/queued/pods";
    for (method, path) in [("DELETE", lease.as_str()), ("POST", leases), ("PATCH", &lease), ("GET", pods)] {
        assert_ne!(queue(method, path), uid, "{method} {path}");
    }
}

fn every_example_is_accepted_and_its_pods_fit_a_narrow_namespace(ground: &Ground) {
    let dir = tempfile::tempdir().unwrap();
    for (name, path) in manifests() {
        let how = ["apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors"];
        let file = path.to_str().unwrap();
        let said = ground.cluster.kubectl(&[&how[..], &["--namespace", NARROW, "--filename", file]].concat());
        assert!(said.as_ref().is_ok_and(|said| said.contains("created")), "{name}: {said:?}");
        for object in read(&path) {
            if let Some(pod) = pods::made(&object, NARROW) {
                apply(&ground.cluster, dir.path(), &pod, &["--dry-run=server"]);
            }
        }
    }
}

fn the_controllers_pods_fit_a_narrow_namespace(ground: &Ground) {
    let dir = tempfile::tempdir().unwrap();
    for object in render(&[]) {
        if let Some(pod) = pods::made(&object, NARROW) {
            let said = apply(&ground.cluster, dir.path(), &pod, &["--dry-run=server"]);
            assert!(said.contains("created"), "{}: {said}", called(&object));
        }
    }
}

fn a_second_release_is_refused(ground: &Ground) {
    let _second = ground.space("second");
    let (chart, kubeconfig) = (chart(), ground.cluster.kubeconfig().to_str().unwrap());
    let how = ["--namespace", "second", "--kubeconfig", kubeconfig];
    let error = helm(&[&["install", "other", chart.to_str().unwrap()], &how[..]].concat()).unwrap_err();
    assert!(error.contains("exists and cannot be imported into the current release"), "{error}");
}
