//! `docs/slotpool.md`: the fields of a SlotPool, as a person looks them up, from the CRD's schema.

use std::fmt::Write as _;

use cosid_kube::pool::crd_yaml;
use serde_json::Value;
use xtask::{Error, Result};

const HEAD: &str = "\
<!-- Written by `cargo xtask codegen` from the types. Don't edit. -->
# The SlotPool

A pool is one ID space. All of its fields have defaults: `spec: {}` is a pool of 1,024 slots for IDs of 41 bits of milliseconds, 10 of
slot and 12 of sequence ([examples/slotpool.yaml](../examples/slotpool.yaml)). `kubectl explain slotpool.spec` has the same in a cluster.

";

const COLUMNS: &str = "| field | type | default | bounds | what it is |\n|---|---|---|---|---|\n";

/// The page.
pub(super) fn page() -> Result<String> {
    let yaml = crd_yaml().map_err(|error| Error::Wrong(error.to_string()))?;
    let crd: Value = serde_saphyr::from_str(&yaml).map_err(|error| Error::Wrong(error.to_string()))?;
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let mut text = HEAD.to_owned();
    for (part, title) in [("spec", "What you say"), ("status", "What the controller found")] {
        text.extend(["## `", part, "`: ", title, "\n\n", COLUMNS]);
        fields(part, &schema[part], &mut text);
        rules(&schema[part], &mut text);
    }
    Ok(text)
}

/// A line for each field, and for those within it.
fn fields(path: &str, schema: &Value, text: &mut String) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let default = match &field["default"] {
            Value::Null => String::new(),
            // Those of its fields, each with its own line.
            Value::Object(_) => String::new(),
            value => format!("`{}`", value.to_string().trim_matches('"')),
        };
        let mut what = field["description"].as_str().unwrap_or_default().replace(['\n', '|'], " ");
        for rule in field["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let _ = write!(what, " *Checked: {}.*", rule["message"].as_str().unwrap_or_default());
        }
        let (kind, bounds) = (kind(field), bounds(field));
        let _ = writeln!(text, "| `{path}` | {kind} | {default} | {bounds} | {what} |");
        fields(&path, field, text);
        fields(&format!("{path}[]"), &field["items"], text);
    }
}

/// What holds for several fields at once.
fn rules(schema: &Value, text: &mut String) {
    text.push('\n');
    let rules = schema["x-kubernetes-validations"].as_array();
    if rules.is_some() {
        text.push_str("Checked, too:\n\n");
    }
    for rule in rules.into_iter().flatten() {
        let _ = writeln!(text, "* {}", rule["message"].as_str().unwrap_or_default());
    }
    if rules.is_some() {
        text.push('\n');
    }
}

fn kind(field: &Value) -> String {
    let own = field["type"].as_str().unwrap_or_default();
    match (field["format"].as_str(), field["items"]["type"].as_str()) {
        (_, Some(item)) => format!("list of {item}s"),
        (Some("date-time"), _) => "time, RFC 3339".to_owned(),
        _ => own.to_owned(),
    }
}

fn bounds(field: &Value) -> String {
    let range = |of: &Value| {
        let end = |name: &str| of[name].as_f64().map(|end| end.to_string());
        match (end("minimum"), end("maximum")) {
            (Some(least), Some(most)) => Some(format!("{least} to {most}")),
            (Some(least), None) => Some(format!("at least {least}")),
            (None, Some(most)) => Some(format!("at most {most}")),
            (None, None) => of["maxLength"].as_u64().map(|most| format!("at most {most} characters")),
        }
    };
    let choices = field["enum"].as_array().map(|choices| {
        let choices = choices.iter().filter_map(Value::as_str).map(|choice| format!("`{choice}`"));
        choices.collect::<Vec<_>>().join(", ")
    });
    let most = field["maxItems"].as_u64().map(|most| format!("at most {most}"));
    let each = range(&field["items"]).map(|range| format!("each {range}"));
    [choices, range(field), most, each].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_field_has_its_type_default_bounds_and_what_it_is() {
        let page = super::page().unwrap();
        let line = |field: &str| {
            let start = format!("| `{field}` | ");
            page.lines().find(|line| line.starts_with(&start)).unwrap_or_default().to_owned()
        };
        assert!(
            line("spec.bits").starts_with("| `spec.bits` | integer | `10` | 1 to 20 | The width of"),
            "{page}"
        );
        assert!(
            line("spec.reserved").contains("| list of integers | `[]` | at most 1024; each 0 to 1048575 |")
        );
        assert!(line("spec.layout.order").contains("`timestamp-slot-sequence`, `timestamp-sequence-slot`"));
        assert!(line("status.watermark.nextFloor").contains("Unix ms"));
    }
}
