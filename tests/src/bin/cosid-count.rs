//! Counts IDs that occur more than once in files that `cosid-ids` wrote. It knows nothing of the generators: it reads
//! numbers, sorts them, and compares neighbours.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use cosid_tests::ids::{self, Count};

/// Counts the IDs in files, and those that are equal. Its last line is `N IDs, E equal`; it fails unless E is 0.
#[derive(Parser)]
struct Args {
    /// Files of 8-byte little-endian IDs.
    #[arg(required_unless_present = "dump")]
    files: Vec<PathBuf>,
    /// Write all files of a directory to standard output, for a test that can't read the disk they are on.
    #[arg(long, value_name = "DIR", conflicts_with = "files")]
    dump: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(dir) = args.dump {
        return match ids::dump(&dir, &mut std::io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    match ids::read(&args.files).map(ids::count) {
        Ok(Count { ids, equal, example }) => {
            if let Some(id) = example {
                println!("for example {id}");
            }
            println!("{ids} IDs, {equal} equal");
            ExitCode::from(u8::from(equal != 0 || ids == 0))
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
