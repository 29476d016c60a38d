//! The demo in real pods, on two nodes: a pool, a Job of six pods with the annotation, and what nodes and kubelets do to
//! them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::containers::{self, AGENT, APP_VARIABLE};
use crate::demo::{CLIENTS, IDS_EACH, Narrator, PATIENCE, POOL, RATE, TTL_SECONDS, counted};
use crate::installed::Installed;
use crate::programs::{self, until};
use crate::{Error, Result, images, paths};

const NAMESPACE: &str = "shop";

/// Where the apps write their IDs, below a node's `/var/lib`.
const DISK: &str = "cosid-ids";

/// How often the cluster is asked for what can't be waited for: each time is a process of kubectl.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// The pool's slot that a pod holds, and under which fence.
type Seat = (u64, u64);

pub(super) fn play(tell: &Narrator) -> Result<()> {
    let installed = Installed::start(None, &[])?;
    let stage = Stage { tell, installed: &installed };
    tell.say("Kubernetes runs, with two nodes; the chart is installed: helm install cosid charts/cosid -n cosid-system");
    let cluster = stage.cluster()?;
    stage.kubectl(&["create", "namespace", NAMESPACE])?;
    let pool = paths::workspace().join("examples/slotpool.yaml");
    stage.kubectl(&["apply", "-f", &pool.to_string_lossy()])?;
    let ttl = format!(r#"{{"spec":{{"ttlSeconds":{TTL_SECONDS}}}}}"#);
    stage.kubectl(&["patch", "slotpool", POOL, "--type=merge", "-p", &ttl])?;
    stage.kubectl(&["wait", "--for=condition=Ready", &format!("slotpool/{POOL}"), "--timeout=60s"])?;
    tell.say(format!(
        "kubectl apply -f examples/slotpool.yaml (its ttl made {TTL_SECONDS} s, so that you need not wait)"
    ));
    stage.apply(&job())?;
    tell.say(format!("applied a Job of {CLIENTS} pods with `cosid/slot: auto`; each makes {IDS_EACH} IDs"));
    let pods = stage.started()?;
    for line in stage.kubectl(&["get", "pods", "-o", "wide"])?.lines() {
        println!("          {}", line.split("<none>").next().unwrap_or(line).trim_end());
    }

    let on = |node: &str| pods.iter().filter(|pod| pod.node == node).collect::<Vec<_>>();
    let (first, second) = (on("node1"), on("node2"));
    let ([one, other, ..], [lost, ..]) = (&first[..], &second[..]) else {
        return Err(Error::Wrong(format!("the pods are not on both nodes: {pods:?}")));
    };
    stage.agent_is_killed(one)?;
    stage.app_is_killed(other)?;
    stage.node_is_cut_off(cluster, lost)?;

    tell.say("the pods make the rest of their IDs");
    stage.kubectl(&["wait", "--for=condition=Complete", "job/orders", "--timeout=120s"])?;
    stage.kubectl(&["wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/newcomer", "--timeout=60s"])?;
    stage.show_slots()?;
    let files = |node: &str| files(cluster.node_disk(node).join(DISK).join(NAMESPACE));
    let count = counted(&[files("node1")?, files("node2")?].concat())?;
    tell.say("the Job is complete; its slots are free, at the exact timestamps of the last IDs made on them");
    println!("{count}");
    Ok(())
}

/// What the acts have in common.
struct Stage<'a> {
    tell: &'a Narrator,
    installed: &'a Installed,
}

/// A pod of the Job.
#[derive(Debug)]
struct Actor {
    name: String,
    uid: String,
    node: String,
}

