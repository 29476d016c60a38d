//! The proof of the product's one promise, by machines that look for the counterexample: see `docs/proof.md`.
//!
//! Built and run by `cargo xtask model` and `cargo xtask sim`, which pass `--cfg cosid_proof`: the product's code as it is
//! shipped, but for a clock that can be virtual and faults that can be put on.

mod api_server;
mod bugs;
mod files;
mod model;
mod promises;
mod sim;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use model::configurations::{Explored, explore};

#[derive(Parser)]
#[command(name = "cosid-proof", about = "Model checker and simulator", disable_help_subcommand = true)]
enum Command {
    /// Every history of a few owners, slots and controllers, up to a bound
    Model(Model),
    /// Random histories of whole pods and controllers on virtual time
    Sim(Sim),
}

#[derive(clap::Args)]
struct Model {
    /// Only configurations with this in their name
    #[arg(long, default_value = "")]
    only: String,
    /// With this fault put on
    #[arg(long)]
    bug: Option<String>,
    /// Put each of the seeded faults on in turn: fails when one is not found
    #[arg(long)]
    seeded_bugs: bool,
}

#[derive(clap::Args)]
struct Sim {
    /// One seed, with what happened in it
    #[arg(long, conflicts_with_all = ["from", "seeds"])]
    seed: Option<u64>,
    /// The first seed of a range
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// With this fault put on
    #[arg(long)]
    bug: Option<String>,
}

fn main() -> ExitCode {
    if !cfg!(cosid_proof) {
        eprintln!(
            "error: built without --cfg cosid_proof, so that time is real: run `cargo xtask model` or `cargo xtask sim`"
        );
        return ExitCode::from(64);
    }
    let good = match Command::parse() {
        Command::Model(model) if model.seeded_bugs => seeded_bugs(&model.only),
        Command::Model(model) => model.run(),
        Command::Sim(sim) => sim.run(),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Model {
    fn run(&self) -> bool {
        cosid_proof_switch::set_bug(self.bug.as_deref());
        let start = Instant::now();
        println!("{:<66} {:>9} {:>6} {:>8}", "configuration", "states", "depth", "time");
        let explored = explore(&self.only, false, |explored| {
            let Explored { name, states, depth, took, failure } = explored;
            println!("{name:<66} {states:>9} {depth:>6} {:>6.1} s", took.as_secs_f64());
            if let Some((text, steps)) = failure {
                println!("  FOUND: {text}");
                steps.iter().for_each(|step| println!("    {step}"));
            }
        });
        let failed = explored.iter().filter(|explored| explored.failure.is_some()).count();
        let states: usize = explored.iter().map(|explored| explored.states).sum();
        let seconds = start.elapsed().as_secs_f64();
        println!("{} configurations, {states} states, {failed} failed, {seconds:.1} s", explored.len());
        failed == 0 && !explored.is_empty()
    }
}

impl Sim {
    fn run(&self) -> bool {
        cosid_proof_switch::set_bug(self.bug.as_deref());
        if let Some(seed) = self.seed {
            return replay(seed);
        }
        let start = Instant::now();
        let sum = sim::run_range(self.from, self.seeds, None, self.bug.is_some());
        for (seed, what) in &sum.failed {
            println!("seed {seed} FAILED: {what}");
            println!("  see it: cargo xtask sim --seed {seed}{}", self.with_bug());
        }
        println!(
            "{} seeds, {:.1} simulated hours, {} calls, {} IDs, {} failed, {:.1} s",
            sum.seeds,
            hours(sum.simulated),
            sum.calls,
            sum.ids,
            sum.failed.len(),
            start.elapsed().as_secs_f64()
        );
        if sum.failed.is_empty() {
            println!("{} IDs, 0 equal", sum.ids);
        }
        sum.failed.is_empty()
    }

    fn with_bug(&self) -> String {
        self.bug.as_ref().map_or_else(String::new, |bug| format!(" --bug {bug}"))
    }
}

fn replay(seed: u64) -> bool {
    let run = sim::run(seed, true);
    println!(
        "the end of seed {seed}; seconds of virtual time, windows and floors in seconds from its beginning"
    );
    run.trace.iter().for_each(|line| println!("{line}"));
    let (ids, hours) = (run.ids, hours(run.simulated));
    match &run.failure {
        Some(failure) => println!("seed {seed} FAILED: {failure}"),
        None => println!("seed {seed}: {hours:.2} simulated hours, {} calls, {ids} IDs, 0 equal", run.calls),
    }
    run.failure.is_none()
}

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3_600.0
}

/// Prints the table; whether all were found.
fn seeded_bugs(only: &str) -> bool {
    let start = Instant::now();
    let mut survived = 0;
    println!("{:<40} {:<20} {:>8}  what was seen", "seeded bug", "found by", "time");
    let wanted: Vec<_> = bugs::ALL.iter().filter(|bug| bug.name.contains(only)).collect();
    for bug in &wanted {
        for found in bug.look() {
            survived += usize::from(found.what.is_none());
            let what =
                found.what.map_or_else(|| "SURVIVED".to_owned(), |what| what.chars().take(150).collect());
            println!("{:<40} {:<20} {:>6.2} s  {what}", bug.name, found.by, found.took.as_secs_f64());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{} seeded bugs, {survived} survived, {seconds:.1} s", wanted.len());
    survived == 0 && !wanted.is_empty()
}
