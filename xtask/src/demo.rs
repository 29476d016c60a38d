//! The main job, printed as it goes: agents keep slots and clients make IDs, while processes are killed, stopped and
//! continued. At its end a program of its own counts the IDs that are equal.

mod cast;
pub mod ground;
mod pods;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::images::{self, Build};
use crate::programs;
use crate::{Error, Result};
use cast::{Agent, Ids};
use ground::Ground;

/// The name of the pool of `examples/slotpool.yaml`, and of the generator.
pub const POOL: &str = "orders";

/// How many IDs each client makes.
const IDS_EACH: u64 = 1_000_000;

/// How many clients make them.
const CLIENTS: u64 = 6;

/// How fast, IDs a second: slow enough that there is time to disturb them.
const RATE: u64 = 60_000;

/// The lease's length in the demo, seconds: nobody wants to wait for the default half a minute.
const TTL_SECONDS: u64 = 5;

/// How long anything may take before the demo gives up on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the demo plays.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// With no cluster: slots in this machine's memory.
    pub memory: bool,
    /// A context of the user's kubeconfig, instead of a control plane made for the demo.
    pub context: Option<String>,
    /// A control plane only, without nodes: agents and clients are processes of this machine, as with the other two.
    pub no_nodes: bool,
}

impl Options {
    /// Whether the agents are in pods, on nodes that are made for the demo.
    fn in_pods(&self) -> bool {
        !self.memory && self.context.is_none() && !self.no_nodes
    }
}

/// Tells what happens, with the time since the start.
pub struct Narrator(Instant);

impl Narrator {
    /// Starts the clock.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Prints a line.
    pub fn say(&self, text: impl AsRef<str>) {
        println!("[{:5.1} s] {}", self.0.elapsed().as_secs_f64(), text.as_ref());
    }
}

/// Plays the demo. Its last line is `N IDs, 0 equal`.
///
/// # Errors
/// [`Error::Wrong`] where an ID is there twice or a slot isn't where it must be; any other where something did not run.
/// The logs are kept then.
pub fn run(options: &Options) -> Result<()> {
    ground::check(options)?;
    programs::build()?;
    if options.in_pods() {
        // Before the clock runs: compiling is no part of the story. The installation finds nothing left to compile.
        images::build(Build::Quick)?;
        return pods::play(&Narrator::start());
    }
    let dir =
        tempfile::Builder::new().prefix("cosid-demo-").tempdir().map_err(Error::io("make a directory"))?;
    let played = play(options, dir.path());
    let has_logs = dir.path().read_dir().is_ok_and(|mut entries| entries.next().is_some());
    if played.is_err() && has_logs {
        eprintln!("the logs are kept in {}", dir.keep().display());
    }
    played
}

fn play(options: &Options, dir: &Path) -> Result<()> {
    let tell = Narrator::start();
    let ground = Ground::prepare(options, dir, TTL_SECONDS, &tell)?;

    let a = Agent::start(&ground, dir, "agent-a", None)?;
    let b = Agent::start(&ground, dir, "agent-b", None)?;
    let c = Agent::start(&ground, dir, "agent-c", None)?;
    for agent in [&a, &b, &c] {
        let held = programs::wait_held(&agent.socket, PATIENCE)?;
        tell.say(format!("{} holds slot {} under fence {}", agent.name, held.slot, held.fence));
    }

    let clients = [
        Ids::start(dir, "client-a1", &a.socket, IDS_EACH)?,
        Ids::start(dir, "client-a2", &a.socket, IDS_EACH)?,
        Ids::start(dir, "client-b1", &b.socket, IDS_EACH)?,
        Ids::start(dir, "client-b2", &b.socket, IDS_EACH)?,
        Ids::start(dir, "client-c1", &c.socket, IDS_EACH)?,
        Ids::start(dir, "client-c2", &c.socket, IDS_EACH)?,
    ];
    for client in &clients {
        client.program.wait_for_line("started", PATIENCE)?;
    }
    tell.say(format!("{CLIENTS} clients make {IDS_EACH} IDs each, two on each agent's slot"));
    let [a1, a2, b1, b2, c1, c2] = clients;

    let a = agent_is_killed(&tell, &ground, dir, a, [&a1, &a2])?;
    let (d, b1_again) = client_is_killed(&tell, &ground, dir, b, b1, &b2)?;
    let (c, e) = agent_is_stopped(&tell, &ground, dir, c, [&c1, &c2])?;

    let mut clients = [a1, a2, b1_again, b2, c1, c2];
    tell.say("the clients make the rest of their IDs");
    for client in &mut clients {
        client.finish(PATIENCE)?;
    }
    ground.show_slots(&tell)?;
    let count = count(&clients)?;
    for mut agent in [a, c, d, e] {
        agent.program.terminate(PATIENCE)?;
    }
    tell.say("the agents are told to end: they release their slots");
    ground.clean_up(&tell)?;
    println!("{count}");
    Ok(())
}

