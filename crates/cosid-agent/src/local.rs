//! A store in this machine's memory: for a laptop, with no cluster.
//!
//! All agents of one user share a file on a memory file system, so that two of them never have the same slot, and a
//! killed agent's slot is taken over as in a cluster. Each change is made under a file lock and replaces the file as a
//! whole, so that an agent that dies at any moment leaves the old state or the new. A reboot forgets the slots: the
//! next pool's first floor is the time at which it is made, which is above all IDs made before unless the host's clock
//! went back over the reboot. For more, there is a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cosid_id::Layout;
use cosid_lease::{
    Entry, Millis, Pool, PoolState, Record, Slot, SlotState, SlotStore, StoreError, StoreTime, Terms, View,
};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::clock::host_now;
use crate::directory::replace;
use crate::error::Error;

/// The tolerance of pools in memory, ms: all agents share one clock, so that the default is plenty.
const TOLERANCE: Millis = 1_000;

/// A pool in this machine's memory.
#[derive(Debug)]
pub struct LocalStore {
    path: PathBuf,
    lock: PathBuf,
    pool: Pool,
    /// The first floor of a pool that is made now, Unix ms.
    origin: Millis,
}

/// The file's text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Slots {
    /// The floor of a slot that has no record yet, Unix ms.
    origin: Millis,
    /// The pool's terms and layout as its first agent made them.
    terms: Terms,
    layout: Layout,
    slots: BTreeMap<Slot, Versioned>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Versioned {
    version: u64,
    record: Record,
}

impl LocalStore {
    /// The pool of that name in `directory`, which is made where it is missing, as is the pool.
    ///
    /// # Errors
    /// [`Error::NotPrivate`], [`Error::Io`]; [`Error::CorruptStore`] for a file that can't be read, which is left as it
    /// is.
    pub fn open(directory: &Path, name: &str, ttl: Millis) -> Result<Self, Error> {
        let bits = Layout::MILLISECOND.slot_bits();
        Self::of(
            directory,
            Pool {
                name: name.into(),
                bits,
                first: 0,
                last: (1 << bits) - 1,
                withheld: BTreeSet::new(),
                terms: Terms { ttl, tolerance: TOLERANCE },
                state: PoolState::Ready,
                barrier: Millis::MAX,
            },
        )
    }

    fn of(directory: &Path, pool: Pool) -> Result<Self, Error> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(Error::io("can't make the directory", directory))?;
        let metadata = fs::symlink_metadata(directory).map_err(Error::io("can't read", directory))?;
        let private = metadata.is_dir()
            && metadata.uid() == rustix::process::geteuid().as_raw()
            && metadata.mode() & 0o022 == 0;
        if !private {
            return Err(Error::NotPrivate { directory: directory.into() });
        }
        // A pool's name has a slash where it has a namespace.
        let file = pool.name.replace('/', "@");
        let store = Self {
            path: directory.join(format!("{file}.slots")),
            lock: directory.join(format!("{file}.lock")),
            pool,
            origin: host_now(),
        };
        store.make().map_err(|error| match error {
            StoreError::Refused(why) => Error::CorruptStore { path: store.path.clone(), why },
            other => Error::io("can't open", &store.path)(std::io::Error::other(other)),
        })?;
        Ok(store)
    }

    /// The layout of the pool's IDs.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::MILLISECOND
    }

    /// Makes the file where it is missing. Only who opens the store may: see [`read_file`](Self::read_file).
    fn make(&self) -> Result<(), StoreError> {
        let _lock = self.locked()?;
        if self.path.try_exists().map_err(|error| self.unknown(&error))? {
            return self.read_file().map(drop);
        }
        let (terms, layout, slots) = (self.pool.terms, self.layout(), BTreeMap::new());
        self.replace_file(&Slots { origin: self.origin, terms, layout, slots })
    }

    /// Reads under the lock.
    fn look(&self) -> Result<Slots, StoreError> {
        let _lock = self.locked()?;
        self.read_file()
    }

    /// Reads, changes and replaces under the lock.
    fn change<T>(&self, change: impl FnOnce(&mut Slots) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let _lock = self.locked()?;
        let mut slots = self.read_file()?;
        let result = change(&mut slots)?;
        self.replace_file(&slots)?;
        Ok(result)
    }

    fn replace_file(&self, slots: &Slots) -> Result<(), StoreError> {
        let text = serde_json::to_vec(slots).map_err(|error| StoreError::Refused(error.to_string()))?;
        replace(&self.path, &text).map_err(|error| StoreError::Unknown(error.to_string()))
    }

    fn unknown(&self, error: &std::io::Error) -> StoreError {
        StoreError::Unknown(format!("{}: {error}", self.path.display()))
    }

    fn locked(&self) -> Result<File, StoreError> {
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.lock);
        let file = open.map_err(|error| StoreError::Unknown(format!("{}: {error}", self.lock.display())))?;
        // Held for microseconds by whoever has it, and let go when a process ends.
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| StoreError::Unknown(format!("{}: {error}", self.lock.display())))?;
        Ok(file)
    }

    /// A file that went while agents use it is not made anew by them: with slots that look free from the start, one would
    /// take the slot that another still holds.
    fn read_file(&self) -> Result<Slots, StoreError> {
        let text = fs::read(&self.path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => StoreError::Unknown(format!(
                "{} was removed: put it back, or stop all agents of this pool and start them again",
                self.path.display()
            )),
            _ => self.unknown(&error),
        })?;
        serde_json::from_slice(&text).map_err(|error| StoreError::Refused(error.to_string()))
    }

    fn entry(slots: &Slots, slot: Slot) -> Entry<u64> {
        let (version, record) = slots.slots.get(&slot).map_or_else(
            || (0, Record::open(0, slots.origin)),
            |found| (found.version, found.record.clone()),
        );
        Entry { slot, version, state: SlotState::Open(record) }
    }
}

