//! etcd is restored from a backup while agents hold slots and their apps make IDs: it is noticed, nothing is acquired, and
//! `kubectl cosid recover` lets the pool go on.
#![allow(
    clippy::unwrap_used,
    reason = "clippy's leave for tests does not reach the functions that they share"
)]

use std::time::{Duration, Instant};

use cosid_client::Error;
use cosid_tests::agent::Agent;
use cosid_tests::ground::{Ground, Space};
use cosid_tests::http::PATIENCE;
use cosid_tests::makers::{Maker, count};
use serde_json::Value;
use xtask::programs::until;

/// A lease's length, seconds.
const TTL: i32 = 6;
const ORDERS: [&str; 2] = ["--pool", "orders"];

#[test]
fn a_restore_of_etcd_is_noticed_and_nothing_is_acquired_before_the_barrier() {
    let ground = Ground::refereed();
    let space = ground.space("shop");
    space.pool("orders", 8, TTL);
    // Pods that were made after a backup are not in it: these have their tokens before.
    let launches = ["before", "gone", "second", "after", "newcomer"].map(|pod| (pod, space.launch(pod)));
    let start = |pod: &str| {
        let (_, launch) = launches.iter().find(|(name, _)| *name == pod).unwrap();
        launch.clone().args(&ORDERS).start(&space.dir.join(pod))
    };
    let before = start("before");
    before.wait_held_if(|held| held.slot == 0);
    ground.cluster.back_up_etcd().unwrap();
    before.wait_renewed();

    // What the backup does not know: a slot that was used and given back, then taken by another, and one more.
    let mut gone = start("gone");
    gone.wait_held_if(|held| held.slot == 1);
    gone.terminate();
    let second = start("second");
    second.wait_held_if(|held| (held.slot, held.fence) == (1, 3));
    let after = start("after");
    let holders = [&before, &second, &after];
    let held = holders.map(Agent::wait_held);
    let fences = held.each_ref().map(|held| (held.slot, held.fence));
    let slots = fences.map(|(slot, _)| slot);
    assert_eq!(fences, [(0, 1), (1, 3), (2, 1)]);
    let mut makers: Vec<Maker> = holders
        .iter()
        .map(|agent| Maker::start(&space.dir, &format!("of-{}", agent.program.pid()), &agent.socket, 300_000))
        .collect();

    ground.cluster.restore_etcd().unwrap();
    let restored = Instant::now();
    let regressed = space.wait_true("orders", "StoreRegressed");
    println!("noticed {:.1} s after the API server was back: {regressed}", restored.elapsed().as_secs_f64());
    assert!(restored.elapsed() < Duration::from_secs(15), "{:?}", restored.elapsed());
    assert!(regressed.contains("kubectl cosid recover orders -n shop"), "{regressed}");

    let newcomer = start("newcomer");
    newcomer.wait_for_state("refused", "StoreRegressed: its store was restored from a backup");
    let refused = newcomer.client().generator("orders").unwrap_err();
    let names_it = |text: &str| {
        text.contains("StoreRegressed") && text.contains("`kubectl cosid recover orders -n shop`")
    };
    assert!(matches!(&refused, Error::Refused { message } if names_it(message)), "{refused}");
    // Holders keep what they had, under the fences that they had.
    for (agent, &(slot, fence)) in holders.iter().zip(&fences) {
        agent.wait_for_log("StoreRegressed: slot");
        agent.wait_renewed();
        let now = agent.wait_held();
        assert_eq!((now.slot, now.fence), (slot, fence));
        assert_eq!(u64::from(space.record("orders", slot).unwrap().fence), fence);
        assert_eq!(agent.counted("lease_events_total{event=\"StoreRegressed\"}"), 1);
    }
    let metric = "cosid_controller_pool_conditions{condition=\"StoreRegressed\"} 1";
    let counted = || Ok(ground.ask_controller("/metrics").contains(metric).then_some(()));
    until(|| ground.ask_controller("/metrics"), PATIENCE, counted).unwrap();
    let events = ground.cluster.kubectl(&["events", "--namespace=shop", "--for=slotpool/orders"]).unwrap();
    assert!(events.contains("StoreRegressed"), "{events}");

    let planned: Value =
        serde_json::from_str(&space.recover("orders", &["--dry-run", "-o", "json"])).unwrap();
    assert_eq!((&planned["recovered"], planned["held"].as_array().unwrap().len()), (&false.into(), 3));
    assert_eq!(newcomer.lease()["state"], "refused");
    let recovered: Value = serde_json::from_str(&space.recover("orders", &["--yes", "-o", "json"])).unwrap();
    let barrier = recovered["barrier"].as_u64().unwrap();
    println!("recovered {:.1} s after the API server was back", restored.elapsed().as_secs_f64());

    let new = newcomer.wait_held();
    assert!(new.floor >= barrier && !slots.contains(&new.slot), "{new:?}");
    for slot in 0..8 {
        let record = space.record("orders", slot).unwrap();
        assert!(record.next_floor >= barrier, "{slot}: {record:?}");
        // Above all that the controller knew, in any slot.
        assert!(slots.contains(&slot) || record.fence > 3, "{slot}: {record:?}");
    }
    space.wait_condition("orders", "StoreRegressed", "Recovered", "no slot begins below");
    makers.push(Maker::start(&space.dir, "of-newcomer", &newcomer.socket, 20_000));
    makers.iter_mut().for_each(Maker::finish);
    let all = count(&makers.iter().collect::<Vec<_>>());
    println!("{all:?}");
    assert_eq!(all.equal, 0);
    drop((before, second, after, newcomer));
    without_a_holder(&ground, &space);
    println!("all done {:.1} s after the API server was back", restored.elapsed().as_secs_f64());
}

/// Again, with nobody left who holds anything: the controller compares with what it has seen.
fn without_a_holder(ground: &Ground, space: &Space<'_>) {
    let launch = space.launch("last");
    space.pool("invoices", 2, TTL);
    ground.cluster.back_up_etcd().unwrap();
    let mut last = launch.args(&["--pool", "invoices"]).start(&space.dir.join("last"));
    last.wait_held();
    last.terminate();
    let used = space.record("invoices", 0).unwrap();
    assert_eq!(used.fence, 2);
    ground.cluster.restore_etcd().unwrap();
    let restored = Instant::now();
    assert_eq!(space.record("invoices", 0).unwrap().fence, 0);
    let how = space.wait_true("invoices", "StoreRegressed");
    println!("noticed {:.1} s after the API server was back: {how}", restored.elapsed().as_secs_f64());
    assert!(how.contains("was at fence"), "{how}");
    let recovered: Value =
        serde_json::from_str(&space.recover("invoices", &["--yes", "-o", "json"])).unwrap();
    let record = space.record("invoices", 0).unwrap();
    assert!(
        record.next_floor >= recovered["barrier"].as_u64().unwrap() && record.fence > used.fence,
        "{record:?}"
    );
}
