//! Whether a client did what a case asks of it.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;

use cosid_id::Id;

use super::agent::LAYOUT;
use super::cases::{Case, Ending, Window};
use super::{PATIENCE, Run};

/// More of an answer than this no client reads: the longest that an agent gives has a hundred thousand IDs, twice.
const MOST_TAKEN: usize = 16 << 20;
/// How much of a log is shown.
const SHOWN: usize = 300;

/// `Err` says what it did instead.
pub(super) fn judge(case: &Case, run: &Run) -> Result<(), String> {
    let Some(status) = run.status else {
        return Err(format!("it did not end within {} s; {}", PATIENCE.as_secs(), said(run)));
    };
    if let Some(signal) = status.signal() {
        return Err(format!("it crashed with signal {signal}; {}", said(run)));
    }
    if run.seen.taken > MOST_TAKEN {
        return Err(format!("it read {} bytes of an answer without an end", run.seen.taken));
    }
    if let Some((issued, ceiling)) = run.seen.above_ceiling {
        return Err(format!("it issued in {issued} where the ceiling was {ceiling}"));
    }
    match case.ending {
        Ending::Ids if !status.success() => Err(format!("it failed with {status}; {}", said(run))),
        Ending::Ids => judge_ids(case, run),
        Ending::Failure(_) if status.success() => {
            Err("it exited with 0, as if it had made its IDs".to_owned())
        }
        Ending::Failure(_) if !run.output.is_empty() => {
            Err(format!("it printed {} lines", run.output.lines().count()))
        }
        Ending::Failure(_) if run.log.is_empty() => Err("it did not say why on standard error".to_owned()),
        Ending::Failure(text) if !run.log.contains(text) => {
            Err(format!("it did not say {text} on standard error; {}", said(run)))
        }
        Ending::Failure(_) => Ok(()),
    }
}

fn judge_ids(case: &Case, run: &Run) -> Result<(), String> {
    let mut ids = HashSet::new();
    for line in run.output.lines() {
        let id = line.parse::<Id>().map_err(|_| format!("it printed {line:?}, which is no ID"))?;
        if !ids.insert(id.get()) {
            return Err(format!("it printed {id} twice"));
        }
        judge_id(id, run)?;
    }
    let wanted = (case.workers * case.count) as usize;
    if ids.len() < wanted {
        return Err(format!("it printed {} IDs of {wanted}", ids.len()));
    }
    let refused = case.first.len();
    if run.seen.asks <= refused {
        return Err(format!("it asked {} times, and was not served", run.seen.asks));
    }
    let went_on = ids.iter().any(|&id| slot_of(id) != run.seen.bindings.first().map(|first| first.slot));
    if matches!(case.window, Window::IsLost | Window::IsLostWithTheAgent) && !went_on {
        return Err("it has no ID of the next slot, though it needs more than the lost one had".to_owned());
    }
    Ok(())
}

/// An ID is one that it was given, or one of a page that it asked for; and inside a window in any case.
fn judge_id(id: Id, run: &Run) -> Result<(), String> {
    if !run.seen.has_cell && !run.seen.given.contains(&id.get()) {
        return Err(format!("it printed {id}, which it was not given"));
    }
    let parts = LAYOUT.decompose(id).map_err(|error| error.to_string())?;
    let is_inside = run.seen.bindings.iter().any(|binding| {
        binding.slot == parts.slot() && (binding.floor + 1..=binding.last).contains(&parts.timestamp())
    });
    if is_inside {
        return Ok(());
    }
    Err(format!("it printed {id}, of slot {} at {}, which is in no window", parts.slot(), parts.timestamp()))
}

fn slot_of(id: u64) -> Option<u32> {
    let parts = Id::try_from(id).and_then(|id| LAYOUT.decompose(id)).ok()?;
    Some(parts.slot())
}

fn said(run: &Run) -> String {
    let log = run.log.trim();
    let start = log.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
    format!("it said: {}", if log.is_empty() { "nothing" } else { &log[start..] })
}
