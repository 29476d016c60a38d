//! Pages as files: made, opened, damaged, closed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::virtual_time::{VirtualTime, page};
use cosid_id::{Error, Generator, Header, Layout, NextError, Page, PageOwner};

const FLOOR: u64 = 1_700_000_000_000;
const PAGE_LEN: usize = 16_384;
const HEADER_LEN: usize = 440;

fn header(pool: &str) -> Header {
    Header { pool: pool.into(), slot: 5, fence: 3, floor: FLOOR, layout: Layout::MILLISECOND }
}

/// A page's bytes changed by `damage`, then opened.
fn open_damaged(damage: impl FnOnce(&mut Vec<u8>)) -> Error {
    let (dir, owner) = page(Layout::MILLISECOND, FLOOR);
    let mut bytes = fs::read(owner.path()).unwrap();
    damage(&mut bytes);
    let path = dir.path().join("damaged.page");
    fs::write(&path, bytes).unwrap();
    let error = Page::open(&path).unwrap_err();
    assert!(error.to_string().contains("damaged.page"), "the message names the page: {error}");
    error
}

#[test]
fn a_page_says_what_it_was_made_with() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("7-9.page");
    let layout = Layout::builder()
        .timestamp_bits(31)
        .slot_bits(3)
        .sequence_bits(19)
        .unit_ms(1000)
        .epoch_ms(7)
        .sequence_threshold(11)
        .build()
        .unwrap();
    let header =
        Header { pool: "p".repeat(336), slot: 7, fence: u64::from(u32::MAX) + 9, floor: FLOOR, layout };
    PageOwner::create(&path, &header).unwrap();
    let page = Page::open(&path).unwrap();
    assert_eq!(page.header(), &header);
    assert_eq!((page.ceiling(), page.last_issued(), page.is_closed()), (FLOOR, FLOOR, false));
    assert!(page.cells().is_empty());
}

#[test]
fn a_new_page_is_complete_for_its_group_and_alone_in_its_directory() {
    let (dir, owner) = page(Layout::MILLISECOND, FLOOR);
    let metadata = fs::metadata(owner.path()).unwrap();
    assert_eq!(metadata.len(), PAGE_LEN as u64);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o666);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
}

#[test]
fn a_page_that_exists_is_left_alone() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    owner.assign("orders").unwrap();
    let error = PageOwner::create(owner.path(), &header("other/pool")).unwrap_err();
    assert!(matches!(error, Error::PageExists { .. }), "{error}");
    assert_eq!(Page::open(owner.path()).unwrap().header().pool, "shop/orders");
}

#[test]
fn the_draft_of_an_owner_that_was_killed_is_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(".5-3.page.draft"), b"half a").unwrap();
    assert!(PageOwner::create(dir.path().join("5-3.page"), &header("shop/orders")).is_ok());
}

