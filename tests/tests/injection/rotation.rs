//! Certificates.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cosid_controller::inject::registration::{CONFIGURATION, SECRET};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::ground::{Ground, LONG, SYSTEM, auto, blocking, bundle, is_injected};

/// Makes pods all the time, each over a connection of its own or not, as the API server likes.
async fn admissions(ground: Arc<Ground>, stop: Arc<AtomicBool>, done: Arc<AtomicU32>) -> Vec<String> {
    let mut failures = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        match ground.try_pod(&auto()).await {
            Ok(pod) if is_injected(&pod) => drop(done.fetch_add(1, Ordering::SeqCst)),
            other => failures.push(format!("{other:?}")),
        }
    }
    failures
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_rotate_under_admissions_and_none_fails() {
    let ground = Arc::new(Ground::new().await);
    // Two replicas: whoever leads makes certificates, both show them. Only one is registered by its address.
    let short = &["--certificate-lifetime", "9"];
    let first = ground.controller("first", short).await;
    let second = ground.controller("second", short).await;
    ground.register(&first.address, "Fail").await;

    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let admitting = tokio::spawn(admissions(Arc::clone(&ground), Arc::clone(&stop), Arc::clone(&done)));
    let mut bundles = vec![bundle(Some(&ground.trusted().await))];
    for _ in 0..4 {
        let last = bundles.last().unwrap().clone();
        let newest =
            |bundle: &str| bundle.split_inclusive("-----END CERTIFICATE-----").next().map(str::to_owned);
        let other =
            move |found: Option<&MutatingWebhookConfiguration>| newest(&bundle(found)) != newest(&last);
        let found = ground.wait(ground.registrations(), CONFIGURATION, other).await;
        bundles.push(bundle(found.as_ref()));
    }
    // Until the last one is shown, too.
    blocking(move || {
        for program in [&first.program, &second.program] {
            let shown = || {
                Ok((program.log().matches("the webhook shows another certificate").count() >= 5)
                    .then_some(()))
            };
            xtask::programs::until(|| program.log(), LONG, shown).unwrap();
        }
        // Neither ends before the admissions do.
        stop.store(true, Ordering::SeqCst);
        (first, second)
    })
    .await;
    let failures = admitting.await.unwrap();
    let count = done.load(Ordering::SeqCst);
    assert!(failures.is_empty(), "{} of {} failed: {:?}", failures.len(), count, failures.first());
    println!("4 rotations, {count} admissions, none failed");
    assert!(count > 100, "{count}");
    // The old authority stays beside the new.
    for (before, after) in bundles.iter().zip(&bundles[1..]) {
        let old = before.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap();
        assert!(after.contains(old.trim()), "{after}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_wipes_comes_back_as_it_was() {
    let ground = Ground::new().await;
    let controller = ground.controller("first", &[]).await;
    ground.register(&controller.address, "Fail").await;
    let before = ground.trusted().await;

    let mut wiped = before.clone();
    wiped.webhooks.as_mut().unwrap()[0].client_config.ca_bundle = None;
    wiped.webhooks.as_mut().unwrap()[0].timeout_seconds = Some(3);
    ground.registrations().replace(CONFIGURATION, &Default::default(), &wiped).await.unwrap();
    let after = ground.trusted().await;
    assert_eq!(bundle(Some(&after)), bundle(Some(&before)));
    let (mut expected, mut found) = (wiped.webhooks.unwrap(), after.webhooks.unwrap());
    assert_eq!(expected[0].client_config.url, found[0].client_config.url);
    (expected[0].client_config, found[0].client_config) = Default::default();
    assert_eq!(found, expected, "nothing else changes");

    let secrets: Api<Secret> = Api::namespaced(ground.client.clone(), SYSTEM);
    let kept = secrets.get(SECRET).await.unwrap();
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    let another = |found: Option<&Secret>| found.is_some_and(|found| found.uid() != kept.uid());
    assert_eq!(ground.wait(secrets.clone(), SECRET, another).await.unwrap().data, kept.data);
    let nonsense = Patch::Merge(json!({ "data": { "tls.key": "eA==" } }));
    secrets.patch(SECRET, &PatchParams::default(), &nonsense).await.unwrap();
    let mended = |found: Option<&Secret>| found.is_some_and(|found| found.data == kept.data);
    ground.wait(secrets, SECRET, mended).await;
    assert!(is_injected(&ground.try_pod(&auto()).await.unwrap()));
}
