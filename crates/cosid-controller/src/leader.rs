//! Which replica works: the one that holds the Lease `cosid-controller` in the controller's own namespace, kept by the
//! same keeper as any slot.
//!
//! Nothing that uniqueness rests on depends on it. Every write of a reconciliation is a compare-and-set, and two that
//! work at once only get in each other's way. So a record here that can't be read counts as free.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cosid_kube::codec::SlotLease;
use cosid_kube::{ApiClock, Holder, codec, drive, monotonic};
use cosid_lease::choose::Preference;
use cosid_lease::keeper::Binding;
use cosid_lease::{
    Entry, Keeper, KeeperConfig, Millis, Now, Owner, Pool, PoolState, Record, Regression, Report, Slot,
    SlotState, SlotStore, StoreError, StoreTime, Terms, View,
};
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use kube_runtime::watcher;
use tokio::sync::{Notify, watch};

/// The Lease's name.
pub const LEASE: &str = "cosid-controller";

/// Whether this replica leads. Clones share it.
#[derive(Clone, Debug)]
pub struct Leadership(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// When the lease has surely not expired yet, ms of [`monotonic`]; 0: not leading.
    until: AtomicU64,
    leads: watch::Sender<bool>,
    /// How it was last noticed that the store went backwards.
    regression: watch::Sender<Option<Regression>>,
}

impl Default for Leadership {
    fn default() -> Self {
        Self(Arc::new(Inner {
            until: AtomicU64::new(0),
            leads: watch::Sender::new(false),
            regression: watch::Sender::default(),
        }))
    }
}

impl Leadership {
    /// Whether this replica leads at this moment. Does not block.
    #[must_use]
    pub fn leads(&self) -> bool {
        monotonic() < self.0.until.load(Ordering::SeqCst)
    }

    /// Becomes true when this replica starts to lead, false when it stops.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.0.leads.subscribe()
    }

    /// Becomes another when this replica's own Lease shows that the store went backwards.
    #[must_use]
    pub fn regressions(&self) -> watch::Receiver<Option<Regression>> {
        self.0.regression.subscribe()
    }

    /// Leads until then, ms of [`monotonic`]; 0 ends it.
    pub fn set(&self, until: Millis) {
        self.0.until.store(until, Ordering::SeqCst);
        self.0.leads.send_if_modified(|leads| std::mem::replace(leads, until > 0) != (until > 0));
    }
}

/// How a replica stands for election.
#[derive(Clone)]
pub struct Candidate {
    /// The API server.
    pub client: Client,
    /// Its clock.
    pub clock: ApiClock,
    /// The controller's own namespace.
    pub namespace: String,
    /// This replica's name.
    pub id: String,
    /// How long a leader that died is waited for, seconds.
    pub ttl_seconds: i32,
}

/// Leads whenever nobody else does, until `stop`; then gives the lease back.
pub async fn stand(candidate: Candidate, leadership: Leadership, stop: impl Future<Output = ()>) {
    let store = LeaderStore::new(&candidate);
    let mut stop = pin!(stop);
    let mut watching = LeaseWatch::start(&candidate);
    loop {
        tokio::select! {
            () = &mut stop => return,
            () = watching.acquirable(&candidate.clock) => {}
        }
        let config = KeeperConfig {
            preference: Preference::Only(0),
            ..KeeperConfig::new(Owner::new(candidate.id.clone()))
        };
        let outrun = Arc::new(Notify::new());
        let mut chair = Chair {
            leadership: leadership.clone(),
            clock: candidate.clock.clone(),
            outrun: Arc::clone(&outrun),
            floor: 0,
        };
        let now = || now(&candidate.clock);
        let keeper = Keeper::new(config, now());
        let mut stopped = false;
        let until = async {
            tokio::select! {
                () = &mut stop => stopped = true,
                () = outrun.notified() => {}
            }
        };
        drive(keeper, &store, now, &mut chair, until).await;
        leadership.set(0);
        if stopped {
            return;
        }
        watching.changed().await;
    }
}

