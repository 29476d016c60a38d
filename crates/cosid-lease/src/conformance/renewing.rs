//! Renewing: nothing shrinks, and nobody renews what is not his.

use super::actor::{EXPIRED, Stand};
use super::line::Fault;
use super::{Bench, Fixture, Outcome, TERMS, holds, same};
use crate::keeper::Binding;
use crate::{LossReason, Millis, Owner, Record, Report, SlotStore, algebra};

fn bounds(record: &Record) -> Outcome<(Millis, Millis, Millis)> {
    let holding = record.holding().ok_or("the slot is not held")?;
    Ok((holding.expires_at, holding.ceiling, record.next_floor))
}

pub(super) async fn a_renewal_moves_expiry_ceiling_and_next_floor_on<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut actor = stand.actor("a", 0);
    actor.acquire().await?;
    actor.renew().await?;
    let expires_at = actor.store_time() + TERMS.ttl;
    let ceiling = expires_at + TERMS.tolerance;
    holds("time has passed before the renewal", expires_at > stand.time(TERMS.ttl))?;
    same("the ceiling it was told", actor.ceiling, ceiling)?;
    same("expiry, ceiling, next floor", bounds(&stand.record(0).await?)?, (expires_at, ceiling, ceiling))
}

pub(super) async fn a_renewal_with_the_store_clock_stepped_back_lowers_nothing<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut actor = stand.actor("a", 0);
    actor.acquire().await?;
    actor.renew().await?;
    let before = (actor.ceiling, stand.record(0).await?);
    actor.step_back(600_000);
    actor.renew().await?;
    same("the ceiling and the record", (actor.ceiling, stand.record(0).await?), before)
}

pub(super) async fn a_renewal_leaves_fence_floor_and_owner<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut actor = stand.actor("a", 0);
    let binding = actor.acquire().await?;
    actor.renew().await?;
    actor.renew().await?;
    let record = stand.record(0).await?;
    same("fence", record.fence, binding.fence)?;
    let holding = record.holding().ok_or("the slot is not held")?;
    same("floor", holding.floor, binding.holding.floor)?;
    same("owner", &holding.owner, &binding.holding.owner)?;
    same("since when", holding.acquired_at, binding.holding.acquired_at)
}

pub(super) async fn a_replayed_renewal_succeeds<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut actor = stand.actor("a", 0);
    let binding = actor.acquire().await?;
    // On the wire a second time: refused there, and no harm done.
    actor.fault(Fault::Twice);
    actor.renew().await?;
    let once = stand.record(0).await?;
    // And renewed again at the same time: the same record.
    let incarnation = binding.holding.owner.incarnation;
    let again = algebra::renew(&once, incarnation, binding.fence, actor.store_time(), TERMS);
    same("the renewal again", again, Ok(once))?;
    actor.renew().await?;
    holds("the slot is kept", !actor.closed)
}

/// Somebody who believes to have this lease writes nothing, and is told that it is lost.
async fn is_refused<S: SlotStore>(stand: &Stand<S>, claim: &Binding, at: Millis) -> Outcome {
    let before = stand.record(0).await?;
    let mut actor = stand.resuming(claim, at);
    actor.until_report("the loss", |report| matches!(report, Report::Lost { slot: 0, .. })).await?;
    holds("its window is closed", actor.closed)?;
    same("renewals", actor.count(|report| matches!(report, Report::Renewed { .. })), 0)?;
    same("the record", stand.record(0).await?, before)
}

pub(super) async fn a_renewal_by_another_incarnation_writes_nothing<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut claim = stand.actor("a", 0).acquire().await?;
    claim.holding.owner = Owner::new("a");
    is_refused(&stand, &claim, 1_000).await
}

pub(super) async fn a_renewal_under_another_fence_writes_nothing<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let held = stand.actor("a", 0).acquire().await?;
    for fence in [held.fence - 1, held.fence + 1] {
        is_refused(&stand, &Binding { fence, ..held.clone() }, 1_000).await?;
    }
    Ok(())
}

