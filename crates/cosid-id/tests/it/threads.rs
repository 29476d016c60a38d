//! Threads that share a cell, on the host's clock.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cosid_id::{Clock, Generator, Layout, NextError, PageOwner, SystemClock};

use crate::virtual_time::page;

const THREADS: usize = 4;
const EACH: usize = 500_000;
const LONG: Duration = Duration::from_secs(60);

fn open_window() -> (tempfile::TempDir, PageOwner, Generator, u64) {
    let floor = SystemClock.unix_ms();
    let (dir, mut owner) = page(Layout::MILLISECOND, floor);
    owner.set_ceiling(floor + 600_000);
    let cell = owner.assign("orders").unwrap();
    let generator = Generator::new(owner.page().clone(), cell).unwrap();
    (dir, owner, generator, floor)
}

fn timestamp(id: u64) -> u64 {
    Layout::MILLISECOND.decompose(id.try_into().unwrap()).unwrap().timestamp()
}

fn assert_distinct(mut ids: Vec<u64>) {
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(count - ids.len(), 0, "equal IDs");
}

#[test]
fn four_threads_make_two_million_ids_none_equal() {
    let (_dir, owner, generator, floor) = open_window();
    let makers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let generator = generator.clone();
            thread::spawn(move || {
                if thread % 2 == 0 {
                    return (0..EACH).map(|_| generator.next(LONG).unwrap().get()).collect();
                }
                let mut ids = vec![0; EACH];
                ids.chunks_mut(1_000).for_each(|chunk| generator.fill(chunk, LONG).unwrap());
                ids
            })
        })
        .collect();
    let ids: Vec<u64> = makers.into_iter().flat_map(|maker| maker.join().unwrap()).collect();
    let largest = ids.iter().copied().max().unwrap();
    assert_eq!(ids.len(), THREADS * EACH);
    assert!(ids.iter().all(|&id| timestamp(id) > floor));
    assert_eq!(owner.close().last_issued, timestamp(largest));
    assert_distinct(ids);
}

#[test]
fn a_close_under_fire_names_the_last_timestamp_exactly() {
    let (_dir, owner, generator, _) = open_window();
    let (running, all_running) = mpsc::channel();
    let makers: Vec<_> = (0..THREADS)
        .map(|_| {
            let (generator, running) = (generator.clone(), running.clone());
            thread::spawn(move || {
                let mut ids = Vec::with_capacity(EACH);
                loop {
                    match generator.next(LONG) {
                        Ok(id) => ids.push(id.get()),
                        Err(error) => break (ids, error),
                    }
                    if ids.len() == 10_000 {
                        running.send(()).unwrap();
                    }
                }
            })
        })
        .collect();
    all_running.iter().take(THREADS).for_each(drop);
    let last_issued = owner.close().last_issued;

    let mut ids = Vec::new();
    for maker in makers {
        let (made, error) = maker.join().unwrap();
        assert_eq!(error, NextError::SlotLost);
        ids.extend(made);
    }
    assert_eq!(ids.iter().copied().map(timestamp).max(), Some(last_issued));
    assert_eq!(owner.close().last_issued, last_issued);
    assert_distinct(ids);
}
