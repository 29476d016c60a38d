//! The API server as referee, on a real one: what it refuses, with which words, and what it lets pass.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy's leave for tests does not reach the functions that they share"
)]

mod court;
mod hostile;
mod lawful;
mod lives;
mod rules;
mod suite;

use cosid_tests::cases::{self, Case};
use cosid_tests::ground::Ground;

use hostile::{
    a_hostile_pod_gets_nowhere, who_has_no_pod_needs_the_verb_hold,
    who_lies_about_the_time_takes_a_slot_and_no_timestamp,
};
use lawful::agents_and_the_controller_live_a_whole_life;
use lives::{
    a_lease_that_goes_or_cant_be_read_is_left_alone,
    after_a_restore_holders_put_back_and_the_controller_lifts, only_the_controller_makes_and_deletes_leases,
    the_controller_itself_lowers_nothing,
};
use rules::each_bad_write_is_refused_and_told_why;
use suite::the_store_passes_every_case_of_the_suite;

#[test]
fn the_referee() {
    let cases: &[Case<Ground>] = cosid_tests::cases![
        each_bad_write_is_refused_and_told_why,
        the_controller_itself_lowers_nothing,
        after_a_restore_holders_put_back_and_the_controller_lifts,
        a_lease_that_goes_or_cant_be_read_is_left_alone,
        only_the_controller_makes_and_deletes_leases,
        a_hostile_pod_gets_nowhere,
        who_lies_about_the_time_takes_a_slot_and_no_timestamp,
        who_has_no_pod_needs_the_verb_hold,
        the_store_passes_every_case_of_the_suite,
        agents_and_the_controller_live_a_whole_life,
    ];
    cases::run(&Ground::refereed(), 2, cases);
}
