//! The one place that changes anything on the API server. Before each write it makes sure that this replica leads; each
//! is a creation, or a compare-and-set on the version and UID that were read.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cosid_kube::codec::SlotLease;
use cosid_kube::pool::SlotPool;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client, ResourceExt};
use tokio::sync::Semaphore;

use crate::Error;
use crate::index::{Index, PoolKey};
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::proof::bug;
use crate::tombstone;

/// How many calls are under way at once: enough to keep an API server busy, too few to drown it.
pub const CALLS_AT_ONCE: usize = 16;

/// What came of making a Lease.
#[derive(Debug)]
pub enum Made {
    /// There is one now, and the index has it.
    Known,
    /// Something else has its name: it does not bear the pool's label.
    Other(Box<Lease>),
}

/// The API server as the controller uses it. The answers to its writes go into the index at once.
pub struct Writes {
    client: Client,
    own_namespace: String,
    leadership: Leadership,
    index: Arc<Mutex<Index>>,
    metrics: Arc<Metrics>,
    calls: Semaphore,
}

impl Writes {
    /// Writes to this API server as long as `leadership` says so. `own_namespace` keeps the watermarks of pools that
    /// have gone.
    #[must_use]
    pub fn new(
        client: Client,
        own_namespace: String,
        leadership: Leadership,
        index: Arc<Mutex<Index>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { client, own_namespace, leadership, index, metrics, calls: Semaphore::new(CALLS_AT_ONCE) }
    }

    /// The index, for a moment.
    pub fn index(&self) -> MutexGuard<'_, Index> {
        // Each change is a few insertions; a panic in between leaves at worst an entry too few, which a watch mends.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pool as it is now, not as a cache has it; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Api`].
    pub async fn read_pool(&self, key: &PoolKey) -> Result<Option<Arc<SlotPool>>, Error> {
        let what = || format!("read pool {key}");
        let Some(mut pool) = self.read(what, self.pools(key).get_opt(&key.name)).await? else {
            self.index().drop_pool(key);
            return Ok(None);
        };
        pool.metadata.managed_fields = None;
        self.index().put_pool(pool.clone());
        Ok(Some(Arc::new(pool)))
    }

    /// All Leases of a namespace, with or without a label, as they are now.
    ///
    /// # Errors
    /// [`Error::Api`].
    pub async fn read_leases(&self, key: &PoolKey) -> Result<Vec<Lease>, Error> {
        let what = || format!("list the Leases of namespace {}", key.namespace);
        // One that can't be read must not hide the others.
        let api: Api<SlotLease> = Api::namespaced(self.client.clone(), &key.namespace);
        let found = self.read(what, api.list(&ListParams::default())).await?;
        Ok(found.items.into_iter().map(SlotLease::into_lease).collect())
    }

    /// Puts a pool's metadata and spec.
    ///
    /// # Errors
    /// [`Error::Conflict`] where it has changed since it was read; [`Error::NotLeading`]; [`Error::Api`].
    pub async fn put_pool(&self, pool: &SlotPool) -> Result<Arc<SlotPool>, Error> {
        let key = PoolKey::of(pool);
        let (api, what) = (self.pools(&key), format!("pool {key}"));
        let written = self.write("pool", what, || api.replace(&key.name, &PARAMS, pool)).await?;
        Ok(self.known(written))
    }

    /// Puts a pool's status.
    ///
    /// # Errors
    /// As [`put_pool`](Self::put_pool).
    pub async fn put_status(&self, pool: &SlotPool) -> Result<Arc<SlotPool>, Error> {
        let key = PoolKey::of(pool);
        let (api, what) = (self.pools(&key), format!("pool {key}"));
        let written = self.write("status", what, || api.replace_status(&key.name, &PARAMS, pool)).await?;
        Ok(self.known(written))
    }

