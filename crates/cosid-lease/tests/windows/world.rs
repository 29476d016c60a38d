//! Owners, a store, a network that does what it likes, and windows that are issued from to the end.

use std::collections::{BTreeSet, HashMap};

use cosid_lease::keeper::{Answer, Binding, Request};
use cosid_lease::memory::MemoryStore;
use cosid_lease::{
    Action, Event, Fence, Keeper, KeeperConfig, Millis, Now, Owner, Pool, PoolState, Record, Report, Slot,
    SlotStore, StoreError, StoreTime, Terms,
};
use pollster::block_on;
use uuid::Uuid;

use crate::history::{Kept, Op, Seen};

const BASE: Millis = 1_700_000_000_000;

/// What can be issued under one fence: above `floor`, up to the highest `ceiling` its holder was ever told.
#[derive(Debug)]
struct Window {
    slot: Slot,
    fence: Fence,
    floor: Millis,
    ceiling: Millis,
    last: Millis,
    open: bool,
    /// Closed for a release: what was issued last is all that counts.
    released: bool,
}

impl Window {
    fn end(&self) -> Millis {
        if self.released { self.last } else { self.ceiling }
    }
}

struct Host {
    key: String,
    keeper: Option<Keeper<u64>>,
    /// Which run of the agent: an answer to an earlier one reaches nobody.
    run: u32,
    waiting: Option<u64>,
    window: Option<usize>,
    /// The binding as it was acquired, and as it is by now.
    state: Option<(Binding, Binding)>,
    closing: bool,
    stopping: bool,
}

struct Message {
    host: usize,
    run: u32,
    id: u64,
    request: Request<u64>,
    result: Option<Result<Answer<u64>, StoreError>>,
}

pub(crate) struct World {
    store: MemoryStore,
    mono: Millis,
    store_off: i64,
    incarnations: u128,
    hosts: Vec<Host>,
    windows: Vec<Window>,
    messages: Vec<Message>,
    issued: HashMap<(Slot, Millis), Fence>,
    pub(crate) seen: Seen,
}

type Outcome<T = ()> = Result<T, String>;

impl World {
    pub(crate) fn new(slots: Slot, hosts: usize) -> Self {
        let terms = Terms { ttl: 30_000, tolerance: 1_000 };
        let (withheld, state) = (BTreeSet::new(), PoolState::Ready);
        let pool = Pool {
            name: "ns/p".into(),
            bits: 10,
            first: 0,
            last: slots - 1,
            withheld,
            terms,
            state,
            barrier: 0,
        };
        let store = MemoryStore::new(pool, || StoreTime { earliest: BASE, latest: BASE });
        let mut world = Self {
            store,
            mono: 0,
            store_off: 0,
            incarnations: 0,
            hosts: Vec::new(),
            windows: Vec::new(),
            messages: Vec::new(),
            issued: HashMap::new(),
            seen: Seen::default(),
        };
        for number in 0..hosts {
            world.hosts.push(Host {
                // Two of them have the same key by mistake.
                key: format!("owner-{}", number.saturating_sub(1)),
                keeper: None,
                run: 0,
                waiting: None,
                window: None,
                state: None,
                closing: false,
                stopping: false,
            });
            world.start(number, None);
        }
        world
    }

    fn now(&self) -> Now {
        let store = (BASE + self.mono).strict_add_signed(self.store_off);
        Now { mono: self.mono, host: 0, store: Some(StoreTime { earliest: store, latest: store }) }
    }

