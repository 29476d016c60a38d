//! A clock that moves when it is told to, or slept on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cosid_id::{Clock, Header, Layout, PageOwner};

/// Cloned, it is the same clock. The wall clock can be set at will, the time elapsed only grows.
#[derive(Clone, Debug)]
pub(crate) struct VirtualTime(Arc<Moments>);

#[derive(Debug)]
struct Moments {
    wall_ns: AtomicU64,
    elapsed_ns: AtomicU64,
}

impl VirtualTime {
    pub(crate) fn at(unix_ms: u64) -> Self {
        Self(Arc::new(Moments { wall_ns: (unix_ms * 1_000_000).into(), elapsed_ns: 0.into() }))
    }

    pub(crate) fn set(&self, unix_ms: u64) {
        self.0.wall_ns.store(unix_ms * 1_000_000, Ordering::Relaxed);
    }

    pub(crate) fn advance(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap();
        self.0.wall_ns.fetch_add(nanos, Ordering::Relaxed);
        self.0.elapsed_ns.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl Clock for VirtualTime {
    fn unix_ms(&self) -> u64 {
        self.0.wall_ns.load(Ordering::Relaxed) / 1_000_000
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.0.elapsed_ns.load(Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}

/// A page for slot 5 with this floor, in a directory that goes when the test ends.
pub(crate) fn page(layout: Layout, floor: u64) -> (tempfile::TempDir, PageOwner) {
    let dir = tempfile::tempdir().unwrap();
    let header = Header { pool: "shop/orders".into(), slot: 5, fence: 3, floor, layout };
    let owner = PageOwner::create(dir.path().join("5-3.page"), &header).unwrap();
    (dir, owner)
}
