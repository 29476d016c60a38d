//! Somebody does something to the objects themselves.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use cosid_tests::disk::Disk;
use cosid_tests::ground::Ground;
use cosid_tests::http::PATIENCE;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use xtask::programs::until;

use crate::stage::{POOL, SLACK, Setting, Stage, TOLERANCE, back_within};
use crate::{Drill, Needs};

pub const DRILLS: &[Drill] = &[
    ("lease_deleted", Needs::ApiServer, lease_deleted),
    ("lease_deleted_by_force", Needs::ApiServer, lease_deleted_by_force),
    ("lease_edited_to_nonsense", Needs::ApiServer, lease_edited_to_nonsense),
    ("all_leases_deleted", Needs::ApiServer, all_leases_deleted),
    ("pool_deleted_with_holders", Needs::ApiServer, pool_deleted_with_holders),
    ("pool_torn_out_and_made_again", Needs::ApiServer, pool_torn_out_and_made_again),
    ("token_rotated", Needs::ApiServer, token_rotated),
    ("disk_full", Needs::ApiServer, disk_full),
];

/// What is promised to those whose lease somebody takes away: it is noticed at the next renewal at the latest, and then
/// there is another slot, which may have been somebody's until now: its first ID is above what that one could have used.
fn moves_within(ttl: Duration) -> Duration {
    ttl + TOLERANCE + back_within(ttl)
}

fn lease_deleted(ground: &Ground, setting: Setting) {
    a_lease_goes(ground, setting, |stage, slot| {
        let (leases, name) = (stage.space.leases(), format!("{POOL}-{slot}"));
        stage.space.block_on(leases.delete(&name, &DeleteParams::default())).unwrap();
    });
}

/// Its finalizer is torn out at once.
fn lease_deleted_by_force(ground: &Ground, setting: Setting) {
    a_lease_goes(ground, setting, |stage, slot| stage.space.force_delete_lease(POOL, slot));
}

fn a_lease_goes(ground: &Ground, setting: Setting, go: impl Fn(&Stage<'_>, u32)) {
    let mut stage = Stage::set(ground, setting, 4, 3);
    let agents = [stage.agent("web-0"), stage.agent("web-1")];
    let promised = moves_within(stage.ttl);
    stage.program("a", &agents[0], promised);
    stage.program("b", &agents[1], promised);
    let mut chance = setting.chance();
    for round in 0..setting.seconds(2, 12).as_secs() {
        let agent = &agents[usize::try_from(round % 2).unwrap()];
        let before = agent.wait_held();
        thread::sleep(chance.millis(0, 1_500));
        go(&stage, before.slot);
        agent.wait_held_if(|held| (held.slot, held.fence) != (before.slot, before.fence));
        stage.healed();
    }
    thread::sleep(stage.ttl);
    stage.finish(&[&agents[0], &agents[1]]);
}

fn lease_edited_to_nonsense(ground: &Ground, setting: Setting) {
    let nonsense = [
        json!({ "metadata": { "annotations": { "cosid.dev/next-floor": "soon" } } }),
        json!({ "spec": { "leaseTransitions": null } }),
        json!({ "metadata": { "annotations": { "cosid.dev/ceiling": "-1" } } }),
    ];
    let mut stage = Stage::set(ground, setting, 5, 3);
    let agent = stage.agent("web-0");
    stage.program("a", &agent, moves_within(stage.ttl));
    let mut chance = setting.chance();
    for patch in nonsense.iter().take(usize::try_from(setting.seconds(2, 3).as_secs()).unwrap()) {
        let before = agent.wait_held();
        thread::sleep(chance.millis(200, 1_500));
        stage.space.change_lease(POOL, before.slot, patch);
        stage.give_up(before.slot);
        agent.wait_held_if(|held| held.slot != before.slot);
        stage.healed();
    }
    thread::sleep(stage.ttl);
    stage.finish(&[&agent]);
}

fn all_leases_deleted(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 8, 3);
    let agents = ["web-0", "web-1", "web-2", "web-3"].map(|pod| stage.agent(pod));
    let promised = moves_within(stage.ttl);
    for (number, agent) in agents.iter().enumerate() {
        stage.program(&format!("p{number}"), agent, promised);
    }
    let mut chance = setting.chance();
    for _ in 0..setting.seconds(1, 4).as_secs() {
        let before = agents.each_ref().map(|agent| agent.wait_held().fence);
        thread::sleep(chance.millis(300, 3_000));
        let leases = stage.space.leases();
        stage
            .space
            .block_on(leases.delete_collection(&DeleteParams::default(), &ListParams::default()))
            .unwrap();
        for (agent, fence) in agents.iter().zip(before) {
            agent.wait_held_if(|held| held.fence > fence);
        }
        stage.healed();
        thread::sleep(moves_within(stage.ttl));
    }
    stage.finish(&agents.each_ref());
}

