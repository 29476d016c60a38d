//! Which pool is reconciled when. Pure: the time is passed in, milliseconds of a clock that never goes back.
//!
//! A pool is reconciled by one task at a time; what is asked for meanwhile comes after it. After failures it waits
//! 0.25 s, doubling, to at most 60 s, without holding up the others.

use std::collections::HashMap;

use cosid_lease::Millis;

use crate::index::PoolKey;

const FIRST_PAUSE: Millis = 250;
const LONGEST_PAUSE: Millis = 60_000;

/// See the [module's text](self).
#[derive(Debug, Default)]
pub struct Schedule {
    pools: HashMap<PoolKey, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    due: Option<Millis>,
    running: bool,
    failures: u32,
    /// Not before this, whatever is asked for.
    not_before: Millis,
}

/// How a reconciliation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is as it should be, until this much time has passed (ms), if anything changes by time alone.
    Done(Option<Millis>),
    /// Something had changed meanwhile: soon again.
    Stale,
    /// It failed; not before this much time has passed (ms).
    Failed(Millis),
}

impl Schedule {
    /// Asks for a reconciliation at `at`, or earlier if one is due earlier.
    pub fn request(&mut self, key: PoolKey, at: Millis) {
        let entry = self.pools.entry(key).or_default();
        entry.due = Some(entry.due.map_or(at, |due| due.min(at)));
    }

    /// Starts the next that is due.
    pub fn start(&mut self, now: Millis) -> Option<PoolKey> {
        let due = self.pools.iter().filter_map(|(key, entry)| Some((entry.at()?, key)));
        let (at, key) = due.min_by(|a, b| a.cmp(b))?;
        if at > now {
            return None;
        }
        let key = key.clone();
        let entry = self.pools.get_mut(&key)?;
        entry.due = None;
        entry.running = true;
        Some(key)
    }

    /// A reconciliation has ended.
    pub fn ended(&mut self, key: &PoolKey, outcome: Outcome, now: Millis) {
        let Some(entry) = self.pools.get_mut(key) else { return };
        entry.running = false;
        let pause = match outcome {
            Outcome::Done(pause) => {
                entry.failures = 0;
                entry.not_before = 0;
                pause
            }
            Outcome::Stale => Some(entry.fail(0, now)),
            Outcome::Failed(at_least) => Some(entry.fail(at_least, now)),
        };
        if let Some(pause) = pause {
            self.request(key.clone(), now.saturating_add(pause));
        } else if entry.due.is_none() {
            self.pools.remove(key);
        }
    }

    /// When the next is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Millis> {
        self.pools.values().filter_map(Entry::at).min()
    }

    /// Forgets all that was asked for.
    pub fn clear(&mut self) {
        self.pools.clear();
    }
}

impl Entry {
    fn at(&self) -> Option<Millis> {
        self.due.filter(|_| !self.running).map(|due| due.max(self.not_before))
    }

    fn fail(&mut self, at_least: Millis, now: Millis) -> Millis {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE).max(at_least);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.saturating_add(pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PoolKey {
        PoolKey { namespace: "shop".into(), name: name.into() }
    }

    #[test]
    fn the_earliest_request_wins_and_is_started_when_due() {
        let mut schedule = Schedule::default();
        schedule.request(key("a"), 500);
        schedule.request(key("a"), 900);
        schedule.request(key("b"), 700);
        assert_eq!((schedule.next_due(), schedule.start(499)), (Some(500), None));
        assert_eq!(schedule.start(700), Some(key("a")));
        assert_eq!(schedule.start(700), Some(key("b")));
        assert_eq!((schedule.start(9_999), schedule.next_due()), (None, None));
    }

    #[test]
    fn what_is_asked_for_during_a_reconciliation_comes_after_it() {
        let mut schedule = Schedule::default();
        schedule.request(key("a"), 0);
        schedule.start(0);
        schedule.request(key("a"), 10);
        assert_eq!((schedule.next_due(), schedule.start(20)), (None, None));
        schedule.ended(&key("a"), Outcome::Done(Some(5_000)), 30);
        assert_eq!(schedule.start(30), Some(key("a")));
    }

    #[test]
    fn a_pool_that_fails_waits_longer_each_time_and_holds_up_no_other() {
        let mut schedule = Schedule::default();
        let mut now = 0;
        let mut pauses = Vec::new();
        schedule.request(key("a"), 0);
        for _ in 0..10 {
            assert_eq!(schedule.start(now), Some(key("a")));
            schedule.ended(&key("a"), Outcome::Failed(0), now);
            // An event does not cut the pause short.
            schedule.request(key("a"), now);
            pauses.push(schedule.next_due().unwrap() - now);
            now = schedule.next_due().unwrap();
        }
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        schedule.start(now);
        schedule.ended(&key("a"), Outcome::Failed(0), now);
        schedule.request(key("b"), now);
        assert_eq!(schedule.start(now), Some(key("b")));
    }

    #[test]
    fn the_pause_that_the_api_server_asks_for_is_kept_and_a_success_ends_them() {
        let mut schedule = Schedule::default();
        schedule.request(key("a"), 0);
        schedule.start(0);
        schedule.ended(&key("a"), Outcome::Failed(7_000), 0);
        assert_eq!(schedule.next_due(), Some(7_000));
        schedule.start(7_000);
        schedule.ended(&key("a"), Outcome::Done(None), 7_001);
        assert_eq!(schedule.next_due(), None);
        schedule.request(key("a"), 7_002);
        assert_eq!(schedule.start(7_002), Some(key("a")));
    }
}
