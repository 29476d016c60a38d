//! What can go wrong.

use cosid_lease::StoreError;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no way to the cluster, or no such pool.
    #[error(transparent)]
    Cluster(#[from] cosid_kube::Error),
    /// The API server did not give the slots.
    #[error("the slots of pool {pool}: {source}")]
    Slots {
        /// The pool.
        pool: String,
        /// Why.
        source: StoreError,
    },
    /// The request for a barrier was not taken.
    #[error("pool {pool} can't be changed: {source}; you need `patch` on slotpools.cosid.dev")]
    Ask {
        /// The pool.
        pool: String,
        /// Why.
        source: kube::Error,
    },
    /// Nobody said yes.
    #[error("nothing was done: answer `yes`, or pass --yes")]
    NotConfirmed,
    /// No barrier came.
    #[error(
        "no barrier for pool {pool} within {seconds} s: is the controller running? It writes it as soon as it does; \
         `kubectl get slotpool` and its events say more"
    )]
    NoBarrier {
        /// The pool.
        pool: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The program could not start.
    #[error("can't start: {0}")]
    Start(#[from] std::io::Error),
    /// The answer can't be written as JSON.
    #[error("can't write JSON: {0}")]
    Json(#[from] serde_json::Error),
}
