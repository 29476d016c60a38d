//! What is known of pools and Leases: fed by watches and by the answers to the controller's own writes, read by
//! reconciliations.
//!
//! It may lag. So nothing that uniqueness rests on is decided by it alone: every write carries the `resourceVersion`
//! that was read, and what must be newer than something is read anew.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use cosid_kube::codec::{self, POOL_LABEL};
use cosid_kube::pool::{STORE_REGRESSED, SlotPool, Watermark};
use cosid_lease::regress::went_back;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

/// The most former Leases that are kept for one pool until their history is in its watermark.
const MOST_LOST: usize = 65_536;

/// A pool's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl PoolKey {
    /// Of a pool.
    #[must_use]
    pub fn of(pool: &SlotPool) -> Self {
        Self { namespace: pool.namespace().unwrap_or_default(), name: pool.name_any() }
    }

    /// Of the pool that a Lease's label names.
    #[must_use]
    pub fn of_lease(lease: &Lease) -> Option<Self> {
        let name = lease.metadata.labels.as_ref()?.get(POOL_LABEL)?.clone();
        Some(Self { namespace: lease.namespace()?, name })
    }
}

impl std::fmt::Display for PoolKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a change of a Lease means to its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: a renewal.
    Nothing,
    /// Its counts: another holder.
    Counts,
    /// There is something to do: it came, went, is being deleted, or is not as it should be.
    Work,
}

/// A pool as it is known.
#[derive(Clone, Debug, Default)]
pub struct PoolView {
    /// The pool; `None` where there is none, but there are Leases of one.
    pub pool: Option<Arc<SlotPool>>,
    /// Its Leases by name.
    pub leases: BTreeMap<String, Arc<Lease>>,
    /// Leases that went, or lost their record, without the controller: as they were last seen. Their history may be in
    /// nobody's care.
    pub lost: Vec<Arc<Lease>>,
    /// What speaks for a store that went backwards.
    pub signs: Signs,
}

/// What speaks for it that the API server's store went backwards, and was not judged yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signs {
    /// Leases as they were known, by name, of which earlier states were listed. A list that was slow shows those too: only
    /// a fresh one tells.
    pub leases: BTreeMap<String, Arc<Lease>>,
    /// The pool's watermark as it was known, where a lower one came.
    pub watermark: Option<Watermark>,
    /// It is known, and how.
    pub known: Option<String>,
}

/// See the [module's text](self).
#[derive(Debug, Default)]
pub struct Index {
    pools: HashMap<PoolKey, Arc<SlotPool>>,
    leases: HashMap<PoolKey, BTreeMap<String, Arc<Lease>>>,
    lost: HashMap<PoolKey, Vec<Arc<Lease>>>,
    signs: HashMap<PoolKey, Signs>,
    /// Under which pool a Lease is filed, by its namespace and name: its label may change.
    filed: HashMap<(String, String), PoolKey>,
}

impl Index {
    /// All that is known of a pool.
    #[must_use]
    pub fn view(&self, key: &PoolKey) -> PoolView {
        PoolView {
            pool: self.pools.get(key).cloned(),
            leases: self.leases.get(key).cloned().unwrap_or_default(),
            lost: self.lost.get(key).cloned().unwrap_or_default(),
            signs: self.signs.get(key).cloned().unwrap_or_default(),
        }
    }

    /// Every pool there is, or of which there are Leases.
    #[must_use]
    pub fn keys(&self) -> HashSet<PoolKey> {
        let pools = self.pools.keys().chain(self.leases.keys());
        pools.chain(self.lost.keys()).chain(self.signs.keys()).cloned().collect()
    }

