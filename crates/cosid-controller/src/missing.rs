//! Pods that asked for an agent and have none: they were made while nothing injected. Their apps refuse to make IDs, so
//! somebody has to be told.
//!
//! Only metadata are read, and of pods that are just being started; what slipped through a while ago is found by a slow walk
//! through all pods, page by page.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use kube_runtime::WatchStreamExt as _;
use kube_runtime::events::{Event, EventType};
use kube_runtime::watcher::{Config, DefaultBackoff, Event as Seen, watcher};
use tokio::sync::watch;

use crate::events::Post;
use crate::inject::LEFT_OUT;
use crate::inject::annotations::{SLOT, STATUS};
use crate::metrics::Metrics;

/// Pods that are just being started.
const STARTING: &str = "status.phase=Pending";
/// Pods that have not ended.
const ALIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// How often all pods are walked through.
const WALK: Duration = Duration::from_secs(900);
/// How often those that are known are looked at again: they may have ended since they run.
const RECHECK: Duration = Duration::from_secs(60);
/// How many pods a page has.
const PAGE: u32 = 500;
/// The most that are known, and counted, at once.
const MOST: usize = 1_000;

/// Looks for them, and tells.
pub(crate) struct Missing {
    pub(crate) client: Client,
    pub(crate) post: Post,
    pub(crate) metrics: Arc<Metrics>,
    /// The controller's own namespace.
    pub(crate) own_namespace: String,
}

type Metadata = PartialObjectMeta<Pod>;

/// Those known, by UID.
type Known = HashMap<String, ObjectReference>;

impl Missing {
    /// For ever, while this replica leads.
    pub(crate) async fn look(self, mut leads: watch::Receiver<bool>) {
        while leads.wait_for(|&leads| leads).await.is_ok() {
            tokio::select! {
                () = self.follow() => {}
                _ = leads.wait_for(|&leads| !leads) => {}
            }
            // Whoever leads now counts them.
            self.metrics.without_agent(0);
        }
    }

    async fn follow(&self) {
        let config = Config::default().fields(STARTING);
        let mut events = pin!(watcher(self.all(), config).backoff(DefaultBackoff::default()));
        let (mut walk, mut recheck) = (tokio::time::interval(WALK), tokio::time::interval(RECHECK));
        let mut known = Known::new();
        loop {
            tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(Seen::Apply(pod) | Seen::InitApply(pod)) => self.judge(&pod, &mut known),
                    // It runs, or is gone.
                    Ok(Seen::Delete(pod)) => self.recheck(&mut known, |uid| pod.uid().as_ref() == Some(uid)).await,
                    Ok(Seen::Init | Seen::InitDone) => {}
                    Err(error) => {
                        self.metrics.watch_failed();
                        tracing::warn!(%error, "the watch of starting pods broke off; trying on");
                    }
                },
                _ = walk.tick() => self.walk(&mut known).await,
                _ = recheck.tick() => self.recheck(&mut known, |_| true).await,
            }
            self.metrics.without_agent(known.len());
        }
    }

    async fn walk(&self, known: &mut Known) {
        let mut page = ListParams::default().fields(ALIVE).limit(PAGE);
        loop {
            match self.all().list(&page).await {
                Ok(list) => {
                    list.items.iter().for_each(|pod| self.judge(pod, known));
                    match list.metadata.continue_ {
                        Some(next) if !next.is_empty() => page.continue_token = Some(next),
                        _ => return,
                    }
                }
                // The next walk begins anew.
                Err(error) => return tracing::debug!(%error, "pods could not be listed"),
            }
        }
    }

    /// Forgets those of `which` that have gone or ended.
    async fn recheck(&self, known: &mut Known, which: impl Fn(&String) -> bool) {
        let mut gone = Vec::new();
        for (uid, pod) in known.iter().filter(|(uid, _)| which(uid)) {
            let (namespace, name) = (pod.namespace.as_deref(), pod.name.as_deref());
            let pods: Api<Metadata> = Api::namespaced(self.client.clone(), namespace.unwrap_or_default());
            let alive =
                ListParams::default().fields(&format!("metadata.name={},{ALIVE}", name.unwrap_or_default()));
            if let Ok(found) = pods.list(&alive).await
                && !found.items.iter().any(|pod| pod.uid().as_ref() == Some(uid))
            {
                gone.push(uid.clone());
            }
        }
        gone.iter().for_each(|uid| drop(known.remove(uid)));
    }

    fn judge(&self, pod: &Metadata, known: &mut Known) {
        let Some(uid) = pod.uid().filter(|_| is_missing(pod)) else { return };
        if known.contains_key(&uid) || known.len() >= MOST {
            return;
        }
        let about = ObjectReference {
            api_version: Some(Pod::api_version(&()).into_owned()),
            kind: Some(Pod::kind(&()).into_owned()),
            ..pod.object_ref(&())
        };
        let event = self.event(pod);
        tracing::warn!(
            namespace = about.namespace,
            name = about.name,
            "a pod has no agent: {}",
            event.note.as_deref().unwrap_or_default()
        );
        self.post.send(about.clone(), event);
        known.insert(uid, about);
    }

    fn event(&self, pod: &Metadata) -> Event {
        let namespace = pod.namespace().unwrap_or_default();
        let note = if namespace == self.own_namespace || LEFT_OUT.contains(&namespace.as_str()) {
            format!(
                "The annotation {SLOT} asks for an agent, but nothing is injected in namespace {namespace}: run this pod in \
                 another one, or take the annotation off."
            )
        } else {
            format!(
                "The annotation {SLOT} asks for an agent, and there is none: the pod was made while nothing injected. Its \
                 app can make no IDs. Delete the pod, so that it is made anew with one."
            )
        };
        Event {
            type_: EventType::Warning,
            reason: "AgentMissing".to_owned(),
            note: Some(note),
            action: "Inject".to_owned(),
            secondary: None,
        }
    }

    fn all(&self) -> Api<Metadata> {
        Api::all(self.client.clone())
    }
}

/// Who asks and has no answer. (A pod that brings a hand-written agent and the annotation is refused.)
fn is_missing(pod: &Metadata) -> bool {
    let has = |name: &str| pod.annotations().contains_key(name);
    has(SLOT) && !has(STATUS) && pod.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use kube::core::{ObjectMeta, PartialObjectMetaExt as _};

    use super::*;

    #[test]
    fn a_pod_that_asked_and_was_not_answered_is_missing_its_agent() {
        for (annotations, missing) in
            [(vec![SLOT], true), (vec![SLOT, STATUS], false), (vec![], false), (vec![STATUS], false)]
        {
            let annotations = annotations.into_iter().map(|name| (name.to_owned(), "x".to_owned())).collect();
            let pod: Metadata = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() }
                .into_response_partial();
            assert_eq!(is_missing(&pod), missing, "{pod:?}");
        }
    }
}
