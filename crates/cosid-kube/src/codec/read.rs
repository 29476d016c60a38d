//! Lease to record.

use std::collections::BTreeMap;

use cosid_lease::{Fence, Holding, Millis, Owner, Record, Slot, SlotState, Tenure};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use uuid::Uuid;

use crate::proof::bug;

use super::{CEILING, CodecError, FLOOR, INCARNATION, LAST_OWNER, MAX_TIME, NEXT_FLOOR, POD_UID, POOL_LABEL};

/// What a Lease of this pool says of its slot. Never panics, whatever it holds.
#[must_use]
pub fn decode(lease: &Lease, pool: &str) -> SlotState {
    if lease.metadata.deletion_timestamp.is_some() && !bug("renews_a_lease_being_deleted") {
        return SlotState::Deleting;
    }
    let label = lease.metadata.labels.as_ref().and_then(|labels| labels.get(POOL_LABEL));
    match label {
        Some(label) if label == pool => {}
        Some(label) => {
            return SlotState::Corrupt(format!("label {POOL_LABEL}: {:?} is another pool", excerpt(label)));
        }
        None => return SlotState::Corrupt(format!("label {POOL_LABEL} is missing: set it to {pool}")),
    }
    match read(lease) {
        Ok(Some(record)) => SlotState::Open(record),
        Ok(None) if bug("a_shut_lease_counts_as_open") => SlotState::Open(Record::open(0, 0)),
        Ok(None) => SlotState::Shut,
        Err(error) => SlotState::Corrupt(error.to_string()),
    }
}

/// The record in a Lease, whether or not it is being deleted; `None` where it was never opened.
///
/// # Errors
/// [`CodecError`] where it is not exactly as [`encode`](super::encode) writes it.
pub fn read(lease: &Lease) -> Result<Option<Record>, CodecError> {
    let (no_annotations, no_spec) = (BTreeMap::new(), LeaseSpec::default());
    let annotations = lease.metadata.annotations.as_ref().unwrap_or(&no_annotations);
    let spec = lease.spec.as_ref().unwrap_or(&no_spec);
    let Some(next_floor) = annotations.get(NEXT_FLOOR) else {
        return never_opened(annotations, spec).map(|()| None);
    };
    let next_floor = time(NEXT_FLOOR, next_floor)?;
    let (fence, ttl) = (fence(spec)?, ttl(spec)?);
    let tenure = match spec.holder_identity.as_deref() {
        None | Some("") => free(annotations, spec)?,
        Some(key) => {
            let expires_at = expiry(spec, ttl)?;
            Tenure::Held(holding(key, annotations, spec, next_floor, expires_at)?)
        }
    };
    Ok(Some(Record { fence, next_floor, tenure }))
}

/// The slot that a Lease of this pool is for, by its name, which is all that makes a Lease a slot's.
#[must_use]
pub fn slot_of(lease: &Lease, pool: &str) -> Option<Slot> {
    let slot = lease.metadata.name.as_deref()?.strip_prefix(pool)?.strip_prefix('-')?;
    slot.parse::<Slot>().ok().filter(|number| number.to_string() == slot)
}

/// A Lease with a trace of use but without its next floor is damaged, not new.
fn never_opened(annotations: &BTreeMap<String, String>, spec: &LeaseSpec) -> Result<(), CodecError> {
    let traced = [FLOOR, CEILING, INCARNATION, LAST_OWNER, POD_UID]
        .iter()
        .any(|&annotation| annotations.contains_key(annotation));
    let used = spec.holder_identity.is_some()
        || spec.lease_transitions.is_some()
        || spec.renew_time.is_some()
        || spec.acquire_time.is_some();
    if traced || used {
        return Err(missing(
            NEXT_FLOOR,
            "the Lease was in use, and only it says from where on it can be again",
        ));
    }
    Ok(())
}

fn fence(spec: &LeaseSpec) -> Result<Fence, CodecError> {
    const FIELD: &str = "spec.leaseTransitions";
    let transitions = spec.lease_transitions.ok_or_else(|| missing(FIELD, "it is the fence"))?;
    Fence::try_from(transitions).map_err(|_| value(FIELD, transitions, "is negative"))
}

