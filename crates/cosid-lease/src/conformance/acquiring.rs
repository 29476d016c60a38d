//! Acquiring: which slot, and which window.

use super::actor::{EXPIRED, Stand};
use super::line::Fault;
use super::{Bench, Fixture, Outcome, TERMS, holds, same};
use crate::choose::Preference;
use crate::{KeeperConfig, Millis, Owner, Report, Slot, SlotStore, algebra};

pub(super) async fn a_free_slot_is_acquired_with_a_window_above_all_before<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let before = stand.record(0).await?;
    let binding = stand.actor("a", 5).acquire().await?;
    same("slot", binding.slot, 0)?;
    same("fence", binding.fence, before.fence + 1)?;
    same("floor", binding.holding.floor, before.next_floor)?;
    same("expiry", binding.holding.expires_at, stand.time(5 + TERMS.ttl))?;
    same("ceiling", binding.holding.ceiling, stand.time(5 + TERMS.ttl + TERMS.tolerance))?;
    let record = stand.record(0).await?;
    same("the next floor", record.next_floor, binding.holding.ceiling)?;
    same("the stored fence", record.fence, binding.fence)?;
    same("the stored lease", record.holding(), Some(&binding.holding))
}

pub(super) async fn an_expired_slot_is_acquired_at_the_millisecond_of_its_expiry<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let first = stand.actor("a", 0).acquire().await?;
    let mut early = stand.actor("b", EXPIRED - 1);
    early.until("an attempt", |actor| !actor.reports.is_empty()).await?;
    holds("a millisecond before the expiry the slot is refused", early.binding.is_none())?;
    let second = stand.actor("c", EXPIRED).acquire().await?;
    same("slot", second.slot, first.slot)?;
    same("fence", second.fence, first.fence + 1)?;
    same("floor", second.holding.floor, first.holding.ceiling)
}

pub(super) async fn a_live_slot_is_refused<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    stand.actor("a", 0).acquire().await?;
    let before = stand.record(0).await?;
    let mut other = stand.actor("b", 1_000);
    other.until_report("a refusal", |report| matches!(report, Report::Exhausted { .. })).await?;
    holds("nothing was acquired", other.binding.is_none())?;
    same("the record", stand.record(0).await?, before)
}

pub(super) async fn the_same_owner_again_gets_the_same_lease<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(4).await?;
    let config = KeeperConfig { preference: Preference::Prefer(2), ..KeeperConfig::new(Owner::new("a")) };
    let first = stand.starting(config.clone(), 0).acquire().await?;
    let record = stand.record(2).await?;
    let again = KeeperConfig { preference: Preference::Prefer(1), ..config };
    same("the second lease", stand.starting(again, 1_000).acquire().await?, first)?;
    same("the record", stand.record(2).await?, record)?;
    holds("the other slot is free", stand.record(1).await?.holding().is_none())
}

/// An owner whose first write suffers this ends with one lease, under the first fence, and no other.
async fn with_a_fault<S: SlotStore>(stand: &Stand<S>, fault: Fault) -> Outcome {
    let before = stand.record(0).await?;
    let mut actor = stand.actor("a", 0);
    actor.fault(fault);
    let binding = actor.acquire().await?;
    same("slot", binding.slot, 0)?;
    same("fence", binding.fence, before.fence + 1)?;
    same("floor", binding.holding.floor, before.next_floor)?;
    for result in actor.line.arrive().await {
        holds("a write that arrives late is refused", result.is_err())?;
    }
    same("the stored lease", stand.record(0).await?.holding(), Some(&binding.holding))?;
    holds("the other slot is free", stand.record(1).await?.holding().is_none())
}

pub(super) async fn an_acquisition_whose_answer_was_lost_gets_the_same_lease<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    with_a_fault(&bench.pool(2).await?, Fault::Lose).await
}

pub(super) async fn an_acquisition_that_never_arrived_is_made_again<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    with_a_fault(&bench.pool(2).await?, Fault::Drop).await
}

pub(super) async fn an_acquisition_that_arrives_late_is_the_same_lease<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(2).await?;
    with_a_fault(&stand, Fault::Delay).await?;
    // And where it arrives before the next attempt, this finds it.
    let stand = bench.named("-b", 0, 2).await?;
    let mut actor = stand.actor("a", 0);
    actor.fault(Fault::Delay);
    actor.until_report("a failure", |report| matches!(report, Report::StoreFailed { .. })).await?;
    let arrived = actor.line.arrive().await;
    holds("the late write is done", matches!(arrived[..], [Ok(_)]))?;
    let binding = actor.acquire().await?;
    same("slot", binding.slot, 0)?;
    same("the stored lease", stand.record(0).await?.holding(), Some(&binding.holding))?;
    holds("the other slot is free", stand.record(1).await?.holding().is_none())
}

pub(super) async fn the_same_key_alive_elsewhere_gets_another_slot_and_a_report<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(2).await?;
    let first = stand.actor("a", 0).acquire().await?;
    let mut second = stand.actor("a", 1_000);
    same("the second's slot", second.acquire().await?.slot, 1)?;
    let duplicate = Report::DuplicateOwner { key: "a".into(), slot: first.slot, fence: first.fence };
    same("reports of a duplicate owner", second.count(|report| *report == duplicate), 1)?;
    same("the first's lease", stand.record(0).await?.holding(), Some(&first.holding))
}

