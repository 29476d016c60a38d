//! HTTP over a Unix socket as anybody may speak it, also badly: no library is between a test and the bytes.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Longer than the agent takes for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// An answer, read to the end of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status; 0 where the connection ended without one.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The body as JSON; null where it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The reason of a refusal, as `docs/socket.md` lists them.
    #[must_use]
    pub fn reason(&self) -> String {
        self.json()["error"]["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// What a refusal says.
    #[must_use]
    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// A connection.
///
/// # Panics
/// Where nobody listens.
#[must_use]
pub fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Asks, on a connection of its own.
///
/// # Panics
/// Where nobody listens.
#[must_use]
pub fn ask(socket: &Path, method: &str, path: &str) -> Answer {
    send(socket, format!("{method} {path} HTTP/1.1\r\nHost: cosid\r\nConnection: close\r\n\r\n").as_bytes())
}

/// Sends these bytes and reads what comes until the other side ends the connection. It may do so while the bytes are
/// still being sent.
///
/// # Panics
/// Where nobody listens.
#[must_use]
pub fn send(socket: &Path, bytes: &[u8]) -> Answer {
    let mut stream = connect(socket);
    // A server that has refused reads no further.
    let _ = stream.write_all(bytes);
    read(stream)
}

/// Reads to the end of the connection.
#[must_use]
pub fn read(mut stream: UnixStream) -> Answer {
    let mut bytes = Vec::new();
    // What came before a reset counts.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.into(), body: body.into() }
}

/// The lines of `GET /v1/lease?watch=true`, as they come, until the stream ends.
///
/// # Panics
/// Where nobody listens.
pub fn watch(socket: &Path) -> impl Iterator<Item = Value> {
    let mut stream = connect(socket);
    stream.write_all(b"GET /v1/lease?watch=true HTTP/1.1\r\nHost: cosid\r\n\r\n").unwrap();
    // Chunk sizes and headers are lines of other forms.
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines
        .take_while(|line| line != "0")
        .filter_map(|line| line.starts_with('{').then(|| serde_json::from_str(&line).unwrap()))
}
