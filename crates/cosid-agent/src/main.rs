//! The agent's process.

use std::process::ExitCode;

use clap::Parser;
use cosid_agent::Args;

/// What `sysexits.h` calls a bad command line.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help that was asked for is no failure; if nobody reads it there is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match cosid_agent::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
