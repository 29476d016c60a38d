//! The barrier after a store went backwards: no slot begins below anything that may have been used.

use cosid_kube::codec;
use cosid_kube::pool::{
    Barrier, LONGEST_TTL_SECONDS, RECOVER, Request, STORE_REGRESSED, SlotPool, Watermark,
};
use cosid_lease::choose::FAR_AHEAD;
use cosid_lease::{Fence, MAX_FENCE, Millis, Record, SlotState, Tenure};
use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

use super::regression::{longest_lease_seconds, note};
use super::watermark::{FAR_FENCE, Kept};
use super::{Reconciler, status};
use crate::Error;
use crate::events::Fact;
use crate::index::PoolKey;
use crate::writes::CALLS_AT_ONCE;

/// How far above all that can have been used a barrier is besides, ms: what rounding and clocks may hide.
const MARGIN: Millis = 1_000;
/// How often Leases are listed anew until all have it: those that are renewed meanwhile take another turn.
const ROUNDS: usize = 8;

impl Reconciler {
    /// Writes the barrier that was asked for, if it was not written yet: to each Lease, and then to the pool, whose
    /// condition goes with it.
    pub(super) async fn recover(&self, key: &PoolKey) -> Result<(), Error> {
        let asked = self.writes.index().view(key).pool.is_some_and(|pool| request(&pool).is_some());
        if !asked {
            return Ok(());
        }
        let pool = self.writes.read_pool(key).await?.ok_or_else(|| Error::Conflict(format!("pool {key}")))?;
        let Some((text, request)) = request(&pool) else { return Ok(()) };
        let leases = self.leases_of(key).await?;
        let barrier = self.barrier(&pool, request, &leases)?;
        let watermark = Kept::of(pool.status.as_ref()).watermark;
        // Of other slots, too: which fences a slot has had is forgotten, and by how much nobody knows.
        let fences =
            leases.iter().filter_map(|lease| codec::read(lease).ok().flatten()).map(|record| record.fence);
        // One near its end is a slot's own trouble.
        let known = fences.filter(|&fence| fence <= FAR_FENCE).max().unwrap_or(0);
        let known = known.max(Fence::try_from(watermark.fence).unwrap_or(0));
        self.lift(key, leases, barrier, known).await?;

        let next_floor = i64::try_from(barrier).unwrap_or(i64::MAX);
        let fence = i32::try_from(known.saturating_add(1)).unwrap_or(i32::MAX);
        let kept = Kept { watermark: Watermark { next_floor, fence }, ..Kept::default() };
        let was = pool.is(STORE_REGRESSED);
        let mut changed = (*pool).clone();
        let barrier = Barrier { next_floor, request: text };
        changed.status = Some(status::recovered(&pool, &kept, barrier, self.timestamp()?));
        self.writes.put_status(&changed).await?;
        tracing::info!(pool = %key, was, next_floor, "a barrier was written");
        self.announcer.tell(&pool, &Fact::Recovered { barrier: next_floor });
        Ok(())
    }

    /// Above every ceiling that was ever given, as far as clocks and terms say: none lies further ahead than ttl and
    /// tolerance.
    fn barrier(&self, pool: &SlotPool, request: Request, leases: &[Lease]) -> Result<Millis, Error> {
        let time = self.clock.now().ok_or(Error::NoTime)?;
        let ttl = Millis::try_from(pool.spec.ttl_seconds).unwrap_or(0);
        let ttl = ttl.max(longest_lease_seconds(leases.iter())).max(request.longest_ttl.unwrap_or(0).into());
        let tolerance = Millis::try_from(pool.spec.tolerance_milliseconds).unwrap_or(0);
        let beyond = time.latest.saturating_add(ttl * 1_000).saturating_add(tolerance).saturating_add(MARGIN);
        // What is known of before, where it is not a clock gone wild.
        let known = Kept::of(pool.status.as_ref()).watermark.next_floor;
        let known = Millis::try_from(known).unwrap_or(0);
        Ok(if known <= time.earliest.saturating_add(FAR_AHEAD) { beyond.max(known) } else { beyond })
    }

