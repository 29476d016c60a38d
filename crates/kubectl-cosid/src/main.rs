//! `kubectl cosid`: what an operator of the cluster types.

mod args;
mod error;
mod slots;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use error::Error;

fn main() -> ExitCode {
    match run(Args::parse()) {
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
    }
}
