//! Looking for a slot: what is reported, how often, and what is not touched.

use cosid_lease::choose::Preference;
use cosid_lease::keeper::{Expect, PoolRefusal, Skew};
use cosid_lease::{Action, KeeperConfig, Millis, Owner, PoolState, Report, SlotState, StoreError, Terms};

use crate::rig::{BASE, Mode, Rig, TERMS, store};

fn config() -> KeeperConfig {
    KeeperConfig::new(Owner::new("a"))
}

#[test]
fn an_acquisition_is_one_load_and_one_write() {
    let rig = Rig::holding(4);
    assert_eq!(rig.sent.iter().map(|sent| sent.kind).collect::<Vec<_>>(), ["load", "write"]);
    assert_eq!(rig.reports, [Report::Acquired { slot: 0, fence: 1, floor_wait: 0 }]);
}

#[test]
fn failures_back_off_from_100_ms_doubling_to_a_sixth_of_the_ttl() {
    let mut rig = Rig::new(1);
    rig.mode = Mode::Failing(StoreError::Denied("403".into()));
    rig.run(60_000);
    let times = rig.times("load");
    let pauses: Vec<Millis> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (pause, wanted) in pauses.iter().zip([100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]) {
        let range = wanted * 9 / 10..=(wanted * 11 / 10).min(TERMS.ttl / 6);
        assert!(range.contains(pause), "{pause} in {range:?}: {pauses:?}");
    }
    assert!(pauses.len() > 12, "{pauses:?}");
    let denied = |report: &Report| matches!(report, Report::StoreFailed { what: "acquire", failures: 1, .. });
    assert_eq!(rig.count(denied), 1, "the same failure is reported once: {:?}", rig.reports);
    rig.mode = Mode::Answering;
    rig.run(66_000);
    assert_eq!(rig.holds, 1, "a denial is not final");
}

#[test]
fn exhaustion_is_reported_once_then_the_timeout_once_and_it_tries_on() {
    let mut rig = Rig::new(2);
    rig.take(0, "b", 4_000);
    rig.take(1, "c", 2_000);
    // Both renew for ever.
    for second in 0..100 {
        rig.run(second * 1_000);
        rig.take(0, "b", 4_000 + second * 1_000);
        rig.take(1, "c", 2_000 + second * 1_000);
    }
    let expiry = BASE + 2_000 + TERMS.ttl;
    let first = Report::Exhausted {
        pool: "ns/p".into(),
        size: 2,
        earliest_expiry: Some(expiry),
        wait: Some(2_000 + TERMS.ttl),
    };
    assert_eq!(rig.reports[0], first);
    assert_eq!(first.to_string().matches("ns/p").count(), 1);
    let Report::AcquireTimedOut { after, cause } = &rig.reports[1] else { panic!("{:?}", rig.reports) };
    assert_eq!(*after, TERMS.ttl);
    assert!(matches!(&**cause, Report::Exhausted { size: 2, .. }), "{cause:?}");
    assert_eq!(rig.reports.len(), 2, "{:?}", rig.reports);
    let Some(Report::Exhausted { earliest_expiry: Some(newest), .. }) = &rig.waiting else {
        panic!("{:?}", rig.waiting)
    };
    assert!(*newest > expiry + 60_000, "whoever asks how it stands is told the newest expiry: {newest}");
    assert_eq!(rig.times("write"), []);
    assert!(rig.times("load").len() >= 7, "{:?}", rig.times("load"));
    // It gets the first slot that is given back, within a third of a ttl.
    rig.store.put(1, Some(SlotState::Open(cosid_lease::Record::open(9, 0))));
    rig.run(rig.mono + 11_000);
    assert_eq!(rig.binding.as_ref().map(|binding| (binding.slot, binding.fence)), Some((1, 10)));
}

#[test]
fn what_stands_in_the_way_now_is_told_also_where_it_was_reported_before() {
    let mut rig = Rig::new(1);
    rig.take(0, "b", 0);
    rig.run(10);
    rig.mode = Mode::Failing(StoreError::Denied("403".into()));
    rig.run(12_000);
    assert!(matches!(rig.waiting, Some(Report::StoreFailed { .. })), "{:?}", rig.waiting);
    rig.mode = Mode::Answering;
    rig.run(20_000);
    assert!(matches!(rig.waiting, Some(Report::Exhausted { .. })), "{:?}", rig.waiting);
    assert_eq!(rig.count(|report| matches!(report, Report::Exhausted { .. })), 1, "{:?}", rig.reports);
}

#[test]
fn the_timeout_is_reported_when_it_passes() {
    let config = KeeperConfig { acquire_timeout: Some(2_500), ..config() };
    let mut rig = Rig::with(store(1), config);
    rig.take(0, "b", 0);
    rig.run(2_499);
    assert_eq!(rig.count(|report| matches!(report, Report::AcquireTimedOut { .. })), 0);
    rig.run(2_500);
    assert_eq!(rig.count(|report| matches!(report, Report::AcquireTimedOut { after: 2_500, .. })), 1);
}

