//! The example programs, with a real agent beside them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy's leave for tests does not reach the functions that they share"
)]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::thread;

use cosid_tests::agent::{Agent, Launch};
use cosid_tests::http::PATIENCE;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use xtask::programs::{self, Program, until};

fn directory() -> TempDir {
    tempfile::Builder::new().prefix("cosid-").tempdir().unwrap()
}

fn agent(dir: &Path, name: &str) -> Agent {
    let store = dir.join("store");
    Launch::new(&["--store", "memory", "--memory-ttl", "5"])
        .path("--store-dir", &store)
        .start(&dir.join(name))
}

fn program(name: &str) -> Command {
    let mut command = Command::new(programs::path(name).unwrap());
    command.env_clear();
    command
}

struct Service {
    program: Program,
    address: String,
}

impl Service {
    fn start(dir: &Path, name: &str, socket: &Path) -> Self {
        let mut command = program("id-service");
        command.args(["--listen", "127.0.0.1:0", "--patience", "300"]).env("COSID_SOCKET", socket);
        let program = Program::start(name, command, dir).unwrap();
        let line = program.wait_for_line("listening on ", PATIENCE).unwrap();
        Self { address: line.trim_start_matches("listening on ").into(), program }
    }

    /// Status, head and body of the answer.
    fn get(&self, path: &str) -> (u16, String, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        parts(&read(stream))
    }
}

fn read(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn parts(answer: &str) -> (u16, String, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn ids_of_two_services_at_two_agents_and_of_two_at_one_are_all_different() {
    let dir = directory();
    let agents = [agent(dir.path(), "one"), agent(dir.path(), "two")];
    let slots = agents.each_ref().map(|agent| agent.wait_held().slot);
    let services = [
        (Service::start(dir.path(), "a", &agents[0].socket), slots[0]),
        (Service::start(dir.path(), "b", &agents[0].socket), slots[0]),
        (Service::start(dir.path(), "c", &agents[1].socket), slots[1]),
    ];
    let ids: Vec<String> = thread::scope(|scope| {
        let ask = |(service, slot): &(Service, u32)| {
            (0..200)
                .map(|_| {
                    let (status, head, body) = service.get("/id");
                    assert_eq!((status, &body["slot"]), (200, &Value::from(*slot)), "{body}");
                    assert!(head.contains("application/json"), "{head}");
                    body["id"].as_str().unwrap().to_owned()
                })
                .collect::<Vec<_>>()
        };
        let asking = services.each_ref().map(|service| scope.spawn(move || ask(service)));
        asking.into_iter().flat_map(|asked| asked.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| id.parse::<i64>().is_ok_and(|id| id > 0)), "{ids:?}");
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 600);
    assert_eq!(services[0].0.get("/").0, 200);
    assert_eq!(services[0].0.get("/nothing").0, 404);
}

#[test]
fn a_service_without_an_agent_is_up_and_says_what_is_missing_until_there_is_one() {
    let dir = directory();
    let service = Service::start(dir.path(), "service", &dir.path().join("late/agent.sock"));
    let (status, head, body) = service.get("/id");
    assert_eq!(status, 503);
    assert!(head.contains("retry-after: 1"), "{head}");
    let why = body["error"].as_str().unwrap_or_default();
    assert!(why.contains("no agent at") && why.contains("late/agent.sock"), "{body}");
    assert_eq!((service.get("/healthz").0, service.get("/readyz").0), (200, 503));

    let agent = agent(dir.path(), "late");
    agent.wait_held();
    assert_eq!((service.get("/readyz").0, service.get("/id").0), (200, 200));
}

#[test]
fn a_service_that_is_asked_to_end_answers_what_is_under_way_and_takes_nothing_new() {
    let dir = directory();
    let socket = dir.path().join("agent.sock");
    // An agent that takes its time: once it is asked, a request is under way.
    let slow = UnixListener::bind(&socket).unwrap();
    let mut service = Service::start(dir.path(), "service", &socket);
    let under_way = thread::scope(|scope| {
        let asking = scope.spawn(|| service.get("/id"));
        let (asked, _) = slow.accept().unwrap();
        service.program.signal(Signal::TERM).unwrap();
        let refused = || Ok(TcpStream::connect(&service.address).err());
        until(|| "it takes new clients".into(), PATIENCE, refused).unwrap();
        drop((asked, slow));
        asking.join().unwrap()
    });
    assert_eq!(under_way.0, 503);
    assert!(under_way.2["error"].as_str().is_some_and(|why| why.contains("agent")), "{under_way:?}");
    let status = service.program.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0), "{}", service.program.log());
    assert!(service.program.output().ends_with("stopped\n"));
}

/// The IDs that a run of the forked workers wrote down.
fn written(path: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn forked_workers_share_a_slot_and_no_two_of_their_ids_are_equal() {
    let dir = directory();
    let agent = agent(dir.path(), "agent");
    let held = agent.wait_held();
    let out = dir.path().join("ids");
    let run = |name: &str, out: &Path| {
        let mut command = program("forked-workers");
        command.args(["--workers", "8", "--count", "25000"]).arg("--out").arg(out);
        command.env("COSID_SOCKET", &agent.socket);
        Program::start(name, command, dir.path()).unwrap()
    };
    // Two such programs at once, as two containers of a pod.
    let other = dir.path().join("other");
    let mut programs = [run("workers", &out), run("others", &other)];
    for program in &mut programs {
        assert_eq!(program.wait(PATIENCE).unwrap().code(), Some(0), "{}", program.log());
        let said = program.output();
        assert!(said.starts_with(&format!("slot {}, 8 workers\n", held.slot)), "{said}");
        assert!(said.contains("worker 7: 25000 IDs\n"), "{said}");
        assert!(said.ends_with("200000 IDs of 8 workers, 0 equal\n"), "{said}");
    }
    let ids = [written(&out), written(&other)].concat();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 400_000);
}

#[test]
fn forked_workers_that_are_asked_to_end_check_what_they_made() {
    let dir = directory();
    let agent = agent(dir.path(), "agent");
    agent.wait_held();
    let mut command = program("forked-workers");
    command.args(["--workers", "3", "--count", "1000000", "--pause", "1"]);
    command.env("COSID_SOCKET", &agent.socket);
    let mut program = Program::start("workers", command, dir.path()).unwrap();
    program.wait_for_line("3 workers", PATIENCE).unwrap();
    let children = || {
        let path = format!("/proc/{0}/task/{0}/children", program.pid());
        let pids = std::fs::read_to_string(path).unwrap_or_default();
        Ok((pids.split_ascii_whitespace().count() == 3).then_some(()))
    };
    until(|| "not three workers".into(), PATIENCE, children).unwrap();
    // The container's runtime signals the first process only.
    let status = program.terminate(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0), "{}", program.log());
    let said = program.output();
    assert!(said.lines().last().is_some_and(|line| line.ends_with("IDs of 3 workers, 0 equal")), "{said}");
}

#[test]
fn a_forked_worker_that_gets_no_id_says_why_and_the_program_fails() {
    let dir = directory();
    let mut command = program("forked-workers");
    command.arg("--socket").arg(dir.path().join("agent.sock"));
    let mut program = Program::start("workers", command, dir.path()).unwrap();
    assert_eq!(program.wait(PATIENCE).unwrap().code(), Some(1));
    assert!(program.log().contains("no agent at"), "{}", program.log());
}
