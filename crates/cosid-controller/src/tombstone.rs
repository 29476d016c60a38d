//! What is kept of a pool that has gone: a ConfigMap in the controller's own namespace.
//!
//! Its name is made of a hash, so that any namespace and name make a valid one and no two pools share one; which pool it
//! is of stands in its data, and is checked.

use std::collections::{BTreeMap, BTreeSet};

use cosid_kube::pool::{PoolLayout, PoolOrder, SlotPool, Watermark};
use cosid_lease::Slot;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use uuid::Uuid;

use crate::Error;
use crate::index::PoolKey;
use crate::reconcile::watermark::Kept;

/// The label that all of them have.
pub const LABEL: &str = "cosid.dev/kept-watermark";

const NAMESPACE: &str = "namespace";
const NAME: &str = "name";
const NEXT_FLOOR: &str = "nextFloor";
const FENCE: &str = "fence";
const RETIRED: &str = "retired";
const LAYOUT: &str = "layout";

/// The ConfigMap's name. A namespace has no `/`: no two pools come to the same text.
#[must_use]
pub fn name(key: &PoolKey) -> String {
    let pool = format!("cosid.dev/slotpools/{}/{}", key.namespace, key.name);
    format!("cosid-watermark-{}", Uuid::new_v5(&Uuid::NAMESPACE_URL, pool.as_bytes()))
}

/// A ConfigMap that keeps this, and the layout, where it is known, unless one is kept already. `before` is what it
/// replaces, with its version.
#[must_use]
pub fn encode(
    key: &PoolKey,
    kept: &Kept,
    layout: Option<String>,
    own_namespace: &str,
    before: Option<ConfigMap>,
) -> ConfigMap {
    let layout = before.as_ref().and_then(self::layout).map(str::to_owned).or(layout);
    let mut kept_map = before.unwrap_or_default();
    let ObjectMeta { name, namespace, labels, .. } = &mut kept_map.metadata;
    *name = Some(self::name(key));
    *namespace = Some(own_namespace.to_owned());
    labels.get_or_insert_default().insert(LABEL.to_owned(), "true".to_owned());
    let retired: Vec<String> = kept.retired.iter().map(Slot::to_string).collect();
    let data = [
        (NAMESPACE, key.namespace.clone()),
        (NAME, key.name.clone()),
        (NEXT_FLOOR, kept.watermark.next_floor.to_string()),
        (FENCE, kept.watermark.fence.to_string()),
        (RETIRED, retired.join(",")),
    ];
    let data = data.into_iter().chain(layout.map(|layout| (LAYOUT, layout)));
    kept_map.data = Some(data.map(|(field, text)| (field.to_owned(), text)).collect());
    kept_map
}

/// The layout of the earlier pool's IDs, as [`layout_of`] says it; `None` where it went without the controller.
#[must_use]
pub fn layout(kept: &ConfigMap) -> Option<&str> {
    kept.data.as_ref()?.get(LAYOUT).map(String::as_str)
}

/// What a pool's IDs are made of, as text to compare: with another, a later timestamp can be in an equal ID.
#[must_use]
pub fn layout_of(pool: &SlotPool) -> String {
    let PoolLayout { timestamp_bits, sequence_bits, unit_milliseconds, epoch, order } = pool.spec.layout;
    let bits = pool.spec.bits;
    // Of the usual order nothing is said: what was kept before there was another is still the same.
    let order = match order {
        PoolOrder::TimestampSlotSequence => "",
        PoolOrder::TimestampSequenceSlot => ", sequence before slot",
    };
    format!("{timestamp_bits}/{bits}/{sequence_bits} bits, {unit_milliseconds} ms since {epoch}{order}")
}

