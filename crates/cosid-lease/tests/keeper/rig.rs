//! A keeper, a store in memory, and the time between them.

use std::collections::BTreeSet;

use cosid_lease::keeper::{Answer, Binding, Request};
use cosid_lease::memory::MemoryStore;
use cosid_lease::{
    Action, Event, Keeper, KeeperConfig, Millis, Now, Owner, Pool, PoolState, Record, Report, Slot,
    SlotState, SlotStore, StoreError, StoreTime, Terms, algebra,
};
use pollster::block_on;

pub(crate) const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };
/// The store's time when a test begins.
pub(crate) const BASE: Millis = 1_700_000_000_000;

/// What the store does with requests.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    /// Does them at once.
    Answering,
    /// Does not do them; the driver gives up at the deadline.
    Stalled,
    /// Does them; the answer never comes.
    Deaf,
    /// Does not do them, and says so.
    Failing(StoreError),
}

/// A request as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) at: Millis,
    pub(crate) id: u64,
    pub(crate) kind: &'static str,
    pub(crate) timeout: Millis,
}

pub(crate) struct Rig {
    pub(crate) keeper: Keeper<u64>,
    pub(crate) store: MemoryStore,
    pub(crate) mode: Mode,
    /// What the store does with writes, where it differs.
    pub(crate) writes: Option<Mode>,
    pub(crate) mono: Millis,
    /// How far the host's and the store's clocks are off, ms.
    pub(crate) host_off: i64,
    pub(crate) store_off: i64,
    pub(crate) sent: Vec<Sent>,
    pub(crate) binding: Option<Binding>,
    pub(crate) holds: u32,
    pub(crate) ceiling: Millis,
    pub(crate) reports: Vec<Report>,
    /// What stood in the way last.
    pub(crate) waiting: Option<Report>,
    pub(crate) closes: u32,
    /// What is said to have been issued last when a window is closed; `None`: closing takes for ever.
    pub(crate) last_issued: Option<Millis>,
    pub(crate) finished_at: Option<Millis>,
    /// Whether the store refuses to have a lost record put back.
    pub(crate) refuse_put_back: bool,
    unanswered: Option<(Millis, u64)>,
}

pub(crate) fn pool(slots: Slot) -> Pool {
    Pool {
        name: "ns/p".into(),
        bits: 10,
        first: 0,
        last: slots - 1,
        withheld: BTreeSet::new(),
        terms: TERMS,
        state: PoolState::Ready,
        barrier: 0,
    }
}

pub(crate) fn store(slots: Slot) -> MemoryStore {
    MemoryStore::new(pool(slots), || StoreTime { earliest: BASE, latest: BASE })
}

impl Rig {
    pub(crate) fn new(slots: Slot) -> Self {
        Self::with(store(slots), KeeperConfig::new(Owner::new("a")))
    }

    pub(crate) fn with(store: MemoryStore, config: KeeperConfig) -> Self {
        Self::driving(store, |now| Keeper::new(config, now))
    }

    pub(crate) fn driving(store: MemoryStore, keeper: impl FnOnce(Now) -> Keeper<u64>) -> Self {
        let start = Now { mono: 0, host: BASE, store: Some(StoreTime { earliest: BASE, latest: BASE }) };
        Self {
            keeper: keeper(start),
            store,
            mode: Mode::Answering,
            writes: None,
            mono: 0,
            host_off: 0,
            store_off: 0,
            sent: Vec::new(),
            binding: None,
            holds: 0,
            ceiling: 0,
            reports: Vec::new(),
            waiting: None,
            closes: 0,
            last_issued: Some(0),
            finished_at: None,
            refuse_put_back: false,
            unanswered: None,
        }
    }

    /// With a slot held, at time 0.
    pub(crate) fn holding(slots: Slot) -> Self {
        let mut rig = Self::new(slots);
        rig.run(0);
        assert!(rig.binding.is_some(), "{:?}", rig.reports);
        rig
    }

    pub(crate) fn now(&self) -> Now {
        let store = (BASE + self.mono).strict_add_signed(self.store_off);
        let host = (BASE + self.mono).strict_add_signed(self.host_off);
        Now { mono: self.mono, host, store: Some(StoreTime { earliest: store, latest: store }) }
    }

