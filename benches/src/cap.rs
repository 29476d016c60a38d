//! A second at the cap of the default layout: how many IDs, and how much of a processor each takes.

use std::error::Error;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::measure::median;
use crate::ours::{LONG, Ours};
use crate::peers::{self, FerroidAtomic, Twitter};
use cosid_id::Layout;

const TURN: Duration = Duration::from_millis(300);
const TURNS: usize = 7;

pub struct Sustained {
    pub name: &'static str,
    /// Does it wait by spinning?
    pub spins: bool,
    pub millions_a_second: f64,
    pub cpu_ns: f64,
}

/// This project first.
pub fn sustained() -> Result<Vec<Sustained>, Box<dyn Error>> {
    let ours = Ours::new(Layout::MILLISECOND)?;
    let ferroid = FerroidAtomic::<Twitter>::new(1, peers::ferroid_clock());
    let snowflaked = snowflaked::sync::Generator::new(1);
    let snowflake_me = peers::snowflake_me(false)?;
    let mut rs_snowflake = snowflake::SnowflakeIdGenerator::new(1, 1);
    let mut makers: Vec<(&str, bool, Box<dyn FnMut() -> u64>)> = vec![
        ("cosid-id", false, Box::new(move || ours.generator.next(LONG).map_or(0, |id| id.get()))),
        ("ferroid Atomic", true, Box::new(move || ferroid.next_id(peers::spin).to_raw())),
        ("snowflaked", true, Box::new(move || snowflaked.generate())),
        ("rs-snowflake", true, Box::new(move || rs_snowflake.generate().cast_unsigned())),
        ("snowflake_me", true, Box::new(move || snowflake_me.next_id().map_or(0, |id| id.as_u64()))),
    ];
    let mut samples = vec![(Vec::new(), Vec::new()); makers.len()];
    for _ in 0..TURNS {
        for ((_, _, one), (rates, cpu)) in makers.iter_mut().zip(&mut samples) {
            let (start, cpu_before) = (Instant::now(), cpu_ns());
            let mut count = 0.0;
            while start.elapsed() < TURN {
                for _ in 0..256 {
                    std::hint::black_box(one());
                }
                count += 256.0;
            }
            rates.push(count / start.elapsed().as_secs_f64() / 1e6);
            cpu.push((cpu_ns() - cpu_before) / count);
        }
    }
    let result = makers.iter().zip(samples).map(|(&(name, spins, _), (rates, cpu))| Sustained {
        name,
        spins,
        millions_a_second: median(rates),
        cpu_ns: median(cpu),
    });
    Ok(result.collect())
}

/// Of the whole process: a thread that keeps a clock counts too.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