async fn preferring<S: SlotStore>(stand: &Stand<S>, key: &str, slot: Slot, at: Millis) -> Outcome<Slot> {
    let preference = Preference::Prefer(slot);
    let config = KeeperConfig { preference, ..KeeperConfig::new(Owner::new(key)) };
    Ok(stand.starting(config, at).acquire().await?.slot)
}

pub(super) async fn the_preferred_slot_is_acquired_if_it_is_free<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(4).await?;
    same("slot", preferring(&stand, "a", 2, 0).await?, 2)?;
    same("an expired slot", preferring(&stand, "b", 2, EXPIRED).await?, 2)
}

pub(super) async fn the_preferred_slot_is_left_alone_if_it_is_held<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(4).await?;
    preferring(&stand, "a", 2, 0).await?;
    let before = stand.record(2).await?;
    same("slot", preferring(&stand, "b", 2, EXPIRED - 1).await?, 0)?;
    same("the preferred slot's record", stand.record(2).await?, before)
}

pub(super) async fn the_last_slot_of_the_same_key_is_acquired_if_it_is_free<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(4).await?;
    preferring(&stand, "expired", 3, 0).await?;
    let config = KeeperConfig { preference: Preference::Prefer(2), ..KeeperConfig::new(Owner::new("freed")) };
    let mut freed = stand.starting(config, 0);
    let floor = freed.acquire().await?.holding.floor;
    freed.stop(floor).await?;
    same("the slot it gave back", stand.actor("freed", 1_000).acquire().await?.slot, 2)?;
    same("the slot that expired", stand.actor("expired", EXPIRED + TERMS.tolerance).acquire().await?.slot, 3)
}

pub(super) async fn the_last_slot_of_the_same_key_is_left_alone_if_it_is_held<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(4).await?;
    preferring(&stand, "a", 2, 0).await?;
    same("the slot that expired", preferring(&stand, "b", 2, EXPIRED).await?, 2)?;
    let before = stand.record(2).await?;
    same("slot", stand.actor("a", EXPIRED + 1_000).acquire().await?.slot, 0)?;
    same("the other's record", stand.record(2).await?, before)
}

pub(super) async fn else_the_lowest_free_slot_is_acquired<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.named("", 5, 4).await?;
    for slot in 5..9 {
        let key = format!("owner-{slot}");
        same("slot", stand.actor(&key, 0).acquire().await?.slot, slot)?;
    }
    Ok(())
}

pub(super) async fn the_only_slot_wanted_is_waited_for<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(3).await?;
    preferring(&stand, "a", 1, 0).await?;
    let config = KeeperConfig { preference: Preference::Only(1), ..KeeperConfig::new(Owner::new("b")) };
    let mut actor = stand.starting(config, 1_000);
    let binding = actor.acquire().await?;
    same("slot", binding.slot, 1)?;
    holds("it waited for the expiry", binding.holding.acquired_at >= stand.time(EXPIRED))?;
    let pool = stand.load().await?.pool.name;
    let until = Some(stand.time(EXPIRED));
    let occupied = Report::Occupied { pool, slot: 1, holder: Some("a".into()), until };
    same("reports of the holder", actor.count(|report| *report == occupied), 1)
}

pub(super) async fn an_exhausted_pool_reports_its_size_and_the_earliest_expiry<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(2).await?;
    stand.actor("a", 3_000).acquire().await?;
    stand.actor("b", 2_000).acquire().await?;
    let mut third = stand.actor("c", 4_000);
    third.until_report("exhaustion", |report| matches!(report, Report::Exhausted { .. })).await?;
    let expiry = 2_000 + TERMS.ttl;
    let exhausted = Report::Exhausted {
        pool: stand.load().await?.pool.name,
        size: 2,
        earliest_expiry: Some(stand.time(expiry)),
        wait: Some(expiry - 4_000),
    };
    same("reports", &third.reports[..], &[exhausted][..])?;
    // It tries on, and gets the slot that expires first.
    let binding = third.acquire().await?;
    same("slot", binding.slot, 1)?;
    holds("it waited for the expiry", binding.holding.acquired_at >= stand.time(expiry))
}

pub(super) async fn the_ceiling_is_at_or_above_a_floor_far_ahead<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let far = stand.time(600_000);
    let entry = stand.entry(0).await?;
    let owner = Owner::new("a");
    let held = entry.state.record().and_then(|record| algebra::acquire(record, &owner, far, TERMS).ok());
    let held = held.ok_or("the new slot can't be acquired")?;
    let freed =
        algebra::release(&held, owner.incarnation, held.fence, far).map_err(|error| error.to_string())?;
    let version = stand.store.write(0, &entry.version, &held).await.map_err(|error| error.to_string())?;
    stand.store.write(0, &version, &freed).await.map_err(|error| error.to_string())?;
    let mut actor = stand.actor("b", 0);
    let holding = actor.acquire().await?.holding;
    same("floor", holding.floor, far)?;
    same("ceiling", holding.ceiling, far)?;
    same("the stored lease", stand.record(0).await?.holding(), Some(&holding))?;
    let waits = |report: &Report| matches!(report, Report::Acquired { floor_wait: 600_000, .. });
    actor.until_report("the wait for the floor", waits).await?;
    actor.renew().await?;
    holds("the ceiling stays at or above the floor", actor.ceiling >= far)
}
