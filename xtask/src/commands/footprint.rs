//! `cargo xtask footprint`: what an agent costs beside every pod.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use cosid_client::Client;
use xtask::demo::ground::{DEFAULT_TTL_SECONDS, Ground};
use xtask::demo::{Narrator, Options, POOL};
use xtask::images::{self, Build};
use xtask::programs::{self, Program};
use xtask::{Error, Result, progress};

/// How many starts the median is taken of.
const STARTS: usize = 20;

/// How long an idle agent is left alone before its memory is read: its first renewals are over then.
const SETTLE: Duration = Duration::from_secs(12);

const PATIENCE: Duration = Duration::from_secs(30);

/// Flags of the footprint.
#[derive(Args)]
pub(crate) struct Footprint {}

impl Footprint {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let agent = progress::step("build the lean agent (minutes)", |_| images::agent(Build::Lean))?;
        programs::build()?;
        let dir = tempfile::tempdir().map_err(Error::io("make a directory"))?;
        let tell = Narrator::start();
        let ground = Ground::prepare(
            &Options { no_nodes: true, ..Options::default() },
            dir.path(),
            DEFAULT_TTL_SECONDS,
            &tell,
        )?;

        let mut times = Vec::new();
        for nth in 0..STARTS {
            times.push(first_id(&ground, &agent, dir.path(), nth)?);
        }
        times.sort_unstable();

        let (program, socket) = start(&agent, &ground.agent_in_pod("idle")?, dir.path(), "idle")?;
        programs::wait_held(&socket, PATIENCE)?;
        std::thread::sleep(SETTLE);
        let size = fs::metadata(&agent).map_err(Error::io("look at the agent"))?.len();
        println!("binary, static, stripped:        {}", megabytes(size));
        println!("resident, idle, slot held:       {}", megabytes(memory(program.pid(), "VmRSS:")?));
        println!("  of that not in the binary:     {}", megabytes(memory(program.pid(), "RssAnon:")?));
        println!("resident at most (at the list):  {}", megabytes(memory(program.pid(), "VmHWM:")?));
        let millis = |index: usize| times[index].as_secs_f64() * 1000.0;
        println!(
            "start to first ID, of {STARTS} starts:   median {:.1} ms, fastest {:.1} ms, slowest {:.1} ms",
            millis(STARTS / 2),
            millis(0),
            millis(STARTS - 1)
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// `args` are made before: they ask the API server for a token.
fn start(agent: &Path, args: &[String], dir: &Path, name: &str) -> Result<(Program, PathBuf)> {
    let mut command = Command::new(agent);
    let socket = dir.join(name).join("agent.sock");
    command.args(args).arg("--socket").arg(&socket);
    Ok((Program::start(name, command, dir)?, socket))
}

/// From the start of an agent to the first ID of an app beside it.
fn first_id(ground: &Ground, agent: &Path, dir: &Path, nth: usize) -> Result<Duration> {
    let name = format!("start-{nth}");
    let args = ground.agent_in_pod(&name)?;
    let begin = Instant::now();
    let (mut program, socket) = start(agent, &args, dir, &name)?;
    let id = loop {
        let client = Client::connect_to(&socket);
        match client.and_then(|client| client.generator(POOL)).and_then(|generator| generator.next_id()) {
            Ok(id) => break id,
            Err(_) if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(Error::Wrong(format!("{error}; its log: {}", program.log()))),
        }
    };
    let took = begin.elapsed();
    program.terminate(PATIENCE)?;
    if id.get() == 0 { Err(Error::Wrong("an ID of 0".into())) } else { Ok(took) }
}

fn memory(pid: u32, field: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(Error::io(format_args!("read {path}")))?;
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| Error::Wrong(format!("{path} has no {field}")))
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{:02} MB", bytes / 1_000_000, bytes % 1_000_000 / 10_000)
}
