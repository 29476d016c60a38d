//! Agents on one machine, with no cluster: `--store memory`.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes only #[test] functions for tests, not the cases they run"
)]

use std::collections::HashSet;

use cosid_client::{Client, Error, FieldOrder, Id, Layout};
use cosid_tests::agent::{Agent, Launch};
use cosid_tests::makers::{Maker, count};
use rustix::process::Signal;
use serde_json::Value;

/// A machine: a directory with a store.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn agent(&self, name: &str) -> Agent {
        self.agent_with(name, &[])
    }

    fn agent_with(&self, name: &str, args: &[&str]) -> Agent {
        let launch =
            Launch::new(&["--store", "memory", "--memory-ttl", "2", "--key", &format!("local/{name}")]);
        launch.args(args).path("--store-dir", &self.0.path().join("store")).start(&self.0.path().join(name))
    }

    fn maker(&self, agent: &Agent, name: &str) -> Maker {
        Maker::start(self.0.path(), name, &agent.socket, 60_000)
    }
}

#[test]
fn two_agents_get_two_slots_and_one_that_is_killed_goes_on_with_its_own() {
    let machine = Machine::new();
    let (mut a, b) = (machine.agent("a"), machine.agent("b"));
    let (held, other) = (a.wait_held(), b.wait_held());
    assert_ne!(held.slot, other.slot);
    assert_eq!(a.lease()["pool"], "local/default");
    let (mut first, mut second) = (machine.maker(&a, "first"), machine.maker(&b, "second"));
    first.wait_for_more();
    a.kill_and_restart();
    let resumed = a.wait_held();
    assert_eq!((resumed.slot, resumed.fence, resumed.page), (held.slot, held.fence, held.page));
    a.wait_for_log(&format!("resumed slot {} under fence {}", held.slot, held.fence));
    for maker in [&mut first, &mut second] {
        maker.finish();
        assert!(!maker.was_disturbed(), "{}", maker.events());
    }
    let count = count(&[&first, &second]);
    assert_eq!((count.ids, count.equal), (120_000, 0));
}

#[test]
fn a_slot_is_handed_on_at_its_last_timestamp_and_taken_over_after_its_expiry() {
    let machine = Machine::new();
    let mut a = machine.agent("a");
    let held = a.wait_held();
    let id = a.client().generator("orders").unwrap().next_id().unwrap();
    a.terminate();
    let b = machine.agent("b");
    let next = b.wait_held();
    assert_eq!((next.slot, next.fence), (held.slot, held.fence + 2));
    assert_eq!(next.floor, held.layout.decompose(id).unwrap().timestamp());

    let mut b = b;
    b.program.kill().unwrap();
    let launch = Launch::new(&["--store", "memory", "--slot", &next.slot.to_string(), "--key", "local/c"]);
    let c = launch.path("--store-dir", &machine.0.path().join("store")).start(&machine.0.path().join("c"));
    c.wait_for_state("exhausted", &format!("slot {} of pool local/default is held by local/b", next.slot));
    let taken = c.wait_held();
    assert_eq!((taken.slot, taken.fence), (next.slot, next.fence + 1));
    assert!(taken.floor >= next.ceiling, "{taken:?}");
    c.client().generator("orders").unwrap().next_id().unwrap();
}

/// Ten milliseconds a unit, and the slot last.
const OWN: &str =
    "timestampBits=38&slotBits=12&sequenceBits=11&unitMillis=10&epoch=1600000000000&order=sequenceSlot";

fn own() -> Layout {
    let bits = Layout::builder().timestamp_bits(38).slot_bits(12).sequence_bits(11).unit_ms(10);
    bits.epoch_ms(1_600_000_000_000).order(FieldOrder::SequenceSlot).build().unwrap()
}