#[test]
fn an_expiring_slot_is_taken_as_soon_as_it_expires() {
    let mut rig = Rig::new(1);
    rig.take(0, "b", 0);
    rig.run(TERMS.ttl - 1);
    assert_eq!(rig.holds, 0);
    rig.run(TERMS.ttl + 200);
    assert_eq!(rig.holds, 1);
    assert_eq!(rig.binding.unwrap().holding.floor, BASE + TERMS.ttl + TERMS.tolerance);
}

#[test]
fn the_only_slot_wanted_is_waited_for_and_its_holder_named() {
    let config = KeeperConfig { preference: Preference::Only(1), ..config() };
    let mut rig = Rig::with(store(3), config);
    rig.take(1, "b", 0);
    rig.run(0);
    let until = Some(BASE + TERMS.ttl);
    let occupied = Report::Occupied { pool: "ns/p".into(), slot: 1, holder: Some("b".into()), until };
    assert_eq!(rig.reports, [occupied]);
    rig.run(TERMS.ttl + 200);
    assert_eq!(rig.binding.unwrap().slot, 1);
}

#[test]
fn an_only_slot_out_of_range_or_withheld_is_refused() {
    for slot in [2, 7] {
        let config = KeeperConfig { preference: Preference::Only(slot), ..config() };
        let mut rig = Rig::with(store(4), config);
        rig.store.edit_pool(|pool| pool.withheld.extend([2]));
        rig.run(20_000);
        let refusal = PoolRefusal::SlotNotInPool { pool: "ns/p".into(), slot, first: 0, last: 3 };
        assert_eq!(rig.reports, [Report::PoolRefused(refusal)]);
        assert_eq!(rig.times("write"), []);
    }
}

#[test]
fn a_pool_that_does_not_fit_is_refused_and_nothing_is_written() {
    let name = || "ns/p".to_owned();
    let bits = Expect { bits: Some(12), tolerance: None };
    let tolerance = Expect { bits: Some(10), tolerance: Some(5_000) };
    let fits = Expect { bits: Some(10), tolerance: Some(TERMS.tolerance) };
    let cases = [
        (bits, PoolState::Ready, PoolRefusal::OtherBits { pool: name(), found: 10, expected: 12 }),
        (
            tolerance,
            PoolState::Ready,
            PoolRefusal::OtherTolerance { pool: name(), found: TERMS.tolerance, expected: 5_000 },
        ),
        (fits, PoolState::Unready, PoolRefusal::Unready { pool: name() }),
        (fits, PoolState::Deleting, PoolRefusal::Deleting { pool: name() }),
        (fits, PoolState::Regressed, PoolRefusal::StoreRegressed { pool: name() }),
    ];
    for (expect, state, refusal) in cases {
        let mut rig = Rig::with(store(2), KeeperConfig { expect, ..config() });
        rig.store.edit_pool(|pool| pool.state = state);
        rig.run(20_000);
        assert_eq!(rig.reports, [Report::PoolRefused(refusal)]);
        assert_eq!(rig.times("write"), []);
        rig.store.edit_pool(|pool| pool.state = PoolState::Ready);
        rig.run(26_000);
        assert_eq!(rig.holds, u32::from(expect == fits), "it tries on");
    }
}

#[test]
fn a_pool_that_is_not_there_is_named() {
    let mut rig = Rig::new(1);
    rig.mode = Mode::Failing(StoreError::NoPool { pool: "ns/q".into() });
    rig.run(10_000);
    assert_eq!(rig.reports, [Report::PoolRefused(PoolRefusal::NotFound { pool: "ns/q".into() })]);
}

#[test]
fn a_duplicate_owner_and_a_corrupt_slot_are_reported_once_each() {
    let mut rig = Rig::new(3);
    rig.take(0, "a", 0);
    rig.store.put(1, Some(SlotState::Corrupt("floor: not a number".into())));
    rig.take(2, "b", 0);
    rig.run(25_000);
    assert!(rig.times("load").len() > 1);
    let duplicate = Report::DuplicateOwner { key: "a".into(), slot: 0, fence: 1 };
    let corrupt = Report::Quarantined { slot: 1, why: "floor: not a number".into() };
    assert_eq!(rig.reports[..2], [duplicate, corrupt]);
    assert!(matches!(rig.reports[2..], [Report::Exhausted { .. }]), "{:?}", rig.reports);
}

#[test]
fn a_lost_answer_leads_to_the_same_lease_and_no_second_one() {
    let mut rig = Rig::new(3);
    rig.writes = Some(Mode::Deaf);
    rig.run(0);
    rig.writes = None;
    rig.run(6_000);
    let binding = rig.binding.clone().unwrap();
    assert_eq!((binding.slot, binding.fence, rig.holds), (0, 1, 1));
    assert_eq!(rig.times("write"), [0], "the load found it");
    assert!(rig.record(1).holding().is_none());
}

