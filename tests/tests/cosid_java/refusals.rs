//! What does not fit. It is refused here in every case; CosId refuses some of it and reads or makes something else of the rest.

use cosid_id::{Form, Layout, WideId, Zone};
use cosid_tests::cosid::{self, Answer, Refused};

fn refused(class: &str) -> Answer {
    Err(Refused(class.into()))
}

fn answer(number: i64) -> Answer {
    Ok(number.to_string())
}

/// What CosId says to each question, of which it is known that it is refused here.
fn check(cases: Vec<(String, Answer)>) {
    let (questions, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    for ((question, expected), answer) in questions.iter().zip(expected).zip(cosid::ask(&questions)) {
        assert_eq!(answer, expected, "{question}");
    }
}

#[test]
fn times_slots_and_sequences_that_do_not_fit_are_refused() {
    if !cosid::is_here() {
        return;
    }
    let mut cases = Vec::new();
    for (name, layout) in [("ms", Layout::MILLISECOND), ("js-s", Layout::JAVASCRIPT_SECOND)] {
        let unit = u64::from(layout.unit_ms());
        let past = layout.tick_start(layout.max_tick() + 1);
        let (slots, epoch) = (layout.max_slot(), layout.epoch_ms());
        assert!(layout.compose(past, 0, 1).is_err() && layout.compose(epoch - 1, 0, 1).is_err());
        assert!(layout.compose(epoch, slots + 1, 1).is_err());
        assert!(layout.compose(epoch, 0, layout.max_sequence() + 1).is_err());
        cases.extend([
            (format!("compose\t{name}\t{}\t0\t1", past / unit), refused("TimestampOverflowException")),
            (
                format!("compose\t{name}\t{}\t{}\t1", epoch / unit, slots + 1),
                refused("IllegalArgumentException"),
            ),
            // Before its epoch CosId makes negative IDs.
            (format!("compose\t{name}\t{}\t0\t1", epoch / unit - 1), answer(-4_194_303)),
        ]);
    }
    check(cases);
}

#[test]
fn texts_that_stand_for_no_id_of_the_form_are_refused() {
    if !cosid::is_here() {
        return;
    }
    let ms = Layout::MILLISECOND;
    let (number, argument) = (refused("NumberFormatException"), refused("IllegalArgumentException"));
    let friendly = Form::friendly(ms, Zone::UTC).unwrap();
    let prefixed = Form::radix62(ms).padded().with_prefix("order-");
    let r62 = Form::radix62(ms);
    let padded = Form::radix62(ms).padded();
    let r36 = Form::radix36(ms);
    let cases = [
        // Too long, other digits, another alphabet.
        ("r62", &r62, "100000000000", number.clone()),
        ("r62", &r62, "1-2", number.clone()),
        ("r62", &r62, "1_2", number.clone()),
        ("r36", &r36, "12345678901234", number.clone()),
        ("r36", &r36, "a_", number.clone()),
        ("friendly=ms,UTC", &friendly, "20220320053617924-5", argument.clone()),
        ("friendly=ms,UTC", &friendly, "20220320053617924-5-x", number.clone()),
        ("friendly=ms,UTC", &friendly, "20221320053617924-5-0", refused("DateTimeParseException")),
        // Wrapped there: 62^11 - 1 has 66 bits.
        ("r62", &r62, "zzzzzzzzzzz", answer(-3_303_671_537_291_560_961)),
        // A number there, though nothing that it writes: zeros in front, none where there should be some, lower case.
        ("r62", &r62, "01", answer(1)),
        ("r62=11", &padded, "1", answer(1)),
        ("r36", &r36, "z", answer(61)),
        // Another prefix, which is cut off there by its length.
        ("prefix=order-|r62=11", &prefixed, "users-0LrHucXALbs", answer(295_913_926_632_165_376)),
        // A slot and a sequence that run into each other and the time there.
        ("friendly=ms,UTC", &friendly, "20220320053617924-1024-0", answer(295_913_926_632_144_896 | 1 << 22)),
        ("friendly=ms,UTC", &friendly, "20220320053617924-5-4096", answer(295_913_926_632_165_376 | 4_096)),
        ("friendly=ms,UTC", &friendly, "20191224155959999-0-0", answer(-4_194_304)),
    ];
    for (_, form, text, _) in &cases {
        assert!(form.parse(text).is_err(), "{text}");
    }
    check(cases.into_iter().map(|(name, _, text, says)| (format!("read\t{name}\t{text}"), says)).collect());

    // Without digits there is an ID there, and it has no text.
    assert_eq!(r62.format(0_u64.try_into().unwrap()).unwrap(), "0");
    assert!(r62.parse("").is_err());
    check(vec![("write\tr62\t0".into(), Ok(String::new())), ("write\tr62=11\t0".into(), Ok("0".repeat(11)))]);
}

#[test]
fn wide_texts_that_stand_for_no_id_are_refused() {
    if !cosid::is_here() {
        return;
    }
    let cases = [
        ("0T0b4Hki000500", refused("IllegalArgumentException")),
        ("0T0b4Hki00050000", refused("IllegalArgumentException")),
        ("0T0b4Hki0005_00", refused("NumberFormatException")),
        // More than 16 bits of sequence, more than 20 of slot.
        ("0T0b4Hki0005zzz", Ok("1647754577924\t5\t238327".into())),
        ("0T0b4Hkizzzz000", Ok("1647754577924\t14776335\t0".into())),
    ];
    for (text, _) in &cases {
        assert!(text.parse::<WideId>().is_err(), "{text}");
    }
    check(cases.into_iter().map(|(text, says)| (format!("wide\tread\tr62\t{text}"), says)).collect());
}
