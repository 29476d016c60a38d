//! Requests that no client sends. How inputs are made, and for how long: `cosid_fuzz`.

use std::cell::RefCell;

use cosid_fuzz::{Target, Verdict};
use cosid_id::Layout;
use cosid_lease::keeper::Binding;
use cosid_lease::{Holding, Owner, Terms};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

use super::*;
use crate::api::{Api, IdsRoom, router};
use crate::metrics::Metrics;
use crate::status::StatusBoard;
use crate::window::Window;

/// What a request can come to. Never 500: no request is the agent's own fault.
const STATUSES: [&str; 13] =
    ["100", "200", "400", "404", "405", "408", "409", "413", "414", "422", "431", "501", "503"];

/// Longer than any of the server's deadlines; virtual.
const LONG: Duration = Duration::from_secs(60);

/// Inputs that one page is for: each can name generators, of which a page has 62.
const INPUTS_OF_A_PAGE: u32 = 20;

#[test]
fn agent_request() {
    let tokens = &[
        "GET ",
        "POST ",
        "?generator=b&count=100000",
        "&count=0",
        "count=",
        "?timestampBits=31&slotBits=10&sequenceBits=22&unitMillis=1000&epoch=0",
        "&order=sequenceSlot",
        "%00",
        "%ff",
        "%2F..%2F",
        "Expect: 100-continue\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Upgrade: h2c\r\n",
        "HTTP/2.0",
        "\r\n\r\n",
        "5\r\nhello\r\n",
    ];
    let time = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let make = |fence| time.block_on(async { agent(fence) });
    let served = RefCell::new((make(1), 1_u32));
    Target::new("agent_request", env!("CARGO_MANIFEST_DIR")).tokens(tokens).inputs(600).run(|input| {
        let (agent, uses) = &mut *served.borrow_mut();
        *uses += 1;
        if uses.is_multiple_of(INPUTS_OF_A_PAGE) {
            *agent = make(*uses);
        }
        request_of(&time, &agent.1, input)
    });
}

/// An agent that holds a slot; and where its page is.
fn agent(fence: u32) -> (tempfile::TempDir, Router) {
    let dir = tempfile::tempdir().unwrap();
    let board = StatusBoard::new("ns/pod");
    let window = Window::new(dir.path(), board.clone());
    let holding = Holding {
        owner: Owner::new("ns/pod"),
        floor: 0,
        ceiling: u64::MAX >> 20,
        expires_at: 5,
        acquired_at: 1,
    };
    let terms = Terms { ttl: 30_000, tolerance: 1_000 };
    board.found_pool("ns/orders");
    window.hold("ns/orders", Ok(Layout::MILLISECOND), Binding { slot: 3, fence, holding, terms });
    let app = router(Api { board, window, metrics: Metrics::default(), room: IdsRoom::default() });
    (dir, app)
}

fn request_of(time: &Runtime, app: &Router, input: &[u8]) -> Verdict {
    let (answers, health) = time.block_on(async {
        (
            exchange(app, input).await,
            exchange(app, b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await,
        )
    });
    assert!(health.ends_with(b"ok\n"), "the next one is served: {}", health.escape_ascii());
    if answers.is_empty() {
        return Verdict::Refused;
    }
    let text = String::from_utf8_lossy(&answers);
    let status =
        text.strip_prefix("HTTP/1.1 ").or(text.strip_prefix("HTTP/1.0 ")).and_then(|rest| rest.get(..3));
    let status = status.unwrap_or_else(|| panic!("no HTTP: {text:.200}"));
    assert!(STATUSES.contains(&status), "{text:.500}");
    let (head, body) =
        text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no end of the head: {text:.500}"));
    if status.starts_with(['4', '5']) && head.contains("application/json") {
        is_a_reason(body);
    }
    Verdict::accepted(status == "200")
}

/// The first JSON of what follows: `{"error":{"reason":...,"message":...}}`.
fn is_a_reason(body: &str) {
    let first = serde_json::Deserializer::from_str(body).into_iter::<serde_json::Value>().next();
    // The answer to HEAD has no body.
    let Some(first) = first else { return };
    let error = &first.unwrap_or_else(|error| panic!("{error}: {body:.500}"))["error"];
    assert!(error["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{body:.500}");
    assert!(error["message"].as_str().is_some_and(|message| message.len() < 1_000), "{body:.2000}");
}

/// Everything that comes back.
async fn exchange(app: &Router, input: &[u8]) -> Vec<u8> {
    let (client, server) = UnixStream::pair().unwrap();
    let (_ending, ended) = watch::channel(false);
    let served = tokio::spawn(connection(server, app.clone(), ended));
    let (mut reader, mut writer) = client.into_split();
    let mut answers = Vec::new();
    let write = async {
        // The server may have closed.
        let _ = writer.write_all(input).await;
    };
    let read = async {
        let _ = reader.read_to_end(&mut answers).await;
    };
    let _ = tokio::time::timeout(LONG, async { tokio::join!(write, read) }).await;
    served.abort();
    match served.await {
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        _ => answers,
    }
}
