//! That the model finds faults in the words: each is put on in the shipped code (`docs/proof.md`), in a process of its own, and
//! the named test has to fail, and to say why.

use std::process::Command;
use std::time::Instant;

/// The fault, the test that finds it, and what it then says.
const FAULTS: [(&str, &str, &str); 14] = [
    ("takes_without_a_swap", "issue_against_issue_no_id_is_given_twice", "an ID came twice"),
    (
        "one_above_the_ceiling",
        "issue_against_ceiling_moves_nothing_is_above_the_largest",
        "above the ceiling",
    ),
    (
        "a_gate_open_above_the_ceiling",
        "additions_ahead_of_the_clock_against_each_other_nothing_is_above_the_ceiling",
        "above the ceiling",
    ),
    (
        "half_a_unit_at_the_floor",
        "issue_against_ceiling_moves_a_coarse_unit_is_owned_as_a_whole_or_not_at_all",
        "half a unit at the floor",
    ),
    (
        "half_a_unit_at_the_ceiling",
        "issue_against_ceiling_moves_a_coarse_unit_is_owned_as_a_whole_or_not_at_all",
        "half a unit at the ceiling",
    ),
    ("closing_leaves_the_state", "issue_against_close_what_close_says_is_final", "closed"),
    ("closing_leaves_the_state", "ceiling_moves_against_close_nothing_comes_back", "closed"),
    ("closes_by_load_and_store", "issue_against_close_what_close_says_is_final", "closed"),
    (
        "last_issued_is_the_tick_before",
        "issue_against_close_what_close_says_is_final",
        "what close said is not what was issued",
    ),
    ("adds_past_the_limit", "additions_against_close_what_close_says_is_final", "closed"),
    ("settles_for_any_number", "additions_against_close_what_close_says_is_final", "closed"),
    ("serves_a_run_without_a_look", "runs_against_close_what_close_says_is_final", "left: Ok"),
    ("opens_a_gate_out_of_use", "a_gate_that_went_out_of_use_is_not_opened_by_a_latecomer", "out of use"),
    ("the_tick_shuts_by_a_store", "the_tick_against_a_gate_that_goes_out_of_use_it_stays_so", "out of use"),
];

#[test]
fn each_seeded_fault_is_found_by_its_test() {
    let mut survived = Vec::new();
    for (fault, test, says) in FAULTS {
        let start = Instant::now();
        let mut run = Command::new(std::env::current_exe().unwrap());
        let output = run.args(["--exact", test]).env("COSID_BUG", fault).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // One that fails while threads are still at work is aborted.
        let found = !output.status.success() && said.contains("panicked at") && said.contains(says);
        println!(
            "{fault:<32} {} {test}, {:.2} s",
            if found { "found by" } else { "SURVIVED" },
            start.elapsed().as_secs_f64()
        );
        if !found {
            survived.push((fault, said));
        }
    }
    assert!(survived.is_empty(), "{survived:#?}");
}
