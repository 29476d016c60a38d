//! Wakes tasks: one thread for all of a process, while there are any to wake.
//!
//! An executor's own timer would do, but each has another one, and most are a millisecond late at the best: as long as a
//! whole tick of IDs takes.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, mem};

use arc_swap::ArcSwapOption;

/// How long the thread stays when there is nobody to wake.
const IDLE: Duration = Duration::from_secs(1);
/// It calls wakers, which do little.
const STACK: usize = 256 * 1024;

/// This process's. Replaced in a forked child, which has no such thread, and in which somebody may have held the lock.
static TIMER: ArcSwapOption<Timer> = ArcSwapOption::const_empty();

struct Timer {
    process: u32,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// By the time, and a number of their own for those of the same time.
    wakers: BTreeMap<Key, Waker>,
    next: u64,
    is_running: bool,
}

type Key = (Instant, u64);

/// Ready after a while. Dropped before, it leaves nothing behind.
pub(crate) struct Nap {
    until: Instant,
    entry: Option<Entry>,
}

/// Who is to be woken, in the timer's list until then.
struct Entry {
    timer: Arc<Timer>,
    key: Key,
    waker: Waker,
}

impl Nap {
    pub(crate) fn of(duration: Duration) -> Self {
        Self { until: Instant::now() + duration, entry: None }
    }
}

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.until {
            self.entry = None;
            return Poll::Ready(());
        }
        let is_known = self.entry.as_ref().is_some_and(|entry| entry.waker.will_wake(context.waker()));
        if !is_known {
            // The old one first: its task is polled by somebody else now.
            self.entry = None;
            match Entry::new(Timer::of_this_process(), self.until, context.waker()) {
                Ok(entry) => self.entry = Some(entry),
                // Where no thread can be made the task is polled again and again: slow, but never blocked.
                Err(_) => context.waker().wake_by_ref(),
            }
        }
        Poll::Pending
    }
}

impl Entry {
    /// # Errors
    /// There is no thread, and none can be made.
    fn new(timer: Arc<Timer>, at: Instant, waker: &Waker) -> io::Result<Self> {
        let key = timer.wake_at(at, waker.clone())?;
        Ok(Self { timer, key, waker: waker.clone() })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // In a forked child the parent's list may be half changed and its lock held for ever.
        if self.timer.process == process::id() {
            let removed = self.timer.lock().wakers.remove(&self.key);
            // Not under the lock: with the last waker its task may go, and a nap of its own with it.
            drop(removed);
        }
    }
}

impl Timer {
    fn new(process: u32) -> Arc<Self> {
        let timer = Arc::new(Self { process, waiting: Mutex::default(), changed: Condvar::new() });
        // It stays for ever: a forked child must not drop what its parent's threads were changing.
        mem::forget(Arc::clone(&timer));
        timer
    }

    fn of_this_process() -> Arc<Self> {
        let process = process::id();
        loop {
            let seen = TIMER.load();
            match &*seen {
                Some(timer) if timer.process == process => return Arc::clone(timer),
                // If another thread was faster, its timer is taken.
                _ => drop(TIMER.compare_and_swap(&*seen, Some(Self::new(process)))),
            }
        }
    }

    /// # Errors
    /// There is no thread, and none can be made.
    fn wake_at(self: &Arc<Self>, at: Instant, waker: Waker) -> io::Result<Key> {
        let mut waiting = self.lock();
        if !waiting.is_running {
            let timer = Arc::clone(self);
            let named = thread::Builder::new().name("cosid-wait".into()).stack_size(STACK);
            // It waits for the lock that is held here.
            if let Err(error) = named.spawn(move || timer.keep()) {
                drop(waiting);
                return Err(error);
            }
            waiting.is_running = true;
        }
        let key = (at, waiting.next);
        waiting.next += 1;
        waiting.wakers.insert(key, waker);
        let is_first = waiting.wakers.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(waiting);
        if is_first {
            self.changed.notify_one();
        }
        Ok(key)
    }

