//! A worker: makes IDs with the generator that its parent opened, and hands them to it through a pipe.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cosid_client::Generator;

/// How many IDs are taken at a time where there is no pause.
const BATCH: usize = 100;
/// A pause is slept in pieces of this, so that the end comes soon after it is asked for.
const PIECE: Duration = Duration::from_millis(50);

/// Makes `count` IDs, or as many as there are until `ended`, and writes each to `out`, 8 bytes little-endian.
pub(crate) fn work(
    generator: &Generator,
    mut count: u64,
    pause: Duration,
    ended: &AtomicBool,
    mut out: impl Write,
) -> Result<(), String> {
    let batch = if pause.is_zero() { BATCH } else { 1 };
    let mut ids = [0; BATCH];
    while count > 0 && !ended.load(Ordering::Relaxed) {
        let ids = &mut ids[..batch.min(usize::try_from(count).unwrap_or(BATCH))];
        generator.next_ids(ids).map_err(|error| error.to_string())?;
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        out.write_all(&bytes).map_err(|error| format!("the parent has gone: {error}"))?;
        count -= ids.len() as u64;
        sleep(pause, ended);
    }
    Ok(())
}

fn sleep(mut rest: Duration, ended: &AtomicBool) {
    while !rest.is_zero() && !ended.load(Ordering::Relaxed) {
        let piece = rest.min(PIECE);
        thread::sleep(piece);
        rest -= piece;
    }
}
