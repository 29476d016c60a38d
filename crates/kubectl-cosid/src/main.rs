//! `kubectl cosid`: what an operator of the cluster types.

mod args;
mod connection;
mod error;
mod recover;
mod slots;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use error::Error;

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
    match run(args) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<String, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match args.command {
        Command::Slots(slots) => runtime.block_on(slots::show(&args.cluster, &slots)),
        Command::Recover(recover) => recover::recover(&runtime, &args.cluster, &recover),
    }
}
