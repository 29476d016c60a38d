//! The examples in other languages, with a real agent beside them.
#![allow(
    clippy::unwrap_used,
    reason = "clippy's leave for tests does not reach the functions that they share"
)]

use std::path::Path;
use std::thread;

use cosid_tests::agent::{Agent, Launch};
use cosid_tests::http::PATIENCE;
use cosid_tests::{ids, languages};
use tempfile::TempDir;
use xtask::client_check::{self, Subject};

const WORKERS: u32 = 3;
const COUNT: u32 = 20_000;

fn directory() -> TempDir {
    tempfile::Builder::new().prefix("cosid-").tempdir().unwrap()
}

fn agent(dir: &Path, name: &str) -> Agent {
    let store = dir.join("store");
    Launch::new(&["--store", "memory", "--memory-ttl", "5"])
        .path("--store-dir", &store)
        .start(&dir.join(name))
}

/// Two processes of each language at each of two agents, all at the same time and with one generator's name: threads,
/// forked workers and tasks.
#[test]
fn ids_of_all_languages_at_once_are_all_different() {
    let dir = directory();
    let examples = languages::build(dir.path());
    let agents = [agent(dir.path(), "one"), agent(dir.path(), "two")];
    let slots = agents.each_ref().map(|agent| agent.wait_held().slot);
    assert_ne!(slots[0], slots[1]);

    let mut running = Vec::new();
    for example in &examples {
        for (number, agent) in agents.iter().chain(&agents).enumerate() {
            let name = format!("{} {number}", example.name);
            let program = example.start(dir.path(), &name, &agent.socket, "orders", WORKERS, COUNT);
            running.push((example, name, program));
        }
    }

    let mut all = Vec::new();
    for (example, name, mut program) in running {
        let status = program.wait(PATIENCE).unwrap();
        assert!(status.success(), "{name}: {status}\n{}", program.log());
        let made: Vec<u64> = program.output().lines().map(|line| line.parse().unwrap()).collect();
        let makers = WORKERS + u32::from(example.parent_makes);
        assert_eq!(made.len(), (makers * COUNT) as usize, "{name}: {}", program.log());
        println!("{name}: {} IDs", made.len());
        all.extend(made);
    }
    let count = ids::count(all);
    println!("{} IDs of {} examples, {} equal", count.ids, examples.len(), count.equal);
    assert_eq!(count.equal, 0, "{count:?}");
}

#[test]
fn each_example_says_so_where_there_is_no_agent_and_fails() {
    let dir = directory();
    let socket = dir.path().join("none/agent.sock");
    let examples = languages::build(dir.path());
    let start = |example: &languages::Example| {
        (example.name, example.start(dir.path(), example.name, &socket, "orders", 2, 10))
    };
    for (name, mut program) in examples.iter().map(start).collect::<Vec<_>>() {
        let status = program.wait(PATIENCE).unwrap();
        assert_eq!(status.code(), Some(1), "{name}: {}", program.log());
        assert!(program.log().contains("none/agent.sock"), "{name}: {}", program.log());
        assert_eq!(program.output(), "", "{name} made IDs up");
    }
}

#[test]
fn each_example_keeps_to_the_document_whatever_its_agent_does() {
    let dir = directory();
    let examples = languages::build(dir.path());
    // Each waits most of the time.
    let failed = thread::scope(|scope| {
        let check = |example: &languages::Example| {
            let rows = client_check::run(&example.subject(), |_| {}).unwrap();
            println!("{}: {} checks", example.name, rows.len());
            let failed = rows.into_iter().filter(|row| !row.passed);
            failed.map(|row| format!("{}, {}: {}", example.name, row.check, row.why)).collect::<Vec<_>>()
        };
        let running: Vec<_> = examples.iter().map(|example| scope.spawn(move || check(example))).collect();
        running.into_iter().flat_map(|example| example.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_client_that_makes_ids_up_or_ignores_refusals_is_found_out() {
    let client = |script: &str| {
        let command = ["sh", "-c", script].map(Into::into).to_vec();
        let rows = client_check::run(&Subject { command, environment: Vec::new() }, |_| {}).unwrap();
        rows.into_iter().map(|row| (row.check, row.passed, row.why)).collect::<Vec<_>>()
    };
    let made_up = client("seq $(($1 * $2))");
    assert!(made_up.iter().all(|(check, passed, _)| !passed || *check == "requests"), "{made_up:?}");
    let crashes = client("kill -SEGV $$");
    assert!(crashes.iter().all(|(_, passed, why)| *passed || why.contains("signal 11")), "{crashes:?}");
    // It has made none, says why and fails: right wherever there are none to be had.
    let gives_up = client("echo 'refused by a check' >&2; exit 1");
    let right: Vec<_> = gives_up.iter().filter(|row| row.1).map(|row| row.0).collect();
    assert_eq!(right.len(), 10, "{right:?}");
    assert!(!right.contains(&"refused") && right.contains(&"refused-for-good"), "{right:?}");
}
