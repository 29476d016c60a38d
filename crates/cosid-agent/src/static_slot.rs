//! A slot by configuration, with no cluster: `--static`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use cosid_id::{Layout, StaticSlot, StaticSlotBuilder};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::args::Args;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::status::{State, StatusBoard};
use crate::window::Window;

/// How often a slot that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Which static slot is wished for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticWish {
    /// By its number.
    Slot(u32),
    /// The number at the end of the pod's or host's name.
    Hostname,
}

impl FromStr for StaticWish {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let allowed = "hostname, a number";
        match text {
            "hostname" => Ok(Self::Hostname),
            digits => digits.parse().map(Self::Slot).map_err(|_| Error::BadValue {
                option: "--static",
                value: text.into(),
                allowed,
            }),
        }
    }
}

/// A layout by its name, or as JSON in the form that `GET /v1/lease` has.
///
/// # Errors
/// The names, or what is wrong with the JSON.
pub(crate) fn parse_layout(text: &str) -> Result<Layout, String> {
    let named = [
        ("millisecond", Layout::MILLISECOND),
        ("second", Layout::SECOND),
        ("javascript-millisecond", Layout::JAVASCRIPT_MILLISECOND),
        ("javascript-second", Layout::JAVASCRIPT_SECOND),
        ("twitter", Layout::TWITTER),
        ("datacenter-worker", Layout::DATACENTER_WORKER),
        ("sonyflake", Layout::SONYFLAKE),
    ];
    if let Some((_, layout)) = named.iter().find(|(name, _)| *name == text) {
        return Ok(*layout);
    }
    if text.starts_with('{') {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    Err(format!("give one of {}, or JSON", names.join(", ")))
}

/// A static slot as it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    slot: u32,
    pool: String,
    layout: Layout,
    not_before: u64,
    /// Its state file.
    state: PathBuf,
}

impl Plan {
    /// What the command line asks for; `None` without `--static`.
    ///
    /// # Errors
    /// [`Error::Static`]: the name has no number, or the layout no such slot.
    pub(crate) fn of(args: &Args) -> Result<Option<Self>, Error> {
        let (Some(wish), Some(directory)) = (args.static_slot, &args.state_dir) else { return Ok(None) };
        let slot = match (wish, &args.pod_name) {
            (StaticWish::Slot(slot), _) => slot,
            (StaticWish::Hostname, Some(pod)) => StaticSlot::of_host(pod)?.slot(),
            (StaticWish::Hostname, None) => StaticSlot::of_this_host()?.slot(),
        };
        let layout = args.layout.unwrap_or(Layout::MILLISECOND);
        if slot > layout.max_slot() {
            return Err(cosid_id::Error::SlotTooLarge { slot, max: layout.max_slot() }.into());
        }
        let pool = match args.pool.as_deref() {
            Some(pool) if pool.contains('/') => pool.to_owned(),
            pool => format!("static/{}", pool.unwrap_or("default")),
        };
        let state = directory.join(format!("{}-{slot}.state", pool.replace('/', "@")));
        let not_before = args.not_before.unwrap_or(0);
        Ok(Some(Self { slot, pool, layout, not_before, state }))
    }

    fn builder(&self) -> StaticSlotBuilder {
        StaticSlot::builder(self.slot).pool(&self.pool).layout(self.layout).not_before(self.not_before)
    }
}

/// Opens the slot, trying on where it can't be, and keeps it until it is told to stop.
///
/// # Errors
/// [`Error::Io`] where the socket's directory can't be cleared of old pages.
pub(crate) async fn keep(
    plan: Plan,
    window: Window,
    board: StatusBoard,
    metrics: Metrics,
    closing: Duration,
    mut stop: oneshot::Receiver<()>,
) -> Result<(), Error> {
    board.found_pool(&plan.pool);
    // Apps that still map the page of an agent that was killed move on.
    window.clear()?;
    tokio::select! {
        () = open(&plan, &window, &board, &metrics) => {}
        _ = &mut stop => return Ok(()),
    }
    // The signals' task drops its end only after it has told.
    let _ = stop.await;
    board.closing();
    let close = spawn_blocking(move || window.close());
    if tokio::time::timeout(closing, close).await.is_err() {
        tracing::warn!(
            "slot {}'s last timestamp could not be written in time: the next start waits",
            plan.slot
        );
    }
    Ok(())
}

async fn open(plan: &Plan, window: &Window, board: &StatusBoard, metrics: &Metrics) {
    let mut told = String::new();
    loop {
        let file = format!("slot-{}-{}.page", plan.slot, Uuid::new_v4());
        let builder = plan
            .builder()
            .page(window.directory().join(&file))
            .on_extension(extension(board.clone(), metrics.clone()));
        let state = plan.state.clone();
        let error = match spawn_blocking(move || builder.open(state)).await {
            Ok(Ok(slot)) => {
                if let Some(warning) = slot.warning() {
                    tracing::warn!("{warning}");
                }
                metrics.opened();
                return window.hold_static(slot, file);
            }
            Ok(Err(error)) => error,
            // It panicked, or the runtime is ending.
            Err(error) => cosid_id::Error::StateThread { source: error.into() },
        };
        let why = format!("can't open static slot {}: {error}", plan.slot);
        if why != told {
            tracing::error!("{why}; trying on");
        }
        board.stuck(state_of(&error), &why);
        told = why;
        tokio::time::sleep(RETRY).await;
    }
}

/// `Blocked` is what may pass by itself; for the rest somebody has to decide about a file.
fn state_of(error: &cosid_id::Error) -> State {
    match error {
        cosid_id::Error::CorruptState { .. }
        | cosid_id::Error::NewerState { .. }
        | cosid_id::Error::StateOfAnother { .. }
        | cosid_id::Error::BadPoolName { .. } => State::Refused,
        _ => State::Blocked,
    }
}

/// Called by the slot's own thread.
fn extension(
    board: StatusBoard,
    metrics: Metrics,
) -> impl FnMut(Result<u64, &cosid_id::Error>) + Send + 'static {
    let mut told = String::new();
    move |extended| {
        metrics.extended(extended.is_ok());
        match extended {
            Ok(ceiling) => {
                told.clear();
                tracing::debug!("extended to {ceiling}");
                board.extended(ceiling, ceiling);
            }
            Err(error) => {
                let why = error.to_string();
                if why != told {
                    tracing::error!("{why}; IDs stop at the ceiling; trying on");
                }
                board.troubled(&why);
                told = why;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_a_number_or_the_host_s_name() {
        assert_eq!("17".parse::<StaticWish>().unwrap(), StaticWish::Slot(17));
        assert_eq!("hostname".parse::<StaticWish>().unwrap(), StaticWish::Hostname);
        for bad in ["", "-1", "auto", "99999999999"] {
            let error = bad.parse::<StaticWish>().unwrap_err().to_string();
            assert_eq!(error, format!("--static: {bad:?} is not one of: hostname, a number"));
        }
    }

    #[test]
    fn a_layout_has_a_name_or_is_json() {
        assert_eq!(parse_layout("sonyflake").unwrap(), Layout::SONYFLAKE);
        let json = serde_json::to_string(&Layout::TWITTER).unwrap();
        assert_eq!(parse_layout(&json).unwrap(), Layout::TWITTER);
        assert!(parse_layout("flake").unwrap_err().contains("twitter"));
        assert!(parse_layout(r#"{"timestampBits":41}"#).unwrap_err().contains("slotBits"));
        let wide = r#"{"timestampBits":41,"slotBits":20,"sequenceBits":12}"#;
        assert!(parse_layout(wide).unwrap_err().contains("at most 63"));
    }
}
