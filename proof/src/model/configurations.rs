//! The configurations that are explored to their end: each bounded in what may go wrong, and together in all of it.

use std::time::{Duration, Instant};

use stateright::{Checker as _, Model, Property};

use super::{agents, controllers};

/// The longest that one takes, on any machine; one that is cut off by it counts as failed.
const LONGEST: Duration = Duration::from_secs(600);

/// What came of one.
#[derive(Clone, Debug)]
pub(crate) struct Explored {
    pub(crate) name: &'static str,
    /// Different states, and how many steps the longest history has.
    pub(crate) states: usize,
    pub(crate) depth: usize,
    pub(crate) took: Duration,
    /// What was found: the promise that was broken, and the steps to it.
    pub(crate) failure: Option<(String, Vec<String>)>,
}

/// All configurations, or those with `only` in their name, one after the other; `tell` hears of each. With `first` it
/// ends at the first failure. Blocks.
pub(crate) fn explore(only: &str, first: bool, mut tell: impl FnMut(&Explored)) -> Vec<Explored> {
    let mut all: Vec<Explored> = Vec::new();
    let wanted = |name: &str| name.contains(only);
    let over = |all: &[Explored]| first && all.iter().any(|explored| explored.failure.is_some());
    for bounds in controllers().into_iter().filter(|bounds| wanted(bounds.name)) {
        if !over(&all) {
            all.push(check(bounds.name, bounds, |state| state.broken.clone()));
            all.last().into_iter().for_each(&mut tell);
        }
    }
    for bounds in agents().into_iter().filter(|bounds| wanted(bounds.name)) {
        if !over(&all) {
            all.push(check(bounds.name, bounds, |state| state.broken.clone()));
            all.last().into_iter().for_each(&mut tell);
        }
    }
    all
}

fn check<M>(name: &'static str, model: M, broken: fn(&M::State) -> Option<String>) -> Explored
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Send + Sync + std::fmt::Debug + std::hash::Hash + PartialEq + 'static,
    M::Action: Clone + Send + Sync + PartialEq + std::fmt::Debug + 'static,
{
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let properties = model.properties();
    let failures: Vec<&'static str> = properties
        .iter()
        .filter(|property: &&Property<M>| property.expectation.discovery_is_failure())
        .map(|property| property.name)
        .collect();
    let reached = properties
        .iter()
        .filter(|property| !property.expectation.discovery_is_failure())
        .map(|property| property.name);
    let reached: Vec<&'static str> = reached.collect();
    let any = stateright::HasDiscoveries::AnyFailures;
    let checker = model.checker().threads(threads).finish_when(any).timeout(LONGEST).spawn_bfs().join();
    let found = checker.discoveries();
    let failure = found.iter().find(|(name, _)| failures.contains(name)).map(|(property, path)| {
        let steps = path.clone().into_actions().iter().map(|step| format!("{step:?}")).collect();
        let text = broken(path.last_state()).unwrap_or_else(|| format!("not so: {property}"));
        (text, steps)
    });
    let unseen = reached.iter().find(|name| !found.contains_key(*name));
    let failure = failure.or_else(|| unseen.map(|name| (format!("never reached: {name}"), Vec::new())));
    let cut =
        (start.elapsed() >= LONGEST).then(|| ("cut off: not explored to its end".to_owned(), Vec::new()));
    Explored {
        name,
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: start.elapsed(),
        failure: failure.or(cut),
    }
}

/// See [`super::controllers`].
fn controllers() -> Vec<controllers::Bounds> {
    use controllers::{Bounds, Budget};
    let none = Budget::default();
    let bounds = |name: &'static str, slots, controllers, budget| Bounds {
        name,
        slots,
        controllers,
        stubborn: name.contains("stubborn"),
        budget,
        rerun: Default::default(),
    };
    vec![
        bounds(
            "controllers: one, a Lease deleted under its holder",
            1,
            1,
            Budget {
                reconciliations: 4,
                acquisitions: 2,
                renewals: 1,
                lease_deletions: 1,
                passes: 1,
                ..none
            },
        ),
        bounds(
            "controllers: two, a Lease deleted",
            1,
            2,
            Budget { reconciliations: 3, acquisitions: 2, lease_deletions: 1, ..none },
        ),
        bounds(
            "controllers: one, a Lease deleted under a stubborn holder",
            1,
            1,
            Budget { reconciliations: 3, acquisitions: 2, renewals: 1, lease_deletions: 1, ..none },
        ),
        bounds(
            "controllers: one, the pool deleted, the watches apart",
            1,
            1,
            Budget { reconciliations: 4, acquisitions: 1, pool_deletions: 1, blind: 1, ..none },
        ),
        bounds(
            "controllers: one, two slots, a Lease deleted",
            2,
            1,
            Budget { reconciliations: 3, acquisitions: 2, renewals: 1, lease_deletions: 1, ..none },
        ),
        bounds(
            "controllers: one, the pool deleted and made again",
            1,
            1,
            Budget { reconciliations: 6, acquisitions: 2, renewals: 1, pool_deletions: 1, passes: 1, ..none },
        ),
        bounds(
            "controllers: two, the pool deleted and made again",
            1,
            2,
            Budget { reconciliations: 5, acquisitions: 1, pool_deletions: 1, ..none },
        ),
    ]
}

/// See [`super::agents`].
fn agents() -> Vec<agents::Bounds> {
    use agents::{Bounds, Budget};
    let none = Budget::default();
    let bounds = |name, slots, keys, budget| Bounds { name, slots, keys, budget };
    let (two, three): (&[&str], &[&str]) = (&["a", "b"], &["a", "b", "c"]);
    vec![
        bounds(
            "owners: two, one slot, a network that loses, delays and repeats",
            1,
            two,
            Budget { timeouts: 1, repeats: 1, passes: 2, ..none },
        ),
        bounds(
            "owners: two, one slot, killed with and without state",
            1,
            two,
            Budget { crashes: 1, timeouts: 1, passes: 2, ..none },
        ),
        bounds(
            "owners: two, one slot, told to end",
            1,
            two,
            Budget { stops: 1, timeouts: 1, passes: 2, ..none },
        ),
        bounds("owners: two, one slot, clocks that jump", 1, two, Budget { jumps: 2, passes: 2, ..none }),
        bounds(
            "owners: two, one slot, its Lease deleted",
            1,
            two,
            Budget { deletions: 1, passes: 2, ..none },
        ),
        bounds(
            "owners: two, one slot, its Lease edited to nonsense and mended",
            1,
            two,
            Budget { edits: 1, passes: 2, ..none },
        ),
        bounds("owners: two of one key, two slots", 2, &["a", "a"], Budget { crashes: 1, passes: 2, ..none }),
        bounds("owners: three, two slots", 2, three, Budget { passes: 1, ..none }),
        bounds("owners: three, one slot", 1, three, Budget { passes: 1, ..none }),
        bounds("owners: three, three slots", 3, three, Budget { timeouts: 1, passes: 1, ..none }),
    ]
}