#[test]
fn what_a_page_cannot_hold_is_refused_before_there_is_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.page");
    for pool in ["", &"p".repeat(337)] {
        let error = PageOwner::create(&path, &header(pool)).unwrap_err();
        assert!(matches!(error, Error::BadPoolName { max: 336, .. }), "{error}");
    }
    let error = PageOwner::create(&path, &Header { slot: 1024, ..header("shop/orders") }).unwrap_err();
    assert!(matches!(error, Error::SlotTooLarge { slot: 1024, max: 1023 }), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_page_cut_short_anywhere_is_truncated() {
    for len in [0, 1, 7, 8, 11, 12, 23, 79, 431, 439, 440, 511, 512, 513, 4096, PAGE_LEN - 1] {
        let error = open_damaged(|bytes| bytes.truncate(len));
        let expected_len = len as u64;
        assert!(matches!(error, Error::Truncated { len, .. } if len == expected_len), "{len}: {error}");
    }
}

#[test]
fn a_page_that_is_too_long_is_refused() {
    let error = open_damaged(|bytes| bytes.push(0));
    assert!(matches!(error, Error::WrongSize { len: 16_385, expected: 16_384, .. }), "{error}");
}

#[test]
fn a_foreign_file_is_no_page_whatever_its_length() {
    for content in [&b"{"[..], b"#!/bin/sh\n", &[0; PAGE_LEN], &[0xff; 100]] {
        let error = open_damaged(|bytes| *bytes = content.to_vec());
        assert!(matches!(error, Error::NotAPage { .. }), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let error = Page::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Io { .. } | Error::NotAPage { .. }), "{error}");
}

#[test]
fn a_newer_page_is_named_as_such_whatever_else_it_says() {
    let error = open_damaged(|bytes| {
        bytes[8] = 2;
        bytes.truncate(100);
    });
    assert!(matches!(error, Error::NewerPage { version: 2, newest: 1, .. }), "{error}");
    assert!(error.to_string().contains("update"), "{error}");
}

#[test]
fn a_bit_flipped_anywhere_in_the_header_is_noticed() {
    for at in 0..HEADER_LEN {
        for bit in [0x01, 0x80] {
            let error = open_damaged(|bytes| bytes[at] ^= bit);
            assert!(
                matches!(error, Error::CorruptPage { .. } | Error::NotAPage { .. } | Error::NewerPage { .. }),
                "byte {at}: {error}"
            );
        }
    }
}

/// Changes bytes and makes the checksum right again, as a faulty writer would.
fn open_rewritten(at: usize, value: &[u8]) -> Error {
    open_damaged(|bytes| {
        bytes[at..at + value.len()].copy_from_slice(value);
        let checksum = bytes[..432].iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        bytes[432..440].copy_from_slice(&checksum.to_le_bytes());
    })
}

#[test]
fn a_header_that_contradicts_itself_is_damaged_although_its_checksum_is_right() {
    let nonsense: [(&str, usize, &[u8]); 10] = [
        ("version", 8, &[0]),
        ("header length", 12, &[0, 1]),
        ("number of cells", 20, &[63]),
        ("slot", 40, &1024_u32.to_le_bytes()),
        ("pool length", 44, &337_u32.to_le_bytes()),
        ("layout", 48, &[60, 10, 12]),
        ("field order", 51, &[2]),
        ("sequence threshold", 64, &4096_u32.to_le_bytes()),
        ("layout's reserve", 70, &[1]),
        ("pool's UTF-8", 80, &[0xff]),
    ];
    for (what, at, value) in nonsense {
        let error = open_rewritten(at, value);
        assert!(matches!(error, Error::CorruptPage { .. }), "{what}: {error}");
    }
}

#[test]
fn a_page_keeps_its_layout_whatever_that_is() {
    for layout in [Layout::MILLISECOND, Layout::SECOND, Layout::JAVASCRIPT_SECOND, Layout::SONYFLAKE] {
        let (_dir, owner) = page(layout, FLOOR);
        assert_eq!(Page::open(owner.path()).unwrap().header().layout, layout);
        let bytes = fs::read(owner.path()).unwrap();
        let order = u8::from(layout == Layout::SONYFLAKE);
        assert_eq!(bytes[51], order, "0 as in pages from before there was an order");
    }
}

#[test]
fn a_missing_page_and_a_missing_directory_are_named() {
    let missing = Path::new("/nonexistent/5-3.page");
    for error in [Page::open(missing).unwrap_err(), PageOwner::create(missing, &header("a/b")).unwrap_err()] {
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert!(error.to_string().contains("/nonexistent/5-3.page"), "{error}");
    }
}

#[test]
fn a_name_always_gets_its_own_cell() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    let orders = owner.assign("orders").unwrap();
    let users = owner.assign("users").unwrap();
    assert_ne!(orders, users);
    assert_eq!(owner.assign("orders").unwrap(), orders);

    let mut resumed = PageOwner::open(owner.path()).unwrap();
    assert_eq!(resumed.assign("users").unwrap(), users);
    assert_eq!(Page::open(owner.path()).unwrap().cell("users"), Some(users));
    let names: Vec<String> = resumed.cells().into_iter().map(|cell| cell.name).collect();
    assert_eq!(names, ["orders", "users"]);
}

#[test]
fn names_are_bounded_and_cells_run_out_with_an_error() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    for name in ["", "a b", "a/b", "ü", "a\0", &"n".repeat(65)] {
        let error = owner.assign(name).unwrap_err();
        assert!(matches!(error, Error::BadGeneratorName { .. }), "{name}: {error}");
    }
    assert!(owner.assign(&"n".repeat(64)).is_ok());
    for index in 1..62 {
        owner.assign(&format!("generator-{index}")).unwrap();
    }
    let error = owner.assign("one-more").unwrap_err();
    assert!(matches!(error, Error::CellsUsedUp { cells: 62, .. }), "{error}");
    assert_eq!(owner.cells().len(), 62);
}

