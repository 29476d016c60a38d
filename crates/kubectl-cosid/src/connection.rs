//! The way to a pool.

use std::time::Duration;

use cosid_kube::{ApiClock, ClusterOptions, KubeStore, PoolName, config, find_pool, transport};
use kube::Client;

use crate::args::Cluster;
use crate::error::Error;

/// How long the API server may take.
const DEADLINE: Duration = Duration::from_secs(15);

/// A pool, and how to ask for it.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) store: KubeStore,
    pub(crate) name: PoolName,
}

impl Connection {
    /// To the pool that is meant.
    pub(crate) async fn open(cluster: &Cluster, pool: Option<&str>) -> Result<Self, Error> {
        let options = ClusterOptions {
            kubeconfig: cluster.kubeconfig.clone(),
            context: cluster.context.clone(),
            server: None,
        };
        let config = config::load(&options).await?;
        let namespace = cluster.namespace.as_deref().unwrap_or(&config.default_namespace);
        let clock = ApiClock::default();
        let client = transport::client(&config, DEADLINE, clock.clone())?;
        let name = find_pool(&client, namespace, pool).await?;
        let store = KubeStore::new(client.clone(), clock, &*name.namespace, &*name.name, None);
        Ok(Self { client, store, name })
    }
}
