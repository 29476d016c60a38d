//! Requests as the document allows them.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of a request line and headers.
const MOST_HEAD: usize = 16 * 1024;
const MOST_HEADERS: usize = 64;
/// Bytes of a body.
const MOST_BODY: usize = 64 * 1024;
/// How often a connection that says nothing is looked at.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// Names and values, as they are, since none needs an escape.
    pub(super) query: Vec<(String, String)>,
}

impl Request {
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A client's connection.
pub(super) struct Connection<'a> {
    stream: UnixStream,
    /// Read, and not used yet.
    rest: Vec<u8>,
    is_ending: &'a AtomicBool,
}

/// Why there is no request.
pub(super) enum End {
    /// The connection has ended, or the check has.
    Gone,
    /// The document does not allow it.
    Odd(String),
}

fn odd(what: impl Into<String>) -> End {
    End::Odd(what.into())
}

impl<'a> Connection<'a> {
    pub(super) fn new(stream: UnixStream, is_ending: &'a AtomicBool) -> io::Result<Self> {
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        Ok(Self { stream, rest: Vec::new(), is_ending })
    }

    /// The next request, with its body read and dropped.
    pub(super) fn next(&mut self) -> Result<Request, End> {
        // A client that asks again and again must not keep the connection of an agent that has gone.
        if self.is_ending.load(Ordering::Acquire) {
            return Err(End::Gone);
        }
        let head = self.read_head()?;
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        let outcome = parsed.parse(&head);
        if !matches!(outcome, Ok(httparse::Status::Complete(_))) {
            return Err(odd(format!(
                "no HTTP: {}",
                head.escape_ascii().to_string().chars().take(80).collect::<String>()
            )));
        }
        let header = |name: &str| {
            let found = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            found.map(|header| String::from_utf8_lossy(header.value).trim().to_ascii_lowercase())
        };
        if parsed.version != Some(1) {
            return Err(odd("not HTTP/1.1"));
        }
        if header("host").is_none() {
            return Err(odd("no Host header"));
        }
        let length = header("content-length").map_or(Ok(0), |length| length.parse::<usize>());
        let length = length.map_err(|_| odd("a Content-Length that is no number"))?;
        let is_chunked = header("transfer-encoding").is_some();
        let (method, target) =
            (parsed.method.unwrap_or_default().to_owned(), parsed.path.unwrap_or_default().to_owned());
        self.drop_body(length, is_chunked)?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let query = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let query = query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Request { method, path: path.to_owned(), query })
    }

    fn read_head(&mut self) -> Result<Vec<u8>, End> {
        loop {
            if let Some(end) = self.rest.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                return Ok(self.rest.drain(..end + 4).collect());
            }
            if self.rest.len() > MOST_HEAD {
                return Err(odd(format!("more than {MOST_HEAD} bytes of headers")));
            }
            self.read_more()?;
        }
    }

    fn drop_body(&mut self, length: usize, is_chunked: bool) -> Result<(), End> {
        // Nothing follows a request before its answer, so a chunked body ends where what was read does.
        let is_whole =
            |rest: &[u8]| if is_chunked { rest.ends_with(b"0\r\n\r\n") } else { rest.len() >= length };
        while !is_whole(&self.rest) {
            if length.max(self.rest.len()) > MOST_BODY {
                return Err(odd(format!("a body of more than {MOST_BODY} bytes")));
            }
            self.read_more()?;
        }
        self.rest.drain(..if is_chunked { self.rest.len() } else { length });
        Ok(())
    }

    fn read_more(&mut self) -> Result<(), End> {
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(End::Gone),
                Ok(count) => {
                    self.rest.extend_from_slice(&chunk[..count]);
                    return Ok(());
                }
                Err(error) if self.may_go_on(&error) => {}
                Err(_) => return Err(End::Gone),
            }
        }
    }

    /// Writes all of it, and says how much the client took.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if self.may_go_on(&error) => {}
                Err(_) => break,
            }
        }
        written
    }

    /// Says nothing until the client, or the check, has had enough.
    pub(super) fn keep_silent(&mut self) {
        while self.read_more().is_ok() {}
    }

    fn may_go_on(&self, error: &io::Error) -> bool {
        let is_passing =
            matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted);
        is_passing && !self.is_ending.load(Ordering::Acquire)
    }
}

/// An answer in JSON.
pub(super) fn answer(status: u16, body: &str) -> Vec<u8> {
    let phrase = if status == 200 { "OK" } else { "Refused" };
    let length = body.len();
    format!("HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}
