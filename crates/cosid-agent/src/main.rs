//! The agent's process.

use std::process::ExitCode;

use clap::Parser;
use cosid_agent::Args;

fn main() -> ExitCode {
    match cosid_agent::run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
