//! Tables of cases for the plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cosid_kube::codec;
use cosid_kube::pool::{PoolLayout, SlotPool, SlotPoolSpec, SlotPoolStatus, SlotRange, Watermark, to_pool};
use cosid_lease::choose::FAR_AHEAD;
use cosid_lease::{MAX_FENCE, Millis, Owner, Record, Slot, Terms, algebra};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::observe::{Slots, State};
use super::status::{Found, condition, is, status, unserved};
use super::{provision, usable_layout, watermark};
use crate::events::{Fact, oddities};

const NOW: Millis = 1_700_000_000_000;
const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };

fn pool(spec: SlotPoolSpec) -> SlotPool {
    let mut pool = SlotPool::new("orders", spec);
    pool.metadata.namespace = Some("shop".into());
    pool.metadata.uid = Some("this".into());
    pool.metadata.generation = Some(1);
    pool.status = Some(SlotPoolStatus { watermark: Some(Watermark::default()), ..SlotPoolStatus::default() });
    pool
}

fn small(last: i32) -> SlotPool {
    pool(SlotPoolSpec { slots: Some(SlotRange { first: 0, last }), ..SlotPoolSpec::default() })
}

fn wide() -> SlotPool {
    let layout = PoolLayout { sequence_bits: 6, ..PoolLayout::default() };
    pool(SlotPoolSpec { bits: 16, layout, ..SlotPoolSpec::default() })
}

fn shut(slot: Slot) -> Lease {
    codec::new_lease(&small(9), slot)
}

fn open(slot: Slot, record: &Record) -> Lease {
    codec::encode(&shut(slot), record, 30, None).unwrap()
}

fn free(slot: Slot) -> Lease {
    open(slot, &Record::open(1, NOW - 1))
}

fn held_by(slot: Slot, owner: &Owner) -> Lease {
    open(slot, &algebra::acquire(&Record::open(0, 5), owner, NOW, TERMS).unwrap())
}

fn held(slot: Slot) -> Lease {
    held_by(slot, &Owner::new(format!("shop/web-{slot}")))
}

fn going(slot: Slot) -> Lease {
    let mut lease = free(slot);
    lease.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    lease
}

fn broken(slot: Slot) -> Lease {
    let mut lease = free(slot);
    lease.annotations_mut().insert(codec::NEXT_FLOOR.into(), "x".into());
    lease
}

fn foreign(mut lease: Lease) -> Lease {
    lease.owner_references_mut()[0].uid = "earlier".into();
    lease
}

fn seen(leases: impl IntoIterator<Item = Lease>) -> Slots {
    seen_at(leases, NOW)
}

fn seen_at(leases: impl IntoIterator<Item = Lease>, now: Millis) -> Slots {
    let leases: BTreeMap<_, _> =
        leases.into_iter().map(|lease| (lease.name_any(), Arc::new(lease))).collect();
    Slots::of("orders", Some("this"), &leases, now)
}

fn names<'a>(leases: impl Iterator<Item = &'a super::observe::Seen>) -> Vec<String> {
    leases.map(|seen| seen.lease.name_any()).collect()
}

