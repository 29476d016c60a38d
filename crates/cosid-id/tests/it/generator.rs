//! What a caller sees of a generator, on virtual time.

use std::time::Duration;

use crate::virtual_time::{VirtualTime, page};
use cosid_id::{Clock, Error, Generator, Layout, MAX_BATCH, NextError, PageOwner, Wait};

const FLOOR: u64 = 1_700_000_000_000;
const SECOND: Duration = Duration::from_secs(1);

fn generator(owner: &mut PageOwner, clock: &VirtualTime) -> Generator<VirtualTime> {
    let cell = owner.assign("orders").unwrap();
    Generator::with_clock(owner.page().clone(), cell, clock.clone()).unwrap()
}

#[test]
fn an_id_says_when_and_where_it_was_made() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    let id = generator(&mut owner, &VirtualTime::at(FLOOR + 7)).try_next().unwrap();
    let parts = Layout::MILLISECOND.decompose(id).unwrap();
    assert_eq!((parts.timestamp(), parts.slot(), parts.sequence()), (FLOOR + 7, 5, 1));
}

#[test]
fn a_new_page_has_an_empty_window() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    let now = FLOOR + 1;
    let refused = generator(&mut owner, &VirtualTime::at(now)).try_next();
    assert_eq!(refused, Err(NextError::Wait(Wait::AboveCeiling { now, ceiling: FLOOR })));
}

#[test]
fn next_waits_until_the_clock_is_above_the_floor() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    let clock = VirtualTime::at(FLOOR - 99);
    let id = generator(&mut owner, &clock).next(SECOND).unwrap();
    assert_eq!(Layout::MILLISECOND.decompose(id).unwrap().timestamp(), FLOOR + 1);
    assert_eq!(clock.elapsed(), Duration::from_millis(100));
}

#[test]
fn next_gives_up_at_its_bound_and_says_why_until_when_and_what_to_do() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    let clock = VirtualTime::at(FLOOR - 5_000);
    let error = generator(&mut owner, &clock).next(SECOND).unwrap_err();
    let NextError::Wait(wait) = error else { panic!("{error:?}") };
    assert_eq!(wait, Wait::BelowFloor { now: FLOOR - 4_000, until: FLOOR + 1 });
    assert_eq!(wait.remaining(), Some(Duration::from_millis(4_001)));
    assert_eq!(clock.elapsed(), SECOND);
    let message = error.to_string();
    assert!(message.contains("1700000000001") && message.contains("4001 ms"), "{message}");
}

#[test]
fn next_goes_on_when_the_ceiling_moves() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    let clock = VirtualTime::at(FLOOR + 50);
    let waiting = generator(&mut owner, &clock);
    let error = waiting.next(Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, NextError::Wait(Wait::AboveCeiling { ceiling: FLOOR, .. })), "{error:?}");
    assert!(error.to_string().contains("/readyz"), "{error}");
    owner.set_ceiling(FLOOR + 1_000);
    assert!(waiting.next(SECOND).is_ok());
}

/// What a process reads whose host's clock was a day ahead for a moment and is right again.
#[derive(Clone)]
struct CarriedOff(VirtualTime);

impl Clock for CarriedOff {
    fn unix_ms(&self) -> u64 {
        self.0.unix_ms() + 86_400_000
    }
    fn host_ms(&self) -> u64 {
        self.0.unix_ms()
    }
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

#[test]
fn a_step_forward_that_was_corrected_does_not_stop_a_generator_for_good() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    let cell = owner.assign("orders").unwrap();
    let clock = CarriedOff(VirtualTime::at(FLOOR + 10));
    let carried_off = Generator::with_clock(owner.page().clone(), cell, clock.clone()).unwrap();
    let first = carried_off.try_next().unwrap();
    assert_eq!(owner.last_issued(), FLOOR + 10);
    // Nor does what is issued go back with the host's clock.
    clock.0.set(FLOOR + 5);
    assert!(carried_off.try_next().unwrap() > first);
    assert_eq!(owner.last_issued(), FLOOR + 10);
}

#[test]
fn a_lost_slot_ends_a_wait_at_once() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    let clock = VirtualTime::at(FLOOR + 50);
    let waiting = generator(&mut owner, &clock);
    owner.close();
    assert_eq!(waiting.next(SECOND), Err(NextError::SlotLost));
    assert_eq!(clock.elapsed(), Duration::ZERO);
}

