//! The slots of one pool as Leases of a Kubernetes API server.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cosid_lease::{Entry, Record, Regression, Slot, SlotStore, StoreError, StoreTime, View};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{GetParams, ListParams, PostParams};
use kube::core::Request;
use kube::{Client, Resource, ResourceExt as _};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::clock::ApiClock;
use crate::codec::{self, CodecError, POOL_LABEL, SlotLease};
use crate::pool::{SlotPool, to_pool};
use crate::proof::bug;
use crate::rest::call;

/// A pool's slots. A load is two calls at once, a read and a write are one each; nothing comes from a cache, and
/// nothing is tried twice.
pub struct KubeStore {
    client: Client,
    clock: ApiClock,
    namespace: String,
    name: String,
    pod_uid: Option<String>,
    seen: Mutex<Option<Arc<SlotPool>>>,
}

impl KubeStore {
    /// A store for the pool of this name; asks nothing yet. `clock` is the one that the client's transport was given.
    /// `pod_uid` is written next to what is acquired, so that the API server can hold it against the caller's token.
    #[must_use]
    pub fn new(
        client: Client,
        clock: ApiClock,
        namespace: impl Into<String>,
        pool: impl Into<String>,
        pod_uid: Option<String>,
    ) -> Self {
        Self {
            client,
            clock,
            namespace: namespace.into(),
            name: pool.into(),
            pod_uid,
            seen: Mutex::new(None),
        }
    }

    /// The pool as the last load found it: for its layout.
    #[must_use]
    pub fn pool(&self) -> Option<Arc<SlotPool>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn get_pool(&self) -> Result<Arc<SlotPool>, StoreError> {
        let request = Request::new(SlotPool::url_path(&(), Some(&self.namespace)));
        let body = call(&self.client, request.get(&self.name, &GetParams::default())).await;
        let body = body.map_err(|failure| match failure {
            failure if failure.is_not_found() => {
                StoreError::NoPool { pool: format!("{}/{}", self.namespace, self.name) }
            }
            failure => failure.to_pool_error(
                &format!("SlotPool {}", self.name),
                &self.namespace,
                &self.needs("get", "slotpools.cosid.dev"),
            ),
        })?;
        let mut pool: SlotPool = serde_json::from_slice(&body)
            .map_err(|error| StoreError::Unknown(format!("pool {}: {error}", self.name)))?;
        pool.metadata.managed_fields = None;
        let pool = Arc::new(pool);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&pool));
        Ok(pool)
    }

    async fn list_leases(&self) -> Result<Vec<Entry<LeaseVersion>>, StoreError> {
        let all = ListParams::default().labels(&format!("{POOL_LABEL}={}", self.name));
        let body = call(&self.client, self.leases().list(&all)).await;
        let body = body.map_err(|failure| failure.to_store_error(&self.lease_needs("list")))?;
        let list: RawList<'_> = serde_json::from_slice(&body)
            .map_err(|error| StoreError::Unknown(format!("the pool's Leases: {error}")))?;
        Ok(list
            .items
            .into_iter()
            .filter_map(|item| self.entry(body.slice_ref(item.get().as_bytes())))
            .collect())
    }

    /// `None` for a Lease whose name makes it no slot of this pool.
    fn entry(&self, json: Bytes) -> Option<Entry<LeaseVersion>> {
        let found = SlotLease::glance(&json).ok()?;
        let slot = codec::slot_of(&found.lease, &self.name)?;
        let state = found.state(&self.name);
        Some(Entry { slot, version: LeaseVersion(json), state })
    }

    fn leases(&self) -> Request {
        Request::new(Lease::url_path(&(), Some(&self.namespace)))
    }

    fn lease_needs(&self, verb: &str) -> String {
        self.needs(verb, "leases.coordination.k8s.io")
    }

    fn needs(&self, verb: &str, resource: &str) -> String {
        let Self { namespace, name, .. } = self;
        format!(
            "`{verb}` on {resource} in namespace {namespace}: is there a pool {namespace}/{name} (`kubectl get slotpools \
             -A` lists them), is this pod's namespace among its allowedNamespaces, and is the controller running?"
        )
    }

    /// The pool's ttl as last seen. A write follows a load, except for a renewal, which keeps the Lease's own.
    fn ttl_seconds(&self, lease: &Lease) -> Option<i32> {
        let seen = self.pool().map(|pool| pool.spec.ttl_seconds);
        seen.or_else(|| lease.spec.as_ref()?.lease_duration_seconds)
    }

    fn written(&self, sent: &Lease, record: &Record, body: Bytes) -> Result<LeaseVersion, StoreError> {
        let odd = |why: &str| StoreError::Unknown(format!("the answer to a write {why}"));
        let SlotLease { lease, .. } = SlotLease::from_json(&body).map_err(|_| odd("is no Lease"))?;
        if lease.metadata.uid != sent.metadata.uid {
            return Err(odd("is another Lease"));
        }
        match codec::read(&lease) {
            Ok(Some(written)) if &written == record => Ok(LeaseVersion(body)),
            _ => Err(odd("shows another record than was sent: does an admission webhook change Leases?")),
        }
    }
}