    /// Makes a Lease, unless there is one of its name: then that is read.
    ///
    /// # Errors
    /// [`Error::NotLeading`]; [`Error::Api`].
    pub async fn create_lease(&self, lease: &Lease) -> Result<Made, Error> {
        let (api, name) = (self.leases(lease), lease.name_any());
        match self.write("lease-created", lease_text(lease), || api.create(&PARAMS, lease)).await {
            Ok(made) => {
                self.index().put_lease(made);
                Ok(Made::Known)
            }
            Err(conflict @ Error::Conflict(_)) => {
                let namespace = lease.namespace().unwrap_or_default();
                let slots: Api<SlotLease> = Api::namespaced(self.client.clone(), &namespace);
                let found = self.read(|| lease_text(lease), slots.get_opt(&name)).await?.ok_or(conflict)?;
                let found = found.into_lease();
                if PoolKey::of_lease(&found) != PoolKey::of_lease(lease) {
                    return Ok(Made::Other(Box::new(found)));
                }
                self.index().put_lease(found);
                Ok(Made::Known)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts a Lease. One that has gone is not brought back: it carries its UID.
    ///
    /// # Errors
    /// As [`put_pool`](Self::put_pool).
    pub async fn put_lease(&self, lease: &Lease, what: &'static str) -> Result<(), Error> {
        if lease.uid().is_none() || lease.resource_version().is_none() {
            return Err(Error::Conflict(lease_text(lease)));
        }
        let mut lease = lease.clone();
        if what == "lease-let-go" && bug("finalizer_off_without_cas") {
            lease.metadata.resource_version = None;
        }
        let lease = &lease;
        let (api, name) = (self.leases(lease), lease.name_any());
        let written = self.write(what, lease_text(lease), || api.replace(&name, &PARAMS, lease)).await?;
        let mut index = self.index();
        if written.metadata.deletion_timestamp.is_some() && written.finalizers().is_empty() {
            index.drop_lease(&written, true);
        } else {
            index.put_lease(written);
        }
        Ok(())
    }

    /// Deletes a Lease as it was read: one that somebody acquired since stays.
    ///
    /// # Errors
    /// As [`put_pool`](Self::put_pool).
    pub async fn delete_lease(&self, lease: &Lease) -> Result<(), Error> {
        let (api, name) = (self.leases(lease), lease.name_any());
        let seen = lease.resource_version().filter(|_| !bug("deletes_what_it_has_not_seen"));
        let preconditions = Preconditions { resource_version: seen, uid: lease.uid() };
        let params = DeleteParams::default().preconditions(preconditions);
        let deleted = self.write("lease-deleted", lease_text(lease), || api.delete(&name, &params)).await?;
        if let Some(going) = deleted.left() {
            self.index().put_lease(going);
        }
        Ok(())
    }

    /// The ConfigMap that keeps what an earlier pool of this name used.
    ///
    /// # Errors
    /// [`Error::Api`].
    pub async fn read_tombstone(&self, key: &PoolKey) -> Result<Option<ConfigMap>, Error> {
        let what = || format!("read what is kept of pool {key}");
        self.read(what, self.tombstones().get_opt(&tombstone::name(key))).await
    }

    /// Makes or puts such a ConfigMap.
    ///
    /// # Errors
    /// As [`put_pool`](Self::put_pool).
    pub async fn put_tombstone(&self, kept: &ConfigMap) -> Result<(), Error> {
        self.upsert("watermark", &self.tombstones(), kept).await.map(drop)
    }

    /// The controller's own namespace.
    #[must_use]
    pub fn own_namespace(&self) -> &str {
        &self.own_namespace
    }

    /// A Role as it is now.
    ///
    /// # Errors
    /// [`Error::Api`].
    pub async fn read_role(&self, namespace: &str, name: &str) -> Result<Option<Role>, Error> {
        let api: Api<Role> = Api::namespaced(self.client.clone(), namespace);
        self.read(|| format!("read Role {namespace}/{name}"), api.get_opt(name)).await
    }

    /// A RoleBinding as it is now.
    ///
    /// # Errors
    /// [`Error::Api`].
    pub async fn read_binding(&self, namespace: &str, name: &str) -> Result<Option<RoleBinding>, Error> {
        let api: Api<RoleBinding> = Api::namespaced(self.client.clone(), namespace);
        self.read(|| format!("read RoleBinding {namespace}/{name}"), api.get_opt(name)).await
    }

    /// Makes or puts a Role.
    ///
    /// # Errors
    /// As [`put_pool`](Self::put_pool).
    pub async fn put_role(&self, role: &Role) -> Result<(), Error> {
        let namespace = role.namespace().unwrap_or_default();
        self.upsert("role", &Api::namespaced(self.client.clone(), &namespace), role).await.map(drop)
    }

    /// Makes or puts a RoleBinding.
    ///
    /// # Errors
    /// As [`put_pool`](Self::put_pool).
    pub async fn put_binding(&self, binding: &RoleBinding) -> Result<(), Error> {
        let namespace = binding.namespace().unwrap_or_default();
        self.upsert("binding", &Api::namespaced(self.client.clone(), &namespace), binding).await.map(drop)
    }

    /// Makes an object, or puts it where it was read; gives it as it is then. `kind` is a word for metrics.
    ///
    /// # Errors
    /// As [`put_pool`](Self::put_pool).
    pub async fn upsert<K>(&self, kind: &'static str, api: &Api<K>, object: &K) -> Result<K, Error>
    where
        K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let name = object.name_any();
        let what = format!("{kind} {name}");
        if object.resource_version().is_some() {
            self.write(kind, what, || api.replace(&name, &PARAMS, object)).await
        } else {
            self.write(kind, what, || api.create(&PARAMS, object)).await
        }
    }

    async fn read<T>(
        &self,
        what: impl Fn() -> String,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        let _turn = self.calls.acquire().await.map_err(|_| Error::NotLeading)?;
        call.await.map_err(|source| Error::Api { what: what(), source: Box::new(source) })
    }

    async fn write<T, F: Future<Output = kube::Result<T>>>(
        &self,
        kind: &'static str,
        what: String,
        call: impl FnOnce() -> F,
    ) -> Result<T, Error> {
        let _turn = self.calls.acquire().await.map_err(|_| Error::NotLeading)?;
        if !self.leadership.leads() {
            return Err(Error::NotLeading);
        }
        match call().await {
            Ok(written) => {
                self.metrics.wrote(kind);
                Ok(written)
            }
            Err(kube::Error::Api(status)) if has_changed(&status) => Err(Error::Conflict(what)),
            Err(source) => Err(Error::Api { what: format!("write {what}"), source: Box::new(source) }),
        }
    }

    fn known(&self, mut pool: SlotPool) -> Arc<SlotPool> {
        pool.metadata.managed_fields = None;
        self.index().put_pool(pool.clone());
        Arc::new(pool)
    }

    fn pools(&self, key: &PoolKey) -> Api<SlotPool> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    fn leases(&self, lease: &Lease) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &lease.namespace().unwrap_or_default())
    }

    fn tombstones(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.own_namespace)
    }
}

const PARAMS: PostParams = PostParams { dry_run: false, field_manager: None };

/// Another version, or gone. Where the whole namespace is missing, trying again does not help.
fn has_changed(status: &Status) -> bool {
    let of_namespace = status.details.as_ref().is_some_and(|details| details.kind == "namespaces");
    status.code == 409 || (status.code == 404 && !of_namespace)
}

fn lease_text(lease: &Lease) -> String {
    format!("Lease {}/{}", lease.namespace().unwrap_or_default(), lease.name_any())
}