    /// Every pool.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<SlotPool>> {
        self.pools.values()
    }

    /// Takes in a pool.
    pub fn put_pool(&mut self, pool: SlotPool) -> PoolKey {
        let key = PoolKey::of(&pool);
        if let Some(before) = self.pools.get(&key) {
            if pool.is(STORE_REGRESSED) && !before.is(STORE_REGRESSED) {
                // It was judged, by this replica or by the one that leads.
                self.signs.remove(&key);
            } else if let Some(known) = lowered(before, &pool) {
                self.signs.entry(key.clone()).or_default().watermark.get_or_insert(known);
            }
        }
        self.pools.insert(key.clone(), Arc::new(pool));
        key
    }

    /// Forgets a pool.
    pub fn drop_pool(&mut self, key: &PoolKey) {
        self.pools.remove(key);
    }

    /// Forgets the pools that a complete list did not have, and gives their keys.
    pub fn retain_pools(&mut self, listed: &HashSet<PoolKey>) -> Vec<PoolKey> {
        let gone: Vec<PoolKey> = self.pools.keys().filter(|key| !listed.contains(key)).cloned().collect();
        for key in &gone {
            self.pools.remove(key);
        }
        gone
    }

    /// Takes in a Lease, unless a newer version of it is known, and says what that means, to which pool.
    pub fn put_lease(&mut self, lease: Lease) -> Option<(PoolKey, Change)> {
        if self.filed(&lease).is_some_and(|filed| is_older(&lease, filed)) {
            return None;
        }
        self.list_lease(lease)
    }

    /// Takes in a Lease of a complete list, whatever is known: an API server that was restored begins at old versions.
    pub fn list_lease(&mut self, mut lease: Lease) -> Option<(PoolKey, Change)> {
        lease.metadata.managed_fields = None;
        let key = PoolKey::of_lease(&lease)?;
        let name = lease.name_any();
        let before = self.unfile(&lease).filter(|before| before.0 == key).map(|before| before.1);
        let change = before.as_deref().map_or(Change::Work, |before| compare(before, &lease, &key.name));
        if let Some(before) = before.as_ref().filter(|before| has_lost_its_history(before, &lease)) {
            self.lose(&key, Arc::clone(before));
        }
        if let Some(before) = before.filter(|before| is_earlier(before, &lease)) {
            self.signs.entry(key.clone()).or_default().leases.entry(name.clone()).or_insert(before);
        }
        self.filed.insert((key.namespace.clone(), name.clone()), key.clone());
        self.leases.entry(key.clone()).or_default().insert(name, Arc::new(lease));
        Some((key, change))
    }

    /// Takes in that a Lease has gone. `by_us`: the controller let it go, with its history in the watermark.
    pub fn drop_lease(&mut self, lease: &Lease, by_us: bool) -> Option<PoolKey> {
        // What stands there may be another one by now.
        if self.filed(lease)?.uid() != lease.uid() {
            return None;
        }
        let (key, before) = self.unfile(lease)?;
        if !by_us {
            self.lose(&key, before);
        }
        Some(key)
    }

    /// Drops the Leases that a complete list did not have (by namespace and name), and gives their pools.
    pub fn retain_leases(&mut self, listed: &HashSet<(String, String)>) -> HashSet<PoolKey> {
        let gone: Vec<(String, String)> =
            self.filed.keys().filter(|name| !listed.contains(name)).cloned().collect();
        let mut pools = HashSet::new();
        for (namespace, name) in gone {
            if let Some((key, before)) = self.unfile_name(namespace, name) {
                self.lose(&key, before);
                pools.insert(key);
            }
        }
        pools
    }

    /// The history of these former Leases is in the watermark.
    pub fn settled(&mut self, key: &PoolKey, lost: &[Arc<Lease>]) {
        if let Some(kept) = self.lost.get_mut(key) {
            kept.retain(|lease| !lost.iter().any(|settled| Arc::ptr_eq(settled, lease)));
            if kept.is_empty() {
                self.lost.remove(key);
            }
        }
    }

    /// Forgets all former Leases, and all signs: another replica leads, sees them too, and keeps their history.
    pub fn forget_lost(&mut self) {
        self.lost.clear();
        self.signs.clear();
    }

    /// The store went backwards, by what this says: that is a sign for each pool that is known.
    pub fn suspect(&mut self, how: &str) {
        for key in self.keys() {
            self.signs.entry(key).or_default().known.get_or_insert_with(|| how.to_owned());
        }
    }

    /// These signs have been judged; others may have come meanwhile.
    pub fn judged(&mut self, key: &PoolKey, signs: &Signs) {
        let Some(kept) = self.signs.get_mut(key) else { return };
        kept.leases
            .retain(|name, lease| signs.leases.get(name).is_none_or(|judged| !Arc::ptr_eq(judged, lease)));
        kept.watermark = kept.watermark.filter(|_| kept.watermark != signs.watermark);
        kept.known = kept.known.take().filter(|known| Some(known) != signs.known.as_ref());
        if *kept == Signs::default() {
            self.signs.remove(key);
        }
    }

    fn filed(&self, lease: &Lease) -> Option<&Arc<Lease>> {
        let key = self.filed.get(&(lease.namespace()?, lease.name_any()))?;
        self.leases.get(key)?.get(&lease.name_any())
    }

    fn unfile(&mut self, lease: &Lease) -> Option<(PoolKey, Arc<Lease>)> {
        self.unfile_name(lease.namespace()?, lease.name_any())
    }

    fn unfile_name(&mut self, namespace: String, name: String) -> Option<(PoolKey, Arc<Lease>)> {
        let filed = (namespace, name);
        let key = self.filed.remove(&filed)?;
        let leases = self.leases.get_mut(&key)?;
        let lease = leases.remove(&filed.1);
        if leases.is_empty() {
            self.leases.remove(&key);
        }
        Some((key, lease?))
    }

    fn lose(&mut self, key: &PoolKey, lease: Arc<Lease>) {
        let has_history = codec::slot_of(&lease, &key.name).is_some() && !is_shut(&lease);
        let lost = self.lost.entry(key.clone()).or_default();
        if has_history && lost.len() < MOST_LOST {
            lost.push(lease);
        }
        if lost.is_empty() {
            self.lost.remove(key);
        }
    }
}

