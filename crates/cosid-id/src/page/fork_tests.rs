//! Processes that are forked in the middle of making IDs in masses. Here, because forking is unsafe.

#![allow(unsafe_code, reason = "no safe crate forks")]

use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;

use super::PageOwner;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::format::Header;
use crate::generator::Generator;
use crate::layout::Layout;
use crate::static_slot::StaticSlot;

/// Workers that make as many as their parent.
const WORKERS: usize = 8;
const MANY: usize = 1_000_000;
/// Before each of them one that makes only a few, fewer than its parent has left of a run, and ends before the parent goes
/// on: if it had the parent's run, the state would not tell the parent so.
const FEW: usize = 3;
const LONG: Duration = Duration::from_secs(60);

/// A process ends with an error rather than run on into the test of its parent.
fn make_and_write(generator: &Generator, count: usize, ids: &mut Vec<u8>, mut file: &File) -> bool {
    for _ in 0..count {
        match generator.next(LONG) {
            Ok(id) => ids.extend(id.get().to_le_bytes()),
            Err(_) => return false,
        }
    }
    file.write_all(ids).is_ok()
}

fn wait_for(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: `status` lives while it is written, and the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn a_static_slot_stays_the_process_s_that_opened_it_and_its_forks_make_ids() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let mut slot = Some(StaticSlot::builder(3).ahead(Duration::from_millis(50)).open(&state).unwrap());
    let generator = slot.as_mut().unwrap().generator("orders").unwrap();
    let files = [1, 2].map(|number| File::create(dir.path().join(number.to_string())).unwrap());
    let mut ids = Vec::with_capacity(16 * MANY);
    generator.next(LONG).unwrap();
    // SAFETY: the child makes IDs, writes them to a file that is open, and ends without returning from here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut own = slot.take().unwrap();
        let is_refused = matches!(own.generator("new"), Err(Error::NotTheOpener { .. }))
            && own.generator("orders").is_ok()
            && own.health().is_ok()
            && matches!(own.close(), Err(Error::NotTheOpener { .. }));
        let is_done = make_and_write(&generator, MANY / 10, &mut ids, &files[0]);
        // SAFETY: it ends the child at once.
        unsafe { libc::_exit(i32::from(!(is_refused && is_done))) };
    }
    assert!(make_and_write(&generator, MANY / 10, &mut ids, &files[1]));
    wait_for(child);
    let seen = slot.as_ref().unwrap().page().ceiling();
    while slot.as_ref().unwrap().page().ceiling() == seen {
        SystemClock.sleep(Duration::from_millis(1));
    }
    let last = generator.next(LONG).unwrap();
    let closed = slot.take().unwrap().close().unwrap();
    assert_eq!(closed.last_issued, Layout::MILLISECOND.decompose(last).unwrap().timestamp());
    StaticSlot::builder(3).open(&state).unwrap();
    let bytes: Vec<u8> =
        ["1", "2"].iter().flat_map(|name| fs::read(dir.path().join(name)).unwrap()).collect();
    let mut all: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!((count, all.len()), (MANY / 5, MANY / 5));
}

#[test]
fn processes_forked_under_way_make_nine_million_ids_none_equal() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::builder().slot_bits(2).sequence_bits(20).build().unwrap();
    let now = SystemClock.unix_ms();
    let header = Header { pool: "shop/orders".into(), slot: 1, fence: 1, floor: now - 1, layout };
    let mut owner = PageOwner::create(dir.path().join("1-1.page"), &header).unwrap();
    owner.set_ceiling(now + 600_000);
    let cell = owner.assign("orders").unwrap();
    let generator = Generator::new(owner.page().clone(), cell).unwrap();
    let path = |number: usize| dir.path().join(format!("{number}.ids"));
    let files: Vec<File> = (0..=2 * WORKERS).map(|number| File::create(path(number)).unwrap()).collect();
    // Made before forking: a child shall do as little as it can.
    let mut ids = Vec::with_capacity(16 * 8 * MANY);

    let mut workers = Vec::new();
    for (number, file) in files.iter().enumerate().skip(1) {
        let count = if number % 2 == 0 { MANY } else { FEW };
        // The parent has the gate open and is within a run.
        for _ in 0..100_000 + 7 * number {
            ids.extend(generator.next(LONG).unwrap().get().to_le_bytes());
        }
        // SAFETY: the child makes IDs, writes them to a file that is open, and ends without returning from here.
        let child = unsafe { libc::fork() };
        if child == 0 {
            ids.clear();
            let is_done = make_and_write(&generator, count, &mut ids, file);
            // SAFETY: it ends the child at once.
            unsafe { libc::_exit(i32::from(!is_done)) };
        }
        if count == FEW {
            wait_for(child);
        } else {
            workers.push(child);
        }
    }
    assert!(make_and_write(&generator, MANY, &mut ids, &files[0]));
    workers.into_iter().for_each(wait_for);

    let mut all = Vec::new();
    for number in 0..=2 * WORKERS {
        let bytes = fs::read(path(number)).unwrap();
        let ids = bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk));
        assert!(ids.clone().is_sorted_by(|a, b| a < b), "process {number}");
        all.extend(ids);
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    println!("{count} IDs of {} processes, {} equal", files.len(), count - all.len());
    assert!(count > (WORKERS + 1) * MANY);
    assert_eq!(all.len(), count);
}
