//! The admission policies' rules (`docs/referee.md`), said once more and apart from them: a write of an agent or a controller
//! that the API server would refuse is a fault in whoever makes it. What it is refused for when it comes from somebody else
//! is not looked at here.

use std::collections::BTreeMap;

use cosid_kube::codec::{
    self, CEILING, FINALIZER, FLOOR, INCARNATION, LAST_OWNER, NEXT_FLOOR, POD_UID, POOL_LABEL,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;

use super::checker::Who;

/// A Lease as the policies see one: what is not there is empty, or 0.
struct Seen<'a> {
    lease: &'a Lease,
    annotations: BTreeMap<&'a str, &'a str>,
    holder: &'a str,
    fence: i32,
}

/// What an update does to a slot's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Update {
    /// Nothing: only metadata.
    Edit,
    Open,
    /// Another next floor and nothing else.
    Lift,
    Acquire,
    Renew,
    Release,
    /// Of a slot that was free and stays free.
    Tamper,
}

/// A Lease of the pool was made, changed or deleted.
///
/// # Errors
/// Why the API server would refuse it.
pub(crate) fn let_through(who: &Who, before: Option<&Lease>, after: Option<&Lease>) -> Result<(), String> {
    let controller = match who {
        Who::Controller(_) => true,
        Who::Pod(_) => false,
        Who::Somebody => return Ok(()),
    };
    let goes = |lease: Option<&Lease>| lease.is_none_or(|lease| lease.metadata.deletion_timestamp.is_some());
    match (before.map(Seen::of), after.map(Seen::of)) {
        (None, Some(new)) => made(controller, &new),
        (Some(_), _) if goes(before) != goes(after) => only(controller, "deletes a Lease"),
        (Some(_), None) => only(controller, "takes the finalizer off"),
        (Some(old), Some(new)) => updated(who, controller, &old, &new),
        (None, None) => Ok(()),
    }
}

fn made(controller: bool, new: &Seen<'_>) -> Result<(), String> {
    only(controller, "makes a Lease")?;
    kept(!new.has(NEXT_FLOOR) && new.holder.is_empty(), "makes a Lease that is not shut")?;
    kept(new.has_finalizer(), "makes a Lease without its finalizer")
}

fn updated(who: &Who, controller: bool, old: &Seen<'_>, new: &Seen<'_>) -> Result<(), String> {
    let update = Update::of(old, new);
    let metadata = |seen: &Seen<'_>| {
        let metadata = &seen.lease.metadata;
        let pool = metadata.labels.as_ref().and_then(|labels| labels.get(POOL_LABEL)).cloned();
        (pool, metadata.finalizers.clone(), metadata.owner_references.clone())
    };
    kept(controller || metadata(old) == metadata(new), "changes the label, the finalizers or the owners")?;
    kept(!old.has(NEXT_FLOOR) || new.has(NEXT_FLOOR), "takes the next floor off")?;
    let going = old.lease.metadata.deletion_timestamp.is_some();
    kept(!going || update == Update::Edit, "changes the record of a Lease that is being deleted")?;
    let readable = |seen: &Seen<'_>| matches!(codec::read(seen.lease), Ok(Some(_)));
    let record_stays = matches!(update, Update::Edit | Update::Open);
    kept(record_stays || readable(old), "changes a record that nobody can read")?;
    kept(update == Update::Edit || readable(new), "writes a record that nobody can read")?;
    if !new.holder.is_empty() && update != Update::Edit {
        let window = (new.time(FLOOR), new.time(CEILING), new.time(NEXT_FLOOR));
        kept(window.0 <= window.1 && window.1 <= window.2, "writes a window that is out of order")?;
    }
    match update {
        Update::Edit => {}
        Update::Open => {
            only(controller, "opens a slot")?;
            let traces = [FLOOR, CEILING, INCARNATION, LAST_OWNER, POD_UID];
            let unused = old.holder.is_empty() && old.fence == 0 && !traces.iter().any(|name| old.has(name));
            kept(unused && new.holder.is_empty(), "opens a slot that bears traces of use")?;
        }
        Update::Lift => {
            only(controller, "changes a next floor by itself")?;
            kept(new.time(NEXT_FLOOR) >= old.time(NEXT_FLOOR), "lowers a next floor")?;
        }
        Update::Acquire => acquired(who, old, new)?,
        Update::Renew => renewed(who, old, new)?,
        Update::Release => released(who, old, new)?,
        Update::Tamper => kept(false, "changes a slot that is free")?,
    }
    Ok(())
}

