use std::time::Instant;

use cosid_kube::SlotPoolSpec;
use cosid_kube::codec::lease_name;
use cosid_kube::pool::PoolLayout;
use cosid_lease::{Owner, SlotState, SlotStore as _};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::bench::{Bench, LONG, counts, is, message, slots, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_1024_slots_is_made_opened_and_removed_in_seconds() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    // The first pool waits for the election; the second shows the work alone.
    bench.ready("small", slots(3)).await;
    let begun = Instant::now();
    let pool = bench.ready("orders", SlotPoolSpec::default()).await;
    let took = begun.elapsed();
    println!("1024 Leases made and opened in {took:?}");
    assert!(took < LONG);
    assert_eq!(counts(&pool), (1024, 0, 1024, 0));
    let view = bench.store("orders").load().await.unwrap();
    let open = view.entries.iter().filter(|entry| matches!(entry.state, SlotState::Open(_))).count();
    assert_eq!(open, 1024);

    let begun = Instant::now();
    bench.delete_pool("orders").await;
    bench.pool_gone("orders").await;
    println!("1024 Leases and their pool removed in {:?}", begun.elapsed());
    assert!(
        bench
            .leases()
            .list(&ListParams::default().labels("cosid.dev/pool=orders"))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_larger_pool_grows_ahead_of_demand() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    let layout = PoolLayout { sequence_bits: 6, ..PoolLayout::default() };
    let pool = bench.ready("wide", SlotPoolSpec { bits: 16, layout, ..SlotPoolSpec::default() }).await;
    assert_eq!(counts(&pool), (65_536, 0, 64, 0));
    for slot in 0..10 {
        bench.hold("wide", slot, &Owner::new(format!("shop/web-{slot}"))).await;
    }
    let pool = bench.pool_that("wide", |pool| counts(pool).1 == 10 && counts(pool).2 == 64).await;
    assert_eq!(counts(&pool), (65_536, 10, 64, 0));
    let role = bench.role("cosid-pool-wide-0").await;
    assert_eq!(role.rules.unwrap()[0].resource_names.as_ref().unwrap().len(), 74);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_edited_to_nonsense_is_named_and_the_others_serve() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", slots(3)).await;
    bench.annotate("orders-1", json!({ "cosid.dev/next-floor": "yesterday" })).await;
    let pool = bench.pool_that("orders", |pool| is(pool, "Quarantined")).await;
    assert!(message(&pool, "Quarantined").contains("slot 1: cosid.dev/next-floor"), "{pool:?}");
    assert_eq!(counts(&pool), (4, 0, 3, 0));
    bench.hold("orders", 2, &Owner::new("shop/web-0")).await;

    // Deleted, it is not made again: from where on is in no one's knowledge.
    bench.leases().delete("orders-1", &DeleteParams::default()).await.unwrap();
    let pool = bench.pool_that("orders", |pool| pool.status.as_ref().unwrap().retired == [1]).await;
    assert!(pool.status.unwrap().watermark.unwrap().next_floor == 0);
    bench.pool_that("orders", |pool| !is(pool, "Quarantined") && counts(pool).0 == 3).await;
    bench.event("SlotRetired").await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_beyond_reading_wedges_no_controller() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", slots(3)).await;
    // The API server takes it, from anybody who may update one Lease. A `Lease` can't hold it: the answer is not read.
    let times = json!({ "spec": { "holderIdentity": "x", "renewTime": "9999-12-31T23:59:59.000000Z" } });
    let patched = bench.leases().patch("orders-1", &PatchParams::default(), &Patch::Merge(&times)).await;
    assert!(matches!(patched, Err(kube::Error::SerdeError(_))), "{patched:?}");
    let pool = bench.pool_that("orders", |pool| is(pool, "Quarantined")).await;
    assert_eq!(counts(&pool), (4, 0, 3, 0));
    controller.stop().await;

    let next = bench.controller();
    bench.ready("later", slots(1)).await;
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_took_off_a_lease_is_put_back_and_its_record_stays() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", slots(1)).await;
    let held = bench.hold("orders", 0, &Owner::new("shop/web-0")).await;
    for patch in [json!({ "metadata": { "finalizers": null } }), json!({ "metadata": { "labels": null } })] {
        bench.leases().patch("orders-0", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        let whole = |lease: &k8s_openapi::api::coordination::v1::Lease| {
            lease.metadata.finalizers.is_some() && lease.metadata.labels.is_some()
        };
        bench.lease_that("orders-0", whole).await;
        assert_eq!(bench.record("orders", 0).await, Some(held.record.clone()));
    }
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_and_two_owners_under_one_key_are_told() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", slots(1)).await;
    let first = bench.hold("orders", 0, &Owner::new("shop/web-0")).await;
    bench.hold("orders", 1, &Owner::new("shop/web-0")).await;
    let pool = bench.pool_that("orders", |pool| is(pool, "Exhausted")).await;
    assert_eq!(counts(&pool), (2, 2, 0, 0));
    bench.event("Exhausted").await;
    bench.event("DuplicateOwner").await;
    first.release(0).await;
    bench.pool_that("orders", |pool| !is(pool, "Exhausted")).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_controller_holders_renew_and_newcomers_acquire() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", slots(3)).await;
    let mut held = bench.hold("orders", 0, &Owner::new("shop/web-0")).await;
    controller.stop().await;
    let before = held.record.clone();
    held.renew().await;
    assert_eq!(held.record.fence, before.fence);
    let newcomer = bench.hold("orders", 1, &Owner::new("shop/web-1")).await;
    let freed = held.release(before.next_floor - 20_000).await;
    let next = bench.hold("orders", 0, &Owner::new("shop/web-2")).await;
    assert_eq!(next.record.holding().unwrap().floor, freed.next_floor);

    // What it missed it counts when it is back.
    let controller = bench.controller();
    let pool = bench.pool_that("orders", |pool| counts(pool).1 == 2).await;
    assert_eq!(counts(&pool).0, 4);
    assert_eq!(bench.record("orders", 1).await, Some(newcomer.record));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_pool_costs_no_writes() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", slots(3)).await;
    let mut held = bench.hold("orders", 0, &Owner::new("shop/web-0")).await;
    let pool = bench.pool_that("orders", |pool| counts(pool).1 == 1).await;
    for _ in 0..5 {
        held.renew().await;
    }
    // A change that the controller does write, after all of them.
    bench.hold("orders", 1, &Owner::new("shop/web-1")).await;
    let later = bench.pool_that("orders", |pool| counts(pool).1 == 2).await;
    let version = |pool: &cosid_kube::SlotPool| pool.metadata.resource_version.clone().unwrap();
    let writes = bench.writes_to_pools_between(&version(&pool), &version(&later)).await;
    assert_eq!(writes, 1, "renewals are not worth a write");
    let names: Vec<String> = (0..4).map(|slot| lease_name("orders", slot)).collect();
    let list = within(LONG, bench.leases().list(&ListParams::default())).await.unwrap();
    assert_eq!(list.items.iter().filter_map(|lease| lease.metadata.name.clone()).collect::<Vec<_>>(), names);
    controller.stop().await;
}
