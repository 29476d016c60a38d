//! Record to Lease.

use std::collections::BTreeMap;

use cosid_lease::{Fence, Holding, Millis, Record, Slot, Tenure};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use super::read::value;
use super::{
    CEILING, CodecError, FINALIZER, FLOOR, INCARNATION, LAST_OWNER, MAX_TIME, NEXT_FLOOR, POD_UID,
    POOL_LABEL, lease_name,
};
use crate::pool::{SlotPool, Watermark};
use crate::proof::bug;

/// The Lease with this record in it; all else in it stays as it was read. `ttl_seconds` is the pool's: a renewal keeps
/// the one that is in the Lease, for the time it was acquired with. `pod_uid` is the writer's.
///
/// # Errors
/// [`CodecError`] where the record does not fit: a time past [`MAX_TIME`], an expiry past the year 9999, an owner
/// without a key.
pub fn encode(
    lease: &Lease,
    record: &Record,
    ttl_seconds: i32,
    pod_uid: Option<&str>,
) -> Result<Lease, CodecError> {
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    let annotations = lease.metadata.annotations.get_or_insert_default();
    let fence = transitions(record.fence)?;
    let renewal = spec.lease_transitions == Some(fence);
    let ttl_seconds =
        spec.lease_duration_seconds.filter(|&seconds| renewal && seconds > 0).unwrap_or(ttl_seconds);
    if ttl_seconds <= 0 {
        return Err(value("spec.leaseDurationSeconds", ttl_seconds, "is not positive"));
    }
    spec.lease_transitions = Some(fence);
    spec.lease_duration_seconds = Some(ttl_seconds);
    set(annotations, NEXT_FLOOR, Some(time(NEXT_FLOOR, record.next_floor)?));
    match &record.tenure {
        Tenure::Held(holding) => hold(spec, annotations, holding, ttl_seconds, pod_uid)?,
        Tenure::Free { last_key } => {
            spec.holder_identity = None;
            spec.renew_time = None;
            spec.acquire_time = None;
            for field in [FLOOR, CEILING, INCARNATION, POD_UID] {
                set(annotations, field, None);
            }
            set(annotations, LAST_OWNER, last_key.clone());
        }
    }
    Ok(lease)
}

/// A slot's Lease as the controller makes it: born shut. It can be acquired once it is [`open`], by a watermark that was
/// read after it was made.
#[must_use]
pub fn new_lease(pool: &SlotPool, slot: Slot) -> Lease {
    let name = pool.name_any();
    let owner = OwnerReference {
        api_version: SlotPool::api_version(&()).into_owned(),
        kind: SlotPool::kind(&()).into_owned(),
        name: name.clone(),
        uid: pool.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Lease {
        metadata: ObjectMeta {
            name: Some(lease_name(&name, slot)),
            namespace: pool.namespace(),
            labels: Some(BTreeMap::from([(POOL_LABEL.to_owned(), name)])),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: None,
    }
}

/// A shut Lease, opened: its first window starts above the watermark.
///
/// # Errors
/// [`CodecError`] where the watermark is negative.
pub fn open(lease: &Lease, watermark: Watermark, ttl_seconds: i32) -> Result<Lease, CodecError> {
    let next_floor = Millis::try_from(watermark.next_floor)
        .map_err(|_| value("watermark.nextFloor", watermark.next_floor, "is negative"))?;
    let fence = Fence::try_from(watermark.fence)
        .map_err(|_| value("watermark.fence", watermark.fence, "is negative"))?;
    encode(lease, &Record::open(fence, next_floor), ttl_seconds, None)
}

fn hold(
    spec: &mut LeaseSpec,
    annotations: &mut BTreeMap<String, String>,
    holding: &Holding,
    ttl_seconds: i32,
    pod_uid: Option<&str>,
) -> Result<(), CodecError> {
    if holding.owner.key.is_empty() {
        return Err(value("spec.holderIdentity", "", "is empty: an owner needs a key"));
    }
    spec.holder_identity = Some(holding.owner.key.clone());
    let expires_at = i64::try_from(holding.expires_at).unwrap_or(i64::MAX);
    let renewed = expires_at.saturating_sub(i64::from(ttl_seconds) * 1000);
    spec.renew_time = Some(micro_time("spec.renewTime", renewed)?);
    let acquired_at = i64::try_from(holding.acquired_at).unwrap_or(i64::MAX);
    spec.acquire_time = Some(micro_time("spec.acquireTime", acquired_at)?);
    set(annotations, FLOOR, Some(time(FLOOR, holding.floor)?));
    set(annotations, CEILING, Some(time(CEILING, holding.ceiling)?));
    set(annotations, INCARNATION, Some(holding.owner.incarnation.to_string()));
    set(annotations, POD_UID, pod_uid.filter(|_| !bug("pod_uid_left_out")).map(str::to_owned));
    set(annotations, LAST_OWNER, None);
    Ok(())
}

fn set(annotations: &mut BTreeMap<String, String>, field: &str, text: Option<String>) {
    match text {
        Some(text) => annotations.insert(field.to_owned(), text),
        None => annotations.remove(field),
    };
}

fn transitions(fence: Fence) -> Result<i32, CodecError> {
    i32::try_from(fence).map_err(|_| value("spec.leaseTransitions", fence, "does not fit an int32"))
}

fn time(field: &'static str, at: Millis) -> Result<String, CodecError> {
    if at > MAX_TIME {
        return Err(value(field, at, "is past 2^63 - 1"));
    }
    Ok(at.to_string())
}

fn micro_time(field: &'static str, at: i64) -> Result<MicroTime, CodecError> {
    jiff::Timestamp::from_millisecond(at)
        .map(MicroTime)
        .map_err(|_| value(field, at, "is past the year 9999 (Unix ms)"))
}
