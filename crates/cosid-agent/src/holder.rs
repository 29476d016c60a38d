//! Does what the keeper says with the page, and tells people.

use cosid_id::Layout;
use cosid_kube::Holder;
use cosid_lease::keeper::Binding;
use cosid_lease::{LossReason, Millis, Report};

use crate::metrics::Metrics;
use crate::status::StatusBoard;
use crate::window::Window;

/// The agent's side of a lease.
pub(crate) struct AgentHolder<L> {
    /// The pool's name.
    pub pool: String,
    /// Gives the pool's layout once the pool was loaded.
    pub layout: L,
    /// The page.
    pub window: Window,
    /// Where apps see the lease.
    pub board: StatusBoard,
    /// What is counted.
    pub metrics: Metrics,
}

impl<L: Fn() -> Option<Layout> + Send> Holder for AgentHolder<L> {
    async fn hold(&mut self, binding: Binding) {
        match (self.layout)() {
            Some(layout) => self.window.hold(&self.pool, layout, binding),
            // IDs of another layout could equal those of the pool's other holders: none are made.
            None => self.board.blocked(&binding, "the pool's layout can't be used by this version of the agent"),
        }
    }

    fn extend(&mut self, ceiling: Millis, expires_at: Millis) {
        self.window.extend(ceiling, expires_at);
    }

    async fn close(&mut self) -> Millis {
        self.window.close()
    }

    fn report(&mut self, report: Report) {
        self.board.reported(&report);
        self.metrics.reported(&report);
        match &report {
            Report::Renewed { .. } => tracing::debug!("{report}"),
            Report::Acquired { .. } | Report::Resumed { .. } | Report::Released { .. } => {
                tracing::info!("{report}");
            }
            Report::Lost { reason: LossReason::Corrupt(_), .. } | Report::AcquireTimedOut { .. } => {
                tracing::error!("{report}");
            }
            _ => tracing::warn!("{report}"),
        }
    }
}
