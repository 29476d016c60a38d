//! Several owners at once, and one after another.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::actor::EXPIRED;
use super::line::Fault;
use super::{Bench, Fixture, Outcome, TERMS, holds, same};
use crate::keeper::Binding;
use crate::{Owner, Report, Slot, SlotStore, StoreError, algebra};

/// How many acquire at once: enough for many lost races, few enough for a slow store.
const MANY: Slot = 24;

pub(super) async fn concurrent_acquirers_of_all_slots_get_a_permutation<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(MANY).await?;
    let acquisitions = (0..MANY).map(|number| {
        let mut actor = stand.actor(&format!("owner-{number}"), 0);
        async move { actor.acquire().await }
    });
    let bindings = all(acquisitions).await.into_iter().collect::<Outcome<Vec<Binding>>>()?;
    let slots: BTreeSet<Slot> = bindings.iter().map(|binding| binding.slot).collect();
    same("slots", slots, (0..MANY).collect())?;
    for binding in bindings {
        let record = stand.record(binding.slot).await?;
        same("the stored lease", record.holding(), Some(&binding.holding))?;
    }
    Ok(())
}

pub(super) async fn concurrent_acquirers_of_one_slot_get_one_holder<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let attempts = (0..6).map(|number| {
        let mut actor = stand.actor(&format!("owner-{number}"), 0);
        async move {
            let refused = |report: &Report| matches!(report, Report::Exhausted { .. });
            let done = |actor: &super::actor::Actor<'_, F::Store>| {
                actor.binding.is_some() || actor.count(refused) > 0
            };
            actor.until("a slot or a refusal", done).await?;
            Ok(actor.binding)
        }
    });
    let outcomes = all(attempts).await.into_iter().collect::<Outcome<Vec<Option<Binding>>>>()?;
    let holders: Vec<Binding> = outcomes.into_iter().flatten().collect();
    same("holders", holders.len(), 1)?;
    same("the stored lease", stand.record(0).await?.holding(), Some(&holders[0].holding))
}

pub(super) async fn a_write_at_an_old_version_writes_nothing<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    let entry = stand.entry(0).await?;
    let free = stand.record(0).await?;
    let take = |key: &str| algebra::acquire(&free, &Owner::new(key), stand.time(0), TERMS);
    let (first, second) = (take("a"), take("b"));
    let (Ok(first), Ok(second)) = (first, second) else { return Err("the new slot is not free".into()) };
    stand.store.write(0, &entry.version, &first).await.map_err(|error| error.to_string())?;
    let refused = stand.store.write(0, &entry.version, &second).await.err();
    same("the second write", refused, Some(StoreError::Conflict))?;
    same("the record", stand.record(0).await?, first.clone())?;
    let replayed = stand.store.write(0, &entry.version, &first).await.err();
    same("the first write again", replayed, Some(StoreError::Conflict))
}

pub(super) async fn the_fence_grows_by_one_at_each_acquisition<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut fence = stand.record(0).await?.fence;
    for turn in 0..4 {
        let binding = stand.actor(&format!("owner-{turn}"), turn * EXPIRED).acquire().await?;
        same("fence", binding.fence, fence + 1)?;
        fence = binding.fence;
    }
    Ok(())
}

pub(super) async fn the_floor_is_at_or_above_every_ceiling_acknowledged<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut highest = 0;
    let mut at = 0;
    for turn in 0..4 {
        let mut actor = stand.actor(&format!("owner-{turn}"), at);
        let floor = actor.acquire().await?.holding.floor;
        holds("the floor is at or above every ceiling before", floor >= highest)?;
        actor.renew().await?;
        actor.fault(Fault::Lose);
        actor.renew().await?;
        actor.renew().await?;
        highest = highest.max(actor.ceiling);
        at = actor.store_time() - stand.time(0) + EXPIRED;
    }
    same("the next floor", stand.record(0).await?.next_floor, highest)
}

pub(super) async fn an_acquisition_that_arrives_after_another_writes_nothing<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut late = stand.actor("late", 0);
    late.fault(Fault::Delay);
    late.until_report("a failure", |report| matches!(report, Report::StoreFailed { .. })).await?;
    let binding = stand.actor("other", 0).acquire().await?;
    let arrived = late.line.arrive().await;
    holds("the late write conflicts", matches!(arrived[..], [Err(StoreError::Conflict)]))?;
    same("the stored lease", stand.record(0).await?.holding(), Some(&binding.holding))?;
    late.until_report("exhaustion", |report| matches!(report, Report::Exhausted { .. })).await?;
    holds("the late one holds nothing", late.binding.is_none())
}

/// Runs them side by side, and gives what came of each.
async fn all<T>(futures: impl IntoIterator<Item: Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in &mut running {
            if output.is_none()
                && let Poll::Ready(value) = Pin::new(future).poll(context)
            {
                *output = Some(value);
            }
        }
        if running.iter().all(|(_, output)| output.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}
