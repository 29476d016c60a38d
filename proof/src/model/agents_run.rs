//! The steps of [`agents`](super::agents): which can be next, and what each does.

use cosid_lease::keeper::Request;
use cosid_lease::{Action, Event, Keeper, Record, Slot, SlotState, StoreError};
use stateright::{Model, Property};

use super::agents::{BASE, Bounds, Host, JUMP, Message, State, Step, Stored, Window, config, index};
use super::calm;

impl Model for Bounds {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::start(self);
        state.begin();
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.broken.is_some() {
            return;
        }
        let left = state.left;
        for (at, message) in state.net.iter().enumerate() {
            match (&message.done, state.is_awaited(message)) {
                (None, true) => {
                    steps.push(Step::Arrive(at));
                    if left.repeats > 0
                        && matches!(message.request, Request::Write { .. } | Request::PutBack { .. })
                    {
                        steps.push(Step::ArriveTwice(at));
                    }
                }
                (None, false) => steps.push(Step::ArriveLate(at)),
                (Some(_), _) => steps.push(Step::Answer(at)),
            }
        }
        for (number, host) in state.hosts.iter().enumerate() {
            self.host_steps(state, number, host, steps);
        }
        if left.passes > 0 && state.hosts.iter().all(|host| !host.closing) {
            steps.extend(state.next_times().into_iter().map(Step::Pass));
        }
        if left.jumps > 0 {
            steps.extend([Step::Jump(JUMP), Step::Jump(-JUMP)]);
        }
        for (slot, stored) in (0..).zip(&state.slots) {
            steps.extend(store_step(slot, stored, left.deletions));
            match &stored.state {
                SlotState::Open(_) if left.edits > 0 => steps.push(Step::Break(slot)),
                SlotState::Corrupt(_) => steps.push(Step::Mend(slot)),
                _ => {}
            }
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        state.take(self, step);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no timestamp in two fences; fences and floors grow; nobody live is taken over",
                |_, state: &State| state.broken.is_none(),
            ),
            Property::always("whoever can get a slot in the end does", |bounds: &Bounds, state: &State| {
                state.broken.is_some() || calm::everybody_is_served(bounds, state)
            }),
            Property::sometimes("a slot is taken over", |_, state: &State| {
                state.windows.iter().any(|window| window.fence > 1)
            }),
        ]
    }

    fn format_action(&self, step: &Step) -> String {
        format!("{step:?}")
    }
}

fn store_step(slot: Slot, stored: &Stored, deletions: u8) -> Option<Step> {
    match (&stored.state, stored.exists) {
        (SlotState::Open(_), true) if deletions > 0 => Some(Step::Delete(slot)),
        (SlotState::Deleting, true) => Some(Step::Bury(slot)),
        (_, false) => Some(Step::Make(slot)),
        (SlotState::Shut, true) => Some(Step::Open(slot)),
        _ => None,
    }
}

impl Bounds {
    fn host_steps(&self, state: &State, number: usize, host: &Host, steps: &mut Vec<Step>) {
        let left = state.left;
        if host.closing
            && let Some(window) = host.window.map(|at| &state.windows[at])
        {
            steps.push(Step::Close(number, window.floor));
            if window.end > window.floor {
                steps.push(Step::Close(number, window.end));
            }
        }
        if host.keeper.is_none() {
            return;
        }
        if host.waits_for.is_some() && left.timeouts > 0 {
            steps.push(Step::GiveUp(number));
        }
        if left.crashes > 0 {
            steps.push(Step::Crash(number, false));
            if host.saved.is_some() {
                steps.push(Step::Crash(number, true));
            }
        }
        if left.stops > 0 && !host.closing {
            steps.push(Step::Stop(number));
        }
    }
}

