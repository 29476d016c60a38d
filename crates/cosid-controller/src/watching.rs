//! Watches pools and Leases into the index, and says which pools have something to do.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use cosid_kube::codec::{POOL_LABEL, SlotLease};
use cosid_kube::pool::SlotPool;
use cosid_lease::Millis;
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::core::DeserializeGuard;
use kube::{Api, Client, ResourceExt};
use kube_runtime::watcher::{Config, Event, watcher};
use kube_runtime::{WatchStreamExt as _, watcher as watches};
use tokio::sync::{mpsc, watch};

use crate::index::{Change, Index, PoolKey};
use crate::metrics::Metrics;

/// How long after a change of holders a pool is counted anew, ms: a rollout changes hundreds at once.
const COUNT_AFTER: Millis = 500;

/// A pool that has something to do, after so many milliseconds.
pub(crate) type Wanted = (PoolKey, Millis);

/// Which watches have their first complete list.
#[derive(Debug, Default)]
pub(crate) struct Synced(watch::Sender<Lists>);

#[derive(Clone, Copy, Debug, Default)]
struct Lists {
    pools: bool,
    leases: bool,
}

impl Synced {
    /// Whether both do.
    #[must_use]
    pub(crate) fn all(&self) -> bool {
        self.0.borrow().all()
    }

    pub(crate) fn listed_pools(&self) {
        self.0.send_modify(|lists| lists.pools = true);
    }

    pub(crate) fn listed_leases(&self) {
        self.0.send_modify(|lists| lists.leases = true);
    }

    /// Waits until both do.
    pub(crate) async fn wait(&self) {
        // The sender is this very value: it does not go away meanwhile.
        let _ = self.0.subscribe().wait_for(Lists::all).await;
    }
}

impl Lists {
    fn all(&self) -> bool {
        self.pools && self.leases
    }
}

/// What both watches use.
#[derive(Clone)]
pub(crate) struct Watching {
    /// The API server.
    pub(crate) client: Client,
    /// Where it goes.
    pub(crate) index: Arc<Mutex<Index>>,
    /// Who is told.
    pub(crate) wanted: mpsc::UnboundedSender<Wanted>,
    /// What has been listed.
    pub(crate) synced: Arc<Synced>,
    /// Metrics.
    pub(crate) metrics: Arc<Metrics>,
    /// Changes when everything is to be listed anew.
    pub(crate) relist: watch::Receiver<u64>,
}

impl Watching {
    /// Watches pools, for ever. One that can't be read is passed over; the others go on.
    pub(crate) async fn pools(self) {
        let mut relist = self.relist.clone();
        loop {
            tokio::select! {
                () = self.watch_pools() => {}
                () = asked(&mut relist) => {}
            }
        }
    }

    /// Watches the Leases of all pools, for ever. One that can't be read is its slot's trouble: the others go on.
    pub(crate) async fn leases(self) {
        let mut relist = self.relist.clone();
        loop {
            tokio::select! {
                () = self.watch_leases() => {}
                () = asked(&mut relist) => {}
            }
        }
    }

    async fn watch_pools(&self) {
        let api: Api<DeserializeGuard<SlotPool>> = Api::all(self.client.clone());
        let mut events = pin!(watcher(api, Config::default()).backoff(watches::DefaultBackoff::default()));
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(pool)) => listed.extend(self.put_pool(pool)),
                Ok(Event::Apply(pool)) => drop(self.put_pool(pool)),
                Ok(Event::Delete(pool)) => self.drop_pool(&pool),
                Ok(Event::InitDone) => {
                    let gone = self.index().retain_pools(&listed);
                    gone.into_iter().for_each(|key| self.want(key, 0));
                    self.synced.listed_pools();
                }
                Err(error) if self.failed("SlotPools", &error) => return,
                Err(_) => {}
            }
        }
    }

    async fn watch_leases(&self) {
        let api: Api<SlotLease> = Api::all(self.client.clone());
        let config = Config::default().labels(POOL_LABEL);
        let mut events = pin!(watcher(api, config).backoff(watches::DefaultBackoff::default()));
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(lease)) => {
                    listed.insert((lease.namespace().unwrap_or_default(), lease.name_any()));
                    let change = self.index().list_lease(told(lease));
                    self.lease_changed(change);
                }
                Ok(Event::Apply(lease)) => {
                    let change = self.index().put_lease(told(lease));
                    self.lease_changed(change);
                }
                Ok(Event::Delete(lease)) => {
                    // What this controller let go is not filed any more. Who else took a finalizer off, and whether
                    // the history was kept before, is not to be seen: keeping it twice does no harm.
                    let key = self.index().drop_lease(&lease.lease, false);
                    if let Some(key) = key {
                        self.want(key, 0);
                    }
                }
                Ok(Event::InitDone) => {
                    let changed = self.index().retain_leases(&listed);
                    changed.into_iter().for_each(|key| self.want(key, 0));
                    self.synced.listed_leases();
                }
                Err(error) if self.failed("Leases", &error) => return,
                Err(_) => {}
            }
        }
    }

    fn put_pool(&self, pool: DeserializeGuard<SlotPool>) -> Option<PoolKey> {
        let metadata = match pool.0 {
            Ok(mut pool) => {
                pool.metadata.managed_fields = None;
                let key = self.index().put_pool(pool);
                self.want(key.clone(), 0);
                return Some(key);
            }
            Err(invalid) => {
                tracing::warn!(error = invalid.error, pool = ?invalid.metadata.name, "a pool can't be read; is its CRD this version's?");
                invalid.metadata
            }
        };
        // As it was last read, if it was: its Leases are not without a pool.
        Some(PoolKey { namespace: metadata.namespace?, name: metadata.name? })
    }

    fn drop_pool(&self, pool: &DeserializeGuard<SlotPool>) {
        let key = PoolKey { namespace: pool.namespace().unwrap_or_default(), name: pool.name_any() };
        self.index().drop_pool(&key);
        self.want(key, 0);
    }

    fn lease_changed(&self, change: Option<(PoolKey, Change)>) {
        match change {
            Some((key, Change::Work)) => self.want(key, 0),
            Some((key, Change::Counts)) => self.want(key, COUNT_AFTER),
            Some((_, Change::Nothing)) | None => {}
        }
    }

    /// Whether to begin with a new list: an API server that does not take a watch up again was away, and its store may
    /// have been restored meanwhile. A watch goes on from the newest version that it saw; if that is in the future now, the
    /// API server says nothing until it has come.
    fn failed(&self, what: &str, error: &watches::Error) -> bool {
        self.metrics.watch_failed();
        tracing::warn!(%error, "the watch of {what} broke off; trying on");
        matches!(error, watches::Error::WatchStartFailed(_))
    }

    fn want(&self, key: PoolKey, after: Millis) {
        // Nobody listens only at the end of the program.
        let _ = self.wanted.send((key, after));
    }

    fn index(&self) -> std::sync::MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until everything is to be listed anew.
async fn asked(relist: &mut watch::Receiver<u64>) {
    if relist.changed().await.is_err() {
        std::future::pending().await
    }
}

/// The Lease, and a word on one that can't be read.
fn told(found: SlotLease) -> Lease {
    if let Some(why) = &found.unreadable {
        let (namespace, name) = (found.namespace(), found.name_any());
        tracing::warn!(namespace, name, "a Lease can't be read: {why}; its slot is passed over");
    }
    found.into_lease()
}
