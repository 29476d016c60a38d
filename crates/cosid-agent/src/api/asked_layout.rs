//! A layout in a request's query, in the words that answers have for it.

use std::collections::BTreeMap;

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use cosid_id::Layout;
use serde_json::{Map, Value};

use super::{Failure, bad_query};

/// A layout that leaves one of these out is none: what is left to a default is soon another layout than was meant.
const NEEDED: [&str; 5] = ["timestampBits", "slotBits", "sequenceBits", "unitMillis", "epoch"];

/// Answers leave them out where they are as in most layouts.
const MORE: [&str; 2] = ["order", "sequenceThreshold"];

/// A request's query as it comes.
pub(super) type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// A query's parameters, each of them once. Unknown ones are refused: somebody means something by them.
#[derive(Debug)]
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// `others` are those that the request has besides a layout.
    pub(super) fn read(pairs: Pairs, others: &[&str]) -> Result<Self, Failure> {
        let Query(pairs) = pairs.map_err(bad_query)?;
        let known = [others, &NEEDED[..], &MORE[..]].concat();
        let mut parameters = BTreeMap::new();
        for (name, value) in pairs {
            let shown = excerpt(&name);
            if !known.contains(&name.as_str()) {
                let known = known.join(", ");
                return Err(refused(
                    "BadQuery",
                    format!("there is no parameter `{shown}`; there are {known}"),
                ));
            }
            if parameters.insert(name, value).is_some() {
                return Err(refused("BadQuery", format!("`{shown}` is there twice; give it once")));
            }
        }
        Ok(Self(parameters))
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// The layout; `None` if the query says nothing of it.
    pub(super) fn layout(&self) -> Result<Option<Layout>, Failure> {
        let mut fields = Map::new();
        for name in NEEDED.into_iter().chain(MORE) {
            let Some(text) = self.0.get(name) else { continue };
            let value = if name == "order" { order(text)? } else { number(name, text)? };
            fields.insert(name.to_owned(), value);
        }
        if fields.is_empty() {
            return Ok(None);
        }
        if let Some(missing) = NEEDED.iter().find(|name| !fields.contains_key(**name)) {
            let all = NEEDED.join(", ");
            return Err(bad(format!(
                "`{missing}` is missing; give all of {all}, or none for the pool's layout"
            )));
        }
        serde_json::from_value(Value::Object(fields)).map(Some).map_err(|error| bad(error.to_string()))
    }
}

fn order(text: &str) -> Result<Value, Failure> {
    match text {
        "slotSequence" | "sequenceSlot" => Ok(text.into()),
        _ => Err(bad(format!("`order` is `{}`; give slotSequence or sequenceSlot", excerpt(text)))),
    }
}

/// Bits are below 256, and a unit or threshold below 2^32: as larger ones they would be refused without their name.
fn number(name: &str, text: &str) -> Result<Value, Failure> {
    let most = match name {
        "epoch" => u64::MAX,
        "unitMillis" | "sequenceThreshold" => u32::MAX.into(),
        _ => u8::MAX.into(),
    };
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(number) if digits && number <= most => Ok(number.into()),
        _ => Err(bad(format!("`{name}` is `{}`; give a number from 0 to {most}", excerpt(text)))),
    }
}

fn bad(message: String) -> Failure {
    refused("BadLayout", message)
}

fn refused(reason: &'static str, message: String) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, reason, message)
}

/// The start of a text from outside, short enough for a message.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use cosid_id::FieldOrder;

    use super::*;

    const OWN: &str = "timestampBits=31&slotBits=10&sequenceBits=22&unitMillis=1000&epoch=1577203200000";

    fn layout(query: &str) -> Result<Option<Layout>, String> {
        let pairs = Query::try_from_uri(&format!("/v1/ids?{query}").parse().unwrap());
        let read = Parameters::read(pairs, &["count"]).and_then(|parameters| parameters.layout());
        read.map_err(|failure| format!("{} {}", failure.reason, failure.message))
    }

    #[test]
    fn a_query_says_a_layout_in_the_words_of_an_answer() {
        assert_eq!(layout(""), Ok(None));
        assert_eq!(layout("count=3"), Ok(None));
        assert_eq!(layout(OWN), Ok(Some(Layout::SECOND)));
        let more = layout(&format!("{OWN}&order=sequenceSlot&sequenceThreshold=9")).unwrap().unwrap();
        assert_eq!((more.order(), more.sequence_threshold()), (FieldOrder::SequenceSlot, 9));
    }

    #[test]
    fn what_is_no_layout_is_refused_by_the_fields_name() {
        for field in NEEDED {
            let without =
                OWN.split('&').filter(|part| !part.starts_with(field)).collect::<Vec<_>>().join("&");
            let error = layout(&without).unwrap_err();
            assert!(error.starts_with(&format!("BadLayout `{field}` is missing")), "{error}");
            for value in ["", "x", "-1", "%2B1", "1.0", "99999999999999999999"] {
                let error = layout(&format!("{without}&{field}={value}")).unwrap_err();
                assert!(error.starts_with(&format!("BadLayout `{field}` is `")), "{error}");
            }
            let error = layout(&format!("{OWN}&{field}=1")).unwrap_err();
            assert!(error.starts_with(&format!("BadQuery `{field}` is there twice")), "{error}");
        }
        assert!(layout("order=sequenceSlot").unwrap_err().contains("`timestampBits` is missing"));
        assert!(layout(&format!("{OWN}&order=up")).unwrap_err().contains("`order` is `up`"));
        assert!(
            layout(&format!("{OWN}&timestampbits=31")).unwrap_err().contains("no parameter `timestampbits`")
        );
        let wide = OWN.replace("sequenceBits=22", "sequenceBits=23");
        assert!(layout(&wide).unwrap_err().contains("63"), "{:?}", layout(&wide));
    }
}
