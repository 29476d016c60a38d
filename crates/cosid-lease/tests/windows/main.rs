//! Whatever owners, clocks, processes and the network do: on one slot, the windows in which different fences can issue
//! are disjoint and ordered by fence, and no timestamp is issued under two.

mod history;
mod world;

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use history::{Kept, Op, Seen};
use world::World;

fn op() -> impl Strategy<Value = Op> {
    let host = 0..4_usize;
    let index = 0..64_usize;
    let kept = prop_oneof![Just(Kept::Nothing), Just(Kept::AsAcquired), Just(Kept::AsRenewed)];
    prop_oneof![
        24 => host.clone().prop_map(Op::Go),
        10 => host.clone().prop_map(Op::Wake),
        12 => host.clone().prop_map(Op::Ask),
        10 => index.clone().prop_map(Op::Arrive),
        10 => index.clone().prop_map(Op::Answer),
        8 => host.clone().prop_map(Op::GiveUp),
        8 => (0..12_000_u64).prop_map(Op::Pass),
        4 => (20_000..90_000_u64).prop_map(Op::Pass),
        4 => (-90_000..90_000_i64).prop_map(Op::Jump),
        20 => (index, 0..40_000_u64).prop_map(|(window, by)| Op::Issue(window, by)),
        3 => host.clone().prop_map(Op::Stop),
        6 => host.clone().prop_map(Op::Close),
        3 => (host.clone(), kept).prop_map(|(host, kept)| Op::Crash(host, kept)),
        3 => host.prop_map(Op::Start),
    ]
}

#[test]
fn windows_of_different_fences_are_disjoint_and_ordered_by_fence() {
    let config =
        Config { cases: 2_000, failure_persistence: None, max_shrink_time: 10_000, ..Config::default() };
    let seen = RefCell::new(Seen::default());
    let histories = (1..=3_u32, 2..=4_usize, vec(op(), 40..200));
    let outcome = TestRunner::new(config).run(&histories, |(slots, hosts, ops)| {
        let mut world = World::new(slots, hosts);
        for op in ops {
            world.apply(op).map_err(TestCaseError::fail)?;
        }
        seen.borrow_mut().add(&world.seen);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    // The histories must have had in them what they are to be safe from.
    let Seen { acquired, taken_over, released, lost, resumed, late, repeated, issued } = seen.into_inner();
    for (what, count, least) in [
        ("acquisitions", acquired, 3_000),
        ("takeovers", taken_over, 500),
        ("releases", released, 300),
        ("losses", lost, 200),
        ("resumptions", resumed, 200),
        ("writes done after they were given up", late, 20),
        ("writes done that had been done", repeated, 50),
        ("timestamps", issued, 10_000),
    ] {
        assert!(count >= least, "only {count} {what} in all histories");
    }
}