impl Stage<'_> {
    /// kubelet starts a container again whose agent was killed: same slot, same fence.
    fn agent_is_killed(&self, pod: &Actor) -> Result<()> {
        let seat = self.seat(pod)?;
        self.kill(pod, AGENT)?;
        self.tell.say(format!("the agent of {} is killed (kill -9)", pod.name));
        self.restarted(pod, "initContainerStatuses")?;
        let again = self.seat(pod)?;
        if again != seat {
            return Err(Error::Wrong(format!("{} had {seat:?} and has {again:?}", pod.name)));
        }
        self.tell.say(format!(
            "the kubelet has started it again: slot {} under fence {}, as before; its app never stopped",
            again.0, again.1
        ));
        Ok(())
    }

    /// An app that was killed is started again, and goes on with the pod's slot.
    fn app_is_killed(&self, pod: &Actor) -> Result<()> {
        let seat = self.seat(pod)?;
        self.kill(pod, "app")?;
        self.tell.say(format!("the app in {} is killed (kill -9)", pod.name));
        self.restarted(pod, "containerStatuses")?;
        let again = self.seat(pod)?;
        if again != seat {
            return Err(Error::Wrong(format!("{} had {seat:?} and has {again:?}", pod.name)));
        }
        self.tell.say(format!("it is started again and goes on with slot {}", again.0));
        Ok(())
    }

    /// A node that is cut off: its pods stop at their ceiling, a slot of theirs goes to another, they get new ones.
    fn node_is_cut_off(&self, cluster: &Cluster, pod: &Actor) -> Result<()> {
        let (slot, fence) = self.seat(pod)?;
        self.apply(&newcomer(slot))?;
        cluster.cut_node(&pod.node)?;
        self.tell.say(format!("the cable of {} is pulled: its pods run on, but can't renew", pod.node));
        // Nobody can ask them now; what they write is on the node's disk.
        let log = format!("/var/log/pods/{NAMESPACE}_{}_{}/app/0.log", pod.name, pod.uid);
        let refused = || {
            let log = cluster.run_on_node(&pod.node, "cat", &[&log])?;
            Ok(log.lines().any(|line| line.contains(r#""event":"refused""#)).then_some(()))
        };
        until(|| format!("{} goes on without a lease", pod.name), PATIENCE, refused)?;
        self.tell.say(format!("{} reaches its ceiling and is refused", pod.name));
        let holder = || {
            let lease = self.lease(slot)?;
            let taken = lease["spec"]["holderIdentity"] == format!("{NAMESPACE}/newcomer");
            let now = lease["spec"]["leaseTransitions"].as_u64().unwrap_or(0);
            thread::sleep(ASK_EVERY);
            Ok((taken && now > fence).then_some(now))
        };
        let now = until(|| format!("the newcomer does not get slot {slot}"), PATIENCE, holder)?;
        self.tell.say(format!("slot {slot} has expired and goes to a newcomer under fence {now}"));
        cluster.join_node(&pod.node)?;
        let moved = || {
            let seat = self.seats()?.remove(&pod.name);
            thread::sleep(ASK_EVERY);
            Ok(seat.filter(|seat| seat.0 != slot))
        };
        let (slot, _) = until(|| format!("{} gets no other slot", pod.name), PATIENCE, moved)?;
        self.tell.say(format!(
            "the cable is back: {} finds its slot lost, gets slot {slot}, and goes on there",
            pod.name
        ));
        Ok(())
    }

    /// The pods of the Job, once all of them make IDs.
    fn started(&self) -> Result<Vec<Actor>> {
        let look = || {
            let list = self.json(&["get", "pods", "-l", "job-name=orders"])?;
            thread::sleep(ASK_EVERY);
            let pods: Vec<Actor> =
                list["items"].as_array().into_iter().flatten().filter_map(Actor::of).collect();
            Ok((pods.len() as u64 == CLIENTS).then_some(pods))
        };
        until(|| "the pods do not start: kubectl describe pods".into(), PATIENCE, look)
    }

    fn kill(&self, pod: &Actor, container: &str) -> Result<()> {
        let gone = || Error::Wrong(format!("{container} of {} does not run", pod.name));
        let pid = containers::process(&pod.uid, container).and_then(Pid::from_raw).ok_or_else(gone)?;
        kill_process(pid, Signal::KILL).map_err(|error| Error::io("kill a process")(error.into()))
    }

    /// Waits until the first container of a kind has been started again, and works.
    fn restarted(&self, pod: &Actor, kind: &str) -> Result<()> {
        let look = || {
            let status = &self.json(&["get", "pod", &pod.name])?["status"][kind][0];
            thread::sleep(ASK_EVERY);
            let again = status["restartCount"].as_u64() >= Some(1) && status["ready"] == true;
            Ok(again.then_some(()))
        };
        until(|| format!("{} is not started again", pod.name), PATIENCE, look)
    }

    fn seat(&self, pod: &Actor) -> Result<Seat> {
        let none = || Error::Wrong(format!("{} holds no slot", pod.name));
        self.seats()?.remove(&pod.name).ok_or_else(none)
    }

    fn seats(&self) -> Result<std::collections::BTreeMap<String, Seat>> {
        let leases = self.json(&["get", "leases", "-l", &format!("cosid.dev/pool={POOL}")])?;
        let seat = |lease: &Value| {
            let pod = lease["spec"]["holderIdentity"].as_str()?.strip_prefix(NAMESPACE)?.strip_prefix('/')?;
            let slot = lease["metadata"]["name"].as_str()?.rsplit_once('-')?.1.parse().ok()?;
            Some((pod.to_owned(), (slot, lease["spec"]["leaseTransitions"].as_u64()?)))
        };
        Ok(leases["items"].as_array().into_iter().flatten().filter_map(seat).collect())
    }

    fn lease(&self, slot: u64) -> Result<Value> {
        self.json(&["get", "lease", &format!("{POOL}-{slot}")])
    }

    fn show_slots(&self) -> Result<()> {
        self.tell.say("kubectl get slotpools,pods");
        print!("{}", self.kubectl(&["get", "slotpools,pods"])?);
        self.tell.say(format!("kubectl cosid slots {POOL}"));
        let mut command = Command::new(programs::path("kubectl-cosid")?);
        command.args(["slots", POOL, "-n", NAMESPACE, "--kubeconfig"]).arg(self.cluster()?.kubeconfig());
        let output = command.output().map_err(Error::io("start kubectl-cosid"))?;
        print!("{}", String::from_utf8_lossy(&output.stdout));
        match output.status.success() {
            true => Ok(()),
            false => Err(Error::Wrong(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }

    fn cluster(&self) -> Result<&Cluster> {
        self.installed.cluster().ok_or_else(|| Error::Setup("the demo needs nodes of its own".into()))
    }

    fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.installed.admin.kubectl(&[&["-n", NAMESPACE], args].concat())
    }

    fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[args, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).map_err(|error| Error::Wrong(format!("kubectl's answer: {error}")))
    }

    fn apply(&self, object: &Value) -> Result<()> {
        let dir = tempfile::tempdir().map_err(Error::io("make a directory"))?;
        let file = dir.path().join("object.json");
        fs::write(&file, object.to_string()).map_err(Error::io("write an object"))?;
        self.kubectl(&["apply", "-f", &file.to_string_lossy()]).map(drop)
    }
}

impl Actor {
    /// A pod whose app runs.
    fn of(pod: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        (pod["status"]["containerStatuses"][0]["ready"] == true).then_some(())?;
        Some(Self {
            name: text(&pod["metadata"]["name"])?,
            uid: text(&pod["metadata"]["uid"])?,
            node: text(&pod["spec"]["nodeName"])?,
        })
    }
}

/// Six pods, in which the app starts again where it was.
fn job() -> Value {
    let mut pod = pod("auto", (IDS_EACH, RATE), "$(JOB_COMPLETION_INDEX)");
    pod["spec"]["restartPolicy"] = "OnFailure".into();
    // Three on each node.
    pod["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "job-name": "orders" } },
    }]);
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "orders" },
        "spec": {
            "completions": CLIENTS, "parallelism": CLIENTS, "completionMode": "Indexed", "template": pod,
        },
    })
}

