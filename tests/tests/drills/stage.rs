//! What every drill has: a pool, programs that make IDs, somebody who watches the store, and the judge at the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cosid_client::Held;
use cosid_id::Layout;
use cosid_kube::codec;
use cosid_tests::agent::Agent;
use cosid_tests::drill::check::Verdict;
use cosid_tests::drill::now_ns;
use cosid_tests::drill::plan::{Life, Plan, SlotState};
use cosid_tests::drill::runs::Binding;
use cosid_tests::ground::{Ground, Space};
use cosid_tests::http::PATIENCE;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::ListParams;
use rustix::process::Signal;
use xtask::paths;
use xtask::programs::{self, Program, until};

use crate::chance::Chance;
use crate::observer::Observer;

/// The pool of every drill.
pub const POOL: &str = "orders";
/// What the machine may take for itself, over what is promised: it is shared, and its processes wait for their turn.
pub const SLACK: Duration = Duration::from_secs(3);
/// The tolerance of the pools.
pub const TOLERANCE: Duration = Duration::from_secs(1);
/// IDs a second that a program asks for, and how many at a time.
const RATE: u64 = 500_000;
const BATCH: u64 = 1_000;

/// What the store told, in the drill's directory.
const CHANGES: &str = "store.jsonl";

/// How a drill is run.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// In its full length, or in the one that every run of the tests has time for.
    pub full: bool,
    /// What its random points come from.
    pub seed: u64,
}

impl Setting {
    /// How long something takes, seconds.
    pub fn seconds(&self, short: u64, full: u64) -> Duration {
        Duration::from_secs(if self.full { full } else { short })
    }

    /// The drill's random numbers.
    pub fn chance(&self) -> Chance {
        Chance::new(self.seed)
    }
}

/// How long after the end of a fault an agent has its lease renewed, or another one: a request that hangs, the longest
/// pause, and a list and an update that each take as long as they may. A request and the pause each take at most a sixth
/// of the ttl.
pub fn back_within(ttl: Duration) -> Duration {
    ttl * 4 / 6 + SLACK
}

/// A drill under way.
pub struct Stage<'g> {
    /// Where it takes place.
    pub space: Space<'g>,
    /// The lease's length.
    pub ttl: Duration,
    setting: Setting,
    dir: PathBuf,
    observer: Observer,
    plan: Plan,
    programs: BTreeMap<String, Program>,
    /// The environment that programs get.
    pub bend: Vec<(String, String)>,
}

