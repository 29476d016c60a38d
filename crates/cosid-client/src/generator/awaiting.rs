//! Waiting for an ID without blocking a thread of the program's.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use cosid_id::{Clock, Generator as Issuer, Id, NextError, SystemClock};

use super::{ASK_AFTER, Bound, FIRST_NAP, Generator, Named, REQUEST_TIMEOUT, more_telling};
use crate::error::Error;
use crate::timer::Nap;

/// While it waits for the clock it looks again at least this often: the page may be closed.
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// The agent moves the ceiling every few seconds; nobody notices this much more.
const CEILING_WAIT: Duration = Duration::from_millis(10);
/// How often a task looks whether another one's request has found the new page.
const FOLLOWER_WAIT: Duration = Duration::from_millis(5);
/// It writes a request and reads an answer; a signal handler of the program may run on it too.
const STACK: usize = 256 * 1024;

impl Generator {
    /// [`Generator::next_id`] for async programs, on any executor: never blocks the thread that polls it. Where there is an
    /// ID it is ready at once, and gives no other task a turn.
    ///
    /// Tasks that wait are woken by one thread of the process, `cosid-wait`, which ends a second after the last of them.
    /// After a loss one thread, `cosid-ask`, asks the agent for all tasks of the name. A future may be dropped at any time;
    /// no ID is lost with it. It must not be carried over a fork; a generator may.
    ///
    /// ```no_run
    /// use cosid_client::{Client, Error, Generator, Id};
    ///
    /// async fn order(orders: &Generator) -> Result<Id, Error> {
    ///     orders.next_id_async().await
    /// }
    ///
    /// // Before the executor starts, or where blocking is allowed: the agent is asked here.
    /// let orders = Client::connect()?.generator("orders")?;
    /// println!("{}", pollster::block_on(order(&orders))?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Generator::next_id`].
    pub async fn next_id_async(&self) -> Result<Id, Error> {
        match self.try_next_id() {
            Ok(id) => Ok(id),
            Err(_) => wait_for(&self.named, &Bound::new(self.timeout)).await,
        }
    }
}

async fn wait_for(named: &Arc<Named>, bound: &Bound) -> Result<Id, Error> {
    let mut above_ceiling = None;
    loop {
        let current = named.current.load_full();
        let wait = match current.try_next() {
            Ok(id) => return Ok(id),
            Err(NextError::SlotLost) => {
                move_on(named, &current, bound).await?;
                continue;
            }
            Err(NextError::Wait(wait)) => wait,
            Err(error) => return Err(error.into()),
        };
        let left = bound.left();
        if left.is_zero() {
            return Err(Error::NotYet(wait));
        }
        if let Some(until) = wait.until() {
            above_ceiling = None;
            Nap::of(SystemClock.until(until).min(LONGEST_WAIT).min(left)).await;
        } else if above_ceiling.get_or_insert_with(Instant::now).elapsed() < ASK_AFTER.min(bound.half())
            || !named.may_ask()
        {
            Nap::of(CEILING_WAIT.min(left)).await;
        } else {
            above_ceiling = None;
            look_for_other_page(named, current, left.min(ASK_AFTER)).await;
        }
    }
}

/// Ready when the current page is another than the lost one.
async fn move_on(named: &Arc<Named>, lost: &Arc<Issuer>, bound: &Bound) -> Result<(), Error> {
    let mut before = None;
    while !named.has_left(lost) {
        // Not for the whole time: whoever waits may be dropped meanwhile, and nobody would want the answer.
        let timeout = bound.left().min(REQUEST_TIMEOUT);
        let old = Arc::clone(lost);
        let Some(asked) = start(named, move |named| named.move_on(&old, &Bound::new(timeout))) else {
            if bound.left().is_zero() {
                return Err(before.unwrap_or(Error::SlotLost { waited: bound.timeout }));
            }
            Nap::of(FOLLOWER_WAIT.min(bound.left())).await;
            continue;
        };
        match asked.await {
            Err(error) if error.is_passing() => {
                let error = match more_telling(before.take(), error) {
                    Error::SlotLost { .. } => Error::SlotLost { waited: bound.elapsed() },
                    error => error,
                };
                if bound.left() <= FIRST_NAP {
                    return Err(error);
                }
                before = Some(error);
                Nap::of(FIRST_NAP).await;
            }
            outcome => return outcome,
        }
    }
    Ok(())
}

async fn look_for_other_page(named: &Arc<Named>, current: Arc<Issuer>, timeout: Duration) {
    let look = move |named: &Named| {
        named.look_for_other_page(&current, &Bound::new(timeout));
        Ok(())
    };
    match start(named, look) {
        // It tells no errors: whoever can't ask goes on waiting for the window.
        Some(asked) => drop(asked.await),
        None => Nap::of(FOLLOWER_WAIT).await,
    }
}

/// Has a thread ask the agent, unless there is one that does, or none can be made.
fn start(
    named: &Arc<Named>,
    ask: impl FnOnce(&Named) -> Result<(), Error> + Send + 'static,
) -> Option<Asked> {
    // It is left by the thread.
    mem::forget(named.asking.take()?);
    let seated = Leaving(Arc::clone(named));
    let answer = Arc::new(Mutex::new(Answer::default()));
    let teller = Teller(Arc::clone(&answer));
    let work = move || {
        let outcome = ask(&seated.0);
        // In this order: who is told may ask again at once.
        drop(seated);
        teller.tell(outcome);
    };
    thread::Builder::new().name("cosid-ask".into()).stack_size(STACK).spawn(work).ok()?;
    Some(Asked(answer))
}

/// Leaves the seat when dropped, by the thread or where none could be made.
struct Leaving(Arc<Named>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.asking.leave();
    }
}

#[derive(Default)]
struct Answer {
    outcome: Option<Result<(), Error>>,
    waker: Option<Waker>,
}

/// Ready when the thread has told what came of it.
struct Asked(Arc<Mutex<Answer>>);

impl Future for Asked {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker().clone();
        let mut answer = lock(&self.0);
        if let Some(outcome) = answer.outcome.take() {
            return Poll::Ready(outcome);
        }
        let replaced = answer.waker.replace(waker);
        // Not under the lock: with its last waker a task may go.
        drop(answer);
        drop(replaced);
        Poll::Pending
    }
}

/// The thread's side. Tells in any case, also when the thread ends by a panic: somebody waits.
struct Teller(Arc<Mutex<Answer>>);

impl Teller {
    fn tell(&self, outcome: Result<(), Error>) {
        let waker = {
            let mut answer = lock(&self.0);
            answer.outcome.get_or_insert(outcome);
            answer.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.tell(Err(Error::SlotLost { waited: Duration::ZERO }));
    }
}

fn lock(answer: &Mutex<Answer>) -> MutexGuard<'_, Answer> {
    // Each change is an assignment.
    answer.lock().unwrap_or_else(PoisonError::into_inner)
}
