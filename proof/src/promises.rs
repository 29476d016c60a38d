//! What every write of a slot's record must keep to, whoever makes it.

use cosid_lease::{Fence, Millis, Record};

/// The highest that was ever written of a slot, whatever became of its Leases and pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Highest {
    fence: Fence,
    next_floor: Millis,
}

impl Highest {
    /// Takes in a write. Fences and next floors only grow, but for a release's exact hand-over; each change of hands has a
    /// fence of its own; and nobody takes a slot over before it has expired by his own clock, its own key no more than
    /// others.
    ///
    /// # Errors
    /// What was not kept to.
    pub(crate) fn wrote(&mut self, before: Option<&Record>, after: &Record) -> Result<(), String> {
        let (old, new) = (before.and_then(Record::holding), after.holding());
        let handed_over = new.is_none()
            && before.is_some_and(|before| after.fence == before.fence + 1)
            && old.is_some_and(|old| after.next_floor >= old.floor);
        if after.fence < self.fence {
            return Err(format!("writes fence {}, after fence {}", after.fence, self.fence));
        }
        if after.next_floor < self.next_floor && !handed_over {
            return Err(format!("writes next floor {}, after {}", after.next_floor, self.next_floor));
        }
        if let (Some(before), Some(new)) = (before, new)
            && old.is_none_or(|old| old.owner != new.owner)
            && after.fence != before.fence + 1
        {
            return Err(format!("takes the slot over and leaves its fence at {}", after.fence));
        }
        if let (Some(old), Some(new)) = (old, new)
            && old.owner != new.owner
            && new.acquired_at < old.expires_at
        {
            let (key, until, at) = (&old.owner.key, old.expires_at, new.acquired_at);
            return Err(format!("takes the slot of {key} at {at}, which holds it until {until}"));
        }
        *self = Self { fence: after.fence, next_floor: after.next_floor };
        Ok(())
    }
}
