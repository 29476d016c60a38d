//! What an agent is given that can't work: it says what is wrong and what to do, loses nothing, and goes on by itself
//! once it can.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only #[test] functions for tests, not the cases they run"
)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cosid_client::{Error, LeaseState};
use cosid_kube::SlotPoolSpec;
use cosid_kube::pool::SlotRange;
use cosid_tests::agent::Agent;
use cosid_tests::cases::{self, Case};
use cosid_tests::ground::Ground;
use cosid_tests::http::PATIENCE;
use serde_json::json;
use xtask::programs::until;

#[test]
fn bad_input() {
    let cases: &[Case<Ground>] = cosid_tests::cases![
        an_unknown_pool_is_named_and_used_once_it_is_there,
        a_namespace_without_pools_is_said_to_need_one,
        a_pool_being_deleted_gives_no_slot_and_its_holders_keep_theirs,
        a_second_agent_with_the_same_key_gets_another_slot_and_says_so,
        another_width_or_tolerance_than_the_pools_is_refused,
        a_slot_that_is_not_the_pools_is_refused,
        a_full_pool_tells_its_earliest_expiry_and_a_slot_that_comes_free_is_taken,
        the_only_slot_wanted_is_waited_for_while_another_has_it,
        a_token_without_rights_is_told_which_and_goes_on_once_it_has_them,
        a_token_that_nobody_knows_is_said_to_be_invalid,
        several_pools_and_no_name_means_the_default_one,
        a_layout_that_ids_can_not_have_makes_none,
    ];
    cases::run(&Ground::start(), 6, cases);
}

/// What a program that asks for a generator is told.
fn refusal(agent: &Agent) -> Error {
    agent.client().with_timeout(Duration::from_secs(1)).generator("orders").unwrap_err()
}

fn an_unknown_pool_is_named_and_used_once_it_is_there(ground: &Ground) {
    let space = ground.space("unknown");
    space.pool("invoices", 1, 3);
    let agent = space.agent("web-0", &["--pool", "orders"]);
    let told = "there is no pool unknown/orders: create it, or name another";
    agent.wait_for_state("refused", told);
    let ready = agent.ask("GET", "/readyz");
    assert_eq!((ready.status, ready.reason().as_str()), (503, "Refused"));
    assert!(ready.message().contains(told), "{}", ready.message());
    assert!(matches!(refusal(&agent), Error::Refused { message } if message.contains(told)));
    agent.wait_for_log(told);
    space.pool("orders", 2, 3);
    assert_eq!(agent.wait_held().slot, 0);
    agent.client().generator("orders").unwrap().next_id().unwrap();
}

fn a_namespace_without_pools_is_said_to_need_one(ground: &Ground) {
    let space = ground.space("empty");
    // Before there is a pool nobody has any right, so that the API server does not even tell that there is none.
    let unnamed = space.agent("web-0", &[]);
    let named = space.agent("web-1", &["--pool", "orders"]);
    let message = unnamed.wait_for_state("starting", "no SlotPool can be read in namespace empty")["message"]
        .to_string();
    assert!(message.contains("`list` on slotpools.cosid.dev in namespace empty"), "{message}");
    let message =
        named.wait_for_state("seeking", "no SlotPool orders can be read in namespace empty")["message"]
            .to_string();
    assert!(message.contains("in namespace empty: is there a pool empty/orders"), "{message}");
    space.pool("orders", 2, 3);
    let slots = [unnamed.wait_held().slot, named.wait_held().slot];
    assert!(slots == [0, 1] || slots == [1, 0], "{slots:?}");
}

fn a_pool_being_deleted_gives_no_slot_and_its_holders_keep_theirs(ground: &Ground) {
    let space = ground.space("deleting");
    space.pool("orders", 2, 3);
    let mut holder = space.agent("web-0", &["--pool", "orders"]);
    let held = holder.wait_held();
    space.delete_pool("orders");
    let late = space.agent("web-1", &["--pool", "orders"]);
    late.wait_for_state("refused", "pool deleting/orders is being deleted: no slot can be acquired from it");
    holder.wait_renewed();
    assert!(space.has_pool("orders"));
    holder.client().generator("orders").unwrap().next_id().unwrap();
    holder.terminate();
    until(|| "the pool stays".into(), PATIENCE, || Ok((!space.has_pool("orders")).then_some(()))).unwrap();
    late.wait_for_state("refused", "there is no pool deleting/orders");

    space.pool("orders", 2, 3);
    let again = late.wait_held();
    assert!(again.floor >= held.floor, "what the old pool issued is above {}: {}", held.floor, again.floor);
    late.client().generator("orders").unwrap().next_id().unwrap();
}

