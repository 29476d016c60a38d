//! What a pool's status says. Pure: it is written where it differs from what is there.

use cosid_kube::pool::{Barrier, SlotCounts, SlotPool, SlotPoolStatus};
use cosid_lease::{Pool, Slot};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;

use super::observe::{Slots, State};
use super::watermark::Kept;

/// How many slots a message names.
const NAMED: usize = 10;
/// How many characters of a reason a message gives.
const LONGEST: usize = 200;

/// Condition types.
pub mod condition {
    use cosid_kube::pool::SlotPool;

    /// Slots can be acquired.
    pub const READY: &str = "Ready";
    /// No slot is to be had.
    pub const EXHAUSTED: &str = "Exhausted";
    /// What the deletion waits for.
    pub const DELETING: &str = "Deleting";
    /// Slots that are passed over, because their Lease can't be read or used.
    pub const QUARANTINED: &str = "Quarantined";
    /// The store went backwards, and there is no barrier yet above what it lost.
    pub use cosid_kube::pool::STORE_REGRESSED;
    /// All of them.
    pub const ALL: [&str; 5] = [READY, EXHAUSTED, DELETING, QUARANTINED, STORE_REGRESSED];

    /// Whether a pool's status says so.
    #[must_use]
    pub fn is(pool: &SlotPool, kind: &str) -> bool {
        pool.is(kind)
    }
}

/// What was found of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Its slots' Leases.
    pub slots: &'a Slots,
    /// Slots whose Leases are still to be made.
    pub missing: usize,
    /// Slots whose Lease can't be made, because somebody else's object has its name.
    pub occupied: &'a [Slot],
}

struct Claim {
    kind: &'static str,
    is: bool,
    reason: &'static str,
    message: String,
}

/// The status of a pool at `now`. The watermark and the retired slots stay as they are.
#[must_use]
pub fn status(pool: &SlotPool, model: &Pool, found: Found<'_>, now: Timestamp) -> SlotPoolStatus {
    let slots = found.slots;
    let count = |is: fn(&State) -> bool| slots.that(is).filter(|(slot, _)| model.allows(*slot)).count();
    let held = slots.count(|state| matches!(state, State::Live { .. }));
    let free = count(|state| matches!(state, State::Free));
    let cooling = count(|state| matches!(state, State::Cooling { .. }));
    let coming = count(|state| matches!(state, State::Shut)) + found.missing;
    let before = pool.status.clone().unwrap_or_default();
    let opened = free + cooling + held;

    let mut claims = Vec::new();
    let deleting = pool.metadata.deletion_timestamp.is_some();
    claims.push(ready(&before, deleting, coming, opened));
    claims.push(Claim {
        kind: condition::EXHAUSTED,
        is: !deleting && free + cooling + coming == 0,
        reason: if free + cooling + coming == 0 { "NoFreeSlot" } else { "FreeSlots" },
        message: if free + cooling + coming == 0 {
            "Every slot is held or withheld; a slot comes free when its holder goes. A larger slot range gives room at once, where the layout has bits for more slots; else use another pool beside this one.".to_owned()
        } else {
            "Slots can be acquired.".to_owned()
        },
    });
    claims.push(quarantined(slots, found.occupied));
    if deleting {
        claims.push(leaving(slots, held));
    }
    let conditions = merged(&before.conditions, claims, pool.metadata.generation, now);
    SlotPoolStatus {
        observed_generation: pool.metadata.generation,
        conditions,
        slots: Some(SlotCounts {
            total: whole(model.size()),
            held: whole(held),
            free: whole(free),
            cooling: whole(cooling),
        }),
        ..before
    }
}

/// The status of a pool whose store went backwards, as `how` says; at least this is kept of it.
#[must_use]
pub fn regressed(pool: &SlotPool, kept: &Kept, how: &str, now: Timestamp) -> SlotPoolStatus {
    let name = pool.name_any();
    let namespace = pool.namespace().unwrap_or_default();
    let message = format!(
        "The API server's store was restored from a backup: {how}. Slots may look free that are in use, so none can be \
         acquired; holders go on. Once the restore is over run `kubectl cosid recover {name} -n {namespace}`."
    );
    let reason = "StoreRestored";
    let claim = Claim { kind: condition::STORE_REGRESSED, is: true, reason, message };
    let before = kept_in(pool, kept);
    let conditions = merged(&before.conditions, vec![claim], pool.metadata.generation, now);
    let status = SlotPoolStatus { conditions, ..before };
    let claim = ready(&status, pool.metadata.deletion_timestamp.is_some(), 0, 0);
    let conditions = merged(&status.conditions, vec![claim], pool.metadata.generation, now);
    SlotPoolStatus { conditions, ..status }
}

/// The status of a pool with a new barrier.
#[must_use]
pub fn recovered(pool: &SlotPool, kept: &Kept, barrier: Barrier, now: Timestamp) -> SlotPoolStatus {
    let message = format!(
        "A barrier is above all that may have been lost: no slot begins below {}.",
        barrier.next_floor
    );
    let claim = Claim { kind: condition::STORE_REGRESSED, is: false, reason: "Recovered", message };
    let before = kept_in(pool, kept);
    let conditions = merged(&before.conditions, vec![claim], pool.metadata.generation, now);
    SlotPoolStatus { conditions, barrier: Some(barrier), ..before }
}

