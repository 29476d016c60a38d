//! Processes die, or stop for longer than a lease lives.

use std::thread;
use std::time::Instant;

use cosid_tests::ground::Ground;

use crate::stage::{SLACK, Setting, Stage};
use crate::{Drill, Needs};

pub const DRILLS: &[Drill] = &[
    ("agent_killed", Needs::ApiServer, agent_killed),
];

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