    async fn lift(
        &self,
        key: &PoolKey,
        mut leases: Vec<Lease>,
        barrier: Millis,
        fence: Fence,
    ) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            let now = self.now()?;
            let lifted: Vec<Lease> =
                leases.iter().filter_map(|lease| lifted(lease, &key.name, barrier, fence, now)).collect();
            if lifted.is_empty() {
                return Ok(());
            }
            stream::iter(lifted.into_iter().map(Ok))
                .try_for_each_concurrent(CALLS_AT_ONCE, async |lease: Lease| {
                    match self.writes.put_lease(&lease, "lease-lifted").await {
                        // Renewed, acquired or released meanwhile: it is listed anew.
                        Err(Error::Conflict(_)) | Ok(()) => Ok(()),
                        Err(error) => Err(error),
                    }
                })
                .await?;
            leases = self.leases_of(key).await?;
        }
        Err(Error::Conflict(format!("the Leases of pool {key}")))
    }

    /// The pool's Leases as they are now.
    async fn leases_of(&self, key: &PoolKey) -> Result<Vec<Lease>, Error> {
        let all = self.writes.read_leases(key).await?;
        Ok(all.into_iter().filter(|lease| PoolKey::of_lease(lease).as_ref() == Some(key)).collect())
    }
}

/// The request of a pool that has not been met.
fn request(pool: &SlotPool) -> Option<(String, Request)> {
    let text = pool.annotations().get(RECOVER)?;
    let met = pool.status.as_ref().and_then(|status| status.barrier.as_ref());
    if met.is_some_and(|barrier| &barrier.request == text) {
        return None;
    }
    let request =
        Request::parse(text).filter(|request| request.longest_ttl.unwrap_or(0) <= LONGEST_TTL_SECONDS);
    if request.is_none() {
        tracing::warn!(pool = pool.full_name(), text, "{RECOVER} can't be read: use `kubectl cosid recover`");
    }
    request.map(|request| (text.clone(), request))
}

/// The Lease with its next floor at the barrier or above, and a fence above `fence` where nobody holds it; `None` where it
/// is so already. Who holds it keeps it, and finishes its window.
fn lifted(lease: &Lease, pool: &str, barrier: Millis, fence: Fence, now: Millis) -> Option<Lease> {
    let SlotState::Open(record) = codec::decode(lease, pool) else { return None };
    let is_marked = note(lease).is_some() || lease.annotations().contains_key(codec::BARRED);
    let next_floor = record.next_floor.max(barrier);
    let lifted = match record.live(now) {
        Some(_) => Record { next_floor, ..record.clone() },
        None if record.holding().is_none() && record.fence > fence => Record { next_floor, ..record.clone() },
        // It can't be acquired any more.
        None if record.fence >= MAX_FENCE => Record { next_floor, ..record.clone() },
        None => Record {
            fence: record.fence.max(fence).saturating_add(1).min(MAX_FENCE),
            next_floor,
            tenure: Tenure::Free { last_key: record.last_key().map(str::to_owned) },
        },
    };
    if lifted == record && !is_marked {
        return None;
    }
    let ttl = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(1);
    // A record that was read can be written.
    let pod = lease.annotations().get(codec::POD_UID).map(String::as_str);
    let mut lease = codec::encode(lease, &lifted, ttl, pod).ok()?;
    lease.annotations_mut().remove(codec::STORE_REGRESSED);
    lease.annotations_mut().remove(codec::BARRED);
    Some(lease)
}

#[cfg(test)]
mod tests {
    use cosid_kube::SlotPoolSpec;
    use cosid_lease::{Owner, Terms, algebra};

    use super::super::regression::barred;
    use super::*;

