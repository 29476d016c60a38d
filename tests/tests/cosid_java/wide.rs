//! CosIdGenerator's texts.

use cosid_id::{Layout, WideId, Zone};
use cosid_tests::cosid;

use super::values::{fields, ids};

fn kinds() -> Vec<(&'static str, Option<Zone>)> {
    let berlin = Zone::named("Europe/Berlin").unwrap();
    vec![("r62", None), ("r36", None), ("UTC", Some(Zone::UTC)), ("Europe/Berlin", Some(berlin))]
}

fn write(kind: &str, zone: Option<&Zone>, id: WideId) -> String {
    match (kind, zone) {
        (_, Some(zone)) => id.to_friendly(zone),
        ("r62", None) => id.to_string(),
        (_, None) => id.to_radix36(),
    }
}

fn read(kind: &str, zone: Option<&Zone>, text: &str) -> Result<WideId, cosid_id::Error> {
    match (kind, zone) {
        (_, Some(zone)) => WideId::from_friendly(text, zone),
        ("r62", None) => text.parse(),
        (_, None) => WideId::from_radix36(text),
    }
}

#[test]
fn a_wide_id_is_written_and_read_as_by_cosid() {
    if !cosid::is_here() {
        return;
    }
    let mut questions = Vec::new();
    let mut asked = Vec::new();
    for (seed, (kind, zone)) in (300..).zip(kinds()) {
        let max = (WideId::MAX_TIMESTAMP, WideId::MAX_SLOT, WideId::MAX_SEQUENCE);
        let all = fields(max, seed)
            .into_iter()
            .map(|(ms, slot, sequence)| WideId::new(ms, slot, sequence).unwrap());
        // Those that a pool's IDs have, too: that is how a table with such texts is carried on.
        let layout = Layout::MILLISECOND;
        let carried = ids(&layout, seed).into_iter().map(|id| WideId::from_id(&layout, id).unwrap());
        for id in all.chain(carried) {
            let fields = format!("{}\t{}\t{}", id.timestamp(), id.slot(), id.sequence());
            let text = write(kind, zone.as_ref(), id);
            questions.push(format!("wide\twrite\t{kind}\t{fields}"));
            questions.push(format!("wide\tread\t{kind}\t{text}"));
            asked.push((kind, zone.clone(), id, text, fields));
        }
    }
    let mut twice = 0;
    for ((kind, zone, id, text, fields), answers) in asked.iter().zip(cosid::ask(&questions).chunks(2)) {
        assert_eq!(answers[0].as_ref(), Ok(text));
        match read(kind, zone.as_ref(), text) {
            Ok(read) => {
                assert_eq!(read, *id);
                assert_eq!(answers[1].as_ref(), Ok(fields), "{text}");
            }
            Err(error) => {
                assert!(error.to_string().contains("came twice"), "{text}: {error}");
                twice += 1;
            }
        }
    }
    assert!(twice < asked.len() / 1_000, "{twice} times came twice");
    println!("{} wide IDs written and read by both: equal", asked.len());
}
