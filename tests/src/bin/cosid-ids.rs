//! An app that makes IDs as fast as it is told to, and writes each to a file before it asks for the next batch: what a
//! test or demo then counts.
//!
//! What happens to it goes to standard output, a JSON object a line: `started`, `refused` (and why), `resumed`, `moved`
//! (to another slot), `done`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use cosid_client::{Client, Generator};
use serde_json::json;

/// Makes IDs and writes them to a file, 8 bytes each, little-endian.
#[derive(Parser)]
struct Args {
    /// The agent's socket.
    #[arg(long, env = "COSID_SOCKET")]
    socket: PathBuf,
    /// The generator's name.
    #[arg(long, default_value = "orders")]
    generator: String,
    /// How many IDs to make.
    #[arg(long)]
    count: u64,
    /// How many to make a second, at most; 0 for as many as there are.
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// How many to take at a time.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    /// How many seconds without an ID until it gives up.
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// The file they are appended to.
    #[arg(long)]
    out: PathBuf,
}

fn main() -> ExitCode {
    match make(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = OpenOptions::new().create(true).append(true).open(&args.out)?;
    let patience = Duration::from_secs(args.patience);
    let client = Client::connect_to(&args.socket)?.with_timeout(Duration::from_millis(200));
    let generator = patiently(patience, || client.generator(&args.generator))?;
    say("started", &json!({ "slot": generator.slot() }));

    let start = Instant::now();
    let mut slot = generator.slot();
    let mut made = 0_u64;
    let mut last = Instant::now();
    let mut refused = false;
    while made < args.count {
        pace(args.rate, made, start);
        let batch = usize::try_from(u64::from(args.batch).min(args.count - made))?;
        let mut ids = vec![0_u64; batch];
        match generator.next_ids(&mut ids) {
            Ok(()) => {
                let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
                out.write_all(&bytes)?;
                made += batch as u64;
                last = Instant::now();
                slot = went_on(&generator, slot, refused);
                refused = false;
            }
            Err(error) if last.elapsed() < patience => {
                if !refused {
                    say("refused", &json!({ "slot": slot, "made": made, "why": error.to_string() }));
                }
                refused = true;
                // An absent agent is refused at once: ask again soon, not in a tight loop.
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error.into()),
        }
    }
    say("done", &json!({ "made": made, "slot": slot }));
    Ok(())
}

/// Says what changed since the last batch: another slot, or the same one after a refusal.
fn went_on(generator: &Generator, before: u32, refused: bool) -> u32 {
    let slot = generator.slot();
    if slot != before {
        say("moved", &json!({ "from": before, "slot": slot }));
    } else if refused {
        say("resumed", &json!({ "slot": slot }));
    }
    slot
}

/// Waits until making one more ID keeps to the rate.
fn pace(rate: u64, made: u64, start: Instant) {
    if let Some(due) = (made * 1_000_000).checked_div(rate) {
        std::thread::sleep(Duration::from_micros(due).saturating_sub(start.elapsed()));
    }
}

fn patiently<T, E>(patience: Duration, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(_) if start.elapsed() < patience => std::thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
}

fn say(event: &str, detail: &serde_json::Value) {
    println!("{}", json!({ "event": event, "detail": detail }));
}