fn acquired(who: &Who, old: &Seen<'_>, new: &Seen<'_>) -> Result<(), String> {
    kept(new.fence == old.fence + 1, "acquires, and the fence does not grow by 1")?;
    kept(new.time(FLOOR) >= old.time(NEXT_FLOOR), "acquires from below the next floor")?;
    kept(old.holder.is_empty() || new.acquired() >= old.expiry(), "acquires before the old expiry")?;
    kept(is_its(who, new), "acquires for another pod")
}

fn renewed(who: &Who, old: &Seen<'_>, new: &Seen<'_>) -> Result<(), String> {
    let same = |name: &str| old.annotations.get(name) == new.annotations.get(name);
    let length = |seen: &Seen<'_>| seen.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let holding = old.holder == new.holder && same(INCARNATION) && same(FLOOR);
    kept(holding, "renews, and changes holder, incarnation or floor")?;
    kept(old.acquired() == new.acquired() && length(old) == length(new), "renews, and changes its terms")?;
    kept(new.expiry() >= old.expiry(), "renews, and brings the expiry forward")?;
    let grows = [CEILING, NEXT_FLOOR].iter().all(|name| new.time(name) >= old.time(name));
    kept(grows, "renews, and lowers the ceiling or the next floor")?;
    kept(is_its(who, old) && is_its(who, new), "renews another pod's lease")
}

fn released(who: &Who, old: &Seen<'_>, new: &Seen<'_>) -> Result<(), String> {
    let spent = old.fence == i32::MAX && new.fence == i32::MAX;
    kept(new.fence == old.fence.saturating_add(1) || spent, "releases, and the fence does not grow by 1")?;
    let window = old.time(FLOOR)..=old.time(CEILING);
    kept(window.contains(&new.time(NEXT_FLOOR)), "releases, and leaves a next floor outside its window")?;
    kept(new.annotations.get(LAST_OWNER) == Some(&old.holder), "releases, and does not say who held it")?;
    kept(is_its(who, old), "releases another pod's lease")
}

impl Update {
    fn of(old: &Seen<'_>, new: &Seen<'_>) -> Self {
        let same = |name: &str| old.annotations.get(name) == new.annotations.get(name);
        let record = [FLOOR, CEILING, INCARNATION, LAST_OWNER, POD_UID];
        if old.lease.spec == new.lease.spec && record.iter().all(|name| same(name)) {
            return match (same(NEXT_FLOOR), old.has(NEXT_FLOOR)) {
                (true, _) => Self::Edit,
                (false, true) => Self::Lift,
                (false, false) => Self::Open,
            };
        }
        match (!old.holder.is_empty(), !new.holder.is_empty()) {
            _ if !old.has(NEXT_FLOOR) => Self::Open,
            (true, true) if old.fence == new.fence => Self::Renew,
            (_, true) => Self::Acquire,
            (true, false) => Self::Release,
            (false, false) => Self::Tamper,
        }
    }
}

impl<'a> Seen<'a> {
    fn of(lease: &'a Lease) -> Self {
        let annotations = lease.metadata.annotations.iter().flatten();
        let spec = lease.spec.as_ref();
        Self {
            lease,
            annotations: annotations.map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            holder: spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default(),
            fence: spec.and_then(|spec| spec.lease_transitions).unwrap_or_default(),
        }
    }

    fn has(&self, annotation: &str) -> bool {
        self.annotations.contains_key(annotation)
    }

    fn has_finalizer(&self) -> bool {
        self.lease.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
    }

    fn time(&self, annotation: &str) -> Option<u64> {
        self.annotations.get(annotation)?.parse().ok()
    }

    fn acquired(&self) -> Option<Timestamp> {
        Some(self.lease.spec.as_ref()?.acquire_time.as_ref()?.0)
    }

    fn expiry(&self) -> Option<Timestamp> {
        let spec = self.lease.spec.as_ref()?;
        let length = SignedDuration::from_secs(spec.lease_duration_seconds?.into());
        spec.renew_time.as_ref()?.0.checked_add(length).ok()
    }
}

/// Whether a lease is this pod's.
fn is_its(who: &Who, seen: &Seen<'_>) -> bool {
    match who {
        Who::Pod(number) => seen.annotations.get(POD_UID).is_some_and(|uid| *uid == pod_uid(*number)),
        // It acquires, renews and releases nothing.
        Who::Controller(_) | Who::Somebody => false,
    }
}

/// The UID of the pod with this number.
pub(crate) fn pod_uid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

fn only(controller: bool, what: &str) -> Result<(), String> {
    kept(controller, what)
}

fn kept(is_kept: bool, what: &str) -> Result<(), String> {
    if is_kept { Ok(()) } else { Err(format!("{what}: the API server's policies refuse that")) }
}
