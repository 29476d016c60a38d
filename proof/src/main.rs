//! The proof of the product's one promise, by machines that look for the counterexample: see `docs/proof.md`.
//!
//! Built and run by `cargo xtask model` and `cargo xtask sim`, which pass `--cfg cosid_proof`.

mod api_server;
mod model;
mod promises;
mod sim;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(about = "The proof; run it by `cargo xtask`", disable_help_subcommand = true)]
enum Command {
    Model {
        #[arg(long)]
        bug: Option<String>,
    },
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
        Command::Model { bug } => {
            use stateright::*;
            use model::agents::{Bounds, Budget};
            cosid_proof_switch::set_bug(bug.as_deref());
            {
            use model::controllers::*;
            let z = Budget::default();
            for (name, slots, controllers, budget) in [
                ("one controller, lease deleted", 1, 1, Budget { reconciliations: 4, acquisitions: 2, renewals: 1, lease_deletions: 1, passes: 1, ..z }),
                ("two controllers, lease deleted", 1, 2, Budget { reconciliations: 3, acquisitions: 2, lease_deletions: 1, passes: 0, ..z }),
                ("one controller, pool deleted", 1, 1, Budget { reconciliations: 6, acquisitions: 2, pool_deletions: 1, passes: 1, ..z }),
                ("two controllers, pool deleted", 1, 2, Budget { reconciliations: 5, acquisitions: 1, pool_deletions: 1, ..z }),
            ] {
                let t = std::time::Instant::now();
                let bounds = Bounds { name, slots, controllers, budget, rerun: Default::default() };
                let c = bounds.checker().threads(2).timeout(std::time::Duration::from_secs(30)).spawn_bfs().join();
                println!("{name}: {} unique {} depth {} {:?}", c.state_count(), c.unique_state_count(), c.max_depth(), t.elapsed());
                for (k, v) in c.discoveries() { println!("  {k}: {:?}", v.into_actions()); }
            }
            }
            let b = |name, slots, keys, depth, budget| Bounds { name, slots, keys, depth, budget };
            let z = Budget::default();
            for bounds in [
                b("two owners, one slot, network", 1, &["a", "b"][..], 60, Budget { timeouts: 2, repeats: 1, passes: 3, ..z }),
                b("crashes and stops", 1, &["a", "b"][..], 60, Budget { timeouts: 1, crashes: 1, stops: 1, passes: 4, ..z }),
                b("clocks", 1, &["a", "b"][..], 60, Budget { timeouts: 1, jumps: 2, passes: 4, ..z }),
                b("one key twice, two slots", 2, &["a", "a"][..], 60, Budget { timeouts: 1, crashes: 1, passes: 3, ..z }),
                b("deletion", 1, &["a", "b"][..], 60, Budget { timeouts: 1, deletions: 1, passes: 3, stops: 1, ..z }),
                b("three owners, two slots", 2, &["a", "b", "c"][..], 60, Budget { timeouts: 1, passes: 3, ..z }),
            ] {
                let t = std::time::Instant::now();
                let name = bounds.name; let d = bounds.depth;
                let c = bounds.checker().threads(2).target_max_depth(d).timeout(std::time::Duration::from_secs(30)).spawn_bfs().join();
                println!("{name}: {} unique {} depth {} {:?} {:?}", c.state_count(), c.unique_state_count(), c.max_depth(), t.elapsed(), c.discoveries().iter().map(|(k, v)| (k.to_string(), v.clone().into_actions())).collect::<Vec<_>>());
            }
            ExitCode::SUCCESS
        }
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
