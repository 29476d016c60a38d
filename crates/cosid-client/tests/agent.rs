//! What the client makes of an agent's answers, and of there being none.

#![allow(clippy::unwrap_used, reason = "tests may stop at the first surprise, in their own functions too")]

mod support;

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use cosid_client::{Client, Error, Layout, LeaseState, NextError, PageError, Wait};
use cosid_id::{Clock, Header, PageOwner, SystemClock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::{Value, json};
use support::{
    FakeAgent, POOL, Server, answer, assert_no_equal, read_head, refusal, scripted, slot_of, starting,
};

const SHORT: Duration = Duration::from_millis(250);
const LONG: Duration = Duration::from_secs(60);

#[test]
fn ids_grow_and_say_their_slot() {
    let agent = FakeAgent::start();
    let orders = Client::connect_to(&agent.socket).unwrap().generator("orders").unwrap();
    let ids = (0..10_000).map(|_| orders.next_id().unwrap()).collect::<Vec<_>>();
    assert!(ids.is_sorted_by(|a, b| a < b));
    assert!(ids.iter().all(|&id| slot_of(id) == 3));
    assert_eq!((orders.name(), orders.slot(), orders.layout()), ("orders", 3, Layout::MILLISECOND));
    assert_eq!(agent.puts(), 1);
}

#[test]
fn a_batch_fills_the_whole_buffer_in_order() {
    let agent = FakeAgent::start();
    let orders = Client::connect_to(&agent.socket).unwrap().generator("orders").unwrap().with_timeout(LONG);
    let mut ids = vec![0; 20_000];
    orders.next_ids(&mut ids).unwrap();
    assert!(ids.is_sorted_by(|a, b| a < b));
    for len in [0, cosid_client::MAX_BATCH + 1] {
        let error = orders.next_ids(&mut vec![0; len]).unwrap_err();
        assert!(matches!(error, Error::Impossible(NextError::BadCount { count, .. }) if count == len));
    }
}

#[test]
fn a_batch_in_ranges_goes_on_over_the_loss_of_a_slot() {
    let agent = FakeAgent::start();
    let orders = Client::connect_to(&agent.socket).unwrap().generator("orders").unwrap().with_timeout(LONG);
    let mut ranges = orders.ranges(10_000).unwrap();
    let first = ranges.next().unwrap().unwrap();
    agent.lose_slot();
    let rest = ranges.map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(agent.puts(), 2, "it asked for the next page");
    assert_eq!(first.len() + rest.iter().map(ExactSizeIterator::len).sum::<usize>(), 10_000);
    assert!(first.last() < rest[0].first());
    for count in [0, cosid_client::MAX_BATCH + 1] {
        assert!(matches!(orders.ranges(count), Err(Error::Impossible(NextError::BadCount { .. }))));
    }
}

#[test]
fn ranges_end_with_the_error_that_stopped_them() {
    let agent = FakeAgent::start();
    let orders = Client::connect_to(&agent.socket).unwrap().generator("orders").unwrap().with_timeout(SHORT);
    let mut ranges = orders.ranges(100_000).unwrap();
    assert!(ranges.next().unwrap().is_ok());
    agent.shut_window();
    let error = ranges.by_ref().find_map(Result::err);
    assert!(matches!(error, Some(Error::NotYet(Wait::AboveCeiling { .. }))), "{error:?}");
    assert!(ranges.next().is_none());
}

#[test]
fn a_burst_goes_ahead_of_the_clock_by_its_bound_and_stays_so_on_the_next_page() {
    const BOUND: Duration = Duration::from_secs(1);
    let agent = FakeAgent::start();
    let client = Client::connect_to(&agent.socket).unwrap();
    let bursts = client.generator("orders").unwrap().with_burst(BOUND).with_timeout(LONG);
    let mut ids = Vec::new();
    for _ in 0..3 {
        for generator in [&bursts, &bursts.clone()] {
            // 24 milliseconds' worth, none of which it waits for.
            let at_once = generator.clone().with_timeout(Duration::ZERO);
            ids.extend(at_once.ranges(100_000).unwrap().flat_map(Result::unwrap));
            let ahead = Layout::MILLISECOND.decompose(*ids.last().unwrap()).unwrap().timestamp();
            assert!(ahead <= SystemClock.unix_ms() + 1_000);
        }
        agent.lose_slot();
        bursts.reconnect().unwrap();
    }
    assert!(ids.is_sorted_by(|a, b| a < b));
    assert_eq!(agent.puts(), 4);
}

#[test]
fn a_burst_ends_at_the_end_of_the_window() {
    let agent = FakeAgent::start();
    agent.shut_window();
    let orders = Client::connect_to(&agent.socket).unwrap().generator("orders").unwrap();
    let ceiling = SystemClock.unix_ms() + 50;
    agent.move_window(ceiling);
    let bursts = orders.with_burst(Duration::from_secs(86_400));
    let mut last = None;
    let error = loop {
        match bursts.try_next_id() {
            Ok(id) => last = Some(id),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, NextError::Wait(Wait::AboveCeiling { .. })), "{error}");
    let last = last.map(|id| Layout::MILLISECOND.decompose(id).unwrap().timestamp());
    assert!(last.is_none_or(|last| last == ceiling), "{last:?}, {ceiling}");
}

#[test]
fn the_lease_says_what_the_agent_holds() {
    let agent = FakeAgent::start();
    let lease = Client::connect_to(&agent.socket).unwrap().lease().unwrap();
    let LeaseState::Held(held) = lease.state else { panic!("{lease:?}") };
    assert_eq!((held.slot, held.fence, held.page.as_str()), (3, 7, "slot-3-fence-7.page"));
    assert_eq!((lease.pool.as_str(), lease.key.as_str()), (POOL, "shop/web-0"));
}

#[test]
fn all_names_of_a_client_share_one_mapping_and_ask_once_each() {
    let agent = FakeAgent::start();
    let client = Client::connect_to(&agent.socket).unwrap();
    let names = ["orders", "parcels", "orders", "orders"];
    let generators = names.map(|name| client.clone().generator(name).unwrap());
    assert_eq!(agent.puts(), 2);
    // The agent's own, and the client's.
    assert_eq!(agent.mapped(), ["slot-3-fence-7.page"; 2]);

    agent.lose_slot();
    for generator in &generators {
        generator.next_id().unwrap();
    }
    assert_eq!(agent.puts(), 4);
    let _fresh = generators.map(|generator| generator.clone());
    assert_eq!(agent.mapped(), ["slot-3-fence-8.page"; 2], "the old page is let go");
}

#[test]
fn threads_that_ask_for_one_name_at_once_share_it() {
    let agent = FakeAgent::start();
    let client = Client::connect_to(&agent.socket).unwrap();
    let ids = thread::scope(|scope| {
        let workers = (0..8).map(|_| {
            scope.spawn(|| {
                let orders = client.generator("orders").unwrap().with_timeout(LONG);
                (0..1_000).map(|_| orders.next_id().unwrap().get()).collect::<Vec<_>>()
            })
        });
        workers.collect::<Vec<_>>().into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_no_equal(ids);
    assert_eq!(agent.mapped().len(), 2);
}

#[test]
fn without_an_agent_there_is_an_error_at_once_and_no_slot() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("agent.sock");
    let stale = dir.path().join("stale.sock");
    drop(UnixListener::bind(&stale).unwrap());
    for socket in [&missing, &stale, &dir.path().join("no/such/directory.sock")] {
        let error = Client::connect_to(socket).unwrap_err();
        assert!(matches!(&error, Error::AgentAbsent { socket: told, .. } if told == socket), "{error}");
        assert!(error.to_string().contains("start the agent"), "{error}");
    }
}

#[test]
fn a_path_that_no_socket_can_have_is_said() {
    let error = Client::connect_to(Path::new("/tmp").join("x".repeat(200))).unwrap_err();
    assert!(matches!(error, Error::BadSocketPath { .. }), "{error}");
}

#[test]
fn a_missing_variable_is_said_with_the_next_step() {
    let test = ["--ignored", "--exact", "in_a_process_without_the_variable", "--nocapture"];
    let this = env::current_exe().unwrap();
    for empty in [false, true] {
        let mut child = Command::new(&this);
        child.args(test).env_remove("COSID_SOCKET");
        if empty {
            child.env("COSID_SOCKET", "");
        }
        let output = child.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn in_a_process_without_the_variable() {
    let error = Client::connect().unwrap_err();
    assert!(matches!(error, Error::NoSocket), "{error}");
    assert!(error.to_string().contains("cosid/slot: auto"), "{error}");
}

#[test]
fn a_silent_agent_is_given_up_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, _server) = scripted(&dir, vec![starting(), Vec::new()]);
    let client = Client::connect_to(socket).unwrap().with_timeout(SHORT);
    for outcome in [client.lease().map(drop), client.generator("orders").map(drop)] {
        assert!(matches!(outcome, Err(Error::AgentSlow { .. })), "{outcome:?}");
    }
}

#[test]
fn an_agent_that_does_not_accept_is_given_up_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent.sock");
    let first = Server::start(&socket, |mut stream| {
        read_head(&mut stream);
        std::io::Write::write_all(&mut stream, &starting()).unwrap_or_default();
    });
    let client = Client::connect_to(&socket).unwrap().with_timeout(SHORT);
    drop(first);
    std::fs::remove_file(&socket).unwrap();

    // A backlog of one, filled.
    let address = SocketAddrUnix::new(&socket).unwrap();
    let open = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    };
    let listener = open();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(listener.as_fd(), 1).unwrap();
    let mut waiting = Vec::new();
    loop {
        let stream = open();
        match rustix::net::connect(&stream, &address) {
            Ok(()) => waiting.push(stream),
            Err(errno) => break assert_eq!(errno, Errno::AGAIN),
        }
    }
    let start = Instant::now();
    let error = client.lease().unwrap_err();
    assert!(matches!(error, Error::AgentSlow { .. }), "{error}");
    assert!(start.elapsed() >= SHORT);
}

