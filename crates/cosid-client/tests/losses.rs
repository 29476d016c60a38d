//! A slot is lost while IDs are made: in threads, and in processes that share the page.

#![allow(clippy::unwrap_used, reason = "tests may stop at the first surprise, in their own functions too")]

mod support;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, hint, thread};

use cosid_client::{Client, Error, Generator, NextError};
use support::{FakeAgent, assert_no_equal, refusal, slot_of};

const SHORT: Duration = Duration::from_millis(250);
const LONG: Duration = Duration::from_secs(60);

fn orders(agent: &FakeAgent) -> Generator {
    Client::connect_to(&agent.socket).unwrap().with_timeout(LONG).generator("orders").unwrap()
}

#[test]
fn eight_threads_move_together_with_one_request_a_loss_and_no_equal_id() {
    const EACH: usize = 25_000;
    const LOSSES: usize = 6;
    let agent = FakeAgent::start();
    let orders = orders(&agent);
    let made = AtomicUsize::new(0);
    let ids = thread::scope(|scope| {
        let worker = || {
            let one = || {
                made.fetch_add(1, Ordering::Relaxed);
                orders.next_id().unwrap().get()
            };
            (0..EACH).map(|_| one()).collect::<Vec<_>>()
        };
        let workers = (0..8).map(|_| scope.spawn(worker)).collect::<Vec<_>>();
        for loss in 1..=LOSSES {
            while made.load(Ordering::Relaxed) < loss * EACH {
                hint::spin_loop();
                thread::yield_now();
            }
            agent.lose_slot();
            // On a busy host the workers may all be stopped until the next loss; two that nobody saw in between are one.
            orders.next_id().unwrap();
        }
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(ids.len(), 8 * EACH);
    assert_no_equal(ids);
    assert_eq!(agent.puts(), 1 + LOSSES);
}

#[test]
fn a_batch_goes_on_over_a_loss() {
    let agent = FakeAgent::start();
    let orders = orders(&agent);
    let mut ids = vec![0; 3 * 10_000];
    for chunk in ids.chunks_mut(10_000) {
        orders.next_ids(chunk).unwrap();
        agent.lose_slot();
    }
    assert!(ids.is_sorted_by(|a, b| a < b));
    assert_eq!(agent.puts(), 3);
}

#[test]
fn trying_asks_nobody_and_reconnecting_does() {
    let agent = FakeAgent::start();
    let orders = orders(&agent);
    orders.reconnect().unwrap();
    assert_eq!(agent.puts(), 1, "nothing was lost");

    agent.lose_slot();
    assert_eq!(orders.try_next_id(), Err(NextError::SlotLost));
    assert_eq!(orders.try_next_id(), Err(NextError::SlotLost));
    assert_eq!(agent.puts(), 1);
    orders.reconnect().unwrap();
    assert_eq!(agent.puts(), 2);
    // The new window's floor is the last timestamp: the clock has to get above it first.
    assert!(!matches!(orders.try_next_id(), Err(NextError::SlotLost)));
    orders.next_id().unwrap();
}

#[test]
fn a_lost_slot_without_another_is_an_error_and_no_id() {
    let agent = FakeAgent::start();
    let orders = orders(&agent);
    agent.close_page();
    let error = orders.clone().with_timeout(SHORT).next_id().unwrap_err();
    assert!(matches!(error, Error::NoSlot { .. }), "{error}");
    let error = orders.clone().with_timeout(Duration::ZERO).next_id().unwrap_err();
    assert!(error.is_transient(), "{error}");

    agent.refuse([refusal("Exhausted", "8 of 8 are held")]);
    let error = orders.next_id().unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");

    let socket = agent.socket.clone();
    drop(agent);
    let error = orders.clone().with_timeout(SHORT).next_id().unwrap_err();
    assert!(matches!(&error, Error::AgentAbsent { socket: told, .. } if *told == socket), "{error}");
}

#[test]
fn when_the_one_who_asks_gives_up_another_goes_on() {
    let agent = FakeAgent::start();
    let orders = orders(&agent);
    agent.close_page();
    let hasty = orders.clone().with_timeout(SHORT);
    thread::scope(|scope| {
        let patient = (0..4).map(|_| scope.spawn(|| orders.next_id())).collect::<Vec<_>>();
        assert!(hasty.next_id().is_err());
        agent.lose_slot();
        let ids = patient.into_iter().map(|thread| thread.join().unwrap().unwrap().get());
        assert_no_equal(ids.collect());
    });
}

#[test]
fn a_page_whose_agent_went_without_closing_it_is_left_when_its_window_ends() {
    let agent = FakeAgent::start();
    agent.shut_window();
    let orders = orders(&agent);
    assert_eq!(orders.slot(), 3);
    agent.forget_slot();
    assert_eq!(slot_of(orders.next_id().unwrap()), 4);
}

#[test]
fn such_a_page_is_left_by_short_calls_too_and_the_agent_is_not_asked_in_each() {
    let agent = FakeAgent::start();
    agent.shut_window();
    let orders = orders(&agent).with_timeout(Duration::from_millis(40));
    let start = Instant::now();
    for _ in 0..30 {
        assert!(matches!(orders.next_id(), Err(Error::NotYet(_))));
    }
    let asked = agent.puts() - 1;
    assert!(asked >= 1 && asked as u128 <= 1 + start.elapsed().as_millis() / 500, "{asked} times");

    agent.forget_slot();
    let id = loop {
        match orders.next_id() {
            Ok(id) => break id,
            Err(error) => assert!(error.is_transient() && start.elapsed() < LONG, "{error}"),
        }
    };
    assert_eq!(slot_of(id), 4);
}

#[test]
fn processes_on_one_page_make_no_equal_id_while_slots_are_lost() {
    let agent = FakeAgent::start();
    let here = orders(&agent);
    let out = |worker: usize| agent.dir.path().join(format!("ids-{worker}"));
    let spawn = |worker: usize| -> Child {
        Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--exact", "a_worker_process"])
            .env("COSID_SOCKET", &agent.socket)
            .env(OUT_VARIABLE, out(worker))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut running = (0..4).map(spawn).collect::<Vec<_>>();
    let mut ids = Vec::new();
    while !running.is_empty() {
        ids.extend((0..20_000).map(|_| here.next_id().unwrap().get()));
        agent.lose_slot();
        running.retain_mut(|worker| {
            let ended = worker.try_wait().unwrap();
            assert!(ended.is_none_or(|status| status.success()), "{ended:?}");
            ended.is_none()
        });
    }
    for worker in 0..4 {
        let bytes = fs::read(out(worker)).unwrap();
        let (chunks, rest) = bytes.as_chunks::<8>();
        assert_eq!((chunks.len(), rest.len()), (IDS_OF_A_WORKER, 0));
        ids.extend(chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)));
    }
    assert_no_equal(ids);
}

const OUT_VARIABLE: &str = "COSID_TEST_OUT";
const IDS_OF_A_WORKER: usize = 100_000;

#[test]
#[ignore = "run by the test above in processes of its own"]
fn a_worker_process() {
    let Some(out) = env::var_os(OUT_VARIABLE) else { return };
    let orders = Client::connect().unwrap().generator("orders").unwrap().with_timeout(LONG);
    let ids = (0..IDS_OF_A_WORKER).flat_map(|_| orders.next_id().unwrap().get().to_le_bytes());
    fs::write(out, ids.collect::<Vec<_>>()).unwrap();
}
