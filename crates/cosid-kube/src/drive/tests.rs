use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cosid_lease::memory::MemoryStore;
use cosid_lease::{
    Entry, KeeperConfig, Owner, Pool, PoolState, Record, Slot, SlotState, StoreTime, Tenure, Terms, View,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::*;

const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };
/// The store's clock at tokio's time 0, Unix ms.
const EPOCH: Millis = 1_700_000_000_000;
/// What a window of the tests was last issued at.
const LAST_ISSUED: Millis = EPOCH + 7;

fn clock() -> impl Fn() -> Now + Clone + Send + Sync + 'static {
    let start = Instant::now();
    move || {
        let mono = Millis::try_from(start.elapsed().as_millis()).unwrap();
        let store = EPOCH + mono;
        Now { mono, host: store, store: Some(StoreTime { earliest: store, latest: store }) }
    }
}

/// A memory store that can be made to hang, as a connection whose other end is gone.
struct Store {
    inner: MemoryStore,
    hangs: AtomicBool,
}

impl Store {
    fn new(now: impl Fn() -> Now + Send + Sync + 'static) -> Self {
        let withheld = BTreeSet::new();
        let state = PoolState::Ready;
        let pool = Pool {
            name: "ns/p".into(),
            bits: 1,
            first: 0,
            last: 1,
            withheld,
            terms: TERMS,
            state,
            barrier: 0,
        };
        let inner = MemoryStore::new(pool, move || now().store.unwrap());
        Self { inner, hangs: AtomicBool::new(false) }
    }

    async fn answer(&self) {
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }

    async fn slot(&self, slot: Slot) -> Record {
        match self.inner.read(slot).await.unwrap().unwrap().state {
            SlotState::Open(record) => record,
            other => panic!("{other:?}"),
        }
    }
}

impl SlotStore for Store {
    type Version = u64;

    async fn load(&self) -> Result<View<u64>, StoreError> {
        self.answer().await;
        self.inner.load().await
    }

    async fn read(&self, slot: Slot) -> Result<Option<Entry<u64>>, StoreError> {
        self.answer().await;
        self.inner.read(slot).await
    }

    async fn write(&self, slot: Slot, version: &u64, record: &Record) -> Result<u64, StoreError> {
        self.answer().await;
        self.inner.write(slot, version, record).await
    }

    fn now(&self) -> Option<StoreTime> {
        self.inner.now()
    }
}

#[derive(Debug, PartialEq)]
enum Seen {
    Held(Slot),
    Extended(Millis),
    Closed,
    Failed(String),
    Finished,
}

struct Witness(mpsc::UnboundedSender<Seen>);

impl Holder for Witness {
    async fn hold(&mut self, binding: Binding) {
        self.0.send(Seen::Held(binding.slot)).unwrap();
    }

    fn extend(&mut self, ceiling: Millis, _: Millis) {
        self.0.send(Seen::Extended(ceiling)).unwrap();
    }

    async fn close(&mut self) -> Millis {
        self.0.send(Seen::Closed).unwrap();
        LAST_ISSUED
    }

    fn report(&mut self, report: Report) {
        if let Report::StoreFailed { what, error, .. } = report {
            self.0.send(Seen::Failed(format!("{what}: {error}"))).unwrap();
        }
    }
}

struct Run {
    store: Arc<Store>,
    seen: mpsc::UnboundedReceiver<Seen>,
    stop: Option<oneshot::Sender<()>>,
    now: Box<dyn Fn() -> Now>,
}

impl Run {
    fn start() -> Self {
        let now = clock();
        let store = Arc::new(Store::new(now.clone()));
        let (sender, seen) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let keeper = Keeper::new(KeeperConfig::new(Owner::new("me")), now());
        let (held_in, time) = (Arc::clone(&store), now.clone());
        tokio::spawn(async move {
            let mut witness = Witness(sender.clone());
            let stopped = async { stopped.await.unwrap_or(()) };
            drive(keeper, &*held_in, time, &mut witness, stopped).await;
            sender.send(Seen::Finished).unwrap();
        });
        Self { store, seen, stop: Some(stop), now: Box::new(now) }
    }

    async fn next(&mut self) -> Seen {
        self.seen.recv().await.unwrap()
    }

    fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    fn hang(&self, hangs: bool) {
        self.store.hangs.store(hangs, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_held_renewed_in_time_and_given_back_at_its_last_timestamp() {
    let mut run = Run::start();
    assert_eq!(run.next().await, Seen::Held(0));
    for _ in 0..3 {
        let before = (run.now)().mono;
        let Seen::Extended(ceiling) = run.next().await else { panic!("a renewal") };
        let now = (run.now)().mono;
        assert!((8_000..=12_000).contains(&(now - before)), "after a third of the ttl: {}", now - before);
        assert_eq!(ceiling, EPOCH + now + TERMS.ttl + TERMS.tolerance);
    }
    run.stop();
    assert_eq!(run.next().await, Seen::Closed);
    assert_eq!(run.next().await, Seen::Finished);
    let record = run.store.slot(0).await;
    assert_eq!(
        (record.next_floor, record.tenure),
        (LAST_ISSUED, Tenure::Free { last_key: Some("me".into()) })
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_ends_at_its_timeout_and_is_made_again() {
    let mut run = Run::start();
    assert_eq!(run.next().await, Seen::Held(0));
    run.hang(true);
    let Seen::Failed(why) = run.next().await else { panic!("a failure") };
    assert_eq!(why, "renew: no answer: no answer within 5000 ms");
    run.hang(false);
    assert!(matches!(run.next().await, Seen::Extended(_)));
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_a_renewal_hangs_releases_as_soon_as_the_store_answers() {
    let mut run = Run::start();
    assert_eq!(run.next().await, Seen::Held(0));
    run.hang(true);
    tokio::time::sleep(Duration::from_secs(13)).await;
    run.hang(false);
    let before = (run.now)().mono;
    run.stop();
    assert_eq!(run.next().await, Seen::Closed);
    assert_eq!(run.next().await, Seen::Finished);
    assert!((run.now)().mono - before < 100, "the hung renewal was not waited for");
    assert_eq!(run.store.slot(0).await.next_floor, LAST_ISSUED);
}

#[tokio::test(start_paused = true)]
async fn a_stop_with_the_store_away_ends_in_time() {
    let mut run = Run::start();
    assert_eq!(run.next().await, Seen::Held(0));
    run.hang(true);
    let before = (run.now)().mono;
    run.stop();
    while run.next().await != Seen::Finished {}
    let took = (run.now)().mono - before;
    assert!(took <= 1_600, "{took} ms");
}

#[tokio::test(start_paused = true)]
async fn a_lost_slot_is_closed_and_another_one_held() {
    let mut run = Run::start();
    assert_eq!(run.next().await, Seen::Held(0));
    run.store.inner.put(0, Some(SlotState::Deleting));
    assert_eq!(run.next().await, Seen::Closed);
    assert_eq!(run.next().await, Seen::Held(1));
}