fn now(clock: &ApiClock) -> Now {
    // The keeper uses the host's time for a report on its skew only.
    let host = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis());
    Now { mono: monotonic(), host: u64::try_from(host).unwrap_or(u64::MAX), store: clock.now() }
}

/// Does what the keeper says with the right to lead.
struct Chair {
    leadership: Leadership,
    clock: ApiClock,
    outrun: Arc<Notify>,
    floor: Millis,
}

impl Chair {
    fn lead(&self, expires_at: Millis) {
        // By the upper bound of the API server's clock: early rather than late.
        let left = self.clock.now().map_or(0, |time| expires_at.saturating_sub(time.latest));
        self.leadership.set(monotonic().saturating_add(left).max(1));
    }
}

impl Holder for Chair {
    async fn hold(&mut self, binding: Binding) {
        self.floor = binding.holding.floor;
        self.lead(binding.holding.expires_at);
    }

    fn extend(&mut self, _: Millis, expires_at: Millis) {
        self.lead(expires_at);
    }

    async fn close(&mut self) -> Millis {
        self.leadership.set(0);
        self.floor
    }

    fn report(&mut self, report: Report) {
        match &report {
            Report::Renewed { .. } => {}
            // Another replica was faster, or still leads: the watch tells when that ends.
            Report::Occupied { .. } => self.outrun.notify_one(),
            Report::Acquired { .. } => tracing::info!("this replica leads"),
            Report::Released { .. } => tracing::info!("this replica has given the lead back"),
            Report::StoreRegressed(regression) => {
                tracing::error!(%regression, "the store was restored from a backup: the leader Lease went back");
                self.leadership.0.regression.send_replace(Some(regression.clone()));
            }
            Report::Lost { reason, .. } => tracing::warn!(%reason, "this replica has lost the lead"),
            Report::StoreFailed { .. } | Report::AcquireTimedOut { .. } => {
                tracing::warn!("leader election: {report}");
            }
            other => tracing::debug!("leader election: {other}"),
        }
    }
}

/// Follows the leader Lease, so that a release is seen at once.
struct LeaseWatch {
    seen: watch::Receiver<Option<Record>>,
    task: tokio::task::JoinHandle<()>,
}

impl LeaseWatch {
    fn start(candidate: &Candidate) -> Self {
        let (tell, seen) = watch::channel(None);
        let leases: Api<SlotLease> = Api::namespaced(candidate.client.clone(), &candidate.namespace);
        let task = tokio::spawn(async move {
            let mut objects = pin!(watcher::watch_object(leases, LEASE));
            let mut backoff = watcher::DefaultBackoff::default();
            while let Some(object) = objects.next().await {
                match object {
                    Ok(lease) => {
                        backoff = watcher::DefaultBackoff::default();
                        tell.send_replace(lease.and_then(|lease| record(&lease.into_lease())));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "the watch of the leader Lease broke off");
                        tokio::time::sleep(backoff.next().unwrap_or(Duration::from_secs(30))).await;
                    }
                }
            }
        });
        Self { seen, task }
    }

    /// Waits until nobody holds the lease, as far as is known. Before the API server's first answer nobody does.
    async fn acquirable(&mut self, clock: &ApiClock) {
        loop {
            let expires_at =
                self.seen.borrow_and_update().as_ref().and_then(Record::holding).map(|held| held.expires_at);
            let Some(expires_at) = expires_at else { return };
            let left = clock.now().map_or(0, |time| expires_at.saturating_sub(time.earliest));
            if left == 0 {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(left)) => {}
                changed = self.seen.changed() => if changed.is_err() { std::future::pending::<()>().await },
            }
        }
    }

    /// Waits for the next change, for at most a second: the state may have been seen before the last attempt.
    async fn changed(&mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.seen.changed()).await;
    }
}

impl Drop for LeaseWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The record; none where it can't be read, which counts as free.
fn record(lease: &Lease) -> Option<Record> {
    codec::read(lease).ok().flatten()
}

/// One Lease as a store of one slot. It has no pool, so it bears no pool's label.
struct LeaderStore {
    leases: Api<Lease>,
    /// The same, also where a [`Lease`] can't hold it.
    found: Api<SlotLease>,
    clock: ApiClock,
    namespace: String,
    ttl_seconds: i32,
    /// The UID of the Lease as it was last loaded.
    uid: Mutex<Option<String>>,
}

