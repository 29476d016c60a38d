//! What Prometheus reads. No label has an object's name or an error's text: their number stays small.

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

type Label = [(&'static str, &'static str); 1];

/// The controller's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reconciliations: Family<Label, Counter>,
    duration: Histogram,
    writes: Family<Label, Counter>,
    retired: Counter,
    watch_failures: Counter,
    leading: Gauge<i64, AtomicI64>,
    slots: Family<Label, Gauge<i64, AtomicI64>>,
    pools: Gauge<i64, AtomicI64>,
    asked: Family<Label, Counter>,
    answered: Histogram,
    certificate: Gauge<i64, AtomicI64>,
    without_agent: Gauge<i64, AtomicI64>,
    conditions: Family<Label, Gauge<i64, AtomicI64>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("cosid_controller");
        let reconciliations = Family::<Label, Counter>::default();
        let duration = Histogram::new([0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0]);
        let writes = Family::<Label, Counter>::default();
        let (retired, watch_failures) = (Counter::default(), Counter::default());
        let leading = Gauge::default();
        let slots = Family::<Label, Gauge>::default();
        let pools = Gauge::default();
        let asked = Family::<Label, Counter>::default();
        let answered = Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0]);
        let (certificate, without_agent) = (Gauge::default(), Gauge::default());
        let conditions = Family::<Label, Gauge>::default();
        registry.register("reconciliations", "Reconciliations by outcome", reconciliations.clone());
        registry.register("reconciliation_seconds", "How long reconciliations took", duration.clone());
        registry.register("writes", "Objects written, by kind of write", writes.clone());
        registry.register("slots_retired", "Slots that were retired", retired.clone());
        registry.register("watch_failures", "Watches that broke off", watch_failures.clone());
        registry.register("leading", "Whether this replica leads", leading.clone());
        registry.register("slots", "Slots of all pools by state", slots.clone());
        registry.register("pools", "Pools", pools.clone());
        registry.register("webhook_requests", "Pods that API servers asked about, by outcome", asked.clone());
        registry.register("webhook_seconds", "How long the webhook's answers took", answered.clone());
        registry.register(
            "webhook_certificate_expires_seconds",
            "When the webhook's certificate ends, Unix time",
            certificate.clone(),
        );
        registry.register(
            "pods_without_agent",
            "Pods that asked for an agent and have none, as the leader knows them",
            without_agent.clone(),
        );
        registry.register("pool_conditions", "Pools that have a condition", conditions.clone());
        Self {
            registry,
            reconciliations,
            duration,
            writes,
            retired,
            watch_failures,
            leading,
            slots,
            pools,
            asked,
            answered,
            certificate,
            without_agent,
            conditions,
        }
    }
}

impl Metrics {
    /// A reconciliation ended, for this reason: `Ok`, or an error's word.
    pub fn reconciled(&self, outcome: &'static str, took: Duration) {
        self.reconciliations.get_or_create(&[("outcome", outcome)]).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// An object was written.
    pub fn wrote(&self, what: &'static str) {
        self.writes.get_or_create(&[("what", what)]).inc();
    }

    /// Slots were retired.
    pub fn retired(&self, count: usize) {
        self.retired.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// A watch broke off.
    pub fn watch_failed(&self) {
        self.watch_failures.inc();
    }

    /// Whether this replica leads. One that no longer does says nothing of pools: it would be what it last knew.
    pub fn leads(&self, leads: bool) {
        self.leading.set(leads.into());
        if !leads {
            self.pools.set(0);
            self.slots.clear();
            self.conditions.clear();
        }
    }

    /// How many pools there are, and the sums of their counts: `(held, free, cooling)`.
    pub fn pools(&self, pools: usize, (held, free, cooling): (i64, i64, i64)) {
        self.pools.set(i64::try_from(pools).unwrap_or(i64::MAX));
        for (state, count) in [("held", held), ("free", free), ("cooling", cooling)] {
            self.slots.get_or_create(&[("state", state)]).set(count);
        }
    }

    /// The webhook answered.
    pub fn asked(&self, outcome: &'static str, took: Duration) {
        self.asked.get_or_create(&[("outcome", outcome)]).inc();
        self.answered.observe(took.as_secs_f64());
    }

    /// When the certificate ends that the webhook shows, Unix ms.
    pub fn certificate_expires(&self, at: u64) {
        self.certificate.set(i64::try_from(at / 1_000).unwrap_or(i64::MAX));
    }

    /// How many pods asked for an agent and have none.
    pub fn without_agent(&self, pods: usize) {
        self.without_agent.set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    /// How many pools have this condition.
    pub fn condition(&self, condition: &'static str, pools: usize) {
        let count = i64::try_from(pools).unwrap_or(i64::MAX);
        self.conditions.get_or_create(&[("condition", condition)]).set(count);
    }

    /// All of them as Prometheus' text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_leads_no_more_says_nothing_of_pools() {
        let metrics = Metrics::default();
        metrics.leads(true);
        metrics.pools(2, (3, 4, 5));
        metrics.condition("Exhausted", 1);
        let exhausted = "cosid_controller_pool_conditions{condition=\"Exhausted\"} 1";
        assert!(metrics.text().lines().any(|line| line == exhausted), "{}", metrics.text());
        metrics.leads(false);
        let text = metrics.text();
        assert!(text.contains("cosid_controller_pools 0") && !text.contains("condition="), "{text}");
    }
}
