//! Judges what a drill left: reads every ID with its slot, fence and time, and the store's history, and says what is
//! wrong with them. See `docs/drills.md`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use cosid_tests::drill::check::check;
use cosid_tests::drill::evidence::Evidence;

/// Judges a drill's evidence. Exit code 0: nothing is wrong; 1: something is; 2: it can't be read.
#[derive(Parser)]
struct Args {
    /// The drill's directory.
    dir: PathBuf,
    /// Say it as JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let verdict = match Evidence::read(&args.dir) {
        Ok(evidence) => check(&evidence),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    if args.json {
        println!("{}", serde_json::json!(verdict));
    } else {
        verdict.told.iter().for_each(|told| println!("{told}"));
        println!("{verdict}");
    }
    ExitCode::from(u8::from(!verdict.is_clean()))
}
