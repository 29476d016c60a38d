//! Agents on one machine, with no cluster: `--store memory`.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes only #[test] functions for tests, not the cases they run"
)]

use cosid_tests::agent::{Agent, Launch};
use cosid_tests::makers::{Maker, count};

/// A machine: a directory with a store.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn agent(&self, name: &str) -> Agent {
        let launch =
            Launch::new(&["--store", "memory", "--memory-ttl", "2", "--key", &format!("local/{name}")]);
        launch.path("--store-dir", &self.0.path().join("store")).start(&self.0.path().join(name))
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