/// A Lease as the API server gave it, as text: of a thousand that are listed, one is written. It has all that was there,
/// so that a write changes only what it means to, and the version that a write is conditional on.
#[derive(Clone, Debug)]
pub struct LeaseVersion(Bytes);

impl LeaseVersion {
    /// A Lease in the API server's JSON. It is not looked at before it is needed.
    #[must_use]
    pub fn from_json(json: impl Into<Bytes>) -> Self {
        Self(json.into())
    }

    /// The Lease, without its managed fields.
    ///
    /// # Errors
    /// [`CodecError`] where it can't be read.
    pub fn lease(&self) -> Result<Lease, CodecError> {
        let SlotLease { lease, unreadable } = SlotLease::from_json(&self.0)?;
        unreadable.map_or(Ok(lease), |why| Err(CodecError::Unreadable(why)))
    }
}

impl SlotStore for KubeStore {
    type Version = LeaseVersion;

    async fn load(&self) -> Result<View<LeaseVersion>, StoreError> {
        // Both to their ends: where neither may be read it is the pool that is to be named.
        let (pool, entries) = tokio::join!(self.get_pool(), self.list_leases());
        let (pool, entries) = (pool?, entries?);
        let pool = to_pool(&pool).map_err(|error| StoreError::Refused(error.to_string()))?;
        Ok(View { pool, entries })
    }

    async fn read(&self, slot: Slot) -> Result<Option<Entry<LeaseVersion>>, StoreError> {
        let name = codec::lease_name(&self.name, slot);
        match call(&self.client, self.leases().get(&name, &GetParams::default())).await {
            Ok(body) => match self.entry(body) {
                Some(entry) => Ok(Some(entry)),
                None => {
                    Err(StoreError::Unknown(format!("the answer for Lease {name} is no Lease of that name")))
                }
            },
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure.to_store_error(&self.lease_needs("get"))),
        }
    }

    async fn write(
        &self,
        slot: Slot,
        version: &LeaseVersion,
        record: &Record,
    ) -> Result<LeaseVersion, StoreError> {
        self.put(slot, version, record, None).await
    }

    /// The note is an annotation of the Lease, which the controller looks for.
    async fn put_back(
        &self,
        slot: Slot,
        version: &LeaseVersion,
        record: &Record,
        regression: &Regression,
    ) -> Result<LeaseVersion, StoreError> {
        self.put(slot, version, record, Some(regression)).await
    }

    fn now(&self) -> Option<StoreTime> {
        self.clock.now()
    }
}

impl KubeStore {
    async fn put(
        &self,
        slot: Slot,
        version: &LeaseVersion,
        record: &Record,
        regression: Option<&Regression>,
    ) -> Result<LeaseVersion, StoreError> {
        let refused = |why: String| StoreError::Refused(format!("slot {slot}: {why}"));
        let before = version.lease().map_err(|error| refused(error.to_string()))?;
        let metadata = &before.metadata;
        if metadata.deletion_timestamp.is_some() && !bug("renews_a_lease_being_deleted") {
            return Err(StoreError::Gone);
        }
        // Without either the API server would overwrite, or bring back, what it finds.
        if metadata.uid.is_none() || metadata.resource_version.is_none() {
            return Err(refused("the Lease was not read from the API server".into()));
        }
        let ttl = self.ttl_seconds(&before).ok_or_else(|| refused("load the pool first".into()))?;
        let pod_uid = self.pod_uid.as_deref();
        let mut lease =
            codec::encode(&before, record, ttl, pod_uid).map_err(|error| refused(error.to_string()))?;
        if let Some(regression) = regression {
            lease.annotations_mut().insert(codec::STORE_REGRESSED.to_owned(), regression.to_string());
        }
        if bug("write_without_resource_version") {
            lease.metadata.resource_version = None;
        }
        let name = codec::lease_name(&self.name, slot);
        let json = serde_json::to_vec(&lease).map_err(|error| refused(error.to_string()))?;
        match call(&self.client, self.leases().replace(&name, &PostParams::default(), json)).await {
            Ok(body) => self.written(&lease, record, body),
            Err(failure) => Err(failure.to_store_error(&self.lease_needs("update"))),
        }
    }
}

/// A list whose items are read one by one: one that can't be read leaves the others.
#[derive(Deserialize)]
struct RawList<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}
