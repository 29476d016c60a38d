//! IDs as text: what each form writes, and that it reads nothing else.

use cosid_id::{DatePrefix, Error, Form, Id, Layout, Zone};
use proptest::prelude::*;

const LAYOUTS: [Layout; 7] = [
    Layout::MILLISECOND,
    Layout::SECOND,
    Layout::JAVASCRIPT_MILLISECOND,
    Layout::JAVASCRIPT_SECOND,
    Layout::TWITTER,
    Layout::DATACENTER_WORKER,
    Layout::SONYFLAKE,
];

fn id(number: u64) -> Id {
    number.try_into().unwrap()
}

fn china() -> Zone {
    Zone::east_minutes(480).unwrap()
}

fn friendly(layout: Layout) -> Form {
    Form::friendly(layout, china()).unwrap()
}

/// What is wrong with a text, in the words of the message.
fn refused(form: &Form, text: &str) -> String {
    let error = form.parse(text).unwrap_err();
    assert!(matches!(error, Error::BadText { .. }), "{text}: {error}");
    error.to_string()
}

#[test]
fn the_known_vector_in_every_form() {
    let vector = id(295_913_926_632_165_376);
    let layout = Layout::MILLISECOND;
    let day = |form: Form| form.with_date(DatePrefix::new("yyyyMMdd", china(), "_").unwrap()).unwrap();
    for (form, text) in [
        (Form::decimal(layout), "295913926632165376"),
        (Form::decimal(layout).padded(), "0295913926632165376"),
        (Form::radix62(layout), "LrHucXALbs"),
        (Form::radix62(layout).padded(), "0LrHucXALbs"),
        (Form::radix36(layout), "28XOQD7HM874"),
        (Form::radix36(layout).padded(), "028XOQD7HM874"),
        (friendly(layout), "20220320133617924-5-0"),
        (friendly(layout).padded(), "20220320133617924-0005-0000"),
        (friendly(layout).with_prefix("o-").with_suffix("-x"), "o-20220320133617924-5-0-x"),
        (day(Form::radix62(layout).with_prefix("o").with_suffix("!")), "o20220320_LrHucXALbs!"),
        (day(friendly(layout)), "20220320_20220320133617924-5-0"),
    ] {
        assert_eq!(form.format(vector).unwrap(), text);
        assert_eq!(form.parse(text).unwrap(), vector, "{text}");
    }
}

#[test]
fn a_layout_in_seconds_has_no_milliseconds_in_its_friendly_form() {
    let at = 1_647_754_577_000;
    let made = Layout::SECOND.compose(at + 924, 5, 77).unwrap();
    assert_eq!(friendly(Layout::SECOND).format(made).unwrap(), "20220320133617-5-77");
    assert_eq!(friendly(Layout::SECOND).parse("20220320133617-5-77").unwrap(), made);

    let made = Layout::SONYFLAKE.compose(at + 924, 5, 77).unwrap();
    assert_eq!(friendly(Layout::SONYFLAKE).format(made).unwrap(), "20220320133617920-5-77");
    let why = refused(&friendly(Layout::SONYFLAKE), "20220320133617924-5-77");
    assert!(why.contains("no unit"), "{why}");
}

#[test]
fn another_prefix_suffix_or_date_is_refused() {
    let date = DatePrefix::new("yyMMdd", Zone::UTC, "-").unwrap();
    let form =
        Form::radix62(Layout::MILLISECOND).with_prefix("o-").with_suffix(".x").with_date(date).unwrap();
    let good = "o-220320-LrHucXALbs.x";
    assert_eq!(form.parse(good).unwrap(), id(295_913_926_632_165_376));
    for (text, why) in [
        ("u-220320-LrHucXALbs.x", "begin with `o-`"),
        ("O-220320-LrHucXALbs.x", "begin with `o-`"),
        (" o-220320-LrHucXALbs.x", "begin with `o-`"),
        ("o-220320-LrHucXALbs.y", "end with `.x`"),
        ("o-220320-LrHucXALbs", "end with `.x`"),
        ("o-220321-LrHucXALbs.x", "date"),
        ("o-2203201LrHucXALbs.x", "date"),
        ("o-2203-LrHucXALbs.x", "date"),
        ("o-.x", "date"),
        ("o-22032ü-LrHucXALbs.x", "date"),
        ("o-220320-.x", "no digits"),
    ] {
        assert!(refused(&form, text).contains(why), "{text}");
    }
}

