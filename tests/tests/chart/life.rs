//! The chart's life: installed, upgraded, gone, and back.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use xtask::cluster::{Cluster, Options};

use crate::helm::{SYSTEM, chart, helm};

/// Helm on a cluster.
struct Site<'c>(&'c Cluster);

impl Site<'_> {
    fn helm(&self, args: &[&str]) -> String {
        let how = ["--namespace", SYSTEM, "--kubeconfig", self.0.kubeconfig().to_str().unwrap()];
        helm(&[args, &how].concat()).unwrap()
    }

    fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let args = ["get", kind, name, "--ignore-not-found", "--output=json", "--namespace", SYSTEM];
        let text = self.0.kubectl(&args).unwrap();
        (!text.trim().is_empty()).then(|| serde_json::from_str(&text).unwrap())
    }
}

/// The chart as an older one might have been: its resource has no column `Age`.
fn older(dir: &Path) -> String {
    let copied = Command::new("cp").arg("-r").arg(chart()).arg(dir).status().unwrap();
    assert!(copied.success());
    let path = dir.join("cosid/files/slotpools.cosid.dev.yaml");
    let mut crd = crate::helm::read(&path).remove(0);
    let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array_mut().unwrap();
    columns.retain(|column| column["name"] != "Age");
    fs::write(&path, crd.to_string()).unwrap();
    dir.join("cosid").to_str().unwrap().to_owned()
}

#[test]
fn pools_and_their_resource_outlive_the_chart_and_an_upgrade_renews_the_resource() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(Options::default()).unwrap();
    let site = Site(&cluster);
    let chart = chart();
    let chart = chart.to_str().unwrap();
    cluster.kubectl(&["create", "namespace", SYSTEM]).unwrap();
    let has_age = || site.get("crd", "slotpools.cosid.dev").unwrap().to_string().contains("\"Age\"");

    site.helm(&["install", "cosid", &older(dir.path())]);
    cluster.kubectl(&["wait", "--for=condition=Established", "crd/slotpools.cosid.dev"]).unwrap();
    assert!(!has_age());
    let pool = json!({
        "apiVersion": "cosid.dev/v1", "kind": "SlotPool",
        "metadata": { "name": "orders", "namespace": SYSTEM }, "spec": { "bits": 4 },
    });
    let file = dir.path().join("pool.json");
    fs::write(&file, pool.to_string()).unwrap();
    cluster.kubectl(&["apply", "--filename", file.to_str().unwrap()]).unwrap();
    let uid = site.get("slotpool", "orders").unwrap()["metadata"]["uid"].clone();

    site.helm(&["upgrade", "cosid", chart, "--set", "controller.replicas=3"]);
    assert!(has_age());
    assert_eq!(site.get("deployment", "cosid-controller").unwrap()["spec"]["replicas"], 3);
    assert_eq!(site.get("slotpool", "orders").unwrap()["metadata"]["uid"], uid);

    // Taken out of the chart's hands, and given back.
    site.helm(&["upgrade", "cosid", chart, "--set", "crds.install=false"]);
    assert!(site.get("crd", "slotpools.cosid.dev").is_some());
    site.helm(&["upgrade", "cosid", chart]);

    site.helm(&["uninstall", "cosid"]);
    assert!(site.get("crd", "slotpools.cosid.dev").is_some());
    assert_eq!(site.get("slotpool", "orders").unwrap()["metadata"]["uid"], uid);
    for (kind, name) in [
        ("deployment", "cosid-controller"),
        ("clusterrole", "cosid-controller"),
        ("serviceaccount", "cosid-controller"),
        ("validatingadmissionpolicy", "cosid-slot-lives"),
        ("validatingadmissionpolicybinding", "cosid-slot-updates"),
        ("flowschema", "cosid-slots"),
    ] {
        assert_eq!(site.get(kind, name), None, "{kind} {name}");
    }

    site.helm(&["install", "cosid", chart]);
    assert!(site.get("deployment", "cosid-controller").is_some());
    assert_eq!(site.get("slotpool", "orders").unwrap()["metadata"]["uid"], uid);
}
