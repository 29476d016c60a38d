//! `cosid-agent health`: asks a running agent over its socket, for probes in images without a shell.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::error::Error;

const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest answer looked at, bytes.
const MOST_ANSWER_BYTES: u64 = 8 * 1024;

/// Asks `/readyz` or `/livez` and gives the answer's text. Blocks for at most some seconds.
///
/// # Errors
/// [`Error::Unhealthy`] with what came instead of a 200.
pub(crate) fn check(socket: &Path, ready: bool) -> Result<String, Error> {
    let unhealthy = |why: String| Error::Unhealthy { socket: socket.into(), why };
    let path = if ready { "/readyz" } else { "/livez" };
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: cosid\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.take(MOST_ANSWER_BYTES).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = ask().map_err(|error: std::io::Error| unhealthy(error.to_string()))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let body = body.trim().to_owned();
    if head.starts_with("HTTP/1.1 200 ") { Ok(body) } else { Err(unhealthy(body)) }
}