impl SlotStore for LocalStore {
    type Version = u64;

    async fn load(&self) -> Result<View<u64>, StoreError> {
        let slots = self.look()?;
        let pool = Pool { terms: slots.terms, ..self.pool.clone() };
        let entries = (pool.first..=pool.last).map(|slot| Self::entry(&slots, slot)).collect();
        Ok(View { pool, entries })
    }

    async fn read(&self, slot: Slot) -> Result<Option<Entry<u64>>, StoreError> {
        let slots = self.look()?;
        Ok(self.pool.allows(slot).then(|| Self::entry(&slots, slot)))
    }

    async fn write(&self, slot: Slot, version: &u64, record: &Record) -> Result<u64, StoreError> {
        self.change(|slots| {
            if Self::entry(slots, slot).version != *version {
                return Err(StoreError::Conflict);
            }
            let version = version + 1;
            slots.slots.insert(slot, Versioned { version, record: record.clone() });
            Ok(version)
        })
    }

    fn now(&self) -> Option<StoreTime> {
        let now = host_now();
        Some(StoreTime { earliest: now, latest: now })
    }
}

/// Where the agents of this user share their pools if nobody says otherwise.
///
/// # Errors
/// [`Error::NoDefault`] on a machine without a memory file system in the usual place.
pub(crate) fn default_directory() -> Result<PathBuf, Error> {
    // Not below $XDG_RUNTIME_DIR: a cron job has none, and would share no pool with the agents of a login.
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        return Ok(shm.join(format!("cosid-{}", rustix::process::geteuid().as_raw())));
    }
    Err(Error::NoDefault { what: "the store's directory", option: "--store-dir" })
}

#[cfg(test)]
mod tests {
    use cosid_lease::Owner;
    use cosid_lease::algebra;
    use cosid_lease::conformance::{self, CASES, Fixture, PoolSpec};

    use super::*;

    /// A directory in which each of the suite's pools is made anew.
    struct Machine(tempfile::TempDir);

    impl Fixture for Machine {
        type Store = LocalStore;

        async fn pool(&self, spec: &PoolSpec) -> Result<LocalStore, String> {
            let pool = spec.pool(&format!("suite/{}", spec.name));
            LocalStore::of(&self.0.path().join("store"), pool).map_err(|error| error.to_string())
        }
    }

    #[test]
    fn the_local_store_passes_every_case_of_the_suite() {
        let passed = match pollster::block_on(conformance::run(&Machine(tempfile::tempdir().unwrap()))) {
            Ok(passed) => passed,
            Err(failure) => panic!("{failure}"),
        };
        assert_eq!(passed, CASES);
        println!("{} cases passed", passed.len());
    }

    fn open(directory: &Path) -> LocalStore {
        LocalStore::open(directory, "default/local", 30_000).unwrap()
    }

    #[test]
    fn two_agents_see_one_pool_and_the_slower_write_loses() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("store");
        let (a, b) = (open(&dir), open(&dir));
        let free = pollster::block_on(a.read(5)).unwrap().unwrap();
        let record = free.state.record().unwrap();
        let taken = |key: &str| {
            algebra::acquire(record, &Owner::new(key), host_now(), Terms { ttl: 30_000, tolerance: 1_000 })
                .unwrap()
        };
        assert_eq!(pollster::block_on(a.write(5, &free.version, &taken("a"))), Ok(1));
        assert_eq!(pollster::block_on(b.write(5, &free.version, &taken("b"))), Err(StoreError::Conflict));
        let seen = pollster::block_on(b.load()).unwrap();
        assert_eq!(seen.entries[5].state.record().unwrap().holding().unwrap().owner.key, "a");
        assert_eq!(seen.entries.len(), 1024);
    }

    #[test]
    fn a_new_pools_floor_is_the_time_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let before = host_now();
        let store = open(&dir.path().join("store"));
        let floor = pollster::block_on(store.read(0)).unwrap().unwrap().state.record().unwrap().next_floor;
        assert!((before..=host_now()).contains(&floor));
    }

    #[test]
    fn a_file_that_can_not_be_read_is_refused_by_name_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("store");
        drop(open(&dir));
        let path = dir.join("default@local.slots");
        fs::write(&path, "{\"origin\":").unwrap();
        let error = LocalStore::open(&dir, "default/local", 30_000).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains("move it away"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"origin\":");
    }

    #[test]
    fn a_file_that_is_removed_under_a_running_agent_is_not_made_anew_by_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("store");
        let store = open(&dir);
        let free = pollster::block_on(store.read(5)).unwrap().unwrap();
        let record = free.state.record().unwrap().clone();
        fs::remove_file(dir.join("default@local.slots")).unwrap();
        let removed = |result: Result<(), StoreError>| match result {
            Err(StoreError::Unknown(why)) => assert!(why.contains("was removed"), "{why}"),
            other => panic!("{other:?}"),
        };
        removed(pollster::block_on(store.load()).map(drop));
        removed(pollster::block_on(store.read(5)).map(drop));
        removed(pollster::block_on(store.write(5, &free.version, &record)).map(drop));
        assert!(!dir.join("default@local.slots").exists());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = LocalStore::open(dir.path(), "default/local", 30_000).unwrap_err();
        assert!(matches!(error, Error::NotPrivate { .. }), "{error}");
    }
}