pub(super) async fn a_renewal_after_a_takeover_is_refused_and_the_slot_lost<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut paused = stand.actor("a", 0);
    paused.acquire().await?;
    let ceiling = paused.ceiling;
    let taker = stand.actor("b", EXPIRED).acquire().await?;
    holds("the taker's floor is at or above the ceiling", taker.holding.floor >= ceiling)?;
    let before = stand.record(0).await?;
    paused.pass(EXPIRED + 5_000);
    paused.until("its window is closed", |actor| actor.closed).await?;
    paused.until_report("the loss", |report| matches!(report, Report::Lost { .. })).await?;
    same("the ceiling it was told last", paused.ceiling, ceiling)?;
    let reason = LossReason::Taken { holder: "b".into(), fence: taker.fence };
    same(
        "reports of the loss",
        paused.count(|report| *report == Report::Lost { slot: 0, reason: reason.clone() }),
        1,
    )?;
    same("the record", stand.record(0).await?, before)
}

pub(super) async fn a_conflict_with_oneself_still_in_place_is_a_retry_and_no_loss<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut actor = stand.actor("a", 0);
    let binding = actor.acquire().await?;
    // The lease changes behind its holder's back, and stays his.
    let entry = stand.entry(0).await?;
    let incarnation = binding.holding.owner.incarnation;
    let record = stand.record(0).await?;
    let touched = algebra::renew(&record, incarnation, binding.fence, stand.time(2_000), TERMS);
    let touched = touched.map_err(|error| error.to_string())?;
    stand.store.write(0, &entry.version, &touched).await.map_err(|error| error.to_string())?;
    actor.renew().await?;
    holds("the slot is kept", !actor.closed)?;
    let record = stand.record(0).await?;
    same("fence", record.fence, binding.fence)?;
    same("the ceiling in the store", record.next_floor, actor.ceiling)
}

pub(super) async fn an_unknown_outcome_keeps_the_old_ceiling_until_read_back<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut actor = stand.actor("a", 0);
    actor.acquire().await?;
    let old = actor.ceiling;
    actor.fault(Fault::Lose);
    actor.until_report("a failure", |report| matches!(report, Report::StoreFailed { .. })).await?;
    same("the ceiling it goes by", actor.ceiling, old)?;
    let stored = stand.record(0).await?.next_floor;
    holds("the store has a higher one", stored > old)?;
    actor.until("the ceiling is read back", |actor| actor.ceiling > old).await?;
    same("the ceiling read back", actor.ceiling, stored)?;
    actor.renew().await?;
    holds("the slot is kept", !actor.closed)
}

pub(super) async fn a_renewal_that_never_arrived_is_made_again<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut actor = stand.actor("a", 0);
    actor.acquire().await?;
    let old = actor.ceiling;
    actor.fault(Fault::Drop);
    actor.fault(Fault::Drop);
    actor.renew().await?;
    same("failures", actor.count(|report| matches!(report, Report::StoreFailed { .. })), 2)?;
    holds("the ceiling moved on", actor.ceiling > old)?;
    same("the next floor", stand.record(0).await?.next_floor, actor.ceiling)
}

pub(super) async fn a_renewal_that_arrives_late_lowers_nothing<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut actor = stand.actor("a", 0);
    actor.acquire().await?;
    actor.fault(Fault::Delay);
    actor.renew().await?;
    let before = stand.record(0).await?;
    for result in actor.line.arrive().await {
        holds("the late renewal is refused", result.is_err())?;
    }
    same("the record", stand.record(0).await?, before)?;
    actor.renew().await?;
    holds("the slot is kept", !actor.closed)
}

pub(super) async fn a_renewal_after_the_expiry_succeeds_while_nobody_took_the_slot<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut actor = stand.actor("a", 0);
    let binding = actor.acquire().await?;
    actor.pass(EXPIRED + 60_000);
    actor.renew().await?;
    same("reports of the expiry", actor.count(|report| matches!(report, Report::Expired { .. })), 1)?;
    same("fence", stand.record(0).await?.fence, binding.fence)?;
    same("the ceiling", actor.ceiling, actor.store_time() + TERMS.ttl + TERMS.tolerance)
}

pub(super) async fn a_restarted_owner_resumes_its_lease<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(2).await?;
    let binding = stand.actor("a", 0).acquire().await?;
    let mut back = stand.resuming(&binding, 15_000);
    back.until_report("the resumption", |report| matches!(report, Report::Resumed { .. })).await?;
    back.renew().await?;
    let record = stand.record(0).await?;
    same("fence", record.fence, binding.fence)?;
    same("the ceiling", back.ceiling, back.store_time() + TERMS.ttl + TERMS.tolerance)?;
    holds("the other slot is free", stand.record(1).await?.holding().is_none())
}
