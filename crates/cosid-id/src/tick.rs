//! Who shuts a gate when its tick is over: a thread that lives for as long as IDs are made in masses.
//!
//! Where a process makes fewer than about half a million IDs a second, each looks at the clock itself; that is cheaper
//! than a thread that looks once a millisecond. From then on the thread is worth it. It ends a few milliseconds after
//! the last of them, so an idle program has none. It is never waited for: where it can't be started, is late or gets no
//! processor, IDs still look at the clock, each or every 256th.
//!
//! A child that is forked has no such thread, and its gate is off: its words are wiped.

use std::sync::Arc;
use std::thread;

use crate::clock::{Clock, SystemClock};
use crate::gate::{self, OFF, SHUT};
use crate::page::OwnWords;
use crate::sync::{AtomicU64, Ordering};

/// IDs in one millisecond that make the thread worth it.
const MANY: u64 = 512;
/// The thread ends after as many milliseconds in which it saw no 256 IDs.
const IDLE_MS: u32 = 8;
/// Where no thread can be made it is not tried again for so long.
const RETRY_MS: u64 = 1_000;
/// It calls the clock and little else; a signal handler of the program may run on it too.
const STACK: usize = 256 * 1024;

/// Words on cache lines of their own: every ID reads the first, few touch the others.
const GATE: usize = 0;
/// The millisecond, above `COUNT_BITS`, and how many IDs looked at the clock in it.
const DEMAND: usize = 64 / 8;
/// Not 0 if there were IDs since the thread last looked.
const USED: usize = 128 / 8;
const COUNT_BITS: u32 = 16;

/// The gate of a generator, and of its clones, in this process.
pub(crate) struct Gate {
    words: OwnWords,
    number: u64,
}

/// The number of the gate that is made next: each has another one, and none is 0.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl Gate {
    /// `None` where the kernel can't give it the memory it needs: IDs are then made without.
    pub(crate) fn new() -> Option<Arc<Self>> {
        let words = OwnWords::new().ok()?;
        Some(Arc::new(Self { words, number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed) }))
    }

    /// By which a thread knows whose run it has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    #[inline]
    pub(crate) fn word(&self) -> &AtomicU64 {
        &self.words.words()[GATE]
    }

    /// Keeps the thread.
    pub(crate) fn set_used(&self) {
        self.words.words()[USED].store(1, Ordering::Relaxed);
    }

    /// Counts an ID that looked at the clock. The thread is started once they are many.
    pub(crate) fn count(self: &Arc<Self>, now_ms: u64) {
        let demand = &self.words.words()[DEMAND];
        let seen = demand.load(Ordering::Relaxed);
        let (ms, count) = (seen >> COUNT_BITS, seen & ((1 << COUNT_BITS) - 1));
        // Threads may overwrite each other's count: it need not be exact.
        match now_ms.cmp(&ms) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Greater => demand.store((now_ms << COUNT_BITS) | 1, Ordering::Relaxed),
            std::cmp::Ordering::Equal if count < MANY => demand.store(seen + 1, Ordering::Relaxed),
            std::cmp::Ordering::Equal => {
                if !self.start() {
                    demand.store((now_ms + RETRY_MS) << COUNT_BITS, Ordering::Relaxed);
                }
            }
        }
    }

    /// Starts the thread unless there is one; `false` if that failed.
    fn start(self: &Arc<Self>) -> bool {
        if self.word().compare_exchange(OFF, SHUT, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return true;
        }
        let gate = Arc::clone(self);
        self.set_used();
        let started =
            thread::Builder::new().name("cosid-tick".into()).stack_size(STACK).spawn(move || gate.keep());
        if started.is_err() {
            self.word().store(OFF, Ordering::Release);
        }
        started.is_ok()
    }

    /// The thread: shuts the gate at each new millisecond, and ends when it is not used any more.
    fn keep(&self) {
        let mut idle = 0;
        while idle < IDLE_MS {
            let now = SystemClock.unix_ms();
            SystemClock.sleep(SystemClock.until(now + 1));
            gate::shut(self.word());
            let used = self.words.words()[USED].swap(0, Ordering::Relaxed) != 0;
            idle = if used { 0 } else { idle + 1 };
        }
        // Whoever would open it now finds that it can't.
        self.word().store(OFF, Ordering::Release);
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gate").field(&self.word().load(Ordering::Relaxed)).finish()
    }
}