#[test]
fn digits_that_do_not_fit_are_refused_and_never_wrapped() {
    let layout = Layout::MILLISECOND;
    for (form, text, why) in [
        (Form::radix62(layout), "AzL8n0Y58m8", "63 bits"),
        (Form::radix62(layout), "zzzzzzzzzzz", "too large"),
        (Form::radix62(layout), "zzzzzzzzzzzz", "too large"),
        (Form::radix62(layout), "", "no digits"),
        (Form::radix62(layout), "0LrHucXALbs", "zeros"),
        (Form::radix62(layout).padded(), "LrHucXALbs", "too short"),
        (Form::radix62(layout).padded(), "00LrHucXALbs", "zeros"),
        (Form::radix62(layout), "LrH-cXALbs", "characters"),
        (Form::radix36(layout), "28xoqd7hm874", "characters"),
        (Form::radix36(layout), "1Y2P0IJ32E8E8", "63 bits"),
        (Form::decimal(layout), "9223372036854775808", "63 bits"),
        (Form::decimal(layout), "18446744073709551616", "too large"),
        (Form::decimal(layout), "-1", "characters"),
        (Form::decimal(layout), "٣", "characters"),
    ] {
        let message = refused(&form, text);
        assert!(message.contains(why), "{text}: {message}");
    }
    let narrow = Form::decimal(Layout::JAVASCRIPT_MILLISECOND);
    assert!(matches!(narrow.parse("9007199254740992"), Err(Error::IdTooWide { bits: 53, .. })));
    assert!(matches!(narrow.format(Id::MAX), Err(Error::IdTooWide { bits: 53, .. })));
    let message = refused(&narrow, &"9".repeat(1 << 20));
    assert!(message.len() < 300, "{message}");
}

#[test]
fn friendly_parts_that_do_not_fit_are_refused_and_never_wrapped() {
    let form = friendly(Layout::MILLISECOND);
    for (text, why) in [
        ("", "not a time, a slot"),
        ("20220320133617924-5", "not a time, a slot"),
        ("20220320133617924-5-0-0", "characters"),
        ("2022032013361792-5-0", "number of digits"),
        ("202203201336179240-5-0", "number of digits"),
        ("20220320133617 24-5-0", "number of digits"),
        ("20220230133617924-5-0", "no such date"),
        ("20221320133617924-5-0", "no such date"),
        ("20220320243617924-5-0", "no such date"),
        ("00000000000000000-5-0", "no such date"),
        ("00010101000000000-5-0", "before 1970"),
        ("20220320133617924-05-0", "zeros"),
        ("20220320133617924--0", "no digits"),
        ("20220320133617924-4294967296-0", "too large"),
        ("20220320133617924-99999999999999999999999-0", "too large"),
    ] {
        let message = refused(&form, text);
        assert!(message.contains(why), "{text}: {message}");
    }
    let error = |text| form.parse(text).unwrap_err();
    assert!(matches!(error("20220320133617924-1024-0"), Error::SlotTooLarge { slot: 1024, max: 1023 }));
    assert!(matches!(
        error("20220320133617924-5-4096"),
        Error::SequenceTooLarge { sequence: 4096, max: 4095 }
    ));
    assert!(matches!(error("20191224235959999-5-0"), Error::BeforeEpoch { .. }));
    assert!(matches!(error("99991231235959999-5-0"), Error::PastLayout { .. }));
    assert_eq!(form.parse("20191225000000000-0-0").unwrap(), id(0));
}

#[test]
fn a_form_that_cannot_work_is_refused() {
    let far = Layout::builder().timestamp_bits(50).sequence_bits(3).build().unwrap();
    let day = DatePrefix::new("yyyyMMdd", Zone::UTC, "").unwrap();
    for refused in [
        Form::friendly(far, Zone::UTC).map(drop),
        Form::decimal(far).with_date(day).map(drop),
        Form::radix62(Layout::MILLISECOND).padded_to(10).map(drop),
        Form::radix62(Layout::MILLISECOND).padded_to(21).map(drop),
        friendly(Layout::MILLISECOND).padded_to(11).map(drop),
        Zone::east_minutes(1_081).map(drop),
        Zone::east_minutes(i16::MIN).map(drop),
        DatePrefix::new("yyyyDDD", Zone::UTC, "").map(drop),
    ] {
        assert!(matches!(refused, Err(Error::BadForm { .. })), "{refused:?}");
    }
    assert!(Form::radix62(Layout::MILLISECOND).padded_to(11).is_ok());
}

#[cfg(feature = "zones")]
mod zones {
    use super::*;

    #[test]
    fn a_zone_by_name_is_what_its_clocks_show() {
        let form = |zone| Form::friendly(Layout::MILLISECOND, Zone::named(zone).unwrap()).unwrap();
        let vector = id(295_913_926_632_165_376);
        for (zone, text) in [
            ("Asia/Shanghai", "20220320133617924-5-0"),
            ("America/New_York", "20220320013617924-5-0"),
            ("Asia/Kathmandu", "20220320112117924-5-0"),
        ] {
            assert_eq!(form(zone).format(vector).unwrap(), text);
            assert_eq!(form(zone).parse(text).unwrap(), vector);
        }
    }

