//! Processes die, or stop for longer than a lease lives.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use cosid_tests::agent::Agent;
use cosid_tests::ground::Ground;
use cosid_tests::http::PATIENCE;
use rustix::process::Signal;
use xtask::programs::{self, until};

use crate::stage::{POOL, SLACK, Setting, Stage, TOLERANCE, back_within};
use crate::{Drill, Needs};

pub const DRILLS: &[Drill] = &[
    ("agent_killed", Needs::ApiServer, agent_killed),
    ("agent_stopped", Needs::ApiServer, agent_stopped),
    ("client_killed", Needs::ApiServer, client_killed),
    ("client_stopped", Needs::ApiServer, client_stopped),
    ("one_key_one_directory", Needs::ApiServer, one_key_one_directory),
    ("agent_upgraded", Needs::ApiServer, agent_upgraded),
    ("storm", Needs::ApiServer, storm),
];

/// Killed and started again, at random points.
fn agent_killed(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 4, 3);
    let mut chance = setting.chance();
    let mut agent = stage.agent("web-0");
    let held = agent.wait_held();
    // Its window outlives it by far: nobody notices.
    stage.program("a", &agent, SLACK);
    stage.program("b", &agent, SLACK);
    let begun = Instant::now();
    while begun.elapsed() < setting.seconds(6, 30) {
        thread::sleep(chance.millis(0, 2_500));
        agent.kill_and_restart();
        stage.healed();
    }
    let after = agent.wait_held();
    assert_eq!((held.slot, held.fence, held.page), (after.slot, after.fence, after.page));
    stage.finish(&[&agent]);
}

/// Stopped until somebody else has its slot, and a while longer.
fn agent_stopped(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 3, 3);
    let mut chance = setting.chance();
    let agent = stage.agent("web-0");
    stage.program("a", &agent, SLACK);
    thread::sleep(chance.millis(0, 1_500));
    let rival = stage.space.agent("web-1", &["--pool", POOL, "--slot", "0"]);
    agent.program.signal(Signal::STOP).unwrap();
    let stopped = stage.fault(|| {
        rival.wait_held();
        thread::sleep(chance.millis(500, 2_500));
        agent.program.signal(Signal::CONT).unwrap();
    });
    stage.owe("a", stopped + back_within(stage.ttl));
    stage.program("b", &rival, SLACK);
    stage.wait_until("a", "moved");
    thread::sleep(setting.seconds(1, 5));
    stage.finish(&[&agent, &rival]);
}

/// Programs are killed in the middle of what they do, and others begin.
fn client_killed(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 2, 3);
    let mut chance = setting.chance();
    let agent = stage.agent("web-0");
    stage.program("lasting", &agent, SLACK);
    let begun = Instant::now();
    let mut number = 0;
    while begun.elapsed() < setting.seconds(5, 30) {
        let name = format!("short-{number}");
        stage.program(&name, &agent, SLACK);
        thread::sleep(chance.millis(0, 700));
        stage.kill(&name);
        number += 1;
    }
    stage.finish(&[&agent]);
}

/// A program sleeps, its agent dies, another has the slot: when it wakes it has nothing to tell it but its page.
fn client_stopped(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 2, 3);
    let mut chance = setting.chance();
    let mut agent = stage.agent("web-0");
    stage.program("a", &agent, SLACK);
    thread::sleep(chance.millis(300, 1_500));
    let rival = stage.space.agent("web-1", &["--pool", POOL, "--slot", "0"]);
    stage.stopped("a", |stage| {
        agent.program.kill().unwrap();
        rival.wait_held();
        stage.program("b", &rival, SLACK);
        thread::sleep(chance.millis(500, 2_500));
    });
    // Awake it finds its window over and nobody to ask, until its agent is back.
    let alone = stage.fault(|| {
        thread::sleep(Duration::from_secs(1));
        agent.kill_and_restart();
    });
    stage.owe("a", alone + back_within(stage.ttl));
    stage.wait_until("a", "moved");
    thread::sleep(setting.seconds(1, 5));
    stage.finish(&[&agent, &rival]);
}

