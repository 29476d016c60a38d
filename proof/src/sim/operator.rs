//! Somebody with rights: makes the pool, deletes Leases, deletes the pool and makes it again.

use std::time::Duration;

use cosid_id::FieldOrder;
use cosid_kube::pool::{PoolLayout, PoolOrder, SlotPool, SlotPoolSpec, SlotRange};
use http::Method;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::checker::{Violation, Who};
use super::controllers::has_pool;
use super::world::{NAMESPACE, POOL, Setting, World, pool_place};
use crate::api_server::{Call, Place};

/// A pool that is deleted waits for its holders, for as long as leases may seem to last where clocks jumped; then it goes.
const LONGEST_DELETION: Duration = Duration::from_secs(1_800);

/// Does so until the run is calm.
pub(crate) async fn run(world: World) {
    let weights = world.setting().weights;
    make_pool(&world);
    loop {
        sleep(Duration::from_millis(1_000)).await;
        if world.is_calm() {
            return;
        }
        if world.chance(weights.store_clock) {
            world.jump();
        }
        if world.chance(weights.lease_deleted) {
            delete_any_lease(&world);
        }
        if world.chance(weights.pool_deleted) {
            renew_pool(&world).await;
        }
    }
}

fn make_pool(world: &World) {
    let Setting { slots, ttl_seconds, tolerance, layout, .. } = world.setting();
    let layout = PoolLayout {
        timestamp_bits: layout.timestamp_bits().into(),
        sequence_bits: layout.sequence_bits().into(),
        unit_milliseconds: i32::try_from(layout.unit_ms()).unwrap_or(1),
        epoch: i64::try_from(layout.epoch_ms()).unwrap_or(0),
        order: match layout.order() {
            FieldOrder::SequenceSlot => PoolOrder::TimestampSequenceSlot,
            _ => PoolOrder::TimestampSlotSequence,
        },
    };
    let spec = SlotPoolSpec {
        slots: Some(SlotRange { first: 0, last: i32::try_from(slots).unwrap_or(1) - 1 }),
        ttl_seconds,
        tolerance_milliseconds: tolerance,
        layout,
        ..SlotPoolSpec::default()
    };
    let mut pool = SlotPool::new(POOL, spec);
    pool.metadata.namespace = Some(NAMESPACE.into());
    let body = serde_json::to_value(&pool).unwrap_or(Value::Null);
    act(world, Method::POST, Place::named(NAMESPACE, "slotpools", ""), body);
}

fn delete_any_lease(world: &World) {
    let names: Vec<String> = world.lock().leases().map(|lease| lease.name_any()).collect();
    let name = world.lock().random.pick(&names);
    if let Some(name) = name {
        act(world, Method::DELETE, Place::named(NAMESPACE, "leases", &name), json!({}));
    }
}

/// Deletes the pool, ends the agents after a while, and makes the pool again once it has gone.
async fn renew_pool(world: &World) {
    act(world, Method::DELETE, pool_place(), json!({}));
    sleep(Duration::from_millis(world.within(0, 20_000))).await;
    world.lock().drained = true;
    world.say(None, || "all agents are told to end".into());
    let gone = async {
        while has_pool(world) {
            sleep(Duration::from_millis(500)).await;
        }
    };
    if tokio::time::timeout(LONGEST_DELETION, gone).await.is_err() {
        let text = "the pool does not go, though no agent is left".to_owned();
        world.check(Err(Violation { slot: None, text }));
    }
    sleep(Duration::from_millis(world.within(0, 5_000))).await;
    make_pool(world);
    world.lock().drained = false;
}

fn act(world: &World, method: Method, place: Place, body: Value) {
    let call = Call { method, place, selector: None, body };
    world.arrive(&Who::Somebody, &call, "");
}
