//! The manifests in `examples/`, read. That a real API server accepts them is in `served`.

use std::path::PathBuf;

use serde_json::Value;
use xtask::paths;

use crate::helm::{called, read};
use crate::pods;

/// All of them, by name.
pub(crate) fn manifests() -> Vec<(String, PathBuf)> {
    let dir = std::fs::read_dir(paths::workspace().join("examples")).unwrap();
    let paths = dir.map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    found.sort();
    found
}

#[test]
fn every_example_says_what_it_shows_and_is_in_the_table() {
    let table = std::fs::read_to_string(paths::workspace().join("examples/README.md")).unwrap();
    let names: Vec<_> = manifests().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "cronjob.yaml",
            "deployment.yaml",
            "forked-workers.yaml",
            "job.yaml",
            "pod.yaml",
            "shared-slot.yaml",
            "slotpool.yaml",
            "statefulset.yaml"
        ]
    );
    for (name, path) in manifests() {
        assert!(table.contains(&format!("[`{name}`]({name})")), "{name} is not in examples/README.md");
        assert!(std::fs::read_to_string(path).unwrap().starts_with("# "), "{name} begins with no comment");
    }
}

#[test]
fn every_example_runs_where_little_is_allowed() {
    for (_, path) in manifests() {
        read(&path).iter().for_each(pods::check_restricted);
    }
}

#[test]
fn every_workload_asks_for_a_slot_in_its_pods_and_only_there() {
    let mut asked = Vec::new();
    for (_, path) in manifests() {
        for object in read(&path) {
            let asks = |object: &Value| {
                let annotations = object["metadata"]["annotations"].as_object();
                annotations.into_iter().flatten().any(|(key, _)| key.starts_with("cosid/"))
            };
            let Some(pod) = pods::template(&object) else { continue };
            if object["kind"] == "Pod" {
                // Its agent is written by hand: annotated, it would have two.
                assert!(!asks(&object), "{}", called(&object));
                continue;
            }
            assert!(!asks(&object) && asks(pod), "{}", called(&object));
            let annotations = &pod["metadata"]["annotations"];
            let pool = if annotations["cosid/slot"] == "ordinal" { "ledger" } else { "orders" };
            assert_eq!(
                annotations["cosid/pool"],
                pool,
                "{}: ordinals have a pool of their own",
                called(&object)
            );
            asked.push((called(&object), annotations["cosid/slot"].clone()));
        }
    }
    let ordinal: Vec<_> = asked.iter().filter(|(_, slot)| *slot == "ordinal").map(|(name, _)| name).collect();
    assert_eq!(ordinal, ["StatefulSet ledger"]);
    assert!(asked.iter().all(|(_, slot)| *slot == "ordinal" || *slot == "auto"), "{asked:?}");
}
