//! A node that is cut off from the API server for longer than its leases live.

use cosid_tests::pods::{App, PodGround, is_ready};

use super::ordinals::{node_of, ready_again};
use super::{Case, Needs};

pub(super) const CASES: &[Case] = &[(
    "pods_on_a_node_that_is_cut_off_stop_at_their_ceiling_and_replacements_make_no_equal_id",
    Needs::OwnNodes,
    cut_off,
)];

fn cut_off(ground: &PodGround) {
    let space = ground.space("cut-off", 32, 5);
    space.deploy("shop", 6, &App::new("auto").rate(20_000).arg("--patience=600"));
    let pods = space.wait_ready("shop", 6);
    let cluster = ground.cluster();
    let node = node_of(pods.values().next().unwrap());
    let lost: Vec<_> = pods.values().filter(|pod| node_of(pod) == node).collect();
    let _ = ground.kubectl(&["cordon", &node]);
    let held = space.held();
    cluster.cut_node(&node).unwrap();

    // Nobody can ask them now: what they say is read off the node's disk.
    let says = |pod: &k8s_openapi::api::core::v1::Pod| {
        let (name, uid) = (pod.metadata.name.as_deref().unwrap(), pod.metadata.uid.as_deref().unwrap());
        let log = format!("/var/log/pods/{}_{name}_{uid}/app/0.log", space.name);
        cluster.run_on_node(&node, "cat", &[&log]).unwrap_or_default()
    };
    for pod in &lost {
        let refused = space.wait("it goes on without a lease", || {
            says(pod).lines().find(|line| line.contains(r#""event":"refused""#)).map(str::to_owned)
        });
        assert!(refused.contains(r#""kind":"transient""#) && refused.contains("window"), "{refused}");
    }
    space.wait("there are no replacements", || {
        let pods = space.pods("shop");
        let ready = pods.values().filter(|pod| is_ready(pod) && node_of(pod) != node).count();
        (ready == 6).then_some(())
    });
    // Those that nobody could take the slot from still have none: their windows have ended.
    cluster.join_node(&node).unwrap();
    ready_again(ground, &space, &node);
    space.wait_ready("shop", 6);
    assert!(lost.iter().all(|pod| held.contains_key(pod.metadata.name.as_deref().unwrap())));
    space.scale("deployment/shop", 0);
    space.wait_gone("shop");
    space.count();
}
