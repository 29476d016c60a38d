//! A judge that finds nothing is worth nothing: each fault is put into evidence that is clean without it.

use super::*;
use crate::drill::history::Change;
use crate::drill::plan::Plan;

const EPOCH: u64 = Layout::MILLISECOND.epoch_ms();
const MS: u64 = 1_000_000;

/// IDs of one millisecond.
fn run(at_ms: u64, time: u64, sequence: u32, count: u32, binding: Binding) -> Run {
    let first = Layout::MILLISECOND.compose(EPOCH + time, binding.slot, sequence).unwrap().get();
    Run { at_ns: at_ms * MS, first, step: 1, count, before: binding, after: binding }
}

/// A sign of life.
fn sign(at_ms: u64) -> Run {
    Run { at_ns: at_ms * MS, ..Run::default() }
}

fn held(slot: u32, fence: u32, floor: u64, ceiling: u64) -> Change {
    let window = Some((EPOCH + floor, EPOCH + ceiling));
    Change { slot, fence, window, next_floor: EPOCH + ceiling, after_a_hole: false }
}

const FIRST: Binding = Binding { slot: 3, fence: 1 };
const SECOND: Binding = Binding { slot: 3, fence: 3 };

/// Two holders of one slot, one after the other, and nothing wrong.
fn clean() -> Evidence {
    let life = Life { promised_ms: 500, ..Life::default() };
    let plan = Plan {
        name: "seeded".into(),
        layout: Layout::MILLISECOND,
        lives: [("a".to_owned(), life), ("b".to_owned(), life)].into(),
        healed: vec![120 * MS],
        slots: [(3, SlotState::Held { fence: 3 }), (4, SlotState::Free)].into(),
        living: vec![SECOND],
        given_up: vec![],
    };
    let lives = [
        ("a".to_owned(), vec![sign(0), run(10, 100, 0, 50, FIRST), run(20, 101, 0, 50, FIRST), sign(30)]),
        (
            "b".to_owned(),
            vec![sign(100), run(150, 201, 0, 4096, SECOND), run(160, 202, 7, 10, SECOND), sign(170)],
        ),
    ];
    let history = vec![held(3, 1, 0, 200), held(3, 3, 200, 300)];
    Evidence { plan, history, lives: lives.into() }
}

/// What is found after something has been done to clean evidence.
fn found(seed: impl FnOnce(&mut Evidence)) -> Verdict {
    let mut evidence = clean();
    seed(&mut evidence);
    check(&evidence)
}

fn life<'e>(evidence: &'e mut Evidence, name: &str) -> &'e mut Vec<Run> {
    evidence.lives.get_mut(name).unwrap()
}

#[test]
fn what_is_clean_is_clean() {
    let verdict = check(&clean());
    assert!(verdict.is_clean(), "{verdict:?}");
    assert_eq!((verdict.ids, verdict.longest_stall_ms, verdict.recovery_ms), (4206, 50, Some(30)));
    let words = "4206 IDs, 0 equal, 0 outside their window, 0 gaps longer than promised, 0 slots leaked; longest \
                 stall 50 ms; recovery 30 ms";
    assert_eq!(verdict.to_string(), words);
}

#[test]
fn nothing_at_all_is_not_clean() {
    assert!(
        !found(|evidence| evidence.lives.values_mut().for_each(|runs| runs.retain(|run| run.count == 0)))
            .is_clean()
    );
}

#[test]
fn equal_ids_are_found_within_a_life_and_between_two_each_counted_once() {
    let twice = found(|evidence| life(evidence, "a").insert(2, run(15, 100, 49, 1, FIRST)));
    assert_eq!((twice.equal, twice.ids, twice.is_clean()), (1, 4207, false));
    let within = found(|evidence| life(evidence, "b").insert(2, run(155, 201, 1000, 10, SECOND)));
    assert_eq!(within.equal, 10);
    // A long run hides none that comes after a short one within it.
    let behind = found(|evidence| {
        life(evidence, "b").insert(2, run(155, 201, 5, 1, SECOND));
        life(evidence, "a").insert(2, run(15, 201, 4000, 96, SECOND));
    });
    assert_eq!(behind.equal, 97);
}

#[test]
fn an_id_at_the_floor_or_above_the_ceiling_is_found() {
    let at_ceiling = found(|evidence| life(evidence, "a").insert(3, run(25, 200, 0, 5, FIRST)));
    assert!(at_ceiling.is_clean(), "{at_ceiling:?}");
    let above = found(|evidence| life(evidence, "a").insert(3, run(25, 203, 0, 5, FIRST)));
    assert_eq!((above.outside, above.equal), (5, 0));
    let at_floor = found(|evidence| life(evidence, "b").insert(2, run(155, 200, 0, 5, SECOND)));
    assert_eq!(at_floor.outside, 5);
}

