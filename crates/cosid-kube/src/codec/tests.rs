use std::collections::BTreeMap;

use cosid_lease::{Holding, MAX_FENCE, Millis, Owner, Record, SlotState, Tenure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::pool::{SlotPool, SlotPoolSpec, Watermark};

const TTL: i32 = 30;
/// 9999-12-30T22:00:00Z, the latest time that jiff has, Unix ms.
const END_OF_TIME: Millis = 253_402_207_200_000;

fn pool() -> SlotPool {
    let mut pool = SlotPool::new("orders", SlotPoolSpec::default());
    pool.metadata.namespace = Some("shop".into());
    pool.metadata.uid = Some("3f1c".into());
    pool
}

fn held() -> Record {
    let incarnation = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    let owner = Owner { key: "shop/web-0".into(), incarnation };
    let holding = Holding {
        owner,
        floor: 1_700_000_000_000,
        ceiling: 1_700_000_031_234,
        expires_at: 1_700_000_030_234,
        acquired_at: 1_700_000_000_234,
    };
    Record { fence: 7, next_floor: 1_700_000_031_234, tenure: Tenure::Held(holding) }
}

fn shut() -> Lease {
    new_lease(&pool(), 17)
}

fn lease(record: &Record) -> Lease {
    encode(&shut(), record, TTL, Some("4711")).unwrap()
}

fn annotate(lease: &mut Lease, field: &str, text: &str) {
    lease.metadata.annotations.get_or_insert_default().insert(field.into(), text.into());
}

fn why(lease: &Lease) -> String {
    match decode(lease, "orders") {
        SlotState::Corrupt(why) => why,
        other => panic!("{other:?} is not corrupt"),
    }
}

#[test]
fn a_held_slot_reads_rightly_to_standard_tools() {
    let json = serde_json::to_value(lease(&held())).unwrap();
    assert_eq!(
        json["spec"],
        serde_json::json!({
            "holderIdentity": "shop/web-0",
            "leaseTransitions": 7,
            "leaseDurationSeconds": 30,
            "renewTime": "2023-11-14T22:13:20.234000Z",
            "acquireTime": "2023-11-14T22:13:20.234000Z",
        })
    );
    assert_eq!(
        json["metadata"]["annotations"],
        serde_json::json!({
            "cosid.dev/floor": "1700000000000",
            "cosid.dev/ceiling": "1700000031234",
            "cosid.dev/next-floor": "1700000031234",
            "cosid.dev/incarnation": "01234567-89ab-cdef-0123-456789abcdef",
            "cosid.dev/pod-uid": "4711",
        })
    );
}

#[test]
fn a_freed_slot_keeps_nothing_of_its_holder_but_the_key() {
    let freed =
        Record { fence: 8, next_floor: 5, tenure: Tenure::Free { last_key: Some("shop/web-0".into()) } };
    let lease = encode(&lease(&held()), &freed, TTL, Some("4711")).unwrap();
    assert_eq!(decode(&lease, "orders"), SlotState::Open(freed));
    let spec = lease.spec.unwrap();
    assert_eq!((spec.holder_identity, spec.renew_time, spec.acquire_time), (None, None, None));
    let annotations = lease.metadata.annotations.unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), [LAST_OWNER, NEXT_FLOOR]);
}

#[test]
fn a_new_lease_is_shut_and_belongs_to_its_pool() {
    let lease = shut();
    assert_eq!(decode(&lease, "orders"), SlotState::Shut);
    assert_eq!(lease.metadata.name.as_deref(), Some("orders-17"));
    assert_eq!(lease.metadata.finalizers.as_deref(), Some(["cosid.dev/watermark".to_owned()].as_slice()));
    let owner = &lease.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("SlotPool", "3f1c"));
    assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
    let opened = open(&lease, Watermark { next_floor: 900, fence: 4 }, TTL).unwrap();
    assert_eq!(decode(&opened, "orders"), SlotState::Open(Record::open(4, 900)));
}

#[test]
fn a_lease_that_lost_its_next_floor_in_use_is_corrupt_not_shut() {
    let freed = Record::open(3, 5);
    for record in [held(), freed] {
        let mut lease = lease(&record);
        lease.metadata.annotations.as_mut().unwrap().remove(NEXT_FLOOR);
        assert!(why(&lease).starts_with("cosid.dev/next-floor is missing"), "{}", why(&lease));
    }
    let mut annotated = shut();
    annotate(&mut annotated, CEILING, "99");
    assert!(why(&annotated).contains("next-floor is missing"));
}

