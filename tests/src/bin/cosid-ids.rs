//! An app that makes IDs as fast as it is told to, and writes each to a file before it asks for the next batch: what a
//! test or demo then counts.
//!
//! What happens to it goes to standard output, a JSON object a line: `started`, `refused` (and why), `resumed`, `moved`
//! (to another slot), `told` (to end), `done`. As the first process of a container it ends when it is told to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use cosid_client::{Client, Generator, LeaseState};
use cosid_tests::drill::now_ns;
use cosid_tests::drill::runs::{Binding, Run};
use serde_json::json;

/// Makes IDs and writes them to a file, 8 bytes each, little-endian; or as runs, for `cosid-check`.
#[derive(Parser)]
struct Args {
    /// The agent's socket.
    #[arg(long, env = "COSID_SOCKET")]
    socket: PathBuf,
    /// The generator's name.
    #[arg(long, default_value = "orders")]
    generator: String,
    /// How many IDs to make; without it, as many as there is time for until SIGTERM.
    #[arg(long)]
    count: Option<u64>,
    /// Count those that are in the file already: for an app that is started again.
    #[arg(long, requires = "count")]
    resume: bool,
    /// How many seconds it goes on after SIGTERM.
    #[arg(long, default_value_t = 0)]
    grace: u64,
    /// How many MiB of memory to take after the first batch, and never to give back.
    #[arg(long, default_value_t = 0)]
    hoard: usize,
    /// How many to make a second, at most; 0 for as many as there are.
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// How many to take at a time.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    /// How many seconds without an ID until it gives up.
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// Write runs of IDs, each with its time, slot and fence, instead of the IDs.
    #[arg(long, conflicts_with = "resume")]
    runs: bool,
    /// The file they are appended to; its directory is made.
    #[arg(long, required_unless_present = "idle")]
    out: Option<PathBuf>,
    /// Make none, only wait to be told to end.
    #[arg(long)]
    idle: bool,
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
    let mut end = End::new(Duration::from_secs(args.grace))?;
    let Some(path) = args.out.as_ref().filter(|_| !args.idle) else { return end.wait() };
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    let mut out = OpenOptions::new().create(true).append(true).open(path)?;
    let patience = Duration::from_secs(args.patience);
    let client = Client::connect_to(&args.socket)?.with_timeout(Duration::from_millis(200));
    let generator = patiently(patience, || client.generator(&args.generator))?;
    say("started", &json!({ "slot": generator.slot(), "floorAhead": floor_ahead(&client) }));

    if args.runs {
        Run { at_ns: now_ns(), ..Run::default() }.write_to(&mut out)?;
    }
    let start = Instant::now();
    let mut slot = generator.slot();
    let before = if args.resume { out.metadata()?.len() / 8 } else { 0 };
    let mut made = before;
    let mut last = Instant::now();
    let mut refused = false;
    let mut hoard = Vec::new();
    let count = args.count.unwrap_or(u64::MAX);
    while made < count && !end.has_come() {
        pace(args.rate, made - before, start);
        let batch = usize::try_from(u64::from(args.batch).min(count - made))?;
        let taken = if args.runs {
            write_runs(&generator, batch, &mut out)
        } else {
            write_ids(&generator, batch, &mut out)
        };
        match taken? {
            Ok(()) => {
                made += batch as u64;
                last = Instant::now();
                slot = went_on(&generator, slot, refused);
                refused = false;
                // Not zeroes: the kernel would not give memory for those.
                hoard.resize(args.hoard << 20, 1_u8);
            }
            Err(error) if last.elapsed() < patience => {
                if !refused {
                    let kind = if error.is_transient() { "transient" } else { "final" };
                    let detail =
                        json!({ "slot": slot, "made": made, "kind": kind, "why": error.to_string() });
                    say("refused", &detail);
                }
                refused = true;
                // An absent agent is refused at once: ask again soon, not in a tight loop.
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if args.runs {
        Run { at_ns: now_ns(), ..Run::default() }.write_to(&mut out)?;
    }
    say("done", &json!({ "made": made, "slot": slot }));
    Ok(())
}

/// Takes a batch and writes it down. The outer failure is the file's.
fn write_ids(
    generator: &Generator,
    batch: usize,
    out: &mut File,
) -> io::Result<Result<(), cosid_client::Error>> {
    let mut ids = vec![0_u64; batch];
    if let Err(error) = generator.next_ids(&mut ids) {
        return Ok(Err(error));
    }
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    out.write_all(&bytes).map(Ok)
}

/// The same in runs. Those before a failure count: they have been issued.
fn write_runs(
    generator: &Generator,
    batch: usize,
    out: &mut File,
) -> io::Result<Result<(), cosid_client::Error>> {
    let mut ranges = match generator.ranges(batch) {
        Ok(ranges) => ranges,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        let before = binding(generator);
        let range = match ranges.next() {
            Some(Ok(range)) => range,
            Some(Err(error)) => return Ok(Err(error)),
            None => return Ok(Ok(())),
        };
        let Some(first) = range.first() else { continue };
        let number = |number: u64| u32::try_from(number).map_err(io::Error::other);
        let (step, count) = (number(range.step())?, number(range.len() as u64)?);
        let run = Run { at_ns: now_ns(), first: first.get(), step, count, before, after: binding(generator) };
        run.write_to(out)?;
    }
}

/// The generator's slot and fence, both of one page.
fn binding(generator: &Generator) -> Binding {
    loop {
        let slot = generator.slot();
        let fence = u32::try_from(generator.fence()).unwrap_or(u32::MAX);
        if generator.slot() == slot {
            return Binding { slot, fence };
        }
    }
}

/// Its end, which SIGTERM begins.
struct End {
    told: Arc<AtomicBool>,
    grace: Duration,
    since: Option<Instant>,
}

impl End {
    fn new(grace: Duration) -> io::Result<Self> {
        let told = Arc::<AtomicBool>::default();
        signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&told))?;
        Ok(Self { told, grace, since: None })
    }

    fn has_come(&mut self) -> bool {
        if self.since.is_none() && self.told.load(Ordering::Relaxed) {
            self.since = Some(Instant::now());
            say("told", &json!({ "goesOnFor": self.grace.as_secs() }));
        }
        self.since.is_some_and(|since| since.elapsed() >= self.grace)
    }

    fn wait(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        while !self.has_come() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// How many milliseconds the window's floor is ahead of this machine's clock: what a first ID has to wait.
fn floor_ahead(client: &Client) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    match client.lease().map(|lease| lease.state) {
        Ok(LeaseState::Held(held)) => {
            u128::from(held.floor).saturating_sub(now).try_into().unwrap_or(u64::MAX)
        }
        _ => 0,
    }
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
