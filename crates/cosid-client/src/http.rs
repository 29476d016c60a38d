//! One HTTP request on a connection of its own.
//!
//! A connection that is kept would be shared with forked children, whose answers would then mix; and asking is
//! rare. Every step has the same deadline, also the connect, which would otherwise wait for as long as the
//! agent does not accept.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Response as Head, Status};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::error::Error;

/// Bytes that an answer may have, head and all.
const MAX_ANSWER: usize = 64 * 1024;
/// Header lines that an answer may have.
const MAX_HEADERS: usize = 32;
/// How soon a full backlog is tried again.
const BACKLOG_NAP: Duration = Duration::from_millis(5);

/// An answer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Asks and waits for the whole answer, at most `timeout`.
///
/// # Errors
/// [`Error::AgentAbsent`], [`Error::AgentSlow`], [`Error::Connection`], [`Error::BadAnswer`],
/// [`Error::BadSocketPath`].
pub(crate) fn request(socket: &Path, method: &str, path: &str, timeout: Duration) -> Result<Answer, Error> {
    let address = SocketAddrUnix::new(socket).map_err(|_| Error::BadSocketPath {
        path: socket.to_path_buf(),
        why: "it is empty, too long (107 bytes at most) or has a zero byte",
    })?;
    let exchange = Exchange { socket, start: Instant::now(), timeout };
    let mut stream = exchange.connect(&address)?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: cosid\r\nAccept: application/json\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    exchange.send(&mut stream, head.as_bytes())?;
    exchange.receive(&mut stream)
}

/// A request under way.
struct Exchange<'a> {
    socket: &'a Path,
    start: Instant,
    timeout: Duration,
}

impl Exchange<'_> {
    fn connect(&self, address: &SocketAddrUnix) -> Result<UnixStream, Error> {
        let failed = |errno: Errno| self.failed("connect to", errno.into());
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
            match connect(&socket, address) {
                Ok(()) => {
                    let stream = UnixStream::from(socket);
                    let blocking = stream.set_nonblocking(false);
                    return blocking.map(|()| stream).map_err(|source| self.failed("connect to", source));
                }
                Err(Errno::AGAIN) => thread::sleep(self.left()?.min(BACKLOG_NAP)),
                Err(Errno::INTR) => {}
                Err(errno @ (Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR | Errno::NOTSOCK)) => {
                    return Err(Error::AgentAbsent { socket: self.socket.into(), source: errno.into() });
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    fn send(&self, stream: &mut UnixStream, head: &[u8]) -> Result<(), Error> {
        let sent = stream.set_write_timeout(Some(self.left()?)).and_then(|()| stream.write_all(head));
        sent.map_err(|source| self.failed("send to", source))
    }

    fn receive(&self, stream: &mut UnixStream) -> Result<Answer, Error> {
        let mut received = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let read = stream.set_read_timeout(Some(self.left()?)).and_then(|()| stream.read(&mut chunk));
            let count = match read {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed("read from", error)),
            };
            received.extend_from_slice(&chunk[..count]);
            let answer = if received.len() > MAX_ANSWER {
                Err(format!("it is larger than {MAX_ANSWER} bytes"))
            } else {
                parse(&received, count == 0)
            };
            match answer {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) if count > 0 => {}
                // An agent that is killed while it answers; another may soon be there.
                Ok(None) => return Err(self.failed("read from", io::ErrorKind::UnexpectedEof.into())),
                Err(what) => return Err(Error::BadAnswer { socket: self.socket.into(), what }),
            }
        }
    }

    /// What is left of the time; never zero, which the system takes for no limit.
    fn left(&self) -> Result<Duration, Error> {
        match self.timeout.checked_sub(self.start.elapsed()) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(self.slow()),
        }
    }

    fn slow(&self) -> Error {
        Error::AgentSlow { socket: self.socket.into(), waited: self.timeout }
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        match source.kind() {
            // What a read or write says whose time is over.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.slow(),
            _ => Error::Connection { action, socket: self.socket.into(), source },
        }
    }
}

