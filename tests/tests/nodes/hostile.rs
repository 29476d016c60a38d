//! A pod that uses its own agent's token for what is another's.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use cosid_kube::codec::{self, CEILING, FLOOR, INCARNATION, NEXT_FLOOR, POD_UID};
use cosid_lease::{Millis, Owner, Record, Terms, algebra};
use cosid_tests::pods::{App, PodGround};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::ordinals::node_of;
use super::{Case, Needs};

pub(super) const CASES: &[Case] =
    &[("a_pods_own_token_can_do_nothing_to_another_pods_slot", Needs::OwnNodes, hostile)];

/// What is tried: a name, the verb, whose Lease (`orders-0` is the victim's, `orders-2` is free), how it is changed, and what
/// the refusal says.
type Attempt = (&'static str, &'static str, &'static str, fn(Lease, &Scene) -> Value, &'static str);

struct Scene {
    victim: String,
    hostile: String,
}

/// The terms of the test's pool.
const TERMS: Terms = Terms { ttl: 60_000, tolerance: 1_000 };

const ATTEMPTS: &[Attempt] = &[
    // As the victim's own agent would write it, but for the caller.
    (
        "acquire a free slot in its name",
        "replace",
        "orders-2",
        |free, on| acquired(&free, "victim", &on.victim),
        BOUND,
    ),
    (
        "acquire a free slot in nobody's name",
        "replace",
        "orders-2",
        |free, _| acquired(&free, "victim", ""),
        BOUND,
    ),
    ("renew it", "replace", "orders-0", |held, on| renewed(&held, &on.victim), "this is a renew by pod"),
    (
        "renew it in one's own name",
        "replace",
        "orders-0",
        |held, on| renewed(&held, &on.hostile),
        "this is a renew by pod",
    ),
    ("release it", "replace", "orders-0", |held, _| released(&held), "this is a release by pod"),
    (
        "take it over before its end",
        "replace",
        "orders-0",
        |held, on| taken(&held, &on.hostile),
        "wait for its expiry",
    ),
    ("write it back as it is", "replace", "orders-0", |held, _| json!(held), "only the slots that it holds"),
    // What no agent would write.
    (
        "shorten its window",
        "replace",
        "orders-0",
        |held, _| with(held, CEILING, "1"),
        "lowers cosid.dev/ceiling",
    ),
    (
        "lower its next floor",
        "replace",
        "orders-0",
        |held, _| with(held, NEXT_FLOOR, "1"),
        "a next floor by itself",
    ),
    (
        "push its next floor away",
        "replace",
        "orders-0",
        |held, _| with(held, NEXT_FLOOR, "9000000000000"),
        "a next floor by itself",
    ),
    ("put its fence back", "replace", "orders-0", |held, _| fenced(held, -1), "moves by 0 or 1"),
    ("push its fence ahead", "replace", "orders-0", |held, _| fenced(held, 7), "moves by 0 or 1"),
    (
        "change its incarnation",
        "replace",
        "orders-0",
        |held, _| with(held, INCARNATION, NOBODY),
        "does not change cosid.dev/incarnation",
    ),
    (
        "take its finalizer off",
        "replace",
        "orders-0",
        |mut held, _| {
            held.metadata.finalizers = None;
            json!(held)
        },
        "takes the finalizer",
    ),
    (
        "take its label off",
        "replace",
        "orders-0",
        |mut held, _| {
            held.metadata.labels = None;
            json!(held)
        },
        "changes the label",
    ),
    ("delete it", "delete", "orders-0", |held, _| json!(held), "cannot delete resource"),
    ("delete a free slot", "delete", "orders-2", |free, _| json!(free), "cannot delete resource"),
    (
        "make a slot",
        "create",
        "orders-0",
        |mut held, _| {
            held.metadata.name = Some("orders-77".into());
            (held.metadata.resource_version, held.metadata.uid) = (None, None);
            json!(held)
        },
        "cannot create resource",
    ),
];

const BOUND: &str = "the caller's token is bound to pod";
const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

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

    for (what, verb, name, change, says) in ATTEMPTS {
        let read = || -> Lease {
            serde_json::from_str(&space.kubectl(&["get", "lease", name, "--output", "json"])).unwrap()
        };
        let (before, why) = space.wait("its holder is always quicker", || {
            let before = read();
            let refused =
                attempt(ground, &kubeconfig, verb, &space.name, name, &change(before.clone(), &scene));
            let Err(why) = refused else { panic!("{what}: was let pass") };
            // The victim has renewed in between: that is no answer.
            (!why.contains("the object has been modified")).then_some((before, why))
        });
        println!("{what:<40} {}", why.split("denied request: ").last().unwrap_or_default().trim_end());
        assert!(why.contains(says), "{what}: {why}");
        assert_eq!(what_counts(&read()), what_counts(&before), "{what}");
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
fn what_counts(lease: &Lease) -> Value {
    let (metadata, spec) = (&lease.metadata, lease.spec.as_ref().unwrap());
    let annotation = |name| metadata.annotations.as_ref().unwrap().get(name);
    json!([
        (&metadata.uid, &metadata.finalizers, &metadata.labels),
        (&spec.holder_identity, spec.lease_transitions),
        (annotation(FLOOR), annotation(INCARNATION), annotation(POD_UID)),
    ])
}

fn record(lease: &Lease) -> Record {
    codec::read(lease).unwrap().unwrap()
}

fn encoded(lease: &Lease, record: &Record, uid: &str) -> Value {
    json!(codec::encode(lease, record, 60, Some(uid)).unwrap())
}

fn now() -> Millis {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

fn acquired(lease: &Lease, pod: &str, uid: &str) -> Value {
    let owner = Owner::new(format!("hostile/{pod}"));
    encoded(lease, &algebra::acquire(&record(lease), &owner, now(), TERMS).unwrap(), uid)
}

fn renewed(lease: &Lease, uid: &str) -> Value {
    let before = record(lease);
    let incarnation = before.holding().unwrap().owner.incarnation;
    encoded(lease, &algebra::renew(&before, incarnation, before.fence, now() + 1_000, TERMS).unwrap(), uid)
}

fn released(lease: &Lease) -> Value {
    let before = record(lease);
    let holding = before.holding().unwrap();
    let after = algebra::release(&before, holding.owner.incarnation, before.fence, holding.floor).unwrap();
    json!(codec::encode(lease, &after, 60, None).unwrap())
}

/// By somebody who says that it is later than it is, but for the time of the acquisition: that is looked at.
fn taken(lease: &Lease, uid: &str) -> Value {
    let before = record(lease);
    let owner = Owner::new("hostile/hostile");
    let expired = before.holding().unwrap().expires_at;
    let after = algebra::acquire(&before, &owner, expired, TERMS).unwrap();
    let mut lease = codec::encode(lease, &after, 60, Some(uid)).unwrap();
    let spec = lease.spec.as_mut().unwrap();
    spec.acquire_time = Some(MicroTime(Timestamp::from_millisecond(now().try_into().unwrap()).unwrap()));
    json!(lease)
}

fn with(mut lease: Lease, annotation: &str, value: &str) -> Value {
    lease.metadata.annotations.as_mut().unwrap().insert(annotation.into(), value.into());
    json!(lease)
}

fn fenced(mut lease: Lease, by: i32) -> Value {
    let spec = lease.spec.as_mut().unwrap();
    spec.lease_transitions = spec.lease_transitions.map(|fence| fence + by);
    json!(lease)
}