/// Milliseconds.
fn ttl(spec: &LeaseSpec) -> Result<i64, CodecError> {
    const FIELD: &str = "spec.leaseDurationSeconds";
    let seconds = spec.lease_duration_seconds.ok_or_else(|| missing(FIELD, "it is the ttl"))?;
    if seconds <= 0 {
        return Err(value(FIELD, seconds, "is not positive"));
    }
    Ok(i64::from(seconds) * 1000)
}

fn free(annotations: &BTreeMap<String, String>, spec: &LeaseSpec) -> Result<Tenure, CodecError> {
    const HOLDERS: &str = "belongs to a holder, but spec.holderIdentity is empty";
    for field in [FLOOR, CEILING, INCARNATION, POD_UID] {
        if let Some(text) = annotations.get(field) {
            return Err(value(field, text, HOLDERS));
        }
    }
    for (field, time) in [("spec.renewTime", &spec.renew_time), ("spec.acquireTime", &spec.acquire_time)] {
        if let Some(MicroTime(time)) = time {
            return Err(value(field, time, HOLDERS));
        }
    }
    Ok(Tenure::Free { last_key: annotations.get(LAST_OWNER).cloned() })
}

fn holding(
    key: &str,
    annotations: &BTreeMap<String, String>,
    spec: &LeaseSpec,
    next_floor: Millis,
    expires_at: Millis,
) -> Result<Holding, CodecError> {
    let get = |field| annotations.get(field).ok_or_else(|| missing(field, "the Lease has a holder"));
    let (floor, ceiling) = (get(FLOOR)?, get(CEILING)?);
    let (floor_ms, ceiling_ms) = (time(FLOOR, floor)?, time(CEILING, ceiling)?);
    if ceiling_ms < floor_ms {
        return Err(value(CEILING, ceiling, "is below the floor"));
    }
    if next_floor < ceiling_ms {
        return Err(value(NEXT_FLOOR, next_floor, "is below the holder's ceiling"));
    }
    let incarnation = incarnation(get(INCARNATION)?)?;
    let owner = Owner { key: key.to_owned(), incarnation };
    let acquired_at = unix_ms("spec.acquireTime", spec.acquire_time.as_ref())?;
    let acquired_at = u64::try_from(acquired_at)
        .map_err(|_| value("spec.acquireTime", acquired_at, "is before 1970 (Unix ms)"))?;
    Ok(Holding { owner, floor: floor_ms, ceiling: ceiling_ms, expires_at, acquired_at })
}

fn expiry(spec: &LeaseSpec, ttl: i64) -> Result<Millis, CodecError> {
    let renewed = unix_ms("spec.renewTime", spec.renew_time.as_ref())?;
    // jiff's times are within the years -9999 to 9999: no sum of theirs is near the ends of an i64.
    let expires_at = renewed.saturating_add(ttl);
    u64::try_from(expires_at).map_err(|_| value("spec.renewTime", renewed, "is before 1970 (Unix ms)"))
}

/// A decimal time as this crate writes it: no sign, no space, no leading zero.
fn time(field: &'static str, text: &str) -> Result<Millis, CodecError> {
    let number = text.parse::<Millis>().ok().filter(|number| number.to_string() == text);
    number
        .filter(|&number| number <= MAX_TIME)
        .ok_or_else(|| value(field, text, "is no decimal number of 0 to 2^63 - 1"))
}

fn incarnation(text: &str) -> Result<Uuid, CodecError> {
    let parsed = Uuid::try_parse(text).ok();
    parsed
        .filter(|incarnation| incarnation.to_string() == text)
        .ok_or_else(|| value(INCARNATION, text, "is no UUID in lower case with hyphens"))
}

fn unix_ms(field: &'static str, at: Option<&MicroTime>) -> Result<i64, CodecError> {
    let MicroTime(at) = at.ok_or_else(|| missing(field, "the Lease has a holder"))?;
    if at.subsec_nanosecond() % 1_000_000 != 0 {
        return Err(value(field, at, "is not a whole number of milliseconds"));
    }
    Ok(at.as_millisecond())
}

/// The start of a text from a Lease, short enough for a log line: an annotation may have 256 KiB.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}

pub(super) fn value(field: &'static str, value: impl ToString, why: &'static str) -> CodecError {
    CodecError::Value { field, value: excerpt(&value.to_string()), why }
}

fn missing(field: &'static str, why: &'static str) -> CodecError {
    CodecError::Missing { field, why }
}
