//! The program: watches, leads, reconciles, and ends in order.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cosid_kube::config::{self, DEFAULT_DEADLINE};
use cosid_kube::{ApiClock, ClusterOptions, monotonic, transport};
use cosid_lease::{Millis, Regression};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};

use crate::Error;
use crate::events::{Announcer, Post};
use crate::index::{Index, PoolKey};
use crate::inject::hints::Hints;
use crate::leader::{Candidate, Leadership, stand};
use crate::metrics::Metrics;
use crate::missing::Missing;
use crate::reconcile::Reconciler;
use crate::reconcile::status::condition;
use crate::schedule::{Outcome, Schedule};
use crate::serve::serve;
use crate::watching::{Synced, Wanted, Watching};
use crate::webhook::keeping::Keeping;
use crate::webhook::listen::Shown;
use crate::webhook::{Webhook, WebhookSettings, answer};
use crate::writes::Writes;

/// All pools are looked at this often, whatever happens: Roles that somebody changed are put right then.
const RESYNC: Duration = Duration::from_secs(300);

/// How many pools are reconciled at once.
const POOLS_AT_ONCE: usize = 8;

/// How the controller runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which API server.
    pub cluster: ClusterOptions,
    /// Its own namespace: its leader Lease and what is kept of pools that have gone are there.
    pub namespace: String,
    /// Where health and metrics are served.
    pub listen: SocketAddr,
    /// This replica's name.
    pub id: String,
    /// How long a leader that died is waited for, seconds.
    pub leader_ttl: i32,
    /// Who injects agents.
    pub injector: Injector,
}

/// Who injects agents into annotated pods.
#[derive(Clone, Debug)]
pub enum Injector {
    /// Nobody.
    None,
    /// The API server, by a policy: pods that slipped through are reported.
    Policy,
    /// This program, by a webhook: and so they are here.
    Webhook(Box<WebhookSettings>),
}

/// Runs until `stop`, then stops reconciling, gives the lead back, and returns. An API server that can't be reached is
/// no reason to return.
///
/// # Errors
/// [`Error::Setup`] or [`Error::Kube`] where it can't even start: a port in use, a kubeconfig that can't be read.
pub async fn run(settings: Settings, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let clock = ApiClock::default();
    let config = config::load(&settings.cluster).await?;
    let client = transport::client(&config, DEFAULT_DEADLINE, clock.clone())?;
    let listener = TcpListener::bind(settings.listen).await.map_err(|error| {
        Error::Setup(format!("can't listen on {}: {error}; pass another --listen", settings.listen))
    })?;
    let listen = listener.local_addr().unwrap_or(settings.listen);
    let parts = Parts::new(client, clock, &settings);
    let webhook = match &settings.injector {
        Injector::Webhook(webhook) => Some(parts.webhook(&settings, webhook).await?),
        Injector::None | Injector::Policy => None,
    };
    let shown = webhook.as_ref().map(|webhook| Arc::clone(&webhook.shown));
    let (metrics, synced) = (Arc::clone(&parts.metrics), Arc::clone(&parts.synced));
    let serving = tokio::spawn(serve(listener, metrics, synced, shown));
    let (step_down, stepped_down) = parts.stand(&settings);
    let watches = parts.watch();
    let missing = (!matches!(settings.injector, Injector::None)).then(|| parts.look_for_missing(&settings));
    tracing::info!(id = settings.id, namespace = settings.namespace, %listen, "the controller runs");

    let mut tasks = Loop::new(parts);
    tokio::select! {
        () = tasks.run() => {}
        () = stop => {}
    }
    tracing::info!("stopping");
    // Reconciliations end before the next leader begins: dropping them cuts them off between two writes at worst.
    tasks.reconciliations.shutdown().await;
    let _ = step_down.send(());
    let _ = stepped_down.await;
    watches.into_iter().chain([serving]).chain(missing).for_each(|task| task.abort());
    if let Some(webhook) = webhook {
        webhook.end().await;
    }
    Ok(())
}

struct Parts {
    client: Client,
    clock: ApiClock,
    index: Arc<Mutex<Index>>,
    synced: Arc<Synced>,
    metrics: Arc<Metrics>,
    leadership: Leadership,
    reconciler: Arc<Reconciler>,
    post: Post,
    tell: mpsc::UnboundedSender<Wanted>,
    wanted: mpsc::UnboundedReceiver<Wanted>,
    relist: watch::Sender<u64>,
}

