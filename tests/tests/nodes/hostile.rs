//! A pod that uses its own agent's token for what is another's.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use cosid_kube::codec::{CEILING, FLOOR, INCARNATION, NEXT_FLOOR, POD_UID};
use cosid_tests::pods::{App, PodGround};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::ordinals::node_of;
use super::{Case, Needs};

pub(super) const CASES: &[Case] =
    &[("a_pods_own_token_can_do_nothing_to_another_pods_slot", Needs::OwnNodes, hostile)];

/// What is tried: a name, the verb, whose Lease (`orders-0` is the victim's, `orders-2` is free), and how it is changed.
type Attempt = (&'static str, &'static str, &'static str, fn(&mut Value, &Scene));

struct Scene {
    victim: String,
    hostile: String,
}

const ATTEMPTS: &[Attempt] = &[
    ("acquire a free slot in its name", "replace", "orders-2", |lease, scene| {
        hold(lease, "victim", &scene.victim)
    }),
    ("acquire a free slot in nobody's name", "replace", "orders-2", |lease, _| hold(lease, "victim", "")),
    ("take its slot over, its floor lowered", "replace", "orders-0", |lease, scene| {
        hold(lease, "hostile", &scene.hostile);
        lease["metadata"]["annotations"][FLOOR] = "1".into();
    }),
    ("renew it", "replace", "orders-0", |lease, _| later(lease, CEILING)),
    ("renew it in one's own name", "replace", "orders-0", |lease, scene| {
        later(lease, CEILING);
        lease["metadata"]["annotations"][POD_UID] = scene.hostile.as_str().into();
    }),
    ("release it", "replace", "orders-0", |lease, _| {
        lease["spec"]["holderIdentity"] = "".into();
        fence(lease, 1);
    }),
    ("shorten its window", "replace", "orders-0", |lease, _| {
        lease["metadata"]["annotations"][CEILING] = "1".into();
    }),
    ("lower its next floor", "replace", "orders-0", |lease, _| {
        lease["metadata"]["annotations"][NEXT_FLOOR] = "1".into();
    }),
    ("push its next floor away", "replace", "orders-0", |lease, _| later(lease, NEXT_FLOOR)),
    ("put its fence back", "replace", "orders-0", |lease, _| fence(lease, -1)),
    ("push its fence ahead", "replace", "orders-0", |lease, _| fence(lease, 7)),
    ("take its finalizer off", "replace", "orders-0", |lease, _| {
        lease["metadata"]["finalizers"] = json!([]);
    }),
    ("take its label off", "replace", "orders-0", |lease, _| {
        lease["metadata"]["labels"] = json!({});
    }),
    ("change its incarnation", "replace", "orders-0", |lease, _| {
        lease["metadata"]["annotations"][INCARNATION] = "00000000-0000-4000-8000-000000000000".into();
    }),
    ("delete it", "delete", "orders-0", |_, _| {}),
    ("delete a free slot", "delete", "orders-2", |_, _| {}),
    ("make a slot", "create", "orders-0", |lease, _| {
        let metadata = lease["metadata"].as_object_mut().unwrap();
        metadata.retain(|name, _| name != "resourceVersion" && name != "uid");
        metadata.insert("name".into(), "orders-77".into());
    }),
];

fn hostile(ground: &PodGround) {
    let space = ground.space("hostile", 4, 60);
    space.run_pod("victim", &App::new("0"));
    space.run_pod("hostile", &App::new("1"));
    let pod = |name: &str| space.wait_ready(name, 1).remove(name).unwrap();
    let (victim, hostile) = (pod("victim"), pod("hostile"));
    space.wait_says("victim", "started");
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap();
    let scene = Scene { victim: uid(&victim), hostile: uid(&hostile) };
    // The very token that the kubelet gave its agent, off the node's disk.
    let cluster = ground.cluster();
    let file =
        format!("/var/lib/kubelet/pods/{}/volumes/kubernetes.io~projected/cosid-token/token", scene.hostile);
    let token = cluster.run_on_node(&node_of(&hostile), "cat", &[&file]).unwrap();
    let kubeconfig = cluster.kubeconfig_with_token("hostile", token.trim()).unwrap();

    for (what, verb, name, change) in ATTEMPTS {
        let read = || -> Value {
            serde_json::from_str(&space.kubectl(&["get", "lease", name, "--output", "json"])).unwrap()
        };
        let (before, why) = space.wait("its holder is always quicker", || {
            let mut lease = read();
            let before = what_counts(&lease);
            change(&mut lease, &scene);
            let refused = attempt(ground, &kubeconfig, verb, &space.name, name, &lease);
            let Err(why) = refused else { panic!("{what}: was let pass") };
            // The victim has renewed in between: that is no answer.
            (!why.contains("the object has been modified")).then_some((before, why))
        });
        println!("{what:<40} {}", why.lines().last().unwrap_or_default());
        let refusal = ["denied request", "forbidden: User"];
        assert!(refusal.iter().any(|word| why.contains(word)), "{what}: {why}");
        assert_eq!(what_counts(&read()), before, "{what}");
    }
    // What it may do: read them, and keep its own.
    let own = space.kubectl(&["get", "lease", "orders-1", "--output", "json"]);
    attempt(ground, &kubeconfig, "replace", &space.name, "orders-1", &serde_json::from_str(&own).unwrap())
        .unwrap();
    let _ = space.kubectl(&["delete", "pod", "victim", "hostile"]);
    space.wait_gone("victim");
    space.wait_gone("hostile");
    space.count();
}

/// Does it with the token's kubeconfig.
fn attempt(
    ground: &PodGround,
    kubeconfig: &Path,
    verb: &str,
    namespace: &str,
    name: &str,
    lease: &Value,
) -> Result<(), String> {
    let mut command: Command = ground.cluster().kubectl_command(kubeconfig);
    command.args([verb, "--namespace", namespace]);
    match verb {
        "delete" => command.args(["lease", name]),
        _ => command.args(["--filename", "-"]),
    };
    let mut kubectl =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    kubectl.stdin.take().unwrap().write_all(lease.to_string().as_bytes()).unwrap();
    let output = kubectl.wait_with_output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// What a renewal leaves alone.
fn what_counts(lease: &Value) -> Value {
    let annotations = &lease["metadata"]["annotations"];
    json!([
        lease["metadata"]["uid"],
        lease["metadata"]["finalizers"],
        lease["metadata"]["labels"],
        lease["spec"]["holderIdentity"],
        lease["spec"]["leaseTransitions"],
        annotations[FLOOR],
        annotations[INCARNATION],
        annotations[POD_UID],
    ])
}

fn hold(lease: &mut Value, pod: &str, uid: &str) {
    let floor = lease["metadata"]["annotations"][NEXT_FLOOR].clone();
    lease["spec"]["holderIdentity"] = format!("hostile/{pod}").into();
    lease["spec"]["leaseDurationSeconds"] = 60.into();
    lease["spec"]["acquireTime"] = "2026-01-01T00:00:00.000000Z".into();
    lease["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z".into();
    fence(lease, 1);
    let annotations = &mut lease["metadata"]["annotations"];
    annotations[FLOOR] = floor.clone();
    annotations[CEILING] = floor;
    annotations[INCARNATION] = "00000000-0000-4000-8000-000000000001".into();
    annotations[POD_UID] = uid.into();
}

fn fence(lease: &mut Value, by: i64) {
    let fence = lease["spec"]["leaseTransitions"].as_i64().unwrap();
    lease["spec"]["leaseTransitions"] = (fence + by).into();
}

fn later(lease: &mut Value, annotation: &str) {
    let value: u64 = lease["metadata"]["annotations"][annotation].as_str().unwrap().parse().unwrap();
    lease["metadata"]["annotations"][annotation] = (value + 60_000).to_string().into();
}
