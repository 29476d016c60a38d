//! Generators with a layout of their own on a pool's page.

use std::collections::HashSet;
use std::os::unix::fs::FileExt;

use cosid_id::{Error, FieldOrder, Generator, Header, Layout, NextError, PageOwner, Wait};

use crate::virtual_time::{VirtualTime, page};

/// Half-way in a second, so that no window begins or ends with one.
const FLOOR: u64 = 1_700_000_000_500;
const POOL: Layout = Layout::MILLISECOND;

fn seconds() -> Layout {
    Layout::builder()
        .timestamp_bits(31)
        .sequence_bits(4)
        .unit_ms(1_000)
        .epoch_ms(1_600_000_000_000)
        .build()
        .unwrap()
}

fn on(owner: &PageOwner, cell: usize, time: &VirtualTime) -> Generator<VirtualTime> {
    Generator::with_clock(owner.page().clone(), cell, time.clone()).unwrap()
}

#[test]
fn it_owns_whole_units_of_the_window_beside_others_in_the_pools_layout() {
    let (_dir, mut owner) = page(POOL, FLOOR);
    let (own, pools) = (owner.assign_in("parcels", &seconds()).unwrap(), owner.assign("orders").unwrap());
    let time = VirtualTime::at(FLOOR + 10);
    let (parcels, orders) = (on(&owner, own, &time), on(&owner, pools, &time));
    assert_eq!((parcels.layout(), orders.layout()), (&seconds(), &POOL));
    owner.set_ceiling(FLOOR + 1_498);

    let until = FLOOR + 500;
    assert_eq!(parcels.try_next(), Err(NextError::Wait(Wait::BelowFloor { now: FLOOR + 10, until })));
    assert_eq!(POOL.decompose(orders.try_next().unwrap()).unwrap().timestamp(), FLOOR + 10);
    time.set(until);
    let wait = Wait::AboveCeiling { now: until, ceiling: FLOOR + 1_498 };
    assert_eq!(parcels.try_next(), Err(NextError::Wait(wait)), "the second ends a ms after the window");
    owner.set_ceiling(FLOOR + 1_499);
    let parts = seconds().decompose(parcels.try_next().unwrap()).unwrap();
    assert_eq!((parts.timestamp(), parts.slot()), (until, 5));
    assert_eq!(owner.last_issued(), until + 999);
    assert_eq!(owner.close().last_issued, until + 999);
    assert_eq!(parcels.try_next(), Err(NextError::SlotLost));
}

/// Each holder takes all that it can, up to its very last unit, and the next one begins where that ended.
#[test]
fn no_two_ids_are_equal_over_restarts_and_slots_handed_on() {
    let sonyflake = Layout::builder()
        .timestamp_bits(39)
        .sequence_bits(3)
        .unit_ms(10)
        .epoch_ms(1_600_000_000_000)
        .order(FieldOrder::SequenceSlot)
        .build()
        .unwrap();
    for layout in [seconds(), sonyflake] {
        let dir = tempfile::tempdir().unwrap();
        let time = VirtualTime::at(FLOOR + 1);
        let (mut floor, mut ids) = (FLOOR, Vec::new());
        for fence in 1..40 {
            let path = dir.path().join(format!("{fence}.page"));
            let header = Header { pool: "shop/orders".into(), slot: 5, fence, floor, layout: POOL };
            let mut owner = PageOwner::create(&path, &header).unwrap();
            let cell = owner.assign_in("parcels", &layout).unwrap();
            owner.set_ceiling(floor + 777 * fence % 3_333);
            let parcels = on(&owner, cell, &time);
            for step in 0..200 {
                ids.extend(parcels.try_next());
                if step == 100 {
                    // A restarted owner finds cell and layout on the page.
                    owner = PageOwner::open(&path).unwrap();
                    assert_eq!(owner.assign_in("parcels", &layout).unwrap(), cell);
                }
                time.advance(std::time::Duration::from_millis(17));
            }
            // The clock is set back, as far as the next window's floor allows.
            let last = owner.close().last_issued;
            assert!(last >= floor && last <= owner.ceiling());
            assert!(ids.last().is_none_or(|id| layout.decompose(*id).unwrap().timestamp() <= last));
            time.set(last.saturating_sub(5));
            floor = last;
        }
        assert!(ids.len() > 500, "{}", ids.len());
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }
}

#[test]
fn a_name_has_one_layout_and_who_asks_for_another_is_refused() {
    let (_dir, mut owner) = page(POOL, FLOOR);
    let cell = owner.assign_in("parcels", &seconds()).unwrap();
    owner.assign("orders").unwrap();
    let mut again = PageOwner::open(owner.path()).unwrap();
    for owner in [&mut owner, &mut again] {
        assert_eq!(owner.assign_in("parcels", &seconds()).unwrap(), cell);
        let error = owner.assign("parcels").unwrap_err();
        assert!(
            matches!(&error, Error::OtherLayout { has, asked, .. } if *has == seconds() && *asked == POOL)
        );
        assert!(error.to_string().contains("`parcels`"), "{error}");
        let error = owner.assign_in("orders", &seconds()).unwrap_err();
        assert!(matches!(&error, Error::OtherLayout { has, .. } if *has == POOL), "{error}");
    }
    assert_eq!(owner.cells().len(), 2);
}

#[test]
fn a_layout_without_room_for_each_slot_or_wider_than_the_pools_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let narrow = Layout::JAVASCRIPT_MILLISECOND;
    let header = Header { pool: "shop/orders".into(), slot: 5, fence: 3, floor: FLOOR, layout: narrow };
    let mut owner = PageOwner::create(dir.path().join("5-3.page"), &header).unwrap();
    for wide in [POOL, Layout::builder().slot_bits(3).sequence_bits(10).build().unwrap()] {
        let error = owner.assign_in("parcels", &wide).unwrap_err();
        assert!(matches!(error, Error::UnfitLayout { slot_bits: 3, bits: 53, .. }), "{error}");
    }
    let few = Layout::builder().slot_bits(2).sequence_bits(9).build().unwrap();
    let error = owner.assign_in("parcels", &few).unwrap_err();
    assert!(matches!(error, Error::UnfitLayout { .. }), "{error}");
    let more = Layout::builder().slot_bits(5).sequence_bits(7).build().unwrap();
    owner.assign_in("parcels", &more).unwrap();
    assert_eq!(owner.cells().len(), 1, "nothing is left of what was refused");
}

#[test]
fn a_closed_page_gets_no_layout_and_stays_closed() {
    let (_dir, mut owner) = page(POOL, FLOOR);
    owner.close();
    assert!(matches!(owner.assign_in("parcels", &seconds()), Err(Error::PageClosed { .. })));
    assert_eq!(owner.close().last_issued, FLOOR);
}

/// What an owner leaves that was killed while it laid a cell out, or another program that wrote where it should not.
#[test]
fn a_cell_that_was_begun_is_left_alone_and_its_last_timestamp_never_too_low() {
    let (_dir, mut owner) = page(POOL, FLOOR);
    let ceiling = owner.set_ceiling(FLOOR + 5_000);
    let file = std::fs::OpenOptions::new().write(true).open(owner.path()).unwrap();
    file.write_all_at(&[31, 10, 4], 512 + 200).unwrap();
    assert_eq!(owner.assign_in("parcels", &seconds()).unwrap(), 1);
    assert_eq!(owner.assign("orders").unwrap(), 2);
    assert_eq!(owner.last_issued(), ceiling);
    assert_eq!(owner.close().last_issued, ceiling);
}