/// Versions of one API server can be compared as numbers. Where they can't be, the newcomer counts as newer: a write
/// with an old one is refused anyway.
fn is_older(lease: &Lease, than: &Lease) -> bool {
    let version = |lease: &Lease| lease.resource_version()?.parse::<u64>().ok();
    matches!((version(lease), version(than)), (Some(lease), Some(than)) if lease < than)
}

/// Whether a Lease shows an earlier state of its slot than was known.
fn is_earlier(known: &Lease, lease: &Lease) -> bool {
    let records = (codec::read(known), codec::read(lease));
    matches!(&records, (Ok(Some(known)), Ok(Some(found))) if went_back(known, found))
}

/// The watermark as it was known, where the same pool has a lower one now.
fn lowered(before: &SlotPool, pool: &SlotPool) -> Option<Watermark> {
    let watermark = |pool: &SlotPool| pool.status.as_ref()?.watermark;
    let (known, found) = (watermark(before)?, watermark(pool)?);
    let is_lower = found.next_floor < known.next_floor || found.fence < known.fence;
    (is_lower && before.uid() == pool.uid()).then_some(known)
}

fn is_shut(lease: &Lease) -> bool {
    matches!(codec::read(lease), Ok(None))
}

/// Whether a Lease is another one by now, or looks as if it had never been opened.
fn has_lost_its_history(before: &Lease, after: &Lease) -> bool {
    !is_shut(before) && (before.uid() != after.uid() || is_shut(after))
}

fn compare(before: &Lease, after: &Lease, pool: &str) -> Change {
    use cosid_lease::SlotState::Open;
    let other = before.uid() != after.uid()
        || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
        || before.metadata.finalizers != after.metadata.finalizers
        || before.metadata.labels != after.metadata.labels
        || before.metadata.owner_references != after.metadata.owner_references
        || before.annotations().get(codec::STORE_REGRESSED)
            != after.annotations().get(codec::STORE_REGRESSED);
    match (codec::decode(before, pool), codec::decode(after, pool)) {
        _ if other => Change::Work,
        (Open(before), Open(after)) if before.fence == after.fence => {
            let owner = |record: &cosid_lease::Record| record.holding().map(|holding| holding.owner.clone());
            let renewed = before.holding().is_some() && owner(&before) == owner(&after);
            if renewed || before == after { Change::Nothing } else { Change::Counts }
        }
        (Open(_), Open(_)) => Change::Counts,
        (before, after) if before == after => Change::Nothing,
        _ => Change::Work,
    }
}

#[cfg(test)]
mod tests {
    use cosid_kube::SlotPoolSpec;
    use cosid_lease::{Owner, Record, Terms, algebra};

    use super::*;