#[test]
fn a_write_of_unknown_outcome_that_arrives_at_the_next_attempt_is_found_by_a_load() {
    let mut rig = Rig::new(3);
    let first = rig.poll_only();
    let [Action::Send { id, request, .. }] = &first[..] else { panic!("{first:?}") };
    let loaded = rig.execute(request.clone());
    rig.answer(*id, loaded);
    let second = rig.poll_only();
    let [Action::Send { id, request: late, .. }] = &second[..] else { panic!("{second:?}") };
    rig.answer(*id, Err(StoreError::Unknown("deadline".into())));
    rig.mono = rig.keeper.wake_at().unwrap();
    let third = rig.poll_only();
    let Some(Action::Send { id, request, .. }) = third.last() else { panic!("{third:?}") };
    let loaded = rig.execute(request.clone());
    // The slot still looks free; the write arrives now, and the second one conflicts with it.
    rig.execute(late.clone()).unwrap();
    rig.answer(*id, loaded);
    rig.run(10);
    rig.run(rig.mono);
    assert_eq!(rig.binding.as_ref().map(|binding| (binding.slot, binding.fence)), Some((0, 1)));
    assert!(rig.record(1).holding().is_none(), "no second slot was taken");
}

#[test]
fn one_slot_that_the_store_refuses_to_have_written_does_not_stand_in_the_way_of_others() {
    let mut rig = Rig::new(3);
    let load = rig.poll_only();
    let [Action::Send { id, request, .. }] = &load[..] else { panic!("{load:?}") };
    let loaded = rig.execute(request.clone());
    rig.answer(*id, loaded);
    let write = rig.poll_only();
    let [Action::Send { id, .. }] = &write[..] else { panic!("{write:?}") };
    rig.answer(*id, Err(StoreError::Refused("slot 0: by policy".into())));
    rig.run(0);
    let slot = rig.binding.as_ref().map(|binding| binding.slot);
    assert!(matches!(slot, Some(1 | 2)), "{slot:?} {:?}", rig.reports);
}

#[test]
fn without_the_stores_time_nothing_is_acquired() {
    let mut rig = Rig::new(1);
    let load = rig.poll_only();
    let [Action::Send { id, request, .. }] = &load[..] else { panic!("{load:?}") };
    let loaded = rig.execute(request.clone());
    let timeless = cosid_lease::Now { store: None, ..rig.now() };
    rig.keeper.handle(cosid_lease::Event::Answered { id: *id, result: loaded }, timeless);
    let next = rig.poll_only();
    assert!(
        matches!(
            &next[..],
            [Action::Waiting(_), Action::Report(Report::StoreFailed { what: "acquire", .. })]
        ),
        "{next:?}"
    );
    rig.run(200);
    assert_eq!(rig.holds, 1, "it tries on");
}

#[test]
fn extreme_terms_and_expiries_are_survived() {
    for ttl in [0, 1, 50, 299, 3_000, Millis::MAX / 4] {
        let mut rig = Rig::new(1);
        rig.store.edit_pool(|pool| pool.terms = Terms { ttl, tolerance: 0 });
        rig.take(0, "b", 0);
        rig.run(0);
        assert_eq!((rig.reports.len(), rig.holds), (1, 0), "{:?}", rig.reports);
        rig.store.put(0, Some(SlotState::Open(cosid_lease::Record::open(0, 0))));
        for _ in 0..50 {
            rig.run(rig.keeper.wake_at().unwrap_or(rig.mono).min(1 << 40));
        }
        assert!(rig.holds > 0 || ttl > 1 << 40, "ttl {ttl}: {:?}", rig.reports);
    }
    let mut rig = Rig::new(1);
    rig.take(0, "b", 0);
    let mut record = rig.record(0);
    if let cosid_lease::Tenure::Held(holding) = &mut record.tenure {
        holding.expires_at = Millis::MAX;
    }
    rig.store.put(0, Some(SlotState::Open(record)));
    rig.run(100_000);
    assert_eq!(rig.holds, 0);
}

#[test]
fn clock_skew_is_reported_on_entering_and_on_leaving() {
    let mut rig = Rig::new(1);
    rig.host_off = 1_001;
    rig.run(0);
    let skews = |rig: &Rig| -> Vec<Skew> {
        let skew = |report: &Report| if let Report::ClockSkew(skew) = report { Some(*skew) } else { None };
        rig.reports.iter().filter_map(skew).collect()
    };
    assert_eq!(skews(&rig), [Skew::Ahead(1_001)]);
    rig.run(40_000);
    assert_eq!(skews(&rig).len(), 1, "staying is not news");
    rig.host_off = 1_000;
    rig.run(60_000);
    assert_eq!(skews(&rig)[1..], [Skew::Within]);
    rig.host_off = -5_000;
    rig.run(80_000);
    assert_eq!(skews(&rig)[2..], [Skew::Behind(5_000)]);
}

#[test]
fn after_many_lost_races_the_pool_is_loaded_again() {
    let mut rig = Rig::new(40);
    rig.writes = Some(Mode::Failing(StoreError::Conflict));
    rig.run(0);
    assert_eq!((rig.times("load").len(), rig.times("write").len()), (1, 16));
    rig.writes = None;
    rig.run(200);
    assert_eq!((rig.times("load").len(), rig.holds), (2, 1));
}
