//! The proof of the product's one promise, by machines that look for the counterexample: see `docs/proof.md`.
//!
//! Built and run by `cargo xtask model` and `cargo xtask sim`, which pass `--cfg cosid_proof`.

mod api_server;
mod sim;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(about = "The proof; run it by `cargo xtask`", disable_help_subcommand = true)]
enum Command {
    /// The simulator
    Sim {
        #[arg(long)]
        seed: Option<u64>,
        #[arg(long, default_value_t = 0)]
        from: u64,
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        #[arg(long)]
        bug: Option<String>,
    },
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Sim { seed, from, seeds, bug } => {
            cosid_proof_switch::set_bug(bug.as_deref());
            if let Some(seed) = seed {
                let run = sim::run(seed, true);
                for line in &run.trace { println!("{line}"); }
                println!("{:?} {} {} {:?}", run.failure, run.ids, run.calls, run.simulated);
            } else {
                let t = std::time::Instant::now();
                let sum = sim::run_range(from, seeds, None, bug.is_some());
                println!("{sum:?} in {:?}", t.elapsed());
            }
            ExitCode::SUCCESS
        }
    }
}
