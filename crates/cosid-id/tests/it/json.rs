//! IDs in JSON.

use cosid_id::Id;
use serde::{Deserialize, Serialize};

const TEXT: &str = "295913926632165376";

#[derive(Serialize, Deserialize)]
struct ForJavaScript {
    #[serde(with = "cosid_id::serde_string")]
    id: Id,
}

#[test]
fn an_id_is_a_number_unless_a_string_is_asked_for() {
    let id: Id = TEXT.parse().unwrap();
    assert_eq!(serde_json::to_string(&id).unwrap(), TEXT);
    let json = serde_json::to_string(&ForJavaScript { id }).unwrap();
    assert_eq!(json, format!(r#"{{"id":"{TEXT}"}}"#));
}

#[test]
fn numbers_and_strings_are_read_either_way() {
    for json in [TEXT.to_owned(), format!("\"{TEXT}\"")] {
        assert_eq!(serde_json::from_str::<Id>(&json).unwrap().to_string(), TEXT);
        let order: ForJavaScript = serde_json::from_str(&format!(r#"{{"id":{json}}}"#)).unwrap();
        assert_eq!(order.id.to_string(), TEXT);
    }
}

#[test]
fn what_is_no_id_is_refused_and_never_wrapped_or_rounded() {
    for json in [
        "-1",
        "9223372036854775808",
        "18446744073709551616",
        "1.0",
        "1e3",
        "\"\"",
        "\"-1\"",
        "\"LrHucX\"",
        "null",
        "[1]",
    ] {
        assert!(serde_json::from_str::<Id>(json).is_err(), "{json}");
        let order = serde_json::from_str::<ForJavaScript>(&format!(r#"{{"id":{json}}}"#));
        assert!(order.is_err(), "{json}");
    }
}
