//! A program that opens its generator once and then forks its workers, as gunicorn with `--preload` or php-fpm do. All of
//! them make IDs on the one slot of their pod: they share one atomic word, so no two IDs are equal.

mod fork;
mod worker;

use std::error::Error;
use std::fs;
use std::io::{PipeReader, Read, pipe};
use std::path::PathBuf;
use std::process::{ExitCode, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Parser;
use cosid_client::{Client, Generator};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use fork::{Side, fork};

/// Forks workers that make IDs on one slot, collects all IDs, and checks that no two are equal.
///
/// Its last line is `N IDs of W workers, E equal`; it fails unless E is 0. SIGTERM: the workers stop, and what they made
/// is checked.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// The agent's socket.
    #[arg(long, env = "COSID_SOCKET", value_name = "PATH")]
    socket: PathBuf,
    /// The generator's name.
    #[arg(long, env = "GENERATOR", default_value = "orders")]
    generator: String,
    /// How many workers.
    #[arg(long, env = "WORKERS", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// How many IDs each makes.
    #[arg(long, env = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,
    /// How long each pauses after an ID, milliseconds.
    #[arg(long, env = "PAUSE", value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=60_000))]
    pause: u64,
    /// How long an ID is waited for, milliseconds.
    #[arg(long, env = "PATIENCE", value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    patience: u64,
    /// A file for all IDs, one a line.
    #[arg(long, env = "OUT", value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A worker, as its parent knows it.
struct Worker {
    pid: Pid,
    ids: PipeReader,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("forked-workers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    // Before the first fork, so that there is no time at which a signal would just kill one.
    let ended = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&ended))?;
    let client = Client::connect_to(&args.socket)?.with_timeout(Duration::from_millis(args.patience));
    let generator = client.generator(&args.generator)?;
    println!("slot {}, {} workers", generator.slot(), args.workers);

    let workers = start(args, &generator, &ended)?;
    let pids: Vec<Pid> = workers.iter().map(|worker| worker.pid).collect();
    // A container's runtime signals its first process only. From here on there are threads, and no more forks.
    let mut signals = Signals::new([SIGTERM])?;
    let handle = signals.handle();
    let tell = thread::spawn({
        let pids = pids.clone();
        move || signals.forever().for_each(|_| end(&pids))
    });
    if ended.load(Ordering::Relaxed) {
        end(&pids);
    }
    let ids = collect(workers)?;
    handle.close();
    // It ends with its signals, and has nothing to say.
    let _ = tell.join();
    let all_well = pids.into_iter().map(has_succeeded).fold(true, |all, well| all & well);

    if let Some(path) = &args.out {
        let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
        fs::write(path, lines).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let equal = equal(&ids);
    println!("{} IDs of {} workers, {equal} equal", ids.len(), args.workers);
    Ok(all_well && equal == 0)
}

fn start(args: &Args, generator: &Generator, ended: &AtomicBool) -> Result<Vec<Worker>, Box<dyn Error>> {
    let mut workers = Vec::new();
    for number in 0..args.workers {
        let (ids, out) = pipe()?;
        match fork()? {
            Side::Parent(pid) => workers.push(Worker { pid, ids }),
            Side::Child => {
                // The reading ends are the parent's: with them here nobody would notice that it has gone.
                drop((ids, workers));
                let pause = Duration::from_millis(args.pause);
                match worker::work(generator, args.count, pause, ended, out) {
                    Ok(()) => exit(0),
                    Err(error) => {
                        eprintln!("worker {number}: {error}");
                        exit(1);
                    }
                }
            }
        }
    }
    Ok(workers)
}

/// All that the workers make, until the last of them has ended.
fn collect(workers: Vec<Worker>) -> Result<Vec<u64>, Box<dyn Error>> {
    // All at once: a pipe that nobody reads would stop its worker.
    let readers: Vec<_> = workers
        .into_iter()
        .map(|mut worker| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                worker.ids.read_to_end(&mut bytes).map(|_| bytes)
            })
        })
        .collect();
    let mut all = Vec::new();
    for (number, reader) in readers.into_iter().enumerate() {
        let bytes = reader.join().map_err(|_| "a reader failed")??;
        let (ids, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(format!("worker {number} ended within an ID").into());
        }
        println!("worker {number}: {} IDs", ids.len());
        all.extend(ids.iter().map(|id| u64::from_le_bytes(*id)));
    }
    Ok(all)
}

fn end(pids: &[Pid]) {
    for pid in pids {
        // One that has ended is waited for later, so that its pid is nobody else's yet.
        let _ = kill_process(*pid, Signal::TERM);
    }
}

fn has_succeeded(pid: Pid) -> bool {
    let ended = waitpid(Some(pid), WaitOptions::empty());
    matches!(ended, Ok(Some((_, status))) if status.exit_status() == Some(0))
}

/// How many IDs are there already.
fn equal(ids: &[u64]) -> usize {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).filter(|pair| pair[0] == pair[1]).count()
}
