//! The controller, the API server and etcd die, stop, or say no.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cosid_tests::ground::Ground;
use cosid_tests::http::PATIENCE;
use k8s_openapi::ByteString;
use kube::api::DeleteParams;
use rustix::process::Signal;
use serde_json::{Value, json};
use xtask::programs::until;

use crate::refuser;
use crate::stage::{POOL, SLACK, Setting, Stage, TOLERANCE, back_within};
use crate::{Drill, Needs};

pub const DRILLS: &[Drill] = &[
    ("api_server_answers_429", Needs::ApiServer, api_server_answers_429),
    ("api_server_answers_500", Needs::ApiServer, api_server_answers_500),
    ("api_server_killed", Needs::OwnApiServer, api_server_killed),
    ("etcd_killed", Needs::OwnApiServer, etcd_killed),
    ("etcd_restored", Needs::OwnApiServer, etcd_restored),
    ("controller_killed", Needs::OwnApiServer, controller_killed),
    ("controller_stopped", Needs::OwnApiServer, controller_stopped),
];

/// How long a controller that died is waited for by the next one.
const LEADER_TTL: Duration = Duration::from_secs(15);

/// Killed at random points, and back some time later.
fn api_server_killed(ground: &Ground, setting: Setting) {
    goes_away(ground, setting, |ground, how_long| {
        ground.cluster.kill_apiserver().unwrap();
        thread::sleep(how_long);
        ground.cluster.start_apiserver().unwrap();
    });
}

/// The same for etcd, whose data stay.
fn etcd_killed(ground: &Ground, setting: Setting) {
    goes_away(ground, setting, |ground, how_long| {
        ground.cluster.kill_etcd().unwrap();
        thread::sleep(how_long);
        ground.cluster.start_etcd().unwrap();
    });
}

/// Restored from a backup that does not know a holder: it is noticed, holders go on, newcomers are refused until
/// `kubectl cosid recover`.
fn etcd_restored(ground: &Ground, setting: Setting) {
    let mut stage = Stage::set(ground, setting, 6, 6);
    // Pods that were made after the backup are not in it: these are made before.
    let launches = ["later", "newcomer"].map(|pod| (pod, stage.space.launch(pod).args(&["--pool", POOL])));
    let [later, newcomer] = launches.map(|(pod, launch)| move |dir: &Path| launch.start(&dir.join(pod)));
    let first = [stage.agent("web-0"), stage.agent("web-1")];
    stage.program("a", &first[0], SLACK);
    stage.program("b", &first[1], SLACK);
    ground.cluster.back_up_etcd().unwrap();
    let later = later(&stage.space.dir);
    let held = later.wait_held();
    stage.program("c", &later, SLACK);
    thread::sleep(setting.seconds(1, 20));

    let took = stage.fault(|| ground.cluster.restore_etcd().unwrap());
    stage.store_went_back();
    for name in ["a", "b", "c"] {
        stage.owe(name, took + back_within(stage.ttl));
    }
    let how = stage.space.wait_true(POOL, "StoreRegressed");
    let newcomer = newcomer(&stage.space.dir);
    newcomer.wait_for_state("refused", "StoreRegressed");
    later.wait_for_log("StoreRegressed: slot");
    let after = later.wait_held();
    assert_eq!((after.slot, after.fence), (held.slot, held.fence), "{how}");
    let recovered: Value =
        serde_json::from_str(&stage.space.recover(POOL, &["--yes", "-o", "json"])).unwrap();
    assert!(newcomer.wait_held().floor >= recovered["barrier"].as_u64().unwrap(), "{recovered}");
    stage.program("d", &newcomer, back_within(stage.ttl));
    thread::sleep(stage.ttl);
    stage.finish(&[&first[0], &first[1], &later, &newcomer]);
}

/// Those with long leases notice nothing; a short one's IDs stop at its ceiling and go on after it.
fn goes_away(ground: &Ground, setting: Setting, go: impl Fn(&Ground, Duration)) {
    let mut stage = Stage::set(ground, setting, 4, 6);
    let mut chance = setting.chance();
    let agents = [stage.agent("web-0"), stage.agent("web-1")];
    stage.program("a", &agents[0], SLACK);
    stage.program("b", &agents[1], SLACK);
    let mut longest = Duration::ZERO;
    for _ in 0..setting.seconds(1, 4).as_secs() {
        thread::sleep(chance.millis(0, 3_000));
        let how_long = chance.millis(0, setting.seconds(3, 9).as_secs() * 1_000);
        longest = longest.max(stage.fault(|| go(ground, how_long)));
        for name in ["a", "b"] {
            stage.owe(name, longest + back_within(stage.ttl));
        }
        for agent in &agents {
            let _ = agent.wait_renewed();
        }
        thread::sleep(stage.ttl / 2);
    }
    stage.finish(&[&agents[0], &agents[1]]);
}

