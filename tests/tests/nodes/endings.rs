//! Apps that end by themselves, or take their time.

use std::time::{Duration, Instant};

use cosid_tests::pods::{App, PodGround};

use super::{Case, Needs};

pub(super) const CASES: &[Case] = &[
    ("a_jobs_slot_is_free_soon_after_its_app_has_ended", Needs::AnyCluster, job),
    ("an_app_that_uses_its_grace_period_keeps_its_slot_to_the_end", Needs::AnyCluster, grace),
];

fn job(ground: &PodGround) {
    let space = ground.space("job", 4, 120);
    space.run_job("report", &App::new("auto").rate(50_000).arg("--count=200000"));
    let pod = space.wait("there is no pod", || space.pods("report").into_keys().next());
    space.wait_says(&pod, "done");
    let done = Instant::now();
    space.wait("the slot is not released", || space.slots().iter().all(|slot| slot.is_free()).then_some(()));
    let after = done.elapsed();
    println!("a job's slot was free {after:?} after its app's end was seen");
    // The kubelet looks at its containers once a second, and then tells the agent to end.
    assert!(after < Duration::from_secs(3), "{after:?}");
    let complete = ["wait", "job/report", "--for=condition=Complete", "--timeout=60s"];
    let _ = space.kubectl(&complete);
    assert_eq!(space.count(), 200_000);
    // Whichever slot it had.
    let last = space.last_timestamps();
    assert_eq!(last.len(), 1, "{last:?}");
    for (slot, last) in last {
        assert_eq!(space.slots()[slot as usize].next_floor(), last);
    }
}

fn grace(ground: &PodGround) {
    let space = ground.space("grace", 4, 120);
    space.run_pod("slow", &App::new("auto").rate(100_000).arg("--grace=29").grace(30));
    space.wait_ready("slow", 1);
    space.wait_says("slow", "started");
    let _ = space.kubectl(&["delete", "pod", "slow", "--wait=false"]);
    let told = Instant::now();
    space.wait_says("slow", "told");
    // As long as the pod is there, so is its slot: until the app ends, nobody else can have it.
    let mut last_held = Duration::ZERO;
    space.wait("it does not end", || {
        let held = space.held().contains_key("slow");
        if held {
            last_held = told.elapsed();
        }
        (!held || space.pod("slow").is_none()).then_some(())
    });
    assert!(last_held > Duration::from_secs(27), "released {last_held:?} after the pod was told to end");
    space.wait_gone("slow");
    space.count();
    // Released at the exact last timestamp or, where the kubelet's last second was too short, held to its expiry.
    for (slot, last) in space.last_timestamps() {
        let slot = space.slots().remove(slot as usize);
        assert!(slot.next_floor() >= last, "{slot:?}: the last timestamp is {last}");
    }
}
