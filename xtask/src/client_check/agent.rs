//! An agent without a store: real pages, and a window that a case moves.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cosid_id::{Clock, Generator, Header, Layout, MAX_BATCH, NextError, PageOwner, SystemClock};
use serde_json::{Value, json};

use super::GENERATOR;
use super::cases::{Case, Manner, Reply, SHORT, STANDSTILL, Window};
use super::http::{Connection, End, Request, answer};
use super::listener::Listener;
use crate::{Error, Result};

pub(super) const LAYOUT: Layout = Layout::MILLISECOND;
const POOL: &str = "check/orders";
const HOUR: u64 = 3_600_000;
/// The message of a refusal that a case asks for.
pub(super) const WORDS: &str = "refused by a check";
/// How long a request for IDs waits for the window, as at an agent.
const REQUEST: Duration = Duration::from_secs(2);
/// An answer without an end has this many bytes.
const ENDLESS: usize = 64 << 20;

/// The agent's socket in its directory.
pub(super) fn socket(dir: &Path) -> PathBuf {
    dir.join("agent.sock")
}

/// What the agent saw of its client.
#[derive(Clone, Default)]
pub(super) struct Seen {
    /// Requests that the document does not have.
    pub(super) odd: Vec<String>,
    /// Requests for IDs or a generator.
    pub(super) asks: usize,
    /// IDs that were answered with.
    pub(super) given: HashSet<u64>,
    /// Whether a generator's cell was asked for, so that the page may have been used.
    pub(super) has_cell: bool,
    pub(super) bindings: Vec<Binding>,
    /// A timestamp that was issued above the ceiling, and the ceiling.
    pub(super) above_ceiling: Option<(u64, u64)>,
    /// The most bytes of an answer that the client took.
    pub(super) taken: usize,
}

/// A slot that the agent held, and its window.
#[derive(Clone, Copy)]
pub(super) struct Binding {
    pub(super) slot: u32,
    pub(super) floor: u64,
    /// The last timestamp issued, once it is lost, and until then the ceiling.
    pub(super) last: u64,
}

pub(super) struct Agent {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    dir: PathBuf,
    first: Mutex<VecDeque<Reply>>,
    always: Option<Reply>,
    window: Window,
    manner: Manner,
    page: Mutex<Option<PageOwner>>,
    seen: Mutex<Seen>,
    listener: Mutex<Option<Listener>>,
    /// What moves the window, from the first request on.
    mover: Mutex<Option<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agent {
    pub(super) fn start(dir: &Path, case: &Case) -> Result<Self> {
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            first: Mutex::new(case.first.clone().into()),
            always: case.always.clone(),
            window: case.window,
            manner: case.manner,
            page: Mutex::default(),
            seen: Mutex::default(),
            listener: Mutex::default(),
            mover: Mutex::default(),
        });
        shared.hold(3, 7)?;
        if case.is_there {
            *lock(&shared.listener) = Some(Listener::start(&shared)?);
        }
        Ok(Self { shared })
    }

    /// Ends it, and says what it saw.
    pub(super) fn end(self) -> Seen {
        let mover = lock(&self.shared.mover).take();
        if let Some(mover) = mover {
            // It only sleeps and moves; a panic was told by itself.
            let _ = mover.join();
        }
        self.shared.stop_listening();
        self.shared.note_last();
        lock(&self.shared.seen).clone()
    }
}

impl Shared {
    pub(super) fn socket(&self) -> PathBuf {
        socket(&self.dir)
    }

    /// Holds a slot whose window is still empty.
    fn hold(&self, slot: u32, fence: u64) -> Result<()> {
        let floor = SystemClock.unix_ms() - 1;
        let header = Header { pool: POOL.into(), slot, fence, floor, layout: LAYOUT };
        let page = PageOwner::create(self.dir.join(page_file(slot, fence)), &header);
        *lock(&self.page) = Some(page.map_err(|error| Error::Wrong(error.to_string()))?);
        lock(&self.seen).bindings.push(Binding { slot, floor, last: floor });
        Ok(())
    }

    /// Moves the window's end to so many ms from now.
    fn extend(&self, ms: u64) {
        if let Some(page) = &*lock(&self.page) {
            page.set_ceiling(SystemClock.unix_ms() + ms);
        }
    }

