//! A controller that dies after any of its writes, and one whose write is done but not answered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cosid_controller::events::{Announcer, Post};
use cosid_controller::index::{Index, PoolKey};
use cosid_controller::leader::Leadership;
use cosid_controller::metrics::Metrics;
use cosid_controller::reconcile::Reconciler;
use cosid_controller::writes::Writes;
use cosid_kube::Error;
use cosid_kube::codec::{self, lease_name};
use cosid_lease::Owner;
use http::{Method, Request};
use kube::Client;
use kube::api::{DeleteParams, ListParams};
use kube::client::Body;

use crate::bench::{Bench, SHOP, SYSTEM, slots};

/// What becomes of the write that a life ends with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// It is not sent.
    Before,
    /// It is done, and the answer is lost.
    After,
}

/// One life of a controller: `writes` of its writes succeed, then it dies. It begins with what the API server has.
struct Life {
    reconciler: Reconciler,
    left: Arc<AtomicUsize>,
}

impl Life {
    async fn begin(bench: &Bench, writes: usize, end: End) -> Self {
        let left = Arc::new(AtomicUsize::new(writes));
        let client = mortal(bench.client.clone(), Arc::clone(&left), end);
        let index = Arc::<Mutex<Index>>::default();
        let pools = bench.pools().list(&ListParams::default()).await.unwrap();
        let leases = bench.leases().list(&ListParams::default().labels("cosid.dev/pool")).await.unwrap();
        for pool in pools {
            index.lock().unwrap().put_pool(pool);
        }
        for lease in leases {
            index.lock().unwrap().put_lease(lease);
        }
        let (leadership, metrics) = (Leadership::default(), Arc::<Metrics>::default());
        leadership.set(u64::MAX);
        let writes = Writes::new(client, SYSTEM.into(), leadership, index, Arc::clone(&metrics));
        // Events are not what this is about: they go by a client of their own.
        let announcer = Announcer::new(Post::start(bench.client.clone(), "mortal".into()));
        Self { reconciler: Reconciler::new(writes, bench.clock.clone(), announcer, metrics), left }
    }

    /// Works on a pool until there is nothing to do at once (true), or it dies.
    async fn live(&self, key: &PoolKey) -> bool {
        for _ in 0..100 {
            match self.reconciler.reconcile(key).await {
                Ok(Some(0)) => {}
                Ok(_) => return true,
                // A conflict with its own earlier life is for the next one to see afresh.
                Err(_) => return false,
            }
        }
        panic!("it comes to no end, with {} writes left", self.left.load(Ordering::SeqCst));
    }
}

/// A client whose writes fail once `left` have succeeded.
fn mortal(client: Client, left: Arc<AtomicUsize>, end: End) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, left) = (client.clone(), Arc::clone(&left));
        async move {
            let dies = request.method() != Method::GET
                && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err();
            if dies && end == End::Before {
                return Err(Error::Unreachable("it died".into()));
            }
            let answer = client.send(request).await.map_err(|error| Error::Unreachable(error.to_string()))?;
            if dies { Err(Error::Unreachable("it died".into())) } else { Ok(answer) }
        }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_dies_after_any_write_loses_no_floor() {
    let bench = Bench::new().await;
    let key = PoolKey { namespace: SHOP.into(), name: "orders".into() };
    for end in [End::Before, End::After] {
        // One write a life, then two: every pair of neighbours is cut apart, and some are not.
        for writes in [1, 2] {
            a_pool_lives_and_dies(&bench, &key, writes, end).await;
        }
    }
}

/// Two that both believe to lead, each with a view of its own, while slots change hands and Leases are deleted.
#[tokio::test(flavor = "multi_thread")]
async fn two_controllers_at_once_never_open_a_slot_below_its_history() {
    let bench = Bench::new().await;
    let key = PoolKey { namespace: SHOP.into(), name: "orders".into() };
    bench.create("orders", slots(2)).await;
    let done = AtomicUsize::new(0);
    let reign = async || {
        while done.load(Ordering::SeqCst) == 0 {
            let life = Life::begin(&bench, usize::MAX, End::Before).await;
            life.live(&key).await;
        }
    };
    let people = async {
        let mut floors = [0; 3];
        for round in 0..20_usize {
            let (slot, place) = (round % 3, lease_name("orders", (round % 3).try_into().unwrap()));
            let open =
                bench.lease_that(&place, |lease| codec::decode(lease, "orders").record().is_some()).await;
            let record = codec::read(&open).unwrap().unwrap();
            assert!(record.next_floor >= floors[slot], "round {round}: {record:?} is below {}", floors[slot]);
            let held = bench.hold("orders", slot.try_into().unwrap(), &Owner::new("shop/web-0")).await;
            floors[slot] = held.record.next_floor;
            bench.leases().delete(&place, &DeleteParams::default()).await.unwrap();
        }
        done.store(1, Ordering::SeqCst);
    };
    tokio::join!(reign(), reign(), people);
}

/// Makes a pool, uses it, loses a Lease, deletes it and makes it again: with nothing but short lives.
async fn a_pool_lives_and_dies(bench: &Bench, key: &PoolKey, writes: usize, end: End) {
    // A life whose last write is done all the same needs none that succeed.
    let writes = if end == End::After { writes - 1 } else { writes };
    let lives = async |floors: [u64; 3]| until_settled(bench, key, writes, end, floors).await;
    bench.create("orders", slots(2)).await;
    let to_make = lives([0; 3]).await;
    let mut held = Vec::new();
    for slot in 0..2 {
        held.push(bench.hold("orders", slot, &Owner::new(format!("shop/web-{slot}"))).await);
    }
    let [first, second] = [0, 1].map(|slot| held[slot].record.next_floor);
    let fence = held.iter().map(|held| held.record.fence).max().unwrap();
    // One is deleted under its holder, the other with its pool.
    bench.leases().delete("orders-0", &DeleteParams::default()).await.unwrap();
    lives([first, second, 0]).await;
    assert!(bench.record("orders", 0).await.is_some());

    let last = held.pop().unwrap().release(second).await;
    assert_eq!((last.next_floor, last.fence), (second, fence + 1));
    bench.delete_pool("orders").await;
    let to_bury = lives([first, second, 0]).await;
    assert!(bench.pools().get_opt("orders").await.unwrap().is_none());
    bench.create("orders", slots(2)).await;
    let highest = first.max(second);
    lives([highest; 3]).await;
    for slot in 0..3 {
        let record = bench.record("orders", slot).await.unwrap();
        assert!(record.next_floor >= highest && record.fence > fence, "{end:?} {writes}: {slot} {record:?}");
    }
    bench.delete_pool("orders").await;
    lives([highest; 3]).await;
    println!("{end:?}, {writes} writes a life: {to_make} lives to make it, {to_bury} to bury it");
}

async fn until_settled(bench: &Bench, key: &PoolKey, writes: usize, end: End, floors: [u64; 3]) -> usize {
    for lives in 1..500 {
        let settled = Life::begin(bench, writes, end).await.live(key).await;
        no_slot_is_open_below(bench, floors).await;
        if settled {
            return lives;
        }
    }
    panic!("{end:?}, {writes} writes a life: it never settles");
}

/// At this very moment nobody can acquire a slot below what its history used.
async fn no_slot_is_open_below(bench: &Bench, floors: [u64; 3]) {
    for (slot, floor) in (0..).zip(floors) {
        if let Some(record) = bench.record("orders", slot).await {
            assert!(record.next_floor >= floor, "slot {slot} is open at {record:?}, below {floor}");
        }
    }
}
