//! What can be wrong on the agent's own machine: its command line, its directory, its disk.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy takes only #[test] functions for tests, not the cases they run"
)]

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use cosid_client::Error;
use cosid_tests::agent::{Agent, Launch};
use cosid_tests::cases::{self, Case};
use cosid_tests::disk::Disk;
use cosid_tests::ground::Ground;
use cosid_tests::http::PATIENCE;
use xtask::programs::{Program, until};

#[test]
fn the_agents_own_machine() {
    let cases: &[Case<Ground>] = cosid_tests::cases![
        a_full_disk_blocks_the_ids_keeps_the_lease_and_heals,
        a_disk_that_is_full_from_the_start_ends_no_agent,
        a_directory_that_is_served_is_refused_and_the_one_who_serves_it_named,
        a_stale_socket_is_replaced,
        a_command_line_that_can_not_work_ends_with_64_and_says_what_can,
        without_a_cluster_it_says_how_to_name_one,
        an_end_while_the_credential_plugin_hangs_is_within_2_s,
    ];
    cases::run(&Ground::start(), 4, cases);
}

/// Waits for an agent that is to end by itself.
fn end(dir: &Path, launch: &Launch) -> (Option<i32>, String) {
    let dir = tempfile::tempdir_in(dir).unwrap();
    let mut agent = Program::start("agent", launch.command(), dir.path()).unwrap();
    let ended = agent.wait(PATIENCE).unwrap_or_else(|error| panic!("{launch:?}: {error}: {}", agent.log()));
    (ended.code(), agent.log())
}

fn a_full_disk_blocks_the_ids_keeps_the_lease_and_heals(ground: &Ground) {
    let space = ground.space("full-disk");
    space.pool("orders", 1, 3);
    let Some(disk) = Disk::mount(space.dir.join("web-0"), "64k") else { return };
    // Room for the state, none for the page.
    disk.fill(12 * 1024);
    let agent = space.agent("web-0", &["--pool", "orders"]);
    check_blocked_and_healed(&agent, &disk);
    let record = space.record("orders", 0).unwrap();
    assert_eq!((record.fence, record.holding().unwrap().owner.key.as_str()), (1, "full-disk/web-0"));
}

fn a_disk_that_is_full_from_the_start_ends_no_agent(ground: &Ground) {
    let space = ground.space("fuller-disk");
    space.pool("orders", 1, 3);
    let Some(disk) = Disk::mount(space.dir.join("web-0"), "64k") else { return };
    disk.fill(0);
    let agent = space.agent("web-0", &["--pool", "orders"]);
    check_blocked_and_healed(&agent, &disk);
    assert_eq!(space.record("orders", 0).unwrap().fence, 1);
}

fn check_blocked_and_healed(agent: &Agent, disk: &Disk) {
    let lease = agent.wait_for_state("blocked", "holds slot 0, but can't make its page");
    let message = lease["message"].as_str().unwrap();
    assert!(
        message.contains(disk.path().to_str().unwrap()) && message.contains("No space left on device"),
        "{message}"
    );
    let ids = agent.ask("POST", "/v1/ids?generator=orders&count=1");
    assert_eq!((ids.status, ids.reason().as_str()), (503, "Blocked"));
    let ready = agent.ask("GET", "/readyz");
    assert_eq!((ready.status, ready.message().contains("can't make its page")), (503, true));
    let refused = agent.client().generator("orders").unwrap_err();
    assert!(matches!(&refused, Error::Blocked { message } if message.contains("No space left")), "{refused}");
    assert!(refused.is_transient());
    // Past what the first acquisition gave.
    for _ in 0..4 {
        agent.wait_renewed();
    }
    assert_eq!(agent.log().matches("can't make its page").count(), 1, "said once:\n{}", agent.log());
    disk.free();
    let held = agent.wait_held();
    assert_eq!((held.slot, held.fence), (0, 1));
    agent.client().generator("orders").unwrap().next_id().unwrap();
}

fn a_directory_that_is_served_is_refused_and_the_one_who_serves_it_named(ground: &Ground) {
    let space = ground.space("served");
    space.pool("orders", 2, 3);
    let dir = space.dir.join("web-0");
    let agent = space.launch("web-0").args(&["--pool", "orders"]).start(&dir);
    let held = agent.wait_held();
    let generator = agent.client().generator("orders").unwrap();
    let second = space.launch("web-1").args(&["--pool", "orders"]).path("--socket", &agent.socket);
    let (code, said) = end(&space.dir, &second);
    let told =
        format!("{} is already served by a live agent (process {})", dir.display(), agent.program.pid());
    assert!(code == Some(1) && said.contains(&told) && said.contains("--socket"), "{code:?}: {said}");
    agent.wait_renewed();
    assert_eq!(agent.wait_held().page, held.page);
    generator.next_id().unwrap();
    assert_eq!(space.record("orders", 1).unwrap().fence, 0, "the second one took nothing");
}