impl Parts {
    fn new(client: Client, clock: ApiClock, settings: &Settings) -> Self {
        let index = Arc::<Mutex<Index>>::default();
        let metrics = Arc::<Metrics>::default();
        let leadership = Leadership::default();
        let writes = writes(&client, settings, &leadership, &index, &metrics);
        let post = Post::start(client.clone(), settings.id.clone());
        let announcer = Announcer::new(post.clone());
        let reconciler = Arc::new(Reconciler::new(writes, clock.clone(), announcer, Arc::clone(&metrics)));
        let (tell, wanted) = mpsc::unbounded_channel();
        Self {
            client,
            clock,
            index,
            synced: Arc::default(),
            metrics,
            leadership,
            reconciler,
            post,
            tell,
            wanted,
            relist: watch::Sender::default(),
        }
    }

    async fn webhook(&self, settings: &Settings, webhook: &WebhookSettings) -> Result<Webhook, Error> {
        let injector = answer::Injector {
            agent: webhook.agent.clone(),
            index: Arc::clone(&self.index),
            clock: self.clock.clone(),
            // Any number that differs between replicas.
            hints: Mutex::new(Hints::new(
                settings.id.bytes().fold(0, |sum, byte| sum * 31 % 65_521 + usize::from(byte)),
            )),
            metrics: Arc::clone(&self.metrics),
        };
        let shown = Arc::<Shown>::default();
        let keeping = Keeping {
            client: self.client.clone(),
            clock: self.clock.clone(),
            leadership: self.leadership.clone(),
            writes: writes(&self.client, settings, &self.leadership, &self.index, &self.metrics),
            metrics: Arc::clone(&self.metrics),
            shown: Arc::clone(&shown),
            settings: webhook.clone(),
        };
        Webhook::start(keeping, answer::app(Arc::new(injector))).await
    }

    fn look_for_missing(&self, settings: &Settings) -> JoinHandle<()> {
        let missing = Missing {
            client: self.client.clone(),
            post: self.post.clone(),
            metrics: Arc::clone(&self.metrics),
            own_namespace: settings.namespace.clone(),
        };
        tokio::spawn(missing.look(self.leadership.changes()))
    }

    fn stand(&self, settings: &Settings) -> (oneshot::Sender<()>, JoinHandle<()>) {
        let candidate = Candidate {
            client: self.client.clone(),
            clock: self.clock.clone(),
            namespace: settings.namespace.clone(),
            id: settings.id.clone(),
            ttl_seconds: settings.leader_ttl,
        };
        let (step_down, told) = oneshot::channel();
        let stop = async {
            let _ = told.await;
        };
        (step_down, tokio::spawn(stand(candidate, self.leadership.clone(), stop)))
    }

