//! How evenly `id % n` spreads where a tick has an ID or a few: what CosId's sequences are for.

use std::time::Duration;

use cosid_id::{Generator, Layout};

use crate::virtual_time::{VirtualTime, page};

const NOW: u64 = 1_700_000_000_000;
const IDS: u32 = 50_000;
const DIVISORS: [u64; 20] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 64, 100, 128, 256];

/// IDs of a tick, and milliseconds from one tick that has some to the next: at random up to these.
struct Pace {
    name: &'static str,
    most_ids: u64,
    most_pause: u64,
}

const PACES: [Pace; 3] = [
    Pace { name: "one ID a millisecond", most_ids: 1, most_pause: 1 },
    Pace { name: "one ID every 1 to 20 ms", most_ids: 1, most_pause: 20 },
    Pace { name: "1 to 4 IDs every 1 to 5 ms", most_ids: 4, most_pause: 5 },
];

fn ids(layout: Layout, pace: &Pace) -> Vec<u64> {
    let (_dir, mut owner) = page(layout, NOW - 1);
    let cell = owner.assign("orders").unwrap();
    owner.set_ceiling(NOW + 10_000_000);
    let clock = VirtualTime::at(NOW);
    let generator = Generator::with_clock(owner.page().clone(), cell, clock.clone()).unwrap();

    let mut random = 42_u64;
    let mut up_to = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (random >> 33) % most
    };
    let mut ids = Vec::new();
    while ids.len() < IDS as usize {
        for _ in 0..up_to(pace.most_ids) {
            ids.push(generator.try_next().unwrap().get());
        }
        clock.advance(Duration::from_millis(up_to(pace.most_pause)));
    }
    ids
}

/// Chi square of the counts of `id % n`, over its degrees of freedom: 1 is what chance gives, 0 perfectly even.
fn unevenness(ids: &[u64], n: u64) -> f64 {
    let mut counts = vec![0_u32; usize::try_from(n).unwrap()];
    for id in ids {
        counts[usize::try_from(id % n).unwrap()] += 1;
    }
    let buckets = f64::from(u32::try_from(n).unwrap());
    let expected = f64::from(u32::try_from(ids.len()).unwrap()) / buckets;
    let square: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
    square / (buckets - 1.0)
}

fn table(layout: Layout) -> Vec<(&'static str, u64, f64)> {
    PACES
        .iter()
        .flat_map(|pace| {
            let ids = ids(layout, pace);
            DIVISORS.map(|n| (pace.name, n, unevenness(&ids, n)))
        })
        .collect()
}

/// What is allowed: three times what chance gives.
///
/// One case does not come near it and has to be known rather than hidden: with exactly one ID each millisecond an ID is
/// 2^22 + 1 above the one before, which 5 divides. So `id % 5` changes only where the sequence starts over, every 2,047
/// IDs, and after 50,000 IDs the partitions differ by a few percent.
fn most(pace: &str, n: u64) -> f64 {
    if pace == PACES[0].name && n.is_multiple_of(5) { 50.0 } else { 3.0 }
}

/// `cargo test -p cosid-id --test it spread -- --nocapture` prints the table.
#[test]
fn ids_at_a_slow_pace_spread_evenly_and_without_the_threshold_they_do_not() {
    let with = table(Layout::MILLISECOND);
    let without = table(Layout::builder().sequence_threshold(0).build().unwrap());
    println!("{:<28} {:>4} {:>12} {:>18}", "pace", "n", "chi square/f", "without threshold");
    for ((pace, n, even), (_, _, uneven)) in with.iter().zip(&without) {
        println!("{pace:<28} {n:>4} {even:>12.3} {uneven:>18.3}");
        assert!(*even <= most(pace, *n), "{pace}, id % {n}: {even}");
        // Where every tick starts over, most IDs have the same sequence and the lowest bits say nothing.
        assert!(!n.is_multiple_of(2) || *uneven > 50.0, "{pace}, id % {n} without the threshold: {uneven}");
    }
}