fn a_second_agent_with_the_same_key_gets_another_slot_and_says_so(ground: &Ground) {
    let space = ground.space("twins");
    space.pool("orders", 4, 3);
    let args = ["--pool", "orders"];
    let first = space.launch("web-0").args(&args).start(&space.dir.join("first"));
    let held = first.wait_held();
    let second = space.launch("web-0").args(&args).start(&space.dir.join("second"));
    let other = second.wait_held();
    assert_ne!(held.slot, other.slot);
    let told =
        format!("slot {} is held under fence {} by another owner with the same key", held.slot, held.fence);
    second.wait_for_log(&told);
    assert!(second.log().contains("give each its own key"));
    assert_eq!(second.counted("lease_events_total{event=\"DuplicateOwner\"}"), 1);
    first.wait_renewed();
    assert_eq!(first.wait_held().slot, held.slot);
}

fn another_width_or_tolerance_than_the_pools_is_refused(ground: &Ground) {
    let space = ground.space("terms");
    space.pool("orders", 4, 3);
    let wide = space.agent("web-0", &["--pool", "orders", "--bits", "12"]);
    let lax = space.agent("web-1", &["--pool", "orders", "--tolerance", "5000"]);
    let right = space.agent("web-2", &["--pool", "orders", "--bits", "10", "--tolerance", "1000"]);
    wide.wait_for_state(
        "refused",
        "pool terms/orders has 10 slot bits, not the 12 asked for: ask for 10, or use",
    );
    lax.wait_for_state(
        "refused",
        "has a tolerance of 1000 ms, not the 5000 ms asked for: ask for 1000 ms, or use",
    );
    assert_eq!(right.wait_held().slot, 0);
    assert_eq!(space.record("orders", 1).unwrap().fence, 0, "those refused have taken nothing");
}

fn a_slot_that_is_not_the_pools_is_refused(ground: &Ground) {
    let space = ground.space("range");
    space.pool("orders", 4, 3);
    let agent = space.agent("web-0", &["--pool", "orders", "--slot", "4"]);
    agent.wait_for_state("refused", "slot 4 is not one of pool range/orders: its slots are 0 to 3");
    let ordinal = space.agent("web-9", &["--pool", "orders", "--slot", "ordinal"]);
    ordinal.wait_for_state("refused", "slot 9 is not one of pool range/orders");
    space.change_pool("orders", &json!({ "slots": { "first": 0, "last": 9 } }));
    assert_eq!((agent.wait_held().slot, ordinal.wait_held().slot), (4, 9));
}

