//! The way to the cluster, and the pool in it.

use std::time::Duration;

use cosid_id::Layout;
use cosid_kube::{ApiClock, KubeStore, PoolName, config, find_pool, transport};
use kube::Client;

use crate::args::Args;
use crate::error::Error;
use crate::status::StatusBoard;

/// The longest that any call may take. The keeper sets each of its own a shorter deadline, by the lease's length.
const DEADLINE: Duration = Duration::from_secs(10);

/// The longest pause between two looks for a pool.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A client, and where it works.
pub(crate) struct Connection {
    client: Client,
    clock: ApiClock,
    namespace: String,
}

/// Reads the configuration. Connects to nothing yet, so that a cluster which is away is no error.
///
/// # Errors
/// [`Error::Cluster`] where there is no configuration, or none that can be used.
pub(crate) async fn connect(args: &Args) -> Result<Connection, Error> {
    let config = config::load(&args.cluster()).await?;
    let clock = ApiClock::default();
    let client = transport::client(&config, DEADLINE, clock.clone())?;
    let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    Ok(Connection { client, clock, namespace })
}

impl Connection {
    /// The pool that a reference names; asks nobody.
    ///
    /// # Errors
    /// [`Error::Cluster`] where it is neither `NAME` nor `NAMESPACE/NAME`.
    pub(crate) async fn named_pool(&self, reference: &str) -> Result<PoolName, Error> {
        Ok(find_pool(&self.client, &self.namespace, Some(reference)).await?)
    }

    /// The namespace's only pool, else the one named `default`. Looks until there is one.
    pub(crate) async fn find_pool(&self, board: &StatusBoard) -> PoolName {
        let mut pause = Duration::from_millis(100);
        let mut told = String::new();
        loop {
            let why = match find_pool(&self.client, &self.namespace, None).await {
                Ok(pool) => return pool,
                Err(error) => error.to_string(),
            };
            if why != told {
                tracing::warn!("{why}; trying on");
                board.looking(&why);
                told = why;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The store of a pool.
    pub(crate) fn store(&self, pool: &PoolName, pod_uid: Option<String>) -> KubeStore {
        KubeStore::new(self.client.clone(), self.clock.clone(), &*pool.namespace, &*pool.name, pod_uid)
    }
}

/// The layout of a pool that was loaded.
///
/// # Errors
/// What is wrong with it, for people: a default would make IDs that equal those of others.
pub(crate) fn layout(store: &KubeStore) -> Result<Layout, String> {
    let pool = store.pool().ok_or("the pool has not been loaded yet")?;
    let layout = pool.layout().map_err(|error| error.to_string())?;
    layout.build().map_err(|error| format!("pool {}: {error}", pool.full_name()))
}
