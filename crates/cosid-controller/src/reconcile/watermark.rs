//! What becomes of the history of a Lease that goes: it lifts the pool's watermark, or its slot is retired.

use std::collections::BTreeSet;

use cosid_kube::codec;
use cosid_kube::pool::{SlotPoolStatus, Watermark};
use cosid_lease::choose::FAR_AHEAD;
use cosid_lease::{Fence, MAX_FENCE, Millis, Slot};
use k8s_openapi::api::coordination::v1::Lease;

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
    // What is known to be wanted or covered is not implausible: a pool may not begin before next year.
    let lifts_floor = i64::try_from(floor).map_or(true, |floor| floor > known.next_floor);
    let lifts_fence = i64::from(record.fence) > i64::from(known.fence);
    if lifts_floor && floor > now.saturating_add(FAR_AHEAD) {
        let hours = (floor - now) / 3_600_000;
        return Err(format!("its next floor {floor} is {hours} h ahead of the API server's clock"));
    }
    if lifts_fence && record.fence > FAR_FENCE {
        return Err(format!("its fence {} is near the largest, {MAX_FENCE}", record.fence));
    }
    match (i64::try_from(floor), i32::try_from(record.fence)) {
        (Ok(next_floor), Ok(fence)) => Ok(Watermark { next_floor, fence }),
        _ => Err(format!("its next floor {floor} or its fence {} is out of bounds", record.fence)),
    }
}
