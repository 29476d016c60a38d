//! CosIdGenerator's 80 bits as text.

use cosid_id::{Error, Layout, WideId, Zone};
use proptest::prelude::*;

#[test]
fn the_largest_and_the_smallest_in_every_form() {
    let largest = WideId::new((1 << 44) - 1, (1 << 20) - 1, (1 << 16) - 1).unwrap();
    let smallest = WideId::new(0, 0, 0).unwrap();
    for (id, radix62, radix36, friendly) in [
        (largest, "4ziepp2F4OmVH31", "68HQLCQV3MH331EKF", "25270623062044415-1048575-65535"),
        (smallest, "000000000000000", "00000000000000000", "19700101000000000-0-0"),
    ] {
        assert_eq!((id.to_string(), id.to_radix36()), (radix62.to_owned(), radix36.to_owned()));
        assert_eq!(id.to_friendly(&Zone::UTC), friendly);
        assert_eq!(radix62.parse::<WideId>().unwrap(), id);
        assert_eq!(WideId::from_radix36(radix36).unwrap(), id);
        assert_eq!(WideId::from_friendly(friendly, &Zone::UTC).unwrap(), id);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_never_wrapped() {
    assert!(matches!(WideId::new(1 << 44, 0, 0), Err(Error::PastLayout { .. })));
    assert!(matches!(WideId::new(0, 1 << 20, 0), Err(Error::SlotTooLarge { max: 1_048_575, .. })));
    assert!(matches!(WideId::new(0, 0, 1 << 16), Err(Error::SequenceTooLarge { max: 65_535, .. })));

    let parse = |text: &str| text.parse::<WideId>().unwrap_err();
    assert!(matches!(parse("zzzzzzzz0000000"), Error::PastLayout { .. }));
    assert!(matches!(parse("00000000zzzz000"), Error::SlotTooLarge { .. }));
    assert!(matches!(parse("000000000000zzz"), Error::SequenceTooLarge { .. }));
    for text in
        ["", "00000000000000", "0000000000000000", "00000000000000-", "0000000000000ä", "+00000000000000"]
    {
        assert!(matches!(parse(text), Error::BadText { .. }), "{text}");
    }
    let error = WideId::from_radix36("0000000000000000a").unwrap_err();
    assert!(matches!(error, Error::BadText { form: "radix 36", .. }), "{error}");
    let error = WideId::from_friendly("20220320053617924-1048576-0", &Zone::UTC).unwrap_err();
    assert!(matches!(error, Error::SlotTooLarge { slot: 1_048_576, .. }), "{error}");
}

#[test]
fn a_pools_ids_have_one_each() {
    for layout in [Layout::MILLISECOND, Layout::JAVASCRIPT_MILLISECOND, Layout::TWITTER] {
        let id = layout.compose(1_700_000_000_000, 5, 77).unwrap();
        let wide = WideId::from_id(&layout, id).unwrap();
        assert_eq!((wide.timestamp(), wide.slot(), wide.sequence()), (1_700_000_000_000, 5, 77));
    }
    let seconds = Layout::SECOND.compose(1_700_000_000_000, 5, 1 << 16).unwrap();
    assert!(matches!(WideId::from_id(&Layout::SECOND, seconds), Err(Error::SequenceTooLarge { .. })));
}

fn id() -> impl Strategy<Value = WideId> {
    (0..1_u64 << 44, 0..1_u32 << 20, 0..1_u32 << 16)
        .prop_map(|(timestamp, slot, sequence)| WideId::new(timestamp, slot, sequence).unwrap())
}

proptest! {
    #[test]
    fn every_form_reads_what_it_writes(id in id(), minutes in -1_080_i16..=1_080) {
        let zone = Zone::east_minutes(minutes).unwrap();
        prop_assert_eq!(id.to_string().parse::<WideId>().unwrap(), id);
        prop_assert_eq!(WideId::from_radix36(&id.to_radix36()).unwrap(), id);
        prop_assert_eq!(WideId::from_friendly(&id.to_friendly(&zone), &zone).unwrap(), id);
    }

    #[test]
    fn texts_sort_as_ids_do(a in id(), b in id()) {
        prop_assert_eq!(a.to_string().cmp(&b.to_string()), a.cmp(&b));
        prop_assert_eq!(a.to_radix36().cmp(&b.to_radix36()), a.cmp(&b));
    }

    #[test]
    fn what_is_read_is_what_would_be_written(text in prop_oneof!["[0-9A-Za-z]{14,18}", "\\PC*", "0{5}[0-9A-Z]{12}"]) {
        if let Ok(id) = text.parse::<WideId>() {
            prop_assert_eq!(id.to_string(), text.clone());
        }
        if let Ok(id) = WideId::from_radix36(&text) {
            prop_assert_eq!(id.to_radix36(), text.clone());
        }
        prop_assert!(WideId::from_friendly(&text, &Zone::UTC).is_err());
    }
}
