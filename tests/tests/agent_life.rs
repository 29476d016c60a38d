//! What happens to agents, their slots and their tokens in a long life: no ID is made twice, and it goes on.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes only #[test] functions for tests, not the cases they run"
)]

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cosid_id::Page;
use cosid_lease::Tenure;
use cosid_tests::cases::{self, Case};
use cosid_tests::ground::{Ground, Space};
use cosid_tests::http::PATIENCE;
use cosid_tests::makers::{Maker, count};
use rustix::process::Signal;
use serde_json::json;
use xtask::programs::until;

#[test]
fn a_long_life() {
    let together: &[Case<Ground>] = cosid_tests::cases![
        a_killed_agent_goes_on_with_slot_fence_and_page_and_its_clients_never_notice,
        an_agent_stopped_past_its_expiry_loses_its_slot_and_its_clients_move,
        a_lease_that_is_deleted_by_force_is_lost_and_its_floor_lives_on,
        a_lease_that_is_edited_to_nonsense_is_lost_and_passed_over,
        a_token_that_is_replaced_is_read_again_and_renewals_go_on,
    ];
    let alone: &[Case<Ground>] =
        cosid_tests::cases![an_end_under_50_threads_hands_on_the_exact_last_timestamp];
    let ground = Ground::start();
    cases::run(&ground, 3, together);
    cases::run(&ground, 1, alone);
}

fn space<'g>(ground: &'g Ground, name: &str) -> Space<'g> {
    let space = ground.space(name);
    space.pool("orders", 2, 3);
    space
}

fn a_killed_agent_goes_on_with_slot_fence_and_page_and_its_clients_never_notice(ground: &Ground) {
    let space = space(ground, "killed");
    let mut agent = space.agent("web-0", &["--pool", "orders"]);
    let held = agent.wait_held();
    let mut makers = ["a", "b"].map(|name| Maker::start(&space.dir, name, &agent.socket, 100_000));
    for round in 0..3 {
        makers[0].wait_for_more();
        agent.kill_and_restart();
        let resumed = agent.wait_held();
        assert_eq!(
            (resumed.slot, resumed.fence, &resumed.page, resumed.floor),
            (held.slot, held.fence, &held.page, held.floor),
            "round {round}"
        );
        agent.wait_renewed();
    }
    agent.wait_for_log("resumed slot 0 under fence 1");
    for maker in &mut makers {
        maker.finish();
        assert!(!maker.was_disturbed(), "{}", maker.events());
    }
    let [a, b] = &makers;
    let count = count(&[a, b]);
    assert_eq!((count.ids, count.equal), (200_000, 0));
    assert_eq!(space.record("orders", 1).unwrap().fence, 0, "no other slot was needed");
}

fn an_agent_stopped_past_its_expiry_loses_its_slot_and_its_clients_move(ground: &Ground) {
    let space = space(ground, "stopped");
    let agent = space.agent("web-0", &["--pool", "orders"]);
    assert_eq!(agent.wait_held().slot, 0);
    let mut maker = Maker::start(&space.dir, "a", &agent.socket, 100_000);
    maker.wait_for_more();
    agent.program.signal(Signal::STOP).unwrap();
    let other = space.agent("web-1", &["--pool", "orders", "--slot", "0"]);
    other.wait_for_state("exhausted", "slot 0 of pool stopped/orders is held by stopped/web-0");
    let taken = other.wait_held();
    assert_eq!((taken.slot, taken.fence), (0, 2));
    maker.wait_until("refused");
    let mut newcomer = Maker::start(&space.dir, "b", &other.socket, 40_000);
    newcomer.wait_for_more();
    agent.program.signal(Signal::CONT).unwrap();
    maker.wait_until("moved");
    agent.wait_for_log("lost slot 0: taken by stopped/web-1 under fence 2");
    assert_eq!(agent.wait_held().slot, 1);
    maker.finish();
    newcomer.finish();
    let count = count(&[&maker, &newcomer]);
    assert_eq!((count.ids, count.equal), (140_000, 0));
}

