//! Owners and their slots: the product's keepers ([`Keeper`]) on a store of a few records.
//!
//! What a network, clocks and processes can do is all there is to choose between: a request is done at any time after it
//! was sent, once, twice or never; its answer comes, late or not at all; the store's clock jumps; an agent is killed and
//! comes back with what it had saved or without; a slot's Lease is deleted, buried in the watermark, made anew and opened.
//!
//! IDs need no steps of their own. A window that stands can be issued from at any time, by any clock, also by an app
//! that stands still for as long as it likes between reading the clock and issuing: so *any* of its timestamps can come
//! as long as its page is open, and no two fences issue one timestamp just if their windows are disjoint. Only at a close
//! it matters what was issued last; there it is anything from nothing to everything.

use std::collections::BTreeSet;

use cosid_lease::keeper::{Answer, Binding, Request};
use cosid_lease::{
    Entry, Event, Fence, Keeper, KeeperConfig, Millis, Now, Owner, Pool, PoolState, Record, Slot, SlotState,
    StoreError, StoreTime, Terms, View,
};
use uuid::Uuid;

use crate::promises::Highest;

/// Small, so that time has few values.
pub(crate) const TERMS: Terms = Terms { ttl: 600, tolerance: 100 };
/// The store's time when a history begins; and how far its clock jumps, either way.
pub(crate) const BASE: Millis = 10_000;
pub(crate) const JUMP: i64 = 900;

/// One configuration: how many of what, and how much may go wrong.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) name: &'static str,
    pub(crate) slots: Slot,
    /// The owners' keys; equal ones are there by mistake.
    pub(crate) keys: &'static [&'static str],
    pub(crate) budget: Budget,
}

/// How often what may go wrong in one history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Requests or answers that are given up; what was sent may still be done later.
    pub(crate) timeouts: u8,
    /// Requests that arrive twice.
    pub(crate) repeats: u8,
    pub(crate) jumps: u8,
    /// Agents killed, with what they saved or without.
    pub(crate) crashes: u8,
    pub(crate) stops: u8,
    pub(crate) deletions: u8,
    /// Leases edited to nonsense; they can be mended.
    pub(crate) edits: u8,
    /// How often time passes.
    pub(crate) passes: u8,
}

/// A slot as it stands in the store, with the version it was last written at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) version: u64,
    pub(crate) state: SlotState,
    /// Its record as it was when it was deleted.
    pub(crate) last: Option<Record>,
    pub(crate) exists: bool,
    pub(crate) highest: Highest,
}

/// What can be issued under one fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    pub(crate) slot: Slot,
    pub(crate) fence: Fence,
    pub(crate) floor: Millis,
    /// The last timestamp that can still come; where it is closed, that can have come.
    pub(crate) end: Millis,
    pub(crate) owner: usize,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub(crate) keeper: Option<Keeper<u64>>,
    /// Its window, and the binding that it has saved.
    pub(crate) window: Option<usize>,
    pub(crate) saved: Option<Binding>,
    pub(crate) closing: bool,
    /// The request that it waits for.
    pub(crate) waits_for: Option<u64>,
    /// The store's clock as the last answer told it: its distance from the true time, ms.
    pub(crate) off: i64,
    pub(crate) lives: u8,
}

/// A request on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) host: usize,
    pub(crate) life: u8,
    pub(crate) id: u64,
    pub(crate) request: Request<u64>,
    pub(crate) done: Option<Result<Reply, StoreError>>,
}

/// What the store answers; a view is made when the answer arrives, of what was there when the request did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Loaded(Vec<Stored>),
    Read(Stored),
    Written(u64),
}

/// All there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) slots: Vec<Stored>,
    pub(crate) watermark: (Fence, Millis),
    pub(crate) mono: Millis,
    /// How far the store's clock is off.
    pub(crate) off: i64,
    pub(crate) hosts: Vec<Host>,
    pub(crate) net: Vec<Message>,
    pub(crate) windows: Vec<Window>,
    pub(crate) left: Budget,
    /// The first promise that was broken on the way here.
    pub(crate) broken: Option<String>,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A request arrives at the store.
    Arrive(usize),
    /// It arrives twice, and the answer is to the second.
    ArriveTwice(usize),
    /// A request arrives whose sender has given it up.
    ArriveLate(usize),
    /// An answer arrives.
    Answer(usize),
    /// An owner waits no longer.
    GiveUp(usize),
    /// Time passes until something is due.
    Pass(Millis),
    /// The store's clock jumps.
    Jump(i64),
    /// A page is closed, with this issued last.
    Close(usize, Millis),
    /// An owner is told to end.
    Stop(usize),
    /// An agent is killed and started again; with what it saved, or without.
    Crash(usize, bool),
    /// A Lease is deleted, buried, made anew, and opened.
    Delete(Slot),
    /// A Lease is edited to nonsense, and mended.
    Break(Slot),
    Mend(Slot),
    Bury(Slot),
    Make(Slot),
    Open(Slot),
}

