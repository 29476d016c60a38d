//! What the agent tells the apps beside it about its lease.

use cosid_id::Layout;
use cosid_lease::keeper::Binding;
use cosid_lease::{Millis, Report, Slot};
use serde::Serialize;
use tokio::sync::watch;

/// The answer to `GET /v1/lease`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// Where it stands.
    pub state: State,
    /// The same for people: what is going on, and what to do about it.
    pub message: String,
    /// The pool, `namespace/name`; empty until it is found.
    pub pool: String,
    /// The owner's key.
    pub key: String,
    /// The lease, while there is one whose page can be used.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
    /// When the first lease of an exhausted pool expires, Unix ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest_expiry: Option<Millis>,
}

/// Where a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum State {
    /// The pool is being looked for.
    Starting,
    /// A slot is being acquired.
    Seeking,
    /// All slots are taken.
    Exhausted,
    /// The pool can't serve this agent as it is.
    Refused,
    /// A slot is held and its page can be used.
    Held,
    /// A slot is held, but its page can't be made.
    Blocked,
    /// The page is being closed.
    Closing,
    /// Nothing is held any more.
    Stopped,
}

/// A lease as apps see it. Times are Unix ms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaseView {
    /// The slot.
    pub slot: Slot,
    /// The fence it is held under.
    pub fence: u64,
    /// The window's exclusive lower end.
    pub floor: Millis,
    /// The window's inclusive upper end.
    pub ceiling: Millis,
    /// When others may take the slot.
    pub expires_at: Millis,
    /// How IDs are laid out.
    pub layout: Layout,
    /// The page's file name, in the socket's directory.
    pub page: String,
}

impl LeaseView {
    fn message(&self) -> String {
        format!("holds slot {} under fence {}", self.slot, self.fence)
    }
}

/// The one place that holds the status; everybody else watches it.
#[derive(Clone, Debug)]
pub struct StatusBoard(watch::Sender<Status>);

impl StatusBoard {
    /// A board of an agent that has just started.
    #[must_use]
    pub fn new(key: &str) -> Self {
        let status = Status {
            state: State::Starting,
            message: "starting".into(),
            pool: String::new(),
            key: key.into(),
            lease: None,
            earliest_expiry: None,
        };
        Self(watch::Sender::new(status))
    }

    /// The status now.
    #[must_use]
    pub(crate) fn now(&self) -> Status {
        self.0.borrow().clone()
    }

    /// Follows the status.
    #[must_use]
    pub(crate) fn watch(&self) -> watch::Receiver<Status> {
        self.0.subscribe()
    }

    /// The pool is found.
    pub(crate) fn found_pool(&self, pool: &str) {
        self.change(|status| {
            status.pool = pool.into();
            status.state = State::Seeking;
            status.message = format!("acquiring a slot of pool {pool}");
        });
    }

    /// A slot is held, and its page stands.
    pub(crate) fn held(&self, lease: LeaseView) {
        self.change(|status| {
            status.state = State::Held;
            status.message = lease.message();
            status.lease = Some(lease);
            status.earliest_expiry = None;
        });
    }

    /// A slot is held, but its page can't be made.
    pub(crate) fn blocked(&self, binding: &Binding, why: &str) {
        self.stuck(State::Blocked, &format!("holds slot {}, but can't make its page: {why}", binding.slot));
    }

    /// There is no page, and why; it is tried on.
    pub(crate) fn stuck(&self, state: State, why: &str) {
        self.change(|status| {
            status.state = state;
            status.message = format!("{why}; trying on");
            status.lease = None;
        });
    }

    /// The window can't be moved on now. The slot is held all the same.
    pub(crate) fn troubled(&self, why: &str) {
        self.change(|status| status.message = why.into());
    }

    /// The window goes further.
    pub(crate) fn extended(&self, ceiling: Millis, expires_at: Millis) {
        self.change(|status| {
            if let Some(lease) = &mut status.lease {
                lease.ceiling = lease.ceiling.max(ceiling);
                lease.expires_at = lease.expires_at.max(expires_at);
                status.message = lease.message();
            }
        });
    }

    /// The page is closed.
    pub(crate) fn closing(&self) {
        self.change(|status| {
            status.state = State::Closing;
            status.message = "the page is closed; no ID is made from it any more".into();
            status.lease = None;
        });
    }

    /// The end.
    pub(crate) fn stopped(&self) {
        self.change(|status| {
            status.state = State::Stopped;
            status.message = "the agent has stopped".into();
            status.lease = None;
        });
    }

    /// Something stands in the way before the pool is even known.
    pub(crate) fn looking(&self, why: &str) {
        self.change(|status| status.message = why.into());
    }

    /// Takes in what the keeper says.
    pub(crate) fn reported(&self, report: &Report) {
        if let Report::Expired { .. } = report {
            // Held it still is, as long as nobody else takes it: a renewal makes it as good as before.
            return self.change(|status| status.message = report.to_string());
        }
        let (state, earliest_expiry) = match report {
            Report::Exhausted { earliest_expiry, .. } => (State::Exhausted, *earliest_expiry),
            Report::Occupied { until, .. } => (State::Exhausted, *until),
            Report::PoolRefused(_) => (State::Refused, None),
            Report::StoreFailed { what: "acquire", .. } => (State::Seeking, None),
            Report::AcquireTimedOut { cause, .. } => return self.reported(cause),
            Report::Lost { .. } => (State::Seeking, None),
            _ => return,
        };
        let message = report.to_string();
        self.change(|status| {
            if status.lease.is_none() {
                status.state = state;
                status.earliest_expiry = earliest_expiry;
                status.message = message;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Status)) {
        self.0.send_if_modified(|status| {
            let before = status.clone();
            change(status);
            *status != before
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> LeaseView {
        LeaseView {
            slot: 3,
            fence: 7,
            floor: 10,
            ceiling: 20,
            expires_at: 19,
            layout: Layout::MILLISECOND,
            page: "slot-3-fence-7.page".into(),
        }
    }

    #[test]
    fn the_answer_has_the_lease_only_while_it_is_held() {
        let board = StatusBoard::new("ns/pod");
        board.found_pool("ns/orders");
        let json = serde_json::to_value(board.now()).unwrap();
        assert_eq!(json["state"], "seeking");
        assert_eq!(json.get("slot"), None);
        board.held(lease());
        board.extended(30, 29);
        let json = serde_json::to_value(board.now()).unwrap();
        assert_eq!(
            (&json["state"], &json["slot"], &json["ceiling"], &json["expiresAt"], &json["page"]),
            (&"held".into(), &3.into(), &30.into(), &29.into(), &"slot-3-fence-7.page".into())
        );
        assert_eq!(json["layout"]["timestampBits"], 41);
        board.closing();
        assert_eq!(serde_json::to_value(board.now()).unwrap().get("page"), None);
    }

    #[test]
    fn an_exhausted_pool_shows_its_earliest_expiry_until_a_slot_is_held() {
        let board = StatusBoard::new("ns/pod");
        let exhausted =
            Report::Exhausted { pool: "ns/p".into(), size: 4, earliest_expiry: Some(99), wait: Some(5) };
        board.reported(&Report::AcquireTimedOut { after: 9, cause: Box::new(exhausted) });
        let status = board.now();
        assert_eq!((status.state, status.earliest_expiry), (State::Exhausted, Some(99)));
        assert!(status.message.contains("ns/p") && status.message.contains("all its 4 slots"));
        board.held(lease());
        assert_eq!(board.now().earliest_expiry, None);
    }
}
