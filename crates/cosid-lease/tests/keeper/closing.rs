//! Stopping: close, release, end, in time, in every state.

use cosid_lease::{Action, Event, KeeperConfig, Millis, Owner, Report, SlotState, StoreError, algebra};

use crate::rig::{BASE, Mode, Rig, TERMS, store};

/// The default of [`KeeperConfig::release_timeout`].
const TIMEOUT: Millis = 1_500;

fn abandoned(rig: &Rig) -> usize {
    rig.count(|report| matches!(report, Report::ReleaseAbandoned { slot: 0 }))
}

#[test]
fn a_release_is_one_write_and_hands_on_the_exact_last_timestamp() {
    let mut rig = Rig::holding(1);
    rig.run(1_000);
    rig.last_issued = Some(BASE + 777);
    rig.stop();
    rig.run(1_000);
    assert_eq!(rig.finished_at, Some(1_000));
    assert_eq!(rig.record(0).next_floor, BASE + 777);
    assert!(rig.record(0).holding().is_none());
    assert_eq!(rig.sent.len(), 3, "load, acquire, release");
    assert_eq!(rig.reports.last(), Some(&Report::Released { slot: 0, next_floor: BASE + 777 }));
}

#[test]
fn the_close_comes_first_and_nothing_is_released_before_it_is_done() {
    let mut rig = Rig::holding(1);
    rig.last_issued = None;
    rig.stop();
    rig.run(10_000);
    assert_eq!((rig.closes, rig.sent.len(), rig.finished_at), (1, 2, None));
    rig.keeper.handle(Event::Closed { last_issued: BASE + 5 }, rig.now());
    rig.run(10_000);
    assert_eq!(rig.finished_at, Some(10_000));
    assert_eq!(rig.record(0).next_floor, BASE + 5);
}

#[test]
fn a_stop_before_anything_was_asked_ends_at_once() {
    let mut rig = Rig::new(1);
    rig.stop();
    rig.run(0);
    assert_eq!((rig.finished_at, rig.sent.len(), rig.closes), (Some(0), 0, 0));
}

#[test]
fn a_stop_while_waiting_for_a_slot_ends_at_once() {
    let mut rig = Rig::new(1);
    rig.take(0, "b", 0);
    rig.run(3_000);
    rig.stop();
    rig.run(3_000);
    assert_eq!((rig.finished_at, rig.closes), (Some(3_000), 0));
}

#[test]
fn a_stop_during_the_first_load_ends_at_once() {
    let mut rig = Rig::new(1);
    rig.mode = Mode::Stalled;
    rig.run(2_000);
    rig.stop();
    rig.run(2_000);
    assert_eq!(rig.finished_at, Some(2_000));
}

#[test]
fn a_stop_during_an_acquisition_gives_back_what_it_got() {
    let mut rig = Rig::new(1);
    rig.writes = Some(Mode::Deaf);
    rig.run(100);
    assert!(rig.record(0).holding().is_some());
    rig.writes = None;
    rig.stop();
    rig.run(100);
    assert_eq!((rig.finished_at, rig.closes, rig.holds), (Some(100), 0, 0));
    assert!(rig.record(0).holding().is_none());
    assert_eq!(rig.record(0).next_floor, 0, "nothing was issued");
}

#[test]
fn a_stop_after_an_acquisition_of_unknown_outcome_gives_back_what_it_got() {
    let mut rig = Rig::new(1);
    rig.writes = Some(Mode::Deaf);
    rig.run(5_050);
    assert!(rig.count(|report| matches!(report, Report::StoreFailed { .. })) > 0, "it was given up");
    rig.writes = None;
    rig.stop();
    rig.run(5_050);
    assert_eq!((rig.finished_at, rig.holds), (Some(5_050), 0));
    assert!(rig.record(0).holding().is_none());
}

#[test]
fn a_stop_with_a_store_that_never_answers_ends_within_the_release_timeout() {
    for mode in [Mode::Stalled, Mode::Deaf, Mode::Failing(StoreError::Unknown("refused".into()))] {
        // Holding; a renewal under way; an acquisition under way.
        for begin in [2_000, 10_900, 0] {
            let mut rig = Rig::new(1);
            if begin == 0 {
                rig.writes = Some(Mode::Stalled);
                rig.run(10);
            } else {
                rig.run(begin.min(8_000));
            }
            rig.mode = mode.clone();
            rig.writes = None;
            rig.run(begin.max(10));
            rig.stop();
            let stopped = rig.mono;
            rig.run(stopped + 60_000);
            let finished = rig.finished_at.unwrap();
            assert!(finished <= stopped + TIMEOUT, "{mode:?} at {stopped}: ended at {finished}");
            assert!(rig.sent.iter().filter(|sent| sent.at >= stopped).count() >= 2, "{:?}", rig.sent);
            assert_eq!(abandoned(&rig), 1);
        }
    }
}

