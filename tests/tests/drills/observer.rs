//! Writes down what the API server tells of a pool's Leases, change by change.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cosid_kube::codec;
use cosid_lease::Record;
use cosid_tests::drill::history::Change;
use cosid_tests::ground::Space;
use cosid_tests::http::PATIENCE;
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use tokio::task::JoinHandle;
use xtask::programs::until;

/// Between attempts, while there is no API server.
const PAUSE: Duration = Duration::from_millis(50);

/// Watches until it is dropped.
pub struct Observer {
    /// The newest version of the store that was written down.
    seen: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Observer {
    /// Begins with what there is. Blocks for that.
    pub fn start(space: &Space<'_>, pool: &str, file: &Path) -> Self {
        Self::begin(space, pool, File::create(file).unwrap(), false)
    }

    /// Begins anew, with what there is in a store that has been restored: its versions, by which a watch goes on, are
    /// those of the time before the backup again. Blocks for that.
    pub fn start_anew(&mut self, space: &Space<'_>, pool: &str, file: &Path) {
        self.task.abort();
        *self = Self::begin(space, pool, OpenOptions::new().append(true).open(file).unwrap(), true);
    }

    fn begin(space: &Space<'_>, pool: &str, file: File, listed: bool) -> Self {
        let seen = Arc::<AtomicU64>::default();
        let watch = Watch {
            leases: space.leases(),
            pool: pool.into(),
            seen: Arc::clone(&seen),
            file,
            version: None,
            listed,
        };
        let task = space.ground.runtime().spawn(watch.run());
        let observer = Self { seen, task };
        let begun = || Ok((observer.seen.load(Ordering::Acquire) > 0).then_some(()));
        until(|| "the watch does not begin".into(), PATIENCE, begun).unwrap();
        observer
    }

    /// Waits until everything up to this version of the store has been written down.
    pub fn catch_up(&self, version: u64) {
        let seen = || self.seen.load(Ordering::Acquire);
        let what = || format!("the watch is at {}, not at {version}", seen());
        until(what, PATIENCE, || Ok((seen() >= version).then_some(()))).unwrap();
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Watch {
    leases: Api<Lease>,
    pool: String,
    seen: Arc<AtomicU64>,
    file: File,
    /// From where it goes on; without it everything is listed.
    version: Option<String>,
    listed: bool,
}

impl Watch {
    async fn run(mut self) {
        loop {
            let round = match self.version.clone() {
                Some(version) => self.watch(&version).await,
                None => self.list().await,
            };
            // An API server that has gone comes back, and then knows no version older than itself.
            if let Err(error) = round {
                if matches!(&error, kube::Error::Api(status) if status.code == 410) {
                    self.version = None;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    fn selector(&self) -> String {
        format!("{}={}", codec::POOL_LABEL, self.pool)
    }

    async fn list(&mut self) -> Result<(), kube::Error> {
        let list = self.leases.list(&ListParams::default().labels(&self.selector())).await?;
        let after_a_hole = self.listed;
        for lease in &list.items {
            self.write(lease, after_a_hole);
        }
        self.listed = true;
        let version = list.metadata.resource_version.unwrap_or_default();
        self.has_seen(&version);
        self.version = Some(version);
        Ok(())
    }

    async fn watch(&mut self, version: &str) -> Result<(), kube::Error> {
        let params = WatchParams::default().labels(&self.selector());
        let mut events = self.leases.watch(&params, version).await?.boxed();
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) | WatchEvent::Deleted(lease) => {
                    self.write(&lease, false);
                    let version = lease.resource_version().unwrap_or_default();
                    self.has_seen(&version);
                    self.version = Some(version);
                }
                WatchEvent::Bookmark(bookmark) => {
                    self.version = Some(bookmark.metadata.resource_version);
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
        Ok(())
    }

    fn write(&mut self, lease: &Lease, after_a_hole: bool) {
        // What can't be read gives nobody a window.
        let (Some(slot), Ok(Some(record))) = (codec::slot_of(lease, &self.pool), codec::read(lease)) else {
            return;
        };
        let Record { fence, next_floor, .. } = record;
        let window = record.holding().map(|holding| (holding.floor, holding.ceiling));
        let change = Change { slot, fence, window, next_floor, after_a_hole };
        writeln!(self.file, "{}", serde_json::json!(change)).unwrap();
    }

    fn has_seen(&self, version: &str) {
        self.seen.fetch_max(version.parse().unwrap_or(0), Ordering::AcqRel);
    }
}
