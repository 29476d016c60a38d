//! Layouts: what can be built, what an ID says, the JSON form.

use cosid_id::{Error, FieldOrder, Id, Layout, LayoutBuilder, SlotSplit};

const EPOCH: u64 = 1_577_203_200_000;

const NAMED: [Layout; 7] = [
    Layout::MILLISECOND,
    Layout::SECOND,
    Layout::JAVASCRIPT_MILLISECOND,
    Layout::JAVASCRIPT_SECOND,
    Layout::TWITTER,
    Layout::DATACENTER_WORKER,
    Layout::SONYFLAKE,
];

#[test]
fn the_named_layouts_are_the_ones_in_peoples_tables() {
    let expected = [
        (41, 10, 12, 1, EPOCH),
        (31, 10, 22, 1_000, EPOCH),
        (41, 3, 9, 1, EPOCH),
        (31, 3, 19, 1_000, EPOCH),
        (41, 10, 12, 1, 1_288_834_974_657),
        (41, 10, 12, 1, 1_483_200_000_000),
        (39, 16, 8, 10, 1_409_529_600_000),
    ];
    for (layout, expected) in NAMED.into_iter().zip(expected) {
        let bits = (layout.timestamp_bits(), layout.slot_bits(), layout.sequence_bits());
        assert_eq!((bits.0, bits.1, bits.2, layout.unit_ms(), layout.epoch_ms()), expected);
        assert_eq!(LayoutBuilder::from(layout).build().unwrap(), layout, "the builder agrees");
        assert_eq!(layout.sequence_threshold(), layout.max_sequence() / 2);
        assert_eq!(layout.order() == FieldOrder::SequenceSlot, layout == Layout::SONYFLAKE);
        assert_eq!(layout.is_javascript_safe(), layout.bits() == 53);
    }
}

#[test]
fn each_layout_puts_its_fields_where_its_makers_do() {
    let id = |layout: Layout, ticks: u64, slot, sequence| {
        layout.compose(layout.tick_start(ticks), slot, sequence).unwrap().get()
    };
    assert_eq!(id(Layout::TWITTER, 9, 5, 3), 9 << 22 | 5 << 12 | 3);
    assert_eq!(id(Layout::SECOND, 9, 5, 3), 9 << 32 | 5 << 22 | 3);
    assert_eq!(id(Layout::JAVASCRIPT_SECOND, 9, 5, 3), 9 << 22 | 5 << 19 | 3);
    assert_eq!(id(Layout::SONYFLAKE, 9, 5, 3), 9 << 24 | 3 << 16 | 5);
}

#[test]
fn a_slot_of_two_parts_is_joined_and_split_and_never_wrapped() {
    let split = SlotSplit::FIVE_FIVE;
    for (upper, lower, slot) in [(0, 0, 0), (0, 31, 31), (31, 0, 992), (31, 31, 1023)] {
        assert_eq!(split.join(upper, lower).unwrap(), slot);
        assert_eq!(split.split(slot).unwrap(), (upper, lower));
    }
    assert!(matches!(split.join(32, 0), Err(Error::SlotTooLarge { slot: 32, max: 31 })));
    assert!(matches!(split.join(0, u32::MAX), Err(Error::SlotTooLarge { max: 31, .. })));
    assert!(matches!(split.split(1024), Err(Error::SlotTooLarge { slot: 1024, max: 1023 })));
    let whole = SlotSplit::new(0, 31).unwrap();
    assert_eq!(whole.split(i32::MAX as u32).unwrap(), (0, i32::MAX as u32));
    for (upper, lower) in [(16, 16), (255, 255)] {
        assert!(matches!(SlotSplit::new(upper, lower), Err(Error::BadLayout { .. })));
    }
}

#[test]
fn a_new_id_space_has_begun_and_lasts_a_year() {
    const YEAR: u64 = 365 * 86_400_000;
    let last = EPOCH + (1 << 41) - 1;
    for now in [EPOCH, EPOCH + 1, last - YEAR] {
        assert_eq!(Layout::builder().build_new(now).unwrap(), Layout::MILLISECOND);
    }
    for (now, why) in [(EPOCH - 1, "in the future"), (last - YEAR + 1, "within a year"), (u64::MAX, "within")]
    {
        let error = Layout::builder().build_new(now).unwrap_err();
        assert!(matches!(error, Error::BadLayout { .. }) && error.to_string().contains(why), "{error}");
    }
}

#[test]
fn the_known_vector_is_taken_apart_and_put_together() {
    let id: Id = "295913926632165376".parse().unwrap();
    let parts = Layout::MILLISECOND.decompose(id).unwrap();
    // 2022-03-20T13:36:17.924+08:00
    assert_eq!((parts.timestamp(), parts.slot(), parts.sequence()), (1_647_754_577_924, 5, 0));
    assert_eq!(Layout::MILLISECOND.compose(1_647_754_577_924, 5, 0).unwrap(), id);
}

#[test]
fn the_default_is_what_its_numbers_build() {
    assert_eq!(Layout::builder().build().unwrap(), Layout::MILLISECOND);
    let layout = Layout::MILLISECOND;
    assert_eq!((layout.max_slot(), layout.max_sequence(), layout.max_tick()), (1023, 4095, (1 << 41) - 1));
    assert_eq!(layout.sequence_threshold(), 2047);
}