#[test]
fn what_a_lease_says() {
    let record = |fence, next_floor| open(3, &Record::open(fence, next_floor));
    let is_live = |state: &State| matches!(state, State::Live { .. });
    type Is<'a> = &'a dyn Fn(&State) -> bool;
    let cases: [(&str, Lease, Millis, Is<'_>); 11] = [
        ("shut", shut(3), NOW, &|state| *state == State::Shut),
        ("free", free(3), NOW, &|state| *state == State::Free),
        ("cooling", record(1, NOW + 1), NOW, &|state| *state == State::Cooling { until: NOW + 1 }),
        ("live to its last millisecond", held(3), NOW + 29_999, &is_live),
        ("expired: cooling", held(3), NOW + 30_000, &|state| {
            *state == State::Cooling { until: NOW + 31_000 }
        }),
        ("far ahead", record(1, NOW + FAR_AHEAD + 1), NOW, &|state| matches!(state, State::PassedOver(_))),
        ("fence used up", record(MAX_FENCE, 5), NOW, &|state| matches!(state, State::PassedOver(_))),
        ("held for an hour from now", held(3), NOW + 30_000 - FAR_AHEAD, &is_live),
        (
            "held for longer: no agent wrote that",
            held(3),
            NOW + 29_999 - FAR_AHEAD,
            &|state| matches!(state, State::PassedOver(why) if why.contains("more than an hour ahead, as no agent does")),
        ),
        ("going", going(3), NOW, &|state| *state == State::Going),
        ("unreadable", broken(3), NOW, &|state| matches!(state, State::Corrupt(_))),
    ];
    for (name, lease, now, expected) in cases {
        let slots = seen_at([lease], now);
        assert!(expected(&slots.0[&3].state), "{name}: {:?}", slots.0[&3].state);
    }
}

#[test]
fn a_lease_with_the_label_and_no_slots_name_is_nobodys() {
    let mut stray = free(3);
    stray.metadata.name = Some("orders-03".into());
    assert!(seen([stray]).0.is_empty());
}

#[test]
fn a_small_pool_has_all_its_leases_but_those_withheld() {
    let mut orders = small(5);
    orders.spec.reserved = vec![2];
    orders.status.as_mut().unwrap().retired = vec![4];
    let model = to_pool(&orders).unwrap();
    assert_eq!(provision::missing(&model, &seen([])), [0, 1, 3, 5]);
    // One that is going has its name still.
    assert_eq!(provision::missing(&model, &seen([free(0), going(1), broken(3)])), [5]);
    let whole = to_pool(&pool(SlotPoolSpec::default())).unwrap();
    assert_eq!(provision::missing(&whole, &seen([])).len(), 1024);
}

#[test]
fn a_wide_pool_keeps_a_quarter_of_what_is_held_ready_and_never_fewer_than_64() {
    let model = to_pool(&wide()).unwrap();
    let made = |holders: Slot, free_ones: Slot| {
        let leases = (0..holders).map(held).chain((holders..holders + free_ones).map(free));
        provision::missing(&model, &seen(leases))
    };
    assert_eq!(made(0, 0), (0..64).collect::<Vec<_>>());
    assert!(made(0, 64).is_empty());
    assert_eq!(made(1, 63), [64]);
    assert!(made(256, 64).is_empty());
    assert_eq!(made(400, 64), (464..500).collect::<Vec<_>>());
}

#[test]
fn a_slot_had_a_lease_before_in_a_small_pool_and_below_one_in_use_in_a_wide_one() {
    let orders = to_pool(&small(5)).unwrap();
    assert_eq!(provision::made_below(&orders, &seen([shut(0)])), Slot::MAX);
    let wide = to_pool(&wide()).unwrap();
    assert_eq!(provision::made_below(&wide, &seen([shut(0), shut(1)])), 0);
    assert_eq!(provision::made_below(&wide, &seen([free(0), shut(1), held(2), shut(3)])), 2);
}

#[test]
fn before_a_pool_goes_all_go_but_the_live_ones() {
    let slots = seen([shut(0), free(1), held(2), going(3), broken(4)]);
    assert_eq!(names(provision::evictable(&slots)), ["orders-0", "orders-1", "orders-4"]);
    // Once the holder has expired, it goes too.
    let slots = seen_at([held(2)], NOW + 30_000);
    assert_eq!(names(provision::evictable(&slots)), ["orders-2"]);
}

#[test]
fn leases_of_an_earlier_pool_go_unless_they_are_held() {
    let slots = seen([foreign(shut(0)), foreign(held(1)), free(2)]);
    assert_eq!(names(provision::outdated(&slots)), ["orders-0"]);
}

#[test]
fn what_was_taken_off_is_put_back_and_nothing_else_changes() {
    let whole = held(3);
    assert_eq!(provision::mended(&whole, &small(9)), None);
    type Edit = fn(&mut Lease);
    let edits: [(&str, Edit); 3] = [
        ("label", |lease| lease.metadata.labels = None),
        ("finalizer", |lease| lease.metadata.finalizers = None),
        ("owner", |lease| lease.metadata.owner_references = None),
    ];
    for (name, edit) in edits {
        let mut edited = whole.clone();
        edit(&mut edited);
        assert_eq!(provision::mended(&edited, &small(9)), Some(whole.clone()), "{name}");
    }
    let mut dying = going(3);
    dying.metadata.finalizers = None;
    assert_eq!(provision::mended(&dying, &small(9)), None);
}

#[test]
fn one_key_on_two_slots_is_a_duplicate_only_under_different_incarnations() {
    let (a, b) = (Owner::new("shop/web-0"), Owner::new("shop/web-0"));
    let slots = seen([held_by(1, &a), held_by(2, &b), held(3)]);
    assert_eq!(slots.duplicates(), BTreeMap::from([("shop/web-0", BTreeSet::from([1, 2]))]));
    assert!(seen([held_by(1, &a), held_by(2, &a)]).duplicates().is_empty());
    let fact = Fact::DuplicateOwner { key: "shop/web-0".into(), slots: [1, 2].into() };
    assert!(oddities(&slots).contains(&fact));
}

#[test]
fn time_alone_changes_something_when_the_first_lease_expires_or_floor_passes() {
    assert_eq!(seen([free(0), shut(1), broken(2)]).next_change(), None);
    let cooling = open(1, &Record::open(1, NOW + 700));
    assert_eq!(seen([held(0), cooling]).next_change(), Some(NOW + 700));
    assert_eq!(seen([held(0)]).next_change(), Some(NOW + 30_000));
}

fn say(pool: &SlotPool, leases: impl IntoIterator<Item = Lease>, second: i64) -> SlotPoolStatus {
    let (model, slots) = (to_pool(pool).unwrap(), seen(leases));
    let missing = provision::missing(&model, &slots).len();
    let found = Found { slots: &slots, missing, occupied: &[] };
    status(pool, &model, found, Timestamp::from_second(second).unwrap())
}

fn message<'a>(status: &'a SlotPoolStatus, kind: &str) -> &'a str {
    &status.conditions.iter().find(|condition| condition.type_ == kind).unwrap().message
}

