use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn pool(spec: serde_json::Value) -> SlotPool {
    let mut pool = SlotPool::new("orders", serde_json::from_value(spec).unwrap());
    pool.metadata.namespace = Some("shop".into());
    pool
}

fn refused(spec: serde_json::Value) -> String {
    to_pool(&pool(spec)).unwrap_err().to_string()
}

#[test]
fn an_empty_spec_is_the_default_pool() {
    let pool = pool(serde_json::json!({}));
    assert_eq!(pool.spec, SlotPoolSpec::default());
    let pool = to_pool(&pool).unwrap();
    assert_eq!((pool.name.as_str(), pool.bits, pool.first, pool.last), ("shop/orders", 10, 0, 1023));
    assert_eq!(pool.terms, Terms { ttl: 30_000, tolerance: 1_000 });
    assert_eq!(pool.size(), 1024);
}

#[test]
fn a_pool_is_ready_with_a_watermark_and_not_being_deleted() {
    let mut pool = pool(serde_json::json!({}));
    assert_eq!(to_pool(&pool).unwrap().state, PoolState::Unready);
    pool.status = Some(SlotPoolStatus::default());
    assert_eq!(to_pool(&pool).unwrap().state, PoolState::Unready);
    pool.status = Some(SlotPoolStatus { watermark: Some(Watermark::default()), ..SlotPoolStatus::default() });
    assert_eq!(to_pool(&pool).unwrap().state, PoolState::Ready);
    pool.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(to_pool(&pool).unwrap().state, PoolState::Deleting);
}

#[test]
fn a_pool_whose_store_went_back_is_not_ready_and_knows_its_last_barrier() {
    let condition = |status: &str| {
        serde_json::json!({ "type": STORE_REGRESSED, "status": status, "reason": "HolderAhead", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    for (status, state) in [("True", PoolState::Regressed), ("False", PoolState::Ready)] {
        let mut pool = pool(serde_json::json!({}));
        let status = serde_json::json!({
            "watermark": { "nextFloor": 5, "fence": 1 }, "conditions": [condition(status)],
            "barrier": { "nextFloor": 77, "request": "a" },
        });
        pool.status = Some(serde_json::from_value(status).unwrap());
        let pool = to_pool(&pool).unwrap();
        assert_eq!((pool.state, pool.barrier), (state, 77));
    }
}

#[test]
fn a_request_for_a_barrier_is_read_as_it_is_written_and_nothing_is_guessed() {
    for text in ["2026-12-01T02:00:00Z", "a", "a/1800"] {
        assert_eq!(Request::parse(text).unwrap().to_string(), text);
    }
    for text in ["", "/5", "a/", "a/b", "a/-1", "a/5/6", "a b", &"a".repeat(101)] {
        assert_eq!(Request::parse(text), None, "{text}");
    }
}

#[test]
fn reserved_and_retired_slots_are_withheld() {
    let mut pool = pool(serde_json::json!({ "slots": { "first": 2, "last": 9 }, "reserved": [3, 5] }));
    pool.status = Some(SlotPoolStatus { retired: vec![7], ..SlotPoolStatus::default() });
    let pool = to_pool(&pool).unwrap();
    assert_eq!((pool.first, pool.last, pool.size()), (2, 9, 5));
    assert_eq!(pool.withheld, [3, 5, 7].into());
}

#[test]
fn a_spec_out_of_bounds_is_named_not_mended() {
    assert!(refused(serde_json::json!({ "bits": 21 })).starts_with("pool shop/orders: bits is 21"));
    assert!(refused(serde_json::json!({ "bits": 0 })).contains("bits is 0"));
    assert!(refused(serde_json::json!({ "bits": -1 })).contains("bits is -1"));
    assert!(refused(serde_json::json!({ "slots": { "first": 3, "last": 2 } })).contains("slots.first is 3"));
    assert!(
        refused(serde_json::json!({ "slots": { "first": 0, "last": 1024 } })).contains("slots.last is 1024")
    );
    assert!(refused(serde_json::json!({ "reserved": [-1] })).contains("reserved is -1"));
    assert!(refused(serde_json::json!({ "ttlSeconds": 0 })).contains("ttlSeconds is 0"));
    assert!(
        refused(serde_json::json!({ "toleranceMilliseconds": -1 })).contains("toleranceMilliseconds is -1")
    );
}

#[test]
fn a_pool_s_layout_is_the_one_that_ids_are_made_with() {
    let layout = |spec| pool(spec).layout().unwrap().build().unwrap();
    assert_eq!(layout(serde_json::json!({})), Layout::MILLISECOND);
    let twitter = serde_json::json!({ "layout": { "epoch": 1_288_834_974_657_i64 } });
    assert_eq!(layout(twitter), Layout::TWITTER);
    let sonyflake = serde_json::json!({ "bits": 16, "layout": {
        "timestampBits": 39, "sequenceBits": 8, "unitMilliseconds": 10, "epoch": 1_409_529_600_000_i64,
        "order": "timestamp-sequence-slot"
    } });
    assert_eq!(layout(sonyflake), Layout::SONYFLAKE);
    let negative = pool(serde_json::json!({ "layout": { "epoch": -1 } })).layout().unwrap_err();
    assert!(negative.to_string().starts_with("pool shop/orders: layout.epoch is -1"), "{negative}");
}

#[test]
fn not_before_is_a_time_since_1970() {
    let not_before = |text: &str| pool(serde_json::json!({ "notBefore": text })).not_before();
    assert_eq!(pool(serde_json::json!({})).not_before().unwrap(), None);
    assert_eq!(not_before("2023-11-14T22:13:20.5Z").unwrap(), Some(1_700_000_000_500));
    assert_eq!(not_before("2023-11-15T06:13:20+08:00").unwrap(), Some(1_700_000_000_000));
    assert!(not_before("1969-01-01T00:00:00Z").unwrap_err().to_string().contains("notBefore is 1969"));
    assert!(not_before("soon").is_err());
}

#[test]
fn the_crd_has_no_format_that_the_api_server_does_not_know() {
    let yaml = crd_yaml().unwrap();
    assert!(yaml.contains("name: slotpools.cosid.dev"));
    for line in yaml.lines().filter_map(|line| line.trim().strip_prefix("format: ")) {
        assert!(["int32", "int64", "date-time"].contains(&line), "{line}");
    }
}