fn a_lease_that_is_deleted_by_force_is_lost_and_its_floor_lives_on(ground: &Ground) {
    let space = space(ground, "forced");
    let agent = space.agent("web-0", &["--pool", "orders"]);
    let before = agent.wait_held();
    let old_page = Page::open(agent.dir().join(&before.page)).unwrap();
    let mut maker = Maker::start(&space.dir, "a", &agent.socket, 60_000);
    maker.wait_for_more();
    space.force_delete_lease("orders", 0);
    maker.wait_until("moved");
    // By the time it looks the controller may have made it anew.
    let log = agent.log();
    assert!(
        log.contains("lost slot 0: its Lease was deleted")
            || log.contains("lost slot 0: nobody holds it under fence 1 any more: its Lease was made anew"),
        "{log}"
    );
    assert_eq!(agent.wait_held().slot, 1);
    assert!(old_page.is_closed() && !agent.dir().join(&before.page).exists());

    // The controller makes it anew, above all that was issued on it.
    let heir = space.agent("web-1", &["--pool", "orders", "--slot", "0"]);
    let inherited = heir.wait_held();
    assert!(inherited.floor >= old_page.last_issued(), "{inherited:?} after {}", old_page.last_issued());
    let mut second = Maker::start(&space.dir, "b", &heir.socket, 20_000);
    maker.finish();
    second.finish();
    let count = count(&[&maker, &second]);
    assert_eq!((count.ids, count.equal), (80_000, 0));
}

fn a_lease_that_is_edited_to_nonsense_is_lost_and_passed_over(ground: &Ground) {
    let space = space(ground, "nonsense");
    let agent = space.agent("web-0", &["--pool", "orders"]);
    assert_eq!(agent.wait_held().slot, 0);
    let mut maker = Maker::start(&space.dir, "a", &agent.socket, 60_000);
    maker.wait_for_more();
    space.change_lease(
        "orders",
        0,
        &json!({ "metadata": { "annotations": { "cosid.dev/next-floor": "soon" } } }),
    );
    maker.wait_until("moved");
    agent.wait_for_log("lost slot 0: its Lease can't be read");
    agent.wait_for_log("slot 0 is passed over: its Lease can't be read");
    assert!(agent.log().contains("\"soon\""), "what is wrong is shown:\n{}", agent.log());
    assert_eq!(agent.wait_held().slot, 1);
    agent.wait_renewed();
    maker.finish();
    assert_eq!(count(&[&maker]).equal, 0);
}

fn a_token_that_is_replaced_is_read_again_and_renewals_go_on(ground: &Ground) {
    let space = space(ground, "tokens");
    let token = space.dir.join("token");
    fs::write(&token, space.token("web-0")).unwrap();
    let launch = space.launch_with_token_file("web-0", &token).args(&["--pool", "orders"]);
    let agent = launch.start(&space.dir.join("web-0"));
    let held = agent.wait_held();
    // Another account's, so that the API server tells them apart; the old one is worth nothing without its pod.
    fs::write(&token, space.token("web-1")).unwrap();
    space.delete_pod("web-0");
    let by_new = || Ok(ground.calls("tokens", "web-1").contains(&"update leases".to_owned()).then_some(()));
    until(|| format!("the new token is not used:\n{}", agent.log()), PATIENCE, by_new).unwrap();
    agent.wait_renewed();
    let after = agent.wait_held();
    assert_eq!((after.slot, after.fence, after.page), (held.slot, held.fence, held.page));
    assert!(!agent.log().contains("failed"), "{}", agent.log());
}

fn an_end_under_50_threads_hands_on_the_exact_last_timestamp(ground: &Ground) {
    let space = space(ground, "threads");
    let mut agent = space.agent("web-0", &["--pool", "orders"]);
    let held = agent.wait_held();
    let client = agent.client().with_timeout(Duration::from_millis(200));
    let generator = client.generator("orders").unwrap();
    let made = AtomicBool::new(false);
    let work = || {
        let mut ids = Vec::new();
        while let Ok(id) = generator.next_id() {
            ids.push(id);
            made.store(true, Ordering::Relaxed);
        }
        ids
    };
    let mut ids: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..50).map(|_| scope.spawn(work)).collect();
        until(|| "no ID".into(), PATIENCE, || Ok(made.load(Ordering::Relaxed).then_some(()))).unwrap();
        agent.wait_renewed();
        agent.terminate();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let record = space.record("orders", 0).unwrap();
    assert!(matches!(&record.tenure, Tenure::Free { .. }), "{record:?}");
    assert_eq!(u64::from(record.fence), held.fence + 1);
    let last = ids.iter().max().unwrap();
    assert_eq!(record.next_floor, held.layout.decompose(*last).unwrap().timestamp());
    let total = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), total, "none twice");
    println!("  {total} IDs by 50 threads until SIGTERM; next floor {} is the last one's", record.next_floor);
}