    fn watch(&self) -> [JoinHandle<()>; 2] {
        let watching = Watching {
            client: self.client.clone(),
            index: Arc::clone(&self.index),
            wanted: self.tell.clone(),
            synced: Arc::clone(&self.synced),
            metrics: Arc::clone(&self.metrics),
            relist: self.relist.subscribe(),
        };
        [tokio::spawn(watching.clone().pools()), tokio::spawn(watching.leases())]
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn writes(
    client: &Client,
    settings: &Settings,
    leadership: &Leadership,
    index: &Arc<Mutex<Index>>,
    metrics: &Arc<Metrics>,
) -> Writes {
    let (index, metrics) = (Arc::clone(index), Arc::clone(metrics));
    Writes::new(client.clone(), settings.namespace.clone(), leadership.clone(), index, metrics)
}

/// Starts reconciliations as they are due, while this replica leads.
struct Loop {
    parts: Parts,
    schedule: Schedule,
    leads: watch::Receiver<bool>,
    regressions: watch::Receiver<Option<Regression>>,
    reconciliations: JoinSet<(PoolKey, Outcome)>,
}

impl Loop {
    fn new(parts: Parts) -> Self {
        let leads = parts.leadership.changes();
        let regressions = parts.leadership.regressions();
        Self { parts, schedule: Schedule::default(), leads, regressions, reconciliations: JoinSet::new() }
    }

    async fn run(&mut self) {
        let mut resync = tokio::time::interval(RESYNC);
        // Nothing is decided before there is a whole list of everything.
        self.parts.synced.wait().await;
        self.led();
        loop {
            self.start_due();
            let wait = self.schedule.next_due().map(|at| at.saturating_sub(monotonic()));
            let full = self.reconciliations.len() >= POOLS_AT_ONCE;
            tokio::select! {
                Some((key, after)) = self.parts.wanted.recv() => self.want(key, after),
                Some(ended) = self.reconciliations.join_next() => self.ended(ended),
                changed = self.leads.changed() => if changed.is_ok() {
                    // It may have waited through a restore, with watches that say nothing.
                    if *self.leads.borrow() {
                        self.parts.relist.send_modify(|times| *times += 1);
                    }
                    self.led();
                },
                changed = self.regressions.changed() => if changed.is_ok() { self.regressed() },
                _ = resync.tick() => self.resync(),
                () = tokio::time::sleep(Duration::from_millis(wait.unwrap_or(0))), if wait.is_some() && !full => {}
            }
        }
    }

    fn ended(&mut self, ended: Result<(PoolKey, Outcome), JoinError>) {
        match ended {
            Ok((key, outcome)) => self.schedule.ended(&key, outcome, monotonic()),
            // A panic is a fault of this program: it ends, and is started again.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // Cut off when the lead was lost: nothing is scheduled any more.
            Err(_) => {}
        }
        self.count();
    }

    fn want(&mut self, key: PoolKey, after: Millis) {
        if *self.leads.borrow() {
            self.schedule.request(key, monotonic().saturating_add(after));
        }
    }

    /// This replica began to lead, or stopped.
    fn led(&mut self) {
        let leads = *self.leads.borrow_and_update();
        self.parts.metrics.leads(leads);
        if leads {
            self.resync();
        } else {
            self.reconciliations.abort_all();
            self.schedule.clear();
        }
    }

    /// The store went backwards: each pool may have lost something. What is listed from now on is compared with what was
    /// known.
    fn regressed(&mut self) {
        let Some(regression) = self.regressions.borrow_and_update().clone() else { return };
        self.parts.index().suspect(&format!("of the controller's own Lease, {regression}"));
        self.parts.relist.send_modify(|times| *times += 1);
        self.resync();
    }

    fn resync(&mut self) {
        self.parts.reconciler.resync();
        if !*self.leads.borrow() {
            self.parts.index().forget_lost();
        }
        let keys = self.parts.index().keys();
        keys.into_iter().for_each(|key| self.want(key, 0));
    }

    fn start_due(&mut self) {
        while self.reconciliations.len() < POOLS_AT_ONCE {
            let Some(key) = self.schedule.start(monotonic()) else { return };
            let (reconciler, metrics) = (Arc::clone(&self.parts.reconciler), Arc::clone(&self.parts.metrics));
            self.reconciliations.spawn(async move {
                let started = Instant::now();
                let done = reconciler.reconcile(&key).await;
                metrics.reconciled(done.as_ref().map_or_else(Error::reason, |_| "Ok"), started.elapsed());
                let outcome = outcome(&key, done);
                (key, outcome)
            });
        }
    }

    fn count(&self) {
        if !*self.leads.borrow() {
            return;
        }
        let index = self.parts.index();
        let counts = index.pools().filter_map(|pool| pool.status.as_ref()?.slots);
        let sum = counts.fold((0, 0, 0), |sum: (i64, i64, i64), pool| {
            (sum.0 + i64::from(pool.held), sum.1 + i64::from(pool.free), sum.2 + i64::from(pool.cooling))
        });
        self.parts.metrics.pools(index.pools().count(), sum);
        for kind in condition::ALL {
            let having = index.pools().filter(|pool| condition::is(pool, kind)).count();
            self.parts.metrics.condition(kind, having);
        }
    }
}

fn outcome(key: &PoolKey, done: Result<Option<Millis>, Error>) -> Outcome {
    match done {
        Ok(again) => Outcome::Done(again),
        Err(error @ (Error::Conflict(_) | Error::NotLeading)) => {
            tracing::debug!(pool = %key, "{error}");
            Outcome::Stale
        }
        Err(error) => {
            tracing::warn!(pool = %key, "{error}; trying again later");
            let asked = error.retry_after().map_or(0, |pause| pause.as_millis());
            Outcome::Failed(u64::try_from(asked).unwrap_or(u64::MAX))
        }
    }
}
