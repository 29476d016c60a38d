//! What a linter of manifests says.

use std::fs;
use std::process::Command;

use serde_json::Value;
use xtask::tools;

use crate::helm::{EVERYTHING, MODES, ha, set, template};

/// What is not done as the linter would have it, and why.
const EXCEPTIONS: [(&str, &str); 2] = [
    (
        "container-ephemeral-storage-request-and-limit",
        "nothing is written but the log, which the kubelet rotates: a limit could only evict the controller",
    ),
    (
        "container-image-pull-policy",
        "a node that can't reach the registry must be able to start the controller again; tags are not used twice",
    ),
];

#[test]
fn the_linter_is_content_but_for_exceptions_that_have_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let mut failing = Vec::new();
    for mode in MODES {
        let text = template(&[&["--values", &ha()], &set(&[&EVERYTHING[..], &[mode]].concat())[..]].concat());
        let file = dir.path().join("all.yaml");
        fs::write(&file, text.unwrap()).unwrap();
        let mut score = Command::new(tools::kube_score().unwrap());
        score.args(["score", "--output-format=json", "--kubernetes-version=v1.33"]);
        // Its exit code says whether all is well, exceptions and all: the list is what counts.
        let output = score.arg(&file).output().unwrap();
        let objects: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        assert!(objects.len() >= 3, "{objects:#?}");
        for object in &objects {
            let checks = object["checks"].as_array().unwrap().iter();
            let failed =
                checks.filter(|check| check["skipped"] == false && check["grade"].as_i64() < Some(10));
            failing.extend(failed.map(|check| check["check"]["id"].as_str().unwrap().to_owned()));
        }
    }
    let excepted = |id: &String| EXCEPTIONS.iter().any(|(name, _)| name == id);
    assert!(failing.iter().all(excepted), "{failing:?}");
    // An exception that is no longer needed goes.
    assert!(EXCEPTIONS.iter().all(|(name, _)| failing.iter().any(|id| id == name)), "{failing:?}");
}
