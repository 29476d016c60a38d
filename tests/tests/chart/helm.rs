//! Helm as a person runs it, and what it renders.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use xtask::{paths, tools};

/// Where everything is installed.
pub(crate) const SYSTEM: &str = "cosid-system";

/// The ways in which annotated pods get their agent.
pub(crate) const MODES: [&str; 3] = ["injector.mode=webhook", "injector.mode=policy", "injector.mode=none"];

/// Everything that has a switch, on.
pub(crate) const EVERYTHING: [&str; 3] =
    ["networkPolicy.enabled=true", "monitoring.podMonitor.enabled=true", "monitoring.rules.enabled=true"];

/// The chart.
pub(crate) fn chart() -> PathBuf {
    paths::workspace().join("charts/cosid")
}

/// The values of a production cluster.
pub(crate) fn ha() -> String {
    chart().join("values-ha.yaml").to_str().unwrap().to_owned()
}

/// Runs helm; what it wrote to standard output, or to standard error where it failed.
pub(crate) fn helm(args: &[&str]) -> Result<String, String> {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    let helm = HELM.get_or_init(|| tools::helm().unwrap());
    // Nothing of the user's own: no plugins, repositories, kubeconfig.
    let home = std::env::temp_dir().join("cosid-helm");
    let output = Command::new(helm).args(args).env_clear().env("HOME", home).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The arguments that set these values.
pub(crate) fn set<'a>(values: &[&'a str]) -> Vec<&'a str> {
    values.iter().flat_map(|value| ["--set", value]).collect()
}

/// What the release `cosid` would install, as text.
pub(crate) fn template(args: &[&str]) -> Result<String, String> {
    let chart = chart();
    helm(&[&["template", "cosid", chart.to_str().unwrap(), "--namespace", SYSTEM], args].concat())
}

/// The same as objects.
pub(crate) fn render(args: &[&str]) -> Vec<Value> {
    parse(&template(args).unwrap())
}

/// The objects of a YAML file.
pub(crate) fn parse(yaml: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    all.into_iter().filter(|object| !object.is_null()).collect()
}

/// The objects of a file.
pub(crate) fn read(path: &Path) -> Vec<Value> {
    parse(&std::fs::read_to_string(path).unwrap())
}

/// The one object of that kind and name.
pub(crate) fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found =
        objects.iter().filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    let first = found.next().unwrap_or_else(|| panic!("there is no {kind} {name}"));
    assert!(found.next().is_none(), "there are two {kind} {name}");
    first
}

/// What a message calls an object.
pub(crate) fn called(object: &Value) -> String {
    format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
}
