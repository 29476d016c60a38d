//! What each Lease of a pool says, as far as the controller cares.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cosid_kube::codec;
use cosid_lease::choose::FAR_AHEAD;
use cosid_lease::{MAX_FENCE, Millis, Slot, SlotState};
use k8s_openapi::api::coordination::v1::Lease;
use uuid::Uuid;

use crate::moment::moment;

/// A slot's Lease and what it says.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The Lease as read.
    pub lease: Arc<Lease>,
    /// What it says.
    pub state: State,
    /// It belongs to an earlier pool of this name: the garbage collector takes it sooner or later.
    pub foreign: bool,
}

/// What a Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Made, not opened.
    Shut,
    /// Held, and not expired.
    Live {
        /// The holder's key.
        key: String,
        /// The holder's incarnation.
        incarnation: Uuid,
        /// Unix ms, store clock.
        expires_at: Millis,
    },
    /// To be had at once.
    Free,
    /// To be had; IDs from this time on (Unix ms).
    Cooling {
        /// The next floor.
        until: Millis,
    },
    /// Can't be had: its expiry or its next floor lies far ahead, or its fence is used up.
    PassedOver(String),
    /// Can't be read.
    Corrupt(String),
    /// Being deleted.
    Going,
}

/// A pool's slots.
#[derive(Clone, Debug, Default)]
pub struct Slots(pub BTreeMap<Slot, Seen>);

impl Slots {
    /// Reads the Leases of the pool of this name and UID (none: the pool is gone) at `now` (Unix ms, store clock's
    /// lower bound). Leases that bear the pool's label and no slot's name are nobody's.
    #[must_use]
    pub fn of(name: &str, uid: Option<&str>, leases: &BTreeMap<String, Arc<Lease>>, now: Millis) -> Self {
        let seen = leases.values().filter_map(|lease| {
            let slot = codec::slot_of(lease, name)?;
            let owners = lease.metadata.owner_references.as_deref().unwrap_or_default();
            let foreign = !owners.is_empty() && !owners.iter().any(|owner| Some(owner.uid.as_str()) == uid);
            Some((slot, Seen { lease: Arc::clone(lease), state: state(lease, name, now), foreign }))
        });
        Self(seen.collect())
    }

    /// Those in a state.
    pub fn that<'a>(&'a self, is: impl Fn(&State) -> bool + 'a) -> impl Iterator<Item = (Slot, &'a Seen)> {
        self.0.iter().filter(move |(_, seen)| is(&seen.state)).map(|(&slot, seen)| (slot, seen))
    }

    /// How many are in a state.
    #[must_use]
    pub fn count(&self, is: impl Fn(&State) -> bool) -> usize {
        self.that(is).count()
    }

    /// Keys under which different incarnations hold live slots, with the slots.
    #[must_use]
    pub fn duplicates(&self) -> BTreeMap<&str, BTreeSet<Slot>> {
        let mut holders: BTreeMap<&str, (BTreeSet<Uuid>, BTreeSet<Slot>)> = BTreeMap::new();
        for (&slot, seen) in &self.0 {
            if let State::Live { key, incarnation, .. } = &seen.state {
                let (incarnations, slots) = holders.entry(key).or_default();
                incarnations.insert(*incarnation);
                slots.insert(slot);
            }
        }
        let several = holders.into_iter().filter(|(_, (incarnations, _))| incarnations.len() > 1);
        several.map(|(key, (_, slots))| (key, slots)).collect()
    }

    /// When time alone next changes a state: a lease expires, or a floor is passed (Unix ms, store clock).
    #[must_use]
    pub fn next_change(&self) -> Option<Millis> {
        let at = self.0.values().filter_map(|seen| match seen.state {
            State::Live { expires_at, .. } => Some(expires_at),
            State::Cooling { until } => Some(until),
            _ => None,
        });
        at.min()
    }
}

fn state(lease: &Lease, pool: &str, now: Millis) -> State {
    let record = match codec::decode(lease, pool) {
        SlotState::Shut => return State::Shut,
        SlotState::Deleting => return State::Going,
        SlotState::Corrupt(why) => return State::Corrupt(why),
        SlotState::Open(record) => record,
    };
    if let Some(holding) = record.live(now) {
        // No pool's ttl is that long. The referee has no clock, so a holder can write any time: the slot would be nobody
        // else's for ever, and a deletion of the pool would wait for it.
        if holding.expires_at > now.saturating_add(FAR_AHEAD) {
            return State::PassedOver(format!(
                "{} holds it until {}, more than an hour ahead, as no agent does",
                holding.owner.key,
                moment(holding.expires_at)
            ));
        }
        return State::Live {
            key: holding.owner.key.clone(),
            incarnation: holding.owner.incarnation,
            expires_at: holding.expires_at,
        };
    }
    if record.fence >= MAX_FENCE {
        return State::PassedOver(format!("its fence is at the largest value, {MAX_FENCE}"));
    }
    if record.next_floor > now.saturating_add(FAR_AHEAD) {
        let next_floor = moment(record.next_floor);
        return State::PassedOver(format!("its next floor {next_floor} lies more than an hour ahead"));
    }
    if record.next_floor > now { State::Cooling { until: record.next_floor } } else { State::Free }
}
