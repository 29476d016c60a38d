//! `cosid-agent health`: asks a running agent over its socket, for probes in images without a shell.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::args::Output;
use crate::error::Error;

const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest answer looked at, bytes.
const MOST_ANSWER_BYTES: u64 = 8 * 1024;

/// Asks and prints the answer: a line, or a JSON object, which a failure has too. Blocks as [`check`].
///
/// # Errors
/// As [`check`].
pub(crate) fn tell(socket: &Path, ready: bool, output: Output) -> Result<(), Error> {
    let found = check(socket, ready);
    match (output, &found) {
        (Output::Text, Ok(line)) => println!("{line}"),
        (Output::Text, Err(_)) => {}
        (Output::Json, Ok(line)) => println!("{}", json!({ "healthy": true, "message": line })),
        (Output::Json, Err(Error::Unhealthy { why, .. })) => {
            println!("{}", json!({ "healthy": false, "message": why }));
        }
        (Output::Json, Err(error)) => {
            println!("{}", json!({ "healthy": false, "message": error.to_string() }))
        }
    }
    found.map(drop)
}

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
    let body = body.trim();
    if head.starts_with("HTTP/1.1 200 ") { Ok(body.to_owned()) } else { Err(unhealthy(message(body))) }
}

/// What a refusal says to people; one that this version does not know, as it came.
fn message(body: &str) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: Reason,
    }
    #[derive(Deserialize)]
    struct Reason {
        message: String,
    }
    match serde_json::from_str::<Refusal>(body) {
        Ok(refusal) => refusal.error.message,
        Err(_) => body.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::message;

    #[test]
    fn of_a_refusal_people_get_its_message_and_of_anything_else_all() {
        assert_eq!(message(r#"{"error":{"reason":"NoSlot","message":"seeking a slot"}}"#), "seeking a slot");
        assert_eq!(message("bad gateway"), "bad gateway");
        assert_eq!(message(""), "");
    }
}