impl State {
    pub(crate) fn start(bounds: &Bounds) -> Self {
        let state = SlotState::Open(Record::open(0, 0));
        let open = Stored { version: 0, state, last: None, exists: true, highest: Highest::default() };
        let slots = usize::try_from(bounds.slots).unwrap_or(1);
        let mut state = Self {
            slots: vec![open; slots],
            watermark: (0, 0),
            mono: 0,
            off: 0,
            hosts: Vec::new(),
            net: Vec::new(),
            windows: Vec::new(),
            left: bounds.budget,
            broken: None,
        };
        for (number, key) in bounds.keys.iter().enumerate() {
            let now = state.now(0);
            let keeper = Keeper::new(config(key, number, 0), now);
            state.hosts.push(Host {
                keeper: Some(keeper),
                window: None,
                saved: None,
                closing: false,
                waits_for: None,
                off: 0,
                lives: 0,
            });
        }
        state
    }

    /// Time as an owner knows it whose store's clock is off by this. The hosts' clocks go wrong the other way.
    pub(crate) fn now(&self, off: i64) -> Now {
        let right = BASE + self.mono;
        let (store, host) = (right.saturating_add_signed(off), right.saturating_add_signed(-self.off));
        Now { mono: self.mono, host, store: Some(StoreTime { earliest: store, latest: store }) }
    }

    pub(crate) fn break_promise(&mut self, text: String) {
        self.broken.get_or_insert(text);
    }

    /// Windows of one slot are disjoint, and ordered by fence.
    pub(crate) fn check_windows(&mut self, slot: Slot) {
        let mut windows: Vec<&Window> = self.windows.iter().filter(|window| window.slot == slot).collect();
        windows.sort_by_key(|window| window.fence);
        let bad =
            windows.windows(2).find(|pair| pair[0].end > pair[1].floor || pair[0].fence == pair[1].fence);
        if let Some(pair) = bad {
            let text = format!("two fences can issue the same: {:?} and {:?}", pair[0], pair[1]);
            self.break_promise(text);
        }
    }

    /// Gives an owner an event.
    pub(crate) fn tell(&mut self, host: usize, event: Event<u64>) {
        let now = self.now(self.hosts[host].off);
        if let Some(keeper) = &mut self.hosts[host].keeper {
            keeper.handle(event, now);
        }
    }

    /// What an answer says to the keeper.
    pub(crate) fn answer(&self, reply: Reply, slot: Option<Slot>) -> Answer<u64> {
        let entry = |slot: Slot, stored: &Stored| Entry {
            slot,
            version: stored.version,
            state: stored.state.clone(),
        };
        match reply {
            Reply::Loaded(slots) => {
                let there = (0..).zip(&slots).filter(|(_, stored)| stored.exists);
                Answer::Loaded(View {
                    pool: self.pool(),
                    entries: there.map(|(slot, stored)| entry(slot, stored)).collect(),
                })
            }
            Reply::Read(stored) => {
                Answer::Read(slot.filter(|_| stored.exists).map(|slot| entry(slot, &stored)))
            }
            Reply::Written(version) => Answer::Written(version),
        }
    }

    fn pool(&self) -> Pool {
        let last = Slot::try_from(self.slots.len()).unwrap_or(1) - 1;
        Pool {
            name: "ns/p".into(),
            bits: 10,
            first: 0,
            last,
            withheld: BTreeSet::new(),
            terms: TERMS,
            state: PoolState::Ready,
            barrier: 0,
        }
    }

    /// The store does a request.
    pub(crate) fn execute(&mut self, host: usize, request: &Request<u64>) -> Result<Reply, StoreError> {
        match request {
            Request::Load => Ok(Reply::Loaded(self.slots.clone())),
            Request::Read { slot } => Ok(Reply::Read(self.slots[index(*slot)].clone())),
            Request::Write { slot, version, record } | Request::PutBack { slot, version, record, .. } => {
                let stored = &mut self.slots[index(*slot)];
                if !stored.exists {
                    return Err(StoreError::Gone);
                }
                if stored.version != *version || !matches!(stored.state, SlotState::Open(_)) {
                    return Err(StoreError::Conflict);
                }
                let before = std::mem::replace(&mut stored.state, SlotState::Open(record.clone()));
                stored.version += 1;
                let version = stored.version;
                let mut highest = stored.highest;
                let kept = highest.wrote(before.record(), record);
                stored.highest = highest;
                if let Err(why) = kept {
                    self.break_promise(format!("owner {host} {why}"));
                }
                Ok(Reply::Written(version))
            }
        }
    }
}

/// A slot's place.
pub(crate) fn index(slot: Slot) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

/// The configuration of a host's keeper; each life without saved state has an incarnation of its own.
pub(crate) fn config(key: &str, host: usize, life: u8) -> KeeperConfig {
    let number = (host as u128 + 1) << 64 | u128::from(life);
    let incarnation = Uuid::from_u128(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    KeeperConfig { release_timeout: 300, ..KeeperConfig::new(Owner { key: key.into(), incarnation }) }
}
