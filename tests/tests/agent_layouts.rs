//! Pools whose IDs are laid out as those of other systems, through real agents.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes only #[test] functions for tests, not the cases they run"
)]

use std::time::{SystemTime, UNIX_EPOCH};

use cosid_client::Layout;
use cosid_kube::SlotPoolSpec;
use cosid_kube::pool::{PoolLayout, PoolOrder, SlotRange};
use cosid_tests::cases::{self, Case};
use cosid_tests::ground::Ground;

#[test]
fn layouts_of_pools() {
    let cases: &[Case<Ground>] = cosid_tests::cases![
        a_sonyflake_pool_s_ids_have_the_sequence_before_the_slot,
        a_twitter_pool_s_ids_are_of_its_epoch,
    ];
    cases::run(&Ground::start(), 2, cases);
}

/// Slot and sequence of an ID as somebody without this project's code takes them out of it.
type Taken = fn(u64) -> (u64, u64, u64);

fn a_sonyflake_pool_s_ids_have_the_sequence_before_the_slot(ground: &Ground) {
    let layout = PoolLayout {
        timestamp_bits: 39,
        sequence_bits: 8,
        unit_milliseconds: 10,
        epoch: 1_409_529_600_000,
        order: PoolOrder::TimestampSequenceSlot,
    };
    let taken: Taken = |id| ((id >> 24) * 10 + 1_409_529_600_000, id & 0xffff, (id >> 16) & 0xff);
    check(ground, "sonyflake", 16, layout, Layout::SONYFLAKE, taken);
}

fn a_twitter_pool_s_ids_are_of_its_epoch(ground: &Ground) {
    let layout = PoolLayout { epoch: 1_288_834_974_657, ..PoolLayout::default() };
    let taken: Taken = |id| ((id >> 22) + 1_288_834_974_657, (id >> 12) & 0x3ff, id & 0xfff);
    check(ground, "twitter", 10, layout, Layout::TWITTER, taken);
}

fn check(ground: &Ground, name: &str, bits: i32, layout: PoolLayout, expected: Layout, taken: Taken) {
    let space = ground.space(name);
    let slots = Some(SlotRange { first: 300, last: 301 });
    space.create_pool("orders", SlotPoolSpec { bits, slots, layout, ..SlotPoolSpec::default() });
    space.wait_ready("orders");
    let agents = [space.agent("web-0", &["--pool", "orders"]), space.agent("web-1", &["--pool", "orders"])];
    let mut ids = Vec::new();
    for agent in &agents {
        let held = agent.wait_held();
        assert_eq!(held.layout, expected);
        let generator = agent.client().generator("orders").unwrap();
        let told = agent.ask("POST", "/v1/ids?generator=orders&count=500").json();
        let mut own: Vec<u64> =
            told["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
        own.extend((0..500).map(|_| generator.next_id().unwrap().get()));
        assert!(own.is_sorted_by(|a, b| a < b));
        let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        for &id in &own {
            let (timestamp, slot, sequence) = taken(id);
            let apart = agent.ask("GET", &format!("/v1/ids/{id}")).json();
            assert_eq!(apart["timestamp"], timestamp);
            assert_eq!((&apart["slot"], &apart["sequence"]), (&slot.into(), &sequence.into()));
            assert_eq!(slot, u64::from(held.slot));
            assert!(timestamp + 60_000 > now && timestamp <= now, "{timestamp} at {now}");
        }
        ids.extend(own);
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((count, ids.len()), (2_000, 2_000));
}
