//! Seeded bugs: faults of a line each in the shipped code, which the proof has to find. Each stands where it would be made,
//! behind a question that is a constant `no` in every build but this one.

use std::time::{Duration, Instant};

use crate::model::configurations::explore;
use crate::{files, sim};

/// The most seeds that the simulator gets for one.
const MOST_SEEDS: u64 = 2_000;

/// Who has to find a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The simulator.
    Sim,
    /// The model checker, in a configuration with this in its name.
    Model(&'static str),
    /// Both.
    Both(&'static str),
    /// What is done to an agent's directory: neither of the two has files.
    Files,
}

/// One fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bug {
    pub(crate) name: &'static str,
    pub(crate) by: By,
    /// A seed that is known to show it, which is tried before all others: it only saves time.
    pub(crate) seed: u64,
}

/// How one was found, or that it was not.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) by: &'static str,
    pub(crate) took: Duration,
    pub(crate) what: Option<String>,
}

const fn bug(name: &'static str, by: By) -> Bug {
    Bug { name, by, seed: 0 }
}

/// All of them, from the algebra outwards.
pub(crate) const ALL: &[Bug] = &[
    bug("floor_from_the_clock", By::Both("owners: two, one slot, a network")),
    bug("next_floor_at_the_expiry", By::Both("owners: two, one slot, a network")),
    bug("renewal_leaves_next_floor", By::Both("owners: two, one slot, a network")),
    bug("fence_stays_at_a_takeover", By::Both("owners: two, one slot, a network")),
    bug("no_fence_check", By::Both("owners: two, one slot, told to end")),
    bug("release_below_the_floor", By::Both("owners: two, one slot, told to end")).tried_with(51),
    bug("held_by_key", By::Both("owners: two of one key")),
    bug("extends_before_the_answer", By::Both("owners: two, one slot, a network")),
    bug("same_incarnation_after_a_loss", By::Model("edited to nonsense")),
    bug("a_conflict_is_never_a_loss", By::Both("owners: two, one slot, a network")),
    bug("release_forgets_what_was_issued", By::Both("owners: two, one slot, told to end")),
    bug("renews_a_lease_being_deleted", By::Sim),
    bug("a_shut_lease_counts_as_open", By::Both("controllers: one, a Lease")),
    bug("write_without_resource_version", By::Sim),
    bug("pod_uid_left_out", By::Sim),
    bug("opened_with_the_watermark_read_before", By::Both("controllers: two, a Lease")).tried_with(397),
    bug("finalizer_off_before_the_merge", By::Both("controllers: one, a Lease")),
    bug("finalizer_off_without_cas", By::Model("stubborn")),
    bug("watermark_kept_after_the_pool_is_gone", By::Both("controllers: one, the pool")),
    bug("buried_with_leases_left", By::Model("watches apart")),
    bug("a_new_pool_begins_at_zero", By::Both("controllers: one, the pool")),
    bug("kept_read_before_the_pool", By::Model("controllers: two, the pool")),
    bug("watermark_forgets_the_fence", By::Both("controllers: one, a Lease")),
    bug("watermark_from_the_floor", By::Both("controllers: one, a Lease")),
    bug("evicts_the_living", By::Both("controllers: one, the pool")),
    bug("deletes_what_it_has_not_seen", By::Both("controllers: one, the pool")),
    bug("half_a_unit_at_the_floor", By::Sim),
    bug("half_a_unit_at_the_ceiling", By::Sim),
    bug("one_above_the_ceiling", By::Sim),
    bug("closing_leaves_the_state", By::Sim),
    bug("last_issued_is_the_tick_before", By::Sim),
    bug("reopens_a_closed_page", By::Files),
    bug("resumes_after_another_boot", By::Files),
    bug("resumes_from_a_copy", By::Files),
];

impl Bug {
    const fn tried_with(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Puts the fault on and has those who must find it look for it. Blocks.
    pub(crate) fn look(&self) -> Vec<Found> {
        cosid_proof_switch::set_bug(Some(self.name));
        let found = match self.by {
            By::Sim => vec![self.by_simulation()],
            By::Model(only) => vec![by_model(only)],
            By::Both(only) => vec![by_model(only), self.by_simulation()],
            By::Files => vec![by_files()],
        };
        cosid_proof_switch::set_bug(None);
        found
    }

    fn by_simulation(&self) -> Found {
        let start = Instant::now();
        let run = |from, seeds| sim::run_range(from, seeds, None, true).failed.into_iter().next();
        let what = run(self.seed, 1).or_else(|| run(0, MOST_SEEDS));
        let what = what.map(|(seed, what)| format!("seed {seed}: {what}"));
        Found { by: "simulator", took: start.elapsed(), what }
    }
}

fn by_model(only: &'static str) -> Found {
    let start = Instant::now();
    let explored = explore(only, true, |_| {});
    let failure = explored.into_iter().filter_map(|explored| explored.failure).next();
    let what = failure.map(|(text, steps)| format!("{} steps: {text}", steps.len()));
    Found { by: "model", took: start.elapsed(), what }
}

fn by_files() -> Found {
    let start = Instant::now();
    let found = files::gone_on_with();
    let what = found.ok().flatten().map(|what| format!("an agent goes on with {what}"));
    Found { by: "files", took: start.elapsed(), what }
}