    #[test]
    fn a_time_that_came_twice_or_never_is_refused_and_not_guessed() {
        let form = Form::friendly(Layout::MILLISECOND, Zone::named("Europe/Berlin").unwrap()).unwrap();
        // 2023-10-29: 3:00 summer time was 2:00 again; 2023-03-26: 2:00 was 3:00.
        let first = Layout::MILLISECOND.compose(1_698_539_400_000, 1, 1).unwrap();
        let second = Layout::MILLISECOND.compose(1_698_543_000_000, 1, 1).unwrap();
        assert_eq!(form.format(first).unwrap(), "20231029023000000-1-1");
        assert_eq!(form.format(second).unwrap(), "20231029023000000-1-1");
        assert!(refused(&form, "20231029023000000-1-1").contains("came twice"));
        let summer = Form::friendly(Layout::MILLISECOND, Zone::east_minutes(120).unwrap()).unwrap();
        assert_eq!(summer.parse("20231029023000000-1-1").unwrap(), first);
        assert!(refused(&form, "20230326023000000-1-1").contains("left out"));
        assert!(form.parse("20230326030000000-1-1").is_ok());
    }

    #[test]
    fn a_zone_that_is_not_in_the_database_is_named() {
        let error = Zone::named("Europe/Atlantis").unwrap_err();
        assert!(matches!(&error, Error::UnknownZone { name, .. } if name == "Europe/Atlantis"), "{error}");
    }
}

fn zone() -> impl Strategy<Value = Zone> {
    (-1_080_i16..=1_080).prop_map(|minutes| Zone::east_minutes(minutes).unwrap())
}

fn form() -> impl Strategy<Value = Form> {
    let affix = prop_oneof![Just(String::new()), "[0-9a-z-]{1,3}", "\\PC{0,4}"];
    let date =
        (prop_oneof![Just("yyyyMMdd"), Just("yy-MM"), Just("yyyyMMddHHmmssSSS")], zone(), affix.clone())
            .prop_map(|(pattern, zone, delimiter)| DatePrefix::new(pattern, zone, delimiter).unwrap());
    let body = (prop::sample::select(LAYOUTS.to_vec()), 0..4, zone(), any::<bool>()).prop_map(
        |(layout, body, zone, padded)| {
            let form = match body {
                0 => Form::decimal(layout),
                1 => Form::radix36(layout),
                2 => Form::radix62(layout),
                _ => Form::friendly(layout, zone).unwrap(),
            };
            if padded { form.padded() } else { form }
        },
    );
    (body, affix.clone(), affix, prop::option::of(date)).prop_map(|(form, prefix, suffix, date)| {
        let form = form.with_prefix(prefix).with_suffix(suffix);
        date.map_or(form.clone(), |date| form.with_date(date).unwrap())
    })
}

/// The edges of every field, and anything between.
fn id_of(layout: &Layout) -> impl Strategy<Value = Id> + use<> {
    let layout = *layout;
    let tick = prop_oneof![Just(0), Just(layout.max_tick()), 0..=layout.max_tick()];
    let slot = prop_oneof![Just(0), Just(layout.max_slot()), 0..=layout.max_slot()];
    let sequence = prop_oneof![Just(0), Just(layout.max_sequence()), 0..=layout.max_sequence()];
    (tick, slot, sequence).prop_map(move |(tick, slot, sequence)| {
        layout.compose(layout.tick_start(tick), slot, sequence).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_form_reads_what_it_writes(
        (form, id) in form().prop_flat_map(|form| { let id = id_of(form.layout()); (Just(form), id) }),
    ) {
        let text = form.format(id).unwrap();
        prop_assert_eq!(form.parse(&text).unwrap(), id, "{}", text);
    }

    /// One character of a good text changed, left out or put in.
    #[test]
    fn what_is_read_is_what_would_be_written(
        (form, id) in form().prop_flat_map(|form| { let id = id_of(form.layout()); (Just(form), id) }),
        at in any::<prop::sample::Index>(),
        with in prop_oneof!["[0-9A-Za-z-]?", "\\PC"],
        instead in any::<bool>(),
    ) {
        let mut text: Vec<char> = form.format(id).unwrap().chars().collect();
        let at = at.index(text.len());
        text.splice(at..at + usize::from(instead), with.chars());
        let text: String = text.into_iter().collect();
        if let Ok(read) = form.parse(&text) {
            prop_assert_eq!(form.format(read).unwrap(), text);
        }
    }

    #[test]
    fn no_text_is_a_panic(form in form(), text in prop_oneof!["\\PC*", "[0-9A-Za-z-]{0,30}", "[0-9]{17}-[0-9]{1,9}-[0-9]{1,12}"]) {
        if let Ok(read) = form.parse(&text) {
            prop_assert_eq!(form.format(read).unwrap(), text);
        }
    }

    #[test]
    fn padded_radix_62_sorts_as_the_numbers(a in 0..=i64::MAX as u64, b in 0..=i64::MAX as u64) {
        prop_assert_eq!(id(a).to_radix62().cmp(&id(b).to_radix62()), a.cmp(&b));
    }
}

#[cfg(feature = "zones")]
#[test]
fn an_endless_name_of_a_time_zone_gives_a_short_message() {
    let error = Zone::named(&"8".repeat(10_000)).unwrap_err();
    assert!(matches!(error, Error::UnknownZone { .. }), "{error}");
    assert!(error.to_string().len() < 300, "{error}");
}
