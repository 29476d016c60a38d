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
    /// Gives the pool's layout once the pool was loaded, or what is wrong with it.
    pub layout: L,
    /// The page.
    pub window: Window,
    /// Where apps see the lease.
    pub board: StatusBoard,
    /// What is counted.
    pub metrics: Metrics,
}

impl<L: Fn() -> Result<Layout, String> + Send> Holder for AgentHolder<L> {
    async fn hold(&mut self, binding: Binding) {
        // A slot is acquired only from a pool that was loaded.
        self.window.hold(&self.pool, (self.layout)(), binding);
    }

    fn extend(&mut self, ceiling: Millis, expires_at: Millis) {
        self.window.extend(ceiling, expires_at);
    }

    async fn close(&mut self) -> Millis {
        self.window.close()
    }

    fn waiting(&mut self, cause: &Report) {
        self.board.reported(cause);
    }

    fn report(&mut self, report: Report) {
        self.board.reported(&report);
        self.metrics.reported(&report);
        match &report {
            Report::Renewed { .. } => tracing::debug!("{report}"),
            Report::Acquired { .. } | Report::Resumed { .. } | Report::Released { .. } => {
                tracing::info!("{report}");
            }
            Report::Lost { reason: LossReason::Corrupt(_) | LossReason::StoreRegressed(_), .. }
            | Report::StoreRegressed(_)
            | Report::AcquireTimedOut { .. } => {
                tracing::error!("{report}");
            }
            _ => tracing::warn!("{report}"),
        }
    }
}
