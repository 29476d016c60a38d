//! A control plane as tests use it, and as `cargo xtask cluster` does.
#![allow(
    clippy::unwrap_used,
    reason = "clippy's leave for tests does not reach the functions that they share"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use xtask::cluster::{Cluster, Options, ProcessId, State};

fn audited(cluster: &Cluster, verb: &str, resource: &str) -> usize {
    let log = fs::read_to_string(cluster.audit_log()).unwrap();
    let is_it = |line: &&str| {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(entry["stage"], "ResponseComplete");
        assert_eq!(entry["requestObject"], serde_json::Value::Null);
        entry["verb"] == verb && entry["objectRef"]["resource"] == resource
    };
    log.lines().filter(is_it).count()
}

/// The directory and the processes of a cluster, read before it goes.
fn traces(cluster: &Cluster) -> (PathBuf, Vec<ProcessId>) {
    let dir = cluster.kubeconfig().parent().unwrap().to_owned();
    let text = fs::read_to_string(dir.join("state.json")).unwrap();
    let state: State = serde_json::from_str(&text).unwrap();
    (dir, state.processes.iter().map(|process| process.id).collect())
}

#[test]
fn objects_outlive_a_killed_api_server_and_a_stopped_cluster_leaves_nothing() {
    let cluster = Cluster::start(Options::default()).unwrap();
    cluster.kubectl(&["create", "namespace", "shop"]).unwrap();
    assert_eq!(audited(&cluster, "create", "namespaces"), 1);

    cluster.kill_apiserver().unwrap();
    let refused = cluster.kubectl(&["get", "namespace", "shop"]).unwrap_err();
    assert!(refused.to_string().contains("refused"), "{refused}");
    cluster.start_apiserver().unwrap();
    assert_eq!(cluster.kubectl(&["get", "namespace", "shop", "-o", "name"]).unwrap(), "namespace/shop\n");

    cluster.kill_etcd().unwrap();
    cluster.start_etcd().unwrap();
    assert_eq!(cluster.kubectl(&["get", "namespace", "shop", "-o", "name"]).unwrap(), "namespace/shop\n");

    cluster.pause_apiserver().unwrap();
    cluster.kubectl(&["--request-timeout=1s", "get", "namespace", "shop"]).unwrap_err();
    cluster.resume_apiserver().unwrap();
    cluster.kubectl(&["get", "namespace", "shop"]).unwrap();

    let (dir, processes) = traces(&cluster);
    assert_eq!(processes.len(), 2);
    assert!(processes.iter().all(ProcessId::is_running));
    drop(cluster);
    assert!(!processes.iter().any(ProcessId::is_running));
    assert!(!dir.exists());
}

#[test]
fn a_service_account_has_its_rbac_rights_only_and_its_token_names_its_pod() {
    let cluster = Cluster::start(Options::default()).unwrap();
    for create in [
        &["create", "namespace", "shop"][..],
        &["create", "serviceaccount", "agent", "-n", "shop"],
        &["create", "role", "read", "-n", "shop", "--verb=get,list", "--resource=leases"],
        &["create", "rolebinding", "read", "-n", "shop", "--role=read", "--serviceaccount=shop:agent"],
        &["run", "app", "-n", "shop", "--image=x", r#"--overrides={"spec":{"serviceAccountName":"agent"}}"#],
    ] {
        cluster.kubectl(create).unwrap();
    }
    let token = cluster.token("shop", "agent", Some("app")).unwrap();
    let kubeconfig = cluster.kubeconfig_with_token("agent", &token).unwrap();
    let agent = |args: &[&str]| cluster.kubectl_command(&kubeconfig).args(args).output().unwrap();
    // The API server's authorizer learns of a new binding by a watch of its own.
    eventually(|| agent(&["get", "leases", "-n", "shop"]).status.success());
    let refused = agent(&["get", "leases", "-n", "default"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Forbidden"));
    let who = String::from_utf8(agent(&["auth", "whoami", "-o", "json"]).stdout).unwrap();
    assert!(who.contains("system:serviceaccount:shop:agent"), "{who}");
    assert!(who.contains("authentication.kubernetes.io/pod-uid"), "{who}");
}

fn xtask(args: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(args).arg("--dir").arg(dir).output().unwrap()
}

#[test]
fn the_command_starts_once_cleans_up_after_a_half_dead_run_and_ends_all_it_started() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let status = || -> serde_json::Value {
        serde_json::from_slice(&xtask(&["cluster", "status", "-o", "json"], &dir).stdout).unwrap()
    };
    let up = || {
        let output = xtask(&["cluster", "up"], &dir);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(up().contains("export KUBECONFIG="));
    let first = status();
    assert_eq!(first["ready"], true);
    assert!(up().contains("already up"));
    assert_eq!(status(), first);

    // etcd dies alone: the next `up` ends the API server of that run and starts both anew.
    let id = |status: &serde_json::Value, n: usize| -> ProcessId {
        serde_json::from_value(status["processes"][n]["id"].clone()).unwrap()
    };
    assert!(Command::new("kill").args(["-KILL", &id(&first, 0).pid.to_string()]).status().unwrap().success());
    eventually(|| !id(&first, 0).is_running());
    assert_eq!(xtask(&["cluster", "status"], &dir).status.code(), Some(1));
    up();
    let second = status();
    assert_eq!(second["ready"], true);
    assert!(!id(&first, 1).is_running());

    assert!(xtask(&["cluster", "down"], &dir).status.success());
    assert!(!id(&second, 0).is_running() && !id(&second, 1).is_running());
    assert!(!dir.exists());
    assert!(xtask(&["cluster", "down"], &dir).status.success());
}

#[test]
fn without_go_one_line_names_the_ways_out_and_the_exit_code_is_64() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["cluster", "up", "--dir"])
        .arg(dir.path().join("run"))
        .env("PATH", dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("Go") && text.contains("--memory") && text.contains("--context"), "{text}");
    assert!(!dir.path().join("run").exists());
}

#[test]
fn a_cluster_whose_owner_is_killed_ends_with_it() {
    // The owner is this very test, run once more as a program of its own.
    if std::env::var_os(OWNER).is_some() {
        let cluster = Cluster::start(Options::default()).unwrap();
        let (dir, _) = traces(&cluster);
        let state = fs::read_to_string(dir.join("state.json")).unwrap();
        println!("STATE {}", state.replace('\n', ""));
        loop {
            std::thread::park();
        }
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_cluster_whose_owner_is_killed_ends_with_it", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut states = lines.filter_map(|line| line.split_once("STATE ").map(|(_, state)| state.to_owned()));
    let state: State = serde_json::from_str(&states.next().unwrap()).unwrap();
    let processes: Vec<ProcessId> = state.processes.iter().map(|process| process.id).collect();
    assert!(processes.iter().all(ProcessId::is_running));
    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually(|| !processes.iter().any(ProcessId::is_running));
    // Its directory goes at the next start.
    let dir = state.kubeconfig.parent().unwrap();
    drop(Cluster::start(Options::default()).unwrap());
    assert!(!dir.exists());
}

/// Set in the process that plays the owner.
const OWNER: &str = "COSID_TEST_CLUSTER_OWNER";

/// For what nothing announces: the end of somebody else's process, a watch inside the API server.
fn eventually(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "not so after 20 s");
        std::thread::yield_now();
    }
}