/// A second agent in the directory of one that runs ends at once; of two that start at once one serves.
fn one_key_one_directory(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 4, 3);
    let launch = stage.space.launch("web-0").args(&["--pool", POOL]);
    let dir = stage.space.dir.join("web-0");
    let mut serving = launch.clone().start(&dir);
    let held = serving.wait_held();
    stage.program("a", &serving, SLACK);
    let begun = Instant::now();
    while begun.elapsed() < setting.seconds(4, 20) {
        let mut second = launch.clone().start(&dir);
        let ended = second.program.wait(PATIENCE).unwrap();
        assert!(!ended.success(), "two serve one directory");
        serving.program.kill().unwrap();
        let mut pair = [launch.clone().start(&dir), launch.clone().start(&dir)];
        let one_left = || {
            let ended = pair.iter_mut().filter_map(|agent| agent.program.has_ended().unwrap()).count();
            Ok((ended == 1).then_some(()))
        };
        until(|| "two serve one directory, or none".into(), PATIENCE, one_left).unwrap();
        let [first, second] = pair;
        let mut first = first;
        serving = if first.program.has_ended().unwrap().is_none() { first } else { second };
        stage.healed();
        let now = serving.wait_held();
        assert_eq!((now.slot, now.fence), (held.slot, held.fence));
    }
    stage.finish(&[&serving]);
}

/// Another file takes the place of the agent's program. Killed and started again it goes on with its slot; told to end it
/// hands it back, and gets it again.
fn agent_upgraded(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 2, 3);
    let program = stage.space.dir.join("agent");
    let install = || {
        let new = program.with_extension("new");
        fs::copy(programs::path("cosid-agent").unwrap(), &new).unwrap();
        fs::rename(&new, &program).unwrap();
    };
    install();
    let launch = stage.space.launch("web-0").args(&["--pool", POOL]).program(&program);
    let dir = stage.space.dir.join("web-0");
    let mut agent = launch.clone().start(&dir);
    let mut held = agent.wait_held();
    stage.program("a", &agent, SLACK);
    for _ in 0..setting.seconds(1, 5).as_secs() {
        install();
        agent.kill_and_restart();
        let same = agent.wait_held();
        assert_eq!((same.slot, same.fence, &same.page), (held.slot, held.fence, &held.page));
        agent.wait_renewed();
        stage.healed();

        install();
        let down = stage.fault(|| {
            agent.terminate();
            agent = launch.clone().start(&dir);
        });
        stage.owe("a", down + back_within(stage.ttl));
        held = agent.wait_held();
        assert_eq!((held.slot, held.fence), (same.slot, same.fence + 2), "released and acquired");
        thread::sleep(Duration::from_secs(1));
    }
    stage.finish(&[&agent]);
}

/// 24 agents on 32 slots, one of them killed every second; every other time its directory goes with it, so that it comes
/// back as somebody else.
fn storm(ground: &Ground, setting: Setting) {
    let (count, ttl) = if setting.full { (24, 6) } else { (8, 3) };
    let mut stage = Stage::set(ground, setting, 32, ttl);
    let mut chance = setting.chance();
    let mut agents: Vec<Agent> =
        (0..count).map(|number| stage.space.agent(&format!("web-{number}"), &["--pool", POOL])).collect();
    // Whoever loses its directory goes on to its ceiling on the old page, and then finds the new one. A slot that was
    // somebody's a moment ago begins above what that one could have used.
    let promised = stage.ttl + TOLERANCE + back_within(stage.ttl);
    for (number, agent) in agents.iter().enumerate() {
        agent.wait_held();
        stage.program_at(&format!("p{number}"), &agent.socket, promised, 100_000);
    }
    let begun = Instant::now();
    let mut kills = 0_u32;
    while begun.elapsed() < setting.seconds(8, 300) {
        let agent = &mut agents[usize::try_from(chance.below(count)).unwrap()];
        agent.program.kill().unwrap();
        if kills % 2 == 1 {
            fs::remove_dir_all(agent.dir()).unwrap();
        }
        agent.kill_and_restart();
        stage.healed();
        kills += 1;
        thread::sleep(Duration::from_secs(u64::from(kills)).saturating_sub(begun.elapsed()));
    }
    for agent in &agents {
        agent.wait_held();
    }
    // Until the last of the old pages has come to its ceiling.
    thread::sleep(stage.ttl + TOLERANCE + Duration::from_secs(1));
    println!("{}: {kills} agents killed", setting.name);
    let all: Vec<&Agent> = agents.iter().collect();
    stage.finish(&all);
}
