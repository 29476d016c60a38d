//! Agents for the client to talk to: one with real pages, one that says what it is told to.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use cosid_client::{Id, Layout, PageError};
use cosid_id::{Clock, Header, PageOwner, SystemClock};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const POOL: &str = "shop/orders";
const HOUR: u64 = 3_600_000;

/// A socket that is served until this is dropped.
pub(crate) struct Server {
    socket: PathBuf,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(socket: &Path, mut serve: impl FnMut(UnixStream) + Send + 'static) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = stopping.clone();
        let thread = thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                let (stream, _) = listener.accept().unwrap();
                serve(stream);
            }
        });
        Self { socket: socket.to_path_buf(), stopping, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes it up, unless it has gone by itself.
        let _ = UnixStream::connect(&self.socket);
        let outcome = self.thread.take().unwrap().join();
        if !thread::panicking() {
            outcome.unwrap();
        }
    }
}

/// An agent that holds a slot, without a store behind it.
pub(crate) struct FakeAgent {
    // First, so that it ends while its socket is still there.
    _server: Server,
    pub(crate) dir: TempDir,
    pub(crate) socket: PathBuf,
    state: Arc<State>,
}

struct State {
    dir: PathBuf,
    binding: Mutex<Binding>,
    /// An agent of a version that knows no layouts but the pool's.
    is_old: AtomicBool,
    /// What the next requests for generators are refused with.
    refusals: Mutex<Vec<Value>>,
    puts: AtomicUsize,
}

struct Binding {
    owner: PageOwner,
    file: String,
}

impl Binding {
    fn create(dir: &Path, slot: u32, fence: u64, floor: u64) -> Self {
        let file = format!("slot-{slot}-fence-{fence}.page");
        let header = Header { pool: POOL.into(), slot, fence, floor, layout: Layout::MILLISECOND };
        let owner = PageOwner::create(dir.join(&file), &header).unwrap();
        owner.set_ceiling(SystemClock.unix_ms() + HOUR);
        Self { owner, file }
    }
}

impl FakeAgent {
    /// Holds slot 3 with fence 7 and an hour's window.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent.sock");
        let binding = Binding::create(dir.path(), 3, 7, SystemClock.unix_ms() - 1);
        let state = Arc::new(State {
            dir: dir.path().to_path_buf(),
            binding: Mutex::new(binding),
            is_old: AtomicBool::new(false),
            refusals: Mutex::default(),
            puts: AtomicUsize::new(0),
        });
        let served = state.clone();
        let server = Server::start(&socket, move |stream| served.serve(stream));
        Self { _server: server, dir, socket, state }
    }

    /// From now on it leaves out of a request what it does not know: a layout.
    pub(crate) fn ignore_layouts(&self) {
        self.state.is_old.store(true, Ordering::Release);
    }

    /// Requests for generators so far.
    pub(crate) fn puts(&self) -> usize {
        self.state.puts.load(Ordering::Acquire)
    }

    /// The next requests for generators get these errors, in order. A request that a client has given up before is not
    /// one of them: connections are served one after the other, so it has been by the time that a later one is.
    pub(crate) fn refuse(&self, refusals: impl IntoIterator<Item = Value>) {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(b"GET /v1/lease HTTP/1.1\r\n\r\n").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        let mut refusals = refusals.into_iter().collect::<Vec<_>>();
        refusals.reverse();
        *self.state.refusals.lock().unwrap() = refusals;
    }

    /// Loses the slot and gets the same one again, from where it was: IDs of both windows would be equal if
    /// one of them left its own.
    pub(crate) fn lose_slot(&self) {
        let mut binding = self.state.binding.lock().unwrap();
        let closed = binding.owner.close();
        let (slot, fence) = (binding.owner.header().slot, binding.owner.header().fence);
        *binding = Binding::create(&self.state.dir, slot, fence + 1, closed.last_issued);
    }

    /// Closes the page and has no other.
    pub(crate) fn close_page(&self) {
        self.state.binding.lock().unwrap().owner.close();
    }

    /// Goes on with the next slot, the old page left open: an agent that was killed and lost its state.
    pub(crate) fn forget_slot(&self) {
        let mut binding = self.state.binding.lock().unwrap();
        let header = binding.owner.header();
        *binding =
            Binding::create(&self.state.dir, header.slot + 1, header.fence + 1, SystemClock.unix_ms() - 1);
    }

    /// Replaces the page with one whose window is empty.
    pub(crate) fn shut_window(&self) {
        let mut binding = self.state.binding.lock().unwrap();
        binding.owner.close();
        let Header { slot, fence, .. } = *binding.owner.header();
        let file = format!("slot-{slot}-fence-{}.page", fence + 1);
        let floor = SystemClock.unix_ms() - 1;
        let header = Header { fence: fence + 1, floor, ..binding.owner.header().clone() };
        let owner = PageOwner::create(self.state.dir.join(&file), &header).unwrap();
        *binding = Binding { owner, file };
    }

    /// Moves the window's end an hour on.
    pub(crate) fn open_window(&self) {
        self.move_window(SystemClock.unix_ms() + HOUR);
    }

    /// Moves the window's end.
    pub(crate) fn move_window(&self, ceiling: u64) {
        self.state.binding.lock().unwrap().owner.set_ceiling(ceiling);
    }

    /// The files of this agent that are mapped in this process, one entry a mapping: its own too.
    pub(crate) fn mapped(&self) -> Vec<String> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let prefix = format!("{}/", self.dir.path().display());
        let file = |line: &str| line.split_once(&prefix).map(|(_, file)| file.to_owned());
        maps.lines().filter_map(file).collect()
    }
}

