//! Certificates.

use std::collections::HashSet;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cosid_controller::inject::registration::{CONFIGURATION, SECRET};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::json;

use crate::ground::{Ground, LONG, SYSTEM, auto, blocking, bundle, is_injected};

/// The last line of a certificate.
const END: &str = "-----END CERTIFICATE-----";

/// Makes pods all the time, and counts them, until told to stop.
async fn admissions(ground: Arc<Ground>, stop: Arc<AtomicBool>) -> (u32, Vec<String>) {
    let (mut count, mut failures) = (0, Vec::new());
    while !stop.load(Ordering::SeqCst) {
        match ground.try_pod(&auto()).await {
            Ok(pod) if is_injected(&pod) => count += 1,
            other => failures.push(format!("{other:?}")),
        }
    }
    (count, failures)
}

/// Connects to replicas all the time as an API server does that begins now: it trusts what the registration says. (The one
/// there is keeps its connections, and sees a new certificate only once it needs another.)
async fn handshakes(
    ground: Arc<Ground>,
    replicas: [String; 2],
    stop: Arc<AtomicBool>,
) -> (HashSet<Vec<u8>>, Vec<String>) {
    let (mut seen, mut failures) = (HashSet::new(), Vec::new());
    while !stop.load(Ordering::SeqCst) {
        let trusted = bundle(Some(&ground.registrations().get(CONFIGURATION).await.unwrap()));
        for address in replicas.clone() {
            let trusted = trusted.clone();
            match blocking(move || handshake(&address, &trusted)).await {
                Ok(certificate) => drop(seen.insert(certificate)),
                Err(error) => failures.push(error.to_string()),
            }
        }
    }
    (seen, failures)
}

/// The certificate that is shown, if it is one to trust.
fn handshake(address: &str, trusted: &str) -> std::io::Result<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "cosid-webhook.cosid-system.svc".try_into().unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(address)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(connection.peer_certificates().unwrap()[0].to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_rotate_three_times_under_admissions_and_none_fails() {
    let ground = Arc::new(Ground::new().await);
    // Two replicas: whoever leads makes certificates, both show them.
    let short = &["--certificate-lifetime", "15"];
    let first = ground.controller("first", short).await;
    let second = ground.controller("second", short).await;
    ground.register(&first.address, "Fail").await;
    let replicas = [first.address.clone(), second.address.clone()];
    let second = blocking(move || {
        // The second has its first certificate, too.
        let shown = || Ok(second.program.log().contains("the webhook shows").then_some(()));
        xtask::programs::until(|| second.program.log(), LONG, shown).unwrap();
        second
    });
    let second = second.await;

    let stop = Arc::new(AtomicBool::new(false));
    let admitting = tokio::spawn(admissions(Arc::clone(&ground), Arc::clone(&stop)));
    let connecting = tokio::spawn(handshakes(Arc::clone(&ground), replicas, Arc::clone(&stop)));
    let newest = |bundle: &str| bundle.split_inclusive(END).next().map(str::to_owned);
    let mut bundles = vec![bundle(Some(&ground.trusted().await))];
    for _ in 0..3 {
        let last = newest(bundles.last().unwrap());
        let other = move |found: Option<&MutatingWebhookConfiguration>| newest(&bundle(found)) != last;
        let found = ground.wait(ground.registrations(), CONFIGURATION, other).await;
        bundles.push(bundle(found.as_ref()));
    }
    // Until the last one is shown, too, by both.
    let programs = blocking(move || {
        for replica in [&first, &second] {
            let shown =
                || Ok((replica.program.log().matches("the webhook shows").count() >= 4).then_some(()));
            xtask::programs::until(|| replica.program.log(), LONG, shown).unwrap();
        }
        [first, second]
    });
    let programs = programs.await;
    stop.store(true, Ordering::SeqCst);
    let (count, failures) = admitting.await.unwrap();
    assert!(failures.is_empty(), "{} of {count} admissions failed: {:?}", failures.len(), failures.first());
    let (seen, failures) = connecting.await.unwrap();
    assert!(failures.is_empty(), "{} handshakes failed: {:?}", failures.len(), failures.first());
    drop(programs);
    println!("3 rotations, {count} admissions, {} certificates seen, none failed", seen.len());
    assert!(count > 100 && seen.len() >= 3, "{count}, {}", seen.len());
    // The old authority stays beside the new.
    for (before, after) in bundles.iter().zip(&bundles[1..]) {
        assert!(after.contains(newest(before).unwrap().trim()), "{after}");
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
