//! What becomes of the history of a Lease that goes: it lifts the pool's watermark, or its slot is retired.

use std::collections::BTreeSet;

use cosid_kube::codec;
use cosid_kube::pool::{SlotPoolStatus, Watermark};
use cosid_lease::choose::FAR_AHEAD;
use cosid_lease::{Fence, MAX_FENCE, Millis, Slot};
use k8s_openapi::api::coordination::v1::Lease;

use crate::moment::moment;
use crate::proof::bug;

/// A fence above this would use up the pool's fences if it became the watermark. One change of hands a second takes
/// 34 years to get there: it is an edit, or a slot at its end.
pub const FAR_FENCE: Fence = MAX_FENCE / 2;

/// What has to be kept of Leases that go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// No slot is opened below this.
    pub watermark: Watermark,
    /// Slots that are never leased again.
    pub retired: BTreeSet<Slot>,
}

/// A slot that is to be retired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retirement {
    /// Which.
    pub slot: Slot,
    /// Why.
    pub why: String,
}

impl Kept {
    /// What a pool's status keeps.
    #[must_use]
    pub fn of(status: Option<&SlotPoolStatus>) -> Self {
        let Some(status) = status else { return Self::default() };
        let retired = status.retired.iter().filter_map(|&slot| Slot::try_from(slot).ok()).collect();
        Self { watermark: status.watermark.unwrap_or_default(), retired }
    }

    /// Both: never less than either.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        Self {
            watermark: Watermark {
                next_floor: self.watermark.next_floor.max(other.watermark.next_floor),
                fence: self.watermark.fence.max(other.watermark.fence),
            },
            retired: self.retired.union(&other.retired).copied().collect(),
        }
    }

    /// Whether all of the other is in this.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.merged(other) == *self
    }
}

/// What is to be kept of a pool once the history of these Leases is in it, and the slots that are retired for it. `kept`
/// is what is kept already; before `begin` (Unix ms) no slot begins, by the operator's word, however far ahead it is; `now`
/// is Unix ms, the lower bound of the store clock.
///
/// The floor of a Lease that can't be read is in no one's knowledge: its slot is retired, never guessed.
#[must_use]
pub fn keep<'a>(
    kept: &Kept,
    begin: i64,
    leases: impl IntoIterator<Item = &'a Lease>,
    pool: &str,
    now: Millis,
) -> (Kept, Vec<Retirement>) {
    let known = Watermark { next_floor: kept.watermark.next_floor.max(begin), ..kept.watermark };
    let mut all = kept.clone();
    let mut retirements = Vec::new();
    for lease in leases {
        let Some(slot) = codec::slot_of(lease, pool) else { continue };
        match judge(lease, known, now) {
            Ok(watermark) => all = all.merged(&Kept { watermark, retired: BTreeSet::new() }),
            Err(why) => {
                if all.retired.insert(slot) {
                    retirements.push(Retirement { slot, why });
                }
            }
        }
    }
    (all, retirements)
}

/// The watermark that a Lease's history needs, or why it must not lift the pool's that far.
fn judge(lease: &Lease, known: Watermark, now: Millis) -> Result<Watermark, String> {
    let record = match codec::read(lease) {
        Ok(Some(record)) => record,
        // Never opened: nobody ever held it.
        Ok(None) => return Ok(Watermark::default()),
        Err(error) => return Err(format!("its Lease went and can't be read: {error}")),
    };
    // next_floor is at or above the ceiling in every Lease that can be read; it costs nothing not to rely on it.
    let floor = record.holding().map_or(record.next_floor, |holding| holding.ceiling.max(record.next_floor));
    let floor = if bug("watermark_from_the_floor") {
        record.holding().map_or(floor, |holding| holding.floor)
    } else {
        floor
    };
    // What is known to be wanted or covered is not implausible: a pool may not begin before next year.
    let lifts_floor = i64::try_from(floor).map_or(true, |floor| floor > known.next_floor);
    let lifts_fence = i64::from(record.fence) > i64::from(known.fence);
    if lifts_floor && floor > now.saturating_add(FAR_AHEAD) {
        let hours = (floor - now) / 3_600_000;
        return Err(format!("its next floor {} is {hours} h ahead of the API server's clock", moment(floor)));
    }
    if lifts_fence && record.fence > FAR_FENCE {
        return Err(format!("its fence {} is near the largest, {MAX_FENCE}", record.fence));
    }
    match (i64::try_from(floor), i32::try_from(record.fence)) {
        (Ok(next_floor), Ok(_)) if bug("watermark_forgets_the_fence") => {
            Ok(Watermark { next_floor, fence: 0 })
        }
        (Ok(next_floor), Ok(fence)) => Ok(Watermark { next_floor, fence }),
        _ => Err(format!("its next floor {floor} or its fence {} is out of bounds", record.fence)),
    }
}

#[cfg(test)]
mod tests {
    use cosid_kube::SlotPool;
    use cosid_lease::{Owner, Record, Terms, algebra};
    use kube::ResourceExt as _;
    use proptest::prelude::*;

    use super::*;

