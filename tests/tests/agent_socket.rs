//! The agent's socket: what it answers, and what it does to those who abuse it. Whatever they do, the lease is renewed.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes only #[test] functions for tests, not the cases they run"
)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use cosid_tests::agent::Agent;
use cosid_tests::cases::{self, Case};
use cosid_tests::ground::{Ground, Space};
use cosid_tests::http::{self, Answer, PATIENCE, connect, send};
use serde_json::{Value, json};

#[test]
fn the_socket() {
    let cases: &[Case<Ground>] = cosid_tests::cases![
        ids_are_made_on_request_and_taken_apart,
        a_generator_has_a_good_name_and_there_are_62,
        a_watch_tells_each_change_and_ends_with_the_agent,
        health_is_told_to_probes,
        what_does_not_exist_is_said_in_json,
        a_body_that_is_too_large_or_never_ends_is_refused,
        a_request_line_or_header_that_never_ends_is_refused,
        a_slow_header_and_an_idle_connection_are_closed,
        of_a_thousand_connections_256_are_served_and_the_lease_is_renewed,
    ];
    cases::run(&Ground::start(), 6, cases);
}

/// An agent that holds a slot, in a namespace of its own.
fn holding<'g>(ground: &'g Ground, name: &str) -> (Space<'g>, Agent) {
    let space = ground.space(name);
    space.pool("orders", 4, 3);
    let agent = space.agent("web-0", &["--pool", "orders"]);
    agent.wait_held();
    (space, agent)
}

/// The reason of a refusal with this status.
fn refused(answer: &Answer, status: u16) -> String {
    assert_eq!(answer.status, status, "{answer:?}");
    answer.reason()
}

fn ids_are_made_on_request_and_taken_apart(ground: &Ground) {
    let (_space, agent) = holding(ground, "ids");
    let ids = |query: &str| agent.ask("POST", &format!("/v1/ids?{query}"));
    let made = |query: &str| -> Vec<u64> {
        let answer = ids(query);
        assert_eq!(answer.status, 200, "{answer:?}");
        let json = answer.json();
        let numbers: Vec<u64> = serde_json::from_value(json["ids"].clone()).unwrap();
        let strings: Vec<String> = serde_json::from_value(json["strings"].clone()).unwrap();
        assert_eq!(numbers.iter().map(u64::to_string).collect::<Vec<_>>(), strings);
        numbers
    };
    assert_eq!(made("generator=orders").len(), 1, "one, if nothing is said");
    assert_eq!(made("generator=orders&count=1").len(), 1);
    let before = agent.counted("ids_total");
    let many = made("generator=orders&count=100000");
    assert_eq!(many.len(), 100_000);
    assert!(many.is_sorted_by(|a, b| a < b), "in order and none twice");
    assert_eq!(agent.counted("ids_total") - before, 100_000);

    for count in ["0", "100001", "18446744073709551615"] {
        let answer = ids(&format!("generator=orders&count={count}"));
        assert_eq!(refused(&answer, 400), "BadCount");
        assert!(answer.message().contains(&format!("count is {count}; ask for 1 to 100000")), "{answer:?}");
    }
    for query in
        ["generator=orders&count=-1", "generator=orders&count=x", "generator=orders&count=", "count=1", ""]
    {
        assert_eq!(refused(&ids(query), 400), "BadQuery", "{query}");
    }
    assert_eq!(refused(&ids("generator=a%20b"), 400), "BadName");

    let slot = agent.wait_held().slot;
    let id = many[0];
    let apart = agent.ask("GET", &format!("/v1/ids/{id}"));
    let json = apart.json();
    let said = (&json["id"], &json["string"], &json["slot"]);
    assert_eq!(said, (&json!(id), &json!(id.to_string()), &json!(slot)), "{apart:?}");
    let known = agent.ask("GET", "/v1/ids/295913926632165376").json();
    let vector = json!({ "id": 295_913_926_632_165_376_u64, "string": "295913926632165376",
                         "timestamp": 1_647_754_577_924_u64, "slot": 5, "sequence": 0 });
    assert_eq!(known, vector);
    for bad in ["x", "-1", "9223372036854775808", "1.5", "%ff", "%20"] {
        let answer = agent.ask("GET", &format!("/v1/ids/{bad}"));
        assert_eq!(refused(&answer, 400), "BadId", "{bad}");
    }
}

