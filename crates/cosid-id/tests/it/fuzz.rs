//! Pages and texts that nobody made in good faith. How inputs are made, and for how long: `cosid_fuzz`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use cosid_fuzz::{Target, Verdict};
use cosid_id::{
    DatePrefix, FieldOrder, Form, Generator, Id, Layout, NextError, Page, PageOwner, WideId, Zone,
};

use crate::virtual_time::VirtualTime;

/// No message is longer, whatever the input: it goes into logs, events and conditions.
const LONGEST_MESSAGE: usize = 600;

/// Bytes of a page that its checksum is of.
const CHECKED: usize = 432;

#[test]
fn page() {
    let dir = tempfile::tempdir().unwrap();
    Target::new("page", env!("CARGO_MANIFEST_DIR"))
        .mend(|page| mend_checksum(page))
        .inputs(400)
        .run(|input| page_of(dir.path(), input));
}

fn mend_checksum(page: &mut [u8]) {
    if page.len() >= CHECKED + 8 {
        let hash = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let checksum = page[..CHECKED].iter().fold(0xcbf2_9ce4_8422_2325, hash);
        page[CHECKED..CHECKED + 8].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn page_of(dir: &Path, input: &[u8]) -> Verdict {
    let (path, again) = (dir.join("fuzzed.page"), dir.join("again.page"));
    fs::write(&path, input).unwrap();
    let page = match Page::open(&path) {
        Ok(page) => Arc::new(page),
        Err(error) => {
            let message = error.to_string();
            assert!(
                message.contains("fuzzed.page") && message.chars().count() < LONGEST_MESSAGE,
                "{message}"
            );
            return Verdict::Refused;
        }
    };
    let _ = fs::remove_file(&again);
    let same = PageOwner::create(&again, page.header()).unwrap();
    assert_eq!(
        fs::read(same.path()).unwrap()[..CHECKED],
        input[..CHECKED],
        "what is read is what would be written"
    );

    issues_in_its_window_only(&page, input);
    let mut owner = PageOwner::open(&path).unwrap();
    let was_closed = owner.is_closed();
    // All cells may be taken, by names that no owner gives.
    let assigned = owner.assign("orders");
    assert!(!(was_closed && assigned.is_ok()));
    let closed = owner.close();
    assert_eq!(owner.close(), closed);
    assert!(closed.last_issued >= page.header().floor);
    for cell in 0..62 {
        if let Ok(generator) =
            Generator::with_clock(page.clone(), cell, VirtualTime::at(page.header().floor % (1 << 43)))
        {
            assert_eq!(generator.try_next(), Err(NextError::SlotLost));
        }
    }
    Verdict::Accepted
}

/// Whatever the words of its cells say.
fn issues_in_its_window_only(page: &Arc<Page>, input: &[u8]) {
    let (header, ceiling) = (page.header(), page.ceiling());
    // The words are the file's.
    assert_eq!(ceiling, u64::from_le_bytes(input[448..456].try_into().unwrap()));
    assert!(page.last_issued() >= header.floor);
    let taken: Vec<usize> = page.cells().iter().map(|info| info.cell).collect();
    for &cell in taken.iter().take(3).chain(&[0, 61, 62, usize::MAX]) {
        for now in [
            0,
            header.floor,
            header.floor.saturating_add(1),
            ceiling,
            ceiling.saturating_add(1),
            1_795_000_000_000,
        ] {
            // A virtual clock counts nanoseconds.
            let clock = VirtualTime::at(now.min(1 << 43));
            let Ok(generator) = Generator::with_clock(page.clone(), cell, clock) else {
                assert!(!taken.contains(&cell) || input[712 + 256 * cell..][..32] != [0; 32]);
                continue;
            };
            let ids = generator.try_next().into_iter().chain(generator.try_range(3).into_iter().flatten());
            ids.for_each(|id| in_window(page, ceiling, id));
        }
        if let Ok(generator) = Generator::new(page.clone(), cell) {
            (0..300).map_while(|_| generator.try_next().ok()).for_each(|id| in_window(page, ceiling, id));
        }
    }
}

fn in_window(page: &Page, ceiling: u64, id: Id) {
    let header = page.header();
    let parts = header.layout.decompose(id).unwrap();
    assert_eq!(parts.slot(), header.slot);
    let last = parts.timestamp() + u64::from(header.layout.unit_ms()) - 1;
    assert!(
        header.floor < parts.timestamp() && last <= ceiling,
        "{parts:?} is outside of {header:?}, {ceiling}"
    );
}

#[test]
fn id_texts() {
    let forms = forms();
    let zones = [Zone::UTC, Zone::east_minutes(-18 * 60).unwrap(), Zone::east_minutes(8 * 60).unwrap()];
    let tokens = &[
        "order-",
        "20220320",
        "99981231235959999",
        "00000000000",
        "LygHa16AHYF",
        "AzL8n0Y58m7",
        "é",
        "٣",
        "-",
        "/",
        "\0",
    ];
    Target::new("id_texts", env!("CARGO_MANIFEST_DIR"))
        .tokens(tokens)
        .run(|input| text_of(&forms, &zones, input));
}

/// One of each kind, and layouts at the edges of what there are.
fn forms() -> Vec<Form> {
    let wide =
        Layout::builder().timestamp_bits(42).slot_bits(1).sequence_bits(20).epoch_ms(0).build().unwrap();
    let sony = Layout::builder()
        .timestamp_bits(39)
        .slot_bits(16)
        .sequence_bits(8)
        .unit_ms(10)
        .order(FieldOrder::SequenceSlot)
        .build()
        .unwrap();
    let by_day = || DatePrefix::new("yyyyMMdd", Zone::UTC, "/").unwrap();
    let mut forms = Vec::new();
    for layout in [Layout::MILLISECOND, Layout::SECOND, Layout::JAVASCRIPT_SECOND, wide, sony] {
        for form in [Form::decimal(layout), Form::radix62(layout), Form::radix36(layout)] {
            forms.extend([form.clone(), form.clone().padded(), form.clone().padded_to(20).unwrap()]);
            forms.push(form.clone().with_prefix("order-").with_suffix("-é"));
            forms.push(form.clone().with_date(by_day()).unwrap());
        }
        for zone in [Zone::UTC, Zone::east_minutes(-18 * 60).unwrap(), Zone::east_minutes(18 * 60).unwrap()] {
            let form = Form::friendly(layout, zone).unwrap();
            forms.extend([form.clone(), form.padded()]);
        }
    }
    forms
}

fn text_of(forms: &[Form], zones: &[Zone], input: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(input);
    let mut read = 0;
    let mut note = |written: Result<String, cosid_id::Error>| match written {
        Ok(written) => {
            assert_eq!(written, text, "what is read is what would be written");
            read += 1;
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.chars().count() < LONGEST_MESSAGE, "{message}");
        }
    };
    for form in forms {
        note(form.parse(&text).map(|id| form.format(id).unwrap()));
    }
    // Zeros in front are read by itself too.
    note(text.parse::<Id>().map(|id| {
        let digits = id.to_string();
        "0".repeat(text.len().saturating_sub(digits.len())) + &digits
    }));
    note(WideId::from_radix36(&text).map(|id| id.to_radix36()));
    for zone in zones {
        note(WideId::from_friendly(&text, zone).map(|id| id.to_friendly(zone)));
    }
    // The one form that reads what it does not write.
    let any_date = DatePrefix::new("yyyyMMdd", Zone::UTC, "/").unwrap().any_date();
    let any_date = Form::decimal(Layout::MILLISECOND).with_date(any_date).unwrap();
    if let Ok(id) = any_date.parse(&text) {
        assert_eq!(text[9..], id.to_string());
    }
    // What is configured, not read back.
    for error in [DatePrefix::new(&text, Zone::UTC, "/").err(), named_zone(&text)].into_iter().flatten() {
        assert!(error.to_string().chars().count() < LONGEST_MESSAGE, "{error}");
    }
    Verdict::accepted(read > 0)
}

#[cfg(feature = "zones")]
fn named_zone(name: &str) -> Option<cosid_id::Error> {
    Zone::named(name).err()
}

#[cfg(not(feature = "zones"))]
fn named_zone(_: &str) -> Option<cosid_id::Error> {
    None
}
