//! Static slots on a real disk, most of them in virtual time.

mod disks;
mod fuzz;
mod kills;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::file::lock_path;
use super::*;
use crate::clock::{Clock, SystemClock};
use crate::layout::Layout;
use crate::next_error::{NextError, Wait};

const NOON: u64 = 1_795_000_000_000;
const HOUR: u64 = 3_600_000;
const AHEAD: u64 = 10_000;

/// A clock that stands where it is put.
#[derive(Clone)]
struct Hands(Arc<AtomicU64>);

impl Hands {
    fn at(unix_ms: u64) -> Self {
        Self(Arc::new(AtomicU64::new(unix_ms)))
    }

    fn put(&self, unix_ms: u64) {
        self.0.store(unix_ms, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn unix_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.unix_ms())
    }
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A state file in a directory of its own.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("orders-3.state")
    }

    fn open(&self, clock: &Hands) -> StaticSlot {
        StaticSlot::builder(3).open_with_clock(&self.state(), clock.clone()).unwrap()
    }

    /// The ceiling that the disk has.
    fn written(&self) -> u64 {
        let text = fs::read_to_string(self.state()).unwrap();
        text.lines().find_map(|line| line.strip_prefix("ceiling ")).unwrap().parse().unwrap()
    }
}

impl StaticSlot {
    /// As if its process were killed.
    fn kill(mut self) {
        self.keeping.take().unwrap().abandon();
    }
}

fn generator(slot: &mut StaticSlot, clock: &Hands) -> Generator<Hands> {
    let cell = slot.assign("orders").unwrap();
    Generator::with_clock(Arc::clone(slot.page()), cell, clock.clone()).unwrap()
}

fn below_floor(now: u64, until: u64) -> Result<crate::Id, NextError> {
    Err(Wait::BelowFloor { now, until }.into())
}

/// Waits until a real thread has done something.
fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_first_ceiling_is_on_the_disk_before_the_first_id() {
    let (place, clock) = (Place::new(), Hands::at(NOON));
    let mut slot = place.open(&clock);
    assert_eq!((slot.page().header().floor, slot.page().ceiling()), (NOON, NOON + AHEAD));
    assert_eq!(place.written(), NOON + AHEAD);
    assert_eq!(slot.warning(), Some(&StaticWarning::NewFile { path: place.state() }));
    let orders = generator(&mut slot, &clock);
    assert_eq!(orders.try_next(), below_floor(NOON, NOON + 1), "what was before the file began is not ours");
    clock.put(NOON + 1);
    let parts = Layout::MILLISECOND.decompose(orders.try_next().unwrap()).unwrap();
    assert_eq!((parts.timestamp(), parts.slot()), (NOON + 1, 3));
}

#[test]
fn a_close_writes_the_exact_last_timestamp_and_the_next_start_goes_on_right_above_it() {
    let (place, clock) = (Place::new(), Hands::at(NOON));
    let mut slot = place.open(&clock);
    let orders = generator(&mut slot, &clock);
    clock.put(NOON + 7);
    orders.try_next().unwrap();
    assert_eq!(slot.close().unwrap().last_issued, NOON + 7);
    assert_eq!(place.written(), NOON + 7);
    assert_eq!(orders.try_next(), Err(NextError::SlotLost));

    let mut again = place.open(&clock);
    assert_eq!((again.warning(), again.page().header().floor), (None, NOON + 7));
    assert_eq!(again.page().header().fence, 2);
    assert_eq!(generator(&mut again, &clock).try_next(), below_floor(NOON + 7, NOON + 8));
    clock.put(NOON + 8);
    generator(&mut again, &clock).try_next().unwrap();
    drop(again);
    assert_eq!(place.written(), NOON + 8, "and so does a drop");
    let unused = place.open(&clock);
    assert_eq!(unused.close().unwrap().last_issued, NOON + 8, "one that made no ID keeps its floor");
    assert_eq!(place.written(), NOON + 8);
}

#[test]
fn after_a_kill_and_a_clock_set_back_by_an_hour_no_id_comes_before_the_old_ceiling() {
    let (place, clock) = (Place::new(), Hands::at(NOON));
    let mut slot = place.open(&clock);
    let orders = generator(&mut slot, &clock);
    clock.put(NOON + 3);
    let last = orders.try_next().unwrap();
    slot.kill();

    clock.put(NOON - HOUR);
    let mut again = place.open(&clock);
    let orders = generator(&mut again, &clock);
    let ceiling = NOON + AHEAD;
    assert_eq!(again.page().header().floor, ceiling);
    assert_eq!(orders.try_next(), below_floor(NOON - HOUR, ceiling + 1));
    clock.put(ceiling);
    assert_eq!(orders.try_next(), below_floor(ceiling, ceiling + 1));
    clock.put(ceiling + 1);
    until("not extended", || again.page().ceiling() > ceiling);
    assert!(orders.try_next().unwrap() > last);
}

