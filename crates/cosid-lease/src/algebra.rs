//! The three changes of a [`Record`]. All uniqueness rests on them: each leaves `next_floor` at or above every
//! timestamp that the holder it acknowledges can issue.
//!
//! Pure: `now` is the lower bound of the store clock's estimate, so that a lease is taken over late rather than
//! early.

use thiserror::Error;
use uuid::Uuid;

use crate::proof::bug;
use crate::{Fence, Holding, MAX_FENCE, Millis, Owner, Record, Tenure, Terms};

/// Why a slot can't be acquired.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It has a live holder.
    #[error("held by {key} until {until} (Unix ms); it can be acquired after that")]
    Live {
        /// The holder's key.
        key: String,
        /// The expiry, Unix ms by the store's clock.
        until: Millis,
    },
    /// Its fence can't grow any more. The slot has to be retired.
    #[error("its fence is at the largest value, {MAX_FENCE}; retire the slot")]
    FenceSpent,
}

/// Neither the incarnation nor the fence may differ for a renewal or a release: it is somebody else's slot now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not the holder: the slot is at fence {fence}, held by {holder}")]
pub struct NotHolder {
    /// The fence found.
    pub fence: Fence,
    /// The key of the holder found, or `nobody`.
    pub holder: String,
}

/// Takes a slot that is free, or expired at `now`: a new fence, and a window that starts where no earlier holder can
/// have issued.
///
/// # Errors
/// [`Refusal`] where the slot is live, also for its own owner (who renews it), or its fence is spent.
pub fn acquire(record: &Record, owner: &Owner, now: Millis, terms: Terms) -> Result<Record, Refusal> {
    if let Some(holding) = record.live(now) {
        return Err(Refusal::Live { key: holding.owner.key.clone(), until: holding.expires_at });
    }
    let fence = next_fence(record.fence).ok_or(Refusal::FenceSpent)?;
    let fence = if bug("fence_stays_at_a_takeover") { record.fence } else { fence };
    let floor = if bug("floor_from_the_clock") { now } else { record.next_floor };
    let expires_at = now.saturating_add(terms.ttl);
    let ceiling = expires_at.saturating_add(terms.tolerance).max(floor);
    let holding = Holding { owner: owner.clone(), floor, ceiling, expires_at, acquired_at: now };
    let next_floor = if bug("next_floor_at_the_expiry") { expires_at } else { ceiling };
    Ok(Record { fence, next_floor, tenure: Tenure::Held(holding) })
}

/// Extends a lease. Nothing ever shrinks, also when the store's clock stepped back, and a replay succeeds.
///
/// # Errors
/// [`NotHolder`] where the slot has changed hands.
pub fn renew(
    record: &Record,
    incarnation: Uuid,
    fence: Fence,
    now: Millis,
    terms: Terms,
) -> Result<Record, NotHolder> {
    let holding = own(record, incarnation, fence)?;
    let expires_at = holding.expires_at.max(now.saturating_add(terms.ttl));
    let ceiling = holding.ceiling.max(expires_at.saturating_add(terms.tolerance));
    let holding = Holding { expires_at, ceiling, ..holding.clone() };
    let next_floor =
        if bug("renewal_leaves_next_floor") { record.next_floor } else { record.next_floor.max(ceiling) };
    Ok(Record { fence, next_floor, tenure: Tenure::Held(holding) })
}

/// Gives a lease back. The next holder starts right above `last_issued` (Unix ms), the last timestamp that was issued
/// under it; where nothing was issued, pass the floor.
///
/// # Errors
/// [`NotHolder`] where the slot has changed hands: an old holder's release that arrives late changes nothing.
pub fn release(
    record: &Record,
    incarnation: Uuid,
    fence: Fence,
    last_issued: Millis,
) -> Result<Record, NotHolder> {
    let holding = own(record, incarnation, fence)?;
    let lowest = if bug("release_below_the_floor") { 0 } else { holding.floor };
    let next_floor = last_issued.min(holding.ceiling).max(lowest);
    let last_key = Some(holding.owner.key.clone());
    // A spent fence stays where it is: the incarnation is gone, and the slot can't be acquired again.
    let fence = next_fence(fence).unwrap_or(fence);
    Ok(Record { fence, next_floor, tenure: Tenure::Free { last_key } })
}

fn next_fence(fence: Fence) -> Option<Fence> {
    fence.checked_add(1).filter(|&next| next <= MAX_FENCE)
}

