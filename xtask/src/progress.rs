//! Steps that show on stderr that they run and how long they took.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What a running step has got to so far; shown at its next heartbeat.
#[derive(Debug, Default)]
pub struct Detail(Mutex<String>);

impl Detail {
    /// Replaces the text, such as `120 packages`.
    pub fn set(&self, text: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = format!(", {text}");
    }

    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs `work` and prints a line with its time; while it runs, a heartbeat after 2 s, then less and less often, at
/// least every 10 s. Returns what `work` returns. Blocks for as long as `work` does.
///
/// ```
/// let sum = xtask::progress::step("add up", |_| Ok::<_, ()>(1 + 2));
/// assert_eq!(sum, Ok(3));
/// ```
pub fn step<T, E>(label: &str, work: impl FnOnce(&Detail) -> Result<T, E>) -> Result<T, E> {
    let start = Instant::now();
    let detail = Detail::default();
    let result = thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let detail = &detail;
        scope.spawn(move || {
            let mut pause = Duration::from_secs(2);
            while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(pause) {
                eprintln!("    {label}: {} s{}", start.elapsed().as_secs(), detail.get());
                pause = (pause * 2).min(Duration::from_secs(10));
            }
        });
        let result = work(detail);
        drop(done);
        result
    });
    let outcome = if result.is_ok() { "" } else { " (failed)" };
    eprintln!("  {label}: {:.1} s{outcome}", start.elapsed().as_secs_f64());
    result
}