/// The answer, if `received` has all of it; `ended` says that no more will come.
fn parse(received: &[u8], ended: bool) -> Result<Option<Answer>, String> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut head = Head::new(&mut headers);
    let Status::Complete(head_len) =
        head.parse(received).map_err(|error| format!("its head is no HTTP ({error})"))?
    else {
        return Ok(None);
    };
    let status = head.code.unwrap_or_default();
    let rest = &received[head_len..];
    let header = |name: &str| {
        let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| header.value.trim_ascii())
    };
    let body = if let Some(encoding) = header("transfer-encoding") {
        if !encoding.eq_ignore_ascii_case(b"chunked") {
            let start = encoding[..encoding.len().min(40)].escape_ascii();
            return Err(format!("its transfer encoding is `{start}`"));
        }
        join_chunks(rest)?
    } else if let Some(length) = header("content-length") {
        let length = str::from_utf8(length).ok().and_then(|text| text.parse::<usize>().ok());
        let length = length.filter(|&length| length <= MAX_ANSWER);
        let length = length.ok_or_else(|| format!("its length is not one up to {MAX_ANSWER} bytes"))?;
        rest.get(..length).map(<[u8]>::to_vec)
    } else {
        ended.then(|| rest.to_vec())
    };
    Ok(body.map(|body| Answer { status, body }))
}

/// The body that comes in chunks, if all of them are there. Trailers are left unread: the connection ends.
fn join_chunks(mut rest: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let size = httparse::parse_chunk_size(rest).map_err(|_| "its chunks have no size".to_owned())?;
        let Status::Complete((head_len, size)) = size else { return Ok(None) };
        if size == 0 {
            return Ok(Some(body));
        }
        let size = usize::try_from(size).ok().filter(|&size| size <= MAX_ANSWER);
        let size = size.ok_or_else(|| format!("it has a chunk of more than {MAX_ANSWER} bytes"))?;
        let Some((chunk, after)) = rest[head_len..].split_at_checked(size) else { return Ok(None) };
        body.extend_from_slice(chunk);
        rest = match after {
            [b'\r', b'\n', next @ ..] => next,
            [] | [b'\r'] => return Ok(None),
            _ => return Err("its chunks do not end where they say".to_owned()),
        };
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Option<Answer> {
        Some(Answer { status, body: body.as_bytes().to_vec() })
    }

    /// The answer is there at its last byte and not before.
    fn ends_exactly_at(whole: &str, expected: Option<Answer>) {
        for len in 0..whole.len() {
            assert_eq!(parse(&whole.as_bytes()[..len], false), Ok(None), "{:?}", &whole[..len]);
        }
        assert_eq!(parse(whole.as_bytes(), false), Ok(expected));
    }

    #[test]
    fn a_body_with_a_length_is_complete_with_its_last_byte() {
        ends_exactly_at("HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nhello", answer(200, "hello"));
        ends_exactly_at("HTTP/1.1 503 Busy\r\nContent-Length:  0 \r\n\r\n", answer(503, ""));
    }

    #[test]
    fn a_body_in_chunks_is_joined() {
        ends_exactly_at(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n, 10 bytes\r\n0\r\n",
            answer(200, "hello, 10 bytes"),
        );
    }

    #[test]
    fn a_body_without_length_is_complete_when_the_connection_ends() {
        let whole = b"HTTP/1.0 200 OK\r\n\r\nhello";
        assert_eq!(parse(whole, false), Ok(None));
        assert_eq!(parse(whole, true), Ok(answer(200, "hello")));
    }

    #[test]
    fn what_is_no_answer_is_said() {
        for bad in [
            "220 mail.example ESMTP\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        ] {
            assert!(parse(bad.as_bytes(), false).is_err(), "{bad:?}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        assert!(parse(many.as_bytes(), false).is_err());
    }
}