/// IDs of one name by the client and over the socket, in turns.
fn by_both_ways(agent: &Agent, client: &Client, name: &str, layout: Option<Layout>, slot: u32) -> Vec<u64> {
    let (query, expected) = layout.map_or(("", Layout::MILLISECOND), |own| (OWN, own));
    let generator = match layout {
        Some(layout) => client.generator_in(name, &layout).unwrap(),
        None => client.generator(name).unwrap(),
    };
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.extend((0..200).map(|_| generator.next_id().unwrap().get()));
        let answer = agent.ask("POST", &format!("/v1/ids?generator={name}&count=200&{query}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        let told = answer.json();
        assert_eq!(layout_of(&told), layout);
        ids.extend(serde_json::from_value::<Vec<u64>>(told["ids"].clone()).unwrap());
    }
    assert_eq!(generator.layout(), expected);
    assert!(ids.is_sorted_by(|a, b| a < b), "of one cell, so in order");
    let id = Id::try_from(*ids.last().unwrap()).unwrap();
    let parts = expected.decompose(id).unwrap();
    assert_eq!(parts.slot(), slot);
    let apart = agent.ask("GET", &format!("/v1/ids/{id}?generator={name}")).json();
    let told = ["timestamp", "slot", "sequence"].map(|field| apart[field].as_u64().unwrap());
    assert_eq!(told, [parts.timestamp(), parts.slot().into(), parts.sequence().into()]);
    ids
}

fn layout_of(told: &Value) -> Option<Layout> {
    told.get("layout").map(|layout| serde_json::from_value(layout.clone()).unwrap())
}

fn assert_refuses_others(agent: &Agent) {
    for (method, path) in [
        ("PUT", "/v1/generators/parcels".to_owned()),
        ("POST", "/v1/ids?generator=parcels".to_owned()),
        ("PUT", format!("/v1/generators/orders?{OWN}")),
        ("POST", format!("/v1/ids?generator=orders&{OWN}")),
    ] {
        let refused = agent.ask(method, &path);
        assert_eq!((refused.status, refused.reason().as_str()), (409, "OtherLayout"), "{path}");
        for layout in [own(), Layout::MILLISECOND] {
            assert!(refused.message().contains(&format!("{layout:?}")), "{refused:?}");
        }
    }
    let error = agent.client().generator("parcels").unwrap_err();
    assert!(matches!(&error, Error::OtherLayout { .. }), "{error}");
}

#[test]
fn a_generator_has_a_layout_of_its_own_beside_the_pools_over_a_restart_and_a_loss() {
    let machine = Machine::new();
    let mut a = machine.agent("a");
    let held = a.wait_held();
    let client = a.client();
    assert_eq!(a.ask("GET", "/v1/ids/1?generator=parcels").reason(), "NoGenerator");
    let placed = a.ask("PUT", &format!("/v1/generators/parcels?{OWN}")).json();
    assert_eq!(layout_of(&placed), Some(own()));
    let narrow = a.ask("PUT", &format!("/v1/generators/few?{}", OWN.replace("slotBits=12", "slotBits=9")));
    assert_eq!((narrow.status, narrow.reason().as_str()), (422, "UnfitLayout"));
    let partly = a.ask("POST", "/v1/ids?generator=few&slotBits=12");
    assert_eq!((partly.status, partly.reason().as_str()), (400, "BadLayout"));
    assert!(partly.message().contains("`timestampBits` is missing"), "{partly:?}");

    let mut coarse = by_both_ways(&a, &client, "parcels", Some(own()), held.slot);
    let mut fine = by_both_ways(&a, &client, "orders", None, held.slot);
    assert_refuses_others(&a);
    a.kill_and_restart();
    assert_eq!(a.wait_held().page, held.page);
    assert_refuses_others(&a);
    coarse.extend(by_both_ways(&a, &client, "parcels", Some(own()), held.slot));

    a.program.signal(Signal::STOP).unwrap();
    let b = machine.agent_with("b", &["--slot", &held.slot.to_string()]);
    b.wait_held();
    a.program.signal(Signal::CONT).unwrap();
    let next = a.wait_held_if(|next| next.slot != held.slot);
    assert_refuses_others(&a);
    coarse.extend(by_both_ways(&a, &client, "parcels", Some(own()), next.slot));
    fine.extend(by_both_ways(&a, &client, "orders", None, next.slot));
    coarse.extend(by_both_ways(&b, &b.client(), "parcels", Some(own()), held.slot));
    fine.extend(by_both_ways(&b, &b.client(), "orders", None, held.slot));
    for ids in [coarse, fine] {
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "none twice");
    }
}