#[test]
fn a_lease_being_deleted_is_lost_to_its_holder_and_still_read_for_the_watermark() {
    let mut lease = lease(&held());
    lease.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(decode(&lease, "orders"), SlotState::Deleting);
    assert_eq!(read(&lease), Ok(Some(held())));
}

#[test]
fn a_value_that_cannot_be_is_corrupt_and_named() {
    let annotation = |field: &str, text: &str| {
        let mut lease = lease(&held());
        annotate(&mut lease, field, text);
        why(&lease)
    };
    for bad in [
        "",
        "-1",
        "+5",
        " 5",
        "5 ",
        "05",
        "1e3",
        "5.0",
        "9223372036854775808",
        "99999999999999999999",
        "x",
        "٣",
    ] {
        for field in [FLOOR, CEILING, NEXT_FLOOR] {
            let why = annotation(field, bad);
            assert_eq!(why, format!("{field}: {bad:?} is no decimal number of 0 to 2^63 - 1"));
        }
    }
    assert!(annotation(CEILING, "1699999999999").contains("is below the floor"));
    assert!(annotation(NEXT_FLOOR, "1700000031233").contains("is below the holder's ceiling"));
    for bad in ["", "x", "0123456789abcdef0123456789abcdef", "01234567-89AB-CDEF-0123-456789ABCDEF"] {
        assert!(annotation(INCARNATION, bad).contains(INCARNATION));
    }
}

#[test]
fn a_holder_without_its_window_is_corrupt() {
    for field in [FLOOR, CEILING, INCARNATION] {
        let mut lease = lease(&held());
        lease.metadata.annotations.as_mut().unwrap().remove(field);
        assert_eq!(why(&lease), format!("{field} is missing: the Lease has a holder"));
    }
}

#[test]
fn a_window_without_its_holder_is_corrupt() {
    for holder in [None, Some(String::new())] {
        let mut lease = lease(&held());
        lease.spec.as_mut().unwrap().holder_identity = holder;
        assert!(why(&lease).contains("spec.holderIdentity is empty"), "{}", why(&lease));
    }
}

#[test]
fn a_spec_that_cannot_be_is_corrupt() {
    let edited = |edit: fn(&mut k8s_openapi::api::coordination::v1::LeaseSpec)| {
        let mut lease = lease(&held());
        edit(lease.spec.as_mut().unwrap());
        why(&lease)
    };
    assert!(edited(|spec| spec.lease_transitions = None).contains("spec.leaseTransitions is missing"));
    assert!(
        edited(|spec| spec.lease_transitions = Some(-1))
            .contains("spec.leaseTransitions: \"-1\" is negative")
    );
    assert!(
        edited(|spec| spec.lease_duration_seconds = None).contains("spec.leaseDurationSeconds is missing")
    );
    assert!(edited(|spec| spec.lease_duration_seconds = Some(0)).contains("is not positive"));
    assert!(edited(|spec| spec.renew_time = None).contains("spec.renewTime is missing"));
    assert!(edited(|spec| spec.acquire_time = None).contains("spec.acquireTime is missing"));
    let micros =
        edited(|spec| spec.renew_time = Some(MicroTime(jiff::Timestamp::from_microsecond(1_001).unwrap())));
    assert!(micros.contains("whole number of milliseconds"));
    let early = edited(|spec| spec.renew_time = Some(MicroTime(jiff::Timestamp::MIN)));
    assert!(early.contains("is before 1970"));
}

#[test]
fn a_lease_of_another_pool_or_of_none_is_corrupt() {
    assert!(
        matches!(decode(&lease(&held()), "orders2"), SlotState::Corrupt(why) if why.contains("another pool"))
    );
    let mut lease = lease(&held());
    lease.metadata.labels = None;
    assert!(why(&lease).contains("label cosid.dev/pool is missing"));
}

#[test]
fn a_delimiter_in_a_name_confuses_nothing() {
    let slot = |name: &str, pool: &str| {
        let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        slot_of(&Lease { metadata, spec: None }, pool)
    };
    assert_eq!(slot("a-1-2", "a-1"), Some(2));
    assert_eq!(slot("a-1-2", "a"), None);
    assert_eq!(slot("a-1", "a"), Some(1));
    for odd in ["a-", "a-01", "a-+1", "a--1", "a-1x", "a", "b-1", "a-4294967296"] {
        assert_eq!(slot(odd, "a"), None, "{odd}");
    }
}

