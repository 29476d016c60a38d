//! What keeps the controller from doing what it wants to do. None of it ends the program but what [`Error::Setup`] says.

use std::time::Duration;

use thiserror::Error;

/// Why something could not be done.
#[derive(Debug, Error)]
pub enum Error {
    /// It can't start as it was told to.
    #[error("{0}")]
    Setup(String),
    /// The API server can't be used as configured.
    #[error("{0}")]
    Kube(#[from] cosid_kube::Error),
    /// Another replica leads, or might by now: nothing was written.
    #[error("this replica no longer leads; nothing was written")]
    NotLeading,
    /// An object has changed since it was read. Nothing was written; what is there now is read and judged anew.
    #[error("{0} has changed since it was read; trying again")]
    Conflict(String),
    /// The API server refused a call, or did not answer it.
    #[error("{what}: {source}")]
    Api {
        /// What was being done.
        what: String,
        /// What came.
        source: Box<kube::Error>,
    },
    /// A kept watermark can't be read. Nothing of its pool is opened until somebody mends it.
    #[error(
        "ConfigMap {name} keeps the watermark of an earlier pool of this name and can't be read: {why}; \
         mend it, no slot is opened until then"
    )]
    Tombstone {
        /// `<namespace>/<name>` of the ConfigMap.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// An earlier pool of this name had another layout: nothing would keep IDs of this one from being equal to its.
    #[error(
        "its layout is {own}, but an earlier pool of this name had {earlier}: IDs would repeat; delete it and make a \
         pool with that layout or of another name"
    )]
    OtherLayout {
        /// This pool's.
        own: String,
        /// The earlier one's.
        earlier: String,
    },
    /// The pool's IDs can't be put together as it says: no slot of it is ever opened.
    #[error("{0}; it never changes: delete this pool and make another")]
    UnusableLayout(String),
    /// Somebody else's object stands where the controller needs its own.
    #[error("{what} is not this pool's: delete or rename it")]
    Occupied {
        /// Which.
        what: String,
    },
    /// The webhook's certificate can't be made or read.
    #[error(
        "the webhook's certificate can't be made or read: {0}; check --webhook-service and --webhook-name"
    )]
    Certificate(String),
    /// The API server has not said what time it is.
    #[error("the API server's time is not known yet")]
    NoTime,
}

impl Error {
    /// The reason as metrics and events have it: a word, never a message.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Setup(_) => "Setup",
            Self::Kube(_) => "Configuration",
            Self::NotLeading => "NotLeading",
            Self::Conflict(_) => "Conflict",
            Self::Api { .. } => "Api",
            Self::Tombstone { .. } => "WatermarkUnreadable",
            Self::OtherLayout { .. } => "OtherLayout",
            Self::UnusableLayout(_) => "UnusableLayout",
            Self::Occupied { .. } => "Occupied",
            Self::Certificate(_) => "Certificate",
            Self::NoTime => "NoTime",
        }
    }

    /// How long the API server asks to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Api { source, .. } = self else { return None };
        let kube::Error::Api(status) = source.as_ref() else { return None };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }
}