    /// What was issued must be below the ceiling, at any time.
    fn note_last(&self) {
        if let Some(page) = &*lock(&self.page) {
            self.note(page.last_issued().max(page.ceiling()), page.last_issued(), page.ceiling());
        }
    }

    fn note(&self, last: u64, issued: u64, ceiling: u64) {
        let mut seen = lock(&self.seen);
        if let Some(binding) = seen.bindings.last_mut() {
            binding.last = last.min(ceiling);
        }
        if issued > ceiling {
            seen.above_ceiling = Some((issued, ceiling));
        }
    }

    fn lose(&self) {
        if let Some(page) = lock(&self.page).take() {
            let last = page.close().last_issued;
            self.note(last, last, page.ceiling());
        }
    }

    fn stop_listening(&self) {
        let listener = lock(&self.listener).take();
        if let Some(listener) = listener {
            listener.end();
        }
    }

    /// At the first request for IDs or a generator.
    fn open_window(self: &Arc<Self>) {
        let mut mover = lock(&self.mover);
        if mover.is_some() {
            return;
        }
        self.extend(if self.window == Window::Long { HOUR } else { SHORT });
        let shared = Arc::clone(self);
        *mover = Some(thread::spawn(move || shared.move_window()));
    }

    fn move_window(self: &Arc<Self>) {
        if self.window == Window::Long {
            return;
        }
        thread::sleep(STANDSTILL);
        if self.window == Window::StandsStill {
            self.note_last();
        } else {
            // In this order: requests that wait for the window end with it.
            self.lose();
            if self.window == Window::IsLostWithTheAgent {
                self.stop_listening();
            }
            thread::sleep(STANDSTILL);
            // On a full disk, say: the client then gets none, and the case fails.
            let _ = self.hold(4, 9);
            if self.window == Window::IsLostWithTheAgent {
                *lock(&self.listener) = Listener::start(self).ok();
            }
        }
        self.extend(HOUR);
    }

    /// Serves a connection until it ends.
    pub(super) fn serve(self: &Arc<Self>, mut connection: Connection<'_>) {
        loop {
            match connection.next() {
                Ok(request) => {
                    if !self.reply(&request, &mut connection) || self.manner == Manner::OneAConnection {
                        return;
                    }
                }
                Err(End::Gone) => return,
                Err(End::Odd(what)) => {
                    lock(&self.seen).odd.push(what);
                    return;
                }
            }
        }
    }

