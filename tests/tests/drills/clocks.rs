//! The wall clock of one agent's host, and of the programs on it, is wrong. Another agent's is right.

use std::thread;
use std::time::Duration;

use cosid_tests::agent::Agent;
use cosid_tests::bent::BentClock;
use cosid_tests::ground::Ground;

use crate::stage::{POOL, SLACK, Setting, Stage, back_within};
use crate::{Drill, Needs};

pub const DRILLS: &[Drill] = &[
    ("clock_a_day_ahead", Needs::ApiServer, clock_a_day_ahead),
    ("clock_an_hour_behind", Needs::ApiServer, clock_an_hour_behind),
    ("clock_that_steps", Needs::ApiServer, clock_that_steps),
];

/// A host with a clock of its own, on which a program `bent` makes IDs; and one beside it whose program is owed them.
fn hosts(stage: &mut Stage<'_>) -> (BentClock, Agent, Agent) {
    let clock = BentClock::new(&stage.space.dir);
    stage.bend = clock.variables().into();
    let launch = clock
        .variables()
        .iter()
        .fold(stage.space.launch("web-0"), |launch, (name, value)| launch.env(name, value));
    let agent = launch.args(&["--pool", POOL]).start(&stage.space.dir.join("web-0"));
    agent.wait_held();
    let beside = stage.agent("web-1");
    stage.program("bent", &agent, SLACK);
    let bend = std::mem::take(&mut stage.bend);
    stage.program("beside", &beside, SLACK);
    stage.bend = bend;
    (clock, agent, beside)
}

/// No ID is of tomorrow: they stop at the ceiling. Once the clock is right they go on.
fn clock_a_day_ahead(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 4, 3);
    let (clock, mut agent, beside) = hosts(&mut stage);
    for _ in 0..setting.seconds(1, 3).as_secs() {
        clock.set_ahead(86_400);
        let bent = stage.fault(|| {
            thread::sleep(setting.seconds(3, 8));
            // Begun anew with such a clock it does no harm either.
            agent.kill_and_restart();
            agent.wait_held();
            thread::sleep(Duration::from_secs(1));
            clock.set_ahead(0);
        });
        stage.owe("bent", bent + back_within(stage.ttl));
        thread::sleep(Duration::from_secs(3));
    }
    stage.finish(&[&agent, &beside]);
}

/// Those who make IDs go on from where they were. Whoever begins with such a clock waits until it is past the last ID.
fn clock_an_hour_behind(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 4, 3);
    let (clock, mut agent, beside) = hosts(&mut stage);
    clock.set_ahead(-3_600);
    thread::sleep(setting.seconds(3, 12));
    agent.kill_and_restart();
    agent.wait_held();
    // Alone: else it would share the milliseconds that the other one has reached.
    stage.end("bent");
    stage.program("late", &agent, SLACK);
    let bent = stage.fault(|| {
        thread::sleep(setting.seconds(3, 8));
        clock.set_ahead(0);
    });
    stage.owe("late", bent + back_within(stage.ttl));
    thread::sleep(Duration::from_secs(3));
    stage.finish(&[&agent, &beside]);
}

/// By up to two hours, each second.
fn clock_that_steps(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 4, 3);
    let mut chance = setting.chance();
    let (clock, agent, beside) = hosts(&mut stage);
    let bent = stage.fault(|| {
        for _ in 0..setting.seconds(5, 30).as_secs() {
            let ahead = i64::try_from(chance.below(7_200)).unwrap() - 3_600;
            clock.set_ahead(ahead);
            thread::sleep(Duration::from_secs(1));
        }
        clock.set_ahead(0);
    });
    stage.owe("bent", bent + back_within(stage.ttl));
    thread::sleep(Duration::from_secs(3));
    stage.finish(&[&agent, &beside]);
}
