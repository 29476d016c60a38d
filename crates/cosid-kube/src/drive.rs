//! Drives a [`Keeper`] with tokio: sends its requests, keeps its timers, and does with the window what it says.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cosid_lease::keeper::{Answer, Binding, Request};
use cosid_lease::{Action, Event, Keeper, Millis, Now, Report, SlotStore, StoreError};
use tokio::sync::mpsc;

/// What has the window: the agent's page, or a controller's right to lead. None of its calls may block for long.
pub trait Tenant {
    /// A slot is held, and its window may be used.
    fn hold(&mut self, binding: Binding);
    /// The window's ceiling and expiry are these now (Unix ms).
    fn extend(&mut self, ceiling: Millis, expires_at: Millis);
    /// Ends the window for good. Gives the last timestamp issued from it, Unix ms, or its floor.
    fn close(&mut self) -> Millis;
    /// Something that people want to know.
    fn report(&mut self, report: Report);
}

/// What a keeper can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Close, release, and finish.
    Stop,
}

/// A request under way.
type Pending<V> = Pin<Box<dyn Future<Output = Event<V>> + Send>>;

/// Runs the keeper until it finishes, after a [`Command::Stop`]. `now` reads the clocks.
pub async fn drive<S: SlotStore + 'static, T: Tenant>(
    mut keeper: Keeper<S::Version>,
    store: Arc<S>,
    now: impl Fn() -> Now,
    mut tenant: T,
    mut commands: mpsc::Receiver<Command>,
) {
    let mut pending: Option<Pending<S::Version>> = None;
    let mut told = true;
    loop {
        while let Some(action) = keeper.poll(now()) {
            match action {
                // At most one request is under way: a new one means that the old one's answer is of no use any more.
                Action::Send { id, request, timeout } => {
                    pending = Some(Box::pin(ask(Arc::clone(&store), id, request, timeout)));
                }
                Action::Hold(binding) => tenant.hold(binding),
                Action::Extend { ceiling, expires_at } => tenant.extend(ceiling, expires_at),
                Action::Close => {
                    let last_issued = tenant.close();
                    keeper.handle(Event::Closed { last_issued }, now());
                }
                Action::Report(report) => tenant.report(report),
                Action::Finish => return,
            }
        }
        let wake = keeper.wake_at().map(|at| Duration::from_millis(at.saturating_sub(now().mono)));
        tokio::select! {
            event = answer(&mut pending) => {
                pending = None;
                keeper.handle(event, now());
            }
            () = sleep(wake) => {}
            command = commands.recv(), if told => match command {
                Some(Command::Stop) => keeper.handle(Event::Stop, now()),
                None => told = false,
            },
        }
    }
}

/// Asks the store once, for at most `timeout` ms.
async fn ask<S: SlotStore>(
    store: Arc<S>,
    id: u64,
    request: Request<S::Version>,
    timeout: Millis,
) -> Event<S::Version> {
    let call = async {
        match request {
            Request::Load => store.load().await.map(Answer::Loaded),
            Request::Read { slot } => store.read(slot).await.map(Answer::Read),
            Request::Write { slot, version, record } => {
                store.write(slot, &version, &record).await.map(Answer::Written)
            }
        }
    };
    let result = tokio::time::timeout(Duration::from_millis(timeout), call)
        .await
        .unwrap_or_else(|_| Err(StoreError::Unknown(format!("nothing within {timeout} ms"))));
    Event::Answered { id, result }
}

async fn answer<V>(pending: &mut Option<Pending<V>>) -> Event<V> {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

async fn sleep(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}