    /// Whether the connection can be used again.
    fn reply(self: &Arc<Self>, request: &Request, connection: &mut Connection<'_>) -> bool {
        let is_ask = match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/v1/ids") => true,
            ("PUT", path) => path.starts_with("/v1/generators/"),
            _ => false,
        };
        let first = if is_ask {
            lock(&self.seen).asks += 1;
            lock(&self.first).pop_front()
        } else {
            None
        };
        // Who is refused a generator may ask what the agent holds.
        let always = self.always.clone().filter(|always| is_ask || !matches!(always, Reply::Refuse(..)));
        match first.or(always) {
            None => {
                self.write(connection, &self.answer(request, is_ask));
                return true;
            }
            Some(Reply::Refuse(status, reason)) => {
                self.write(connection, &refusal(status, reason, WORDS));
                return true;
            }
            Some(Reply::Half) => {
                let answer = self.answer(request, is_ask);
                connection.write(&answer[..answer.len() / 2]);
            }
            Some(Reply::Say(bytes)) => drop(connection.write(&bytes)),
            Some(Reply::HangUp) => {}
            Some(Reply::Silence) => connection.keep_silent(),
            Some(Reply::Endless) => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"ids\":[7";
                let taken = connection.write(head.as_bytes()) + connection.write(&b",7".repeat(ENDLESS / 2));
                let mut seen = lock(&self.seen);
                seen.taken = seen.taken.max(taken);
            }
        }
        false
    }

    fn write(&self, connection: &mut Connection<'_>, answer: &[u8]) {
        if self.manner != Manner::InPieces {
            connection.write(answer);
            return;
        }
        // Apart long enough to be read one by one, the first of them.
        let (first, rest) = answer.split_at(answer.len().min(1_000));
        for piece in first.chunks(23) {
            connection.write(piece);
            thread::sleep(Duration::from_micros(300));
        }
        connection.write(rest);
    }

    /// What an agent would answer.
    fn answer(self: &Arc<Self>, request: &Request, is_ask: bool) -> Vec<u8> {
        if is_ask {
            self.open_window();
        }
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/v1/lease") => self.ok(self.lease()),
            ("GET", "/livez" | "/readyz") => answer(200, "\"ok\""),
            ("PUT", path) if is_ask => self.place(path.trim_start_matches("/v1/generators/")),
            ("POST", "/v1/ids") => self.ids(request),
            (method, path) => {
                lock(&self.seen).odd.push(format!("{method} {path}"));
                refusal(404, "NotFound", "there is no such path")
            }
        }
    }

    fn ok(&self, mut body: Value) -> Vec<u8> {
        if self.manner == Manner::LaterFields {
            body["zzLater"] = json!({ "x": [1, null, "}"], "ids": "none" });
        }
        answer(200, &body.to_string())
    }

    fn lease(&self) -> Value {
        let page = lock(&self.page);
        let Some(page) = &*page else { return json!({ "state": "seeking", "message": "looks for a slot" }) };
        let Header { slot, fence, floor, .. } = *page.header();
        json!({
            "state": "held", "message": "holds a slot", "pool": POOL, "key": "check/client", "slot": slot,
            "fence": fence, "floor": floor, "ceiling": page.ceiling(), "expiresAt": page.ceiling(),
            "layout": LAYOUT, "page": page_file(slot, fence),
        })
    }

    fn place(&self, name: &str) -> Vec<u8> {
        self.check_name(name);
        let mut page = lock(&self.page);
        let Some(page) = &mut *page else { return no_slot() };
        let cell = match page.assign(name) {
            Ok(cell) => cell,
            Err(error) => return refusal(400, "BadName", &error.to_string()),
        };
        lock(&self.seen).has_cell = true;
        let Header { slot, fence, .. } = *page.header();
        self.ok(json!({
            "generator": name, "cell": cell, "pool": POOL, "slot": slot, "fence": fence,
            "page": page_file(slot, fence),
        }))
    }

    fn ids(&self, request: &Request) -> Vec<u8> {
        let name = request.query("generator").unwrap_or_default();
        self.check_name(name);
        let count = request.query("count").map_or(Some(1), |count| count.parse::<usize>().ok());
        let Some(count) = count.filter(|count| (1..=MAX_BATCH).contains(count)) else {
            lock(&self.seen).odd.push(format!("a count of {:?}", request.query("count")));
            return refusal(400, "BadCount", "ask for 1 to 100000");
        };
        let generator = {
            let mut page = lock(&self.page);
            let Some(page) = &mut *page else { return no_slot() };
            let cell = page.assign(name);
            cell.and_then(|cell| Generator::new(Arc::clone(page.page()), cell))
        };
        let ids = generator.map_err(|error| error.to_string()).and_then(|generator| fill(&generator, count));
        match ids {
            Ok(Some(ids)) => {
                lock(&self.seen).given.extend(&ids);
                let strings: Vec<String> = ids.iter().map(u64::to_string).collect();
                self.ok(json!({ "ids": ids, "strings": strings }))
            }
            Ok(None) => no_slot(),
            Err(error) => refusal(503, "Window", &error),
        }
    }

    fn check_name(&self, name: &str) {
        if name != GENERATOR {
            lock(&self.seen).odd.push(format!("the generator `{name}` instead of `{GENERATOR}`"));
        }
    }
}

/// `None` where the slot is lost.
fn fill(generator: &Generator, count: usize) -> std::result::Result<Option<Vec<u64>>, String> {
    let deadline = Instant::now() + REQUEST;
    let mut ids = vec![0; count];
    let mut filled = 0;
    while filled < count {
        match generator.try_fill(&mut ids[filled..]) {
            Ok(more) => filled += more,
            Err(NextError::SlotLost) => return Ok(None),
            Err(NextError::Wait(_)) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(Some(ids))
}

fn page_file(slot: u32, fence: u64) -> String {
    format!("slot-{slot}-fence-{fence}.page")
}

fn no_slot() -> Vec<u8> {
    refusal(503, "NoSlot", "looks for a slot")
}

fn refusal(status: u16, reason: &str, message: &str) -> Vec<u8> {
    answer(status, &json!({ "error": { "reason": reason, "message": message } }).to_string())
}
