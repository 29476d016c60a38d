//! Kubernetes Events: what people see with `kubectl describe slotpool`.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use cosid_kube::codec::lease_name;
use cosid_kube::pool::SlotPool;
use cosid_lease::Slot;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource, ResourceExt};
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

use crate::index::PoolKey;
use crate::moment::moment;
use crate::reconcile::observe::{Slots, State};

/// How many events a pool gets at once; the status names what is beyond.
const MOST_AT_ONCE: usize = 16;
/// How many wait to be sent; those beyond are dropped.
const MOST_WAITING: usize = 256;
/// The API server takes notes of up to 1 KiB.
const LONGEST_NOTE: usize = 1_000;

/// Something about a pool that people want to know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// Slots can be acquired now.
    Ready,
    /// No slot is to be had now.
    Exhausted,
    /// A deletion waits for holders.
    DeletionWaits,
    /// A slot is passed over.
    Quarantined {
        /// Which.
        slot: Slot,
        /// Why.
        why: String,
    },
    /// A slot is never leased again.
    Retired {
        /// Which.
        slot: Slot,
        /// Why.
        why: String,
    },
    /// Several owners hold slots under one key.
    DuplicateOwner {
        /// The key.
        key: String,
        /// Their slots.
        slots: BTreeSet<Slot>,
    },
    /// The store went backwards.
    StoreRegressed {
        /// What the condition says.
        message: String,
    },
    /// A barrier is above all that it may have lost.
    Recovered {
        /// Unix ms.
        barrier: i64,
    },
    /// The pool can't be reconciled.
    Failed {
        /// A word for it.
        reason: &'static str,
        /// Why.
        why: String,
    },
}

impl Fact {
    fn event(&self, pool: &SlotPool) -> Event {
        use EventType::{Normal, Warning};
        let (type_, reason, action, note) = match self {
            Self::Ready => (Normal, "Ready", "Provision", "Slots can be acquired.".to_owned()),
            Self::Exhausted => (
                Warning,
                "Exhausted",
                "Count",
                "Every slot is held or withheld: newcomers wait. A larger slot range gives room at once, where the layout has \
                 bits for more slots; else use another pool beside this one."
                    .to_owned(),
            ),
            Self::DeletionWaits => (
                Normal,
                "DeletionWaits",
                "Delete",
                "Slots are still held: the pool goes once they are released or expired.".to_owned(),
            ),
            Self::Quarantined { slot, why } => {
                (Warning, "SlotPassedOver", "Read", format!("Slot {slot} is passed over: {why}"))
            }
            Self::Retired { slot, why } => (
                Warning,
                "SlotRetired",
                "Retire",
                format!("Slot {slot} is never leased again: {why}. The watermark stays where it is."),
            ),
            Self::DuplicateOwner { key, slots } => (
                Warning,
                "DuplicateOwner",
                "Count",
                format!(
                    "{key} holds slots {slots:?} at once: several owners believe to be the same. No ID repeats; give each its own key."
                ),
            ),
            Self::StoreRegressed { message } => (Warning, "StoreRegressed", "Compare", message.clone()),
            Self::Recovered { barrier } => (
                Normal,
                "Recovered",
                "Recover",
                format!(
                    "No slot begins below {}: above all that the store may have lost.",
                    moment(*barrier)
                ),
            ),
            Self::Failed { reason, why } => (Warning, *reason, "Reconcile", why.clone()),
        };
        let note = Some(note.chars().take(LONGEST_NOTE).collect());
        Event {
            type_,
            reason: reason.to_owned(),
            note,
            action: action.to_owned(),
            secondary: self.lease(pool),
        }
    }

    /// The Lease it is about: events of the same kind about others stay apart.
    fn lease(&self, pool: &SlotPool) -> Option<ObjectReference> {
        let slot = match self {
            Self::Quarantined { slot, .. } | Self::Retired { slot, .. } => slot,
            Self::DuplicateOwner { slots, .. } => slots.first()?,
            _ => return None,
        };
        Some(ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: pool.namespace(),
            name: Some(lease_name(&pool.name_any(), *slot)),
            ..ObjectReference::default()
        })
    }
}

/// What is odd about a pool's slots.
#[must_use]
pub fn oddities(slots: &Slots) -> BTreeSet<Fact> {
    let passed = slots.0.iter().filter_map(|(&slot, seen)| match &seen.state {
        State::Corrupt(why) | State::PassedOver(why) => Some(Fact::Quarantined { slot, why: why.clone() }),
        _ => None,
    });
    let duplicates = slots.duplicates().into_iter();
    passed.chain(duplicates.map(|(key, slots)| Fact::DuplicateOwner { key: key.to_owned(), slots })).collect()
}

/// Where events are handed in. Clones share it.
#[derive(Clone, Debug)]
pub struct Post(mpsc::Sender<(ObjectReference, Event)>);

impl Post {
    /// Sends events from a task of its own, which ends with the last clone: nobody waits for them.
    #[must_use]
    pub fn start(client: Client, replica: String) -> Self {
        let (outbox, mut inbox) = mpsc::channel::<(ObjectReference, Event)>(MOST_WAITING);
        let reporter = Reporter { controller: "cosid.dev/controller".to_owned(), instance: Some(replica) };
        let recorder = Recorder::new(client, reporter);
        tokio::spawn(async move {
            while let Some((about, event)) = inbox.recv().await {
                if let Err(error) = recorder.publish(&event, &about).await {
                    tracing::debug!(%error, reason = event.reason, "an event could not be written");
                }
            }
        });
        Self(outbox)
    }

    /// Hands in an event about an object. Where the API server can't take so many, it is dropped: the log has it.
    pub fn send(&self, about: ObjectReference, event: Event) {
        let _ = self.0.try_send((about, event));
    }
}

/// Tells each fact once, as long as it lasts.
#[derive(Debug)]
pub struct Announcer {
    post: Post,
    told: Mutex<HashMap<PoolKey, BTreeSet<Fact>>>,
}

impl Announcer {
    /// Tells by this way.
    #[must_use]
    pub fn new(post: Post) -> Self {
        Self { post, told: Mutex::default() }
    }

    /// What is so now: what was not so before is told.
    pub fn now(&self, pool: &SlotPool, facts: BTreeSet<Fact>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = told.entry(PoolKey::of(pool)).or_default();
        for fact in facts.difference(before).take(MOST_AT_ONCE) {
            self.tell(pool, fact);
        }
        *before = facts;
        if before.is_empty() {
            told.remove(&PoolKey::of(pool));
        }
    }

    /// Tells something that happened.
    pub fn tell(&self, pool: &SlotPool, fact: &Fact) {
        let event = fact.event(pool);
        tracing::info!(pool = %pool.full_name(), reason = event.reason, "{}", event.note.as_deref().unwrap_or_default());
        self.post.send(pool.object_ref(&()), event);
    }
}