#[test]
fn it_is_extended_when_less_than_half_is_left_and_the_disk_has_it_first() {
    let (place, clock) = (Place::new(), Hands::at(NOON));
    let (sender, extensions) = mpsc::channel();
    let hook = move |extended: Result<u64, &Error>| sender.send(*extended.as_ref().unwrap()).unwrap();
    let builder = StaticSlot::builder(3).ahead(Duration::from_millis(40)).on_extension(hook);
    let slot = builder.open_with_clock(&place.state(), clock.clone()).unwrap();
    clock.put(NOON + 20);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!((slot.page().ceiling(), place.written()), (NOON + 40, NOON + 40), "half is left");
    for now in [NOON + 21, NOON + 60, NOON + HOUR] {
        clock.put(now);
        let extended = extensions.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(extended, now + 40);
        assert_eq!((slot.page().ceiling(), place.written()), (now + 40, now + 40));
        assert!(slot.health().is_ok());
    }
    clock.put(NOON);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(place.written(), NOON + HOUR + 40, "a clock set back lowers nothing");
}

#[test]
fn a_slot_that_makes_no_id_writes_once_in_half_of_ahead() {
    let place = Place::new();
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let hook = move |_: Result<u64, &Error>| {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    let builder = StaticSlot::builder(3).ahead(Duration::from_millis(200)).on_extension(hook);
    let slot = builder.open(place.state()).unwrap();
    let start = Instant::now();
    until("five extensions", || count.load(Ordering::SeqCst) >= 5);
    assert!(start.elapsed() >= Duration::from_millis(450), "{:?}", start.elapsed());
    drop(slot);
}

#[test]
fn a_second_opener_is_told_who_has_the_file_and_changes_nothing() {
    let (place, clock) = (Place::new(), Hands::at(NOON));
    let slot = place.open(&clock);
    let before = fs::read(place.state()).unwrap();
    let error = StaticSlot::builder(3).open(place.state()).unwrap_err();
    let this = process::id().to_string();
    assert!(matches!(&error, Error::StateInUse { process, .. } if *process == this), "{error}");
    assert!(error.to_string().contains(place.state().to_str().unwrap()), "{error}");
    assert_eq!(fs::read(place.state()).unwrap(), before);
    drop(slot);
    place.open(&clock);
}

#[test]
fn a_file_that_was_changed_at_any_byte_is_refused_and_left_alone() {
    let (place, clock) = (Place::new(), Hands::at(NOON));
    place.open(&clock).kill();
    let text = fs::read(place.state()).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(place.state(), bytes).unwrap();
        let error = StaticSlot::builder(3).open(place.state()).unwrap_err();
        assert!(error.to_string().contains(place.state().to_str().unwrap()), "{error}");
        assert_eq!(fs::read(place.state()).unwrap(), bytes);
        error
    };
    for at in 0..text.len() {
        let mut broken = text.clone();
        broken[at] = broken[at].wrapping_add(1);
        refused(&broken);
        refused(&text[..at]);
    }
    assert!(matches!(refused(b""), Error::CorruptState { .. }));
    fs::write(place.state(), &text).unwrap();
    assert_eq!(place.open(&clock).page().header().floor, NOON + AHEAD, "as it was it is good");
}

#[test]
fn the_file_of_another_slot_pool_or_layout_is_refused() {
    let (place, clock) = (Place::new(), Hands::at(NOON));
    drop(place.open(&clock));
    for other in [
        StaticSlot::builder(4),
        StaticSlot::builder(3).pool("shop/users"),
        StaticSlot::builder(3).layout(Layout::TWITTER),
    ] {
        assert!(matches!(other.open(place.state()), Err(Error::StateOfAnother { .. })));
    }
    assert!(matches!(
        StaticSlot::builder(1024).open(place.0.path().join("other")),
        Err(Error::SlotTooLarge { slot: 1024, max: 1023 })
    ));
    assert!(!place.0.path().join("other").exists(), "what can't be opened is not written");
}

