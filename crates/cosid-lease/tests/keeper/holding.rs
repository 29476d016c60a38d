//! Keeping a slot: the pace of renewals, outages, conflicts, and losses.

use cosid_lease::{Action, LossReason, Millis, Report, SlotState, StoreError, algebra};

use crate::rig::{BASE, Mode, Rig, TERMS};

#[test]
fn renewals_come_every_third_of_the_ttl_with_jitter_and_are_one_write_each() {
    let mut rig = Rig::holding(1);
    rig.run(300_000);
    let writes = rig.times("write");
    let pauses: Vec<Millis> = writes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() >= 27, "{pauses:?}");
    assert!(pauses.iter().all(|pause| (9_000..=11_000).contains(pause)), "{pauses:?}");
    assert!(pauses.iter().any(|&pause| pause != pauses[0]), "{pauses:?}");
    assert_eq!((rig.times("load").len(), rig.times("read").len()), (1, 0));
    let last = writes.last().unwrap();
    assert_eq!(rig.ceiling, BASE + last + TERMS.ttl + TERMS.tolerance);
}

#[test]
fn failed_renewals_are_retried_from_100_ms_doubling_to_a_sixth_of_the_ttl() {
    let mut rig = Rig::holding(1);
    rig.mode = Mode::Failing(StoreError::Denied("401".into()));
    rig.run(60_000);
    let writes = rig.times("write");
    let pauses: Vec<Millis> = writes[1..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (pause, wanted) in pauses.iter().zip([100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]) {
        let range = wanted * 9 / 10..=(wanted * 11 / 10).min(TERMS.ttl / 6);
        assert!(range.contains(pause), "{pause} in {range:?}: {pauses:?}");
    }
    assert_eq!(rig.closes, 0, "failures are no loss");
}

#[test]
fn a_store_that_stalls_for_9_s_gets_three_attempts_before_the_ceiling_and_loses_nothing() {
    // Whenever the stall begins.
    for begin in (0..12_000).step_by(500) {
        let mut rig = Rig::holding(1);
        rig.run(begin);
        let (ceiling, renewed) = (rig.ceiling, rig.times("write").len());
        rig.mode = Mode::Stalled;
        rig.run(begin + 9_000);
        rig.mode = Mode::Answering;
        rig.run(ceiling - BASE);
        assert!(rig.ceiling > ceiling, "renewed before the ceiling was reached");
        assert_eq!(rig.closes, 0);
        assert!(rig.times("write").len() > renewed);
    }
    // And one that never comes back gets at least three within the window.
    let mut rig = Rig::holding(1);
    rig.mode = Mode::Stalled;
    rig.run(TERMS.ttl + TERMS.tolerance);
    let attempts: Vec<_> = rig.sent.iter().filter(|sent| sent.at > 0).collect();
    assert!(attempts.len() >= 3, "{attempts:?}");
    assert!(attempts.iter().all(|sent| sent.timeout <= TERMS.ttl / 6), "{attempts:?}");
}

#[test]
fn an_expiry_is_reported_once_an_outage_and_the_slot_kept_until_somebody_took_it() {
    let mut rig = Rig::holding(1);
    rig.mode = Mode::Failing(StoreError::Unknown("connection refused".into()));
    rig.run(200_000);
    assert_eq!(rig.count(|report| *report == Report::Expired { slot: 0 }), 1);
    rig.mode = Mode::Answering;
    rig.run(206_000);
    assert!(rig.ceiling > BASE + 200_000);
    assert_eq!(rig.closes, 0);
    rig.mode = Mode::Failing(StoreError::Unknown("connection refused".into()));
    rig.run(400_000);
    assert_eq!(rig.count(|report| *report == Report::Expired { slot: 0 }), 2);
}

#[test]
fn an_unknown_outcome_keeps_the_old_ceiling_until_it_is_read_back() {
    let mut rig = Rig::holding(1);
    let old = rig.ceiling;
    rig.writes = Some(Mode::Deaf);
    rig.run(12_000);
    assert!(rig.record(0).next_floor > old, "the renewal was done");
    assert_eq!(rig.ceiling, old, "it was not acknowledged");
    let stored = rig.record(0).next_floor;
    rig.writes = Some(Mode::Failing(StoreError::Conflict));
    rig.run(17_500);
    assert_eq!(rig.ceiling, stored, "read back after the conflict");
    assert_eq!(rig.closes, 0);
}

#[test]
fn a_conflict_with_its_own_lease_still_in_place_is_a_retry_and_no_loss() {
    let mut rig = Rig::holding(1);
    let same = rig.record(0);
    rig.store.put(0, Some(SlotState::Open(same)));
    rig.run(11_000);
    let kinds: Vec<_> = rig.sent[1..].iter().map(|sent| sent.kind).collect();
    assert_eq!(kinds, ["write", "write", "read", "write"]);
    assert_eq!(rig.closes, 0);
    assert_eq!(rig.count(|report| matches!(report, Report::Renewed { .. })), 1);
    assert_eq!(rig.count(|report| matches!(report, Report::StoreFailed { .. })), 0);
}

#[test]
fn a_store_that_answers_every_write_with_a_conflict_is_not_asked_in_a_tight_loop() {
    let mut rig = Rig::holding(1);
    rig.writes = Some(Mode::Failing(StoreError::Conflict));
    rig.run(31_000);
    let writes = rig.times("write").len();
    assert!((5..=15).contains(&writes), "{writes}");
    assert_eq!(rig.closes, 0);
}

#[test]
fn a_lost_slot_is_closed_and_another_acquired_by_a_new_incarnation() {
    let mut rig = Rig::holding(2);
    let first = rig.binding.clone().unwrap();
    rig.take(0, "b", 0);
    rig.run(11_000);
    let reason = LossReason::Taken { holder: "b".into(), fence: 2 };
    assert_eq!(rig.count(|report| *report == Report::Lost { slot: 0, reason: reason.clone() }), 1);
    assert_eq!((rig.closes, rig.holds), (1, 2));
    let second = rig.binding.clone().unwrap();
    assert_eq!(second.slot, 1);
    assert_eq!(second.holding.owner.key, first.holding.owner.key);
    assert_ne!(second.holding.owner.incarnation, first.holding.owner.incarnation);
    assert_eq!(rig.keeper.owner(), &second.holding.owner);
}

#[test]
fn nothing_is_acquired_before_the_lost_window_is_closed() {
    let mut rig = Rig::holding(2);
    rig.last_issued = None;
    rig.take(0, "b", 0);
    rig.run(120_000);
    assert_eq!((rig.closes, rig.holds), (1, 1));
    assert_eq!(rig.times("load").len(), 1);
    rig.keeper.handle(cosid_lease::Event::Closed { last_issued: BASE }, rig.now());
    rig.run(120_000);
    assert_eq!(rig.holds, 2);
}

#[test]
fn a_slot_that_is_deleted_gone_shut_or_corrupt_is_lost_and_never_written_again() {
    let cases = [
        (Some(SlotState::Deleting), LossReason::Deleted),
        (Some(SlotState::Shut), LossReason::Deleted),
        (None, LossReason::Deleted),
        (Some(SlotState::Corrupt("x".into())), LossReason::Corrupt("x".into())),
    ];
    for (state, reason) in cases {
        let mut rig = Rig::holding(2);
        rig.store.put(0, state);
        rig.run(11_000);
        assert_eq!(rig.count(|report| *report == Report::Lost { slot: 0, reason: reason.clone() }), 1);
        assert_eq!((rig.closes, rig.binding.unwrap().slot), (1, 1));
    }
}

#[test]
fn answers_to_old_requests_are_ignored() {
    let mut rig = Rig::holding(1);
    let (ceiling, reports) = (rig.ceiling, rig.reports.len());
    for id in 0..=2 {
        rig.answer(id, Err(StoreError::Gone));
    }
    rig.run(5_000);
    assert_eq!((rig.closes, rig.reports.len()), (0, reports));
    // A renewal given up, the next one under way: the old one's answer changes nothing.
    rig.mode = Mode::Stalled;
    rig.run(17_000);
    let old = rig.sent[rig.sent.len() - 2].id;
    rig.answer(old, Ok(cosid_lease::keeper::Answer::Written(99)));
    assert!(rig.poll_only().iter().all(|action| !matches!(action, Action::Extend { .. })));
    assert_eq!(rig.ceiling, ceiling);
}

#[test]
fn a_store_clock_that_steps_back_lowers_nothing_and_slows_no_renewal() {
    let mut rig = Rig::holding(1);
    rig.run(15_000);
    let before = rig.record(0);
    rig.store_off = -3_600_000;
    rig.run(60_000);
    assert_eq!(rig.record(0), before);
    let writes = rig.times("write");
    assert!(writes.windows(2).all(|pair| pair[1] - pair[0] <= 11_000), "{writes:?}");
    rig.store_off = 0;
    rig.run(71_000);
    assert!(rig.ceiling >= BASE + 60_000 + TERMS.ttl);
}

#[test]
fn a_lease_found_with_a_far_expiry_is_renewed_in_the_usual_pace() {
    // The store's clock stepped back by an hour between the acquisition and its being found again.
    let mut rig = Rig::new(1);
    let owner = rig.keeper.owner().clone();
    let held = algebra::acquire(&rig.record(0), &owner, BASE + 3_600_000, TERMS).unwrap();
    rig.store.put(0, Some(SlotState::Open(held)));
    rig.run(11_000);
    assert_eq!(rig.holds, 1);
    assert_eq!(rig.count(|report| matches!(report, Report::Renewed { .. })), 1);
}