fn kept_in(pool: &SlotPool, kept: &Kept) -> SlotPoolStatus {
    let before = pool.status.clone().unwrap_or_default();
    let watermark = Kept::of(Some(&before)).merged(kept).watermark;
    SlotPoolStatus { watermark: Some(watermark), ..before }
}

/// The status of a pool that can't be served as it is.
#[must_use]
pub fn unserved(pool: &SlotPool, reason: &'static str, message: String, now: Timestamp) -> SlotPoolStatus {
    let before = pool.status.clone().unwrap_or_default();
    let claims = vec![Claim { kind: condition::READY, is: false, reason, message }];
    let conditions = merged(&before.conditions, claims, pool.metadata.generation, now);
    SlotPoolStatus { observed_generation: pool.metadata.generation, conditions, ..before }
}

/// Whether a condition of a status is true.
#[must_use]
pub fn is(status: &SlotPoolStatus, kind: &str) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

fn ready(before: &SlotPoolStatus, deleting: bool, coming: usize, opened: usize) -> Claim {
    // A Lease that is made anew does not make a pool in use unready.
    let was = is(before, condition::READY) && opened > 0;
    let (is, reason, message) = if deleting {
        (false, "Deleting", "The pool is being deleted: no slot can be acquired.".to_owned())
    } else if is(before, condition::STORE_REGRESSED) {
        let message =
            "The store was restored from a backup: no slot can be acquired before `kubectl cosid recover`.";
        (false, condition::STORE_REGRESSED, message.to_owned())
    } else if before.watermark.is_none() {
        (false, "NoWatermark", "What an earlier pool of this name used is still being read.".to_owned())
    } else if coming > 0 && !was {
        (false, "Provisioning", "Leases are being made and opened.".to_owned())
    } else {
        (true, "Provisioned", "Slots can be acquired.".to_owned())
    };
    Claim { kind: condition::READY, is, reason, message }
}

fn quarantined(slots: &Slots, occupied: &[Slot]) -> Claim {
    let seen = slots.that(|state| matches!(state, State::Corrupt(_) | State::PassedOver(_)));
    let mut texts: Vec<String> = seen
        .map(|(slot, seen)| match &seen.state {
            State::Corrupt(why) | State::PassedOver(why) => {
                format!("slot {slot}: {}", why.chars().take(LONGEST).collect::<String>())
            }
            _ => String::new(),
        })
        .collect();
    texts.extend(occupied.iter().map(|slot| format!("slot {slot}: another object has its Lease's name")));
    let more = texts.len().saturating_sub(NAMED);
    let is = !texts.is_empty();
    let mut message = texts.into_iter().take(NAMED).collect::<Vec<_>>().join("; ");
    if more > 0 {
        message.push_str(&format!("; and {more} more"));
    }
    if is {
        // Nobody but the controller may delete a pool's Lease: the referee asks for its name.
        message.push_str(
            ". Mend the Lease, or delete it: its slot is retired where its floor can't be known. A cluster's administrator \
             deletes it so: kubectl delete lease POOL-SLOT --namespace NAMESPACE \
             --as=system:serviceaccount:CONTROLLERS-NAMESPACE:cosid-controller",
        );
        Claim { kind: condition::QUARANTINED, is, reason: "SlotsPassedOver", message }
    } else {
        Claim {
            kind: condition::QUARANTINED,
            is,
            reason: "AllUsable",
            message: "Every Lease can be read.".to_owned(),
        }
    }
}

fn leaving(slots: &Slots, held: usize) -> Claim {
    let holders = slots.that(|state| matches!(state, State::Live { .. })).take(NAMED);
    let names: Vec<String> = holders
        .filter_map(|(slot, seen)| match &seen.state {
            State::Live { key, .. } => {
                Some(format!("slot {slot} by {}", key.chars().take(LONGEST).collect::<String>()))
            }
            _ => None,
        })
        .collect();
    let (reason, message) = if held == 0 {
        ("Removing", "No slot is held any more; the Leases are being removed.".to_owned())
    } else {
        let more = held.saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let names = names.join(", ");
        (
            "SlotsHeld",
            format!("{held} still held: {names}{more}. The pool goes once they are released or expired."),
        )
    };
    Claim { kind: condition::DELETING, is: true, reason, message }
}

/// The conditions with these in them; each keeps its time as long as its status stays.
fn merged(
    before: &[Condition],
    claims: Vec<Claim>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = before.to_vec();
    for Claim { kind, is, reason, message } in claims {
        let status = if is { "True" } else { "False" };
        let found = conditions.iter().position(|condition| condition.type_ == kind);
        let since = found.map(|at| &conditions[at]).filter(|condition| condition.status == status);
        let condition = Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: since.map_or(Time(now), |condition| condition.last_transition_time.clone()),
        };
        match found {
            Some(at) => conditions[at] = condition,
            None => conditions.push(condition),
        }
    }
    conditions
}

fn whole(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
