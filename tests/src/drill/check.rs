//! Judges a drill's evidence: every ID, every pause, every slot. It sorts numbers and compares them; it shares no code
//! with what made them but the layout that takes an ID apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use cosid_id::{Id, Layout};
use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use super::history::Windows;
use super::plan::{Life, SlotState};
use super::runs::{Binding, Run};

/// How many findings of a kind are told in words.
const TOLD: usize = 5;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// All IDs.
    pub ids: u64,
    /// Those that equal another one.
    pub equal: u64,
    /// Those that are not in the window of the slot and fence they were made under.
    pub outside: u64,
    /// Pauses that are longer than was promised.
    pub long_gaps: u64,
    /// Slots that nobody holds and nobody can get.
    pub leaked: u64,
    /// Other faults of the evidence: a life without its end, an ID that is none.
    pub faults: u64,
    /// The longest time that a program went without an ID, milliseconds.
    pub longest_stall_ms: u64,
    /// The longest time from the end of a fault until everybody had an ID, milliseconds; `None` where nothing ended.
    pub recovery_ms: Option<u64>,
    /// The first of them in words.
    pub told: Vec<String>,
}

impl Verdict {
    /// Whether there is nothing to complain about.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.ids > 0 && [self.equal, self.outside, self.long_gaps, self.leaked, self.faults] == [0; 5]
    }

    fn tell(&mut self, kind: &str, what: impl FnOnce() -> String) {
        let alike = self.told.iter().filter(|told| told.starts_with(kind)).count();
        if alike < TOLD {
            self.told.push(format!("{kind}: {}", what()));
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ids, equal, outside, long_gaps, leaked, longest_stall_ms, .. } = self;
        write!(
            f,
            "{ids} IDs, {equal} equal, {outside} outside their window, {long_gaps} gaps longer than promised, "
        )?;
        write!(f, "{leaked} slots leaked; longest stall {longest_stall_ms} ms")?;
        self.recovery_ms.map_or(Ok(()), |recovery| write!(f, "; recovery {recovery} ms"))
    }
}

/// Judges all of it.
#[must_use]
pub fn check(evidence: &Evidence) -> Verdict {
    let mut verdict = Verdict::default();
    ids(evidence, &mut verdict);
    windows(evidence, &mut verdict);
    for (name, runs) in &evidence.lives {
        gaps(name, evidence.plan.lives[name], runs, &mut verdict);
    }
    recovery(evidence, &mut verdict);
    slots(evidence, &mut verdict);
    verdict
}

/// Counts IDs, and those that are equal: all runs by their first ID; whatever a run has below the highest end before it
/// has been there already.
fn ids(evidence: &Evidence, verdict: &mut Verdict) {
    let mut runs: Vec<&Run> = evidence.lives.values().flatten().filter(|run| run.count > 0).collect();
    runs.sort_unstable_by_key(|run| (run.first, run.count));
    let mut next = 0;
    for run in runs {
        verdict.ids += u64::from(run.count);
        let Some(last) = run.last() else {
            verdict.faults += 1;
            verdict.tell("no ID", || format!("{run:?} runs out of numbers"));
            continue;
        };
        // The pools of drills have layouts in which a millisecond's IDs follow each other.
        if run.step != 1 {
            verdict.faults += 1;
            verdict.tell("no run", || format!("{run:?} has a step that can't be judged"));
        }
        let again = (last + 1).min(next).saturating_sub(run.first);
        if again > 0 {
            verdict.equal += again;
            verdict.tell("equal", || format!("{again} IDs from {} on", run.first));
        }
        next = next.max(last + 1);
    }
}

/// Checks each run against the window that the store gave its slot and fence, and against the next holder's floor.
fn windows(evidence: &Evidence, verdict: &mut Verdict) {
    let mut slots = BTreeMap::<u32, Windows>::new();
    for change in &evidence.history {
        slots.entry(change.slot).or_default().take(change);
    }
    for (name, runs) in &evidence.lives {
        for run in runs.iter().filter(|run| run.count > 0) {
            if let Err(why) = is_inside(evidence.plan.layout, &slots, run) {
                verdict.outside += u64::from(run.count);
                verdict.tell("outside", || format!("{name}: {} IDs from {} on: {why}", run.count, run.first));
            }
        }
    }
}

