//! What the agent says about a generator, and its refusals.

use serde::Deserialize;

use crate::error::Error;

/// Where a named generator lives.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(crate) struct Placement {
    pub(crate) generator: String,
    pub(crate) cell: usize,
    pub(crate) pool: String,
    pub(crate) slot: u32,
    pub(crate) fence: u64,
    /// The page's file name, in the socket's directory.
    pub(crate) page: String,
}

#[derive(Deserialize)]
struct RefusalBody {
    error: Refusal,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Refusal {
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    earliest_expiry: Option<u64>,
}

/// The error of an answer with another status than 200. `generator` is the one that was asked for, if any.
pub(crate) fn refusal(status: u16, body: &[u8], generator: &str) -> Error {
    let Ok(RefusalBody { error }) = serde_json::from_slice(body) else {
        let message = String::from_utf8_lossy(body).trim().chars().take(200).collect();
        return Error::Agent { status, reason: String::new(), message };
    };
    let Refusal { reason, message, earliest_expiry } = error;
    match reason.as_str() {
        "NoSlot" => Error::NoSlot { message },
        "Exhausted" => Error::Exhausted { message, earliest_expiry },
        "Refused" => Error::Refused { message },
        "Blocked" => Error::Blocked { message },
        "TooManyGenerators" => Error::TooManyGenerators { name: generator.to_owned(), message },
        "OtherLayout" => Error::OtherLayout { name: generator.to_owned(), message },
        "UnfitLayout" => Error::UnfitLayout { name: generator.to_owned(), message },
        "Closing" => Error::Closing { message },
        _ => Error::Agent { status, reason, message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_the_agents_words() {
        let body = br#"{"error":{"reason":"Exhausted","message":"8 of 8","earliestExpiry":12,"later":0}}"#;
        let error = refusal(503, body, "orders");
        assert!(
            matches!(&error, Error::Exhausted { message, earliest_expiry: Some(12) } if message == "8 of 8"),
            "{error:?}"
        );
    }

    #[test]
    fn a_reason_of_a_later_version_is_told_with_its_name() {
        let error = refusal(409, br#"{"error":{"reason":"Resting","message":"m"}}"#, "orders");
        assert_eq!(error.to_string(), "the agent answered 409 Resting: m; look at the agent's log");
    }

    #[test]
    fn a_refusal_that_is_no_json_is_cut_to_a_log_line() {
        let error = refusal(502, &[b'x'; 5000], "orders");
        assert!(matches!(&error, Error::Agent { status: 502, message, .. } if message.len() == 200));
    }
}