/// What a ConfigMap keeps of this pool.
///
/// # Errors
/// [`Error::Tombstone`] where it is not as [`encode`] writes it: nothing is guessed.
pub fn decode(key: &PoolKey, kept: &ConfigMap) -> Result<Kept, Error> {
    let none = BTreeMap::new();
    let data = kept.data.as_ref().unwrap_or(&none);
    let wrong = |why: String| Error::Tombstone {
        name: format!("{}/{}", kept.namespace().unwrap_or_default(), kept.name_any()),
        why,
    };
    let get = |field: &str| data.get(field).ok_or_else(|| wrong(format!("data.{field} is missing")));
    if (get(NAMESPACE)?, get(NAME)?) != (&key.namespace, &key.name) {
        return Err(wrong(format!("it is of another pool than {key}")));
    }
    let next_floor = get(NEXT_FLOOR)?.parse::<i64>().ok().filter(|&floor| floor >= 0);
    let fence = get(FENCE)?.parse::<i32>().ok().filter(|&fence| fence >= 0);
    let (Some(next_floor), Some(fence)) = (next_floor, fence) else {
        return Err(wrong(format!("data.{NEXT_FLOOR} or data.{FENCE} is no number")));
    };
    let retired: Result<BTreeSet<Slot>, _> =
        get(RETIRED)?.split(',').filter(|slot| !slot.is_empty()).map(str::parse).collect();
    let retired = retired.map_err(|_| wrong(format!("data.{RETIRED} is no list of slots")))?;
    Ok(Kept { watermark: Watermark { next_floor, fence }, retired })
}

#[cfg(test)]
mod tests {
    use cosid_kube::SlotPoolSpec;

    use super::*;

    fn key(namespace: &str, name: &str) -> PoolKey {
        PoolKey { namespace: namespace.into(), name: name.into() }
    }

    fn kept() -> Kept {
        Kept { watermark: Watermark { next_floor: 1_700_000_000_000, fence: 7 }, retired: [3, 1023].into() }
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let map = encode(&key("shop", "orders"), &kept(), None, "cosid-system", None);
        assert_eq!(decode(&key("shop", "orders"), &map).unwrap(), kept());
        let map = encode(&key("shop", "orders"), &Kept::default(), None, "cosid-system", Some(map));
        assert_eq!(decode(&key("shop", "orders"), &map).unwrap(), Kept::default());
    }

    #[test]
    fn another_order_of_the_fields_is_another_layout() {
        let of =
            |layout| layout_of(&SlotPool::new("orders", SlotPoolSpec { layout, ..SlotPoolSpec::default() }));
        let usual = of(PoolLayout::default());
        assert_eq!(
            usual, "41/10/12 bits, 1 ms since 1577203200000",
            "as it was kept before there was an order"
        );
        let order = PoolOrder::TimestampSequenceSlot;
        assert_ne!(of(PoolLayout { order, ..PoolLayout::default() }), usual);
    }

    #[test]
    fn the_first_layout_stays() {
        let orders = key("shop", "orders");
        let next = |layout: Option<&str>, before| {
            encode(&orders, &kept(), layout.map(str::to_owned), "cosid-system", before)
        };
        let unknown = next(None, None);
        assert_eq!(layout(&unknown), None);
        let first = next(Some("a"), Some(unknown));
        let later = next(None, Some(next(Some("b"), Some(first))));
        assert_eq!(layout(&later), Some("a"));
    }

    #[test]
    fn names_are_valid_and_no_two_pools_share_one() {
        let long = "a".repeat(63);
        let names = [("a-b", "c"), ("a", "b-c"), ("a", "b"), ("b", "a"), (&long, &long)];
        let names: BTreeSet<String> =
            names.iter().map(|(namespace, pool)| name(&key(namespace, pool))).collect();
        assert_eq!(names.len(), 5);
        let valid = |name: &String| {
            name.len() <= 63 && name.chars().all(|c| c == '-' || c.is_ascii_digit() || c.is_ascii_lowercase())
        };
        assert!(names.iter().all(valid), "{names:?}");
    }

    #[test]
    fn what_is_not_as_it_was_written_is_an_error_that_names_it() {
        let orders = key("shop", "orders");
        let edited = |field: &str, text: Option<&str>| {
            let mut map = encode(&orders, &kept(), None, "cosid-system", None);
            let data = map.data.as_mut().unwrap();
            match text {
                Some(text) => data.insert(field.into(), text.into()),
                None => data.remove(field),
            };
            decode(&orders, &map).unwrap_err().to_string()
        };
        for (field, text) in [
            (NAMESPACE, Some("other")),
            (NAME, None),
            (NEXT_FLOOR, Some("-1")),
            (NEXT_FLOOR, None),
            (FENCE, Some("2147483648")),
            (RETIRED, Some("1,x")),
            (RETIRED, None),
        ] {
            let said = edited(field, text);
            assert!(said.contains("ConfigMap cosid-system/cosid-watermark-"), "{said}");
        }
        assert!(decode(&orders, &ConfigMap::default()).is_err());
    }
}