/// A webhook refuses every update of a Lease with 429.
fn api_server_answers_429(ground: &Ground, setting: Setting) {
    let address = refuser::start(&ground.cluster, 429, "the drill has had enough");
    let ca = ByteString(fs::read(ground.cluster.ca()).unwrap());
    let client = json!({ "url": format!("https://{address}/"), "caBundle": ca });
    says_no(ground, setting, "drill-429", &client, "the drill has had enough");
}

/// A webhook that nobody serves and that may not be passed by: every update of a Lease fails with 500.
fn api_server_answers_500(ground: &Ground, setting: Setting) {
    let client = json!({ "url": "https://127.0.0.1:1/" });
    says_no(ground, setting, "drill-500", &client, "failed calling webhook");
}

fn webhook(name: &str, client: &Value, space: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": name },
        "webhooks": [{
            "name": format!("{name}.cosid.dev"), "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 1, "clientConfig": client,
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": space } },
            "rules": [{ "operations": ["*"], "apiGroups": ["coordination.k8s.io"],
                        "apiVersions": ["v1"], "resources": ["leases"] }],
        }],
    })
}

/// No agent gets through, for longer than a lease lives: their IDs stop at the ceiling, and go on with the same slots.
fn says_no(ground: &Ground, setting: Setting, name: &str, client: &Value, logged: &str) {
    let mut stage = Stage::set(ground, setting, 3, 3);
    let agents = [stage.agent("web-0"), stage.agent("web-1")];
    let held = agents.each_ref().map(|agent| agent.wait_held());
    stage.program("a", &agents[0], SLACK);
    stage.program("b", &agents[1], SLACK);
    let file = stage.space.dir.join("webhook.json");
    fs::write(&file, webhook(name, client, &stage.space.name).to_string()).unwrap();
    let refused = stage.fault(|| {
        ground.cluster.kubectl(&["apply", "--filename", file.to_str().unwrap()]).unwrap();
        agents.iter().for_each(|agent| agent.wait_for_log(logged));
        thread::sleep(setting.seconds(6, 15));
        ground.cluster.kubectl(&["delete", "validatingwebhookconfigurations", name]).unwrap();
    });
    // What was deleted is forgotten by the API server some time later: it is over when it lets them through.
    let over = Instant::now();
    for agent in &agents {
        let _ = agent.wait_renewed();
    }
    for name in ["a", "b"] {
        stage.owe(name, refused + over.elapsed() + back_within(stage.ttl));
    }
    thread::sleep(stage.ttl);
    for (agent, held) in agents.iter().zip(held) {
        let after = agent.wait_held();
        assert_eq!((after.slot, after.fence), (held.slot, held.fence));
    }
    stage.finish(&[&agents[0], &agents[1]]);
}

/// Killed at random points while somebody deletes Leases, which it has to make again.
fn controller_killed(ground: &Ground, setting: Setting) {
    while_leases_go(ground, setting, |stage, chance_of| {
        thread::sleep(chance_of);
        stage.space.ground.replace_controller();
    });
}

/// Stopped for longer than it leads, while another one leads; then both are there.
fn controller_stopped(ground: &Ground, setting: Setting) {
    while_leases_go(ground, setting, |stage, chance_of| {
        thread::sleep(chance_of);
        stage.space.ground.signal_controller(Signal::STOP);
        let second = stage.space.ground.second_controller();
        thread::sleep(LEADER_TTL + Duration::from_secs(2));
        stage.space.ground.signal_controller(Signal::CONT);
        thread::sleep(Duration::from_secs(2));
        drop(second);
    });
}

fn while_leases_go(ground: &Ground, setting: Setting, disturb: impl Fn(&Stage<'_>, Duration)) {
    let mut stage = Stage::set(ground, setting, 12, 3);
    let mut chance = setting.chance();
    let agents = ["web-0", "web-1", "web-2"].map(|pod| stage.agent(pod));
    // There are slots enough for those who lose theirs.
    let promised = stage.ttl + TOLERANCE + back_within(stage.ttl);
    for (number, agent) in agents.iter().enumerate() {
        stage.program(&format!("p{number}"), agent, promised);
    }
    for _ in 0..setting.seconds(2, 6).as_secs() {
        let slot = chance.below(12);
        let (leases, name) = (stage.space.leases(), format!("{POOL}-{slot}"));
        // One that is gone already is about to be made.
        let _ = stage.space.block_on(leases.delete(&name, &DeleteParams::default()));
        disturb(&stage, chance.millis(0, 400));
        stage.healed();
        let all = || {
            let list = stage.space.block_on(leases.list(&Default::default())).map(|list| list.items);
            let whole = list.unwrap_or_default().iter().filter(|lease| is_open(lease)).count();
            Ok((whole == 12).then_some(()))
        };
        until(|| "not all Leases are there again".into(), PATIENCE + LEADER_TTL, all).unwrap();
    }
    thread::sleep(stage.ttl);
    stage.finish(&agents.each_ref());
}

fn is_open(lease: &k8s_openapi::api::coordination::v1::Lease) -> bool {
    cosid_kube::codec::decode(lease, POOL).record().is_some()
}
