//! IDs in async programs: waited for without blocking the thread that runs the tasks, on executors of any kind.

#![allow(clippy::unwrap_used, reason = "tests may stop at the first surprise, in their own functions too")]

mod support;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};
use std::{fs, thread};

use cosid_client::{Client, Error, Generator, Wait};
use support::{FakeAgent, assert_no_equal, refusal, slot_of};
use tokio::task::yield_now;

const SHORT: Duration = Duration::from_millis(250);
const LONG: Duration = Duration::from_secs(60);

fn orders(agent: &FakeAgent) -> Generator {
    Client::connect_to(&agent.socket).unwrap().with_timeout(LONG).generator("orders").unwrap()
}

/// Runs tasks on one thread: while one of them blocks, none of the others has a turn.
fn on_one_thread<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

#[test]
fn a_thousand_tasks_on_one_thread_make_no_equal_id_and_all_go_over_a_loss() {
    let agent = FakeAgent::start();
    let orders = orders(&agent);
    let ids = on_one_thread(async {
        let worker = |orders: Generator| async move {
            let mut ids = Vec::new();
            for _ in 0..100 {
                ids.push(orders.next_id_async().await.unwrap().get());
                yield_now().await;
            }
            ids
        };
        let workers: Vec<_> = (0..1_000).map(|_| tokio::spawn(worker(orders.clone()))).collect();
        // In the middle of it, as tasks have turns.
        for _ in 0..50 {
            yield_now().await;
        }
        agent.lose_slot();
        let mut ids = Vec::new();
        for worker in workers {
            ids.extend(worker.await.unwrap());
        }
        ids
    });
    assert_eq!(ids.len(), 100_000);
    assert_no_equal(ids);
    assert_eq!(agent.puts(), 2, "one asked for all");
}

#[test]
fn an_executor_that_knows_no_time_makes_more_ids_than_a_millisecond_has() {
    let agent = FakeAgent::start();
    let orders = orders(&agent);
    let ids: Vec<u64> = pollster::block_on(async {
        let mut ids = Vec::new();
        for _ in 0..50_000 {
            ids.push(orders.next_id_async().await.unwrap().get());
        }
        ids
    });
    assert!(ids.is_sorted_by(|a, b| a < b));
}

#[test]
fn a_window_that_has_ended_is_waited_for_within_the_timeout() {
    let agent = FakeAgent::start();
    agent.shut_window();
    let orders = orders(&agent).with_timeout(SHORT);
    let start = Instant::now();
    let error = on_one_thread(orders.next_id_async()).unwrap_err();
    assert!(matches!(error, Error::NotYet(Wait::AboveCeiling { .. })), "{error}");
    assert!(start.elapsed() >= SHORT);
}

/// What lets a task go on is done by another one on the same thread: it would wait for its whole timeout, and fail, if it
/// kept the thread meanwhile.
#[test]
fn other_tasks_have_turns_while_one_waits_for_the_window_or_a_slot() {
    let agent = FakeAgent::start();
    agent.shut_window();
    let orders = orders(&agent);
    on_one_thread(async {
        let one = |orders: Generator| async move { orders.next_id_async().await.unwrap() };
        let waiting = tokio::spawn(one(orders.clone()));
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!waiting.is_finished());
        agent.open_window();
        let first = waiting.await.unwrap();

        agent.close_page();
        let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(one(orders.clone()))).collect();
        let asked = agent.puts();
        while agent.puts() == asked {
            yield_now().await;
        }
        assert!(waiting.iter().all(|task| !task.is_finished()));
        agent.lose_slot();
        for task in waiting {
            assert!(task.await.unwrap() > first);
        }
    });
}

#[test]
fn a_page_whose_agent_went_without_closing_it_is_left_when_its_window_ends() {
    let agent = FakeAgent::start();
    agent.shut_window();
    let orders = orders(&agent);
    agent.forget_slot();
    let id = on_one_thread(orders.next_id_async()).unwrap();
    assert_eq!(slot_of(id), 4);
}

