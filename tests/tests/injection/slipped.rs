//! Pods that slipped through.

use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, WatchEvent, WatchParams};

use crate::ground::{Ground, Injecting, LONG, SHOP, auto, blocking, is_injected};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_made_while_nothing_injects_is_let_through_by_ignore_and_reported() {
    let ground = Ground::new().await;
    let mut controller = ground.controller("first", &[]).await;
    ground.register(&controller.address, "Ignore").await;
    blocking(move || controller.program.kill().unwrap()).await;
    let made = ground.make_pod(SHOP, &auto()).await.unwrap();
    assert!(!is_injected(&made), "{made:?}");

    let next = ground.controller("second", &[]).await;
    let events: Api<Event> = Api::namespaced(ground.client.clone(), SHOP);
    let params = WatchParams::default().fields("reason=AgentMissing");
    let mut stream = pin!(events.watch(&params, "0").await.unwrap());
    let event = tokio::time::timeout(LONG, async {
        loop {
            if let WatchEvent::Added(event) = stream.try_next().await.unwrap().unwrap() {
                return event;
            }
        }
    });
    let event = event.await.unwrap();
    let about = event.regarding.clone().unwrap();
    assert_eq!((about.kind.as_deref(), about.uid), (Some("Pod"), made.metadata.uid));
    assert!(event.note.as_ref().unwrap().contains("Delete the pod, so that it is made anew"), "{event:?}");

    counted(&next, 1).await;
    ground
        .pods(SHOP)
        .delete(&made.metadata.name.unwrap(), &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    counted(&next, 0).await;
}

/// Waits until so many pods are known to be without an agent.
async fn counted(controller: &Injecting, count: usize) {
    let wanted = format!("cosid_controller_pods_without_agent {count}");
    let counted = async {
        while !metrics(&controller.program.log()).lines().any(|line| line == wanted) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, counted).await.unwrap();
}

/// What Prometheus would read.
fn metrics(log: &str) -> String {
    use std::io::{Read as _, Write as _};
    let address = log.split(" listen=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let mut stream = std::net::TcpStream::connect(address.unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
