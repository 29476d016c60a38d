//! What the agent holds, for apps that show it.

use std::fmt;

use cosid_id::Layout;
use serde::Deserialize;

/// What the agent holds and what it is doing. All times are Unix ms.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Lease {
    /// The pool, as `namespace/name`; empty while the agent has not found it.
    pub pool: String,
    /// The owner's key.
    pub key: String,
    /// What the agent says in words.
    pub message: String,
    /// What it is doing.
    pub state: LeaseState,
}

/// What an agent is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LeaseState {
    /// It reads its pool and its old state.
    Starting,
    /// It tries to get a slot.
    Seeking,
    /// All slots are held by others; it goes on trying.
    Exhausted {
        /// When the first of them may be taken over, by the store's clock, as far as known.
        earliest_expiry: Option<u64>,
    },
    /// It may not have a slot.
    Refused,
    /// It holds a slot.
    Held(Held),
    /// It holds a slot whose page it can't make, as on a full disk; it tries on.
    Blocked,
    /// It gives its slot back.
    Closing,
    /// It holds nothing and ends.
    Stopped,
    /// A state that this version does not know.
    Unknown(String),
}

/// A slot and its window.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Held {
    /// The slot.
    pub slot: u32,
    /// Grows by 1 at each change of ownership.
    pub fence: u64,
    /// Every timestamp issued is above it.
    pub floor: u64,
    /// No timestamp issued is above it; moved on at each renewal.
    pub ceiling: u64,
    /// When others may take the slot, by the store's clock.
    pub expires_at: u64,
    /// The layout of the pool's IDs.
    pub layout: Layout,
    /// The page's file name, next to the socket.
    pub page: String,
}

impl fmt::Display for LeaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Seeking => "seeking",
            Self::Exhausted { .. } => "exhausted",
            Self::Refused => "refused",
            Self::Held(_) => "held",
            Self::Blocked => "blocked",
            Self::Closing => "closing",
            Self::Stopped => "stopped",
            Self::Unknown(state) => state,
        })
    }
}

/// What is there in every state.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    state: String,
    #[serde(default)]
    pool: Option<String>,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    earliest_expiry: Option<u64>,
}

impl Lease {
    /// Reads the agent's answer. What is held is read in the state `held` only, and then has to be complete.
    pub(crate) fn read(json: &[u8]) -> serde_json::Result<Self> {
        let body: Body = serde_json::from_slice(json)?;
        let state = match body.state.as_str() {
            "starting" => LeaseState::Starting,
            "seeking" => LeaseState::Seeking,
            "exhausted" => LeaseState::Exhausted { earliest_expiry: body.earliest_expiry },
            "refused" => LeaseState::Refused,
            "held" => LeaseState::Held(serde_json::from_slice(json)?),
            "blocked" => LeaseState::Blocked,
            "closing" => LeaseState::Closing,
            "stopped" => LeaseState::Stopped,
            _ => LeaseState::Unknown(body.state),
        };
        Ok(Self {
            pool: body.pool.unwrap_or_default(),
            key: body.key.unwrap_or_default(),
            message: body.message.unwrap_or_default(),
            state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(json: &str) -> Lease {
        Lease::read(json.as_bytes()).unwrap()
    }

    #[test]
    fn a_held_lease_says_what_is_held() {
        let lease = lease(
            r#"{"state":"held","message":"m","pool":"shop/orders","key":"shop/web-0","slot":3,"fence":7,
                "floor":1,"ceiling":2,"expiresAt":3,"layout":{"timestampBits":41,"slotBits":10,
                "sequenceBits":12,"unitMillis":1,"epoch":1577203200000},"page":"slot-3-fence-7.page",
                "later":{"x":1}}"#,
        );
        let LeaseState::Held(held) = &lease.state else { panic!("{lease:?}") };
        assert_eq!((held.slot, held.fence, held.floor, held.ceiling, held.expires_at), (3, 7, 1, 2, 3));
        assert_eq!(held.layout, Layout::MILLISECOND);
        assert_eq!(held.page, "slot-3-fence-7.page");
        assert_eq!((lease.pool.as_str(), lease.key.as_str()), ("shop/orders", "shop/web-0"));
    }

    #[test]
    fn a_lease_without_slot_says_why() {
        let exhausted = lease(r#"{"state":"exhausted","message":"8 of 8 held","earliestExpiry":9}"#);
        assert_eq!(exhausted.state, LeaseState::Exhausted { earliest_expiry: Some(9) });
        assert_eq!(exhausted.message, "8 of 8 held");
        assert_eq!(lease(r#"{"state":"seeking"}"#).state, LeaseState::Seeking);
        assert_eq!(lease(r#"{"state":"starting","pool":null}"#).state, LeaseState::Starting);
    }

    #[test]
    fn a_state_of_a_later_version_keeps_its_name() {
        assert_eq!(lease(r#"{"state":"resting"}"#).state.to_string(), "resting");
    }

    #[test]
    fn held_without_saying_what_is_no_lease() {
        assert!(Lease::read(br#"{"state":"held","slot":3}"#).is_err());
    }
}