    const NOW: Millis = 1_700_000_000_000;
    const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };
    const BARRIER: Millis = NOW + 40_000;

    fn lease(record: &Record) -> Lease {
        let mut pool = SlotPool::new("orders", SlotPoolSpec::default());
        pool.metadata.namespace = Some("shop".into());
        codec::encode(&codec::new_lease(&pool, 3), record, 30, Some("uid")).unwrap()
    }

    fn lift(record: &Record, fence: Fence) -> Option<Record> {
        lifted(&lease(record), "orders", BARRIER, fence, NOW)
            .map(|lease| codec::read(&lease).unwrap().unwrap())
    }

    #[test]
    fn a_free_slot_begins_at_the_barrier_and_above_every_known_fence() {
        assert_eq!(lift(&Record::open(4, 7), 9), Some(Record::open(10, BARRIER)));
        assert_eq!(lift(&Record::open(12, 7), 9), Some(Record::open(12, BARRIER)));
        assert_eq!(lift(&Record::open(10, BARRIER), 9), None);
        assert_eq!(lift(&Record::open(10, BARRIER + 5), 9), None, "nothing is lowered");
        assert_eq!(lift(&Record::open(MAX_FENCE, 7), MAX_FENCE), Some(Record::open(MAX_FENCE, BARRIER)));
    }

    #[test]
    fn a_live_holder_keeps_its_window_and_an_expired_ones_slot_is_freed() {
        let owner = Owner::new("shop/web-0");
        let live = algebra::acquire(&Record::open(4, 7), &owner, NOW - 29_999, TERMS).unwrap();
        assert_eq!(lift(&live, 9), Some(Record { next_floor: BARRIER, ..live.clone() }));
        let mut expected = lease(&live);
        expected.annotations_mut().insert(codec::NEXT_FLOOR.into(), BARRIER.to_string());
        assert_eq!(
            lifted(&lease(&live), "orders", BARRIER, 9, NOW),
            Some(expected),
            "and nothing else changes"
        );
        let renewed = algebra::renew(&live, owner.incarnation, 5, NOW + 60_000, TERMS).unwrap();
        assert!(renewed.next_floor > BARRIER && lift(&renewed, 9).is_none());
        let expired = algebra::acquire(&Record::open(4, 7), &owner, NOW - 30_000, TERMS).unwrap();
        let freed = lift(&expired, 9).unwrap();
        assert_eq!((freed.fence, freed.next_floor, freed.last_key()), (10, BARRIER, Some("shop/web-0")));
        assert_eq!(lift(&freed, 9), None, "once");
    }

    #[test]
    fn a_holders_note_and_the_bar_go_with_the_barrier() {
        let owner = Owner::new("shop/web-0");
        let live = algebra::acquire(&Record::open(4, BARRIER), &owner, NOW, TERMS).unwrap();
        let mut noted = lease(&live);
        noted.annotations_mut().insert(codec::STORE_REGRESSED.into(), "slot 3 was".into());
        let noted = barred(&noted, "orders").unwrap();
        assert_eq!(barred(&noted, "orders"), None, "once");
        let lifted = lifted(&noted, "orders", BARRIER, 0, NOW).unwrap();
        assert_eq!(lifted, lease(&live));
    }

    #[test]
    fn a_request_is_met_once_and_one_that_can_not_be_read_never() {
        let mut pool = SlotPool::new("orders", SlotPoolSpec::default());
        assert_eq!(request(&pool), None);
        pool.annotations_mut().insert(RECOVER.into(), "a/60".into());
        assert_eq!(request(&pool).unwrap().1.longest_ttl, Some(60));
        let met = Barrier { next_floor: 1, request: "a/60".into() };
        pool.status.get_or_insert_default().barrier = Some(met);
        assert_eq!(request(&pool), None);
        for (text, is_asked) in [("b", true), ("b/1800", true), ("b/1801", false), ("b/x", false)] {
            pool.annotations_mut().insert(RECOVER.into(), text.into());
            assert_eq!(request(&pool).is_some(), is_asked, "{text}");
        }
    }
}
