//! `cargo xtask drill`: runs drills in full length and prints a table of what was found.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use xtask::{Error, Result, cluster, programs};

/// Flags of the drills.
#[derive(Args)]
pub(crate) struct Drill {
    /// Which; without it all, which takes some minutes
    names: Vec<String>,
    /// Only say which there are
    #[arg(long)]
    list: bool,
    /// What the random points come from; without it another one each time, which is said
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// As short as in `cargo xtask test`
    #[arg(long)]
    short: bool,
    /// How the table is printed
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// What the judge says of a drill, as far as it is in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    ids: u64,
    equal: u64,
    outside: u64,
    long_gaps: u64,
    leaked: u64,
    longest_stall_ms: u64,
    recovery_ms: Option<u64>,
}

impl Drill {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let io = |error| Error::io("run the drills")(error);
        let mut command = programs::cargo();
        command.args(["test", "--quiet", "--locked", "--package", "cosid-tests", "--test", "drills", "--"]);
        if self.list {
            let status = command.arg("--list").status().map_err(io)?;
            return Ok(ExitCode::from(u8::from(!status.success())));
        }
        cluster::prepare(false)?;
        programs::build()?;
        let results = tempfile::tempdir().map_err(io)?;
        command.env("COSID_DRILLS", self.names.join(" ")).env("COSID_DRILL_RESULTS", results.path());
        if !self.short {
            command.env("COSID_DRILL_FULL", "1");
        }
        if let Some(seed) = self.seed {
            command.env("COSID_DRILL_SEED", seed.to_string());
        }
        // Only the table goes to standard output.
        command.stdout(Stdio::from(std::io::stderr()));
        let status = command.status().map_err(io)?;
        let verdicts = read(results.path())?;
        match self.output {
            Output::Text => print!("{}", table(&verdicts)),
            Output::Json => println!("{}", serde_json::json!(verdicts)),
        }
        let unknown = self.names.iter().find(|name| status.success() && !verdicts.contains_key(*name));
        match unknown {
            Some(name) => {
                Err(Error::Setup(format!("there is no drill {name}, or it can't run here; --list")))
            }
            None => Ok(ExitCode::from(u8::from(!status.success()))),
        }
    }
}

/// The verdicts that the drills have left, by name; a drill that failed leaves none.
fn read(dir: &Path) -> Result<BTreeMap<String, Verdict>> {
    let doing = || format!("read {}", dir.display());
    let mut verdicts = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(Error::io(doing()))? {
        let path = entry.map_err(Error::io(doing()))?.path();
        let text = fs::read(&path).map_err(Error::io(doing()))?;
        let verdict = serde_json::from_slice(&text)
            .map_err(|error| Error::State { path: path.clone(), why: error.to_string() })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        verdicts.insert(name, verdict);
    }
    Ok(verdicts)
}

fn table(verdicts: &BTreeMap<String, Verdict>) -> String {
    let seconds = |ms: u64| format!("{}.{:03} s", ms / 1000, ms % 1000);
    let width = verdicts.keys().map(String::len).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:width$} {:>13} {:>6} {:>8} {:>5} {:>7} {:>14} {:>10}\n",
        "drill", "IDs", "equal", "outside", "gaps", "leaked", "longest stall", "recovery"
    );
    let mut all = Verdict::default();
    for (name, verdict) in verdicts {
        let Verdict { ids, equal, outside, long_gaps, leaked, longest_stall_ms, recovery_ms } = *verdict;
        let recovery = recovery_ms.map_or_else(|| "-".into(), seconds);
        let stall = seconds(longest_stall_ms);
        text.push_str(&format!(
            "{name:width$} {ids:>13} {equal:>6} {outside:>8} {long_gaps:>5} {leaked:>7} {stall:>14} {recovery:>10}\n"
        ));
        all = Verdict { ids: all.ids + ids, equal: all.equal + equal, outside: all.outside + outside, ..all };
    }
    let drills = verdicts.len();
    text + &format!(
        "{drills} drills, {} IDs, {} equal, {} outside their window\n",
        all.ids, all.equal, all.outside
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_drill_and_sums_up() {
        let verdict =
            Verdict { ids: 1_000, longest_stall_ms: 12_034, recovery_ms: Some(7), ..Verdict::default() };
        let none = Verdict { equal: 2, recovery_ms: None, ..verdict.clone() };
        let table = table(&[("agent_killed".into(), verdict), ("link_down".into(), none)].into());
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with("agent_killed") && lines[1].ends_with("12.034 s    0.007 s"), "{table}");
        assert!(lines[2].ends_with("12.034 s          -"), "{table}");
        assert_eq!(lines[3], "2 drills, 2000 IDs, 2 equal, 0 outside their window");
    }
}
