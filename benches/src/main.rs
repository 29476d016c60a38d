//! What an ID costs here and elsewhere, in one run: `cargo xtask bench`.
//!
//! Ratios count, not nanoseconds: everything in a table is measured in turns, so that whatever else the machine does meets
//! all of it. The medians are of these turns.

mod aims;
mod cap;
mod measure;
mod ours;
mod peers;
mod programs;
mod table;
mod tables;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::programs::{BWMARRIN, COSID, Programs};

/// `cosid-bench DIRECTORY` writes all tables there, `cosid-bench --aims` prints what the aims need; with `--java CLASSPATH`
/// and `--go PROGRAM` the programs in `benches/java` and `benches/go` are measured too.
fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut programs = Programs::default();
    let mut arguments = &arguments[..];
    loop {
        arguments = match arguments {
            ["--java", classes, rest @ ..] => {
                programs.add(COSID, &["java", "-cp", classes, "Turns"]);
                rest
            }
            ["--go", program, rest @ ..] => {
                programs.add(BWMARRIN, &[program]);
                rest
            }
            _ => break,
        };
    }
    match *arguments {
        ["--aims"] => Ok(if aims::all_reached(&programs)? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        ["worker", page, count] => {
            ours::work(Path::new(page), count.parse()?)?;
            Ok(ExitCode::SUCCESS)
        }
        [directory] => {
            let mut text = String::new();
            for make in tables::ALL {
                let table = make(&programs)?.to_string();
                print!("{table}");
                text += &table;
            }
            fs::create_dir_all(directory)?;
            fs::write(Path::new(directory).join("bench.md"), text)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprintln!("usage: cosid-bench [--java CLASSPATH] [--go PROGRAM] DIRECTORY | --aims");
            Ok(ExitCode::from(64))
        }
    }
}