impl LeaderStore {
    fn new(candidate: &Candidate) -> Self {
        Self {
            leases: Api::namespaced(candidate.client.clone(), &candidate.namespace),
            found: Api::namespaced(candidate.client.clone(), &candidate.namespace),
            clock: candidate.clock.clone(),
            namespace: candidate.namespace.clone(),
            ttl_seconds: candidate.ttl_seconds,
            uid: Mutex::default(),
        }
    }

    fn entry(lease: Lease) -> Entry<Arc<Lease>> {
        let state = match lease.metadata.deletion_timestamp {
            Some(_) => SlotState::Deleting,
            None => SlotState::Open(record(&lease).unwrap_or_else(|| Record::open(0, 0))),
        };
        Entry { slot: 0, version: Arc::new(lease), state }
    }

    async fn create(&self) -> Result<Lease, StoreError> {
        let metadata = ObjectMeta {
            name: Some(LEASE.to_owned()),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        };
        let lease = Lease { metadata, spec: None };
        match self.leases.create(&PostParams::default(), &lease).await.map_err(store_error) {
            // Another replica was faster.
            Err(StoreError::Conflict) => self.get().await?.ok_or(StoreError::Gone),
            Err(StoreError::Gone) => {
                let namespace = &self.namespace;
                Err(StoreError::Refused(format!(
                    "there is no namespace {namespace}: create it, or pass another --namespace"
                )))
            }
            made => made,
        }
    }

    async fn get(&self) -> Result<Option<Lease>, StoreError> {
        let found = self.found.get_opt(LEASE).await.map_err(store_error)?;
        Ok(found.map(SlotLease::into_lease))
    }
}

impl SlotStore for LeaderStore {
    type Version = Arc<Lease>;

    async fn load(&self) -> Result<View<Arc<Lease>>, StoreError> {
        let lease = match self.get().await? {
            Some(lease) => lease,
            None => self.create().await?,
        };
        *self.uid.lock().unwrap_or_else(PoisonError::into_inner) = lease.uid();
        let ttl = u64::try_from(self.ttl_seconds).unwrap_or_default() * 1_000;
        let pool = Pool {
            name: format!("{}/{LEASE}", self.namespace),
            bits: 1,
            first: 0,
            last: 0,
            withheld: std::collections::BTreeSet::new(),
            terms: Terms { ttl, tolerance: 0 },
            state: PoolState::Ready,
            barrier: Millis::MAX,
        };
        Ok(View { pool, entries: vec![Self::entry(lease)] })
    }

    async fn read(&self, _: Slot) -> Result<Option<Entry<Arc<Lease>>>, StoreError> {
        let Some(lease) = self.get().await? else { return Ok(None) };
        // One that was made anew, or can't be read, says nothing of the one that was held.
        if lease.uid() != *self.uid.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(None);
        }
        let why = "it was edited or never held";
        Ok(Some(match record(&lease) {
            Some(_) => Self::entry(lease),
            None => Entry { slot: 0, version: Arc::new(lease), state: SlotState::Corrupt(why.to_owned()) },
        }))
    }

    async fn write(&self, _: Slot, version: &Arc<Lease>, record: &Record) -> Result<Arc<Lease>, StoreError> {
        let lease = codec::encode(version, record, self.ttl_seconds, None)
            .map_err(|error| StoreError::Refused(error.to_string()))?;
        self.leases.replace(LEASE, &PostParams::default(), &lease).await.map(Arc::new).map_err(store_error)
    }

    fn now(&self) -> Option<StoreTime> {
        self.clock.now()
    }
}

fn store_error(error: kube::Error) -> StoreError {
    match error {
        kube::Error::Api(status) => match status.code {
            409 => StoreError::Conflict,
            404 => StoreError::Gone,
            401 | 403 => StoreError::Denied(status.message.clone()),
            _ => StoreError::Unknown(status.message.clone()),
        },
        other => StoreError::Unknown(other.to_string()),
    }
}