fn is_inside(layout: Layout, slots: &BTreeMap<u32, Windows>, run: &Run) -> Result<(), String> {
    let part = |id: u64| {
        let id = Id::try_from(id).map_err(|error| error.to_string())?;
        layout.decompose(id).map_err(|error| error.to_string())
    };
    let (first, last) = (part(run.first)?, part(run.last().unwrap_or(run.first))?);
    if first.slot() != last.slot() {
        return Err(format!("they begin in slot {} and end in slot {}", first.slot(), last.slot()));
    }
    let bindings = BTreeSet::from([run.before, run.after]);
    let mut why = format!("they are of slot {}, and were made under {bindings:?}", first.slot());
    for binding in bindings.into_iter().filter(|binding| binding.slot == first.slot()) {
        match is_in_window(slots, binding, first.timestamp(), last.timestamp()) {
            Ok(()) => return Ok(()),
            Err(found) => why = found,
        }
    }
    Err(why)
}

fn is_in_window(
    slots: &BTreeMap<u32, Windows>,
    binding: Binding,
    first: u64,
    last: u64,
) -> Result<(), String> {
    let Binding { slot, fence } = binding;
    let windows = slots.get(&slot).ok_or_else(|| format!("nobody ever held slot {slot}"))?;
    let window = windows.of(fence).ok_or_else(|| format!("nobody held slot {slot} under fence {fence}"))?;
    if first <= window.floor || last > window.ceiling {
        return Err(format!("{first} to {last} is not in {window:?} of slot {slot}, fence {fence}"));
    }
    match windows.floor_after(fence) {
        Some(floor) if last > floor => Err(format!(
            "{last} of slot {slot}, fence {fence}, is above {floor}, the floor of who had it next"
        )),
        _ => Ok(()),
    }
}

/// Looks for pauses between a life's first and last sign.
fn gaps(name: &str, life: Life, runs: &[Run], verdict: &mut Verdict) {
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
        verdict.faults += 1;
        return verdict.tell("no life", || format!("{name} has not even begun"));
    };
    // A life's end is a run of none, as its beginning is.
    let ended = (last.count == 0 && runs.len() > 1).then_some(last.at_ns);
    let Some(end) = life.killed.or(ended) else {
        verdict.faults += 1;
        return verdict.tell("no end", || format!("{name} ended without having been told to"));
    };
    let signs = runs.iter().skip(1).filter(|run| run.count > 0).map(|run| run.at_ns);
    let mut before = first.at_ns;
    for at in signs.chain([end]) {
        let stall = at.saturating_sub(before).saturating_sub(stopped(life, before, at)) / 1_000_000;
        verdict.longest_stall_ms = verdict.longest_stall_ms.max(stall);
        if stall > life.promised_ms {
            verdict.long_gaps += 1;
            verdict.tell("gap", || format!("{name}: {stall} ms, promised were {}", life.promised_ms));
        }
        before = at;
    }
}

/// How much of a time a life was stopped itself, ns.
fn stopped(life: Life, from: u64, to: u64) -> u64 {
    life.stopped.map_or(0, |(begin, end)| end.min(to).saturating_sub(begin.max(from)))
}

/// From each end of a fault to everybody's next ID.
fn recovery(evidence: &Evidence, verdict: &mut Verdict) {
    for &healed in &evidence.plan.healed {
        for runs in evidence.lives.values() {
            let began = runs.first().is_some_and(|run| run.at_ns <= healed);
            let next = runs.iter().find(|run| run.count > 0 && run.at_ns >= healed);
            if let (true, Some(run)) = (began, next) {
                let took = (run.at_ns - healed) / 1_000_000;
                verdict.recovery_ms = verdict.recovery_ms.max(Some(took));
            }
        }
    }
}

/// Looks for slots that are lost to everybody.
fn slots(evidence: &Evidence, verdict: &mut Verdict) {
    let plan = &evidence.plan;
    for (&slot, state) in &plan.slots {
        let why = match *state {
            SlotState::Free => continue,
            SlotState::Held { fence } if plan.living.contains(&Binding { slot, fence }) => continue,
            SlotState::Held { fence } => format!("held under fence {fence} by nobody who is there"),
            SlotState::Unusable if plan.given_up.contains(&slot) => continue,
            SlotState::Unusable => "nobody can ever get it".into(),
        };
        verdict.leaked += 1;
        verdict.tell("leaked", || format!("slot {slot}: {why}"));
    }
}

#[cfg(test)]
mod tests;