fn own(record: &Record, incarnation: Uuid, fence: Fence) -> Result<&Holding, NotHolder> {
    record
        .holding()
        .filter(|holding| {
            bug("no_fence_check") || record.fence == fence && holding.owner.incarnation == incarnation
        })
        .ok_or_else(|| NotHolder {
            fence: record.fence,
            holder: record.holding().map_or_else(|| "nobody".into(), |holding| holding.owner.key.clone()),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };

    fn owner(key: &str) -> Owner {
        Owner::new(key)
    }

    #[test]
    fn acquiring_a_free_slot_starts_the_window_at_its_next_floor() {
        let record = acquire(&Record::open(4, 700), &owner("a"), 1_000, TERMS).unwrap();
        let holding = record.holding().unwrap();
        assert_eq!(record.fence, 5);
        assert_eq!((holding.floor, holding.expires_at, holding.ceiling), (700, 31_000, 32_000));
        assert_eq!(record.next_floor, 32_000);
    }

    #[test]
    fn a_floor_above_the_expiry_lifts_the_ceiling_to_it() {
        let record = acquire(&Record::open(0, 99_000), &owner("a"), 1_000, TERMS).unwrap();
        let holding = record.holding().unwrap();
        assert_eq!((holding.floor, holding.ceiling, record.next_floor), (99_000, 99_000, 99_000));
    }

    #[test]
    fn a_live_slot_is_refused_until_the_very_millisecond_of_its_expiry() {
        let held = acquire(&Record::open(0, 0), &owner("a"), 1_000, TERMS).unwrap();
        assert_eq!(
            acquire(&held, &owner("b"), 30_999, TERMS),
            Err(Refusal::Live { key: "a".into(), until: 31_000 })
        );
        let taken = acquire(&held, &owner("b"), 31_000, TERMS).unwrap();
        assert_eq!(taken.fence, 2);
        assert_eq!(taken.holding().unwrap().floor, 32_000);
    }

    #[test]
    fn a_renewal_with_the_store_clock_stepped_back_lowers_nothing() {
        let a = owner("a");
        let held = acquire(&Record::open(0, 0), &a, 100_000, TERMS).unwrap();
        let renewed = renew(&held, a.incarnation, held.fence, 5_000, TERMS).unwrap();
        assert_eq!(renewed, held);
        let later = renew(&held, a.incarnation, held.fence, 110_000, TERMS).unwrap();
        let holding = later.holding().unwrap();
        assert_eq!((holding.expires_at, holding.ceiling, later.next_floor), (140_000, 141_000, 141_000));
        assert_eq!((later.fence, holding.floor, holding.acquired_at), (held.fence, 0, 100_000));
    }

    #[test]
    fn a_wrong_incarnation_or_fence_changes_nothing() {
        let (a, b) = (owner("a"), owner("a"));
        let held = acquire(&Record::open(0, 0), &a, 0, TERMS).unwrap();
        let refused = NotHolder { fence: 1, holder: "a".into() };
        assert_eq!(renew(&held, b.incarnation, 1, 0, TERMS), Err(refused.clone()));
        assert_eq!(renew(&held, a.incarnation, 2, 0, TERMS), Err(refused.clone()));
        assert_eq!(release(&held, b.incarnation, 1, 5), Err(refused.clone()));
        assert_eq!(release(&held, a.incarnation, 0, 5), Err(refused));
        let freed = release(&held, a.incarnation, 1, 5).unwrap();
        let twice = release(&freed, a.incarnation, 1, 9);
        assert_eq!(twice, Err(NotHolder { fence: 2, holder: "nobody".into() }));
    }

    #[test]
    fn a_release_hands_on_the_last_timestamp_clamped_to_the_window() {
        let a = owner("a");
        let held = acquire(&Record::open(0, 500), &a, 1_000, TERMS).unwrap();
        let next_floor = |last| release(&held, a.incarnation, 1, last).unwrap().next_floor;
        assert_eq!(next_floor(1_234), 1_234);
        assert_eq!(next_floor(99_999_999), 32_000);
        assert_eq!(next_floor(3), 500);
        assert_eq!(release(&held, a.incarnation, 1, 1_234).unwrap().last_key(), Some("a"));
    }

    #[test]
    fn a_spent_fence_refuses_the_next_owner_and_still_lets_the_present_one_go() {
        let a = owner("a");
        let held = acquire(&Record::open(MAX_FENCE - 1, 0), &a, 0, TERMS).unwrap();
        assert_eq!(held.fence, MAX_FENCE);
        let freed = release(&held, a.incarnation, MAX_FENCE, 10).unwrap();
        assert_eq!((freed.fence, freed.next_floor), (MAX_FENCE, 10));
        assert_eq!(acquire(&freed, &a, 0, TERMS), Err(Refusal::FenceSpent));
    }
}