/// An agent is killed and comes back: its clients never notice, since they make IDs from the page.
fn agent_is_killed(
    tell: &Narrator,
    ground: &Ground,
    dir: &Path,
    mut agent: Agent,
    clients: [&Ids; 2],
) -> Result<Agent> {
    let before = programs::wait_held(&agent.socket, PATIENCE)?;
    let made = clients[0].made()?;
    agent.program.kill()?;
    tell.say(format!("{} is killed (kill -9), and started again", agent.name));
    let name = agent.name.clone();
    drop(agent);
    let agent = Agent::start(ground, dir, &name, None)?;
    let after = programs::wait_held(&agent.socket, PATIENCE)?;
    if (before.slot, before.fence) != (after.slot, after.fence) {
        let (slot, fence) = (after.slot, after.fence);
        return Err(Error::Wrong(format!("{name} came back on slot {slot} under fence {fence}")));
    }
    clients[0].wait_until_made(made + RATE / 10, PATIENCE)?;
    tell.say(format!(
        "{name} is back on slot {} under the same fence; its clients never stopped",
        after.slot
    ));
    Ok(agent)
}

/// A client is killed, then its agent ends in order: the slot is handed on at the exact last timestamp.
fn client_is_killed(
    tell: &Narrator,
    ground: &Ground,
    dir: &Path,
    mut agent: Agent,
    mut killed: Ids,
    other: &Ids,
) -> Result<(Agent, Ids)> {
    let held = programs::wait_held(&agent.socket, PATIENCE)?;
    killed.program.kill()?;
    let made = killed.made()?;
    tell.say(format!("{} is killed (kill -9) after {made} IDs", killed.name));
    let made_by_other = other.made()?;
    other.wait_until_made(made_by_other + RATE / 10, PATIENCE)?;

    let asked = Instant::now();
    agent.program.terminate(PATIENCE)?;
    let took = asked.elapsed();
    other.program.wait_for_line("refused", PATIENCE)?;
    let last = killed.last_timestamp(&held.layout)?.max(other.last_timestamp(&held.layout)?);
    let next = Agent::start(ground, dir, "agent-d", Some((&agent, &format!("prefer:{}", held.slot))))?;
    let handed = programs::wait_held(&next.socket, PATIENCE)?;
    if (handed.slot, handed.floor) != (held.slot, last) {
        return Err(Error::Wrong(format!(
            "slot {} was handed on at {}, but the last ID of slot {} has {last}",
            handed.slot, handed.floor, held.slot
        )));
    }
    tell.say(format!(
        "{} is told to end (SIGTERM), closes and releases in {} ms; {} gets slot {} with floor {}, the exact timestamp \
         of the last ID made on it",
        agent.name,
        took.as_millis(),
        next.name,
        handed.slot,
        handed.floor
    ));
    let again = Ids::start(dir, "client-b1", &next.socket, IDS_EACH.saturating_sub(made))?;
    other.program.wait_for_line("resumed", PATIENCE)?;
    tell.say(format!(
        "{} goes on under {}, {} is started again for the rest",
        other.name, next.name, again.name
    ));
    Ok((next, again))
}

/// An agent is stopped past its expiry, its slot goes to another, it is continued: its clients are refused, then move.
fn agent_is_stopped(
    tell: &Narrator,
    ground: &Ground,
    dir: &Path,
    agent: Agent,
    clients: [&Ids; 2],
) -> Result<(Agent, Agent)> {
    let before = programs::wait_held(&agent.socket, PATIENCE)?;
    agent.program.signal(Signal::STOP)?;
    tell.say(format!("{} is stopped (SIGSTOP): slot {} can't be renewed", agent.name, before.slot));
    for client in clients {
        client.program.wait_for_line("refused", PATIENCE)?;
    }
    tell.say("its clients reach their ceiling and are refused");
    let fourth = Agent::start(ground, dir, "agent-e", Some((&agent, &before.slot.to_string())))?;
    let taken = programs::wait_held(&fourth.socket, PATIENCE)?;
    if taken.slot != before.slot || taken.floor < before.ceiling {
        return Err(Error::Wrong(format!(
            "{} got slot {} with floor {}",
            fourth.name, taken.slot, taken.floor
        )));
    }
    tell.say(format!(
        "slot {} has expired and goes to {} under fence {}, with a floor above the old ceiling",
        taken.slot, fourth.name, taken.fence
    ));
    let newcomer = Ids::start(dir, "client-e1", &fourth.socket, 10_000)?;
    newcomer.program.wait_for_line("started", PATIENCE)?;
    agent.program.signal(Signal::CONT)?;
    let after = programs::wait_held_if(&agent.socket, PATIENCE, |held| held.slot != before.slot)?;
    for client in clients {
        client.program.wait_for_line("moved", PATIENCE)?;
    }
    tell.say(format!(
        "{} is continued, finds its slot lost, and gets slot {}; its clients move there",
        agent.name, after.slot
    ));
    let mut newcomer = newcomer;
    newcomer.finish(PATIENCE)?;
    Ok((agent, fourth))
}

/// Lets a program of its own count what is in the clients' files.
fn count(clients: &[Ids]) -> Result<String> {
    let mut files: Vec<PathBuf> = clients.iter().map(|client| client.file.clone()).collect();
    if let Some(dir) = files.first().and_then(|file| file.parent()) {
        files.push(dir.join("client-e1.ids"));
    }
    counted(&files)
}

/// Lets a program of its own count what is in files, and gives its last line.
fn counted(files: &[PathBuf]) -> Result<String> {
    let output = Command::new(programs::path("cosid-count")?)
        .args(files)
        .output()
        .map_err(Error::io("start cosid-count"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default().to_owned();
    let enough = line.split(' ').next().and_then(|count| count.parse::<u64>().ok());
    if output.status.success() && enough.is_some_and(|count| count >= CLIENTS * IDS_EACH) {
        Ok(line)
    } else {
        Err(Error::Wrong(format!("{text}{}", String::from_utf8_lossy(&output.stderr))))
    }
}