#[test]
fn a_lock_or_file_that_is_removed_or_rewritten_under_it_stops_the_slot_at_its_ceiling() {
    let breaks: [fn(&Path); 4] = [
        |state| fs::remove_file(state).unwrap(),
        |state| fs::remove_file(lock_path(state)).unwrap(),
        |state| fs::write(state, "cosid").unwrap(),
        |state| {
            // Whoever removes a lock can open the slot twice.
            fs::remove_file(lock_path(state)).unwrap();
            StaticSlot::builder(3).open_with_clock(state, Hands::at(NOON)).unwrap().kill();
        },
    ];
    for break_it in breaks {
        let (place, clock) = (Place::new(), Hands::at(NOON));
        let slot = StaticSlot::builder(3).ahead(Duration::from_millis(40));
        let mut slot = slot.open_with_clock(&place.state(), clock.clone()).unwrap();
        break_it(&place.state());
        let left = fs::read(place.state()).ok();
        let orders = generator(&mut slot, &clock);
        clock.put(NOON + 41);
        until("no failure", || slot.health().is_err());
        let error = slot.health().unwrap_err();
        assert!(matches!(&*error, Error::StateChanged { .. } | Error::CorruptState { .. }), "{error}");
        let above = Wait::AboveCeiling { now: NOON + 41, ceiling: NOON + 40 };
        assert_eq!(orders.try_next(), Err(above.into()));
        assert!(slot.close().is_err());
        assert_eq!(fs::read(place.state()).ok(), left, "and is not written over");
    }
}

#[test]
fn a_not_before_is_a_floor_of_new_and_of_old_files() {
    let (place, clock) = (Place::new(), Hands::at(NOON));
    for floor in [NOON + HOUR, NOON + 2 * HOUR] {
        let builder = StaticSlot::builder(3).not_before(floor);
        let slot = builder.open_with_clock(&place.state(), clock.clone()).unwrap();
        assert_eq!((slot.page().header().floor, slot.page().ceiling()), (floor, floor));
        drop(slot);
        assert_eq!(place.written(), floor);
    }
    assert_eq!(place.open(&clock).page().header().floor, NOON + 2 * HOUR, "and is remembered");
}

#[test]
fn a_coarse_unit_is_whole_at_both_ends() {
    let (place, clock) = (Place::new(), Hands::at(NOON + 1));
    let open = || {
        let builder = StaticSlot::builder(3).layout(Layout::SECOND).ahead(Duration::from_millis(1));
        builder.open_with_clock(&place.state(), clock.clone()).unwrap()
    };
    let mut slot = open();
    assert_eq!(slot.page().ceiling(), NOON + 4_001, "four of its units");
    let orders = generator(&mut slot, &clock);
    clock.put(NOON + 1_000);
    orders.try_next().unwrap();
    assert_eq!(slot.close().unwrap().last_issued, NOON + 1_999);
    assert_eq!(generator(&mut open(), &clock).try_next(), below_floor(NOON + 1_000, NOON + 2_000));
}

#[test]
fn without_a_file_it_begins_now_and_says_what_it_goes_without() {
    let before = SystemClock.unix_ms();
    let mut slot = StaticSlot::builder(3).open_without_file().unwrap();
    assert!(slot.page().header().floor >= before);
    assert!(slot.warning().unwrap().to_string().contains("slot 3 has no state file"));
    slot.generator("orders").unwrap().next(Duration::from_secs(1)).unwrap();
    assert!(slot.health().is_ok());
    let far = SystemClock.unix_ms() + HOUR;
    let slot = StaticSlot::builder(3).not_before(far).open_without_file().unwrap();
    assert_eq!(slot.page().header().floor, far);
}

#[test]
fn a_page_that_is_a_file_is_shared_and_removed_only_if_the_slot_was_not_opened() {
    let (place, page) = (Place::new(), Mutex::new(0));
    let next = || {
        *page.lock().unwrap() += 1;
        place.0.path().join(format!("{}.page", page.lock().unwrap()))
    };
    let path = next();
    let mut slot = StaticSlot::builder(3).page(&path).open(place.state()).unwrap();
    let cell = slot.assign("orders").unwrap();
    let other = Generator::new(Arc::new(Page::open(&path).unwrap()), cell).unwrap();
    let id = other.next(Duration::from_secs(1)).unwrap();
    assert!(slot.generator("orders").unwrap().next(Duration::from_secs(1)).unwrap() > id);
    drop(slot);
    assert_eq!(other.try_next(), Err(NextError::SlotLost));
    assert!(path.exists());
    fs::write(place.state(), "").unwrap();
    let path = next();
    StaticSlot::builder(3).page(&path).open(place.state()).unwrap_err();
    assert!(!path.exists());
}
