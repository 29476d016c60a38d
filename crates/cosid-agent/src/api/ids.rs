//! `POST /v1/ids`: IDs for programs that don't map the page.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use cosid_id::{Generator, Layout, MAX_BATCH, NextError};
use serde::{Serialize, Serializer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::asked_layout::{Pairs, Parameters};
use super::{Api, Failure};

/// How long a request waits for the window, and for room.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How many IDs may be on their way at once. An ID takes some 45 bytes in an answer: what readers that are slow, or mean
/// ill, can make the agent hold is bounded by this.
const ROOM: usize = 2 * MAX_BATCH;

/// How much of an answer is handed over at a time, bytes.
const PIECE: usize = 64 * 1024;

/// Room for answers with many IDs; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct IdsRoom(Arc<Semaphore>);

impl Default for IdsRoom {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM)))
    }
}

impl IdsRoom {
    async fn take(&self, count: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(count).ok()?;
        tokio::time::timeout(TIMEOUT, Arc::clone(&self.0).acquire_many_owned(permits)).await.ok()?.ok()
    }
}

/// Both forms of each ID: a number above 2^53 does not survive JavaScript.
#[derive(Debug, Serialize)]
struct Ids<'a> {
    ids: &'a [u64],
    strings: Strings<'a>,
    /// For who asked with one: an agent of a version without it would have made IDs of the pool's.
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<Layout>,
}

/// Written one by one: a hundred thousand strings at once are megabytes.
#[derive(Debug)]
struct Strings<'a>(&'a [u64]);

impl Serialize for Strings<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(u64::to_string))
    }
}

pub(super) async fn make(State(api): State<Api>, query: Pairs) -> Result<Response, Failure> {
    let mut query = Parameters::read(query, &["generator", "count"])?;
    let bad = |what: &str| Failure::new(StatusCode::BAD_REQUEST, "BadQuery", what);
    let generator = query.take("generator").ok_or_else(|| bad("`generator` is missing; name one"))?;
    let count = query.take("count").map_or(Ok(1), |count| count.parse::<usize>());
    let count = count.map_err(|_| bad("`count` is no number; give one"))?;
    let layout = query.layout()?;
    if !(1..=MAX_BATCH).contains(&count) {
        let message = format!("count is {count}; ask for 1 to {MAX_BATCH}");
        return Err(Failure::new(StatusCode::BAD_REQUEST, "BadCount", message));
    }
    let Some(room) = api.room.take(count).await else {
        let message = "too many IDs are on their way to slow readers; read faster, or ask for fewer";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "Busy", message));
    };
    let made = api.window.generator(&generator, layout)?;
    let Some(source) = made else { return Err(Failure::no_page(&api.board.now())) };
    let mut ids = vec![0; count];
    fill(&source, &mut ids).await.map_err(|error| match error {
        NextError::SlotLost => Failure::no_page(&api.board.now()),
        error => Failure::new(StatusCode::SERVICE_UNAVAILABLE, "Window", error.to_string()),
    })?;
    api.metrics.ids(count);
    let mut text = serde_json::to_vec(&Ids { ids: &ids, strings: Strings(&ids), layout })
        .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "Json", error.to_string()))?;
    text.push(b'\n');
    let length = text.len();
    let headers =
        [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_LENGTH, length.to_string())];
    Ok((headers, in_pieces(text.into(), room)).into_response())
}

/// The room is given back when the last piece is taken, so when the reader has taken all before it.
fn in_pieces(text: Bytes, room: OwnedSemaphorePermit) -> Body {
    let pieces = futures::stream::unfold((text, room), |(mut text, room)| async move {
        let piece = text.split_to(text.len().min(PIECE));
        (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), (text, room)))
    });
    Body::from_stream(pieces)
}

async fn fill(source: &Generator, ids: &mut [u64]) -> Result<(), NextError> {
    let deadline = Instant::now() + TIMEOUT;
    let mut filled = 0;
    while filled < ids.len() {
        match source.try_fill(&mut ids[filled..]) {
            Ok(more) => filled += more,
            Err(NextError::Wait(wait)) if Instant::now() < deadline => {
                // The ceiling may move at any time; a tick ends within its milliseconds.
                let pause =
                    wait.remaining().unwrap_or(Duration::from_millis(20)).min(Duration::from_millis(20));
                tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_that_nobody_reads_hold_a_bounded_number_of_ids() {
        let room = IdsRoom::default();
        let text = || Bytes::from(vec![b'x'; 3 * PIECE]);
        let first = in_pieces(text(), room.take(MAX_BATCH).await.unwrap());
        let second = in_pieces(text(), room.take(MAX_BATCH).await.unwrap());
        assert!(room.take(1).await.is_none(), "no room for a third answer while two are unread");
        assert_eq!(first.collect().await.unwrap().to_bytes().len(), 3 * PIECE);
        assert!(room.take(MAX_BATCH).await.is_some(), "an answer that was read gives its room back");
        drop(second);
        assert!(room.take(2 * MAX_BATCH).await.is_some(), "so does one whose reader has gone");
    }
}
