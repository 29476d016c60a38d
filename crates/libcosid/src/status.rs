//! What a call says about how it went.

use cosid_client::{Error, NextError};

/// How a call went. `cosid_error` has it in words, with what to do about it. Numbers keep their meaning, new ones may come.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CosidStatus {
    /// It worked.
    Ok = 0,
    /// No ID within the time allowed; later there can be one.
    NotYet = 1,
    /// The slot is lost. After `cosid_try_next`: call `cosid_reconnect` or `cosid_next`. After others: there was no other slot
    /// within the time allowed; try again.
    SlotLost = 2,
    /// No path was given, and `COSID_SOCKET` is not set.
    NoSocket = 3,
    /// The path cannot be that of a Unix socket.
    BadSocketPath = 4,
    /// No agent listens there.
    AgentAbsent = 5,
    /// The agent did not answer in time.
    AgentSlow = 6,
    /// The connection to the agent failed.
    Connection = 7,
    /// What answered is no agent, or does not fit to this library.
    BadAnswer = 8,
    /// The agent's page cannot be used.
    Page = 9,
    /// A generator's name has 1 to 64 letters, digits, `.`, `_` or `-`.
    BadName = 10,
    /// The agent has no slot yet.
    NoSlot = 11,
    /// All slots of the pool are held by others.
    Exhausted = 12,
    /// The agent may not have a slot.
    Refused = 13,
    /// The agent has a slot, but cannot make its page.
    Blocked = 14,
    /// There is no room for another generator's name.
    TooManyGenerators = 15,
    /// The agent is ending.
    Closing = 16,
    /// The agent refused for another reason.
    Agent = 17,
    /// No ID can be made, and waiting does not help: this host's clock or the pool's layout.
    Impossible = 18,
    /// A null pointer, a text that is no UTF-8, or a count that is not 1 to 100000.
    BadArgument = 19,
    /// A fault in this library.
    Internal = 20,
}

/// Whether the same call can succeed later without anybody changing anything. Never blocks.
#[unsafe(no_mangle)]
pub extern "C" fn cosid_is_transient(status: i32) -> bool {
    use CosidStatus as S;
    let transient = [
        S::NotYet,
        S::SlotLost,
        S::AgentAbsent,
        S::AgentSlow,
        S::Connection,
        S::NoSlot,
        S::Exhausted,
        S::Blocked,
    ];
    transient.iter().any(|&known| known as i32 == status)
}

impl From<&Error> for CosidStatus {
    fn from(error: &Error) -> Self {
        match error {
            Error::NoSocket => Self::NoSocket,
            Error::BadSocketPath { .. } => Self::BadSocketPath,
            Error::AgentAbsent { .. } => Self::AgentAbsent,
            Error::AgentSlow { .. } => Self::AgentSlow,
            Error::Connection { .. } => Self::Connection,
            Error::BadAnswer { .. } => Self::BadAnswer,
            Error::PageMismatch { .. } | Error::Page(_) => Self::Page,
            Error::BadName { .. } => Self::BadName,
            Error::NoSlot { .. } => Self::NoSlot,
            Error::Exhausted { .. } => Self::Exhausted,
            Error::Refused { .. } => Self::Refused,
            Error::Blocked { .. } => Self::Blocked,
            Error::TooManyGenerators { .. } => Self::TooManyGenerators,
            Error::Closing { .. } => Self::Closing,
            Error::SlotLost { .. } => Self::SlotLost,
            Error::NotYet(_) => Self::NotYet,
            Error::Impossible(NextError::BadCount { .. }) => Self::BadArgument,
            Error::Impossible(_) => Self::Impossible,
            // The client's errors may grow: what is new comes from the agent.
            _ => Self::Agent,
        }
    }
}

impl From<NextError> for CosidStatus {
    fn from(error: NextError) -> Self {
        match error {
            NextError::Wait(_) => Self::NotYet,
            NextError::SlotLost => Self::SlotLost,
            NextError::BadCount { .. } => Self::BadArgument,
            _ => Self::Impossible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_calls_transient_is_transient_here() {
        let message = String::new;
        for error in [
            Error::NoSocket,
            Error::NoSlot { message: message() },
            Error::Exhausted { message: message(), earliest_expiry: None },
            Error::Refused { message: message() },
            Error::Blocked { message: message() },
            Error::Closing { message: message() },
            Error::SlotLost { waited: std::time::Duration::ZERO },
            Error::Impossible(NextError::SlotLost),
        ] {
            let status = CosidStatus::from(&error);
            assert_eq!(cosid_is_transient(status as i32), error.is_transient(), "{status:?}");
        }
        assert!(!cosid_is_transient(CosidStatus::Ok as i32) && !cosid_is_transient(4711));
    }
}