#[test]
fn a_status_counts_and_says_what_can_be_acquired() {
    let mut orders = small(3);
    let none = say(&orders, [], 1);
    assert!(!is(&none, condition::READY) && !is(&none, condition::EXHAUSTED));
    let shut_ones = say(&orders, (0..4).map(shut), 1);
    assert!(!is(&shut_ones, condition::READY));

    let cooling = open(1, &Record::open(1, NOW + 700));
    let ready = say(&orders, [free(0), cooling, held(2), free(3)], 1);
    let counts = ready.slots.unwrap();
    assert_eq!((counts.total, counts.held, counts.free, counts.cooling), (4, 1, 2, 1));
    assert!(is(&ready, condition::READY) && !is(&ready, condition::EXHAUSTED));

    let full = say(&orders, (0..4).map(held), 1);
    assert!(is(&full, condition::READY) && is(&full, condition::EXHAUSTED));

    // A pool in use stays ready while one of its Leases is made anew; one without a watermark never is.
    orders.status = Some(ready);
    assert!(is(&say(&orders, [free(0), held(2)], 2), condition::READY));
    orders.status = None;
    assert!(!is(&say(&orders, (0..4).map(free), 1), condition::READY));
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes_and_nothing_new_is_no_change() {
    let mut orders = small(1);
    let first = say(&orders, [free(0), free(1)], 10);
    orders.status = Some(first.clone());
    assert_eq!(say(&orders, [free(0), free(1)], 20), first);
    // A renewal later the counts are the same, and so is the status.
    let busy = say(&orders, [held(0), free(1)], 20);
    orders.status = Some(busy.clone());
    assert_eq!(say(&orders, [held(0), free(1)], 30), busy);
    let full = say(&orders, [held(0), held(1)], 40);
    let since = |status: &SlotPoolStatus, kind: &str| {
        let found = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
        found.last_transition_time.0.as_second()
    };
    assert_eq!((since(&full, condition::READY), since(&full, condition::EXHAUSTED)), (10, 40));
}

#[test]
fn a_status_keeps_watermark_retired_slots_and_conditions_of_others() {
    let mut orders = small(3);
    let before = orders.status.as_mut().unwrap();
    before.watermark = Some(Watermark { next_floor: 77, fence: 3 });
    before.retired = vec![2];
    let model_says = unserved(&orders, "Test", "not now".into(), Timestamp::UNIX_EPOCH);
    orders.status = Some(model_says);
    let after = say(&orders, (0..4).map(free), 1);
    assert_eq!((after.watermark, after.retired), (Some(Watermark { next_floor: 77, fence: 3 }), vec![2]));
    assert_eq!(after.slots.unwrap().total, 3);
}

#[test]
fn slots_passed_over_are_named_up_to_ten() {
    let status = say(&small(9), [broken(4)], 1);
    assert!(is(&status, condition::QUARANTINED));
    assert!(message(&status, condition::QUARANTINED).starts_with("slot 4: cosid.dev/next-floor"));
    let status = say(&small(30), (0..12).map(broken), 1);
    assert!(message(&status, condition::QUARANTINED).contains("; and 2 more"));
}

#[test]
fn a_pool_being_deleted_says_whom_it_waits_for() {
    let mut orders = small(3);
    orders.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let waiting = say(&orders, [held(1), going(2)], 1);
    assert!(is(&waiting, condition::DELETING) && !is(&waiting, condition::READY));
    assert!(message(&waiting, condition::DELETING).starts_with("1 still held: slot 1 by shop/web-1."));
    let emptied = say(&orders, [going(2)], 1);
    assert!(message(&emptied, condition::DELETING).starts_with("No slot is held any more"));
}

#[test]
fn what_a_status_keeps_is_what_is_merged() {
    let status = SlotPoolStatus {
        watermark: Some(Watermark { next_floor: 5, fence: 1 }),
        retired: vec![7],
        ..SlotPoolStatus::default()
    };
    let kept = watermark::Kept::of(Some(&status));
    assert_eq!((kept.watermark.next_floor, kept.retired), (5, BTreeSet::from([7])));
    assert_eq!(watermark::Kept::of(None), watermark::Kept::default());
}

#[test]
fn a_new_pool_s_epoch_has_been_and_its_timestamps_last_for_a_year() {
    let year = 365 * 24 * 3_600_000;
    let with = |layout| pool(SlotPoolSpec { layout, ..SlotPoolSpec::default() });
    let now = i64::try_from(NOW).unwrap();
    let epoch = |epoch| with(PoolLayout { epoch, ..PoolLayout::default() });
    usable_layout(&epoch(now), NOW).unwrap();
    let future = usable_layout(&epoch(now + 1), NOW).unwrap_err();
    let said =
        format!("its layout can't work: its epoch {} is in the future, it is {NOW} now (Unix ms)", now + 1);
    assert!(future.to_string().starts_with(&said), "{future}");
    assert_eq!(future.reason(), "UnusableLayout");

    // 35 bits of ms are 397 days.
    let short = |epoch| with(PoolLayout { timestamp_bits: 35, epoch, ..PoolLayout::default() });
    let enough = now + year - (1 << 35) + 1;
    usable_layout(&short(enough), NOW).unwrap();
    let ended = usable_layout(&short(enough - 1), NOW).unwrap_err().to_string();
    assert!(
        ended.contains("within a year of") && ended.contains("delete this pool and make another"),
        "{ended}"
    );
    let mut going = short(0);
    going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    usable_layout(&going, NOW).unwrap();
}
