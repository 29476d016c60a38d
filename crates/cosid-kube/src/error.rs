//! What can go wrong before a slot store is there. What goes wrong in its calls is a
//! [`StoreError`](cosid_lease::StoreError).

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why something could not be done.
#[derive(Debug, Error)]
pub enum Error {
    /// A pool has a value that the CRD does not allow.
    #[error("pool {pool}: {field} is {value}, which is out of bounds; is the installed CRD this version's?")]
    Pool {
        /// `<namespace>/<name>`.
        pool: String,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// A record does not fit into a Lease, or a Lease makes no record.
    #[error("{0}")]
    Codec(#[from] crate::codec::CodecError),
    /// Neither in a pod nor told of a cluster.
    #[error("no cluster: {0}; outside of a pod pass --kubeconfig, or set KUBECONFIG")]
    NotInCluster(String),
    /// The kubeconfig can't be used.
    #[error("kubeconfig: {0}")]
    Kubeconfig(String),
    /// There is nothing to check the API server's certificate by.
    #[error(
        "no certificate authority for {server}: set `certificate-authority-data` in the kubeconfig's cluster"
    )]
    NoCertificateAuthority {
        /// The API server.
        server: String,
    },
    /// A certificate or key can't be used.
    #[error("TLS: {what}: {why}")]
    Tls {
        /// Which.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// A file can't be read.
    #[error("can't read {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There are no credentials to show.
    #[error("credentials: {0}")]
    Credentials(String),
    /// The API server did not answer in time. It may have done what was asked.
    #[error("no answer from the API server within {} ms", .0.as_millis())]
    Deadline(Duration),
    /// The API server can't be reached, or broke off.
    #[error("the API server can't be reached: {0}")]
    Unreachable(String),
    /// An answer is longer than this program takes in.
    #[error("the API server's answer is longer than {limit} bytes; make the pool smaller")]
    TooLong {
        /// The longest that is taken in.
        limit: usize,
    },
    /// Something can't be written as YAML.
    #[error("YAML: {0}")]
    Yaml(String),
    /// A pool was not found by name.
    #[error("{0}")]
    Store(#[from] cosid_lease::StoreError),
    /// The reference to a pool is neither `NAME` nor `NAMESPACE/NAME`.
    #[error("`{reference}` names no pool: write NAME or NAMESPACE/NAME")]
    PoolReference {
        /// As given.
        reference: String,
    },
    /// No pool was named, and there is not exactly one that could be meant.
    #[error("{}", which_pool(namespace, found))]
    WhichPool {
        /// Where it was looked.
        namespace: String,
        /// The pools there are.
        found: Vec<String>,
    },
}

fn which_pool(namespace: &str, found: &[String]) -> String {
    if found.is_empty() {
        return format!(
            "there is no pool in namespace {namespace}: create one (`kubectl apply -f slotpool.yaml`), or name one of another namespace as NAMESPACE/NAME"
        );
    }
    format!(
        "namespace {namespace} has several pools and none is named `default`: name one of {}",
        found.join(", ")
    )
}