#[test]
fn a_batch_is_contiguous_within_a_tick_and_goes_on_in_the_next() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    let clock = VirtualTime::at(FLOOR + 10);
    let orders = generator(&mut owner, &clock);

    let mut ids = vec![0; 10_000];
    assert_eq!(orders.try_fill(&mut ids), Ok(4_095), "sequence 1 to 4095");
    assert!(ids[..4_095].windows(2).all(|pair| pair[1] == pair[0] + 1));
    assert!(matches!(orders.try_range(1), Err(NextError::Wait(Wait::SequenceUsedUp { .. }))));

    orders.fill(&mut ids, SECOND).unwrap();
    assert!(ids.windows(2).all(|pair| pair[1] > pair[0]));
    let ticks: Vec<u64> = ids
        .iter()
        .map(|&id| Layout::MILLISECOND.decompose(id.try_into().unwrap()).unwrap().timestamp())
        .collect();
    for (tick, count) in [(11, 4_096), (12, 4_096), (13, 10_000 - 2 * 4_096)] {
        assert_eq!(ticks.iter().filter(|&&t| t == FLOOR + tick).count(), count, "tick {tick}");
    }
    assert_eq!(owner.last_issued(), FLOOR + 13);
}

#[test]
fn a_batch_in_ranges_has_one_range_for_each_tick_it_needs() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    let orders = generator(&mut owner, &VirtualTime::at(FLOOR + 10));
    let ranges: Vec<_> = orders.ranges(10_000, SECOND).unwrap().map(Result::unwrap).collect();
    let lens: Vec<usize> = ranges.iter().map(ExactSizeIterator::len).collect();
    assert_eq!(lens, [4_095, 4_096, 10_000 - 4_095 - 4_096]);
    assert!(ranges.iter().all(|range| range.step() == 1));
    let first = Layout::MILLISECOND.decompose(ranges[1].first().unwrap()).unwrap();
    assert_eq!((first.timestamp(), first.sequence()), (FLOOR + 11, 0));
    let mut range = ranges[2].clone();
    assert_eq!(range.by_ref().count(), 10_000 - 4_095 - 4_096);
    assert_eq!(range.first(), None);
    assert_eq!(owner.last_issued(), FLOOR + 12);
}

#[test]
fn ranges_end_with_the_error_that_stopped_them() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 10);
    let orders = generator(&mut owner, &VirtualTime::at(FLOOR + 10));
    let mut ranges = orders.ranges(10_000, SECOND).unwrap();
    assert_eq!(ranges.next().unwrap().unwrap().len(), 4_095);
    assert!(matches!(ranges.next(), Some(Err(NextError::Wait(Wait::AboveCeiling { .. })))));
    assert!(ranges.next().is_none());
    assert!(matches!(orders.ranges(0, SECOND), Err(NextError::BadCount { count: 0, .. })));
    assert!(matches!(orders.ranges(MAX_BATCH + 1, SECOND), Err(NextError::BadCount { .. })));
}

#[test]
fn a_burst_is_ahead_of_the_clock_by_no_more_than_its_bound() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    let now = FLOOR + 10;
    let clock = VirtualTime::at(now);
    let plain = generator(&mut owner, &clock);
    let burst = plain.clone().with_burst(Duration::from_micros(3_999));
    let mut ids = Vec::new();
    while let Ok(range) = burst.try_range(MAX_BATCH) {
        ids.extend(range.map(|id| Layout::MILLISECOND.decompose(id).unwrap().timestamp()));
    }
    assert_eq!(ids.len(), 4 * 4_096 - 1);
    assert_eq!(ids.last(), Some(&(now + 3)));
    let until_the_clock_is_in_reach = Wait::SequenceUsedUp { now, until: now + 1 };
    assert_eq!(burst.try_next(), Err(until_the_clock_is_in_reach.into()));
    assert_eq!(plain.try_next(), Err(Wait::SequenceUsedUp { now, until: now + 4 }.into()));
    clock.set(now + 1);
    assert!(burst.try_next().is_ok());
}

