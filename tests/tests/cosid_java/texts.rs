//! IDs as text, in each form that CosId has.

use cosid_id::{DatePrefix, Error, Form, Id, Layout, Zone};
use cosid_tests::cosid;

use super::values::{ids, layouts};

/// A form, and the name by which the Java program knows it.
type Named = (String, Form);

fn layout(name: &str) -> Layout {
    layouts().into_iter().find(|(known, _)| *known == name).unwrap().1
}

/// Digits of all radixes in each layout, padded or not.
fn digits() -> Vec<Named> {
    let mut forms = Vec::new();
    for (_, layout) in layouts() {
        forms.extend([
            ("dec".into(), Form::decimal(layout)),
            ("dec=19".into(), Form::decimal(layout).padded()),
            ("r62".into(), Form::radix62(layout)),
            ("r62=11".into(), Form::radix62(layout).padded()),
            ("r36".into(), Form::radix36(layout)),
            ("r36=13".into(), Form::radix36(layout).padded()),
        ]);
    }
    let safe = Layout::JAVASCRIPT_MILLISECOND;
    forms.push(("r62=9".into(), Form::radix62(safe).padded_to(9).unwrap()));
    forms.push(("r36=11".into(), Form::radix36(safe).padded_to(11).unwrap()));
    forms
}

/// Zones as both know them: fixed, with daylight saving time, far to the east and to the west.
fn zones() -> Vec<(&'static str, Zone)> {
    let mut zones = vec![
        ("UTC", Zone::UTC),
        ("+08:00", Zone::east_minutes(8 * 60).unwrap()),
        ("-09:30", Zone::east_minutes(-9 * 60 - 30).unwrap()),
    ];
    for name in ["Asia/Shanghai", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"] {
        zones.push((name, Zone::named(name).unwrap()));
    }
    zones
}

fn friendly() -> Vec<Named> {
    let mut forms = Vec::new();
    for (zone_name, zone) in zones() {
        for (name, layout) in layouts() {
            // Every layout in two zones, every zone with one layout.
            if name == "ms" || ["UTC", "Europe/Berlin"].contains(&zone_name) {
                let form = Form::friendly(layout, zone.clone()).unwrap();
                forms.push((format!("friendly={name},{zone_name}"), form));
            }
        }
        let form = Form::friendly(layout("s"), zone).unwrap();
        forms.push((format!("padded=s,{zone_name}"), form.padded()));
    }
    forms
}

fn around() -> Vec<Named> {
    let ms = layout("ms");
    vec![
        ("prefix=order-|r62=11".into(), Form::radix62(ms).padded().with_prefix("order-")),
        ("suffix=-eu|dec".into(), Form::decimal(ms).with_suffix("-eu")),
        ("prefix=\u{e4}\u{1f980}|suffix=_|r36=13".into(), {
            Form::radix36(ms).padded().with_prefix("\u{e4}\u{1f980}").with_suffix("_")
        }),
        ("prefix=o-|friendly=ms,UTC".into(), Form::friendly(ms, Zone::UTC).unwrap().with_prefix("o-")),
    ]
}

/// Asks CosId for the text of each ID, and for the ID of each of our texts. Gives how many there were, and how many of them
/// have times that came twice, which are not read here.
fn compare(forms: &[Named]) -> (usize, usize) {
    let mut questions = Vec::new();
    let mut asked: Vec<(&Form, Id)> = Vec::new();
    for (seed, (name, form)) in (100..).zip(forms) {
        for id in ids(form.layout(), seed) {
            let empty_there = id.get() == 0 && ["r62", "r36"].contains(&name.as_str());
            if empty_there {
                continue;
            }
            questions.push(format!("write\t{name}\t{id}"));
            questions.push(format!("read\t{name}\t{}", form.format(id).unwrap()));
            asked.push((form, id));
        }
    }
    let answers = cosid::ask(&questions);
    let mut twice = 0;
    for (((form, id), answers), questions) in asked.iter().zip(answers.chunks(2)).zip(questions.chunks(2)) {
        let theirs = answers[0].as_ref().unwrap();
        assert_eq!(theirs, &form.format(*id).unwrap(), "{}", questions[0]);
        let read_there: u64 =
            answers[1].as_ref().unwrap_or_else(|why| panic!("{} {why:?}", questions[1])).parse().unwrap();
        match form.parse(theirs) {
            Ok(read) => assert_eq!((read, read_there), (*id, id.get()), "{}", questions[1]),
            Err(Error::BadText { why, .. }) if why.contains("came twice") => {
                // The first of the two there: the ID itself, or one as much earlier as clocks went back.
                let earlier = form.layout().decompose(*id).unwrap().timestamp()
                    - form.layout().decompose(read_there.try_into().unwrap()).unwrap().timestamp();
                assert!([0, 1_800_000, 3_600_000].contains(&earlier), "{} {earlier}", questions[1]);
                twice += 1;
            }
            Err(error) => panic!("{}: {error}", questions[1]),
        }
    }
    (asked.len(), twice)
}

#[test]
fn digits_are_written_and_read_as_by_cosid() {
    if cosid::is_here() {
        println!("{} IDs as digits written and read by both: equal", compare(&digits()).0);
    }
}

#[test]
fn local_times_are_written_and_read_as_by_cosid() {
    if cosid::is_here() {
        let (ids, twice) = compare(&friendly());
        println!(
            "{ids} IDs as local times written and read by both: equal ({twice} came twice, and are not read here)"
        );
        assert!((1..ids / 1_000).contains(&twice), "{twice} times came twice");
    }
}

#[test]
fn prefixes_and_suffixes_are_written_and_read_as_by_cosid() {
    if cosid::is_here() {
        println!("{} IDs with prefix or suffix written and read by both: equal", compare(&around()).0);
    }
}

/// The one form that is not the same text: CosId's date is that of the writing, ours the ID's own.
#[test]
fn dates_in_front_are_read_here_and_there_whatever_day_they_say() {
    if !cosid::is_here() {
        return;
    }
    let ms = layout("ms");
    let mut questions = Vec::new();
    let mut asked = Vec::new();
    for (seed, (pattern, delimiter)) in
        (200..).zip([("yyyyMMdd", "-"), ("yyMMdd", ""), ("yyyy/MM/dd HH", "_")])
    {
        let date = DatePrefix::new(pattern, Zone::UTC, delimiter).unwrap().any_date();
        let form = Form::radix62(ms).padded().with_date(date).unwrap();
        for id in ids(&ms, seed) {
            questions.push(format!("write\tdate={pattern},{delimiter}|r62=11\t{id}"));
            questions.push(format!("read\tdate={pattern},{delimiter}|r62=11\t{}", form.format(id).unwrap()));
            asked.push((form.clone(), id));
        }
    }
    for ((form, id), answers) in asked.iter().zip(cosid::ask(&questions).chunks(2)) {
        assert_eq!(form.parse(answers[0].as_ref().unwrap()).unwrap(), *id, "{:?}", answers[0]);
        assert_eq!(answers[1], Ok(id.to_string()));
    }
    println!("{} IDs with a date in front read by both: equal", asked.len());
}