    /// The thread.
    fn keep(&self) {
        let mut waiting = self.lock();
        loop {
            let now = Instant::now();
            let later = waiting.wakers.split_off(&(now, u64::MAX));
            let due = mem::replace(&mut waiting.wakers, later);
            if !due.is_empty() {
                // Not under the lock: a waker may poll its task at once.
                drop(waiting);
                due.into_values().for_each(wake);
                waiting = self.lock();
                continue;
            }
            let pause = waiting.wakers.first_key_value().map(|((at, _), _)| *at - now);
            let waited = self.changed.wait_timeout(waiting, pause.unwrap_or(IDLE));
            let (woken, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
            waiting = woken;
            if pause.is_none() && outcome.timed_out() && waiting.wakers.is_empty() {
                waiting.is_running = false;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nobody's code runs under it, and each change is one call.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waker that panics, whose message the panic hook has, must not keep others asleep.
fn wake(waker: Waker) {
    drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::Wake;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Sends at each wake.
    struct Bell(mpsc::Sender<()>);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            // The test may have ended.
            let _ = self.0.send(());
        }
    }

    fn bell() -> (Waker, mpsc::Receiver<()>) {
        let (sender, receiver) = mpsc::channel();
        (Arc::new(Bell(sender)).into(), receiver)
    }

    fn poll(nap: &mut Nap, waker: &Waker) -> Poll<()> {
        Pin::new(nap).poll(&mut Context::from_waker(waker))
    }

    fn a_timer() -> Arc<Timer> {
        Timer::new(process::id())
    }

    #[test]
    fn a_nap_wakes_its_task_once_its_time_has_come_and_not_before() {
        let (waker, bell) = bell();
        let mut nap = Nap::of(Duration::from_millis(30));
        let until = nap.until;
        while poll(&mut nap, &waker).is_pending() {
            bell.recv_timeout(LONG).unwrap();
            assert!(Instant::now() >= until, "woken too early");
        }
    }

    #[test]
    fn a_nap_that_ends_before_those_that_wait_already_is_not_late() {
        let (timer, (waker, bell)) = (a_timer(), bell());
        let now = Instant::now();
        let long = Entry::new(timer.clone(), now + LONG * 10, &waker).unwrap();
        let _short = Entry::new(timer.clone(), now + Duration::from_millis(10), &waker).unwrap();
        bell.recv_timeout(LONG).unwrap();
        assert_eq!(timer.lock().wakers.len(), 1, "the other one still waits");
        drop(long);
        assert_eq!(timer.lock().wakers.len(), 0);
    }

    #[test]
    fn only_the_last_waker_that_polled_is_kept_and_none_of_a_dropped_nap() {
        struct Counted(Arc<AtomicUsize>);
        impl Wake for Counted {
            fn wake(self: Arc<Self>) {}
        }
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let count = Arc::new(AtomicUsize::new(0));
        let mut nap = Nap::of(LONG);
        for _ in 0..100 {
            count.fetch_add(1, Ordering::SeqCst);
            assert!(poll(&mut nap, &Arc::new(Counted(count.clone())).into()).is_pending());
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
        drop(nap);
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_else_asleep() {
        struct Panicking;
        impl Wake for Panicking {
            fn wake(self: Arc<Self>) {
                std::panic::resume_unwind(Box::new("a waker that panics"));
            }
        }
        let (timer, (waker, bell)) = (a_timer(), bell());
        let at = Instant::now() + Duration::from_millis(5);
        let _bad = Entry::new(timer.clone(), at, &Arc::new(Panicking).into()).unwrap();
        let _good = Entry::new(timer.clone(), at, &waker).unwrap();
        bell.recv_timeout(LONG).unwrap();
        let _later = Entry::new(timer.clone(), Instant::now(), &waker).unwrap();
        bell.recv_timeout(LONG).unwrap();
    }

    #[test]
    fn with_its_last_waker_a_task_may_go_that_naps_itself() {
        /// A task that is kept by its wakers alone.
        struct Task {
            _nap: Nap,
        }
        impl Wake for Task {
            fn wake(self: Arc<Self>) {}
        }
        let mut inner = Nap::of(LONG);
        assert!(poll(&mut inner, Waker::noop()).is_pending());
        let mut outer = Nap::of(LONG);
        assert!(poll(&mut outer, &Arc::new(Task { _nap: inner }).into()).is_pending());
        drop(outer);
    }

    #[test]
    fn a_forked_child_has_a_timer_of_its_own_whatever_state_the_parents_was_in() {
        // What a child finds: another process's timer, said to run, its lock held by a thread that is not here.
        let parents = Timer::new(process::id().wrapping_add(1));
        parents.lock().is_running = true;
        mem::forget(parents.lock());
        let (waker, bell) = bell();
        let key = (Instant::now(), 0);
        let carried = Entry { timer: parents.clone(), key, waker: waker.clone() };
        TIMER.store(Some(parents));
        drop(carried);
        let mut nap = Nap::of(Duration::from_millis(5));
        while poll(&mut nap, &waker).is_pending() {
            bell.recv_timeout(LONG).unwrap();
        }
    }
}