    const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };

    fn key() -> PoolKey {
        PoolKey { namespace: "shop".into(), name: "orders".into() }
    }

    fn lease(uid: &str, version: u64, record: Option<&Record>) -> Lease {
        let mut pool = SlotPool::new("orders", SlotPoolSpec::default());
        pool.metadata.namespace = Some("shop".into());
        let mut lease = codec::new_lease(&pool, 3);
        lease.metadata.uid = Some(uid.into());
        lease.metadata.resource_version = Some(version.to_string());
        record.map_or(lease.clone(), |record| codec::encode(&lease, record, 30, None).unwrap())
    }

    #[test]
    fn only_what_matters_to_a_pool_is_a_change() {
        let (a, b) = (Owner::new("a"), Owner::new("b"));
        let held = algebra::acquire(&Record::open(0, 5), &a, 1_000, TERMS).unwrap();
        let renewed = algebra::renew(&held, a.incarnation, 1, 9_000, TERMS).unwrap();
        let taken = algebra::acquire(&renewed, &b, 99_000, TERMS).unwrap();
        let freed = algebra::release(&taken, b.incarnation, 2, 0).unwrap();
        let far = Record { next_floor: u64::MAX >> 2, ..freed.clone() };
        let steps = [
            ("made", lease("u", 1, None), Change::Work),
            ("opened", lease("u", 2, Some(&Record::open(0, 5))), Change::Work),
            ("acquired", lease("u", 3, Some(&held)), Change::Counts),
            ("renewed", lease("u", 4, Some(&renewed)), Change::Nothing),
            ("taken", lease("u", 5, Some(&taken)), Change::Counts),
            ("freed", lease("u", 6, Some(&freed)), Change::Counts),
            ("seen again", lease("u", 7, Some(&freed)), Change::Nothing),
            ("edited", lease("u", 8, Some(&far)), Change::Counts),
        ];
        let mut index = Index::default();
        for (name, lease, expected) in steps {
            assert_eq!(index.put_lease(lease), Some((key(), expected)), "{name}");
        }
        let mut bare = lease("u", 9, Some(&far));
        bare.metadata.finalizers = None;
        assert_eq!(index.put_lease(bare), Some((key(), Change::Work)));
    }

    #[test]
    fn an_old_version_is_not_believed_but_in_a_complete_list() {
        let mut index = Index::default();
        index.put_lease(lease("u", 10, Some(&Record::open(0, 5))));
        assert_eq!(index.put_lease(lease("u", 9, None)), None);
        let version = |index: &Index| index.view(&key()).leases["orders-3"].resource_version();
        assert_eq!(version(&index).as_deref(), Some("10"));
        // An API server restored from a snapshot counts from before.
        assert!(index.list_lease(lease("u", 4, Some(&Record::open(0, 5)))).is_some());
        assert_eq!(version(&index).as_deref(), Some("4"));
    }

    #[test]
    fn a_history_that_went_without_the_controller_is_remembered_until_it_is_settled() {
        let used = lease("u", 1, Some(&Record::open(4, 500)));
        type Go = fn(&mut Index);
        let gone: [(&str, Go); 4] = [
            ("deleted", |index| drop(index.drop_lease(&lease("u", 2, None), false))),
            ("not in a list", |index| drop(index.retain_leases(&HashSet::new()))),
            ("another one by now", |index| drop(index.put_lease(lease("v", 2, None)))),
            ("emptied by hand", |index| drop(index.put_lease(lease("u", 2, None)))),
        ];
        for (name, go) in gone {
            let mut index = Index::default();
            index.put_lease(used.clone());
            go(&mut index);
            let lost = index.view(&key()).lost;
            assert_eq!(lost.len(), 1, "{name}");
            assert_eq!(codec::read(&lost[0]).unwrap(), Some(Record::open(4, 500)), "{name}");
            assert!(index.keys().contains(&key()), "{name}");
            index.settled(&key(), &lost);
            assert!(index.view(&key()).lost.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_the_controller_let_go_or_nobody_used_leaves_nothing_behind() {
        let mut index = Index::default();
        index.put_lease(lease("u", 1, Some(&Record::open(4, 500))));
        index.drop_lease(&lease("u", 2, None), true);
        index.put_lease(lease("v", 3, None));
        // A late event about the one before.
        assert_eq!(index.drop_lease(&lease("u", 2, None), false), None);
        assert_eq!(index.view(&key()).leases.len(), 1);
        index.drop_lease(&lease("v", 4, None), false);
        assert!(index.keys().is_empty());
    }

    #[test]
    fn a_lease_whose_label_changed_leaves_its_pool() {
        let mut index = Index::default();
        index.put_lease(lease("u", 1, Some(&Record::open(4, 500))));
        let mut moved = lease("u", 2, Some(&Record::open(4, 500)));
        moved.labels_mut().insert(POOL_LABEL.into(), "other".into());
        index.put_lease(moved);
        assert!(index.view(&key()).leases.is_empty());
    }
}
