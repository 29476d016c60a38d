//! The simulator: the product's own keepers, drivers, stores, pages and reconcilers against a model of an API server, on
//! virtual time, with everything that goes wrong decided by a seed. The same seed is the same history, to the millisecond.

mod checker;
mod controllers;
mod faults;
mod network;
mod operator;
mod pods;
mod random;
mod referee;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cosid_kube::codec;
use cosid_lease::Millis;
use tokio::time::sleep;

use checker::Violation;
use pods::Pod;
use world::World;

/// How long faults happen, virtual ms.
const STORMY: u64 = 240_000;
/// Lines of the trace that are shown.
const SHOWN: usize = 60;

/// What came of one seed.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) ids: u64,
    pub(crate) calls: u64,
    pub(crate) simulated: Duration,
    pub(crate) failure: Option<String>,
    pub(crate) trace: Vec<String>,
}

/// What came of many.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) seeds: u64,
    pub(crate) ids: u64,
    pub(crate) calls: u64,
    pub(crate) simulated: Duration,
    pub(crate) failed: Vec<(u64, String)>,
}

/// Runs one seed; with `traced` it keeps what happened. Blocks.
pub(crate) fn run(seed: u64, traced: bool) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(history(seed, traced)),
        Err(error) => Run {
            ids: 0,
            calls: 0,
            simulated: Duration::ZERO,
            failure: Some(format!("no runtime: {error}")),
            trace: Vec::new(),
        },
    }
}

/// Runs many seeds on all cores, until one fails, `until` passes, or `stop_at_first` is not wanted. Blocks.
pub(crate) fn run_range(from: u64, seeds: u64, within: Option<Duration>, stop_at_first: bool) -> Sum {
    let start = Instant::now();
    let next = AtomicU64::new(from);
    let end = AtomicBool::new(false);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut sum = Sum::default();
        loop {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            let over = within.is_some_and(|within| start.elapsed() > within);
            if seed >= from + seeds || over || end.load(Ordering::SeqCst) {
                return sum;
            }
            let run = run(seed, false);
            sum.seeds += 1;
            sum.ids += run.ids;
            sum.calls += run.calls;
            sum.simulated += run.simulated;
            if let Some(failure) = run.failure {
                sum.failed.push((seed, failure));
                end.fetch_or(stop_at_first, Ordering::SeqCst);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let mut all = Sum::default();
        for worker in workers {
            let Ok(sum) = worker.join() else {
                all.failed.push((next.load(Ordering::SeqCst), "a worker panicked".into()));
                continue;
            };
            all.seeds += sum.seeds;
            all.ids += sum.ids;
            all.calls += sum.calls;
            all.simulated += sum.simulated;
            all.failed.extend(sum.failed);
        }
        all.failed.sort();
        all
    })
}

async fn history(seed: u64, traced: bool) -> Run {
    let world = World::new(seed, traced);
    let setting = world.setting();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(operator::run(world.clone()));
    for number in 0..setting.controllers {
        tasks.spawn(controllers::run(world.clone(), number));
    }
    let holds: Vec<Arc<AtomicBool>> = (0..setting.agents).map(|_| Arc::default()).collect();
    for (number, holds) in holds.iter().enumerate() {
        match Pod::new(&world, number, Arc::clone(holds)) {
            Ok(pod) => drop(tasks.spawn(pod.live())),
            Err(error) => world.check(Err(Violation { slot: None, text: format!("no volume: {error}") })),
        }
    }
    while world::mono() < STORMY && world.failure().is_none() {
        sleep(Duration::from_millis(500)).await;
    }
    if world.failure().is_none() {
        settle(&world, &holds).await;
    }
    tasks.abort_all();
    let failure = world.failure();
    let slot = failure.as_ref().and_then(|failure| failure.slot);
    let inner = world.lock();
    let (ids, calls) = (inner.checker.ids(), inner.calls);
    drop(inner);
    Run {
        ids,
        calls,
        simulated: Duration::from_millis(world::mono()),
        failure: failure.map(|failure| match failure.slot {
            Some(slot) => format!("slot {slot}: {}", failure.text),
            None => failure.text,
        }),
        trace: world.trace(slot, SHOWN),
    }
}

/// Nothing goes wrong any more: then, once what is left of earlier holders has expired, whoever can get a slot has one.
async fn settle(world: &World, holds: &[Arc<AtomicBool>]) {
    world.lock().calm = true;
    world.say(None, || "calm: nothing goes wrong from now on".into());
    let setting = world.setting();
    let slots = usize::try_from(setting.slots).unwrap_or(0);
    let ttl = u64::try_from(setting.ttl_seconds).unwrap_or(0) * 1_000;
    let holding = || holds.iter().filter(|holds| holds.load(Ordering::SeqCst)).count();
    let wanted = slots.min(holds.len());
    // A pool that is on its way has to go and come again first, and requests from before to arrive.
    let patience = |world: &World| longest_lease(world) + 10 * ttl + 120_000;
    let mut until = world::mono() + patience(world);
    while holding() < wanted {
        sleep(Duration::from_millis(500)).await;
        if world.lock().drained {
            until = world::mono() + patience(world);
        }
        if world::mono() > until {
            let text =
                format!("{} of {wanted} slots are held, long after nothing goes wrong any more", holding());
            return world.check(Err(Violation { slot: None, text }));
        }
        if world.failure().is_some() {
            return;
        }
    }
}

/// How long the last of all leases lasts, ms.
fn longest_lease(world: &World) -> u64 {
    let now: Millis = world.store_now();
    let inner = world.lock();
    let records = inner.leases().filter_map(|lease| codec::read(lease).ok().flatten());
    let ends = records.filter_map(|record| record.holding().map(|holding| holding.expires_at));
    ends.map(|end| end.saturating_sub(now)).max().unwrap_or(0)
}
