//! Processes that are killed, stopped, or run out of memory; a node that is switched off.

use cosid_tests::pods::{App, PodGround, PodSpace, processes};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use rustix::process::Signal;

use super::ordinals::{node_of, ready_again};
use super::{Case, Needs};

pub(super) const CASES: &[Case] = &[
    ("an_app_that_is_killed_goes_on_with_its_slot", Needs::OwnNodes, app),
    ("an_agent_that_is_killed_resumes_its_lease", Needs::OwnNodes, agent),
    ("an_app_that_is_out_of_memory_goes_on_with_its_slot", Needs::AnyCluster, out_of_memory),
    ("an_agent_that_stands_still_is_restarted_and_resumes_its_lease", Needs::OwnNodes, stopped),
    ("a_node_that_was_switched_off_comes_back_and_makes_no_equal_id", Needs::OwnNodes, reboot),
];

fn app(ground: &PodGround) {
    let space = ground.space("app-killed", 8, 30);
    let pod = start(&space, &App::new("auto").rate(100_000));
    let before = space.slots()[0].record.clone();
    // The kubelet waits 10 s before the second start, and twice as long before each further one.
    for restarts in 1..=2 {
        processes::signal(&pod, "app", Signal::KILL);
        restarted(&space, "app", restarts);
        space.wait_says("shop", "started");
    }
    let after = &space.slots()[0].record;
    assert_eq!(
        (after.fence, after.holding().unwrap().floor),
        (before.fence, before.holding().unwrap().floor)
    );
    finish(&space);
}

fn agent(ground: &PodGround) {
    let space = ground.space("agent-killed", 8, 30);
    let pod = start(&space, &App::new("auto").rate(100_000));
    let before = space.slots()[0].record.clone();
    processes::signal(&pod, "cosid-agent", Signal::KILL);
    restarted(&space, "cosid-agent", 1);
    renewed(&space, &before);
    assert!(!space.says("shop").iter().any(|said| said["event"] == "moved"), "{:?}", space.says("shop"));
    finish(&space);
}

fn out_of_memory(ground: &PodGround) {
    let space = ground.space("out-of-memory", 8, 30);
    space.run_pod("shop", &App::new("auto").rate(20_000).memory("48Mi").arg("--hoard=96"));
    let killed = space.wait("it is not killed", || {
        let status = status(&space.pod("shop")?, "app")?;
        status.last_state?.terminated
    });
    assert_eq!(killed.reason.as_deref(), Some("OOMKilled"));
    assert_eq!((space.held()["shop"], space.slots()[0].fence()), (0, 1));
    finish(&space);
}

fn stopped(ground: &PodGround) {
    // Liveness takes half a minute to fail: the lease lives longer.
    let space = ground.space("agent-stopped", 8, 120);
    let pod = start(&space, &App::new("auto").rate(100_000));
    let before = space.slots()[0].record.clone();
    processes::signal(&pod, "cosid-agent", Signal::STOP);
    restarted(&space, "cosid-agent", 1);
    renewed(&space, &before);
    finish(&space);
}

fn reboot(ground: &PodGround) {
    let space = ground.space("reboot", 16, 10);
    space.deploy_stateful("db", 0, 4, &App::new("auto").rate(40_000));
    let pods = space.wait_ready("db", 4);
    let node = node_of(&pods["db-0"]);
    let cluster = ground.cluster();
    cluster.switch_node_off(&node).unwrap();
    cluster.switch_node_on(&node).unwrap();
    ready_again(ground, &space, &node);
    space.wait("they are not restarted", || {
        let pods = space.pods("db");
        let back = |pod: &Pod| {
            node_of(pod) != node || status(pod, "app").is_some_and(|status| status.restart_count >= 1)
        };
        (pods.len() == 4 && pods.values().all(back)).then_some(())
    });
    space.wait_ready("db", 4);
    space.wait_says("db-0", "started");
    space.scale("statefulset/db", 0);
    space.wait_gone("db");
    space.count();
}

fn start(space: &PodSpace<'_>, app: &App) -> Pod {
    space.run_pod("shop", app);
    let pod = space.wait_ready("shop", 1).remove("shop").unwrap();
    space.wait_says("shop", "started");
    pod
}

/// Waits until a container has been started so many times after its first.
fn restarted(space: &PodSpace<'_>, container: &str, times: i32) {
    space.wait(&format!("{container} is not restarted"), || {
        let status = status(&space.pod("shop")?, container)?;
        (status.restart_count >= times && status.ready).then_some(())
    });
}

/// Waits until slot 0 has been renewed, and checks that it is the same lease.
fn renewed(space: &PodSpace<'_>, before: &cosid_lease::Record) {
    let expiry = space.slots()[0].record.holding().unwrap().expires_at;
    let after = space.wait("it does not renew", || {
        let record = space.slots().remove(0).record;
        record.holding().is_some_and(|holding| holding.expires_at > expiry).then_some(record)
    });
    assert_eq!(after.fence, before.fence);
    assert_eq!(after.holding().unwrap().owner, before.holding().unwrap().owner);
}

fn finish(space: &PodSpace<'_>) {
    let _ = space.kubectl(&["delete", "pod", "shop"]);
    space.wait_gone("shop");
    space.count();
}

fn status(pod: &Pod, container: &str) -> Option<ContainerStatus> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    all.into_iter().find(|status| status.name == container).cloned()
}