/// It waits for its holder; made again, it goes on above what that one used.
fn pool_deleted_with_holders(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 2, 3);
    let mut holder = stage.agent("web-0");
    stage.program("a", &holder, SLACK);
    for round in 0..setting.seconds(1, 4).as_secs() {
        stage.space.delete_pool(POOL);
        holder.wait_renewed();
        thread::sleep(stage.ttl);
        assert!(stage.space.has_pool(POOL), "it is gone under its holder");
        stage.end(&["a".to_owned(), format!("a{round}")][usize::from(round > 0)]);
        holder.terminate();
        let gone = || Ok((!stage.space.has_pool(POOL)).then_some(()));
        until(|| "the pool stays".into(), PATIENCE, gone).unwrap();
        stage.space.pool(POOL, 2, 3);
        holder = stage.agent(&format!("next-{round}"));
        stage.program(&format!("a{}", round + 1), &holder, SLACK);
    }
    thread::sleep(stage.ttl);
    stage.finish(&[&holder]);
}

/// Its finalizer is taken away, so that it goes under its holders; then there is another of its name. The holders go on as
/// long as their Leases are there, which a garbage collector takes some time later.
fn pool_torn_out_and_made_again(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 8, 3);
    let agents = [stage.agent("web-0"), stage.agent("web-1")];
    let promised = moves_within(stage.ttl);
    stage.program("a", &agents[0], promised);
    stage.program("b", &agents[1], promised);
    let mut chance = setting.chance();
    let mut newcomers = Vec::new();
    for round in 0..setting.seconds(1, 3).as_secs() {
        let before = agents.each_ref().map(|agent| agent.wait_held());
        thread::sleep(chance.millis(0, 1_500));
        stage.space.delete_pool(POOL);
        let off = json!({ "metadata": { "finalizers": null } });
        let pools = stage.space.pools();
        // The controller may have been first.
        let _ = stage.space.block_on(pools.patch(POOL, &PatchParams::default(), &Patch::Merge(&off)));
        let gone = || Ok((!stage.space.has_pool(POOL)).then_some(()));
        until(|| "the pool stays".into(), PATIENCE, gone).unwrap();
        stage.space.pool(POOL, 8, 3);
        let name = format!("new-{round}");
        let newcomer = stage.agent(&name);
        stage.program(&name, &newcomer, moves_within(stage.ttl));
        newcomers.push(newcomer);
        for (agent, before) in agents.iter().zip(&before) {
            let _ = agent.wait_renewed();
            assert_eq!(agent.wait_held().fence, before.fence);
        }
        let leases = stage.space.leases();
        for held in &before {
            let name = format!("{POOL}-{}", held.slot);
            stage.space.block_on(leases.delete(&name, &DeleteParams::default())).unwrap();
        }
        for (agent, before) in agents.iter().zip(before) {
            agent.wait_held_if(|held| (held.slot, held.fence) != (before.slot, before.fence));
        }
        stage.healed();
        thread::sleep(moves_within(stage.ttl));
    }
    let living: Vec<_> = agents.iter().chain(&newcomers).collect();
    stage.finish(&living);
}

/// The token's file is replaced, and the old token is worth nothing any more.
fn token_rotated(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 2, 3);
    let token = stage.space.dir.join("token");
    fs::write(&token, stage.space.token("web-0")).unwrap();
    let launch = stage.space.launch_with_token_file("web-0", &token).args(&["--pool", POOL]);
    let agent = launch.start(&stage.space.dir.join("web-0"));
    let held = agent.wait_held();
    stage.program("a", &agent, SLACK);
    let mut chance = setting.chance();
    for number in 0..setting.seconds(2, 6).as_secs() {
        thread::sleep(chance.millis(0, 1_500));
        fs::write(&token, stage.space.token(&format!("web-{}", number + 1))).unwrap();
        stage.space.delete_pod(&format!("web-{number}"));
        stage.healed();
        agent.wait_renewed();
    }
    let after = agent.wait_held();
    assert_eq!((held.slot, held.fence), (after.slot, after.fence));
    stage.finish(&[&agent]);
}

/// No room under page and state file: what is held goes on, and a slot that is lost has no successor until there is some.
fn disk_full(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 3, 3);
    let Some(disk) = Disk::mount(stage.space.dir.join("web-0"), "256k") else { return };
    let mut agent = stage.agent("web-0");
    stage.program("a", &agent, SLACK);
    disk.fill(0);
    thread::sleep(stage.ttl * 2);
    stage.healed();
    agent.kill_and_restart();
    let before = agent.wait_held();
    let begun = Instant::now();
    stage.space.force_delete_lease(POOL, before.slot);
    agent.wait_for_state("blocked", "No space left on device");
    thread::sleep(setting.seconds(1, 5));
    disk.free();
    stage.healed();
    stage.owe("a", begun.elapsed() + moves_within(stage.ttl));
    agent.wait_held_if(|held| held.slot != before.slot || held.fence > before.fence);
    stage.wait_until("a", "moved");
    thread::sleep(Duration::from_secs(1));
    stage.finish(&[&agent]);
}
