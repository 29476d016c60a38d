//! What must never be seen: the properties, over every write that the API server does and every ID that is issued.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cosid_id::{Id, Layout, Page};
use cosid_kube::codec;
use cosid_lease::{Fence, Millis, Record, Slot};
use k8s_openapi::api::coordination::v1::Lease;

use super::referee;
use crate::promises::Highest;

/// A page as it was made: a window that IDs come from. Its number tells it from every other page.
struct Window {
    slot: Slot,
    fence: Fence,
    page: Arc<Page>,
    owner: String,
}

impl Window {
    /// The last timestamp that can still come, or can have come, from it.
    fn end(&self) -> Millis {
        if self.page.is_closed() { self.page.last_issued() } else { self.page.ceiling() }
    }
}

/// Who wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Pod(usize),
    Controller(usize),
    Somebody,
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pod(number) => write!(f, "pod-{number}"),
            Self::Controller(number) => write!(f, "controller-{number}"),
            Self::Somebody => write!(f, "somebody"),
        }
    }
}

/// A broken promise.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) slot: Option<Slot>,
    pub(crate) text: String,
}

type Outcome = Result<(), Violation>;

fn broken(slot: Slot, text: String) -> Outcome {
    Err(Violation { slot: Some(slot), text })
}

/// See the [module's text](self).
pub(crate) struct Checker {
    layout: Layout,
    windows: Vec<Window>,
    highest: HashMap<Slot, Highest>,
    issued: HashMap<(Slot, u64), usize>,
    ids: HashSet<u64>,
}

impl Checker {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            windows: Vec::new(),
            highest: HashMap::new(),
            issued: HashMap::new(),
            ids: HashSet::new(),
        }
    }

    pub(crate) fn ids(&self) -> u64 {
        self.ids.len() as u64
    }

    /// A page was made. Windows of one slot are disjoint, and ordered by fence.
    pub(crate) fn held(&mut self, owner: &str, page: Arc<Page>) -> Result<usize, Violation> {
        let slot = page.header().slot;
        let fence = Fence::try_from(page.header().fence).unwrap_or(Fence::MAX);
        if let Some(other) = self.windows.iter().find(|window| (window.slot, window.fence) == (slot, fence)) {
            let text = format!("fence {fence} is held by {owner}, after {} held it", other.owner);
            broken(slot, text)?;
        }
        self.windows.push(Window { slot, fence, page, owner: owner.to_owned() });
        self.disjoint(slot)?;
        Ok(self.windows.len() - 1)
    }

    /// A ceiling was raised, or a page closed.
    pub(crate) fn disjoint(&self, slot: Slot) -> Outcome {
        let mut windows: Vec<&Window> = self.windows.iter().filter(|window| window.slot == slot).collect();
        windows.sort_by_key(|window| window.fence);
        for pair in windows.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            let (end, floor) = (first.end(), second.page.header().floor);
            if end > floor {
                let text = format!(
                    "under fence {} {} can issue up to {end}, under fence {} {} from above {floor}",
                    first.fence, first.owner, second.fence, second.owner
                );
                return broken(slot, text);
            }
        }
        Ok(())
    }

    /// An ID was issued from a page.
    pub(crate) fn issued(&mut self, window: usize, id: Id) -> Outcome {
        let Window { slot, fence, page, owner } = &self.windows[window];
        let slot = *slot;
        let parts = match self.layout.decompose(id) {
            Ok(parts) => parts,
            Err(error) => return broken(slot, format!("{owner} issued {id}, which is no ID: {error}")),
        };
        // An ID of a coarser unit owns all of it.
        let start = parts.timestamp();
        let end = start + u64::from(self.layout.unit_ms()) - 1;
        let (floor, ceiling) = (page.header().floor, page.ceiling());
        if start <= floor || end > ceiling {
            let text = format!(
                "{owner} issued an ID of {start}..={end}, outside its window ({floor}, {ceiling}] of fence {fence}"
            );
            return broken(slot, text);
        }
        if let Some(&other) = self.issued.get(&(slot, end)).filter(|&&other| other != window) {
            let other = &self.windows[other];
            let text = format!(
                "timestamp {start} was issued under fence {} by {} and under fence {fence} by {owner}",
                other.fence, other.owner
            );
            return broken(slot, text);
        }
        self.issued.insert((slot, end), window);
        if !self.ids.insert(id.get()) {
            return broken(slot, format!("{owner} issued {id}, which was issued before"));
        }
        Ok(())
    }

    /// A Lease was written. `latest` is the latest time that anybody can take for the
    /// API server's.
    pub(crate) fn wrote(
        &mut self,
        who: &Who,
        slot: Slot,
        before: Option<&Lease>,
        after: Option<&Lease>,
        latest: Millis,
    ) -> Outcome {
        let record = |lease: Option<&Lease>| lease.and_then(|lease| codec::read(lease).ok().flatten());
        let (old, new) = (record(before), record(after));
        let going =
            |lease: Option<&Lease>| lease.is_some_and(|lease| lease.metadata.deletion_timestamp.is_some());
        let begins_to_go = !going(before) && (going(after) || after.is_none());
        if let (Who::Controller(_), true, Some(holding)) =
            (who, begins_to_go, old.as_ref().and_then(Record::holding))
            && holding.expires_at > latest
        {
            return broken(slot, format!("{who} deletes the Lease of {}, who holds it", holding.owner.key));
        }
        let Some(new) = new else {
            return referee::let_through(who, before, after)
                .or_else(|why| broken(slot, format!("{who} {why}")));
        };
        if let (Who::Pod(_), true) = (who, going(before) && old.as_ref() != Some(&new)) {
            return broken(slot, format!("{who} writes a Lease that is being deleted"));
        }
        let kept = self.highest.entry(slot).or_default().wrote(old.as_ref(), &new);
        kept.or_else(|why| broken(slot, format!("{who} {why}")))?;
        // Last: what it means says more than that it is refused.
        referee::let_through(who, before, after).or_else(|why| broken(slot, format!("{who} {why}")))
    }
}