fn a_generator_has_a_good_name_and_there_are_62(ground: &Ground) {
    let (_space, agent) = holding(ground, "names");
    let put = |name: &str| agent.ask("PUT", &format!("/v1/generators/{name}"));
    let long = "n".repeat(64);
    for name in ["orders", "A.b_c-9", long.as_str()] {
        let answer = put(name);
        assert_eq!((answer.status, answer.json()["generator"].as_str()), (200, Some(name)), "{answer:?}");
    }
    assert_eq!(put("orders"), put("orders"), "a name keeps its cell");
    let too_long = "n".repeat(65);
    for name in ["a%20b", "a%2Fb", "%C3%A9", "%ff", "a%00", too_long.as_str()] {
        assert_eq!(refused(&put(name), 400), "BadName", "{name}");
    }
    let cells: Vec<u64> = (0..59).map(|n| put(&format!("g{n}")).json()["cell"].as_u64().unwrap()).collect();
    assert_eq!(cells, (3..62).collect::<Vec<_>>());
    let full = put("one-more");
    assert_eq!(refused(&full, 409), "TooManyGenerators");
    assert!(full.message().contains("use fewer generator names in this pod"), "{full:?}");
    assert_eq!(refused(&agent.ask("POST", "/v1/ids?generator=one-more"), 409), "TooManyGenerators");
    let error = agent.client().generator("one-more").unwrap_err();
    assert!(matches!(error, cosid_client::Error::TooManyGenerators { .. }), "{error}");
    assert_eq!(put("orders").status, 200, "those that have one keep it");
}

fn a_watch_tells_each_change_and_ends_with_the_agent(ground: &Ground) {
    let (_space, mut agent) = holding(ground, "watching");
    let socket = agent.socket.clone();
    let (told, lines) = std::sync::mpsc::channel::<Value>();
    let watcher = thread::spawn(move || http::watch(&socket).for_each(|line| told.send(line).unwrap()));
    let next = || lines.recv_timeout(PATIENCE).unwrap();
    let first = next();
    assert_eq!((&first["state"], &first["pool"]), (&json!("held"), &json!("watching/orders")));
    let second = next();
    assert!(second["expiresAt"].as_u64() > first["expiresAt"].as_u64(), "{first} {second}");
    assert_eq!(second["state"], "held");
    agent.terminate();
    let states: Vec<Value> = lines.iter().map(|line| line["state"].clone()).collect();
    watcher.join().unwrap();
    assert_eq!(states.last(), Some(&json!("stopped")), "{states:?}");
}