    /// Lets everything happen until this time, inclusive.
    pub(crate) fn run(&mut self, until: Millis) {
        for step in 0.. {
            assert!(step < 100_000, "it spins: {:?}", self.sent.last());
            while let Some(action) = self.keeper.poll(self.now()) {
                self.perform(action);
            }
            let answer = self.unanswered.map(|(at, _)| at);
            let next = answer.into_iter().chain(self.keeper.wake_at()).min();
            let Some(next) = next.filter(|&next| next <= until) else {
                self.mono = self.mono.max(until);
                return;
            };
            self.mono = self.mono.max(next);
            if let Some((_, id)) = self.unanswered.take_if(|(at, _)| *at <= self.mono) {
                self.answer(id, Err(StoreError::Unknown("deadline".into())));
            }
        }
    }

    /// Takes what the keeper wants, without doing any request.
    pub(crate) fn poll_only(&mut self) -> Vec<Action<u64>> {
        let mut actions = Vec::new();
        while let Some(action) = self.keeper.poll(self.now()) {
            actions.push(action);
        }
        actions
    }

    fn perform(&mut self, action: Action<u64>) {
        match action {
            Action::Send { id, request, timeout } => self.send(id, request, timeout),
            Action::Hold(binding) => {
                self.ceiling = binding.holding.ceiling;
                self.holds += 1;
                self.binding = Some(binding);
            }
            Action::Extend { ceiling, .. } => {
                assert!(ceiling >= self.ceiling, "the ceiling fell");
                self.ceiling = ceiling;
            }
            Action::Close => {
                self.closes += 1;
                if let Some(last_issued) = self.last_issued {
                    self.keeper.handle(Event::Closed { last_issued }, self.now());
                }
            }
            Action::Report(report) => self.reports.push(report),
            Action::Waiting(cause) => self.waiting = Some(cause),
            Action::Finish => {
                assert_eq!(self.finished_at, None, "it ends once");
                self.finished_at = Some(self.mono);
            }
        }
    }

    fn send(&mut self, id: u64, request: Request<u64>, timeout: Millis) {
        assert_eq!(self.finished_at, None, "nothing is sent after the end");
        let kind = match &request {
            Request::Load => "load",
            Request::Read { .. } => "read",
            Request::Write { .. } => "write",
            Request::PutBack { .. } => "put back",
        };
        self.sent.push(Sent { at: self.mono, id, kind, timeout });
        if kind == "put back" && self.refuse_put_back {
            return self.answer(id, Err(StoreError::Refused("no".into())));
        }
        let mode = if kind == "write" { self.writes.as_ref() } else { None }.unwrap_or(&self.mode).clone();
        self.unanswered = None;
        match mode {
            Mode::Answering => {
                let result = self.execute(request);
                self.answer(id, result);
            }
            Mode::Stalled => self.unanswered = Some((self.mono + timeout, id)),
            Mode::Deaf => {
                let _lost = self.execute(request);
                self.unanswered = Some((self.mono + timeout, id));
            }
            Mode::Failing(error) => self.answer(id, Err(error)),
        }
    }

    pub(crate) fn execute(&self, request: Request<u64>) -> Result<Answer<u64>, StoreError> {
        match request {
            Request::Load => block_on(self.store.load()).map(Answer::Loaded),
            Request::Read { slot } => block_on(self.store.read(slot)).map(Answer::Read),
            Request::Write { slot, version, record } | Request::PutBack { slot, version, record, .. } => {
                block_on(self.store.write(slot, &version, &record)).map(Answer::Written)
            }
        }
    }

    pub(crate) fn answer(&mut self, id: u64, result: Result<Answer<u64>, StoreError>) {
        self.keeper.handle(Event::Answered { id, result }, self.now());
    }

    pub(crate) fn stop(&mut self) {
        self.keeper.handle(Event::Stop, self.now());
    }

    pub(crate) fn record(&self, slot: Slot) -> Record {
        match block_on(self.store.read(slot)).unwrap().unwrap().state {
            SlotState::Open(record) => record,
            other => panic!("slot {slot} is {other:?}"),
        }
    }

    /// Another owner takes this slot, as if it had expired.
    pub(crate) fn take(&self, slot: Slot, key: &str, at: Millis) {
        let expired = self.record(slot).holding().map_or(0, |holding| holding.expires_at);
        let now = expired.max(BASE + at);
        let taken = algebra::acquire(&self.record(slot), &Owner::new(key), now, TERMS).unwrap();
        self.store.put(slot, Some(SlotState::Open(taken)));
    }

    pub(crate) fn count(&self, kind: impl Fn(&Report) -> bool) -> usize {
        self.reports.iter().filter(|report| kind(report)).count()
    }

    /// When requests of this kind were sent.
    pub(crate) fn times(&self, kind: &str) -> Vec<Millis> {
        self.sent.iter().filter(|sent| sent.kind == kind).map(|sent| sent.at).collect()
    }
}
