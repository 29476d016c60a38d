//! IDs as numbers: put together, taken apart, and made one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cosid_id::{Clock, Generator, Header, Id, Layout, PageOwner};
use cosid_tests::cosid;

use super::values::{Random, fields, layouts};

#[test]
fn an_id_is_composed_and_decoded_as_by_cosid_in_each_of_its_layouts() {
    if !cosid::is_here() {
        return;
    }
    let mut questions = Vec::new();
    let mut expected = Vec::new();
    for (seed, (name, layout)) in (1..).zip(layouts()) {
        let max = (layout.max_tick(), layout.max_slot(), layout.max_sequence());
        for (tick, slot, sequence) in fields(max, seed) {
            let start = layout.tick_start(tick);
            let id = layout.compose(start, slot, sequence).unwrap();
            let time = start / u64::from(layout.unit_ms());
            questions.push(format!("compose\t{name}\t{time}\t{slot}\t{sequence}"));
            expected.push(id.to_string());
            questions.push(format!("decode\t{name}\t{id}"));
            expected.push(format!("{start}\t{slot}\t{sequence}"));
            // And back: what CosId has composed, which is the same number, is taken apart here as it was put together.
            let parts = layout.decompose(id).unwrap();
            assert_eq!((parts.timestamp(), parts.slot(), parts.sequence()), (start, slot, sequence));
        }
    }
    for ((question, expected), answer) in questions.iter().zip(&expected).zip(cosid::ask(&questions)) {
        assert_eq!(answer.as_ref(), Ok(expected), "{question}");
    }
    println!("{} IDs composed and decoded by both: equal", questions.len() / 2);
}

/// A clock that stands where it is set.
#[derive(Clone, Default)]
struct Set(Arc<AtomicU64>);

impl Clock for Set {
    fn unix_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _: Duration) {}
}

/// What one new generator of slot 1 makes when it is asked at these times (Unix ms).
fn generated(layout: Layout, times: &[u64]) -> Vec<Id> {
    let dir = tempfile::tempdir().unwrap();
    let header =
        Header { pool: "shop/orders".into(), slot: 1, fence: 1, floor: times[0] - 2 * 1_000, layout };
    let mut owner = PageOwner::create(dir.path().join("page"), &header).unwrap();
    let cell = owner.assign("orders").unwrap();
    owner.set_ceiling(times.last().unwrap() + 2 * 1_000);
    let clock = Set::default();
    let generator = Generator::with_clock(owner.page().clone(), cell, clock.clone()).unwrap();
    let make = |&time: &u64| {
        clock.0.store(time, Ordering::Relaxed);
        generator.try_next().unwrap()
    };
    times.iter().map(make).collect()
}

#[test]
fn a_generator_makes_the_ids_that_cosid_makes_at_the_same_times() {
    if !cosid::is_here() {
        return;
    }
    let mut random = Random::new(7);
    let mut questions = Vec::new();
    let mut expected = Vec::new();
    for (name, layout) in layouts() {
        let unit = u64::from(layout.unit_ms());
        // Few in a tick, so that the threshold is reached in small steps; many, so that it is passed by far.
        for (count, most_in_a_tick) in [(12_000, 3), (12_000, 150), (3_000, 1)] {
            let mut times = Vec::new();
            let mut tick = 1_800_000_000_000 / unit;
            while times.len() < count {
                tick += 1 + random.up_to(3);
                let many = 1 + random.up_to(most_in_a_tick - 1);
                times.extend((0..many).map(|_| tick * unit));
            }
            let in_units: Vec<String> = times.iter().map(|time| (time / unit).to_string()).collect();
            questions.push(format!("generate\t{name}\t{}", in_units.join("\t")));
            expected.push(generated(layout, &times));
        }
    }
    let mut compared = 0;
    let mut reset = 0;
    for (answer, expected) in cosid::ask(&questions).into_iter().zip(expected) {
        let ids: Vec<Id> = answer.unwrap().split('\t').map(|id| id.parse().unwrap()).collect();
        assert_eq!(ids[0].get() & 3, 1, "the first ID of a generator has sequence 1");
        for (at, (theirs, ours)) in ids.iter().zip(&expected).enumerate() {
            assert_eq!(theirs, ours, "ID {at}");
        }
        assert_eq!(ids.len(), expected.len());
        compared += ids.len();
        reset += ids.windows(2).filter(|pair| pair[0].get() & 0x1ff > pair[1].get() & 0x1ff).count();
    }
    assert!(reset > 100, "the threshold was reached {reset} times");
    println!("{compared} IDs made by both, one after the other: equal");
}
