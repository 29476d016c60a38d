//! What every store must pass.
//!
//! The suite drives the [`Keeper`](crate::Keeper) against the store, as an agent does, but in time of its own: it never
//! sleeps. Answers get lost, requests get dropped, done later or done twice between the keeper and the store.
//!
//! ```
//! use cosid_lease::conformance::{self, Fixture, PoolSpec};
//! use cosid_lease::{StoreTime, memory::MemoryStore};
//!
//! struct Memory;
//!
//! impl Fixture for Memory {
//!     type Store = MemoryStore;
//!
//!     async fn pool(&self, spec: &PoolSpec) -> Result<MemoryStore, String> {
//!         let now = StoreTime { earliest: 1_700_000_000_000, latest: 1_700_000_000_999 };
//!         Ok(MemoryStore::new(spec.pool(&format!("test/{}", spec.name)), move || now))
//!     }
//! }
//!
//! let passed = pollster::block_on(conformance::run(&Memory)).unwrap();
//! assert_eq!(passed, conformance::CASES);
//! ```

mod acquiring;
mod actor;
mod contending;
mod line;
mod pools;
mod releasing;
mod renewing;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;

use thiserror::Error;

use crate::{Pool, PoolState, Slot, SlotStore, Terms};
use actor::Stand;

/// Makes the stores that the suite runs on.
pub trait Fixture {
    /// The store.
    type Store: SlotStore;

    /// Makes a new pool, and gives a store of it. The pool is ready, all its slots are open and nobody has ever held
    /// one. Names are unique in one run; a fixture may put something in front of them, the same for all.
    fn pool(&self, spec: &PoolSpec) -> impl Future<Output = Result<Self::Store, String>>;
}

/// A pool that a case needs. Its ttl and tolerance are whole seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Its name: lower-case letters, digits and `-`.
    pub name: String,
    /// The width of the slot field.
    pub bits: u8,
    /// Its first slot.
    pub first: Slot,
    /// Its last slot.
    pub last: Slot,
    /// How its slots are leased.
    pub terms: Terms,
}

impl PoolSpec {
    /// The pool as the store must show it, under the name that messages use.
    #[must_use]
    pub fn pool(&self, name: &str) -> Pool {
        Pool {
            name: name.into(),
            bits: self.bits,
            first: self.first,
            last: self.last,
            withheld: BTreeSet::new(),
            terms: self.terms,
            state: PoolState::Ready,
            barrier: 0,
        }
    }
}

/// A case that the store does not pass.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the store does not pass `{case}`: {why}")]
pub struct Failure {
    /// Which.
    pub case: &'static str,
    /// What was found, and what was to be.
    pub why: String,
}

/// What a case gives: nothing, or what was found instead of what was to be.
type Outcome<T = ()> = Result<T, String>;

const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };

/// What a case gets: pools of its own.
struct Bench<'f, F> {
    fixture: &'f F,
    number: usize,
}

impl<F: Fixture> Bench<'_, F> {
    /// A pool of this many slots, from 0.
    async fn pool(&self, slots: Slot) -> Outcome<Stand<F::Store>> {
        self.named("", 0, slots).await
    }

    /// A pool with this at the end of its name, its first slot, and how many it has.
    async fn named(&self, suffix: &str, first: Slot, slots: Slot) -> Outcome<Stand<F::Store>> {
        let name = format!("case-{:02}{suffix}", self.number);
        let spec = PoolSpec { name, bits: 10, first, last: first + slots - 1, terms: TERMS };
        Stand::new(self.fixture.pool(&spec).await?).await
    }
}