/// A pod that wants one slot and no other, on the node that is not lost.
fn newcomer(slot: u64) -> Value {
    // Slow enough to be seen.
    let mut pod = pod(&slot.to_string(), (10_000, 2_000), "newcomer");
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "newcomer".into();
    pod["spec"]["restartPolicy"] = "OnFailure".into();
    pod["spec"]["nodeName"] = "node1".into();
    pod
}

fn pod(slot: &str, (count, rate): (u64, u64), file: &str) -> Value {
    let out = format!("--out=/ids/{NAMESPACE}/{file}.ids");
    json!({
        "metadata": { "annotations": { "cosid/slot": slot } },
        "spec": {
            "automountServiceAccountToken": false,
            "volumes": [{
                "name": "ids",
                "hostPath": { "path": format!("/var/lib/{DISK}"), "type": "DirectoryOrCreate" },
            }],
            "containers": [{
                "name": "app",
                "image": images::name("cosid-ids"),
                "args": [format!("--count={count}"), format!("--rate={rate}"), "--resume", out],
                "securityContext": { "runAsUser": 0 },
                "env": [
                    { "name": "APP_UID", "valueFrom": { "fieldRef": { "fieldPath": "metadata.uid" } } },
                    { "name": APP_VARIABLE, "value": "$(APP_UID).app" },
                ],
                "volumeMounts": [{ "name": "ids", "mountPath": "/ids" }],
            }],
        },
    })
}

fn files(dir: PathBuf) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(&dir).map_err(Error::io(format_args!("read {}", dir.display())))?;
    Ok(entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
}
