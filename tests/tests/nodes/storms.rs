//! What happens to the controller, its webhook and the API server while pods come and go.

use std::collections::BTreeSet;

use cosid_tests::pods::{App, PodGround, PodSpace, wait};
use k8s_openapi::api::core::v1::Pod;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xtask::installed::SYSTEM;

use super::{Case, Needs};

pub(super) const CASES: &[Case] = &[
    ("certificates_are_replaced_three_times_and_no_admission_fails", Needs::AnyCluster, certificates),
    (
        "with_the_controllers_killed_no_lease_is_lost_and_pods_are_injected_once_they_are_back",
        Needs::OwnNodes,
        controllers,
    ),
    ("an_api_server_that_is_killed_and_comes_back_costs_no_lease", Needs::OwnNodes, api_server),
    ("an_upgrade_of_the_chart_makes_no_id_late", Needs::AnyCluster, upgrade),
    ("pods_are_injected_by_the_policy_with_no_webhook_at_all", Needs::AnyCluster, policy),
];

fn certificates(ground: &PodGround) {
    let space = ground.space("certificates", 8, 30);
    ground.installed.upgrade(&["injector.certificateLifetimeSeconds=15"]).unwrap();
    let secret = ["get", "secret", "cosid-webhook-tls", "--namespace", SYSTEM, "--output", "json"];
    let certificate = || serde_json::from_str::<Value>(&ground.kubectl(&secret)).unwrap()["data"].clone();
    let pod = App::new("auto").pod("tried");
    let (mut seen, mut admitted) = (vec![certificate()], 0);
    space.wait("there are no three new certificates", || {
        let args = ["--dry-run=server", "--output=json"];
        let made =
            space.create(&pod, &args).unwrap_or_else(|why| panic!("after {admitted} admissions: {why}"));
        let made: Pod = serde_json::from_str(&made).unwrap();
        assert!(has_agent(&made), "it slipped through after {admitted} admissions");
        admitted += 1;
        let now = certificate();
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        (seen.len() > 3).then_some(())
    });
    println!("{admitted} admissions, none failed, while the certificates were replaced three times");
    ground.installed.upgrade(&[]).unwrap();
}

fn controllers(ground: &PodGround) {
    let space = ground.space("controllers", 16, 10);
    space.deploy("shop", 4, &App::new("auto").rate(20_000));
    space.wait_ready("shop", 4);
    let before = leases(&space);
    let killed = kill_all("/cosid-controller");
    assert!(killed >= 2, "both replicas run");
    // The ReplicaSet's attempts are refused until the webhook answers again.
    space.scale("deployment/shop", 8);
    let pods = space.wait_ready("shop", 8);
    assert!(pods.values().all(has_agent));
    assert!(leases(&space).is_superset(&before), "each is under the fence that it was under");
    space.scale("deployment/shop", 0);
    space.wait_gone("shop");
    space.count();
}

fn api_server(ground: &PodGround) {
    let space = ground.space("api-server", 16, 30);
    space.deploy("shop", 6, &App::new("auto").rate(20_000));
    let pods = space.wait_ready("shop", 6);
    let before = leases(&space);
    let cluster = ground.cluster();
    for _ in 0..2 {
        cluster.kill_apiserver().unwrap();
        cluster.start_apiserver().unwrap();
        // Every one of them renews at the new one.
        let expiries =
            || space.slots().into_iter().filter_map(|slot| Some(slot.record.holding()?.expires_at));
        let latest = expiries().max().unwrap();
        space.wait("they do not renew", || {
            let renewed = expiries().collect::<Vec<_>>();
            (renewed.len() == 6 && renewed.iter().all(|at| *at > latest)).then_some(())
        });
    }
    assert_eq!(leases(&space), before);
    for pod in pods.keys() {
        let says = space.says(pod);
        assert!(!says.iter().any(|said| said["event"] == "refused" || said["event"] == "moved"), "{says:?}");
    }
    space.scale("deployment/shop", 0);
    space.wait_gone("shop");
    space.count();
}

fn upgrade(ground: &PodGround) {
    let space = ground.space("upgrade", 16, 30);
    space.deploy("shop", 4, &App::new("auto").rate(20_000));
    let pods = space.wait_ready("shop", 4);
    let before = leases(&space);
    let controllers = || ground.kubectl(&["get", "pods", "--namespace", SYSTEM, "--output", "name"]);
    let old = controllers();
    ground.installed.upgrade(&["controller.log=info", "controller.podAnnotations.again=yes"]).unwrap();
    wait("the controller's pods are not new", || {
        let now = controllers();
        now.lines().all(|pod| !old.contains(pod)).then_some(())
    });
    assert_eq!(leases(&space), before);
    for pod in pods.keys() {
        // An ID that is not there within 200 ms is late: the app says so.
        let says = space.says(pod);
        assert!(!says.iter().any(|said| said["event"] == "refused" || said["event"] == "moved"), "{says:?}");
    }
    space.scale("deployment/shop", 0);
    space.wait_gone("shop");
    space.count();
    ground.installed.upgrade(&[]).unwrap();
}

fn policy(ground: &PodGround) {
    let space = ground.space("policy", 16, 30);
    ground.installed.upgrade(&["injector.mode=policy"]).unwrap();
    let pod = App::new("auto").pod("tried");
    // In effect within about a second.
    space.wait("the policy does not inject", || {
        let made = space.create(&pod, &["--dry-run=server", "--output=json"]).ok()?;
        serde_json::from_str::<Pod>(&made).ok().filter(has_agent)
    });
    let webhooks = ground.kubectl(&["get", "mutatingwebhookconfigurations", "--output", "name"]);
    assert!(!webhooks.contains("cosid"), "{webhooks}");
    space.deploy_stateful("db", 0, 3, &App::new("ordinal").rate(20_000));
    let pods = space.wait_ready("db", 3);
    assert!(pods.values().all(has_agent));
    assert_eq!(space.held(), [("db-0".into(), 0), ("db-1".into(), 1), ("db-2".into(), 2)].into());
    let bad = App::new("maybe").pod("bad");
    let why = space.create(&bad, &[]).unwrap_err();
    assert!(why.contains("cosid/slot") && why.contains("auto") && why.contains("ordinal"), "{why}");
    space.scale("statefulset/db", 0);
    space.wait_gone("db");
    space.count();
    ground.installed.upgrade(&[]).unwrap();
}

/// Who holds which slot under which fence.
fn leases(space: &PodSpace<'_>) -> BTreeSet<(u32, u32, String)> {
    let held = |slot: cosid_tests::pods::Slot| Some((slot.number, slot.fence(), slot.holder()?.to_owned()));
    space.slots().into_iter().filter_map(held).collect()
}

fn has_agent(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref().unwrap();
    spec.init_containers.iter().flatten().any(|container| container.name == "cosid-agent")
}

/// Kills all processes of a program in containers, and says how many there were.
fn kill_all(program: &str) -> usize {
    let pids = std::fs::read_dir("/proc").unwrap();
    let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_it = |pid: &i32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).next() == Some(program.as_bytes())
    };
    let found: Vec<i32> = pids.filter(is_it).collect();
    found.iter().for_each(|pid| kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).unwrap());
    found.len()
}