fn a_full_pool_tells_its_earliest_expiry_and_a_slot_that_comes_free_is_taken(ground: &Ground) {
    let space = ground.space("full");
    space.pool("orders", 1, 3);
    let mut holder = space.agent("web-0", &["--pool", "orders"]);
    let held = holder.wait_held();
    let waiting = space.agent("web-1", &["--pool", "orders"]);
    let told = "pool full/orders is exhausted: all its 1 slots are taken";
    let lease = waiting.wait_for_state("exhausted", told);
    let expiry = lease["earliestExpiry"].as_u64().unwrap();
    assert!(expiry >= held.expires_at && expiry < held.expires_at + 60_000, "{lease}");
    match refusal(&waiting) {
        Error::Exhausted { message, earliest_expiry: Some(_) } => {
            assert!(message.contains(told), "{message}")
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(waiting.client().lease().unwrap().state, LeaseState::Exhausted { .. }));
    waiting.wait_for_log("no slot within 3000 ms: pool full/orders is exhausted");
    // The holder renews: the expiry that is told moves with it, so that nobody waits for one that has passed.
    holder.wait_renewed();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let moved = waiting.wait_for("it tells an expiry that has passed", |lease| {
        lease["earliestExpiry"].as_u64().is_some_and(|told| told > expiry + 2_000 && u128::from(told) > now())
    });
    assert_eq!(moved["state"], "exhausted");
    let last = holder.client().generator("orders").unwrap().next_id().unwrap();
    holder.terminate();
    let next = waiting.wait_held();
    assert_eq!(
        (next.slot, next.fence),
        (held.slot, held.fence + 2),
        "one for the release, one for the acquisition"
    );
    assert_eq!(next.floor, held.layout.decompose(last).unwrap().timestamp());
    assert_eq!(waiting.lease().get("earliestExpiry"), None);
}

fn the_only_slot_wanted_is_waited_for_while_another_has_it(ground: &Ground) {
    let space = ground.space("only");
    space.pool("orders", 4, 3);
    let mut holder = space.agent("web-0", &["--pool", "orders", "--slot", "2"]);
    assert_eq!(holder.wait_held().slot, 2);
    let waiting = space.agent("web-1", &["--pool", "orders", "--slot", "2"]);
    let lease = waiting.wait_for_state("exhausted", "slot 2 of pool only/orders is held by only/web-0 until");
    assert!(lease["earliestExpiry"].is_u64());
    assert!(matches!(refusal(&waiting), Error::Exhausted { .. }));
    holder.terminate();
    assert_eq!(waiting.wait_held().slot, 2);
}

fn a_token_without_rights_is_told_which_and_goes_on_once_it_has_them(ground: &Ground) {
    let pools = ground.space("rights-pool");
    pools.pool("orders", 2, 3);
    let apps = ground.space("rights-apps");
    let agent = apps.agent("web-0", &["--pool", "rights-pool/orders"]);
    let message = agent.wait_for_state("seeking", "this needs")["message"].to_string();
    assert!(message.contains("system:serviceaccount:rights-apps:web-0"), "{message}");
    assert!(message.contains("`get` on slotpools") || message.contains("`list` on leases"), "{message}");
    assert!(message.contains("is this pod's namespace among"), "{message}");
    assert!(matches!(refusal(&agent), Error::NoSlot { .. }));
    let pid = agent.program.pid();
    pools.change_pool("orders", &json!({ "allowedNamespaces": ["rights-apps"] }));
    let held = agent.wait_held();
    assert_eq!((held.slot, agent.program.pid()), (0, pid));
    let record = pools.record("orders", 0).unwrap();
    assert_eq!(record.holding().unwrap().owner.key, "rights-apps/web-0");
}

fn a_token_that_nobody_knows_is_said_to_be_invalid(ground: &Ground) {
    let space = ground.space("token-bad");
    space.pool("orders", 1, 3);
    let kubeconfig = ground.cluster.kubeconfig_with_token("token-bad", "nonsense").unwrap();
    let launch = space.launch_with("web-0", &kubeconfig).args(&["--pool", "orders"]);
    let agent = launch.start(&space.dir.join("web-0"));
    let told = "the API server does not know this caller; is its token or certificate still valid?";
    agent.wait_for_state("seeking", told);
}

fn several_pools_and_no_name_means_the_default_one(ground: &Ground) {
    let space = ground.space("which");
    space.pool("orders", 2, 3);
    let only = space.agent("web-0", &[]);
    only.wait_held();
    assert_eq!(only.lease()["pool"], "which/orders");
    space.pool("invoices", 2, 3);
    let lost = space.agent("web-1", &[]);
    let told = "namespace which has several pools and none is named `default`: name one of invoices, orders";
    lost.wait_for_state("starting", told);
    let other = lost.ask("GET", "/v1/lease?pool=orders");
    assert_eq!((other.status, other.reason().as_str()), (503, "NoSlot"), "it keeps none yet: {}", other.body);
    assert!(other.message().contains(told), "{}", other.body);
    space.pool("default", 2, 3);
    lost.wait_held();
    assert_eq!(lost.lease()["pool"], "which/default");
}

fn a_layout_that_ids_can_not_have_makes_none(ground: &Ground) {
    let space = ground.space("layout");
    // The API server, which knows no time, takes it; its last millisecond was in 1971.
    let layout = cosid_kube::pool::PoolLayout { timestamp_bits: 35, epoch: 0, ..Default::default() };
    let slots = Some(SlotRange { first: 0, last: 0 });
    space.create_pool("orders", SlotPoolSpec { slots, layout, ttl_seconds: 3, ..SlotPoolSpec::default() });
    space.wait_condition(
        "orders",
        "Ready",
        "UnusableLayout",
        "its last timestamp 34359738367 is within a year of",
    );
    let agent = space.agent("web-0", &["--pool", "orders"]);
    agent.wait_for_state("refused", "pool layout/orders is not ready");
    let answer = agent.ask("POST", "/v1/ids?generator=orders&count=1");
    assert_eq!((answer.status, answer.reason().as_str()), (503, "Refused"), "{}", answer.body);
    assert!(matches!(refusal(&agent), Error::Refused { .. }));
    space.delete_pool("orders");
    until(|| "the pool stays".into(), PATIENCE, || Ok((!space.has_pool("orders")).then_some(()))).unwrap();
}
