//! Values and messages as CEL, the language of the API server's policies.
//!
//! A text may have [holes](hole): an expression is evaluated there. So what is said and what is added are written once, and
//! filled in with a pod's values here, or with expressions that find them there.

use serde_json::Value;

/// What an expression stands between, in a text. It is in no text of a pod's: the API takes no control characters.
const MARK: char = '\u{1}';

/// The place for an expression's value.
pub(super) fn hole(expression: &str) -> String {
    format!("{MARK}{expression}{MARK}")
}

/// A text as an expression of a string.
pub(super) fn text(text: &str) -> String {
    let pieces = text.split(MARK).enumerate();
    let pieces = pieces.filter(|(number, piece)| number % 2 == 1 || !piece.is_empty());
    let quoted: Vec<String> = pieces
        .map(|(number, piece)| if number % 2 == 1 { piece.to_owned() } else { literal(piece) })
        .collect();
    if quoted.is_empty() { "''".to_owned() } else { quoted.join(" + ") }
}

/// A text as a literal.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
}

/// A list of texts as a literal.
pub(super) fn literals<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    format!("[{}]", texts.into_iter().map(literal).collect::<Vec<_>>().join(", "))
}

/// A value as one of this type, such as `Object.spec.volumes`: what mutations are made of. No two braces stand side by
/// side, as they would mean something to Helm.
pub(super) fn object(type_: &str, value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{name}: {}", object(&format!("{type_}.{name}"), value)));
            format!("{type_}{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| object(type_, item));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        Value::String(value) => text(value),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_quoted_and_its_holes_are_expressions() {
        assert_eq!(text("it's a \\"), r"'it\'s a \\'");
        assert_eq!(text(&format!("a {} b", hole("f('x')"))), "'a ' + f('x') + ' b'");
        assert_eq!((text(&hole("x")), text("")), ("x".into(), "''".into()));
    }

    #[test]
    fn a_value_has_the_type_of_its_place() {
        let value = json!({ "name": "a", "ports": [{ "port": 1 }], "on": true, "args": ["x", hole("?y")] });
        assert_eq!(
            object("Object.spec", &value),
            "Object.spec{args: ['x', ?y], name: 'a', on: true, ports: [Object.spec.ports{port: 1}]}"
        );
    }
}
