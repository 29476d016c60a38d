//! The API server goes away: it is killed, it hangs, it comes back. Agents end in time, keep what they hold, and begin
//! without it.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes only #[test] functions for tests, not the cases they run"
)]

use std::thread;
use std::time::{Duration, Instant};

use cosid_client::Error;
use cosid_lease::Tenure;
use cosid_tests::cases::{self, Case};
use cosid_tests::ground::Ground;
use cosid_tests::http::PATIENCE;
use cosid_tests::makers::{Maker, count};
use xtask::programs::until;

#[test]
fn an_api_server_that_goes_away() {
    // One after the other: there is one API server.
    let cases: &[Case<Ground>] = cosid_tests::cases![
        a_killed_api_server_ends_no_agent_and_is_found_again,
        an_api_server_that_hangs_for_9_s_costs_no_lease_and_holds_up_no_end,
    ];
    cases::run(&Ground::start(), 1, cases);
}

fn a_killed_api_server_ends_no_agent_and_is_found_again(ground: &Ground) {
    let space = ground.space("killed");
    space.pool("orders", 8, 30);
    let orders = ["--pool", "orders"];
    let keeper = space.agent("keeper", &orders);
    let mut restarted = space.agent("restarted", &orders);
    let mut leaving = space.agent("leaving", &orders);
    let [kept, resumed, left] = [&keeper, &restarted, &leaving].map(|agent| agent.wait_held());
    let [named, unnamed, undecided] = ["named", "unnamed", "undecided"].map(|pod| space.launch(pod));
    let other = ground.space("killed-quick");
    other.pool("quick", 1, 3);
    let brief = other.agent("brief", &["--pool", "quick"]);
    let short = brief.wait_held();
    let generator = brief.client().generator("orders").unwrap().with_timeout(Duration::ZERO);
    let mut makers = [&keeper, &restarted].map(|agent| {
        Maker::start(&space.dir, &format!("of-{}", agent.program.pid()), &agent.socket, 200_000)
    });

    ground.cluster.kill_apiserver().unwrap();
    let named = named.args(&orders).start(&space.dir.join("named"));
    let unnamed = unnamed.start(&space.dir.join("unnamed"));
    let mut undecided = undecided.start(&space.dir.join("undecided"));
    let told = "the API server can't be reached";
    named.wait_for_state("seeking", told);
    for looking in [&unnamed, &undecided] {
        looking.wait_for_state("starting", told);
        assert_eq!((looking.ask("GET", "/livez").status, looking.ask("GET", "/readyz").status), (200, 503));
    }
    let nobody = named.client().generator("orders").unwrap_err();
    assert!(matches!(&nobody, Error::NoSlot { message } if message.contains(told)), "{nobody}");
    undecided.terminate();
    leaving.terminate();
    leaving.wait_for_log(&format!("slot {} could not be released in time; it expires by itself", left.slot));
    restarted.kill_and_restart();
    let again = restarted.wait_held();
    assert_eq!((again.slot, again.fence, &again.page), (resumed.slot, resumed.fence, &resumed.page));
    restarted.wait_for_log("resume failed");
    makers[1].wait_for_more();
    // A short lease has expired by now: IDs stop at its ceiling, and it stays its holder's as long as nobody takes it.
    brief.wait_for_state("held", "slot 0 has expired without a renewal: IDs stop at its ceiling");
    let not_ready = || Ok(Some(brief.ask("GET", "/readyz")).filter(|ready| ready.status == 503));
    let ready = until(|| "it is ready".into(), PATIENCE, not_ready).unwrap();
    assert_eq!(ready.reason(), "Window");
    assert!(matches!(generator.next_id().unwrap_err(), Error::NotYet(_)));
    ground.cluster.start_apiserver().unwrap();
    brief.wait_renewed();
    let renewed = brief.wait_held();
    assert_eq!((renewed.slot, renewed.fence, &renewed.page), (short.slot, short.fence, &short.page));
    assert_eq!(brief.ask("GET", "/readyz").body, "holds slot 0 under fence 1\n");
    generator.next_id().unwrap();

    for (agent, before) in [(&keeper, &kept), (&restarted, &resumed)] {
        agent.wait_renewed();
        let after = agent.wait_held();
        assert_eq!((after.slot, after.fence, &after.page), (before.slot, before.fence, &before.page));
    }
    let slots = [named.wait_held().slot, unnamed.wait_held().slot];
    assert!(slots[0] != slots[1] && !slots.contains(&left.slot), "{slots:?}; {} expires later", left.slot);
    for maker in &mut makers {
        maker.finish();
        assert!(!maker.was_disturbed(), "{}", maker.events());
    }
    let [a, b] = &makers;
    assert_eq!(count(&[a, b]).equal, 0);
}

fn an_api_server_that_hangs_for_9_s_costs_no_lease_and_holds_up_no_end(ground: &Ground) {
    let space = ground.space("hangs");
    space.pool("orders", 1, 30);
    space.pool("invoices", 2, 30);
    let agent = space.agent("web-0", &["--pool", "orders"]);
    let held = agent.wait_held();
    let acquired = Instant::now();
    let rival = space.agent("web-1", &["--pool", "orders"]);
    rival.wait_for_state("exhausted", "pool hangs/orders is exhausted");
    let mut leaving = space.agent("web-2", &["--pool", "invoices"]);
    leaving.wait_held();
    let mut starting = space.agent("web-3", &["--pool", "invoices"]);
    starting.wait_held();
    let mut maker = Maker::start(&space.dir, "a", &agent.socket, 420_000);
    // Just before the first renewal is due, which is at a third of the ttl, give or take a tenth: the worst moment.
    thread::sleep(Duration::from_millis(8_900).saturating_sub(acquired.elapsed()));
    let before = agent.counted("lease_events_total{event=\"Renewed\"}");

    ground.cluster.pause_apiserver().unwrap();
    let paused = Instant::now();
    leaving.terminate();
    leaving.wait_for_log("could not be released in time; it expires by itself");
    starting.kill_and_restart();
    starting.wait_held();
    starting.terminate();
    agent.wait_for_log("renew failed");
    thread::sleep(Duration::from_secs(9).saturating_sub(paused.elapsed()));
    ground.cluster.resume_apiserver().unwrap();

    agent.wait_renewed();
    assert!(agent.counted("lease_events_total{event=\"Renewed\"}") > before);
    let after = agent.wait_held();
    assert_eq!((after.slot, after.fence, &after.page), (held.slot, held.fence, &held.page));
    assert!(!agent.log().contains("has expired"), "{}", agent.log());
    assert_eq!(rival.lease()["state"], "exhausted");
    maker.finish();
    assert!(!maker.was_disturbed(), "{}", maker.events());
    assert_eq!(count(&[&maker]).equal, 0);
    assert!(matches!(space.record("orders", 0).unwrap().tenure, Tenure::Held(_)));
}