impl State {
    /// All owners send their first requests.
    fn begin(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.act(host));
    }

    fn is_due(&self, host: usize) -> bool {
        let host = &self.hosts[host];
        let Some(keeper) = &host.keeper else { return false };
        !host.closing
            && host.waits_for.is_none()
            && (keeper.has_actions() || keeper.wake_at().is_some_and(|at| at <= self.mono))
    }

    pub(crate) fn is_awaited(&self, message: &Message) -> bool {
        let host = &self.hosts[message.host];
        host.lives == message.life && host.waits_for == Some(message.id)
    }

    /// When something is due that is not due yet: the next timer, and the next expiry.
    fn next_times(&self) -> Vec<u64> {
        let wakes = self.hosts.iter().filter_map(|host| host.keeper.as_ref()?.wake_at());
        let store = (BASE + self.mono).saturating_add_signed(self.off);
        let expiries = self.slots.iter().filter_map(|stored| stored.state.record()?.holding());
        let expiries = expiries.filter_map(|holding| holding.expires_at.checked_sub(store));
        let wake = wakes.filter(|&at| at > self.mono).min();
        let expiry = expiries.filter(|&left| left > 0).map(|left| self.mono + left).min();
        let mut times: Vec<u64> = wake.into_iter().chain(expiry).collect();
        times.dedup();
        times
    }

    /// Does a step, and then all that owners do by themselves at once: it touches nobody else, so that nothing is lost
    /// by not choosing when.
    pub(crate) fn take(&mut self, bounds: &Bounds, step: Step) {
        self.happen(bounds, step);
        for host in 0..self.hosts.len() {
            if self.is_due(host) {
                self.act(host);
            }
        }
        self.forget();
    }

    /// Drops what can have no effect any more, and puts the rest in order, so that states that differ in nothing else are
    /// one: answers that nobody waits for, reads of those who have gone, and writes whose version has passed.
    fn forget(&mut self) {
        let mut net = std::mem::take(&mut self.net);
        net.retain(|message| match (&message.request, &message.done) {
            _ if self.is_awaited(message) => true,
            (Request::Write { slot, version, .. } | Request::PutBack { slot, version, .. }, None) => {
                self.slots[index(*slot)].version <= *version
            }
            _ => false,
        });
        net.sort_by_key(|message| (message.host, message.life, message.id));
        self.net = net;
    }

    fn happen(&mut self, bounds: &Bounds, step: Step) {
        match step {
            Step::Arrive(at) => self.arrive(at),
            Step::ArriveTwice(at) => {
                self.left.repeats -= 1;
                self.arrive(at);
                self.arrive(at);
            }
            Step::ArriveLate(at) => {
                self.arrive(at);
                self.net.remove(at);
            }
            Step::Answer(at) => {
                let message = self.net.remove(at);
                self.hosts[message.host].waits_for = None;
                self.hosts[message.host].off = self.off;
                let slot = slot_of(&message.request);
                let Some(done) = message.done else { return };
                let result = done.map(|reply| self.answer(reply, slot));
                self.tell(message.host, Event::Answered { id: message.id, result });
            }
            Step::GiveUp(host) => {
                self.left.timeouts -= 1;
                if let Some(id) = self.hosts[host].waits_for.take() {
                    let result = Err(StoreError::Unknown("deadline".into()));
                    self.tell(host, Event::Answered { id, result });
                }
            }
            Step::Pass(until) => {
                self.left.passes -= 1;
                self.mono = until;
            }
            Step::Jump(by) => {
                self.left.jumps -= 1;
                self.off += by;
            }
            Step::Close(host, last_issued) => self.close(host, last_issued),
            Step::Stop(host) => {
                self.left.stops -= 1;
                self.tell(host, Event::Stop);
                self.hosts[host].waits_for = None;
            }
            Step::Crash(host, saved) => {
                self.left.crashes -= 1;
                self.restart(bounds, host, saved);
            }
            Step::Delete(slot) => {
                self.left.deletions -= 1;
                let stored = &mut self.slots[index(slot)];
                stored.last = stored.state.record().cloned();
                stored.version += 1;
                stored.state = SlotState::Deleting;
            }
            Step::Break(slot) => {
                self.left.edits -= 1;
                let stored = &mut self.slots[index(slot)];
                stored.last = stored.state.record().cloned();
                stored.version += 1;
                stored.state = SlotState::Corrupt("edited".into());
            }
            Step::Mend(slot) => {
                let stored = &mut self.slots[index(slot)];
                stored.version += 1;
                if let Some(last) = stored.last.take() {
                    stored.state = SlotState::Open(last);
                }
            }
            Step::Bury(slot) => {
                let stored = &mut self.slots[index(slot)];
                if let Some(last) = stored.last.take() {
                    let (fence, floor) = self.watermark;
                    self.watermark = (fence.max(last.fence), floor.max(last.next_floor));
                }
                stored.exists = false;
                stored.version += 1;
            }
            Step::Make(slot) => {
                let stored = &mut self.slots[index(slot)];
                (stored.exists, stored.state) = (true, SlotState::Shut);
                stored.version += 1;
            }
            Step::Open(slot) => {
                let (fence, floor) = self.watermark;
                let stored = &mut self.slots[index(slot)];
                stored.state = SlotState::Open(Record::open(fence, floor));
                stored.version += 1;
            }
        }
    }

    /// An owner does all that is due.
    fn act(&mut self, host: usize) {
        loop {
            let now = self.now(self.hosts[host].off);
            let Some(keeper) = &mut self.hosts[host].keeper else { return };
            let Some(action) = keeper.poll(now) else { return };
            match action {
                Action::Send { id, request, .. } => {
                    self.hosts[host].waits_for = Some(id);
                    let life = self.hosts[host].lives;
                    self.net.push(Message { host, life, id, request, done: None });
                }
                Action::Hold(binding) => {
                    let (slot, fence, floor) = (binding.slot, binding.fence, binding.holding.floor);
                    let end = binding.holding.ceiling;
                    self.windows.push(Window { slot, fence, floor, end, owner: host });
                    self.hosts[host].window = Some(self.windows.len() - 1);
                    self.hosts[host].saved = Some(binding);
                    self.check_windows(slot);
                }
                Action::Extend { ceiling, .. } => {
                    let Some(at) = self.hosts[host].window else { continue };
                    self.windows[at].end = self.windows[at].end.max(ceiling);
                    if let Some(saved) = &mut self.hosts[host].saved {
                        saved.holding.ceiling = saved.holding.ceiling.max(ceiling);
                    }
                    self.check_windows(self.windows[at].slot);
                }
                Action::Close => {
                    self.hosts[host].closing = true;
                    return;
                }
                Action::Finish => self.hosts[host].keeper = None,
                Action::Waiting(_) | Action::Report(_) => {}
            }
        }
    }

    fn arrive(&mut self, at: usize) {
        let (host, request) = (self.net[at].host, self.net[at].request.clone());
        let done = self.execute(host, &request);
        self.net[at].done = Some(done);
    }

    fn close(&mut self, host: usize, last_issued: u64) {
        self.hosts[host].closing = false;
        self.hosts[host].saved = None;
        if let Some(at) = self.hosts[host].window.take() {
            self.windows[at].end = last_issued;
            self.check_windows(self.windows[at].slot);
        }
        self.tell(host, Event::Closed { last_issued });
    }

    /// Killed and started. Its window stands: with what was saved it goes on; without, apps may have it open for ever.
    fn restart(&mut self, bounds: &Bounds, host: usize, saved: bool) {
        let binding = self.hosts[host].saved.clone().filter(|_| saved);
        let lives = self.hosts[host].lives + 1;
        let now = self.now(self.off);
        let config = config(bounds.keys[host], host, lives);
        let window = self.hosts[host].window.filter(|_| saved);
        let keeper = match &binding {
            Some(binding) => Keeper::resume(config, binding.clone(), now),
            None => Keeper::new(config, now),
        };
        let off = self.off;
        self.hosts[host] = Host {
            keeper: Some(keeper),
            window,
            saved: binding,
            closing: false,
            waits_for: None,
            off,
            lives,
        };
    }
}

fn slot_of(request: &Request<u64>) -> Option<Slot> {
    match request {
        Request::Read { slot } | Request::Write { slot, .. } | Request::PutBack { slot, .. } => Some(*slot),
        Request::Load => None,
    }
}
