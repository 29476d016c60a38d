//! Runs a [`Keeper`] on tokio: does what it wants done, and tells it what came of it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use cosid_lease::keeper::{Answer, Binding, Request};
use cosid_lease::{Action, Event, Keeper, Millis, Now, Report, SlotStore, StoreError};

/// Who uses what a keeper keeps.
pub trait Holder: Send {
    /// A slot is held: its window may be used from now on. The keeper waits for the end of it.
    fn hold(&mut self, binding: Binding) -> impl Future<Output = ()> + Send;

    /// The window goes on up to `ceiling` (Unix ms), the lease up to `expires_at` (Unix ms, store clock).
    fn extend(&mut self, ceiling: Millis, expires_at: Millis);

    /// Ends the window for good and gives the last timestamp issued from it, Unix ms; its floor if there was none. The
    /// keeper waits for the end of it, and after a loss somebody else may hold the slot meanwhile: close first, then
    /// tidy up.
    fn close(&mut self) -> impl Future<Output = Millis> + Send;

    /// What stands in the way of a slot just now, after each attempt that found none. Whoever is asked how it stands
    /// keeps it; what people are to be told of it comes as a report, once.
    fn waiting(&mut self, _cause: &Report) {}

    /// Something that people want to know.
    fn report(&mut self, report: Report);
}

type Pending<'a, V> = Pin<Box<dyn Future<Output = (u64, Result<Answer<V>, StoreError>)> + Send + 'a>>;

/// Keeps a slot until `stop`; then closes, releases and returns. Without `stop` it never returns, whatever the store
/// does.
///
/// `now` is read before each step; its `mono` must go with tokio's clock.
pub async fn drive<S: SlotStore, H: Holder>(
    mut keeper: Keeper<S::Version>,
    store: &S,
    now: impl Fn() -> Now,
    holder: &mut H,
    stop: impl Future<Output = ()>,
) {
    let mut stop = pin!(stop);
    let mut stopping = false;
    let mut pending: Option<Pending<'_, S::Version>> = None;
    loop {
        while let Some(action) = keeper.poll(now()) {
            match action {
                // A request that is still under way for an earlier one is dropped with it: its answer would be ignored.
                Action::Send { id, request, timeout } => {
                    pending = Some(Box::pin(ask(store, id, request, timeout)))
                }
                Action::Hold(binding) => holder.hold(binding).await,
                Action::Extend { ceiling, expires_at } => holder.extend(ceiling, expires_at),
                Action::Close => {
                    let last_issued = holder.close().await;
                    keeper.handle(Event::Closed { last_issued }, now());
                }
                Action::Waiting(cause) => holder.waiting(&cause),
                Action::Report(report) => holder.report(report),
                Action::Finish => return,
            }
        }
        let wake = keeper.wake_at();
        let sleep = wake.map_or(0, |at| at.saturating_sub(now().mono));
        tokio::select! {
            biased;
            () = &mut stop, if !stopping => {
                stopping = true;
                keeper.handle(Event::Stop, now());
            }
            (id, result) = answer(&mut pending), if pending.is_some() => {
                pending = None;
                keeper.handle(Event::Answered { id, result }, now());
            }
            () = tokio::time::sleep(Duration::from_millis(sleep)), if wake.is_some() => {}
        }
    }
}

async fn answer<V>(pending: &mut Option<Pending<'_, V>>) -> (u64, Result<Answer<V>, StoreError>) {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

async fn ask<S: SlotStore>(
    store: &S,
    id: u64,
    request: Request<S::Version>,
    timeout: Millis,
) -> (u64, Result<Answer<S::Version>, StoreError>) {
    let asked = async {
        match request {
            Request::Load => store.load().await.map(Answer::Loaded),
            Request::Read { slot } => store.read(slot).await.map(Answer::Read),
            Request::Write { slot, version, record } => {
                store.write(slot, &version, &record).await.map(Answer::Written)
            }
            Request::PutBack { slot, version, record, regression } => {
                store.put_back(slot, &version, &record, &regression).await.map(Answer::Written)
            }
        }
    };
    let answered = tokio::time::timeout(Duration::from_millis(timeout), asked).await;
    let late = |_| Err(StoreError::Unknown(format!("no answer within {timeout} ms")));
    (id, answered.unwrap_or_else(late))
}

#[cfg(test)]
mod tests;
