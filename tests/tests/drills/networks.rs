//! Between one agent and the API server the network is bad. Somebody else, whose is good, waits for the slot.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use cosid_tests::agent::{Agent, Launch};
use cosid_tests::faults::{Relay, Weather};
use cosid_tests::ground::Ground;

use crate::net::Net;
use crate::stage::{POOL, SLACK, Setting, Stage, back_within};
use crate::{Drill, Needs};

pub const DRILLS: &[Drill] = &[
    ("api_server_slow", Needs::ApiServer, api_server_slow),
    ("connections_half_open", Needs::ApiServer, connections_half_open),
    ("connections_cut", Needs::ApiServer, connections_cut),
    ("answers_lost", Needs::ApiServer, answers_lost),
    ("link_down", Needs::ApiServer, link_down),
    ("one_way_loss", Needs::ApiServer, one_way_loss),
];

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Each answer comes 9 s late, for two thirds of a lease: nobody notices.
fn api_server_slow(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 1, 30);
    let relay = Relay::start(LOOPBACK, stage.space.server());
    let launch = stage.space.launch_at("web-0", relay.address());
    let agent = launch.args(&["--pool", POOL]).start(&stage.space.dir.join("web-0"));
    let held = agent.wait_held();
    let rival = stage.space.agent("web-1", &["--pool", POOL]);
    stage.program("a", &agent, SLACK);
    for _ in 0..setting.seconds(1, 2).as_secs() {
        agent.wait_renewed();
        relay.set(Weather::Slow(Duration::from_secs(9)));
        thread::sleep(stage.ttl * 2 / 3);
        relay.set(Weather::Fair);
        stage.healed();
        agent.wait_renewed();
    }
    let after = agent.wait_held();
    assert_eq!((held.slot, held.fence), (after.slot, after.fence));
    assert_eq!(rival.lease()["state"], "exhausted");
    stage.finish(&[&agent]);
}

fn connections_half_open(ground: &Ground, setting: Setting) {
    behind_a_relay(ground, setting, Weather::HalfOpen);
}

fn connections_cut(ground: &Ground, setting: Setting) {
    behind_a_relay(ground, setting, Weather::Cut);
}

/// Renewals are done, and nobody learns of it.
fn answers_lost(ground: &Ground, setting: Setting) {
    behind_a_relay(ground, setting, Weather::AnswersLost);
}

fn behind_a_relay(ground: &Ground, setting: Setting, weather: Weather) {
    let stage = Stage::set(ground, setting, 4, 3);
    let relay = Relay::start(LOOPBACK, stage.space.server());
    let launch = stage.space.launch_at("web-0", relay.address());
    let (bad, fair) = (|| relay.set(weather), || relay.set(Weather::Fair));
    loses_its_slot(stage, setting, launch, bad, fair);
}

/// The agent's cable is pulled out.
fn link_down(ground: &Ground, setting: Setting) {
    let Some(net) = Net::new() else { return };
    in_a_network(ground, setting, &net, || net.ip("link set eth0 down"), || net.ip("link set eth0 up"));
}

/// What the agent sends arrives; nothing reaches it.
fn one_way_loss(ground: &Ground, setting: Setting) {
    let Some(net) = Net::new() else { return };
    in_a_network(ground, setting, &net, || net.lose_what_comes(), || net.lose_nothing());
}

fn in_a_network(ground: &Ground, setting: Setting, net: &Net, bad: impl Fn(), fair: impl Fn()) {
    let stage = Stage::set(ground, setting, 4, 3);
    let relay = Relay::start(net.gateway(), stage.space.server());
    let by = net.by();
    let launch = stage.space.launch_at("web-0", relay.address()).by(&by.each_ref().map(String::as_str));
    loses_its_slot(stage, setting, launch, bad, fair);
}

/// The agent that is started by `launch` is cut off until another has its slot: its programs stop at the ceiling, and
/// move once they can.
fn loses_its_slot(mut stage: Stage<'_>, setting: Setting, launch: Launch, bad: impl Fn(), fair: impl Fn()) {
    let mut chance = setting.chance();
    let agent = launch.args(&["--pool", POOL]).start(&stage.space.dir.join("web-0"));
    agent.wait_held();
    stage.program("a", &agent, SLACK);
    let mut rivals = Vec::new();
    let mut longest = Duration::ZERO;
    for round in 0..setting.seconds(1, 3).as_secs() {
        let slot = agent.wait_held().slot;
        let wish = ["--pool", POOL, "--slot", &slot.to_string()];
        let rival = stage.space.agent(&format!("rival-{round}"), &wish);
        thread::sleep(chance.millis(0, 1_500));
        bad();
        let begun = Instant::now();
        rival.wait_held();
        stage.program(&format!("rival-{round}"), &rival, SLACK);
        thread::sleep(chance.millis(500, 3_000));
        fair();
        stage.healed();
        longest = longest.max(begun.elapsed());
        stage.owe("a", longest + back_within(stage.ttl));
        agent.wait_held_if(|held| held.slot != slot);
        thread::sleep(Duration::from_secs(2));
        rivals.push(rival);
    }
    let living: Vec<&Agent> = rivals.iter().chain([&agent]).collect();
    stage.finish(&living);
}
