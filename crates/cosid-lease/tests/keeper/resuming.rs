//! Going on with a lease after a restart.

use cosid_lease::keeper::Binding;
use cosid_lease::memory::MemoryStore;
use cosid_lease::{Keeper, KeeperConfig, LossReason, Owner, Report, SlotState, StoreError, algebra};
use pollster::block_on;

use cosid_lease::{Record, SlotStore};

use crate::rig::{BASE, Mode, Rig, TERMS, store};

fn held(store: &MemoryStore, slot: u32, owner: &Owner, at: u64) -> Binding {
    let taken = algebra::acquire(&Record::open(0, 0), owner, BASE + at, TERMS).unwrap();
    let (fence, holding) = (taken.fence, taken.holding().unwrap().clone());
    store.put(slot, Some(SlotState::Open(taken)));
    Binding { slot, fence, holding, terms: TERMS }
}

/// A keeper that comes back with a lease on slot 0 of two, after this was done to the slot.
fn resuming(change: impl FnOnce(&MemoryStore)) -> (Rig, Binding) {
    let store = store(2);
    let owner = Owner::new("a");
    let binding = held(&store, 0, &owner, 0);
    change(&store);
    let resumed = binding.clone();
    let mut rig = Rig::driving(store, move |now| Keeper::resume(KeeperConfig::new(owner), resumed, now));
    rig.ceiling = binding.holding.ceiling;
    (rig, binding)
}

#[test]
fn a_lease_in_place_is_adopted_and_renewed_at_once() {
    let (mut rig, binding) = resuming(|_| ());
    rig.run(100);
    assert_eq!(rig.sent.iter().map(|sent| sent.kind).collect::<Vec<_>>(), ["read", "write"]);
    assert_eq!(rig.reports[0], Report::Resumed { slot: 0, fence: binding.fence });
    assert_eq!((rig.holds, rig.closes), (0, 0), "the window stands");
    assert_eq!(rig.record(0).fence, binding.fence);
    rig.run(60_000);
    assert!(rig.ceiling > BASE + 60_000);
}

#[test]
fn a_renewal_from_before_the_restart_that_was_never_acknowledged_is_read_back() {
    let (mut rig, binding) = resuming(|store| {
        let entry = block_on(store.read(0)).unwrap().unwrap();
        let record = entry.state.record().unwrap().clone();
        let incarnation = record.holding().unwrap().owner.incarnation;
        let renewed = algebra::renew(&record, incarnation, record.fence, BASE + 9_000, TERMS).unwrap();
        store.put(0, Some(SlotState::Open(renewed)));
    });
    rig.writes = Some(Mode::Stalled);
    rig.run(100);
    assert_eq!(rig.ceiling, binding.holding.ceiling + 9_000);
}

#[test]
fn a_lease_taken_gone_or_being_deleted_is_lost_and_another_slot_acquired() {
    let taken = |store: &MemoryStore| {
        let entry = block_on(store.read(0)).unwrap().unwrap();
        let record = entry.state.record().unwrap().clone();
        let taken = algebra::acquire(&record, &Owner::new("b"), BASE + TERMS.ttl, TERMS).unwrap();
        store.put(0, Some(SlotState::Open(taken)));
    };
    type Change = Box<dyn FnOnce(&MemoryStore)>;
    let cases: [(Change, LossReason); 3] = [
        (Box::new(taken), LossReason::Taken { holder: "b".into(), fence: 2 }),
        (Box::new(|store| store.put(0, None)), LossReason::Deleted),
        (Box::new(|store| store.put(0, Some(SlotState::Deleting))), LossReason::Deleted),
    ];
    for (change, reason) in cases {
        let (mut rig, binding) = resuming(change);
        rig.run(100);
        assert_eq!(rig.reports[0], Report::Lost { slot: 0, reason });
        assert_eq!((rig.closes, rig.holds), (1, 1));
        let now = rig.binding.clone().unwrap();
        assert_eq!(now.slot, 1);
        assert_ne!(now.holding.owner.incarnation, binding.holding.owner.incarnation);
    }
}

#[test]
fn a_store_that_does_not_answer_is_asked_again_and_the_window_stands() {
    let (mut rig, binding) = resuming(|_| ());
    rig.mode = Mode::Failing(StoreError::Denied("403".into()));
    rig.run(20_000);
    assert!(rig.times("read").len() > 5);
    assert_eq!((rig.closes, rig.ceiling), (0, binding.holding.ceiling));
    rig.mode = Mode::Answering;
    rig.run(26_000);
    assert_eq!(rig.count(|report| matches!(report, Report::Resumed { .. })), 1);
}

#[test]
fn the_bindings_incarnation_is_the_one_that_counts() {
    let store = store(1);
    let binding = held(&store, 0, &Owner::new("a"), 0);
    let other = KeeperConfig::new(Owner::new("a"));
    let resumed = binding.clone();
    let mut rig = Rig::driving(store, move |now| Keeper::resume(other, resumed, now));
    rig.run(15_000);
    assert_eq!(rig.keeper.owner(), &binding.holding.owner);
    assert_eq!(rig.count(|report| matches!(report, Report::Renewed { .. })), 2);
}

#[test]
fn a_stop_before_the_lease_is_read_back_reads_it_and_releases_exactly() {
    let (mut rig, _) = resuming(|_| ());
    rig.last_issued = Some(BASE + 123);
    rig.stop();
    rig.run(0);
    assert_eq!((rig.finished_at, rig.closes), (Some(0), 1));
    assert_eq!(rig.record(0).next_floor, BASE + 123);
    assert!(rig.record(0).holding().is_none());
}

#[test]
fn a_stop_while_resuming_ends_in_time_also_when_the_store_never_answers() {
    for stopped in [0, 2_000] {
        let (mut rig, _) = resuming(|_| ());
        rig.mode = Mode::Stalled;
        rig.run(stopped);
        rig.stop();
        rig.run(60_000);
        assert!(rig.finished_at.unwrap() <= stopped + 1_500, "{:?}", rig.finished_at);
        assert_eq!(rig.count(|report| *report == Report::ReleaseAbandoned { slot: 0 }), 1);
    }
}
