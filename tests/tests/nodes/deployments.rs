//! Many pods at once.

use std::collections::BTreeSet;

use cosid_tests::pods::{App, PodGround, PodSpace};

use super::{Case, Needs};

pub(super) const CASES: &[Case] = &[(
    "forty_pods_at_once_have_forty_slots_are_rolled_without_a_wait_and_leave_exact_floors",
    Needs::AnyCluster,
    forty,
)];

const PODS: u32 = 40;

fn forty(ground: &PodGround) {
    // A long ttl: a slot that is free again was released, not expired.
    let space = ground.space("forty", 96, 120);
    space.deploy("shop", 1, &App::new("auto").rate(2_000));
    space.wait_ready("shop", 1);
    space.scale("deployment/shop", PODS);
    let first = space.wait_ready("shop", PODS as usize);
    let held = space.held();
    let distinct: BTreeSet<u32> = first.keys().map(|pod| held[pod]).collect();
    assert_eq!(distinct.len(), PODS as usize, "{held:?}");

    let _ = space.kubectl(&["rollout", "restart", "deployment/shop"]);
    let _ = space.kubectl(&["rollout", "status", "deployment/shop", "--timeout=120s"]);
    let second = space.wait_ready("shop", PODS as usize);
    assert!(second.keys().all(|pod| !first.contains_key(pod)), "all are new");
    for pod in second.keys() {
        let started = space.wait_says(pod, "started");
        assert_eq!(started["detail"]["floorAhead"], 0, "{pod} waits for its floor: {started}");
    }

    space.scale("deployment/shop", 0);
    space.wait_gone("shop");
    all_free_at_their_last_timestamps(&space);
    space.count();
}

/// Every slot is free, and its next holder may begin right after its last ID.
fn all_free_at_their_last_timestamps(space: &PodSpace<'_>) {
    let last = space.last_timestamps();
    assert!(last.len() >= PODS as usize);
    for slot in space.slots() {
        assert!(slot.is_free(), "{slot:?}");
        if let Some(last) = last.get(&slot.number) {
            assert_eq!(slot.next_floor(), *last, "slot {}", slot.number);
        }
    }
}
