//! Timing in turns.

use std::thread;
use std::time::{Duration, Instant};

/// Something to time.
pub struct Subject<'a> {
    pub name: &'static str,
    /// IDs of one turn.
    pub count: u64,
    /// Rest before a turn, for those who would else be at their cap and wait: it is not their cost.
    pub rest: Duration,
    /// Makes so many IDs and says how long that took.
    pub turn: Box<dyn FnMut(u64) -> Duration + 'a>,
}

/// One ID after the other, in one thread.
pub fn subject<'a, T>(name: &'static str, count: u64, mut one: impl FnMut() -> T + 'a) -> Subject<'a> {
    let turn = move |count| {
        let start = Instant::now();
        for _ in 0..count {
            std::hint::black_box(one());
        }
        start.elapsed()
    };
    Subject { name, count, rest: Duration::ZERO, turn: Box::new(turn) }
}

/// The same, in several threads at once: the time of all together.
pub fn threads<'a, T>(name: &'static str, threads: u64, one: impl Fn() -> T + Sync + 'a) -> Subject<'a> {
    let turn = move |count| {
        let start = Instant::now();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..count / threads).for_each(|_| drop(std::hint::black_box(one()))));
            }
        });
        start.elapsed()
    };
    Subject { name, count: 1_000_000, rest: Duration::ZERO, turn: Box::new(turn) }
}

impl Subject<'_> {
    pub fn resting(self, rest: Duration) -> Self {
        Self { rest, ..self }
    }
}

/// A name and its median, ns an ID.
pub type Median = (&'static str, f64);

/// The medians of so many turns of each.
pub fn medians(mut subjects: Vec<Subject<'_>>, turns: usize) -> Vec<Median> {
    let mut samples = vec![Vec::with_capacity(turns); subjects.len()];
    for _ in 0..turns {
        for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
            thread::sleep(subject.rest);
            samples.push((subject.turn)(subject.count).as_secs_f64() * 1e9 / subject.count as f64);
        }
    }
    subjects.iter().zip(samples).map(|(subject, samples)| (subject.name, median(samples))).collect()
}

pub fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
