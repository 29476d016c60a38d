//! Everything in real pods on real nodes: the chart installed, pods annotated, nodes cut off and switched off.
//!
//! All tests share one cluster, one after the other: a namespace each. It is a cluster of this machine, which needs root,
//! or the one whose context `COSID_TEST_CONTEXT` names; there the tests that pull a node's cable are left out. At the end
//! all IDs of all tests have been counted. With `COSID_TEST_NODES=require` a machine that can't have nodes is a failure
//! rather than a reason to leave them out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod cut_off;
mod deaths;
mod deployments;
mod endings;
mod examples;
mod exhausted;
mod hostile;
mod ordinals;
mod policies;
mod storms;

use std::env;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use cosid_tests::pods::{PodGround, counted};
use libtest_mimic::{Arguments, Failed, Trial};

/// A test, and whether it needs a cluster of this machine.
type Case = (&'static str, Needs, fn(&PodGround));

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Any cluster that has the images.
    AnyCluster,
    /// Processes and cables that can be reached from outside.
    OwnNodes,
}

/// How many IDs all tests together have to count.
const ENOUGH: usize = 20_000_000;

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // They disturb the one cluster that they have.
    args.test_threads = Some(1);
    let context = env::var("COSID_TEST_CONTEXT").ok();
    let missing = match &context {
        Some(_) => None,
        None => xtask::cluster::check_nodes().err(),
    };
    if let Some(missing) = &missing
        && !args.list
    {
        eprintln!("the tests on nodes are left out: {missing}");
        if env::var("COSID_TEST_NODES").is_ok_and(|value| value == "require") {
            return ExitCode::FAILURE;
        }
    }
    let all = args.filter.is_none() && args.skip.is_empty() && !args.list;
    let context_is_own = context.is_none();
    let ground = Arc::<OnceLock<PodGround>>::default();
    let conclusion = libtest_mimic::run(&args, trials(&ground, context, missing.is_some()));
    // The cluster ends here, before the result is known to whoever waits for it.
    drop(ground);
    let whole = all && missing.is_none() && !conclusion.has_failed();
    let counted = counted();
    if counted > 0 {
        println!("{counted} IDs, 0 equal");
    }
    if whole && context_is_own && counted < ENOUGH {
        eprintln!("at least {ENOUGH} IDs are to be counted");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn trials(ground: &Arc<OnceLock<PodGround>>, context: Option<String>, missing: bool) -> Vec<Trial> {
    let cases = [
        deployments::CASES,
        ordinals::CASES,
        cut_off::CASES,
        deaths::CASES,
        endings::CASES,
        exhausted::CASES,
        hostile::CASES,
        policies::CASES,
        examples::CASES,
        storms::CASES,
    ];
    let trial = |(name, needs, test): Case| {
        let left_out = missing || (context.is_some() && needs == Needs::OwnNodes);
        let (ground, context) = (Arc::clone(ground), context.clone());
        let run = move || -> Result<(), Failed> {
            let ground = ground.get_or_init(|| PodGround::start(context.as_deref()));
            let start = Instant::now();
            test(ground);
            println!("{:.1} s", start.elapsed().as_secs_f64());
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(left_out)
    };
    cases.into_iter().flatten().copied().map(trial).collect()
}
