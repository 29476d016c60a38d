use cosid_kube::SlotPoolSpec;
use cosid_kube::codec::lease_name;
use cosid_kube::pool::{PoolLayout, Watermark};
use cosid_lease::{Owner, SlotStore as _, StoreError};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::bench::{Bench, SYSTEM, counts, is, message, slots};

/// A Lease that is another than this one, and open.
fn made_anew(before: &Lease) -> impl Fn(&Lease) -> bool {
    let uid = before.uid();
    move |lease| lease.uid() != uid && lease.annotations().contains_key("cosid.dev/next-floor")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_floor_of_a_lease_deleted_under_its_holder_lives_on_in_the_new_one() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", slots(1)).await;
    let held = bench.hold("orders", 0, &Owner::new("shop/web-0")).await;
    let before = bench.leases().get("orders-0").await.unwrap();
    bench.leases().delete("orders-0", &DeleteParams::default()).await.unwrap();
    bench.lease_that("orders-0", made_anew(&before)).await;

    let anew = bench.record("orders", 0).await.unwrap();
    assert_eq!((anew.next_floor, anew.fence), (held.record.next_floor, held.record.fence));
    // Neither its holder nor an old copy of it gets back in.
    let refused = held.store.write(0, &held.version, &held.record).await.unwrap_err();
    assert!(matches!(refused, StoreError::Conflict | StoreError::Gone), "{refused:?}");
    let pool = bench.pool_that("orders", |pool| counts(pool) == (2, 0, 1, 1)).await;
    let next_floor = i64::try_from(held.record.next_floor).unwrap();
    assert_eq!(pool.status.unwrap().watermark, Some(Watermark { next_floor, fence: 1 }));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_torn_out_with_its_finalizer_taken_off_is_remembered() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", slots(1)).await;
    let held = bench.hold("orders", 0, &Owner::new("shop/web-0")).await;
    bench.pool_that("orders", |pool| counts(pool).1 == 1).await;
    let before = bench.leases().get("orders-0").await.unwrap();
    let off = json!({ "metadata": { "finalizers": null } });
    bench.leases().patch("orders-0", &PatchParams::default(), &Patch::Merge(&off)).await.unwrap();
    bench.leases().delete("orders-0", &DeleteParams::default()).await.unwrap();
    bench.lease_that("orders-0", made_anew(&before)).await;
    let anew = bench.record("orders", 0).await.unwrap();
    assert_eq!((anew.next_floor, anew.fence), (held.record.next_floor, held.record.fence));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_floor_far_ahead_is_passed_over_and_its_slot_retired_when_the_lease_goes() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", slots(2)).await;
    let far = bench.clock.now().unwrap().earliest + 2 * 3_600_000;
    bench.annotate("orders-2", json!({ "cosid.dev/next-floor": far.to_string() })).await;
    let pool = bench.pool_that("orders", |pool| is(pool, "Quarantined")).await;
    assert!(message(&pool, "Quarantined").contains("slot 2: its next floor"), "{pool:?}");
    bench.event("SlotPassedOver").await;
    assert_eq!(counts(&pool), (3, 0, 2, 0));

    bench.leases().delete("orders-2", &DeleteParams::default()).await.unwrap();
    let pool = bench.pool_that("orders", |pool| counts(pool).0 == 2).await;
    let status = pool.status.unwrap();
    assert_eq!((status.retired, status.watermark), (vec![2], Some(Watermark::default())));
    bench.event("SlotRetired").await;
    assert!(bench.leases().get_opt("orders-2").await.unwrap().is_none());
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_waits_for_its_holder_and_its_watermark_comes_back_with_a_pool_of_its_name() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", slots(3)).await;
    let mut held = bench.hold("orders", 1, &Owner::new("shop/web-0")).await;
    bench.leases().delete("orders-3", &DeleteParams::default()).await.unwrap();
    bench.delete_pool("orders").await;

    let waits = |pool: &cosid_kube::SlotPool| message(pool, "Deleting").contains("1 still held");
    let pool = bench.pool_that("orders", waits).await;
    assert!(message(&pool, "Deleting").contains("slot 1 by shop/web-0"), "{pool:?}");
    assert!(!is(&pool, "Ready"));
    bench.event("DeletionWaits").await;
    for slot in [0, 2, 3] {
        assert!(bench.leases().get_opt(&lease_name("orders", slot)).await.unwrap().is_none());
    }
    // The holder goes on until it releases.
    held.renew().await;
    let freed = held.release(held_until(&bench)).await;
    bench.pool_gone("orders").await;
    assert!(bench.leases().get_opt("orders-1").await.unwrap().is_none());

    let pool = bench.ready("orders", slots(3)).await;
    let next_floor = i64::try_from(freed.next_floor).unwrap();
    let fence = i32::try_from(freed.fence).unwrap();
    assert_eq!(pool.status.unwrap().watermark, Some(Watermark { next_floor, fence }));
    for slot in 0..4 {
        let record = bench.record("orders", slot).await.unwrap();
        assert_eq!((record.next_floor, record.fence), (freed.next_floor, freed.fence));
    }
    // A pool of the same name elsewhere is another pool.
    bench.in_namespace(SYSTEM).ready("orders", slots(3)).await;
    let other = bench.in_namespace(SYSTEM).record("orders", 0).await.unwrap();
    assert_eq!((other.next_floor, other.fence), (0, 0));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_a_former_pools_name_with_another_layout_is_refused_and_can_be_deleted() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", slots(3)).await;
    bench.delete_pool("orders").await;
    bench.pool_gone("orders").await;
    // The same instant, later on, is an ID that the former pool has made already.
    let epoch = PoolLayout::default().epoch + 60_000;
    let layout = PoolLayout { epoch, ..PoolLayout::default() };
    bench.create("orders", SlotPoolSpec { layout, ..slots(3) }).await;
    let refused =
        |pool: &cosid_kube::SlotPool| message(pool, "Ready").contains("an earlier pool of this name had");
    let pool = bench.pool_that("orders", refused).await;
    assert_eq!(pool.status.unwrap().watermark, None, "no slot of it can be acquired");
    bench.delete_pool("orders").await;
    bench.pool_gone("orders").await;
    bench.ready("orders", slots(3)).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_torn_out_under_its_holder_is_remembered_by_the_next_of_its_name() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    bench.ready("orders", SlotPoolSpec { ttl_seconds: 3, ..slots(1) }).await;
    let held = bench.hold("orders", 0, &Owner::new("shop/web-0")).await;
    bench.delete_pool("orders").await;
    bench.pool_that("orders", |pool| message(pool, "Deleting").contains("1 still held")).await;
    let off = json!({ "metadata": { "finalizers": null } });
    bench.pools().patch("orders", &PatchParams::default(), &Patch::Merge(&off)).await.unwrap();
    bench.pool_gone("orders").await;

    let before = bench.leases().get("orders-0").await.unwrap();
    let next = bench.create("orders", SlotPoolSpec { ttl_seconds: 3, ..slots(1) }).await;
    let anew = bench.lease_that("orders-0", made_anew(&before)).await;
    assert_eq!(anew.owner_references()[0].uid, next.uid().unwrap());
    let record = bench.record("orders", 0).await.unwrap();
    assert_eq!((record.next_floor, record.fence), (held.record.next_floor, held.record.fence));
    controller.stop().await;
}

/// A last timestamp somewhere within the window.
fn held_until(bench: &Bench) -> u64 {
    bench.clock.now().unwrap().earliest + 5_000
}
