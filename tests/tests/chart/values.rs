//! What may be set, and what is refused.

use serde_json::Value;

use crate::helm::{EVERYTHING, MODES, chart, ha, helm, read, set, template};

#[test]
fn helm_finds_nothing_to_say_against_the_chart() {
    let chart = chart();
    let lint = |args: &[&str]| helm(&[&["lint", "--strict", chart.to_str().unwrap()], args].concat());
    lint(&[]).unwrap();
    lint(&["--values", &ha()]).unwrap();
    for mode in MODES {
        lint(&set(&[&EVERYTHING[..], &[mode]].concat())).unwrap();
    }
}

#[test]
fn a_key_or_a_value_that_does_not_exist_is_refused_by_name() {
    for (value, named) in [
        ("controler.replicas=2", "'controler' not allowed"),
        ("controller.replica=2", "'replica' not allowed"),
        ("controller.image.name=x", "'name' not allowed"),
        ("controller.replicas=two", "/controller/replicas"),
        ("controller.replicas=0", "/controller/replicas"),
        ("controller.spread=maybe", "'preferred', 'required'"),
        ("controller.resources.limits.memory=lots", "/controller/resources/limits/memory"),
        ("injector.mode=sidecar", "'webhook', 'policy', 'none'"),
        ("injector.failurePolicy=Maybe", "'Fail', 'Ignore'"),
        ("networkPolicy.apiServerPorts={}", "/networkPolicy/apiServerPorts"),
        ("monitoring.podMonitor.interval=often", "/monitoring/podMonitor/interval"),
    ] {
        let error = template(&["--set", value]).unwrap_err();
        assert!(error.contains(named), "{value}: {error}");
    }
}

#[test]
fn every_key_has_a_description_and_every_default_is_in_the_schema() {
    let schema = std::fs::read_to_string(chart().join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    describe(&schema, "values");
    let values = read(&chart().join("values.yaml")).remove(0);
    let known = schema["properties"].as_object().unwrap();
    for key in values.as_object().unwrap().keys() {
        assert!(known.contains_key(key), "{key} is not in the schema");
    }
}

fn describe(schema: &Value, path: &str) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        // What pods need is described by Kubernetes.
        if ["requests", "limits"].contains(&path.rsplit('.').next().unwrap_or_default()) {
            return;
        }
        assert!(inner["description"].is_string(), "{path}.{key} has no description");
        describe(inner, &format!("{path}.{key}"));
    }
}
