//! A Lease that may be beyond reading.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cosid_lease::SlotState;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{CodecError, decode};

/// A Lease as the API server gave it, also where it holds something that a [`Lease`] can't: the API server takes times
/// that are later than any that can be read here. A list or watch of these goes on past such a one, where one of
/// [`Lease`] fails as a whole.
///
/// It has no managed fields: the API server keeps them where an update has none.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotLease {
    /// The Lease; without a spec where that can't be read.
    pub lease: Lease,
    /// Why it can't be read.
    pub unreadable: Option<String>,
}

impl SlotLease {
    /// From the API server's JSON.
    ///
    /// # Errors
    /// [`CodecError::Unreadable`] where not even the metadata can be read.
    pub fn from_json(json: &[u8]) -> Result<Self, CodecError> {
        let unreadable = |error: serde_json::Error| CodecError::Unreadable(said(&error));
        let read = serde_json::from_slice::<Lease>(json).map_err(unreadable);
        Self::new(read, || serde_json::from_slice(json).map_err(unreadable))
    }

    /// From the API server's JSON, with only what says something of a slot: a pool's list has a thousand of them, and the
    /// most of each is what nobody asks for.
    ///
    /// # Errors
    /// [`CodecError::Unreadable`] where not even the metadata can be read.
    pub(crate) fn glance(json: &[u8]) -> Result<Self, CodecError> {
        let unreadable = |error: serde_json::Error| CodecError::Unreadable(said(&error));
        let Glance { metadata, spec } = serde_json::from_slice(json).map_err(unreadable)?;
        let GlanceMeta { name, labels, annotations, deletion_timestamp } = metadata;
        let metadata = ObjectMeta { name, labels, annotations, deletion_timestamp, ..ObjectMeta::default() };
        let (spec, unreadable) = match spec.map(|raw| serde_json::from_str(raw.get())).transpose() {
            Ok(spec) => (spec, None),
            Err(error) => (None, Some(said(&error))),
        };
        Ok(Self { lease: Lease { metadata, spec }, unreadable })
    }

    /// What it says of its slot, see [`decode`].
    #[must_use]
    pub fn state(&self, pool: &str) -> SlotState {
        match &self.unreadable {
            Some(_) if self.lease.metadata.deletion_timestamp.is_some() => SlotState::Deleting,
            Some(why) => SlotState::Corrupt(why.clone()),
            None => decode(&self.lease, pool),
        }
    }

    /// The Lease alone. In place of a spec that can't be read it has one that [`decode`] and [`read`](super::read) find
    /// damaged, whatever the annotations say: without any, the Lease would look as if it had never been opened.
    #[must_use]
    pub fn into_lease(self) -> Lease {
        let mut lease = self.lease;
        if self.unreadable.is_some() {
            lease.spec = Some(LeaseSpec { holder_identity: Some(String::new()), ..LeaseSpec::default() });
        }
        lease
    }

    fn new<E: ToString>(
        read: Result<Lease, E>,
        metadata: impl FnOnce() -> Result<Named, E>,
    ) -> Result<Self, E> {
        let (mut lease, unreadable) = match read {
            Ok(lease) => (lease, None),
            Err(error) => (Lease { metadata: metadata()?.metadata, spec: None }, Some(error.to_string())),
        };
        lease.metadata.managed_fields = None;
        Ok(Self { lease, unreadable })
    }
}

/// What serde says of a Lease, which repeats values from it: the start and the end, which has the place.
fn said(error: &serde_json::Error) -> String {
    const PART: usize = 160;
    let said: Vec<char> = error.to_string().chars().collect();
    if said.len() <= 2 * PART {
        return said.into_iter().collect();
    }
    let (start, end) = (&said[..PART], &said[said.len() - PART..]);
    start.iter().chain(" ... ".chars().collect::<Vec<_>>().iter()).chain(end).collect()
}

#[derive(Deserialize)]
struct Glance<'a> {
    metadata: GlanceMeta,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GlanceMeta {
    name: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<Time>,
}

#[derive(Deserialize)]
struct Named {
    metadata: ObjectMeta,
}

impl<'de> Deserialize<'de> for SlotLease {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = serde_json::Value::deserialize(deserializer)?;
        let unreadable = |error: serde_json::Error| CodecError::Unreadable(said(&error));
        let read = Lease::deserialize(&json).map_err(unreadable);
        Self::new(read, || Named::deserialize(&json).map_err(unreadable)).map_err(D::Error::custom)
    }
}

impl Resource for SlotLease {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Lease::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Lease::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Lease::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Lease::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.lease.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.lease.metadata
    }
}