#[test]
fn what_is_no_agents_answer_is_refused() {
    let endless = |head: &str| [head.as_bytes(), &[b'7'; 100_000]].concat();
    let cases = [
        endless("HTTP/1.1 200 OK\r\n\r\n"),
        endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n18000\r\n"),
        endless("HTTP/1.1 200 OK\r\nX: "),
        b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(),
        answer(200, "{"),
        answer(200, "[]"),
        answer(200, r#"{"state":7}"#),
        answer(200, r#"{"state":"held","slot":3}"#),
        answer(200, &"[".repeat(60_000)),
    ];
    for case in cases {
        let start = String::from_utf8_lossy(&case[..case.len().min(60)]).into_owned();
        let dir = tempfile::tempdir().unwrap();
        let (socket, _server) = scripted(&dir, vec![case]);
        let error = Client::connect_to(socket).unwrap_err();
        assert!(matches!(error, Error::BadAnswer { .. }), "{start}: {error}");
        assert!(error.to_string().len() < 500, "{start}");
    }
}

#[test]
fn an_answer_that_breaks_off_is_asked_for_again() {
    let agent = FakeAgent::start();
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{".to_vec();
    let whole = told(json!({}));
    let (socket, _server) = beside(&agent, vec![starting(), cut, whole]);
    Client::connect_to(&agent.socket).unwrap().generator("orders").unwrap();
    let orders = Client::connect_to(socket).unwrap().generator("orders").unwrap();
    assert_eq!(slot_of(orders.next_id().unwrap()), 3);
}

/// What an agent would tell of [`FakeAgent`]'s page, with some fields told otherwise.
fn told(otherwise: Value) -> Vec<u8> {
    let mut body = json!({
        "generator": "orders", "cell": 0, "pool": POOL, "slot": 3, "fence": 7, "page": "slot-3-fence-7.page",
    });
    for (field, value) in otherwise.as_object().unwrap() {
        body[field] = value.clone();
    }
    answer(200, &body.to_string())
}

/// Another socket in the agent's directory, that says what it is told to.
fn beside(agent: &FakeAgent, answers: Vec<Vec<u8>>) -> (std::path::PathBuf, Server) {
    let socket = agent.dir.path().join("other.sock");
    let mut answers = answers.into_iter();
    let server = Server::start(&socket, move |mut stream| {
        if read_head(&mut stream).is_some() {
            std::io::Write::write_all(&mut stream, &answers.next().unwrap()).unwrap_or_default();
        }
    });
    (socket, server)
}

fn asked_beside(answer: Vec<u8>) -> Error {
    let agent = FakeAgent::start();
    Client::connect_to(&agent.socket).unwrap().generator("orders").unwrap();
    let (socket, _server) = beside(&agent, vec![starting(), answer]);
    Client::connect_to(socket).unwrap().generator("orders").unwrap_err()
}

#[test]
fn a_page_that_is_not_the_one_told_of_is_not_used() {
    for (field, value) in
        [("pool", json!("shop/other")), ("slot", json!(4)), ("fence", json!(8)), ("cell", json!(1))]
    {
        let error = asked_beside(told(json!({ field: value })));
        assert!(matches!(error, Error::PageMismatch { .. }), "{field}: {error}");
    }
    let error = asked_beside(told(json!({ "generator": "parcels" })));
    assert!(matches!(error, Error::BadAnswer { .. }), "{error}");
}

#[test]
fn a_page_elsewhere_is_not_opened() {
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("slot-3-fence-7.page");
    let header = Header { pool: POOL.into(), slot: 3, fence: 7, floor: 1, layout: Layout::MILLISECOND };
    PageOwner::create(&path, &header).unwrap().assign("orders").unwrap();
    let name = elsewhere.path().file_name().unwrap().to_str().unwrap();
    for page in [path.to_str().unwrap(), &format!("../{name}/slot-3-fence-7.page"), "..", ""] {
        let error = asked_beside(told(json!({ "page": page })));
        assert!(matches!(error, Error::BadAnswer { .. }), "{page}: {error}");
    }
}

#[test]
fn a_file_that_is_no_page_is_not_used() {
    let agent = FakeAgent::start();
    std::fs::write(agent.dir.path().join("notes.txt"), "to do").unwrap();
    let (socket, _server) = beside(&agent, vec![starting(), told(json!({ "page": "notes.txt" }))]);
    let error = Client::connect_to(socket).unwrap().generator("orders").unwrap_err();
    assert!(matches!(error, Error::Page(PageError::NotAPage { .. })), "{error}");
}

#[test]
fn a_refusal_comes_as_its_own_error_at_once() {
    let agent = FakeAgent::start();
    let client = Client::connect_to(&agent.socket).unwrap().with_timeout(LONG);
    let refused = |body| {
        agent.refuse([body]);
        client.generator("orders").unwrap_err()
    };
    let exhausted = json!({ "error": {
        "reason": "Exhausted", "message": "shop/orders has 8 slots", "earliestExpiry": 1234,
    }});
    let error = refused(exhausted);
    assert!(matches!(error, Error::Exhausted { earliest_expiry: Some(1234), .. }), "{error}");
    assert!(error.to_string().contains("shop/orders has 8 slots"), "{error}");
    assert!(matches!(refused(refusal("Refused", "other bits")), Error::Refused { .. }));
    assert!(matches!(refused(refusal("Closing", "SIGTERM")), Error::Closing { .. }));
    let error = refused(refusal("TooManyGenerators", "62 of 62"));
    assert!(matches!(&error, Error::TooManyGenerators { name, .. } if name == "orders"), "{error}");
    assert_eq!(agent.puts(), 4);

    client.generator("orders").unwrap();
}

#[test]
fn a_bad_name_is_refused_before_anything_is_asked() {
    let agent = FakeAgent::start();
    let client = Client::connect_to(&agent.socket).unwrap();
    let long = "n".repeat(65);
    for name in ["", "a/b", "a b", "../lease", "x HTTP/1.1\r\n", "ä", &long] {
        let error = client.generator(name).unwrap_err();
        assert!(matches!(error, Error::BadName { .. }), "{name:?}: {error}");
    }
    assert_eq!(agent.puts(), 0);
}

#[test]
fn an_agent_without_a_slot_yet_is_waited_for() {
    let agent = FakeAgent::start();
    let client = Client::connect_to(&agent.socket).unwrap().with_timeout(LONG);
    agent.refuse([refusal("NoSlot", "seeking"), refusal("NoSlot", "seeking")]);
    client.generator("orders").unwrap().next_id().unwrap();
    assert_eq!(agent.puts(), 3);

    agent.refuse(vec![refusal("NoSlot", "seeking"); 100]);
    let error = client.with_timeout(SHORT).generator("parcels").unwrap_err();
    assert!(matches!(&error, Error::NoSlot { message } if message == "seeking"), "{error}");
}

#[test]
fn a_window_that_has_ended_gives_no_id_and_says_so() {
    let agent = FakeAgent::start();
    agent.shut_window();
    let orders = Client::connect_to(&agent.socket).unwrap().generator("orders").unwrap();
    let wait = orders.try_next_id().unwrap_err();
    assert!(matches!(wait, NextError::Wait(Wait::AboveCeiling { .. })), "{wait}");
    for timeout in [Duration::ZERO, SHORT] {
        let error = orders.clone().with_timeout(timeout).next_id().unwrap_err();
        assert!(matches!(error, Error::NotYet(Wait::AboveCeiling { .. })), "{error}");
        assert!(error.is_transient());
    }
}

#[test]
fn an_endless_timeout_is_no_overflow() {
    let agent = FakeAgent::start();
    let client = Client::connect_to(&agent.socket).unwrap().with_timeout(Duration::MAX);
    let orders = client.generator("orders").unwrap();
    agent.lose_slot();
    orders.next_id().unwrap();
}

#[test]
fn a_client_and_its_generators_can_go_to_other_threads() {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<Client>();
    shared::<cosid_client::Generator>();
}

#[test]
fn a_connection_is_never_kept() {
    let agent = FakeAgent::start();
    let client = Client::connect_to(&agent.socket).unwrap();
    client.generator("orders").unwrap();
    // The agent serves one connection after the other: it would not come to this one.
    let mut stream = UnixStream::connect(&agent.socket).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /v1/lease HTTP/1.1\r\n\r\n").unwrap();
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
}