#[test]
fn a_stop_during_a_renewal_releases_whichever_of_the_two_comes_first() {
    for arrives_before in [true, false] {
        let mut rig = Rig::holding(1);
        rig.run(8_000);
        rig.mono = rig.keeper.wake_at().unwrap();
        let actions = rig.poll_only();
        let [Action::Send { id, request: renewal, .. }] = &actions[..] else { panic!("{actions:?}") };
        rig.last_issued = Some(BASE + 9_000);
        rig.stop();
        if arrives_before {
            rig.execute(renewal.clone()).unwrap();
        }
        rig.run(rig.mono);
        let late = rig.execute(renewal.clone());
        assert!(matches!(late, Err(StoreError::Conflict)), "{late:?}");
        rig.answer(*id, late);
        rig.run(rig.mono + 5_000);
        assert!(rig.finished_at.is_some());
        assert!(rig.record(0).holding().is_none());
        assert_eq!((rig.record(0).fence, rig.record(0).next_floor), (2, BASE + 9_000));
    }
}

#[test]
fn a_stop_while_a_lost_window_is_being_closed_ends_without_another_slot() {
    let mut rig = Rig::holding(2);
    rig.last_issued = None;
    rig.take(0, "b", 0);
    rig.run(11_000);
    assert_eq!(rig.closes, 1);
    rig.stop();
    rig.keeper.handle(Event::Closed { last_issued: BASE }, rig.now());
    rig.run(20_000);
    assert_eq!((rig.finished_at, rig.holds, rig.closes), (Some(11_000), 1, 1));
}

#[test]
fn a_release_whose_answer_was_lost_is_found_done() {
    let mut rig = Rig::holding(1);
    rig.last_issued = Some(BASE + 50);
    rig.writes = Some(Mode::Deaf);
    rig.stop();
    rig.run(10);
    rig.writes = None;
    rig.run(5_000);
    assert!(rig.finished_at.unwrap() <= TIMEOUT);
    assert_eq!((rig.record(0).fence, rig.record(0).next_floor), (2, BASE + 50));
    assert_eq!(rig.count(|report| *report == Report::Released { slot: 0, next_floor: BASE + 50 }), 1);
}

#[test]
fn a_release_of_what_is_somebody_elses_by_now_changes_nothing() {
    let mut rig = Rig::holding(1);
    rig.take(0, "b", 0);
    let before = rig.record(0);
    rig.stop();
    rig.run(100);
    assert_eq!(rig.finished_at, Some(0));
    assert_eq!(rig.record(0), before);
    assert_eq!(rig.count(|report| matches!(report, Report::Released { .. })), 0);
}

#[test]
fn a_lease_of_the_same_incarnation_under_another_fence_is_not_given_back() {
    // Two processes with one state file: the other's window is still open.
    let mut rig = Rig::holding(1);
    let owner = rig.keeper.owner().clone();
    let free = algebra::release(&rig.record(0), owner.incarnation, 1, BASE).unwrap();
    let other = algebra::acquire(&free, &owner, BASE, TERMS).unwrap();
    rig.store.put(0, Some(SlotState::Open(other.clone())));
    rig.stop();
    rig.run(2_000);
    assert!(rig.finished_at.is_some());
    assert_eq!(rig.record(0), other);
}

#[test]
fn a_second_stop_and_a_second_close_are_harmless() {
    let mut rig = Rig::holding(1);
    rig.last_issued = Some(BASE + 9);
    rig.stop();
    rig.stop();
    rig.run(0);
    rig.stop();
    rig.keeper.handle(Event::Closed { last_issued: BASE + 500 }, rig.now());
    rig.run(60_000);
    assert_eq!((rig.finished_at, rig.closes, rig.record(0).next_floor), (Some(0), 1, BASE + 9));
    assert_eq!(rig.keeper.wake_at(), None);
}

#[test]
fn a_release_timeout_of_its_own_is_kept() {
    let config = KeeperConfig { release_timeout: 300, ..KeeperConfig::new(Owner::new("a")) };
    let mut rig = Rig::with(store(1), config);
    rig.run(0);
    rig.mode = Mode::Stalled;
    rig.stop();
    rig.run(10_000);
    assert_eq!((rig.finished_at, abandoned(&rig)), (Some(300), 1));
}

#[test]
fn with_time_to_spare_a_slow_store_is_waited_for_longer_than_a_moment() {
    let config = KeeperConfig { release_timeout: 9_000, ..KeeperConfig::new(Owner::new("a")) };
    let mut rig = Rig::with(store(1), config);
    rig.run(100);
    rig.mode = Mode::Stalled;
    rig.stop();
    rig.run(20_000);
    let releases: Vec<Millis> =
        rig.sent.iter().filter(|sent| sent.at >= 100).map(|sent| sent.timeout).collect();
    assert_eq!(releases[0], 3_000, "{releases:?}");
    assert!(releases.len() >= 3, "{releases:?}");
    assert_eq!(rig.finished_at, Some(9_100));
}
