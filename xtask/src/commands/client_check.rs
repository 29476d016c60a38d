//! `cargo xtask client-check`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use xtask::client_check::{self, Row, Subject};
use xtask::{Error, Result};

/// What to check.
#[derive(Args)]
pub(crate) struct ClientCheck {
    /// How the result is written
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// The client's program with its first arguments; `GENERATOR WORKERS COUNT` come after them, the socket is in COSID_SOCKET
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

impl ClientCheck {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let subject = Subject { command: self.command, environment: Vec::new() };
        let rows = client_check::run(&subject, |row| {
            if self.output == Output::Table {
                print_row(row);
            }
        })?;
        let failed = rows.iter().filter(|row| !row.passed).count();
        match self.output {
            Output::Json => {
                let json = serde_json::to_string_pretty(&rows).map_err(std::io::Error::from);
                println!("{}", json.map_err(Error::io("write JSON"))?);
            }
            Output::Table => println!("{} checks, {failed} failed", rows.len()),
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn print_row(Row { check, rule, passed, why, .. }: &Row) {
    let verdict = if *passed { "pass" } else { "FAIL" };
    println!("{verdict}  {check:<17} {rule}");
    if !passed {
        println!("      {why}");
    }
}
