//! Pools that nobody made in good faith. How inputs are made, and for how long: `cosid_fuzz`.

use cosid_fuzz::{Target, Verdict};

use super::*;

#[test]
fn slot_pool() {
    let tokens = &[
        "\"bits\":20,",
        "\"slots\":{\"first\":0,\"last\":1048575},",
        "\"reserved\":[1048575],",
        "\"unitMilliseconds\":1000,",
        "\"notBefore\":\"9999-12-30T22:00:00Z\",",
        "\"notBefore\":\"1969-12-31T23:59:59Z\",",
        "\"order\":\"timestamp-sequence-slot\",",
        "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",",
        "null",
        "{}",
        "[]",
        "-",
    ];
    Target::new("slot_pool", env!("CARGO_MANIFEST_DIR")).tokens(tokens).run(pool_of);
}

fn pool_of(input: &[u8]) -> Verdict {
    let Ok(slot_pool) = serde_json::from_slice::<SlotPool>(input) else { return Verdict::Refused };
    let written = serde_json::to_vec(&slot_pool).unwrap();
    assert_eq!(
        serde_json::from_slice::<SlotPool>(&written).unwrap(),
        slot_pool,
        "it is written as it was read"
    );

    let pool = to_pool(&slot_pool);
    if let Ok(pool) = &pool {
        let slots = 1_u32 << pool.bits;
        assert!(
            pool.first <= pool.last && pool.last < slots && pool.withheld.iter().all(|&slot| slot < slots)
        );
        assert!(pool.terms.ttl > 0);
        assert_eq!(pool.name, slot_pool.full_name());
    }
    let layout = slot_pool.layout().map(|layout| layout.build());
    if let (Ok(pool), Ok(Ok(layout))) = (&pool, &layout) {
        assert_eq!(layout.slot_bits(), pool.bits);
        assert!(layout.bits() <= 63 && pool.last <= layout.max_slot());
    }
    let not_before = slot_pool.not_before();
    for error in [pool.as_ref().err(), layout.as_ref().err(), not_before.as_ref().err()].into_iter().flatten()
    {
        assert!(matches!(error, Error::Pool { .. }), "{error:?}");
        let (message, name) = (error.to_string(), slot_pool.full_name());
        assert!(message.chars().count() < 600 + name.len(), "{} bytes: {message:.800}", message.len());
    }
    if let Ok(Err(error)) = &layout {
        assert!(error.to_string().len() < 600, "{error}");
    }
    Verdict::accepted(pool.is_ok() && matches!(layout, Ok(Ok(_))) && not_before.is_ok())
}
