use std::process::Command;
use std::time::{Duration, Instant};

use cosid_controller::leader::LEASE;
use cosid_kube::codec;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde_json::json;
use xtask::programs::{self, Program};

use crate::bench::{Bench, LONG, SYSTEM, blocking, slots};

const TTL: Duration = Duration::from_secs(3);

fn replica(bench: &Bench, id: &str) -> Program {
    let mut command = Command::new(programs::path("cosid-controller").unwrap());
    command.arg("--kubeconfig").arg(bench.cluster.kubeconfig());
    command.args(["--namespace", SYSTEM, "--listen", "127.0.0.1:0", "--id", id, "--leader-ttl", "3"]);
    Program::start(id, command, bench.cluster.kubeconfig().parent().unwrap()).unwrap()
}

async fn led_by(bench: &Bench, id: &str) -> Lease {
    let leases: Api<Lease> = Api::namespaced(bench.client.clone(), SYSTEM);
    let led = |lease: Option<&Lease>| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        spec.is_some_and(|spec| spec.holder_identity.as_deref() == Some(id))
    };
    bench.wait(leases, LEASE, led).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_hands_over_at_once_when_asked_to_go_and_is_waited_for_when_killed() {
    let bench = Bench::new().await;
    let mut first = replica(&bench, "first");
    led_by(&bench, "first").await;
    let second = replica(&bench, "second");
    bench.ready("before", slots(3)).await;
    // The second has to have seen the election before it can be quick about the next.
    let log = blocking(move || {
        programs::until(
            || "the second does not run".into(),
            LONG,
            || Ok(second.log().contains("the controller runs").then_some(())),
        )
        .unwrap();
        second
    });
    let mut second = log.await;

    let begun = Instant::now();
    first.signal(Signal::TERM).unwrap();
    led_by(&bench, "second").await;
    let took = begun.elapsed();
    println!("hand-over on SIGTERM: {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    let status = blocking(move || first.wait(LONG).unwrap()).await;
    assert_eq!(status.code(), Some(0));
    bench.ready("between", slots(3)).await;

    let _third = replica(&bench, "third");
    let begun = Instant::now();
    second.kill().unwrap();
    led_by(&bench, "third").await;
    let took = begun.elapsed();
    println!("take-over after SIGKILL, ttl 3 s: {took:?}");
    assert!(took < TTL * 3, "{took:?}");
    bench.ready("after", slots(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_lease_that_is_deleted_or_edited_to_nonsense_is_put_right() {
    let bench = Bench::new().await;
    let controller = bench.controller();
    let leases: Api<Lease> = Api::namespaced(bench.client.clone(), SYSTEM);
    let first = led_by(&bench, "in-process").await;
    let nonsense = json!({ "metadata": { "annotations": { "cosid.dev/next-floor": "x" } } });
    leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(&nonsense)).await.unwrap();
    let readable = |lease: Option<&Lease>| {
        let record = lease.and_then(|lease| codec::read(lease).ok().flatten());
        record.is_some_and(|record| record.holding().is_some())
    };
    bench.wait(leases.clone(), LEASE, readable).await;
    // A time that the API server takes and a `Lease` can't hold: not even the answer is read.
    let beyond = json!({ "spec": { "renewTime": "9999-12-31T23:59:59.000000Z" } });
    let patched = leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(&beyond)).await;
    assert!(matches!(patched, Err(kube::Error::SerdeError(_))), "{patched:?}");
    let put_right = async {
        while !readable(leases.get(LEASE).await.ok().as_ref()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, put_right).await.unwrap();
    leases.delete(LEASE, &DeleteParams::default()).await.unwrap();
    let another = |lease: Option<&Lease>| readable(lease) && lease.and_then(ResourceExt::uid) != first.uid();
    bench.wait(leases, LEASE, another).await;
    bench.ready("orders", slots(3)).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_away_ends_no_controller_and_it_works_again_when_it_is_back() {
    let bench = Bench::new().await;
    let cluster = std::sync::Arc::clone(&bench.cluster);
    blocking(move || cluster.kill_apiserver().unwrap()).await;
    // Started while there is nothing to talk to.
    let mut replica = replica(&bench, "only");
    replica.signal(Signal::CONT).unwrap();
    let cluster = std::sync::Arc::clone(&bench.cluster);
    blocking(move || cluster.start_apiserver().unwrap()).await;
    bench.ready("orders", slots(3)).await;
    let cluster = std::sync::Arc::clone(&bench.cluster);
    blocking(move || {
        cluster.kill_apiserver().unwrap();
        cluster.start_apiserver().unwrap();
    })
    .await;
    bench.ready("later", slots(3)).await;
    assert_eq!(replica.has_ended().unwrap(), None);
    let status = blocking(move || replica.terminate(LONG).unwrap()).await;
    assert_eq!(status.code(), Some(0));
}
