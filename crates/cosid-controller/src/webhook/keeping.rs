//! Keeps the certificates: the leader makes them and has API servers trust them; every replica shows the newest that they
//! trust.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cosid_kube::{ApiClock, monotonic};
use cosid_lease::Millis;
use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::core::{DynamicObject, ObjectMeta};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use kube_runtime::WatchStreamExt as _;
use kube_runtime::watcher::{DefaultBackoff, Error as WatchError, watch_object};
use serde_json::{Value, json};

use super::WebhookSettings;
use super::certificates::{Generation, Generations};
use super::listen::Shown;
use super::trust::Trust;
use crate::Error;
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::writes::Writes;

/// How often everything is looked at without a reason.
const LOOK: Millis = 60_000;
/// How soon after a failure.
const AGAIN: Millis = 1_000;

/// See the [module's text](self).
pub(crate) struct Keeping {
    pub(crate) client: Client,
    pub(crate) clock: ApiClock,
    pub(crate) leadership: Leadership,
    pub(crate) writes: Writes,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) shown: Arc<Shown>,
    pub(crate) settings: WebhookSettings,
}

/// What is known of the API server's objects. The outer `None`: nothing yet; the inner: there is none.
#[derive(Default)]
struct Known {
    secret: Option<Option<Secret>>,
    registration: Option<Option<DynamicObject>>,
    /// Those of the Secret; where somebody takes it away, those it had, so that it comes back as it was.
    generations: Option<Generations>,
    trust: Trust,
    now_shown: Option<Generation>,
}

impl Keeping {
    /// For ever.
    pub(crate) async fn keep(self) {
        let (secret, registration) = (&self.settings.secret, &self.settings.configuration);
        let secrets = watch_object(self.secrets(), secret).backoff(DefaultBackoff::default());
        let registrations =
            watch_object(self.registrations(), registration).backoff(DefaultBackoff::default());
        let (mut secrets, mut registrations) = (pin!(secrets), pin!(registrations));
        let mut leads = self.leadership.changes();
        let mut known = Known::default();
        let mut wait = LOOK;
        loop {
            tokio::select! {
                Some(found) = secrets.next() => self.saw("Secret", found, |found| known.found(found)),
                Some(found) = registrations.next() => {
                    self.saw("MutatingWebhookConfiguration", found, |found| known.registration = Some(found));
                }
                Ok(()) = leads.changed() => {}
                () = tokio::time::sleep(Duration::from_millis(wait)) => {}
            }
            let due = match self.lead(&mut known).await {
                Ok(due) => due,
                Err(error @ (Error::Conflict(_) | Error::NotLeading | Error::NoTime)) => {
                    tracing::debug!("certificates: {error}");
                    AGAIN
                }
                Err(error) => {
                    tracing::warn!("certificates: {error}; trying again");
                    AGAIN
                }
            };
            wait = due.min(self.show(&mut known)).clamp(10, LOOK);
        }
    }

    fn saw<T>(&self, what: &str, found: Result<T, WatchError>, take: impl FnOnce(T)) {
        match found {
            Ok(found) => take(found),
            Err(error) => {
                self.metrics.watch_failed();
                tracing::warn!(%error, "the watch of the webhook's {what} broke off; trying on");
            }
        }
    }

    /// Puts Secret and registration right, if this replica leads and knows both; gives in how many ms that is next due.
    async fn lead(&self, known: &mut Known) -> Result<Millis, Error> {
        let (true, Some(secret), Some(_)) = (self.leadership.leads(), &known.secret, &known.registration)
        else {
            return Ok(LOOK);
        };
        let now = self.clock.now().ok_or(Error::NoTime)?.earliest;
        let lifetime = u64::try_from(self.settings.lifetime.as_millis()).unwrap_or(u64::MAX);
        let names = self.names();
        let wanted = Generations::renewed(known.generations.as_ref(), &names, now, lifetime)?;
        let data = wanted.write();
        if secret.as_ref().and_then(|secret| secret.data.as_ref()) != Some(&data) {
            let written = self.write_secret(secret.as_ref(), data).await?;
            tracing::info!(expires = wanted.newest.expires(), "the webhook's certificates were written");
            known.found(Some(written));
        }
        // Only what the Secret has is to be trusted: every replica can find it there.
        let bundle = wanted.bundle(now);
        if let Some(Some(registration)) = &known.registration
            && let Some(right) = with_bundle(registration, &bundle)
        {
            let written = self.writes.upsert("webhook", &self.registrations(), &right).await?;
            tracing::info!("API servers were told whom to trust as the webhook");
            known.registration = Some(Some(written));
        }
        let previous = wanted.previous.as_ref().map_or(u64::MAX, Generation::expires);
        Ok(wanted.newest.due().min(previous).saturating_sub(now))
    }

