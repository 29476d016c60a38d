//! What an agent costs the API server, and how long a pod waits for its first ID. The numbers are printed.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes only #[test] functions for tests, not the cases they run"
)]

use std::time::{Duration, Instant};

use cosid_client::Client;
use cosid_tests::agent::Agent;
use cosid_tests::cases::{self, Case};
use cosid_tests::ground::{Ground, Space};

#[test]
fn costs() {
    let cases: &[Case<Ground>] = cosid_tests::cases![
        an_acquisition_is_3_calls_a_renewal_1_and_a_release_1,
        the_first_id_comes_soon_after_the_start,
    ];
    cases::run(&Ground::start(), 1, cases);
}

/// A pool, and its agents' rights known to the API server: it learns of a new Role a moment after it was made.
fn space<'g>(ground: &'g Ground, name: &str) -> Space<'g> {
    let space = ground.space(name);
    space.pool("orders", 4, 3);
    let mut first = space.agent("first", &["--pool", "orders"]);
    first.wait_held();
    first.terminate();
    space
}

fn an_acquisition_is_3_calls_a_renewal_1_and_a_release_1(ground: &Ground) {
    let space = space(ground, "counted");
    let mut agent = space.agent("web-0", &["--pool", "orders", "--log", "debug"]);
    agent.wait_held();
    for _ in 0..5 {
        agent.wait_renewed();
    }
    agent.terminate();
    let renewals = agent.log().matches("renewed slot").count();
    let calls = ground.calls("counted", "web-0");
    let count = |call: &str| calls.iter().filter(|made| *made == call).count();
    let [gets, lists, updates] = ["get slotpools", "list leases", "update leases"].map(count);
    println!(
        "  calls counted at the API server: {} in all for an acquisition, {renewals} renewals and a release: \
         {gets} get of the pool, {lists} list of its Leases, {updates} updates of one",
        calls.len()
    );
    assert!(renewals >= 5);
    assert_eq!((gets, lists, updates), (1, 1, 1 + renewals + 1));
    assert_eq!(calls.len(), 3 + renewals + 1, "nothing else: {calls:?}");

    // Found by itself, the pool costs one more: the list of pools.
    let mut agent = space.agent("web-1", &[]);
    agent.wait_held();
    agent.terminate();
    let calls = ground.calls("counted", "web-1");
    println!("  with the pool to be found: {calls:?}");
    assert!(calls.iter().filter(|call| *call != "update leases").count() == 3, "{calls:?}");
}

fn the_first_id_comes_soon_after_the_start(ground: &Ground) {
    let space = space(ground, "first-id");
    let launch = space.launch("web-0").args(&["--pool", "orders"]);
    let mut took: Vec<Duration> = (0..20)
        .map(|round| {
            let dir = space.dir.join(format!("web-0-{round}"));
            let start = Instant::now();
            let mut agent: Agent = launch.clone().start(&dir);
            // As an app does that is started at the same time.
            let client = loop {
                match Client::connect_to(&agent.socket) {
                    Ok(client) => break client,
                    Err(_) => std::thread::sleep(Duration::from_micros(500)),
                }
            };
            client.with_timeout(Duration::from_secs(30)).generator("orders").unwrap().next_id().unwrap();
            let took = start.elapsed();
            agent.terminate();
            took
        })
        .collect();
    took.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    println!(
        "  from an agent's start to the first ID, 20 times: median {:.0} ms, fastest {:.0} ms, slowest {:.0} ms{}",
        ms(took[10]),
        ms(took[0]),
        ms(took[19]),
        if cfg!(debug_assertions) { " (a debug build)" } else { "" }
    );
}
