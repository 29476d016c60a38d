//! That the documents speak of what there is.

use std::fs;

use xtask::paths;

#[test]
fn every_test_that_the_guarantees_name_exists() {
    let text = fs::read_to_string(paths::workspace().join("docs/guarantees.md")).unwrap();
    let named: Vec<(&str, &str)> =
        text.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(".rs::")).collect();
    assert!(named.len() > 30, "{named:?}");
    let missing: Vec<String> = named
        .into_iter()
        .filter(|(file, test)| {
            let source = fs::read_to_string(paths::workspace().join(format!("{file}.rs")));
            !source.is_ok_and(|source| source.contains(&format!("fn {test}(")))
        })
        .map(|(file, test)| format!("{file}.rs::{test}"))
        .collect();
    assert!(missing.is_empty(), "docs/guarantees.md names tests that are not there: {missing:#?}");
}
