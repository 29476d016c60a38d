//! What holds after any sequence of operations, on virtual time.

use std::time::Duration;

use cosid_id::{Clock, FieldOrder, Generator, Layout, NextError, PageOwner, Wait};
use proptest::prelude::*;

use crate::virtual_time::{VirtualTime, page};

const FLOOR: u64 = 1_700_000_000_000;

#[derive(Clone, Debug)]
enum Step {
    One,
    Range(usize),
    Forward(u64),
    Back(u64),
    RaiseCeiling(u64),
    Reopen,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => Just(Step::One),
        6 => (1_usize..40).prop_map(Step::Range),
        6 => (0_u64..2_500).prop_map(Step::Forward),
        2 => (0_u64..5_000).prop_map(Step::Back),
        4 => (0_u64..3_000).prop_map(Step::RaiseCeiling),
        2 => Just(Step::Reopen),
        1 => Just(Step::Close),
    ]
}

/// Eight sequences a tick, so that ticks are used up.
fn layout(unit_ms: u32, order: FieldOrder) -> Layout {
    Layout::builder().sequence_bits(3).unit_ms(unit_ms).order(order).build().unwrap()
}

/// Any that can be built.
fn any_layout() -> impl Strategy<Value = Layout> {
    let bits = (20_u8..=50, 0_u8..=31, 1_u8..=31);
    let unit = prop_oneof![Just(1_u32), Just(10), Just(1_000), 1_u32..100_000];
    let order = prop_oneof![Just(FieldOrder::SlotSequence), Just(FieldOrder::SequenceSlot)];
    (bits, unit, 0_u64..4_000_000_000_000, order).prop_filter_map(
        "a layout that cannot work",
        |((timestamp, slot, sequence), unit, epoch, order)| {
            let builder = Layout::builder().timestamp_bits(timestamp).slot_bits(slot).sequence_bits(sequence);
            builder.unit_ms(unit).epoch_ms(epoch).order(order).build().ok()
        },
    )
}

proptest! {
    #[test]
    fn ids_only_grow_stay_in_the_window_and_the_last_timestamp_is_exact(
        steps in prop::collection::vec(step(), 1..150),
        unit_ms in prop_oneof![Just(1_u32), Just(10), Just(1000)],
        order in prop_oneof![Just(FieldOrder::SlotSequence), Just(FieldOrder::SequenceSlot)],
        start in 0_u64..3_000,
    ) {
        let layout = layout(unit_ms, order);
        let (_dir, mut owner) = page(layout, FLOOR);
        let cell = owner.assign("orders").unwrap();
        let clock = VirtualTime::at(FLOOR - 1_000 + start);
        let mut generator = Generator::with_clock(owner.page().clone(), cell, clock.clone()).unwrap();
        let (mut largest, mut last, mut ceiling, mut closed) = (0, FLOOR, FLOOR, false);

        for step in steps {
            let ids = match step {
                Step::One => generator.try_next().map(|id| vec![id]),
                Step::Range(want) => generator.try_range(want).map(Iterator::collect),
                Step::Forward(ms) => { clock.set(clock.unix_ms() + ms); continue }
                Step::Back(ms) => { clock.set(clock.unix_ms() - ms); continue }
                Step::RaiseCeiling(ms) => {
                    let raised = owner.set_ceiling(clock.unix_ms() + ms);
                    prop_assert!(raised >= ceiling);
                    ceiling = raised;
                    continue
                }
                Step::Reopen => {
                    owner = PageOwner::open(owner.path()).unwrap();
                    let page = owner.page().clone();
                    generator = Generator::with_clock(page, cell, clock.clone()).unwrap();
                    continue
                }
                Step::Close => {
                    prop_assert_eq!(owner.close().last_issued, last);
                    closed = true;
                    continue
                }
            };
            match ids {
                Ok(ids) => for id in ids {
                    prop_assert!(!closed && id.get() > largest);
                    largest = id.get();
                    let parts = layout.decompose(id).unwrap();
                    let end = parts.timestamp() + u64::from(unit_ms) - 1;
                    prop_assert!(FLOOR < parts.timestamp() && end <= ceiling);
                    prop_assert_eq!(parts.slot(), 5);
                    last = end;
                },
                Err(NextError::SlotLost) => prop_assert!(closed),
                Err(NextError::Wait(Wait::BelowFloor { until, .. })) => {
                    prop_assert!(!closed && last == FLOOR && until > clock.unix_ms());
                }
                Err(NextError::Wait(Wait::SequenceUsedUp { until, .. })) => {
                    prop_assert!(!closed && until == last + 1 && until > clock.unix_ms());
                }
                Err(NextError::Wait(Wait::AboveCeiling { .. })) => {
                    prop_assert!(!closed && clock.unix_ms().max(last) + u64::from(unit_ms) > ceiling);
                }
                Err(other) => prop_assert!(false, "{other:?}"),
            }
            prop_assert_eq!(owner.last_issued(), last);
        }
    }

    /// Against CosId's own `generate`, written out, with a caller who waits as CosId does.
    #[test]
    fn sequences_are_cosids(
        pauses in prop::collection::vec(prop_oneof![4 => Just(0_u64), 1 => 1_u64..3], 1..300),
        threshold in 0_u32..8,
    ) {
        let layout = Layout::builder().sequence_bits(3).sequence_threshold(threshold).build().unwrap();
        let (_dir, mut owner) = page(layout, FLOOR);
        owner.set_ceiling(FLOOR + 100_000);
        let cell = owner.assign("orders").unwrap();
        let clock = VirtualTime::at(FLOOR + 10);
        let generator = Generator::with_clock(owner.page().clone(), cell, clock.clone()).unwrap();

        let (mut last_timestamp, mut sequence) = (0, 0);
        for pause in pauses {
            clock.set(clock.unix_ms() + pause);
            let mut now = clock.unix_ms();
            // Who comes in the tick after a used up one is as good as who waited for it.
            let follows = sequence == 7 && now == last_timestamp + 1;
            if now > last_timestamp && sequence >= threshold && !follows {
                sequence = 0;
            }
            sequence = (sequence + 1) & 7;
            if sequence == 0 {
                now = last_timestamp + 1;
            }
            last_timestamp = now;

            let id = generator.next(Duration::from_millis(10)).unwrap();
            let parts = layout.decompose(id).unwrap();
            prop_assert_eq!((parts.timestamp(), parts.sequence()), (last_timestamp, sequence));
        }
    }

    #[test]
    fn what_is_composed_is_decomposed_whatever_the_layout(
        (layout, tick, slot, sequence) in any_layout().prop_flat_map(|layout| (
            Just(layout), 0..=layout.max_tick(), 0..=layout.max_slot(), 0..=layout.max_sequence(),
        )),
        late in any::<u32>(),
    ) {
        let timestamp = layout.tick_start(tick);
        let id = layout.compose(timestamp + u64::from(late % layout.unit_ms()), slot, sequence).unwrap();
        let parts = layout.decompose(id).unwrap();
        prop_assert_eq!((parts.timestamp(), parts.slot(), parts.sequence()), (timestamp, slot, sequence));
        prop_assert!(id.get() >> layout.bits() == 0);
        prop_assert_eq!(id.to_string().parse::<cosid_id::Id>().unwrap(), id);
    }
}
