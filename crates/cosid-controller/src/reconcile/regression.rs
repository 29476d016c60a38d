//! A store that went backwards: noticed, kept, said.

use std::collections::BTreeMap;

use cosid_kube::codec;
use cosid_kube::pool::{STORE_REGRESSED, SlotPool, Watermark};
use cosid_lease::regress::{Mark, went_back};
use cosid_lease::{Millis, Regression, SlotState};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

use super::watermark::{Kept, keep};
use super::{Reconciler, begin, status};
use crate::Error;
use crate::events::Fact;
use crate::index::{PoolKey, PoolView, Signs};
use crate::writes::CALLS_AT_ONCE;

impl Reconciler {
    /// Judges what speaks for a store that went backwards. If it did, what was known of the pool's slots goes into its
    /// watermark, and the condition says so from then on, until there is a barrier.
    pub(super) async fn settle_regression(&self, key: &PoolKey) -> Result<(), Error> {
        let view = self.writes.index().view(key);
        let noted = noted(&view);
        if view.signs == Signs::default() && noted.is_none() {
            return Ok(());
        }
        let pool = self.writes.read_pool(key).await?.ok_or_else(|| Error::Conflict(format!("pool {key}")))?;
        let how = match noted.or_else(|| view.signs.known.clone()) {
            Some(how) => Some(how),
            None => self.confirm(key, &pool, &view.signs).await?,
        };
        if let Some(how) = how {
            self.say_regressed(&pool, &view.signs, &how).await?;
        }
        self.writes.index().judged(key, &view.signs);
        Ok(())
    }

    /// By what is there now: a list that was read before a write shows earlier states too.
    async fn confirm(&self, key: &PoolKey, pool: &SlotPool, signs: &Signs) -> Result<Option<String>, Error> {
        let found = pool.status.as_ref().and_then(|status| status.watermark);
        if let (Some(known), Some(found)) = (signs.watermark, found)
            && (found.next_floor < known.next_floor || found.fence < known.fence)
        {
            let [known, found] =
                [known, found].map(|Watermark { next_floor, fence }| format!("{next_floor}/{fence}"));
            return Ok(Some(format!("the pool's watermark was {known}, and is {found}")));
        }
        if signs.leases.is_empty() {
            return Ok(None);
        }
        let fresh = self.writes.read_leases(key).await?;
        let fresh: BTreeMap<String, Lease> =
            fresh.into_iter().map(|lease| (lease.name_any(), lease)).collect();
        let lost: Vec<String> = signs
            .leases
            .iter()
            .filter_map(|(name, known)| regression(known, fresh.get(name)?, &key.name))
            .map(|regression| regression.to_string())
            .collect();
        let more = if lost.len() > 1 { format!("; and {} more", lost.len() - 1) } else { String::new() };
        Ok(lost.first().map(|first| format!("{first}{more}")))
    }

    /// Bars the slots of a pool whose store went backwards. Gives how many are still to be: those that changed meanwhile.
    pub(super) async fn bar(&self, key: &PoolKey) -> Result<usize, Error> {
        let leases = self.writes.index().view(key).leases;
        let barred: Vec<Lease> = leases.values().filter_map(|lease| barred(lease, &key.name)).collect();
        stream::iter(barred)
            .map(async |lease| match self.writes.put_lease(&lease, "lease-barred").await {
                Ok(()) => Ok(0),
                Err(Error::Conflict(_)) => Ok(1),
                Err(error) => Err(error),
            })
            .buffer_unordered(CALLS_AT_ONCE)
            .try_fold(0, async |sum, one| Ok(sum + one))
            .await
    }

    async fn say_regressed(&self, pool: &SlotPool, signs: &Signs, how: &str) -> Result<(), Error> {
        let leases = signs.leases.values().map(AsRef::as_ref);
        // A slot whose next floor is implausible is not retired: its Lease is still there, and has it or not.
        let (known, _) =
            keep(&Kept::of(pool.status.as_ref()), begin(pool)?, leases, &pool.name_any(), self.now()?);
        let known = Kept { retired: Default::default(), ..known };
        let known = known.merged(&Kept { watermark: signs.watermark.unwrap_or_default(), ..Kept::default() });
        if pool.is(STORE_REGRESSED) {
            if !Kept::of(pool.status.as_ref()).covers(&known) {
                self.keep(pool, &known).await?;
            }
            return Ok(());
        }
        let mut changed = pool.clone();
        let status = status::regressed(pool, &known, how, self.timestamp()?);
        let said = status.conditions.iter().find(|found| found.type_ == STORE_REGRESSED);
        let message = said.map(|found| found.message.clone()).unwrap_or_default();
        changed.status = Some(status);
        self.writes.put_status(&changed).await?;
        self.announcer.tell(pool, &Fact::StoreRegressed { message });
        Ok(())
    }
}

/// The Lease with a bar on it, which makes the API server refuse an acquisition of its slot by whoever did not ask the pool;
/// `None` where it has one, or nobody could acquire it anyway. A write that is on its way fails by it too.
pub(super) fn barred(lease: &Lease, pool: &str) -> Option<Lease> {
    let SlotState::Open(_) = codec::decode(lease, pool) else { return None };
    if lease.annotations().contains_key(codec::BARRED) {
        return None;
    }
    let mut lease = lease.clone();
    lease.annotations_mut().insert(codec::BARRED.to_owned(), STORE_REGRESSED.to_owned());
    Some(lease)
}

/// What a holder noted when it put its lease back.
fn noted(view: &PoolView) -> Option<String> {
    let notes = view.leases.values().filter_map(|lease| note(lease));
    let mut notes = notes.map(|text| text.chars().take(200).collect::<String>());
    notes.next().map(|first| format!("a holder found that {first}, and put it back"))
}

/// The note on a Lease.
pub(super) fn note(lease: &Lease) -> Option<&String> {
    lease.annotations().get(codec::STORE_REGRESSED)
}

fn regression(known: &Lease, found: &Lease, pool: &str) -> Option<Regression> {
    let slot = codec::slot_of(found, pool)?;
    let (known, found) = (codec::read(known).ok()??, codec::read(found).ok()??);
    went_back(&known, &found).then(|| Regression {
        slot,
        known: Mark::from(&known),
        found: Mark::from(&found),
    })
}

/// The latest that anything known of these may be, Unix ms.
pub(super) fn longest_lease_seconds<'a>(leases: impl Iterator<Item = &'a Lease>) -> Millis {
    let seconds = leases.filter_map(|lease| lease.spec.as_ref()?.lease_duration_seconds);
    seconds.filter_map(|seconds| Millis::try_from(seconds).ok()).max().unwrap_or(0)
}
