//! Why there is no generator or no ID, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cosid_id::{NextError, Wait};

/// Why there is no generator or no ID, and what to do about it. A variant for each thing a caller would treat
/// differently.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody said where the agent's socket is.
    #[error(
        "COSID_SOCKET is not set, so there is no agent to get a slot from; in Kubernetes annotate the pod with \
         `cosid/slot: auto` (docs/injection.md), elsewhere start `cosid-agent --store memory`, and set COSID_SOCKET to its socket"
    )]
    NoSocket,
    /// The path cannot be a Unix socket's.
    #[error("`{}` cannot be the path of a Unix socket: {why}; set COSID_SOCKET to a shorter absolute path", path.display())]
    BadSocketPath {
        /// The path given.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No agent listens there: the socket is missing, or left over from an agent that has gone.
    #[error("no agent at {}: {source}; start the agent, or set COSID_SOCKET to the socket of one that runs", socket.display())]
    AgentAbsent {
        /// The socket tried.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The agent did not answer in time.
    #[error("the agent at {} did not answer within {waited:?}; look at its log and its CPU limit, or allow more time", socket.display())]
    AgentSlow {
        /// The socket asked.
        socket: PathBuf,
        /// How long one request was waited for.
        waited: Duration,
    },
    /// The connection to the agent failed.
    #[error("cannot {action} the agent at {}: {source}; check that this user may use the socket and that the agent runs", socket.display())]
    Connection {
        /// What was tried, as a verb.
        action: &'static str,
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What answered does not speak the agent's protocol.
    #[error("the answer of {} is not an agent's: {what}; check that COSID_SOCKET is the agent's socket and that agent and program fit together", socket.display())]
    BadAnswer {
        /// The socket asked.
        socket: PathBuf,
        /// What is wrong with the answer.
        what: String,
    },
    /// The page is not the one that the agent spoke of, and is not used.
    #[error("page {} is not the agent's: {what}; check that the directory belongs to this agent alone", page.display())]
    PageMismatch {
        /// The page.
        page: PathBuf,
        /// What differs.
        what: String,
    },
    /// The page cannot be opened.
    #[error(transparent)]
    Page(cosid_id::Error),
    /// A generator's name that no agent would take.
    #[error(
        "`{name}` is no generator name: 1 to {max} letters, digits, `.`, `_` or `-`; rename the generator"
    )]
    BadName {
        /// The name given, cut to a length that fits a log line.
        name: String,
        /// Bytes that a name may have.
        max: usize,
    },
    /// The agent holds no slot yet; it goes on trying.
    #[error("the agent has no slot yet: {message}; try again, or look at the agent's /readyz")]
    NoSlot {
        /// What the agent says.
        message: String,
    },
    /// All slots of the pool are held; the agent goes on trying.
    #[error("all slots are held: {message}; wait for one to expire, or give the pool more slots")]
    Exhausted {
        /// What the agent says: the pool and its size.
        message: String,
        /// Unix ms by the store's clock: when the first of them may be taken over, as far as known.
        earliest_expiry: Option<u64>,
    },
    /// The agent may not have a slot, for a reason that waiting does not change.
    #[error("the agent is refused a slot: {message}; change what it names, the agent then goes on by itself")]
    Refused {
        /// What the agent says.
        message: String,
    },
    /// The agent holds a slot, but can't make its page; it tries on.
    #[error("the agent has no page: {message}; mend what it names, the agent then goes on by itself")]
    Blocked {
        /// What the agent says: the page and what stands in its way.
        message: String,
    },
    /// The page has no cell left for another name.
    #[error("there is no room for the generator `{name}`: {message}; use fewer generator names in this pod")]
    TooManyGenerators {
        /// The generator that got none.
        name: String,
        /// What the agent says.
        message: String,
    },
    /// The name's IDs have another layout than the one asked for.
    #[error(
        "the generator `{name}` has another layout: {message}; ask for the one that it has, or take another name"
    )]
    OtherLayout {
        /// The generator.
        name: String,
        /// Both layouts.
        message: String,
    },
    /// The pool's slots, or its width, have no room for the layout asked for.
    #[error("the generator `{name}` can't have that layout: {message}")]
    UnfitLayout {
        /// The generator.
        name: String,
        /// What the agent says: the layout and what the pool has room for.
        message: String,
    },
    /// The agent is ending and gives its slot back.
    #[error("the agent is closing: {message}; this pod makes no more IDs until an agent is started again")]
    Closing {
        /// What the agent says.
        message: String,
    },
    /// The agent refused for a reason that this version does not know.
    #[error("the agent answered {status} {reason}: {message}; look at the agent's log")]
    Agent {
        /// The HTTP status.
        status: u16,
        /// The agent's word for the reason; empty if it gave none.
        reason: String,
        /// What the agent says.
        message: String,
    },
    /// The slot is lost, and the agent had no other within the time allowed.
    #[error(
        "the slot is lost and there was no other within {waited:?}; try again, or look at the agent's /readyz"
    )]
    SlotLost {
        /// How long the agent was asked for another.
        waited: Duration,
    },
    /// No ID could be made within the time allowed, but it can be later.
    #[error("no ID within the time allowed: {0}")]
    NotYet(Wait),
    /// No ID can be made, and waiting does not help.
    #[error(transparent)]
    Impossible(NextError),
}

impl Error {
    /// Whether the same call can succeed later without anybody changing anything.
    ///
    /// ```
    /// let error = cosid_client::Error::NoSlot { message: "the pool is being read".into() };
    /// assert!(error.is_transient());
    /// assert!(!cosid_client::Error::NoSocket.is_transient());
    /// ```
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.is_passing() || matches!(self, Self::Exhausted { .. } | Self::Blocked { .. } | Self::NotYet(_))
    }

    /// Whether to ask again within the time that the caller allows: for what passes in moments, such as an
    /// agent that is being restarted or a page that has just been replaced.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::AgentAbsent { .. }
            | Self::AgentSlow { .. }
            | Self::Connection { .. }
            | Self::NoSlot { .. }
            | Self::SlotLost { .. } => true,
            Self::Page(cosid_id::Error::Io { source, .. }) => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }
}

impl From<NextError> for Error {
    fn from(error: NextError) -> Self {
        match error {
            NextError::Wait(wait) => Self::NotYet(wait),
            NextError::SlotLost => Self::SlotLost { waited: Duration::ZERO },
            other => Self::Impossible(other),
        }
    }
}
