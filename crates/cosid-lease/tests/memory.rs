//! The store in memory passes the suite that every store must pass.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use std::time::{SystemTime, UNIX_EPOCH};

use cosid_lease::conformance::{self, CASES, Fixture, PoolSpec};
use cosid_lease::memory::MemoryStore;
use cosid_lease::{Millis, StoreTime};

struct Memory;

impl Fixture for Memory {
    type Store = MemoryStore;

    async fn pool(&self, spec: &PoolSpec) -> Result<MemoryStore, String> {
        let pool = spec.pool(&format!("test/{}", spec.name));
        Ok(MemoryStore::new(pool, || {
            let now =
                Millis::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
            StoreTime { earliest: now, latest: now }
        }))
    }
}

#[test]
fn the_memory_store_passes_every_case() {
    let passed = match pollster::block_on(conformance::run(&Memory)) {
        Ok(passed) => passed,
        Err(failure) => panic!("{failure}"),
    };
    assert_eq!(passed, CASES);
    assert_eq!(passed.len(), 51, "a case was added or lost: say so here");
}
