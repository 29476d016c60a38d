//! What the agent counts, as Prometheus text.

use std::fmt;
use std::sync::Arc;

use cosid_lease::Report;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::status::{State, Status};

/// The type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The agent's metrics. Clones count together.
#[derive(Clone)]
pub(crate) struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    reports: Family<ReportLabel, Counter>,
    failures: Family<OperationLabel, Counter>,
    ids: Counter,
    held: Gauge,
    slot: Gauge,
    expires_at: Gauge,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReportLabel {
    event: Event,
}

/// What happened to the lease. Few values, none of them from outside.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
enum Event {
    Acquired,
    Resumed,
    Renewed,
    Expired,
    Lost,
    Released,
    Exhausted,
    AcquireTimedOut,
    DuplicateOwner,
    ClockSkew,
    StoreRegressed,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("cosid_agent");
        let inner = Inner {
            reports: Family::default(),
            failures: Family::default(),
            ids: Counter::default(),
            held: Gauge::default(),
            slot: Gauge::default(),
            expires_at: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register("lease_events", "What happened to the lease", inner.reports.clone());
        registry.register("store_failures", "Requests to the store that failed", inner.failures.clone());
        registry.register("ids", "IDs made for POST /v1/ids", inner.ids.clone());
        registry.register(
            "lease_held",
            "1 while a slot is held and its page can be used",
            inner.held.clone(),
        );
        registry.register("slot", "The slot held, -1 for none", inner.slot.clone());
        registry.register(
            "lease_expiry_seconds",
            "When the lease expires, Unix time",
            inner.expires_at.clone(),
        );
        Self(Arc::new(Inner { registry, ..inner }))
    }
}

impl Metrics {
    /// Counts what the keeper says.
    pub(crate) fn reported(&self, report: &Report) {
        let event = match report {
            Report::Acquired { .. } => Event::Acquired,
            Report::Resumed { .. } => Event::Resumed,
            Report::Renewed { .. } => Event::Renewed,
            Report::Expired { .. } => Event::Expired,
            Report::Lost { .. } => Event::Lost,
            Report::Released { .. } => Event::Released,
            Report::Exhausted { .. } | Report::Occupied { .. } => Event::Exhausted,
            Report::AcquireTimedOut { .. } => Event::AcquireTimedOut,
            Report::DuplicateOwner { .. } => Event::DuplicateOwner,
            Report::ClockSkew(_) => Event::ClockSkew,
            Report::StoreRegressed(_) => Event::StoreRegressed,
            Report::StoreFailed { what, .. } => {
                self.0.failures.get_or_create(&OperationLabel { operation: what }).inc();
                return;
            }
            Report::PoolRefused(_) | Report::Quarantined { .. } | Report::ReleaseAbandoned { .. } => return,
        };
        self.0.reports.get_or_create(&ReportLabel { event }).inc();
    }

    /// Counts that a static slot was opened.
    pub(crate) fn opened(&self) {
        self.0.reports.get_or_create(&ReportLabel { event: Event::Acquired }).inc();
    }

    /// Counts a static slot's try to extend.
    pub(crate) fn extended(&self, has_worked: bool) {
        if has_worked {
            self.0.reports.get_or_create(&ReportLabel { event: Event::Renewed }).inc();
        } else {
            self.0.failures.get_or_create(&OperationLabel { operation: "extend" }).inc();
        }
    }

    /// Counts IDs made here.
    pub(crate) fn ids(&self, count: usize) {
        self.0.ids.inc_by(count as u64);
    }

    /// The text, with the lease as it stands.
    ///
    /// # Errors
    /// Where the text can't be written.
    pub(crate) fn text(&self, status: &Status) -> Result<String, fmt::Error> {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.0.held.set(i64::from(status.state == State::Held));
        self.0.slot.set(status.lease.as_ref().map_or(-1, |lease| lease.slot.into()));
        self.0.expires_at.set(status.lease.as_ref().map_or(0, |lease| gauge(lease.expires_at / 1000)));
        let mut text = String::new();
        encode(&mut text, &self.0.registry)?;
        Ok(text)
    }
}