fn health_is_told_to_probes(ground: &Ground) {
    let space = ground.space("health");
    space.pool("invoices", 1, 3);
    let agent = space.agent("web-0", &["--pool", "orders"]);
    agent.wait_for_state("refused", "there is no pool");
    let health = |args: &[&str]| {
        let launch = cosid_tests::agent::Launch::new(&["health"]).args(args).path("--socket", &agent.socket);
        let output = launch.command().output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    assert_eq!((agent.ask("GET", "/livez").status, agent.ask("GET", "/readyz").status), (200, 503));
    assert_eq!(health(&[]), (Some(0), "ok\n".into()));
    let (code, said) = health(&["--ready"]);
    assert!(
        code == Some(1) && said.contains("no healthy agent at") && said.contains("there is no pool"),
        "{said}"
    );
    assert!(!said.contains('{') && said.ends_with('\n'), "for people: {said}");
    let (code, said) = health(&["--ready", "-o", "json"]);
    let answer: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!((code, &answer["healthy"]), (Some(1), &json!(false)), "{said}");
    assert_eq!(agent.counted("lease_held"), 0);

    space.pool("orders", 1, 3);
    let held = agent.wait_held();
    assert_eq!(agent.ask("GET", "/readyz").body, "holds slot 0 under fence 1\n");
    assert_eq!(health(&["--ready"]), (Some(0), "holds slot 0 under fence 1\n".into()));
    let json = "{\"healthy\":true,\"message\":\"holds slot 0 under fence 1\"}\n";
    assert_eq!(health(&["--ready", "-o", "json"]), (Some(0), json.into()));
    for path in ["/v1/lease", "/v1/ids/1", "/nothing"] {
        assert!(agent.ask("GET", path).body.ends_with("}\n"), "{path}");
    }
    assert!(agent.ask("POST", "/v1/ids?generator=health&count=2").body.ends_with("}\n"));
    let metrics = agent.ask("GET", "/metrics");
    assert!(
        metrics.head.to_lowercase().contains("content-type: application/openmetrics-text"),
        "{}",
        metrics.head
    );
    assert!(metrics.body.ends_with("# EOF\n"), "{}", metrics.body);
    assert_eq!((agent.counted("lease_held"), agent.counted("slot")), (1, 0));
    assert!(agent.counted("lease_expiry_seconds") >= held.expires_at / 1000);
    assert_eq!(agent.counted("lease_events_total{event=\"Acquired\"}"), 1);

    agent.program.signal(rustix::process::Signal::STOP).unwrap();
    let (code, said) = health(&[]);
    agent.program.signal(rustix::process::Signal::CONT).unwrap();
    assert!(code == Some(1) && said.contains("no healthy agent at"), "one that hangs is not healthy: {said}");
    let gone = cosid_tests::agent::Launch::new(&["health", "--socket", "/nowhere/agent.sock"]);
    assert_eq!(gone.command().output().unwrap().status.code(), Some(1));
}

fn what_does_not_exist_is_said_in_json(ground: &Ground) {
    let (_space, agent) = holding(ground, "paths");
    let ask = |method: &str, path: &str| agent.ask(method, path);
    for path in ["/", "/v1", "/v1/leases", "/v1/generators/", "/v1/generators/a/b", "/v2/lease"] {
        assert_eq!(refused(&ask("GET", path), 404), "NotFound", "{path}");
    }
    for (method, path) in [("POST", "/v1/lease"), ("GET", "/v1/ids"), ("DELETE", "/v1/generators/orders")] {
        assert_eq!(refused(&ask(method, path), 405), "MethodNotAllowed", "{method} {path}");
    }
    for pool in ["orders", "paths/orders"] {
        assert_eq!(ask("GET", &format!("/v1/lease?pool={pool}")).json()["state"], "held");
    }
    let other = ask("GET", "/v1/lease?pool=invoices");
    assert_eq!(refused(&other, 404), "OtherPool");
    assert!(other.message().contains("pool paths/orders, not of invoices"), "{other:?}");
    assert_eq!(refused(&ask("GET", "/v1/lease?watch=perhaps"), 400), "BadQuery");
    assert_eq!(send(&agent.socket, b"\x16\x03\x01 is no HTTP\r\n\r\n").status, 400);
}

fn a_body_that_is_too_large_or_never_ends_is_refused(ground: &Ground) {
    let (_space, agent) = holding(ground, "bodies");
    let post = |length: &str, body: &[u8]| {
        let head = format!("POST /v1/ids?generator=a HTTP/1.1\r\nHost: cosid\r\n{length}\r\n\r\n");
        send(&agent.socket, &[head.as_bytes(), body].concat())
    };
    let most = 64 * 1024;
    let close = "Connection: close\r\n";
    assert_eq!(post(&format!("{close}Content-Length: {most}"), &vec![b'x'; most]).status, 200);
    let answer = post(&format!("Content-Length: {}", most + 1), &vec![b'x'; most + 1]);
    assert_eq!(refused(&answer, 413), "BodyTooLarge");
    assert!(answer.message().contains("at most 65536 bytes"), "{answer:?}");
    assert_eq!(refused(&post("Content-Length: 99999999999", &vec![b'x'; 4 * most]), 413), "BodyTooLarge");
    let chunk = [format!("{:x}\r\n", 2 * most).as_bytes(), &vec![b'x'; 2 * most], b"\r\n0\r\n\r\n"].concat();
    assert_eq!(refused(&post("Transfer-Encoding: chunked", &chunk), 413), "BodyTooLarge");
    let start = Instant::now();
    assert_eq!(refused(&post("Content-Length: 10", b"x"), 408), "BodyTooSlow");
    assert!(start.elapsed() >= Duration::from_secs(4), "it had its time: {:?}", start.elapsed());
    agent.wait_renewed();
}

fn a_request_line_or_header_that_never_ends_is_refused(ground: &Ground) {
    let (_space, agent) = holding(ground, "heads");
    let line = [b"GET /".as_slice(), &vec![b'x'; 1024 * 1024]].concat();
    assert_eq!(send(&agent.socket, &line).status, 431);
    let header = [b"GET / HTTP/1.1\r\nHost: cosid\r\nX: ".as_slice(), &vec![b'x'; 1024 * 1024]].concat();
    assert_eq!(send(&agent.socket, &header).status, 431);
    let headers = [b"GET / HTTP/1.1\r\n".as_slice(), &b"X: y\r\n".repeat(100_000)].concat();
    assert_eq!(send(&agent.socket, &headers).status, 431);
    agent.wait_renewed();
}

fn a_slow_header_and_an_idle_connection_are_closed(ground: &Ground) {
    let (_space, agent) = holding(ground, "slow");
    let closed_after = |mut stream: UnixStream| {
        let start = Instant::now();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        start.elapsed()
    };
    let mut slow = connect(&agent.socket);
    slow.write_all(b"GET /livez HTTP/1.1\r\nHo").unwrap();
    let silent = connect(&agent.socket);
    let mut idle = connect(&agent.socket);
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: cosid\r\n\r\n").unwrap();
    let ends = [slow, silent, idle].map(|stream| thread::spawn(move || closed_after(stream)));
    for (what, end) in ["slow", "silent", "idle"].into_iter().zip(ends) {
        let took = end.join().unwrap();
        assert!((Duration::from_secs(4)..Duration::from_secs(20)).contains(&took), "{what}: {took:?}");
    }
    agent.wait_renewed();
}

fn of_a_thousand_connections_256_are_served_and_the_lease_is_renewed(ground: &Ground) {
    let (space, agent) = holding(ground, "crowd");
    let before = space.record("orders", 0).unwrap();
    // Watching keeps each of them open for as long as it likes.
    let streams: Vec<UnixStream> = (0..1_000)
        .map(|_| {
            let mut stream = connect(&agent.socket);
            // One that is refused may be closed by now.
            let _ = stream.write_all(b"GET /v1/lease?watch=true HTTP/1.1\r\nHost: cosid\r\n\r\n");
            stream
        })
        .collect();
    let served = |mut stream: &UnixStream| stream.read(&mut [0; 16]).is_ok_and(|read| read > 0);
    let count = streams.iter().filter(|stream| served(stream)).count();
    assert_eq!(count, 256);
    let expires = |record: &cosid_lease::Record| record.holding().unwrap().expires_at;
    let renewed = || {
        let now = space.record("orders", 0).unwrap();
        Ok((expires(&now) > expires(&before) + 3_000).then_some(now))
    };
    let now = xtask::programs::until(|| "it is not renewed".into(), PATIENCE, renewed).unwrap();
    assert_eq!((now.fence, before.fence), (1, 1));
    drop(streams);
    agent.wait_for("nobody is served", |lease| lease["state"] == "held");
    agent.client().generator("orders").unwrap().next_id().unwrap();
}