    async fn write_secret(
        &self,
        found: Option<&Secret>,
        data: std::collections::BTreeMap<String, ByteString>,
    ) -> Result<Secret, Error> {
        let mut secret = found.cloned().unwrap_or_else(|| Secret {
            metadata: ObjectMeta { name: Some(self.settings.secret.clone()), ..ObjectMeta::default() },
            ..Secret::default()
        });
        secret.data = Some(data);
        self.writes.upsert("certificates", &self.secrets(), &secret).await
    }

    /// Shows the certificate that is to be shown; gives in how many ms that may be another one.
    fn show(&self, known: &mut Known) -> Millis {
        let Some(generations) = &known.generations else { return LOOK };
        let now = monotonic();
        let bundle = known.registration.as_ref().and_then(Option::as_ref).and_then(bundle);
        known.trust.observe(&bundle.unwrap_or_default(), generations, now);
        let time = self.clock.now().map_or(0, |time| time.latest);
        let (chosen, again) = known.trust.choose(generations, now, time);
        self.metrics.certificate_expires(chosen.expires());
        if known.now_shown.as_ref() != Some(chosen) {
            match chosen.certified_key() {
                Ok(key) => self.shown.show(key),
                Err(error) => tracing::warn!("{error}"),
            }
            tracing::info!(expires = chosen.expires(), "the webhook shows another certificate");
            known.now_shown = Some(chosen.clone());
        }
        again.unwrap_or(LOOK)
    }

    fn names(&self) -> Vec<String> {
        let service = format!("{}.{}.svc", self.settings.service, self.writes.own_namespace());
        std::iter::once(service).chain(self.settings.names.iter().cloned()).collect()
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), self.writes.own_namespace())
    }

    /// As they are, with whatever fields this API server knows: they are written back whole.
    fn registrations(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<MutatingWebhookConfiguration>(&()))
    }
}

impl Known {
    fn found(&mut self, secret: Option<Secret>) {
        let data = secret.as_ref().and_then(|secret| secret.data.as_ref());
        match data.and_then(Generations::read) {
            Some(generations) => self.generations = Some(generations),
            None if self.generations.is_some() => {
                tracing::warn!(
                    "the webhook's Secret is gone or can't be read: it is written again as it was"
                );
            }
            None => {}
        }
        self.secret = Some(secret);
    }
}

/// What a registration says that API servers are to trust.
fn bundle(registration: &DynamicObject) -> Option<String> {
    let encoded = &registration.data["webhooks"].as_array()?.first()?["clientConfig"]["caBundle"];
    let bytes: ByteString = serde_json::from_value(encoded.clone()).ok()?;
    String::from_utf8(bytes.0).ok()
}

/// The registration with this bundle and nothing else changed; `None` where it has it.
fn with_bundle(registration: &DynamicObject, bundle: &str) -> Option<DynamicObject> {
    let encoded: Value = json!(ByteString(bundle.as_bytes().to_vec()));
    let mut right = registration.clone();
    for webhook in right.data.get_mut("webhooks")?.as_array_mut()? {
        if let Some(webhook) = webhook.as_object_mut() {
            let client = webhook.entry("clientConfig").or_insert_with(|| json!({}));
            client["caBundle"] = encoded.clone();
        }
    }
    (right.data != registration.data).then_some(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bundle_of_a_registration_is_changed() {
        let found: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": "a", "resourceVersion": "5" },
            "webhooks": [{ "name": "b", "new": 1, "clientConfig": { "url": "https://x", "caBundle": "eA==" } }],
        }))
        .unwrap();
        assert_eq!(bundle(&found).as_deref(), Some("x"));
        let right = with_bundle(&found, "yz").unwrap();
        let expected =
            json!([{ "name": "b", "new": 1, "clientConfig": { "url": "https://x", "caBundle": "eXo=" } }]);
        assert_eq!((&right.data["webhooks"], &right.metadata), (&expected, &found.metadata));
        assert_eq!(with_bundle(&right, "yz"), None);
    }
}