#[test]
fn a_burst_ends_at_the_ceiling() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    let (now, ceiling) = (FLOOR + 10, FLOOR + 12);
    owner.set_ceiling(ceiling);
    let burst = generator(&mut owner, &VirtualTime::at(now)).with_burst(Duration::MAX);
    let mut count = 0;
    let error = loop {
        match burst.try_next() {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(count, 3 * 4_096 - 1);
    assert_eq!(error, Wait::AboveCeiling { now, ceiling }.into());
    assert_eq!(owner.close().last_issued, ceiling);
}

#[test]
fn with_the_slot_in_the_lowest_bits_a_range_steps_over_it() {
    let (_dir, mut owner) = page(Layout::SONYFLAKE, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    let clock = VirtualTime::at(FLOOR + 100);
    let orders = generator(&mut owner, &clock);
    let range = orders.try_range(1_000).unwrap();
    assert_eq!((range.len(), range.step()), (255, 1 << 16));
    let parts: Vec<_> = range.map(|id| Layout::SONYFLAKE.decompose(id).unwrap()).collect();
    assert!(parts.iter().all(|parts| parts.slot() == 5 && parts.timestamp() == FLOOR + 100));
    assert!(parts.iter().map(cosid_id::IdParts::sequence).eq(1..256));
}

/// A unit may be issued only if `floor < start` and `end <= ceiling`.
#[test]
fn coarse_units_are_issued_whole_or_not_at_all() {
    for layout in [Layout::SECOND, Layout::JAVASCRIPT_SECOND, Layout::SONYFLAKE] {
        let unit = u64::from(layout.unit_ms());
        let start = FLOOR + 5 * unit;
        assert_eq!(
            start,
            layout.tick_start(layout.tick_at(start).unwrap()),
            "the times below are whole units"
        );
        let end = start + unit - 1;
        let issued = |floor, ceiling, now| {
            let (_dir, mut owner) = page(layout, floor);
            owner.set_ceiling(ceiling);
            let outcome = generator(&mut owner, &VirtualTime::at(now)).try_next();
            assert_eq!(owner.close().last_issued, if outcome.is_ok() { end } else { floor });
            outcome.map(|id| layout.decompose(id).unwrap().timestamp())
        };
        for now in [start, end] {
            assert_eq!(issued(start - 1, end, now), Ok(start));
            let owned_by_others = Wait::BelowFloor { now, until: end + 1 };
            assert_eq!(issued(start, end + unit, now), Err(owned_by_others.into()));
            assert_eq!(issued(end, end + unit, now), Err(owned_by_others.into()));
            let not_wholly_ours = Wait::AboveCeiling { now, ceiling: end - 1 };
            assert_eq!(issued(start - 1, end - 1, now), Err(not_wholly_ours.into()));
        }
    }
}

#[test]
fn a_batch_never_leaves_the_window() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    let ceiling = FLOOR + 11;
    owner.set_ceiling(ceiling);
    let orders = generator(&mut owner, &VirtualTime::at(FLOOR + 10));
    let error = orders.fill(&mut vec![0; 10_000], SECOND).unwrap_err();
    assert!(matches!(error, NextError::Wait(Wait::AboveCeiling { .. })), "{error:?}");
    assert_eq!(owner.close().last_issued, ceiling);
}

#[test]
fn a_batch_of_nothing_or_too_much_is_refused_and_takes_nothing() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    let orders = generator(&mut owner, &VirtualTime::at(FLOOR + 10));
    for count in [0, MAX_BATCH + 1, usize::MAX] {
        assert_eq!(orders.try_range(count), Err(NextError::BadCount { count, max: MAX_BATCH }));
    }
    assert!(orders.fill(&mut [], SECOND).is_err());
    assert!(orders.fill(&mut vec![0; MAX_BATCH + 1], SECOND).is_err());
    assert_eq!(owner.last_issued(), FLOOR);
}

#[test]
fn a_generator_needs_a_cell_that_was_given_out() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    let cell = owner.assign("orders").unwrap();
    assert!(Generator::new(owner.page().clone(), cell).is_ok());
    for free in [cell + 1, 61, 62, usize::MAX] {
        let error = Generator::new(owner.page().clone(), free).unwrap_err();
        assert!(matches!(error, Error::NoSuchCell { .. }), "{error}");
    }
}

/// 99,999 IDs with pauses of 0 to 1000 ns, as CosId's own test has it.
#[test]
fn ids_spread_evenly_over_four_partitions() {
    for layout in
        [Layout::MILLISECOND, Layout::SECOND, Layout::JAVASCRIPT_MILLISECOND, Layout::JAVASCRIPT_SECOND]
    {
        let (_dir, mut owner) = page(layout, FLOOR);
        owner.set_ceiling(FLOOR + 10_000);
        let clock = VirtualTime::at(FLOOR + 10);
        let orders = generator(&mut owner, &clock);
        let mut counts = [0_f64; 4];
        let mut random = 42_u64;
        for _ in 0..99_999 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            clock.advance(Duration::from_nanos((random >> 33) % 1_001));
            counts[usize::try_from(orders.next(SECOND).unwrap().get() % 4).unwrap()] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / 4.0;
        let deviation = (counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 4.0).sqrt();
        assert!(deviation <= 100.0, "{layout:?}: {counts:?}: {deviation}");
    }
}