macro_rules! cases {
    ($($module:ident: $($case:ident),+;)+) => {
        /// The names of all cases, in the order they are run in.
        pub const CASES: &[&str] = &[$($(stringify!($case)),+),+];

        /// Runs all cases, and gives the names of those passed.
        ///
        /// # Errors
        /// The first case that is not passed.
        pub async fn run<F: Fixture>(fixture: &F) -> Result<Vec<&'static str>, Failure> {
            let mut passed = Vec::new();
            $($(
                let bench = Bench { fixture, number: passed.len() };
                let case = stringify!($case);
                Box::pin($module::$case(&bench)).await.map_err(|why| Failure { case, why })?;
                passed.push(case);
            )+)+
            Ok(passed)
        }
    };
}

cases! {
    acquiring:
        a_free_slot_is_acquired_with_a_window_above_all_before,
        an_expired_slot_is_acquired_at_the_millisecond_of_its_expiry,
        a_live_slot_is_refused,
        the_same_owner_again_gets_the_same_lease,
        an_acquisition_whose_answer_was_lost_gets_the_same_lease,
        an_acquisition_that_never_arrived_is_made_again,
        an_acquisition_that_arrives_late_is_the_same_lease,
        the_same_key_alive_elsewhere_gets_another_slot_and_a_report,
        the_preferred_slot_is_acquired_if_it_is_free,
        the_preferred_slot_is_left_alone_if_it_is_held,
        the_last_slot_of_the_same_key_is_acquired_if_it_is_free,
        the_last_slot_of_the_same_key_is_left_alone_if_it_is_held,
        else_the_lowest_free_slot_is_acquired,
        the_only_slot_wanted_is_waited_for,
        an_exhausted_pool_reports_its_size_and_the_earliest_expiry,
        the_ceiling_is_at_or_above_a_floor_far_ahead;
    contending:
        concurrent_acquirers_of_all_slots_get_a_permutation,
        concurrent_acquirers_of_one_slot_get_one_holder,
        a_write_at_an_old_version_writes_nothing,
        the_fence_grows_by_one_at_each_acquisition,
        the_floor_is_at_or_above_every_ceiling_acknowledged,
        an_acquisition_that_arrives_after_another_writes_nothing;
    renewing:
        a_renewal_moves_expiry_ceiling_and_next_floor_on,
        a_renewal_with_the_store_clock_stepped_back_lowers_nothing,
        a_renewal_leaves_fence_floor_and_owner,
        a_replayed_renewal_succeeds,
        a_renewal_by_another_incarnation_writes_nothing,
        a_renewal_under_another_fence_writes_nothing,
        a_renewal_after_a_takeover_is_refused_and_the_slot_lost,
        a_conflict_with_oneself_still_in_place_is_a_retry_and_no_loss,
        an_unknown_outcome_keeps_the_old_ceiling_until_read_back,
        a_renewal_that_never_arrived_is_made_again,
        a_renewal_that_arrives_late_lowers_nothing,
        a_renewal_after_the_expiry_succeeds_while_nobody_took_the_slot,
        a_restarted_owner_resumes_its_lease;
    releasing:
        a_release_hands_on_the_exact_last_timestamp,
        a_release_above_the_ceiling_is_clamped_to_it,
        a_release_below_the_floor_is_raised_to_it,
        a_release_under_another_fence_writes_nothing,
        a_release_by_another_incarnation_writes_nothing,
        a_release_twice_is_harmless,
        a_release_whose_answer_was_lost_is_done_once,
        a_release_that_arrives_after_a_takeover_writes_nothing,
        the_next_holder_may_start_right_above_the_last_timestamp;
    pools:
        pools_are_isolated_from_each_other,
        other_bits_are_refused,
        another_tolerance_is_refused,
        a_delimiter_in_a_name_confuses_nothing,
        a_pool_shows_its_terms_and_exactly_its_slots,
        a_record_reads_back_as_it_was_written,
        the_clock_is_known_after_an_answer;
}

/// What was found is what was to be.
fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

/// What holds, or is said.
fn holds(what: &str, condition: bool) -> Outcome {
    if condition { Ok(()) } else { Err(format!("it does not hold that {what}")) }
}