#[test]
fn such_a_page_is_left_by_short_waits_too() {
    let agent = FakeAgent::start();
    agent.shut_window();
    let orders = orders(&agent).with_timeout(Duration::from_millis(40));
    agent.forget_slot();
    let start = Instant::now();
    let id = loop {
        match on_one_thread(orders.next_id_async()) {
            Ok(id) => break id,
            Err(error) => assert!(error.is_transient() && start.elapsed() < LONG, "{error}"),
        }
    };
    assert_eq!(slot_of(id), 4);
}

#[test]
fn a_lost_slot_without_another_is_an_error_when_the_time_is_over_and_a_refusal_at_once() {
    let agent = FakeAgent::start();
    let orders = orders(&agent);
    agent.close_page();
    let start = Instant::now();
    let error =
        on_one_thread(async { orders.clone().with_timeout(SHORT).next_id_async().await.unwrap_err() });
    assert!(error.is_transient(), "{error}");
    assert!(matches!(error, Error::NoSlot { .. } | Error::AgentSlow { .. }), "{error}");
    assert!(start.elapsed() >= SHORT / 2, "{:?}", start.elapsed());
    agent.refuse([refusal("Exhausted", "8 of 8 are held")]);
    let error = pollster::block_on(orders.next_id_async()).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
}

#[test]
fn tasks_and_threads_that_wait_at_once_all_go_over_a_loss() {
    let agent = FakeAgent::start();
    let orders = orders(&agent);
    agent.close_page();
    let ids = thread::scope(|scope| {
        let blocking = (0..4).map(|_| scope.spawn(|| orders.next_id())).collect::<Vec<_>>();
        let awaiting = (0..4).map(|_| scope.spawn(|| pollster::block_on(orders.next_id_async())));
        let awaiting = awaiting.collect::<Vec<_>>();
        let asked = agent.puts();
        while agent.puts() == asked {
            thread::yield_now();
        }
        agent.lose_slot();
        let all = blocking.into_iter().chain(awaiting);
        all.map(|thread| thread.join().unwrap().unwrap().get()).collect::<Vec<_>>()
    });
    assert_eq!(ids.len(), 8);
    assert_no_equal(ids);
}

/// Counts those of its kind.
struct Counted(Arc<AtomicUsize>);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_future_that_is_dropped_while_it_waits_leaves_no_waker_behind_and_hurts_nobody() {
    let agent = FakeAgent::start();
    agent.shut_window();
    let orders = orders(&agent);
    let alive = Arc::new(AtomicUsize::new(0));
    for closed in [false, true] {
        if closed {
            agent.close_page();
        }
        let mut waiting = Box::pin(orders.next_id_async());
        for _ in 0..10 {
            alive.fetch_add(1, Ordering::SeqCst);
            let waker: Waker = Arc::new(Counted(alive.clone())).into();
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        // Not at once: the last one's is woken by threads.
        let wait_until_left = |count| {
            let start = Instant::now();
            while alive.load(Ordering::SeqCst) > count {
                assert!(start.elapsed() < LONG, "more than {count} wakers are kept");
                thread::yield_now();
            }
        };
        wait_until_left(1);
        drop(waiting);
        wait_until_left(0);
    }
    agent.lose_slot();
    pollster::block_on(orders.next_id_async()).unwrap();
}

#[test]
fn the_timer_s_thread_ends_when_nobody_waits() {
    let wait_until = |wanted: bool| {
        let start = Instant::now();
        let has_thread = || {
            let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
            threads.into_iter().any(|thread| {
                fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == "cosid-wait")
            })
        };
        while has_thread() != wanted {
            assert!(start.elapsed() < LONG, "the thread is there: {}", !wanted);
            thread::sleep(Duration::from_millis(10));
        }
    };
    let agent = FakeAgent::start();
    agent.shut_window();
    let orders = orders(&agent);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pollster::block_on(orders.next_id_async()));
        wait_until(true);
        agent.open_window();
        waiting.join().unwrap().unwrap();
    });
    // Other tests of this process wait too, but not for ever.
    wait_until(false);
}

#[test]
fn a_future_can_go_to_other_threads() {
    fn sendable<T: Send>(_: &T) {}
    let agent = FakeAgent::start();
    let orders = orders(&agent);
    sendable(&orders.next_id_async());
}