#[test]
fn the_ceiling_never_shrinks() {
    let (_dir, owner) = page(Layout::MILLISECOND, FLOOR);
    assert_eq!(owner.set_ceiling(FLOOR + 50), FLOOR + 50);
    assert_eq!(owner.set_ceiling(FLOOR + 20), FLOOR + 50);
    assert_eq!(Page::open(owner.path()).unwrap().ceiling(), FLOOR + 50);
}

#[test]
fn closing_is_exact_final_and_the_same_when_done_again() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    let clock = VirtualTime::at(FLOOR + 10);
    let mut generator = |name: &str| {
        let cell = owner.assign(name).unwrap();
        Generator::with_clock(owner.page().clone(), cell, clock.clone()).unwrap()
    };
    let (orders, users, unused) = (generator("orders"), generator("users"), generator("unused"));
    orders.try_next().unwrap();
    clock.set(FLOOR + 77);
    users.try_next().unwrap();
    clock.set(FLOOR + 90);

    // The owner's view and that of everybody who maps the file anew are one.
    let mut resumed = PageOwner::open(owner.path()).unwrap();
    let last: Vec<u64> = resumed.cells().into_iter().map(|cell| cell.last_issued).collect();
    assert_eq!(last, [FLOOR + 10, FLOOR + 77, FLOOR]);
    assert_eq!(resumed.last_issued(), FLOOR + 77);

    assert_eq!(owner.close().last_issued, FLOOR + 77);
    for generator in [&orders, &users, &unused] {
        assert_eq!(generator.try_next(), Err(NextError::SlotLost));
    }
    assert!(resumed.is_closed());
    assert_eq!(resumed.close().last_issued, FLOOR + 77);
    assert_eq!(resumed.set_ceiling(FLOOR + 9_999), FLOOR + 9_999);
    assert_eq!(orders.try_next(), Err(NextError::SlotLost));
    let error = resumed.assign("late").unwrap_err();
    assert!(matches!(error, Error::PageClosed { .. }), "{error}");
}

#[test]
fn a_page_that_issued_nothing_closes_at_its_floor() {
    let (_dir, owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    assert_eq!(owner.close().last_issued, FLOOR);
}

/// The race of an assignment with a close: the name is written when the page is closed already.
#[test]
fn a_cell_given_out_while_the_page_is_being_closed_issues_nothing() {
    let (_dir, owner) = page(Layout::MILLISECOND, FLOOR);
    owner.set_ceiling(FLOOR + 1_000);
    owner.close();
    let mut file = fs::OpenOptions::new().write(true).open(owner.path()).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(512 + 128)).unwrap();
    file.write_all(&[4, 0, 0, 0, 0, 0, 0, 0, b'l', b'a', b't', b'e']).unwrap();
    let cell = owner.cell("late").unwrap();
    let late = Generator::with_clock(owner.page().clone(), cell, VirtualTime::at(FLOOR + 10)).unwrap();
    assert_eq!(late.try_next(), Err(NextError::SlotLost));
}

#[test]
fn a_cell_with_a_layout_that_is_not_known_is_for_newer_programs() {
    let (_dir, mut owner) = page(Layout::MILLISECOND, FLOOR);
    let cell = owner.assign("orders").unwrap();
    let mut file = fs::OpenOptions::new().write(true).open(owner.path()).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(512 + 200)).unwrap();
    file.write_all(&[31]).unwrap();
    let error = Generator::new(owner.page().clone(), cell).unwrap_err();
    assert!(matches!(error, Error::NewerCell { .. }), "{error}");
}

/// A limit on the file size stands for a full disk: it needs no rights, and both fail in the same place.
#[test]
fn a_full_disk_is_an_error_at_creation_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("5-3.page");
    let child = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 8; exec \"$0\" --ignored --exact --nocapture page::creates_a_page",
        ])
        .arg(std::env::current_exe().unwrap())
        .env("COSID_TEST_PAGE", &path)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(output.contains("DiskFull"), "{output}{}", String::from_utf8_lossy(&child.stderr));
    assert!(output.contains("no room for page") && output.contains("5-3.page"), "{output}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
#[ignore = "the process that the test above starts, with a limit on its files"]
fn creates_a_page() {
    if let Some(path) = std::env::var_os("COSID_TEST_PAGE") {
        match PageOwner::create(path, &header("shop/orders")) {
            Ok(_) => println!("made"),
            Err(error) => println!("{error:?} {error}"),
        }
    }
}
