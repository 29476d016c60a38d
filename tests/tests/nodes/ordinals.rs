//! StatefulSets, whose pods have a number.

use cosid_tests::pods::{App, PodGround, PodSpace, is_ready};
use k8s_openapi::api::core::v1::Pod;

use super::{Case, Needs};

pub(super) const CASES: &[Case] = &[
    ("a_pod_of_a_statefulset_holds_the_slot_of_its_number", Needs::AnyCluster, each_its_own),
    (
        "a_pod_forced_off_a_node_that_is_cut_off_waits_for_its_slot_or_takes_another_as_annotated",
        Needs::OwnNodes,
        forced,
    ),
];

fn each_its_own(ground: &PodGround) {
    let space = ground.space("ordinals", 8, 30);
    space.deploy_stateful("db", 0, 5, &App::new("ordinal"));
    let pods = space.wait_ready("db", 5);
    let held = space.held();
    for (number, pod) in pods.keys().enumerate() {
        assert_eq!((pod.as_str(), held[pod] as usize), (format!("db-{number}").as_str(), number));
    }
    space.wait_says("db-4", "started");
    space.scale("statefulset/db", 0);
    space.wait_gone("db");
    space.count();
}

fn forced(ground: &PodGround) {
    // The replacements start well before the old leases end.
    let space = ground.space("forced", 16, 25);
    let app = |slot: &str| App::new(slot).rate(20_000).arg("--patience=600");
    let cluster = ground.cluster();
    let nodes = cluster.node_names().unwrap();
    let [node, other] = &nodes[..] else { panic!("{nodes:?}") };
    let _ = ground.kubectl(&["cordon", other]);
    space.deploy_stateful("strict", 0, 1, &app("ordinal"));
    space.deploy_stateful("easy", 4, 1, &app("prefer:ordinal"));
    space.wait_ready("strict", 1);
    space.wait_ready("easy", 1);
    let old = space.held();
    assert_eq!((old["strict-0"], old["easy-4"]), (0, 4));
    let _ = ground.kubectl(&["uncordon", other]);
    let _ = ground.kubectl(&["cordon", node]);
    cluster.cut_node(node).unwrap();
    // No renewal can come after this.
    let record = || space.slots().into_iter().find(|slot| slot.number == 0).unwrap().record;
    let last = record();
    let was = |pod: &str| space.pod(pod).unwrap().metadata.uid;
    let (strict, easy) = (was("strict-0"), was("easy-4"));
    let force = ["delete", "pod", "strict-0", "easy-4", "--force", "--grace-period=0"];
    let _ = space.kubectl(&force);
    let anew = |pod: &str, old: &Option<String>| space.pod(pod).filter(|found| found.metadata.uid != *old);
    // The old process still runs, and its lease is live: the one that may takes another slot at once.
    let easy_again = space.wait("easy-4 does not come back", || anew("easy-4", &easy).filter(is_ready));
    assert_eq!(node_of(&easy_again), *other);
    let easy_slots = space.slots();
    let by_easy: Vec<u32> = easy_slots
        .iter()
        .filter(|slot| slot.holder() == Some("forced/easy-4"))
        .map(|slot| slot.number)
        .collect();
    assert!(
        by_easy.len() == 2 && by_easy.contains(&4),
        "the old one and the new: {by_easy:?} of {easy_slots:#?} {}",
        space.log("easy-4", "cosid-agent")
    );
    // The one that may not waits until nobody can use what it waits for.
    let again = space.wait("strict-0 does not get its slot", || anew("strict-0", &strict).filter(is_ready));
    assert_eq!(space.held()["strict-0"], 0);
    let now = record();
    assert_eq!(now.fence, last.fence + 1);
    assert!(now.holding().unwrap().acquired_at >= last.holding().unwrap().expires_at, "{last:?} {now:?}");
    assert!(now.holding().unwrap().floor >= last.holding().unwrap().ceiling, "{last:?} {now:?}");
    space.wait_says("strict-0", "started");

    cluster.join_node(node).unwrap();
    ready_again(ground, &space, node);
    assert_eq!(again.metadata.uid, space.pod("strict-0").unwrap().metadata.uid);
    space.scale("statefulset/strict", 0);
    space.scale("statefulset/easy", 0);
    space.wait_gone("strict");
    space.wait_gone("easy");
    space.count();
}

pub(super) fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().node_name.clone().unwrap()
}

/// Waits until a node that was lost takes pods again.
pub(super) fn ready_again(ground: &PodGround, space: &PodSpace<'_>, node: &str) {
    let _ = ground.kubectl(&["uncordon", node]);
    let condition = "jsonpath={.status.conditions[?(@.type=='Ready')].status}{.spec.taints}";
    space.wait(&format!("{node} is not back"), || {
        (ground.kubectl(&["get", "node", node, "--output", condition]) == "True").then_some(())
    });
}
