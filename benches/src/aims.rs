//! What this project aims at, as ratios in one run.

use std::error::Error;

use crate::measure::Median;
use crate::programs::{COSID, Programs};
use crate::{cap, tables};

/// Prints each aim with its ratio; whether all are reached.
pub fn all_reached(programs: &Programs) -> Result<bool, Box<dyn Error>> {
    let cap = cap::sustained()?;
    let spinner = cap.iter().filter(|one| one.spins).map(|one| one.cpu_ns).fold(f64::INFINITY, f64::min);
    let at_most = |ratio: f64, bound: f64| (ratio, format!("<= {bound}"), ratio <= bound);
    let at_least = |ratio: f64, bound: f64| (ratio, format!(">= {bound}"), ratio >= bound);
    let (processes, burst) = (tables::processes()?, tables::burst()?);
    let mut aims = vec![
        ("one ID / ferroid Atomic", at_most(ratio(&tables::shared(1)?, "cosid-id", "ferroid Atomic")?, 0.75)),
        (
            "two threads / ferroid Atomic's",
            at_most(ratio(&tables::shared(2)?, "cosid-id", "ferroid Atomic")?, 0.6),
        ),
        ("two processes / ferroid Atomic's two threads", at_most(processes[0].1 / processes[1].1, 0.6)),
        (
            "batch of 1,024 / snowflake_me",
            at_most(ratio(&tables::batches(1_024)?, "cosid-id", "snowflake_me")?, 0.3),
        ),
        ("rate / 4.096 million a second", at_least(cap[0].millions_a_second / 4.096, 0.99)),
        ("CPU at the cap / the least of those who spin", at_most(cap[0].cpu_ns / spinner, 0.25)),
        ("tsid / burst", at_least(burst[1].1 / burst[0].1, 10.0)),
        (
            "radix 62 / snowid",
            at_most(
                {
                    let forms = tables::forms()?;
                    forms[0].1 / forms[1].1
                },
                0.4,
            ),
        ),
    ];
    if programs.has(COSID) {
        let one = ratio(&tables::against(programs)?, "cosid-id", COSID)?;
        aims.push(("one ID / CosId (Java)", at_most(one, 0.1)));
    }
    println!("| aim | bound | ratio | |\n|---|---|---|---|");
    for (name, (ratio, bound, reached)) in &aims {
        println!("| {name} | {bound} | {ratio:.3} | {} |", if *reached { "reached" } else { "MISSED" });
    }
    let rates = cap.iter().filter(|one| one.spins).map(|one| format!("{:.3}", one.millions_a_second));
    println!("\nThose who spin made {} million a second in this run.", rates.collect::<Vec<_>>().join(", "));
    if !programs.has(COSID) {
        println!(
            "One ID against CosId (Java), at most 0.1, was not measured: `--java` does, with a JDK and Maven."
        );
    }
    Ok(aims.iter().all(|(_, (_, _, reached))| *reached))
}

fn ratio(medians: &[Median], one: &str, other: &str) -> Result<f64, String> {
    let of = |name: &str| {
        let found = medians.iter().find(|median| median.0 == name);
        found.map(|median| median.1).ok_or_else(|| format!("{name} was not measured"))
    };
    Ok(of(one)? / of(other)?)
}