#[test]
fn an_id_of_another_slot_than_its_maker_believed_is_found() {
    let other = Binding { slot: 4, fence: 1 };
    let verdict = found(|evidence| {
        life(evidence, "a").insert(3, Run { before: FIRST, after: FIRST, ..run(25, 120, 0, 2, other) });
    });
    assert_eq!(verdict.outside, 2);
    assert!(verdict.told[0].contains("they are of slot 4"), "{verdict:?}");
    // Where the generator moved meanwhile, either will do.
    let moved = found(|evidence| {
        life(evidence, "b").insert(1, Run { before: FIRST, after: SECOND, ..run(140, 205, 0, 2, SECOND) });
    });
    assert!(moved.is_clean(), "{moved:?}");
}

#[test]
fn a_fence_that_nobody_ever_held_is_found() {
    let verdict = found(|evidence| {
        life(evidence, "a").insert(3, run(25, 120, 0, 2, Binding { slot: 3, fence: 2 }));
    });
    assert_eq!(verdict.outside, 2);
    assert!(verdict.told[0].contains("nobody held slot 3 under fence 2"), "{verdict:?}");
}

#[test]
fn an_id_above_the_next_holders_floor_is_found_even_if_its_own_window_has_room() {
    // What a release hands on is below its ceiling: the next floor is the last ID that was told.
    let verdict = found(|evidence| {
        evidence.history[1] = held(3, 3, 150, 300);
        life(evidence, "a").insert(3, run(25, 160, 0, 3, FIRST));
    });
    assert_eq!((verdict.outside, verdict.equal), (3, 0));
    assert!(verdict.told[0].contains("the floor of who had it next"), "{verdict:?}");
}

#[test]
fn a_gap_longer_than_promised_is_found_in_the_middle_and_at_either_end() {
    for (at, moved) in [(2, 700), (3, 600)] {
        let verdict =
            found(|evidence| life(evidence, "a")[at..].iter_mut().for_each(|run| run.at_ns += moved * MS));
        assert_eq!((verdict.long_gaps, verdict.is_clean()), (1, false), "{verdict:?}");
        assert!(verdict.longest_stall_ms > 600);
    }
    let late = found(|evidence| life(evidence, "b")[1..].iter_mut().for_each(|run| run.at_ns += 500 * MS));
    assert_eq!((late.long_gaps, late.recovery_ms), (1, Some(530)));
}

#[test]
fn a_life_that_was_stopped_itself_is_not_owed_ids_for_that_time_only() {
    let stopped = |from: u64, to: u64| {
        found(|evidence| {
            life(evidence, "a")[2..].iter_mut().for_each(|run| run.at_ns += 900 * MS);
            evidence.plan.lives.get_mut("a").unwrap().stopped = Some((from * MS, to * MS));
        })
    };
    assert!(stopped(100, 800).is_clean());
    assert_eq!(stopped(100, 200).long_gaps, 1);
}

#[test]
fn a_life_that_ended_by_itself_is_found_and_one_that_was_killed_counts_up_to_there() {
    let lost = found(|evidence| life(evidence, "a").truncate(3));
    assert_eq!((lost.faults, lost.is_clean()), (1, false));
    let killed = |at_ms: u64| {
        found(|evidence| {
            life(evidence, "a").pop();
            evidence.plan.lives.get_mut("a").unwrap().killed = Some(at_ms * MS);
        })
    };
    assert!(killed(25).is_clean());
    assert_eq!(killed(600).long_gaps, 1);
    let unborn = found(|evidence| life(evidence, "a").clear());
    assert_eq!(unborn.faults, 1);
}

#[test]
fn a_slot_held_by_nobody_and_one_that_nobody_can_get_are_found() {
    let dead = found(|evidence| evidence.plan.living.clear());
    assert_eq!((dead.leaked, dead.is_clean()), (1, false));
    let former = found(|evidence| evidence.plan.living = vec![FIRST]);
    assert_eq!(former.leaked, 1);
    let unusable = |given_up: Vec<u32>| {
        found(|evidence| {
            evidence.plan.slots.insert(5, SlotState::Unusable);
            evidence.plan.given_up = given_up;
        })
    };
    assert_eq!(unusable(vec![]).leaked, 1);
    assert!(unusable(vec![5]).is_clean());
}

#[test]
fn numbers_that_are_no_ids_are_found() {
    let overflow = found(|evidence| life(evidence, "a")[1].first = u64::MAX - 3);
    assert!(overflow.faults == 1 && !overflow.is_clean());
    let steps = found(|evidence| life(evidence, "a")[1].step = 2);
    assert!(steps.faults == 1);
}
