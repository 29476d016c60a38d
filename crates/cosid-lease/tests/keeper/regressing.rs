//! A store that was restored from a backup while a lease was held.

use cosid_lease::keeper::{Binding, PoolRefusal};
use cosid_lease::{
    Keeper, KeeperConfig, LossReason, Millis, Owner, PoolState, Record, Regression, Report, SlotState,
    StoreError, algebra,
};

use crate::rig::{BASE, Mode, Rig, TERMS, store};

fn regressions(rig: &Rig) -> Vec<&Regression> {
    let all = rig.reports.iter();
    all.filter_map(|report| if let Report::StoreRegressed(found) = report { Some(found) } else { None })
        .collect()
}

fn marks(regression: &Regression) -> [(u32, Millis); 2] {
    [regression.known, regression.found].map(|mark| (mark.fence, mark.next_floor))
}

/// Held for half a minute, with what the store had at first, and at the end.
fn held() -> (Rig, Record, Record) {
    let mut rig = Rig::holding(2);
    let first = rig.record(0);
    rig.run(30_000);
    let last = rig.record(0);
    assert!(last.next_floor > first.next_floor);
    (rig, first, last)
}

#[test]
fn a_lease_that_went_back_to_an_earlier_renewal_is_reported_and_put_back_before_the_window_grows() {
    let (mut rig, first, last) = held();
    rig.store.put(0, Some(SlotState::Open(first.clone())));
    rig.run(41_000);
    let found = regressions(&rig);
    assert_eq!(found.len(), 1);
    assert_eq!(marks(found[0]), [(1, last.next_floor), (1, first.next_floor)]);
    assert_eq!((rig.times("put back").len(), rig.closes, rig.holds), (1, 0, 1));
    assert!(rig.record(0).next_floor > last.next_floor && rig.ceiling > last.next_floor);
    rig.run(120_000);
    assert_eq!(regressions(&rig).len(), 1, "once");
}

#[test]
fn a_slot_that_went_back_to_before_its_holder_is_put_back_under_the_holders_fence() {
    let gone = algebra::acquire(&Record::open(0, 7), &Owner::new("gone"), BASE - 40_000, TERMS).unwrap();
    for earlier in [Record::open(0, 0), Record::open(0, BASE), gone] {
        let (mut rig, _, last) = held();
        rig.store.put(0, Some(SlotState::Open(Record { fence: 0, ..earlier.clone() })));
        rig.run(41_000);
        assert_eq!(regressions(&rig).len(), 1, "{earlier:?}");
        let now = rig.record(0);
        let (mine, was) = (now.holding().unwrap(), last.holding().unwrap());
        assert_eq!((now.fence, &mine.owner), (last.fence, &was.owner));
        assert!(now.next_floor > last.next_floor && mine.floor >= earlier.next_floor);
        // What a referee asks of somebody who takes a slot.
        assert!(mine.acquired_at >= earlier.holding().map_or(0, |holding| holding.expires_at));
        assert_eq!((rig.closes, rig.holds), (0, 1));
    }
}

#[test]
fn a_put_back_of_unknown_outcome_leaves_the_ceiling_where_it_was_and_is_tried_on() {
    let (mut rig, first, last) = held();
    rig.store.put(0, Some(SlotState::Open(first)));
    rig.mode = Mode::Deaf;
    rig.run(55_000);
    assert_eq!(rig.ceiling, last.next_floor);
    rig.mode = Mode::Answering;
    rig.run(70_000);
    assert!(rig.ceiling > last.next_floor);
    assert_eq!(rig.closes, 0);
}

#[test]
fn a_slot_that_somebody_else_took_in_the_restored_store_is_closed_at_once_and_nothing_acquired_before_the_barrier()
 {
    let (mut rig, _, last) = held();
    let open = Record::open(0, 5);
    let other = algebra::acquire(&open, &Owner::new("other"), BASE + 33_000, TERMS).unwrap();
    rig.store.put(0, Some(SlotState::Open(other.clone())));
    rig.run(41_000);
    let lost =
        |report: &Report| matches!(report, Report::Lost { slot: 0, reason: LossReason::StoreRegressed(_) });
    assert_eq!((rig.count(lost), rig.closes, rig.holds), (1, 1, 1));
    assert_eq!(rig.record(0), other, "the other's lease is left alone");
    rig.run(200_000);
    let refusal = Report::PoolRefused(PoolRefusal::StoreRegressed { pool: "ns/p".into() });
    assert_eq!((rig.holds, rig.count(|report| *report == refusal)), (1, 1), "slot 1 is free, and not taken");
    assert!(rig.waiting.as_ref().unwrap().to_string().contains("`kubectl cosid recover p -n ns`"));
    rig.store.edit_pool(|pool| pool.barrier = last.next_floor - 1);
    rig.run(300_000);
    assert_eq!(rig.holds, 1, "a barrier below what was lost");
    rig.store.edit_pool(|pool| pool.barrier = last.next_floor);
    rig.run(310_000);
    assert_eq!(rig.holds, 2);
}

