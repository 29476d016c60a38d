//! Controllers: the product's reconciler on an index that lags, cut off between any two of its calls.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cosid_controller::events::{Announcer, Post};
use cosid_controller::index::{Index, PoolKey};
use cosid_controller::leader::Leadership;
use cosid_controller::metrics::Metrics;
use cosid_controller::reconcile::Reconciler;
use cosid_controller::writes::Writes;
use cosid_kube::ApiClock;
use kube::ResourceExt as _;
use tokio::time::sleep;

use super::checker::Who;
use super::network::{client, mute};
use super::world::{NAMESPACE, Object, POOL, Told, World, mono, pool_place};
use crate::api_server::Place;

/// The controllers' own namespace.
const OWN: &str = "cosid-system";
/// The longest that a reconciliation is put off, ms: the next change that a watch tells may be what it waits for.
const LONGEST_PAUSE: u64 = 1_500;

/// The pool.
pub(crate) fn key() -> PoolKey {
    PoolKey { namespace: NAMESPACE.into(), name: POOL.into() }
}

/// One replica: it works, is killed, and is started again, until the run ends. All replicas believe to lead: nothing that
/// uniqueness rests on may depend on it.
pub(crate) async fn run(world: World, number: usize) {
    let weights = world.setting().weights;
    loop {
        let life = tokio::spawn(Life::start(&world, number).work());
        loop {
            sleep(Duration::from_millis(world.within(200, 1_800))).await;
            if !world.is_calm() && world.chance(weights.controller_killed) {
                world.say(None, || format!("controller-{number} is killed"));
                life.abort();
                break;
            }
        }
        sleep(Duration::from_millis(world.within(0, 10_000))).await;
    }
}

struct Life {
    world: World,
    number: usize,
    index: Arc<Mutex<Index>>,
    reconciler: Reconciler,
    /// How much of what the watches have to tell is known.
    seen: usize,
    /// How old that is, ms.
    lag: u64,
}

impl Life {
    fn start(world: &World, number: usize) -> Self {
        let clock = ApiClock::default();
        let client = client(world, &Who::Controller(number), clock.clone());
        let leadership = Leadership::default();
        leadership.set(u64::MAX);
        let (index, metrics) = (Arc::<Mutex<Index>>::default(), Arc::<Metrics>::default());
        let writes = Writes::new(client, OWN.into(), leadership, Arc::clone(&index), Arc::clone(&metrics));
        let announcer = Announcer::new(Post::start(mute(), number.to_string()));
        let reconciler = Reconciler::new(writes, clock, announcer, metrics);
        Self { world: world.clone(), number, index, reconciler, seen: 0, lag: 0 }
    }

    async fn work(mut self) {
        // The first answer tells the time, as those to the product's own watches do.
        while self.reconciler.clock.now().is_none() {
            let _ = self.reconciler.writes.read_pool(&key()).await;
            sleep(Duration::from_millis(100)).await;
        }
        self.list();
        loop {
            self.watch();
            let again = self.reconciler.reconcile(&key()).await;
            if let Err(error) = &again {
                let said: String = error.to_string().chars().take(100).collect();
                self.world.say(None, || format!("controller-{}: {said}", self.number));
            }
            let pause = again.ok().flatten().unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
            sleep(Duration::from_millis(pause + self.world.within(1, 300))).await;
        }
    }

    /// A list as a cache has it: whole, and as old as the lag.
    fn list(&mut self) {
        self.change_lag();
        let known = self.news();
        let mut leases: BTreeMap<Place, Told> = BTreeMap::new();
        let mut pool = None;
        for told in known {
            match (&told.object, told.gone) {
                (Object::Pool(_), true) => pool = None,
                (Object::Pool(found), false) => pool = Some(Arc::clone(found)),
                (Object::Lease(_), true) => drop(leases.remove(&told.place)),
                (Object::Lease(_), false) => drop(leases.insert(told.place.clone(), told)),
            }
        }
        let mut index = self.index();
        if let Some(pool) = pool {
            index.put_pool((*pool).clone());
        }
        let mut listed = HashSet::new();
        for told in leases.into_values() {
            let Object::Lease(lease) = told.object else { continue };
            listed.insert((lease.namespace().unwrap_or_default(), lease.name_any()));
            index.list_lease((*lease).clone());
        }
        index.retain_leases(&listed);
    }

    /// What the watches tell since.
    fn watch(&mut self) {
        if !self.world.is_calm() && self.world.chance(self.world.setting().weights.watch_lags) {
            self.change_lag();
        }
        if self.world.is_calm() {
            self.lag = 0;
        }
        let news = self.news();
        let mut index = self.index();
        for Told { object, gone, .. } in news {
            match (object, gone) {
                (Object::Pool(pool), false) => drop(index.put_pool((*pool).clone())),
                (Object::Pool(_), true) => index.drop_pool(&key()),
                (Object::Lease(lease), false) => drop(index.put_lease((*lease).clone())),
                (Object::Lease(lease), true) => drop(index.drop_lease(&lease, false)),
            }
        }
    }

    fn change_lag(&mut self) {
        self.lag = self.world.lock().random.pick(&[0, 50, 500, 5_000, 30_000]).unwrap_or(0);
    }

    fn news(&mut self) -> Vec<Told> {
        let inner = self.world.lock();
        let due = |told: &&Told| told.at + self.lag <= mono();
        let news: Vec<Told> = inner.told[self.seen..].iter().take_while(due).cloned().collect();
        self.seen += news.len();
        news
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether there is a pool.
pub(crate) fn has_pool(world: &World) -> bool {
    world.lock().server.get(&pool_place()).is_some()
}
