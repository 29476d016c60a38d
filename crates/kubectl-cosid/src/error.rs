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
    /// The program could not start.
    #[error("can't start: {0}")]
    Start(#[from] std::io::Error),
    /// The answer can't be written as JSON.
    #[error("can't write JSON: {0}")]
    Json(#[from] serde_json::Error),
}
