//! Pools and what they hold.

use std::collections::BTreeSet;

use super::{Bench, Fixture, Outcome, TERMS, holds, same};
use crate::keeper::PoolRefusal;
use crate::keeper::{Binding, Expect};
use crate::{KeeperConfig, Owner, PoolState, Report, Slot, SlotStore, algebra};

pub(super) async fn pools_are_isolated_from_each_other<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let one = bench.named("-one", 0, 2).await?;
    let other = bench.named("-other", 0, 2).await?;
    let untouched = other.record(0).await?;
    let mut first = one.actor("a", 0);
    first.acquire().await?;
    same("the other pool's record", other.record(0).await?, untouched)?;
    // The same key there: neither a duplicate nor in the way.
    let mut second = other.actor("a", 0);
    let binding = second.acquire().await?;
    same("slot", binding.slot, 0)?;
    same(
        "reports of a duplicate",
        second.count(|report| matches!(report, Report::DuplicateOwner { .. })),
        0,
    )?;
    first.stop(one.time(500)).await?;
    same("the other pool's lease", other.record(0).await?.holding(), Some(&binding.holding))
}

/// An owner that relies on this gets this refusal, and no slot.
async fn is_refused<F: Fixture>(
    bench: &Bench<'_, F>,
    expect: Expect,
    refusal: impl Fn(String) -> PoolRefusal,
) -> Outcome {
    let stand = bench.pool(1).await?;
    let before = stand.record(0).await?;
    let mut actor = stand.starting(KeeperConfig { expect, ..KeeperConfig::new(Owner::new("a")) }, 0);
    let timed_out = |report: &Report| matches!(report, Report::AcquireTimedOut { .. });
    actor.until_report("the acquire timeout", timed_out).await?;
    let refusal = Report::PoolRefused(refusal(stand.load().await?.pool.name));
    same("the first report", actor.reports.first(), Some(&refusal))?;
    holds("nothing was acquired", actor.binding.is_none())?;
    same("the record", stand.record(0).await?, before)
}

pub(super) async fn other_bits_are_refused<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let expect = Expect { bits: Some(12), tolerance: None };
    is_refused(bench, expect, |pool| PoolRefusal::OtherBits { pool, found: 10, expected: 12 }).await
}

pub(super) async fn another_tolerance_is_refused<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let expect = Expect { bits: Some(10), tolerance: Some(2_000) };
    let refusal = |pool| PoolRefusal::OtherTolerance { pool, found: TERMS.tolerance, expected: 2_000 };
    is_refused(bench, expect, refusal).await
}

pub(super) async fn a_delimiter_in_a_name_confuses_nothing<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    // Slot 1 of the first, slot 1 of the second: with `<pool>-<slot>` the second pool has the first's slot's name.
    let stands =
        [bench.named("", 0, 12).await?, bench.named("-1", 0, 2).await?, bench.named("-1-1", 0, 2).await?];
    let mut bindings: Vec<(usize, Binding)> = Vec::new();
    for (index, stand) in stands.iter().enumerate() {
        let slots: BTreeSet<Slot> = stand.load().await?.entries.iter().map(|entry| entry.slot).collect();
        same("the pool's slots", slots.len(), if index == 0 { 12 } else { 2 })?;
        for key in ["a-1", "a/1-1"] {
            bindings.push((index, stand.actor(key, 0).acquire().await?));
        }
    }
    for (index, binding) in bindings {
        let record = stands[index].record(binding.slot).await?;
        same("the stored lease", record.holding(), Some(&binding.holding))?;
    }
    Ok(())
}

pub(super) async fn a_pool_shows_its_terms_and_exactly_its_slots<F: Fixture>(
    bench: &Bench<'_, F>,
) -> Outcome {
    let stand = bench.named("", 3, 4).await?;
    let view = stand.load().await?;
    let pool = view.pool;
    same("first and last", (pool.first, pool.last), (3, 6))?;
    same("bits and terms", (pool.bits, pool.terms), (10, TERMS))?;
    same("state", pool.state, PoolState::Ready)?;
    let mut slots: Vec<Slot> = view.entries.iter().map(|entry| entry.slot).collect();
    slots.sort_unstable();
    same("slots", slots, (3..=6).collect())?;
    for slot in [2, 7] {
        let found = stand.store.read(slot).await.map_err(|error| error.to_string())?;
        holds("a slot outside the pool is not there", found.is_none())?;
    }
    Ok(())
}

pub(super) async fn a_record_reads_back_as_it_was_written<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    let owner = Owner::new("a namespace/a pod: \"quoted\", ünïcode");
    let mut expected = stand.record(0).await?;
    let mut version = stand.entry(0).await?.version;
    for turn in 0..4 {
        // Odd milliseconds: what is kept in seconds or microseconds must lose none.
        let now = stand.time(1_001 + 7 * turn);
        expected = match turn {
            0 => algebra::acquire(&expected, &owner, now, TERMS).map_err(|error| error.to_string())?,
            3 => algebra::release(&expected, owner.incarnation, expected.fence, now)
                .map_err(|error| error.to_string())?,
            _ => algebra::renew(&expected, owner.incarnation, expected.fence, now, TERMS)
                .map_err(|error| error.to_string())?,
        };
        version = stand.store.write(0, &version, &expected).await.map_err(|error| error.to_string())?;
        same("the record read", stand.record(0).await?, expected.clone())?;
        let view = stand.load().await?;
        let loaded = view.entries.first().and_then(|entry| entry.state.record());
        same("the record loaded", loaded, Some(&expected))?;
    }
    Ok(())
}

pub(super) async fn the_clock_is_known_after_an_answer<F: Fixture>(bench: &Bench<'_, F>) -> Outcome {
    let stand = bench.pool(1).await?;
    stand.load().await?;
    let now = stand.store.now().ok_or("the store's clock is unknown after an answer")?;
    holds("its earliest is at or before its latest", now.earliest <= now.latest)?;
    holds("it is known to two seconds", now.latest - now.earliest <= 2_000)
}
