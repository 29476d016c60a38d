//! What one ID costs one thread, in nanoseconds: `cargo run --release -p cosid-id --example rate`
//!
//! The first layout has sequences to spare, so that it is the cost and not the cap of 4,096 a millisecond.

use std::error::Error;
use std::time::{Duration, Instant};

use cosid_id::{Clock, Generator, Header, Layout, PageOwner, SystemClock};

const IDS: u32 = 10_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let layout = Layout::builder().slot_bits(2).sequence_bits(20).build()?;
    let now = SystemClock.unix_ms();
    let header = Header { pool: "local/rate".into(), slot: 0, fence: 1, floor: now - 1, layout };
    let mut owner = PageOwner::create(dir.path().join("rate.page"), &header)?;
    owner.set_ceiling(now + 3_600_000);
    let cell = owner.assign("rate")?;
    let generator = Generator::new(owner.page().clone(), cell)?;

    let start = Instant::now();
    for _ in 0..IDS {
        generator.next(Duration::from_secs(1))?;
    }
    println!("one ID: {:.1} ns", start.elapsed().as_secs_f64() * 1e9 / f64::from(IDS));

    let mut batch = vec![0; 1024];
    let start = Instant::now();
    for _ in 0..IDS / 1024 {
        generator.fill(&mut batch, Duration::from_secs(1))?;
    }
    println!("one of a batch of 1024: {:.2} ns", start.elapsed().as_secs_f64() * 1e9 / f64::from(IDS));

    let header = Header { layout: Layout::MILLISECOND, ..header };
    let mut owner = PageOwner::create(dir.path().join("cap.page"), &header)?;
    owner.set_ceiling(now + 3_600_000);
    let cell = owner.assign("rate")?;
    let generator = Generator::new(owner.page().clone(), cell)?;
    let start = Instant::now();
    for _ in 0..IDS {
        generator.next(Duration::from_secs(1))?;
    }
    let rate = f64::from(IDS) / start.elapsed().as_secs_f64() / 1e6;
    println!("one by one in the default layout, whose cap is 4.096: {rate:.3} million a second");
    Ok(())
}