    fn start(&mut self, host: usize, resumed: Option<Binding>) {
        self.incarnations += 1;
        let now = self.now();
        let incarnation =
            Uuid::from_u128(self.incarnations.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let host = &mut self.hosts[host];
        let config = KeeperConfig::new(Owner { key: host.key.clone(), incarnation });
        if resumed.is_none() {
            host.window = None;
            host.state = None;
        }
        host.keeper = Some(match resumed {
            Some(binding) => Keeper::resume(config, binding, now),
            None => Keeper::new(config, now),
        });
        host.run += 1;
        host.waiting = None;
        host.closing = false;
        host.stopping = false;
    }

    pub(crate) fn apply(&mut self, op: Op) -> Outcome {
        let hosts = self.hosts.len();
        match op {
            Op::Go(host) => self.go(host % hosts),
            Op::Wake(host) => {
                let wake_at = self.hosts[host % hosts].keeper.as_ref().and_then(Keeper::wake_at);
                self.mono = self.mono.max(wake_at.unwrap_or(0));
                self.go(host % hosts)
            }
            Op::Ask(host) => self.ask(host % hosts).map(drop),
            Op::Arrive(index) if !self.messages.is_empty() => {
                let index = index % self.messages.len();
                self.arrive(index)
            }
            Op::Answer(index) if !self.messages.is_empty() => {
                let index = index % self.messages.len();
                if self.messages[index].result.is_none() {
                    self.arrive(index)?;
                }
                self.answer(index);
                Ok(())
            }
            Op::Arrive(_) | Op::Answer(_) => Ok(()),
            Op::GiveUp(host) => {
                let now = self.now();
                let host = &mut self.hosts[host % hosts];
                if let (Some(id), Some(keeper)) = (host.waiting.take(), &mut host.keeper) {
                    let result = Err(StoreError::Unknown("deadline".into()));
                    keeper.handle(Event::Answered { id, result }, now);
                }
                Ok(())
            }
            Op::Pass(by) => {
                self.mono += by;
                Ok(())
            }
            Op::Jump(by) => {
                self.store_off += by;
                Ok(())
            }
            Op::Issue(window, by) => self.issue(window, by),
            Op::Stop(host) => {
                let now = self.now();
                let host = &mut self.hosts[host % hosts];
                host.stopping = true;
                if let Some(keeper) = &mut host.keeper {
                    keeper.handle(Event::Stop, now);
                }
                Ok(())
            }
            Op::Close(host) => self.close(host % hosts),
            Op::Crash(host, kept) => {
                let state = self.hosts[host % hosts].state.clone();
                let resumed = match kept {
                    Kept::Nothing => None,
                    Kept::AsAcquired => state.map(|(acquired, _)| acquired),
                    Kept::AsRenewed => state.map(|(_, renewed)| renewed),
                };
                self.start(host % hosts, resumed);
                Ok(())
            }
            Op::Start(host) => {
                if self.hosts[host % hosts].keeper.is_none() {
                    self.start(host % hosts, None);
                }
                Ok(())
            }
        }
    }

    fn go(&mut self, host: usize) -> Outcome {
        for _ in 0..24 {
            let sent = self.ask(host)?;
            if self.hosts[host].closing {
                self.close(host)?;
            } else if sent {
                let index = self.messages.len() - 1;
                self.arrive(index)?;
                self.answer(index);
            } else {
                break;
            }
        }
        Ok(())
    }

    /// A host does what is due. Whether its last action was a request.
    fn ask(&mut self, host: usize) -> Outcome<bool> {
        let mut sent = false;
        loop {
            let now = self.now();
            let Some(keeper) = &mut self.hosts[host].keeper else { return Ok(sent) };
            let Some(action) = keeper.poll(now) else { return Ok(sent) };
            match action {
                Action::Send { id, request, .. } => {
                    let run = self.hosts[host].run;
                    self.hosts[host].waiting = Some(id);
                    if self.messages.len() == 48 {
                        self.messages.remove(0);
                    }
                    self.messages.push(Message { host, run, id, request, result: None });
                    sent = true;
                }
                Action::Hold(binding) => self.hold(host, binding)?,
                Action::Extend { ceiling, .. } => self.extend(host, ceiling)?,
                Action::Close => self.hosts[host].closing = true,
                Action::Report(report) => self.count(&report),
                Action::Waiting(_) => {}
                Action::Finish => self.hosts[host].keeper = None,
            }
        }
    }

    fn count(&mut self, report: &Report) {
        match report {
            Report::Released { .. } => self.seen.released += 1,
            Report::Lost { .. } => self.seen.lost += 1,
            Report::Resumed { .. } => self.seen.resumed += 1,
            _ => {}
        }
    }

    fn hold(&mut self, host: usize, binding: Binding) -> Outcome {
        let (slot, fence) = (binding.slot, binding.fence);
        if self.windows.iter().any(|window| (window.slot, window.fence) == (slot, fence)) {
            return Err(format!("slot {slot} is given out twice under fence {fence}"));
        }
        let before =
            self.windows.iter().filter(|window| window.slot == slot).max_by_key(|window| window.fence);
        self.seen.taken_over +=
            u32::from(before.is_some_and(|before| before.fence < fence && !before.released));
        self.seen.acquired += 1;
        let (floor, ceiling) = (binding.holding.floor, binding.holding.ceiling);
        self.windows.push(Window { slot, fence, floor, ceiling, last: floor, open: true, released: false });
        self.hosts[host].window = Some(self.windows.len() - 1);
        self.hosts[host].state = Some((binding.clone(), binding));
        self.check(slot)
    }

    fn extend(&mut self, host: usize, ceiling: Millis) -> Outcome {
        let host = &mut self.hosts[host];
        let Some(index) = host.window else { return Err("a window that is not there is extended".into()) };
        if let Some((_, renewed)) = &mut host.state {
            renewed.holding.ceiling = ceiling;
        }
        let window = &mut self.windows[index];
        window.ceiling = window.ceiling.max(ceiling);
        let slot = window.slot;
        self.check(slot)
    }

    fn close(&mut self, host: usize) -> Outcome {
        let now = self.now();
        let host = &mut self.hosts[host];
        if !std::mem::take(&mut host.closing) {
            return Ok(());
        }
        let Some(index) = host.window.take() else {
            return Err("a window that is not there is closed".into());
        };
        host.state = None;
        let window = &mut self.windows[index];
        window.open = false;
        window.released = host.stopping;
        let event = Event::Closed { last_issued: window.last };
        if let Some(keeper) = &mut host.keeper {
            keeper.handle(event, now);
        }
        Ok(())
    }

    /// The windows of this slot are disjoint and ordered by fence.
    fn check(&self, slot: Slot) -> Outcome {
        let mut windows: Vec<&Window> = self.windows.iter().filter(|window| window.slot == slot).collect();
        windows.sort_by_key(|window| window.fence);
        match windows.windows(2).find(|pair| pair[0].end() > pair[1].floor) {
            Some(pair) => Err(format!("two fences can issue the same: {pair:?}")),
            None => Ok(()),
        }
    }

    fn issue(&mut self, index: usize, by: Millis) -> Outcome {
        let usable: Vec<usize> = (0..self.windows.len())
            .filter(|&index| {
                self.windows[index].open && self.windows[index].last < self.windows[index].ceiling
            })
            .collect();
        let Some(&index) = usable.get(index.checked_rem(usable.len()).unwrap_or(0)) else { return Ok(()) };
        let window = &mut self.windows[index];
        window.last += 1 + by % (window.ceiling - window.last);
        self.seen.issued += 1;
        let (slot, fence, timestamp) = (window.slot, window.fence, window.last);
        match self.issued.insert((slot, timestamp), fence) {
            Some(other) => Err(format!("slot {slot}: {timestamp} issued under fences {other} and {fence}")),
            None => Ok(()),
        }
    }

    fn record(&self, slot: Slot) -> Option<Record> {
        block_on(self.store.read(slot)).ok()??.state.record().cloned()
    }

    /// A request is done at the store: fences and next floors only grow, but for the exact hand-over of a release.
    fn arrive(&mut self, index: usize) -> Outcome {
        let message = &self.messages[index];
        let result = match message.request.clone() {
            Request::Load => block_on(self.store.load()).map(Answer::Loaded),
            Request::Read { slot } => block_on(self.store.read(slot)).map(Answer::Read),
            Request::Write { slot, version, record } | Request::PutBack { slot, version, record, .. } => {
                let before = self.record(slot).ok_or("the slot is gone")?;
                let written = block_on(self.store.write(slot, &version, &record));
                let after = self.record(slot).ok_or("the slot is gone")?;
                sound(&before, &after)?;
                let host = &self.hosts[message.host];
                let late = host.run != message.run || host.waiting != Some(message.id);
                self.seen.late += u32::from(late && written.is_ok());
                self.seen.repeated += u32::from(message.result.is_some());
                written.map(Answer::Written)
            }
        };
        self.messages[index].result = Some(result);
        Ok(())
    }

    fn answer(&mut self, index: usize) {
        let now = self.now();
        let Message { host, run, id, result, .. } = &self.messages[index];
        let host = &mut self.hosts[*host];
        if host.run == *run
            && let (Some(keeper), Some(result)) = (&mut host.keeper, result)
        {
            host.waiting.take_if(|waiting| waiting == id);
            keeper.handle(Event::Answered { id: *id, result: result.clone() }, now);
        }
    }
}

fn sound(before: &Record, after: &Record) -> Outcome {
    let handed_over =
        before.holding().is_some() && after.holding().is_none() && after.fence == before.fence + 1;
    let grown = after.next_floor >= before.next_floor;
    let fence = after.fence == before.fence || after.fence == before.fence + 1;
    if fence && (grown || handed_over) { Ok(()) } else { Err(format!("{before:?} became {after:?}")) }
}