#[test]
fn what_does_not_fit_a_lease_is_refused_not_cut() {
    let with = |edit: fn(&mut Record, &mut Holding)| {
        let mut record = held();
        let Tenure::Held(mut holding) = record.tenure.clone() else { panic!("held") };
        edit(&mut record, &mut holding);
        record.tenure = Tenure::Held(holding);
        encode(&shut(), &record, TTL, None).unwrap_err().to_string()
    };
    assert!(with(|record, _| record.next_floor = u64::MAX).contains("next-floor"));
    assert!(with(|_, holding| holding.ceiling = u64::MAX).contains("ceiling"));
    assert!(with(|_, holding| holding.expires_at = u64::MAX).contains("spec.renewTime"));
    assert!(with(|_, holding| holding.acquired_at = END_OF_TIME + 1).contains("spec.acquireTime"));
    assert!(with(|_, holding| holding.owner.key.clear()).contains("needs a key"));
    assert!(with(|record, _| record.fence = MAX_FENCE + 1).contains("int32"));
    assert!(encode(&shut(), &held(), 0, None).unwrap_err().to_string().contains("is not positive"));
}

#[test]
fn a_renewal_keeps_the_ttl_it_was_acquired_with() {
    let before = lease(&held());
    let renewed = encode(&before, &held(), 60, None).unwrap();
    assert_eq!(renewed.spec.unwrap().lease_duration_seconds, Some(30));
    let next = Record { fence: 8, ..held() };
    let acquired = encode(&before, &next, 60, None).unwrap();
    assert_eq!(acquired.spec.as_ref().unwrap().lease_duration_seconds, Some(60));
    assert_eq!(decode(&acquired, "orders"), SlotState::Open(next));
}

fn records() -> impl Strategy<Value = Record> {
    let fence = 0..=MAX_FENCE;
    let free = prop::option::of("[ -~é]{0,40}").prop_map(|last_key| Tenure::Free { last_key });
    let held = ("[ -~é]{1,40}", any::<u128>(), 0..=MAX_TIME, any::<u64>(), 0..END_OF_TIME, 0..END_OF_TIME)
        .prop_map(|(key, incarnation, floor, width, expires_at, acquired_at)| {
            let owner = Owner { key, incarnation: Uuid::from_u128(incarnation) };
            let ceiling = floor.saturating_add(width).min(MAX_TIME);
            Tenure::Held(Holding { owner, floor, ceiling, expires_at, acquired_at })
        });
    (fence, 0..=MAX_TIME, prop_oneof![free, held]).prop_map(|(fence, next_floor, tenure)| {
        let lowest = match &tenure {
            Tenure::Held(holding) => holding.ceiling,
            Tenure::Free { .. } => 0,
        };
        Record { fence, next_floor: next_floor.max(lowest), tenure }
    })
}

/// A Lease with things in it that are not ours.
fn foreign() -> impl Strategy<Value = Lease> {
    let extras = prop::collection::btree_map("[a-z]{1,8}/[a-z]{1,8}", "[ -~]{0,20}", 0..4);
    (extras.clone(), extras, any::<bool>()).prop_map(|(annotations, mut labels, finalized)| {
        let mut lease = shut();
        labels.insert(POOL_LABEL.into(), "orders".into());
        lease.metadata.annotations = Some(annotations);
        lease.metadata.labels = Some(labels);
        lease.metadata.resource_version = Some("12".into());
        if finalized {
            lease.metadata.finalizers.get_or_insert_default().push("other.dev/finalizer".into());
        }
        lease.spec.get_or_insert_default().strategy = Some("OldestEmulationVersion".into());
        lease
    })
}

fn is_ours(annotation: &str) -> bool {
    [FLOOR, CEILING, NEXT_FLOOR, INCARNATION, LAST_OWNER, POD_UID].contains(&annotation)
}

fn without_ours(lease: &Lease) -> Lease {
    let mut lease = lease.clone();
    let annotations: BTreeMap<_, _> = lease.metadata.annotations.take().unwrap_or_default();
    lease.metadata.annotations = Some(annotations.into_iter().filter(|(key, _)| !is_ours(key)).collect());
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = None;
    spec.lease_transitions = None;
    spec.lease_duration_seconds = None;
    spec.renew_time = None;
    spec.acquire_time = None;
    lease
}

