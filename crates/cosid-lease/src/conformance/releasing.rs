//! Releasing: the exact last timestamp is handed on, by the holder and once.

use super::actor::{EXPIRED, Stand};
use super::line::Fault;
use super::{Bench, Fixture, Outcome, holds, same};
use crate::keeper::Binding;
use crate::{Millis, Owner, Report, SlotStore};

/// One owner acquires slot 0 and releases it with this as the last timestamp, which it makes of the window.
async fn release<S: SlotStore>(
    stand: &Stand<S>,
    last_issued: impl Fn(&Binding) -> Millis,
) -> Outcome<Binding> {
    let mut actor = stand.actor("a", 0);
    let binding = actor.acquire().await?;
    actor.stop(last_issued(&binding)).await?;
    let next_floor = stand.record(0).await?.next_floor;
    let released = Report::Released { slot: 0, next_floor };
    same("reports of the release", actor.count(|report| *report == released), 1)?;
    holds("its window is closed", actor.closed)?;
    Ok(binding)
}

pub(super) async fn a_release_hands_on_the_exact_last_timestamp<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    let last = stand.time(1_234);
    let binding = release(&stand, |_| last).await?;
    let record = stand.record(0).await?;
    same("the next floor", record.next_floor, last)?;
    same("the holder", record.holding(), None)?;
    same("the last key", record.last_key(), Some("a"))?;
    same("fence", record.fence, binding.fence + 1)
}

pub(super) async fn a_release_above_the_ceiling_is_clamped_to_it<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let binding = release(&stand, |binding| binding.holding.ceiling + 86_400_000).await?;
    same("the next floor", stand.record(0).await?.next_floor, binding.holding.ceiling)
}

pub(super) async fn a_release_below_the_floor_is_raised_to_it<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    // A first holder, so that the floor is above 0.
    release(&stand, |binding| binding.holding.ceiling).await?;
    let binding = release(&stand, |_| 0).await?;
    holds("the floor is above 0", binding.holding.floor > 0)?;
    same("the next floor", stand.record(0).await?.next_floor, binding.holding.floor)
}

/// Somebody who believes to have this lease, stopped at once, gives nothing back.
async fn gives_nothing_back<S: SlotStore>(stand: &Stand<S>, claim: &Binding, at: Millis) -> Outcome {
    let before = stand.record(0).await?;
    let mut actor = stand.resuming(claim, at);
    actor.stop(claim.holding.floor).await?;
    holds("its window is closed", actor.closed)?;
    same("the record", stand.record(0).await?, before)
}

pub(super) async fn a_release_under_another_fence_writes_nothing<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let held = stand.actor("a", 0).acquire().await?;
    for fence in [held.fence - 1, held.fence + 1] {
        gives_nothing_back(&stand, &Binding { fence, ..held.clone() }, 1_000).await?;
    }
    Ok(())
}

pub(super) async fn a_release_by_another_incarnation_writes_nothing<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut claim = stand.actor("a", 0).acquire().await?;
    claim.holding.owner = Owner::new("a");
    gives_nothing_back(&stand, &claim, 1_000).await
}

pub(super) async fn a_release_twice_is_harmless<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut actor = stand.actor("a", 0);
    let binding = actor.acquire().await?;
    // On the wire a second time, and by a second process that still believes to have it.
    actor.fault(Fault::Twice);
    actor.stop(stand.time(700)).await?;
    same("the next floor", stand.record(0).await?.next_floor, stand.time(700))?;
    gives_nothing_back(&stand, &binding, 1_000).await
}

pub(super) async fn a_release_whose_answer_was_lost_is_done_once<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut actor = stand.actor("a", 0);
    let binding = actor.acquire().await?;
    actor.fault(Fault::Lose);
    actor.stop(stand.time(700)).await?;
    let record = stand.record(0).await?;
    same("fence", record.fence, binding.fence + 1)?;
    same("the next floor", record.next_floor, stand.time(700))?;
    let released = Report::Released { slot: 0, next_floor: stand.time(700) };
    same("reports of the release", actor.count(|report| *report == released), 1)
}

pub(super) async fn a_release_that_arrives_after_a_takeover_writes_nothing<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let mut late = stand.actor("a", 0);
    let old = late.acquire().await?;
    for _ in 0..8 {
        late.fault(Fault::Delay);
    }
    late.stop(stand.time(700)).await?;
    same(
        "reports of giving up",
        late.count(|report| matches!(report, Report::ReleaseAbandoned { slot: 0 })),
        1,
    )?;
    let taker = stand.actor("b", EXPIRED).acquire().await?;
    holds("the taker's floor is at or above the ceiling", taker.holding.floor >= old.holding.ceiling)?;
    let before = stand.record(0).await?;
    let arrived = late.line.arrive().await;
    holds("some releases arrive late", !arrived.is_empty())?;
    holds("each of them is refused", arrived.iter().all(Result::is_err))?;
    same("the record", stand.record(0).await?, before)
}

pub(super) async fn the_next_holder_may_start_right_above_the_last_timestamp<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let last = stand.time(1_234);
    let first = release(&stand, |_| last).await?;
    let mut next = stand.actor("b", 2_000);
    let binding = next.acquire().await?;
    same("floor, the last timestamp that it may not use", binding.holding.floor, last)?;
    same("fence", binding.fence, first.fence + 2)?;
    let at_once = |report: &Report| matches!(report, Report::Acquired { floor_wait: 0, .. });
    next.until_report("the acquisition", at_once).await
}