impl<'g> Stage<'g> {
    /// A namespace with a pool of so many slots and this ttl in seconds.
    pub fn set(ground: &'g Ground, setting: Setting, slots: i32, ttl_seconds: i32) -> Self {
        let space = ground.space(&setting.name.replace('_', "-"));
        space.pool(POOL, slots, ttl_seconds);
        let dir = paths::workspace().join("target/drills").join(setting.name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let observer = Observer::start(&space, POOL, &dir.join(CHANGES));
        let plan = Plan {
            name: setting.name.into(),
            layout: Layout::MILLISECOND,
            lives: BTreeMap::new(),
            healed: Vec::new(),
            slots: (0..u32::try_from(slots).unwrap()).map(|slot| (slot, SlotState::Unusable)).collect(),
            living: Vec::new(),
            given_up: Vec::new(),
        };
        let ttl = Duration::from_secs(u64::try_from(ttl_seconds).unwrap());
        let (programs, bend) = (BTreeMap::new(), Vec::new());
        Self { space, ttl, setting, dir, observer, plan, programs, bend }
    }

    /// Starts an agent, and waits until it holds a slot.
    pub fn agent(&self, pod: &str) -> Agent {
        let agent = self.space.agent(pod, &["--pool", POOL]);
        agent.wait_held();
        agent
    }

    /// Starts a program that makes IDs at an agent's socket, and waits until it has its generator. It is promised not to
    /// be without an ID for longer than this.
    pub fn program(&mut self, name: &str, agent: &Agent, promised: Duration) {
        self.program_at(name, &agent.socket, promised, RATE);
    }

    /// The same with a rate of its own.
    pub fn program_at(&mut self, name: &str, socket: &Path, promised: Duration, rate: u64) {
        let mut command = Command::new(programs::path("cosid-ids").unwrap());
        command.arg("--socket").arg(socket).arg("--out").arg(self.dir.join(format!("{name}.runs")));
        command.args(["--runs", "--patience", "120", "--rate", &rate.to_string()]);
        command.args(["--batch", &BATCH.to_string()]).envs(self.bend.iter().cloned());
        let program = Program::start(name, command, &self.space.dir).unwrap();
        program.wait_for_line("started", PATIENCE).unwrap();
        let promised_ms = u64::try_from(promised.as_millis()).unwrap();
        self.plan.lives.insert(name.into(), Life { promised_ms, ..Life::default() });
        self.programs.insert(name.into(), program);
    }

    /// Kills a program.
    pub fn kill(&mut self, name: &str) {
        let mut program = self.programs.remove(name).unwrap();
        program.kill().unwrap();
        // Not before: until it is dead it may make some.
        self.life(name).killed = Some(now_ns());
    }

    /// Stops a program where it stands while something is done.
    pub fn stopped(&mut self, name: &str, meanwhile: impl FnOnce(&mut Self)) {
        let begin = now_ns();
        self.programs[name].signal(Signal::STOP).unwrap();
        meanwhile(self);
        self.programs[name].signal(Signal::CONT).unwrap();
        self.life(name).stopped = Some((begin, now_ns()));
    }

    /// Lets a program end.
    pub fn end(&mut self, name: &str) {
        let mut program = self.programs.remove(name).unwrap();
        end(name, &mut program);
    }

    /// What a program was promised, where that is known only afterwards: by how long a fault took.
    pub fn owe(&mut self, name: &str, promised: Duration) {
        self.life(name).promised_ms = u64::try_from(promised.as_millis()).unwrap();
    }

    /// Does something bad until it is over, and says how long that took.
    pub fn fault(&mut self, fault: impl FnOnce()) -> Duration {
        let begun = Instant::now();
        fault();
        self.healed();
        begun.elapsed()
    }

    fn life(&mut self, name: &str) -> &mut Life {
        self.plan.lives.get_mut(name).unwrap()
    }

    /// Waits until a program says this.
    pub fn wait_until(&self, name: &str, event: &str) {
        self.programs[name].wait_for_line(&format!("\"event\":\"{event}\""), PATIENCE).unwrap();
    }

    /// A fault is over now.
    pub fn healed(&mut self) {
        self.plan.healed.push(now_ns());
    }

    /// The store went back: what it told before is kept, and it is asked anew.
    pub fn store_went_back(&mut self) {
        self.observer.start_anew(&self.space, POOL, &self.dir.join(CHANGES));
    }

    /// What is done to this slot takes it out of use.
    pub fn give_up(&mut self, slot: u32) {
        self.plan.given_up.push(slot);
    }

    /// Lets all programs end, waits until the leases of the dead have expired, and has it all judged. These agents live.
    pub fn finish(self, agents: &[&Agent]) {
        self.finish_with(agents, |_| {});
    }

    /// The same, and what else has to be true of the verdict.
    pub fn finish_with(mut self, agents: &[&Agent], also: impl FnOnce(&Verdict)) {
        for (name, program) in &mut self.programs {
            end(name, program);
        }
        let give_up = self.ttl + TOLERANCE + SLACK;
        let settled = || {
            self.plan.living = agents.iter().filter_map(|agent| binding(agent)).collect();
            let (slots, version) = slots(&self.space, self.plan.slots.keys());
            self.plan.slots = slots;
            let is_settled = self.plan.slots.iter().all(|(&slot, state)| match *state {
                SlotState::Free => true,
                SlotState::Held { fence } => self.plan.living.contains(&Binding { slot, fence }),
                SlotState::Unusable => self.plan.given_up.contains(&slot),
            });
            Ok(is_settled.then_some(version))
        };
        // Where it does not settle the judge says what is wrong.
        let version =
            until(String::new, give_up, settled).unwrap_or_else(|_| slots(&self.space, [].iter()).1);
        self.observer.catch_up(version);
        fs::write(self.dir.join("drill.json"), serde_json::json!(self.plan).to_string()).unwrap();

        let verdict = judge(&self.dir);
        println!("{}: {verdict}", self.setting.name);
        let said = verdict.told.join("\n");
        assert!(verdict.is_clean(), "{said}\n`cosid-check {}` says it again", self.dir.display());
        also(&verdict);
        let _ = fs::remove_dir_all(&self.dir);
        report(&self.setting, &verdict);
    }
}

fn end(name: &str, program: &mut Program) {
    let ended = program.terminate(PATIENCE).unwrap();
    assert!(ended.success(), "{name}: {}{}", program.log(), program.output());
}

fn binding(agent: &Agent) -> Option<Binding> {
    let lease = agent.lease();
    let held: Held = serde_json::from_value(lease.clone()).ok().filter(|_| lease["state"] == "held")?;
    Some(Binding { slot: held.slot, fence: u32::try_from(held.fence).ok()? })
}

/// What these slots are now, and which version of the store says so.
fn slots<'a>(
    space: &Space<'_>,
    numbers: impl IntoIterator<Item = &'a u32>,
) -> (BTreeMap<u32, SlotState>, u64) {
    let of_pool = ListParams::default().labels(&format!("{}={POOL}", codec::POOL_LABEL));
    let list = space.block_on(space.leases().list(&of_pool)).unwrap();
    let version = list.items.iter().filter_map(ResourceExt::resource_version);
    let version = version.filter_map(|version| version.parse().ok()).max().unwrap_or(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let state = |lease: &Lease| match codec::decode(lease, POOL).record() {
        Some(record) => match record.live(u64::try_from(now).unwrap()) {
            Some(_) => SlotState::Held { fence: record.fence },
            None => SlotState::Free,
        },
        None => SlotState::Unusable,
    };
    let found: BTreeMap<_, _> =
        list.items.iter().filter_map(|lease| Some((codec::slot_of(lease, POOL)?, state(lease)))).collect();
    let of = |slot: &u32| (*slot, found.get(slot).copied().unwrap_or(SlotState::Unusable));
    (numbers.into_iter().map(of).collect(), version)
}

/// Runs the judge, a program of its own.
fn judge(dir: &Path) -> Verdict {
    let mut judge = Command::new(programs::path("cosid-check").unwrap());
    let output = judge.arg("--json").arg(dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Leaves the verdict for whoever makes a table of them.
fn report(setting: &Setting, verdict: &Verdict) {
    let Some(dir) = std::env::var_os("COSID_DRILL_RESULTS") else { return };
    let path = Path::new(&dir).join(format!("{}.json", setting.name));
    fs::write(path, serde_json::json!(verdict).to_string()).unwrap();
}