#[test]
fn a_holder_whose_put_back_is_refused_closes() {
    let (mut rig, _, _) = held();
    rig.store.put(0, Some(SlotState::Open(Record::open(0, 5))));
    rig.refuse_put_back = true;
    rig.run(41_000);
    assert_eq!((rig.closes, rig.times("put back").len()), (1, 1));
}

#[test]
fn a_restarted_holder_whose_lease_went_back_puts_it_back() {
    let owner = Owner::new("a");
    let store = store(1);
    let held = algebra::acquire(&Record::open(4, 9), &owner, BASE, TERMS).unwrap();
    let binding = Binding { slot: 0, fence: 5, holding: held.holding().unwrap().clone(), terms: TERMS };
    store.put(0, Some(SlotState::Open(Record::open(2, 3))));
    let mut rig = Rig::driving(store, move |now| Keeper::resume(KeeperConfig::new(owner), binding, now));
    rig.run(100);
    assert_eq!(marks(regressions(&rig)[0]), [(5, held.next_floor), (2, 3)]);
    assert_eq!((rig.record(0).fence, rig.closes), (5, 0));
}

#[test]
fn an_acquisition_of_unknown_outcome_is_never_used_once_the_store_is_known_to_have_gone_back() {
    let mut rig = Rig::new(1);
    rig.writes = Some(Mode::Deaf);
    rig.run(1_000);
    let before = rig.keeper.owner().clone();
    rig.store.edit_pool(|pool| pool.state = PoolState::Regressed);
    rig.run(20_000);
    assert_eq!(rig.record(0).holding().unwrap().owner, before, "it was made");
    rig.writes = None;
    rig.store.edit_pool(|pool| (pool.state, pool.barrier) = (PoolState::Ready, BASE + 90_000));
    rig.run(60_000);
    let binding = rig.binding.unwrap();
    assert_eq!((rig.holds, binding.fence), (1, 2), "not under the fence of the attempt");
    assert_ne!(binding.holding.owner.incarnation, before.incarnation);
}

#[test]
fn a_window_that_the_store_has_lost_is_put_back_before_it_is_released() {
    let before = |first: &Record| [first.clone(), Record::open(0, 5)];
    for which in [0, 1] {
        let (mut rig, first, last) = held();
        let issued = last.next_floor - 7;
        rig.last_issued = Some(issued);
        rig.store.put(0, Some(SlotState::Open(before(&first)[which].clone())));
        rig.stop();
        rig.run(31_000);
        assert_eq!((regressions(&rig).len(), rig.times("put back").len()), (1, 1));
        assert_eq!(
            rig.record(0),
            Record {
                tenure: cosid_lease::Tenure::Free { last_key: Some("a".into()) },
                ..Record::open(2, issued)
            }
        );
    }
}

#[test]
fn a_release_that_meets_somebody_else_in_a_restored_store_leaves_it_alone_and_says_so() {
    let (mut rig, _, _) = held();
    let other = algebra::acquire(&Record::open(0, 5), &Owner::new("other"), BASE + 29_000, TERMS).unwrap();
    rig.store.put(0, Some(SlotState::Open(other.clone())));
    rig.stop();
    rig.run(31_000);
    assert_eq!((regressions(&rig).len(), rig.record(0)), (1, other));
    assert!(rig.finished_at.is_some());
}

#[test]
fn a_store_that_is_away_is_no_store_that_went_back() {
    let (mut rig, _, _) = held();
    rig.mode = Mode::Failing(StoreError::Unknown("away".into()));
    rig.run(90_000);
    rig.mode = Mode::Answering;
    rig.run(120_000);
    assert_eq!((regressions(&rig).len(), rig.closes), (0, 0));
}