fn a_stale_socket_is_replaced(ground: &Ground) {
    let space = ground.space("stale");
    space.pool("orders", 1, 3);
    let dir = space.dir.join("web-0");
    fs::create_dir(&dir).unwrap();
    drop(UnixListener::bind(dir.join("agent.sock")).unwrap());
    let mut agent = space.agent("web-0", &["--pool", "orders"]);
    agent.wait_held();
    agent.terminate();
    assert!(!agent.socket.exists(), "its end takes the socket away");
}

fn a_command_line_that_can_not_work_ends_with_64_and_says_what_can(ground: &Ground) {
    let space = ground.space("usage");
    let socket = space.dir.join("web-0/agent.sock");
    let here = |args: &[&str]| Launch::new(args).path("--socket", &socket);
    let refused = |launch: &Launch, told: &[&str]| {
        let (code, said) = end(&space.dir, launch);
        assert!(code == Some(64) && told.iter().all(|told| said.contains(told)), "{code:?}: {said}");
    };
    let long = Path::new("/tmp").join("x".repeat(104));
    let length = format!("has {} bytes; a Unix socket's path has at most 107", long.as_os_str().len());
    refused(&Launch::new(&["--store", "memory"]).path("--socket", &long), &[&length, "COSID_SOCKET"]);
    refused(
        &Launch::new(&["--store", "memory"]),
        &["the socket has no default here", "--socket or COSID_SOCKET"],
    );
    for slot in ["seven", "-1", "prefer:", "4294967296"] {
        let slot = format!("--slot={slot}");
        refused(&here(&[&slot]), &["is not one of: auto, ordinal, prefer:ordinal, a number, prefer:NUMBER"]);
    }
    let ordinal = here(&["--store", "memory", "--slot", "ordinal", "--key", "ns/web"]);
    refused(&ordinal, &["--slot with an ordinal: \"web\" is not", "POD_NAME"]);
    refused(&here(&["--store", "redis"]), &["possible values: kubernetes, memory"]);
    refused(
        &here(&["--store", "memory", "--log", "cosid_agent=loud"]),
        &["--log", "error, warn, info, debug, trace"],
    );
    refused(&here(&["--memory-ttl", "0"]), &["1..=3600"]);
    let kubeconfig = ground.cluster.kubeconfig();
    let pool = here(&["--pool", "a/b/c"]).path("--kubeconfig", kubeconfig);
    refused(&pool, &["`a/b/c` names no pool: write NAME or NAMESPACE/NAME"]);
    assert!(!socket.exists());
}

fn without_a_cluster_it_says_how_to_name_one(ground: &Ground) {
    let space = ground.space("no-cluster");
    let socket = space.dir.join("web-0/agent.sock");
    let here = |args: &[&str]| Launch::new(args).path("--socket", &socket);
    let refused = |launch: &Launch, told: &[&str]| {
        let (code, said) = end(&space.dir, launch);
        assert!(code == Some(1) && told.iter().all(|told| said.contains(told)), "{code:?}: {said}");
    };
    refused(&here(&[]), &["no cluster", "pass --kubeconfig, or set KUBECONFIG", "--store memory"]);
    refused(&here(&["--kubeconfig", "/nowhere/config"]), &["/nowhere/config"]);
    let context = here(&["--context", "other"]).path("--kubeconfig", ground.cluster.kubeconfig());
    refused(&context, &["other", "its contexts are: cosid"]);
    // A pod without a token, as with automountServiceAccountToken: false.
    let pod = here(&[]).env("KUBERNETES_SERVICE_HOST", "10.0.0.1").env("KUBERNETES_SERVICE_PORT", "443");
    refused(&pod, &["no cluster", "automountServiceAccountToken"]);
    assert!(!socket.exists());
}

fn an_end_while_the_credential_plugin_hangs_is_within_2_s(ground: &Ground) {
    let space = ground.space("plugin");
    let (server, ca) = (ground.cluster.server_url(), ground.cluster.ca());
    let called = space.dir.join("called");
    let script = format!("touch {}; exec sleep 20", called.display());
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": server, "certificate-authority": ca } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "users": [{ "name": "u", "user": { "exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", script],
            "interactiveMode": "Never" } } }],
    });
    let kubeconfig = space.dir.join("kubeconfig");
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let mut agent =
        space.launch_with("web-0", &kubeconfig).args(&["--pool", "orders"]).start(&space.dir.join("web-0"));
    let is_called = || Ok(called.exists().then_some(()));
    until(|| "the plugin is not run".into(), PATIENCE, is_called).unwrap();
    agent.wait_for("it does not serve", |lease| !lease.is_null());
    agent.terminate();
}