#[test]
fn every_edge_of_every_field_survives_a_round_trip() {
    let coarse = Layout::builder().timestamp_bits(31).sequence_bits(22).unit_ms(1000).build().unwrap();
    let no_slot = Layout::builder().slot_bits(0).build().unwrap();
    for layout in NAMED.into_iter().chain([coarse, no_slot]) {
        for tick in [0, 1, layout.max_tick()] {
            for slot in [0, layout.max_slot()] {
                for sequence in [0, layout.max_sequence()] {
                    let id = layout.compose(layout.tick_end(tick), slot, sequence).unwrap();
                    let parts = layout.decompose(id).unwrap();
                    assert_eq!(parts.timestamp(), layout.tick_start(tick));
                    assert_eq!((parts.slot(), parts.sequence()), (slot, sequence));
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_and_never_wrapped() {
    let layout = Layout::MILLISECOND;
    let last = EPOCH + (1 << 41) - 1;
    let compose = |timestamp, slot, sequence| layout.compose(timestamp, slot, sequence).unwrap_err();
    assert!(matches!(compose(EPOCH - 1, 0, 0), Error::BeforeEpoch { epoch: EPOCH, .. }));
    assert!(matches!(compose(last + 1, 0, 0), Error::PastLayout { last: l, .. } if l == last));
    assert!(matches!(compose(u64::MAX, 0, 0), Error::PastLayout { .. }));
    assert!(matches!(compose(EPOCH, 1024, 0), Error::SlotTooLarge { slot: 1024, max: 1023 }));
    assert!(matches!(compose(EPOCH, 0, 4096), Error::SequenceTooLarge { sequence: 4096, max: 4095 }));

    let javascript_safe = Layout::builder().slot_bits(3).sequence_bits(9).build().unwrap();
    let wide = Id::try_from(1_u64 << 53).unwrap();
    assert!(matches!(javascript_safe.decompose(wide), Err(Error::IdTooWide { bits: 53, .. })));
    assert!(javascript_safe.decompose(Id::try_from((1_u64 << 53) - 1).unwrap()).is_ok());
}

#[test]
fn a_layout_that_cannot_work_is_refused_with_its_numbers() {
    let builder = Layout::builder;
    for (what, refused) in [
        ("64 bits", builder().sequence_bits(13)),
        ("no bit left for the closed mark", builder().timestamp_bits(50).slot_bits(0).sequence_bits(13)),
        ("no sequence", builder().sequence_bits(0)),
        ("a wide slot", builder().slot_bits(32).sequence_bits(1)),
        ("all the bits there are", builder().timestamp_bits(255).slot_bits(255).sequence_bits(255)),
        ("half a year", builder().timestamp_bits(33)),
        ("no unit", builder().unit_ms(0)),
        ("an epoch without end", builder().epoch_ms(u64::MAX)),
        ("an end past 63 bits", builder().epoch_ms(i64::MAX as u64 - (1 << 41) + 1)),
        ("a threshold above the sequence", builder().sequence_threshold(4096)),
    ] {
        let error = refused.build().unwrap_err();
        assert!(matches!(error, Error::BadLayout { .. }), "{what}: {error}");
    }
}

#[test]
fn a_tick_of_a_coarse_unit_has_a_start_and_an_end() {
    let layout = Layout::builder().timestamp_bits(39).sequence_bits(8).unit_ms(10).build().unwrap();
    assert_eq!((layout.tick_start(7), layout.tick_end(7)), (EPOCH + 70, EPOCH + 79));
    assert_eq!(layout.tick_at(EPOCH + 79).unwrap(), 7);
    assert_eq!(layout.tick_at(EPOCH + 80).unwrap(), 8);
}

#[cfg(feature = "serde")]
mod json {
    use super::*;

    const DEFAULT: &str =
        r#"{"timestampBits":41,"slotBits":10,"sequenceBits":12,"unitMillis":1,"epoch":1577203200000}"#;

    #[test]
    fn the_json_form_names_every_number() {
        assert_eq!(serde_json::to_string(&Layout::MILLISECOND).unwrap(), DEFAULT);
        assert_eq!(serde_json::from_str::<Layout>(DEFAULT).unwrap(), Layout::MILLISECOND);
        let short = r#"{"timestampBits":41,"slotBits":10,"sequenceBits":12}"#;
        assert_eq!(serde_json::from_str::<Layout>(short).unwrap(), Layout::MILLISECOND);
    }

    #[test]
    fn a_threshold_of_its_own_is_kept() {
        let layout = Layout::builder().sequence_threshold(0).build().unwrap();
        let json = serde_json::to_string(&layout).unwrap();
        assert!(json.contains(r#""sequenceThreshold":0"#), "{json}");
        assert_eq!(serde_json::from_str::<Layout>(&json).unwrap(), layout);
    }

    #[test]
    fn an_order_of_its_own_is_kept() {
        let json = serde_json::to_string(&Layout::SONYFLAKE).unwrap();
        assert!(json.contains(r#""order":"sequenceSlot""#), "{json}");
        for layout in NAMED {
            let json = serde_json::to_string(&layout).unwrap();
            assert_eq!(serde_json::from_str::<Layout>(&json).unwrap(), layout, "{json}");
        }
    }

    #[test]
    fn a_layout_that_cannot_work_or_is_not_understood_is_refused() {
        for (json, why) in [
            (r#"{"timestampBits":41,"slotBits":10,"sequenceBits":13}"#, "at most 63"),
            (r#"{"timestampBits":41,"slotBits":10,"sequenceBits":-1}"#, "-1"),
            (r#"{"timestampBits":41,"slotBits":10}"#, "sequenceBits"),
            (r#"{"timestampBits":41,"slotBits":10,"sequenceBits":12,"order":"sts"}"#, "slotSequence"),
            (r#"{"timestampBits":41,"slotBits":10,"sequenceBits":12,"parity":1}"#, "parity"),
        ] {
            let error = serde_json::from_str::<Layout>(json).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