impl State {
    fn serve(&self, mut stream: UnixStream) {
        let Some(head) = read_head(&mut stream) else { return };
        let request = head.lines().next().unwrap_or_default();
        let (status, body) = match request.split(' ').collect::<Vec<_>>()[..] {
            ["GET", "/v1/lease", _] => (200, self.lease()),
            ["PUT", path, _] => self.place(path.strip_prefix("/v1/generators/").unwrap()),
            _ => (404, refusal("NotFound", request)),
        };
        let _ = stream.write_all(&answer(status, &body.to_string()));
    }

    fn lease(&self) -> Value {
        let binding = self.binding.lock().unwrap();
        let header = binding.owner.header();
        json!({
            "state": "held", "message": "holds a slot", "pool": header.pool, "key": "shop/web-0",
            "slot": header.slot, "fence": header.fence, "floor": header.floor,
            "ceiling": binding.owner.ceiling(), "expiresAt": binding.owner.ceiling() - 1000,
            "layout": header.layout, "page": binding.file, "fieldOfALaterVersion": [1],
        })
    }

    fn place(&self, path: &str) -> (u16, Value) {
        let (name, query) = path.split_once('?').unwrap_or((path, ""));
        self.puts.fetch_add(1, Ordering::AcqRel);
        if let Some(refusal) = self.refusals.lock().unwrap().pop() {
            return (503, refusal);
        }
        let mut binding = self.binding.lock().unwrap();
        if binding.owner.is_closed() {
            return (503, refusal("NoSlot", "it was lost"));
        }
        let pools = binding.owner.header().layout;
        let asked = if self.is_old.load(Ordering::Acquire) { pools } else { layout(query).unwrap_or(pools) };
        let cell = match binding.owner.assign_in(name, &asked) {
            Ok(cell) => cell,
            Err(error @ PageError::OtherLayout { .. }) => {
                return (409, refusal("OtherLayout", &error.to_string()));
            }
            Err(error) => return (422, refusal("UnfitLayout", &error.to_string())),
        };
        let header = binding.owner.header();
        let body = json!({
            "generator": name, "cell": cell, "pool": header.pool, "slot": header.slot,
            "fence": header.fence, "page": binding.file,
        });
        (200, body)
    }
}

/// The layout that a query says; `None` for an empty one.
fn layout(query: &str) -> Option<Layout> {
    let field = |part: &str| {
        let (name, value) = part.split_once('=').unwrap();
        (name.to_owned(), value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number)))
    };
    let fields =
        query.split('&').filter(|part| !part.is_empty()).map(field).collect::<serde_json::Map<_, _>>();
    (!fields.is_empty()).then(|| serde_json::from_value(fields.into()).unwrap())
}

pub(crate) fn refusal(reason: &str, message: &str) -> Value {
    json!({ "error": { "reason": reason, "message": message } })
}

pub(crate) fn answer(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// The answer of an agent that has nothing yet.
pub(crate) fn starting() -> Vec<u8> {
    answer(200, r#"{"state":"starting","message":"reads its pool"}"#)
}

/// Everything up to the empty line; `None` if the connection ends before it.
pub(crate) fn read_head(stream: &mut UnixStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Serves these answers, one a connection; the last one for ever. An empty one is never sent: the connection
/// is kept open and silent.
pub(crate) fn scripted(dir: &TempDir, answers: Vec<Vec<u8>>) -> (PathBuf, Server) {
    let socket = dir.path().join("agent.sock");
    let mut silent = Vec::new();
    let mut next = 0;
    let server = Server::start(&socket, move |mut stream| {
        if read_head(&mut stream).is_none() {
            return;
        }
        let answer = &answers[next.min(answers.len() - 1)];
        next += 1;
        if answer.is_empty() {
            silent.push(stream);
        } else {
            // The client may have had enough before the end.
            let _ = stream.write_all(answer);
        }
    });
    (socket, server)
}

/// Panics if any two are equal.
pub(crate) fn assert_no_equal(mut ids: Vec<u64>) {
    ids.sort_unstable();
    let equal = ids.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(equal, 0, "equal IDs among {}", ids.len());
}

/// The slot that an ID of the default layout was made with.
pub(crate) fn slot_of(id: Id) -> u32 {
    Layout::MILLISECOND.decompose(id).unwrap().slot()
}
