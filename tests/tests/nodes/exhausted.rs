//! More pods than slots.

use std::collections::BTreeSet;

use cosid_tests::pods::{App, PodGround, is_ready};

use super::{Case, Needs};

pub(super) const CASES: &[Case] = &[(
    "pods_beyond_the_pools_size_wait_say_why_and_start_when_a_slot_is_free",
    Needs::AnyCluster,
    exhausted,
)];

fn exhausted(ground: &PodGround) {
    let space = ground.space("exhausted", 3, 10);
    space.deploy("shop", 5, &App::new("auto"));
    let waiting: BTreeSet<String> = space.wait("three of five are not ready", || {
        let pods = space.pods("shop");
        let ready = pods.values().filter(|pod| is_ready(pod)).count();
        let waiting = || pods.iter().filter(|(_, pod)| !is_ready(pod)).map(|(name, _)| name.clone());
        (pods.len() == 5 && ready == 3).then(|| waiting().collect())
    });
    for pod in &waiting {
        let names_it = |text: &str| text.contains("orders") && text.contains('3') && text.contains("expir");
        let event = space.wait("there is no event that says why", || {
            let of_pod = format!("--field-selector=involvedObject.name={pod}");
            let messages =
                space.kubectl(&["get", "events", &of_pod, "--output", "jsonpath={.items[*].message}"]);
            (messages.contains("exhausted") && names_it(&messages)).then_some(messages)
        });
        let log = space.wait("the agent does not log why", || {
            let log = space.log(pod, "cosid-agent");
            let line = log.lines().find(|line| line.contains("exhausted") && names_it(line));
            line.map(str::to_owned)
        });
        println!("{pod}: event: {event}\n{pod}: log: {log}");
    }
    // Three pods end, and make room for the two that wait: they start by themselves.
    space.scale("deployment/shop", 2);
    space.wait_ready("shop", 2);
    assert_eq!(space.held().len(), 2);
    space.scale("deployment/shop", 0);
    space.wait_gone("shop");
    space.count();
}
