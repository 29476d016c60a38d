//! Leases that nobody made in good faith. How inputs are made, and for how long: `cosid_fuzz`.

use cosid_fuzz::{Target, Verdict};
use cosid_lease::{SlotState, Tenure};
use k8s_openapi::api::coordination::v1::Lease;

use super::*;

/// No message is longer, whatever the input: it goes into logs, events and conditions.
const LONGEST_MESSAGE: usize = 600;

/// What a message can be about.
const FIELDS: [&str; 12] = [
    POOL_LABEL,
    FLOOR,
    CEILING,
    NEXT_FLOOR,
    INCARNATION,
    LAST_OWNER,
    POD_UID,
    "spec.holderIdentity",
    "spec.leaseTransitions",
    "spec.leaseDurationSeconds",
    "spec.renewTime",
    "spec.acquireTime",
];

#[test]
fn lease_codec() {
    let tokens = &[
        "\"cosid.dev/next-floor\":\"5\",",
        "\"cosid.dev/floor\":\"5\",",
        "\"holderIdentity\":\"\",",
        "\"holderIdentity\":\"shop/web-0\",",
        "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",",
        "\"9999-12-31T23:59:59.999999Z\"",
        "\"0000-01-01T00:00:00.000000Z\"",
        "\"2023-11-14T22:13:20.234001Z\"",
        "null",
        "[]",
        "{}",
        "\\u0000",
        "é",
    ];
    Target::new("lease_codec", env!("CARGO_MANIFEST_DIR")).tokens(tokens).run(lease_of);
}

fn lease_of(input: &[u8]) -> Verdict {
    let glance = SlotLease::glance(input);
    let lease = match SlotLease::from_json(input) {
        Ok(lease) => lease,
        Err(error) => {
            bounded(&error.to_string());
            return Verdict::Refused;
        }
    };
    let state = lease.state("orders");
    if let (Ok(glance), None) = (&glance, &lease.unreadable) {
        assert_eq!(glance.state("orders"), state, "a glance says the same");
    }
    if let SlotState::Corrupt(why) = &state {
        bounded(why);
        assert!(lease.unreadable.is_some() || FIELDS.iter().any(|field| why.contains(field)), "{why}");
    }
    let is_unreadable = lease.unreadable.is_some();
    let lease = lease.into_lease();
    let read = reread(&lease);
    assert!(!is_unreadable || read.is_err(), "what can't be read is damaged to everybody");
    let record = match read {
        Ok(Some(record)) => record,
        Ok(None) => {
            assert!(matches!(state, SlotState::Shut | SlotState::Corrupt(_) | SlotState::Deleting));
            return Verdict::Accepted;
        }
        Err(error) => {
            bounded(&error.to_string());
            assert!(!matches!(state, SlotState::Open(_) | SlotState::Shut));
            return Verdict::Refused;
        }
    };
    if let Tenure::Held(holding) = &record.tenure {
        assert!(holding.floor <= holding.ceiling && holding.ceiling <= record.next_floor);
    }
    writes_what_it_read(&lease, &record);
    Verdict::accepted(matches!(state, SlotState::Open(_)))
}

fn reread(lease: &Lease) -> Result<Option<cosid_lease::Record>, CodecError> {
    read(lease)
}

/// What of a Lease says something of its slot.
fn said(lease: &Lease) -> impl PartialEq + std::fmt::Debug {
    let annotations = lease.metadata.annotations.clone().unwrap_or_default();
    let ours = [FLOOR, CEILING, NEXT_FLOOR, INCARNATION].map(|field| annotations.get(field).cloned());
    let mut spec = lease.spec.clone().unwrap_or_default();
    spec.holder_identity = spec.holder_identity.filter(|holder| !holder.is_empty());
    (ours, spec)
}

fn writes_what_it_read(lease: &Lease, record: &cosid_lease::Record) {
    let ttl = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap();
    let again = encode(lease, record, ttl, None).unwrap();
    assert_eq!(said(&again), said(lease));
    assert_eq!(reread(&again).as_ref(), Ok(&Some(record.clone())));
    // And onto a new Lease, from nothing.
    let mut empty = lease.clone();
    (empty.spec, empty.metadata.annotations) = (None, None);
    let anew = encode(&empty, record, ttl, None).unwrap();
    assert_eq!(reread(&anew).as_ref(), Ok(&Some(record.clone())));
}

fn bounded(message: &str) {
    assert!(
        !message.is_empty() && message.chars().count() < LONGEST_MESSAGE,
        "{} bytes: {message:.800}",
        message.len()
    );
}
