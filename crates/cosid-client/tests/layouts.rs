//! Generators with a layout of their own.

#![allow(clippy::unwrap_used, reason = "tests may stop at the first surprise, in their own functions too")]

mod support;

use std::time::Duration;

use cosid_client::{Client, Error, FieldOrder, Layout};
use support::{FakeAgent, assert_no_equal, slot_of};

const LONG: Duration = Duration::from_secs(60);

fn client(agent: &FakeAgent) -> Client {
    Client::connect_to(&agent.socket).unwrap().with_timeout(LONG)
}

/// Ten milliseconds a unit, another epoch, order and threshold: nothing of it is the pool's.
fn own() -> Layout {
    let bits = Layout::builder().timestamp_bits(38).slot_bits(12).sequence_bits(11).unit_ms(10);
    let rest = bits.epoch_ms(1_600_000_000_000).order(FieldOrder::SequenceSlot).sequence_threshold(77);
    rest.build().unwrap()
}

#[test]
fn a_coarse_generator_beside_one_of_the_pool_makes_no_id_twice_over_losses() {
    let agent = FakeAgent::start();
    let client = client(&agent);
    let parcels = client.generator_in("parcels", &own()).unwrap();
    let orders = client.generator("orders").unwrap();
    assert_eq!((parcels.layout(), orders.layout()), (own(), Layout::MILLISECOND));
    let (mut coarse, mut fine) = (Vec::new(), Vec::new());
    for loss in 0..3 {
        for _ in 0..3_000 {
            let id = parcels.next_id().unwrap();
            assert_eq!(own().decompose(id).unwrap().slot(), 3);
            coarse.push(id.get());
            let id = orders.next_id().unwrap();
            assert_eq!(slot_of(id), 3);
            fine.push(id.get());
        }
        assert_eq!(agent.puts(), 2 + 2 * loss);
        agent.lose_slot();
    }
    assert!(coarse.is_sorted_by(|a, b| a < b) && fine.is_sorted_by(|a, b| a < b));
    assert_no_equal(coarse);
    assert_no_equal(fine);
    assert_eq!((parcels.layout(), parcels.clone().layout()), (own(), own()), "on the new page too");
    let burst = parcels.with_burst(Duration::from_millis(50));
    agent.lose_slot();
    burst.next_id().unwrap();
    assert_eq!((burst.layout(), burst.fence()), (own(), 11), "a burst moves on by itself, with its layout");
}

#[test]
fn another_layout_of_a_name_is_refused_by_the_client_and_by_the_agent() {
    let agent = FakeAgent::start();
    let (first, second) = (client(&agent), client(&agent));
    first.generator_in("parcels", &own()).unwrap();
    first.generator("orders").unwrap();
    first.generator_in("orders", &Layout::MILLISECOND).unwrap();
    assert_eq!(agent.puts(), 2, "the same layout is known already");
    for client in [&first, &second] {
        let refused = [
            client.generator("parcels"),
            client.generator_in("parcels", &Layout::MILLISECOND),
            client.generator_in("orders", &own()),
        ];
        for outcome in refused {
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::OtherLayout { .. }), "{error:?}");
            assert!(!error.is_transient());
            let text = error.to_string();
            let both = [format!("{:?}", own()), format!("{:?}", Layout::MILLISECOND)];
            assert!(both.iter().all(|layout| text.contains(layout)), "{text}");
        }
    }
    assert_eq!(second.generator_in("parcels", &own()).unwrap().layout(), own());
}

#[test]
fn a_layout_without_room_for_the_pools_slots_is_refused() {
    let agent = FakeAgent::start();
    let error = client(&agent).generator_in("parcels", &Layout::JAVASCRIPT_SECOND).unwrap_err();
    assert!(matches!(&error, Error::UnfitLayout { name, .. } if name == "parcels"), "{error:?}");
    assert!(error.to_string().contains("10 bits"), "{error}");
}

#[test]
fn an_agent_that_leaves_the_layout_out_makes_no_generator() {
    let agent = FakeAgent::start();
    let client = client(&agent);
    agent.ignore_layouts();
    let error = client.generator_in("parcels", &own()).unwrap_err();
    assert!(matches!(&error, Error::OtherLayout { .. }), "{error:?}");
    assert_eq!(client.generator("parcels").unwrap().layout(), Layout::MILLISECOND);
}