    const NOW: Millis = 1_700_000_000_000;
    const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };

    fn lease(slot: Slot, record: Option<Record>) -> Lease {
        let shut = codec::new_lease(&SlotPool::new("orders", cosid_kube::SlotPoolSpec::default()), slot);
        record.map_or(shut.clone(), |record| codec::encode(&shut, &record, 30, None).unwrap())
    }

    fn kept(next_floor: Millis, fence: i32, retired: &[Slot]) -> Kept {
        let next_floor = next_floor.try_into().unwrap();
        Kept { watermark: Watermark { next_floor, fence }, retired: retired.iter().copied().collect() }
    }

    #[test]
    fn what_is_kept_of_a_lease_that_goes() {
        let held = algebra::acquire(&Record::open(6, 5), &Owner::new("shop/web-0"), NOW, TERMS).unwrap();
        let mut broken = lease(3, Some(Record::open(1, 5)));
        broken.annotations_mut().insert("cosid.dev/next-floor".into(), "soon".into());
        let far = NOW + FAR_AHEAD;
        let cases = [
            ("a shut one: nothing", lease(3, None), kept(100, 2, &[9])),
            ("one that lifts nothing", lease(3, Some(Record::open(1, 50))), kept(100, 2, &[9])),
            ("a freed one: its floor and fence", lease(3, Some(Record::open(4, 500))), kept(500, 4, &[9])),
            ("a lower floor, a higher fence", lease(3, Some(Record::open(4, 50))), kept(100, 4, &[9])),
            ("a held one: its ceiling", lease(3, Some(held)), kept(NOW + 31_000, 7, &[9])),
            ("an hour ahead: still believed", lease(3, Some(Record::open(1, far))), kept(far, 2, &[9])),
            ("further ahead: retired", lease(3, Some(Record::open(1, far + 1))), kept(100, 2, &[3, 9])),
            (
                "a fence near its end: retired",
                lease(3, Some(Record::open(FAR_FENCE + 1, 5))),
                kept(100, 2, &[3, 9]),
            ),
            ("unreadable: retired", broken, kept(100, 2, &[3, 9])),
        ];
        for (name, lease, expected) in cases {
            let (found, _) = keep(&kept(100, 2, &[9]), 0, [&lease], "orders", NOW);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_start_that_the_operator_set_far_ahead_is_no_reason_to_retire_a_slot() {
        let next_year = NOW + 365 * 86_400_000;
        let lease = lease(3, Some(Record::open(1, next_year)));
        let (found, retired) = keep(&kept(0, 0, &[]), next_year.try_into().unwrap(), [&lease], "orders", NOW);
        assert_eq!((found, retired), (kept(next_year, 1, &[]), vec![]));
    }

    #[test]
    fn a_retirement_is_told_once_with_its_reason_and_no_other_pools_lease_counts() {
        let far = lease(3, Some(Record::open(1, NOW + 2 * FAR_AHEAD)));
        let (all, retired) = keep(&Kept::default(), 0, [&far], "orders", NOW);
        assert_eq!(retired.len(), 1);
        assert!(retired[0].why.contains("2 h ahead"), "{}", retired[0].why);
        assert_eq!(keep(&all, 0, [&far], "orders", NOW), (all, vec![]));
        assert_eq!(keep(&Kept::default(), 0, [&far], "order", NOW), (Kept::default(), vec![]));
    }

    fn any_kept() -> impl Strategy<Value = Kept> {
        let retired = proptest::collection::btree_set(0..16_u32, 0..4);
        (0..1_000_i64, 0..1_000_i32, retired).prop_map(|(next_floor, fence, retired)| Kept {
            watermark: Watermark { next_floor, fence },
            retired,
        })
    }

    proptest! {
        #[test]
        fn merging_never_lowers_anything_and_its_order_does_not_matter(a in any_kept(), b in any_kept(), c in any_kept()) {
            let merged = a.merged(&b);
            prop_assert!(merged.covers(&a) && merged.covers(&b));
            prop_assert!(merged.watermark.next_floor >= a.watermark.next_floor.max(b.watermark.next_floor));
            prop_assert!(merged.watermark.fence >= a.watermark.fence.max(b.watermark.fence));
            prop_assert_eq!(&merged, &b.merged(&a));
            prop_assert_eq!(merged.merged(&c), a.merged(&b.merged(&c)));
            prop_assert_eq!(merged.merged(&a), merged);
        }

        #[test]
        fn every_lease_that_goes_is_covered_or_its_slot_retired(
            before in any_kept(),
            leases in proptest::collection::vec((0..16_u32, 0..=i64::MAX.unsigned_abs(), 0..=MAX_FENCE), 0..6),
        ) {
            let leases: Vec<Lease> =
                leases.into_iter().map(|(slot, floor, fence)| lease(slot, Some(Record::open(fence, floor)))).collect();
            let (after, _) = keep(&before, 0, &leases, "orders", NOW);
            prop_assert!(after.covers(&before));
            // No clock gone wild lifts the whole pool.
            prop_assert!(after.watermark.next_floor <= i64::try_from(NOW + FAR_AHEAD).unwrap());
            for lease in &leases {
                let record = codec::read(lease).unwrap().unwrap();
                let slot = codec::slot_of(lease, "orders").unwrap();
                let covered = i128::from(after.watermark.next_floor) >= i128::from(record.next_floor)
                    && i64::from(after.watermark.fence) >= i64::from(record.fence);
                prop_assert!(covered || after.retired.contains(&slot));
            }
        }
    }
}