proptest! {
    #[test]
    fn every_record_comes_back_and_nothing_else_changes(
        before in records(), after in records(), lease in foreign(), ttl in 1..=1800_i32,
    ) {
        let first = encode(&lease, &before, ttl, None).unwrap();
        let second = encode(&first, &after, ttl, Some("uid")).unwrap();
        // Through JSON, as the API server keeps it.
        let stored: Lease = serde_json::from_slice(&serde_json::to_vec(&second).unwrap()).unwrap();
        prop_assert_eq!(decode(&stored, "orders"), SlotState::Open(after));
        prop_assert_eq!(without_ours(&stored), without_ours(&lease));
    }

    /// Whatever somebody edits: what still reads as a record is one that `encode` would have written just so.
    #[test]
    fn an_edited_lease_is_read_as_exactly_what_it_says_or_not_at_all(record in records(), edits in prop::collection::vec(edits(), 1..4)) {
        let mut lease = lease(&record);
        for (field, text) in &edits {
            edit(&mut lease, *field, text.as_deref());
        }
        if let SlotState::Open(read) = decode(&lease, "orders") {
            let pod_uid = lease.metadata.annotations.as_ref().unwrap().get(POD_UID).cloned();
            let again = encode(&lease, &read, TTL, pod_uid.as_deref()).unwrap();
            prop_assert_eq!(normal(again), normal(lease));
        }
    }
}

/// Without what says nothing: an empty holder is none, and a holder's Lease needs no last owner.
fn normal(mut lease: Lease) -> Lease {
    let spec = lease.spec.as_mut().unwrap();
    spec.holder_identity = spec.holder_identity.take().filter(|holder| !holder.is_empty());
    if spec.holder_identity.is_some() {
        lease.metadata.annotations.as_mut().unwrap().remove(LAST_OWNER);
    }
    lease
}

fn edits() -> impl Strategy<Value = (usize, Option<String>)> {
    let text = prop_oneof![
        Just(String::new()),
        "[0-9]{1,20}",
        "-?[0-9]{1,4}",
        "[ -~]{0,8}",
        any::<u64>().prop_map(|number| number.to_string()),
        any::<i32>().prop_map(|number| number.to_string()),
    ];
    (0..11_usize, prop::option::of(text))
}

fn edit(lease: &mut Lease, field: usize, text: Option<&str>) {
    let spec = lease.spec.get_or_insert_default();
    let annotations = lease.metadata.annotations.get_or_insert_default();
    let number = || text.and_then(|text| text.parse().ok());
    let time =
        || text.and_then(|text| text.parse().ok()).and_then(|at| jiff::Timestamp::from_microsecond(at).ok());
    match field {
        0 => spec.holder_identity = text.map(Into::into),
        1 => spec.lease_transitions = number(),
        2 => spec.lease_duration_seconds = number(),
        3 => spec.renew_time = time().map(MicroTime),
        4 => spec.acquire_time = time().map(MicroTime),
        annotation => {
            let name = [FLOOR, CEILING, NEXT_FLOOR, INCARNATION, LAST_OWNER, POD_UID][annotation - 5];
            match text {
                Some(text) => annotations.insert(name.into(), text.into()),
                None => annotations.remove(name),
            };
        }
    }
}

#[test]
fn the_largest_fence_fits() {
    let record = Record { fence: MAX_FENCE, ..held() };
    assert_eq!(decode(&lease(&record), "orders"), SlotState::Open(record));
}

#[test]
fn a_lease_with_a_time_past_all_time_leaves_the_list_it_is_in() {
    let mut good = serde_json::to_value(lease(&held())).unwrap();
    good["metadata"]["managedFields"] = serde_json::json!([{ "manager": "somebody" }]);
    let mut bad = good.clone();
    bad["spec"]["renewTime"] = "9999-12-31T23:59:59.999999Z".into();
    let list: Vec<SlotLease> = serde_json::from_value(serde_json::json!([good, bad])).unwrap();
    assert_eq!(list[0].state("orders"), SlotState::Open(held()));
    assert_eq!(list[0].lease, lease(&held()), "without the managed fields");
    assert!(matches!(list[1].state("orders"), SlotState::Corrupt(why) if why.contains("can't be read")));
    assert_eq!(list[1].lease.metadata, list[0].lease.metadata);
    assert_eq!(SlotLease::from_json(bad.to_string().as_bytes()).unwrap().lease, list[1].lease);
    bad["metadata"] = "odd".into();
    assert!(SlotLease::from_json(bad.to_string().as_bytes()).is_err());
}

#[test]
fn a_lease_whose_spec_is_beyond_reading_never_passes_for_one_that_was_never_opened() {
    let mut json = serde_json::to_value(lease(&held())).unwrap();
    json["spec"]["renewTime"] = "9999-12-31T23:59:59.000000Z".into();
    let damaged = |json: &serde_json::Value| {
        let found = SlotLease::from_json(json.to_string().as_bytes()).unwrap();
        assert!(found.unreadable.is_some());
        let lease = found.into_lease();
        assert!(matches!(decode(&lease, "orders"), SlotState::Corrupt(_)));
        assert!(read(&lease).is_err());
    };
    damaged(&json);
    json["metadata"]["annotations"] = serde_json::json!({});
    damaged(&json);
}
