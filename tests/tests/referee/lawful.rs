//! Agents and a controller at work: nothing that they do is refused.

use cosid_kube::codec::{FINALIZER, POOL_LABEL};
use cosid_tests::ground::Ground;
use cosid_tests::http::PATIENCE;
use kube::api::DeleteParams;
use kube::core::ObjectMeta;
use serde_json::json;
use xtask::programs::until;

use crate::court::{Court, Spoil as _};

pub(crate) fn agents_and_the_controller_live_a_whole_life(ground: &Ground) {
    let court = Court::new(ground, "life");
    let space = &court.space;
    space.pool("orders", 1, 3);
    let mut first = space.agent("web-0", &["--pool", "orders"]);
    let held = first.wait_held();
    assert_eq!((held.slot, held.fence), (0, 1));
    first.wait_renewed();
    // It goes on with its lease; then it dies, and another pod takes the slot over.
    first.kill_and_restart();
    assert_eq!(first.wait_held().fence, 1);
    first.program.kill().unwrap();
    let mut second = space.agent("web-1", &["--pool", "orders"]);
    let taken = second.wait_held();
    assert_eq!((taken.slot, taken.fence), (0, 2));
    assert!(taken.floor >= held.ceiling);
    second.wait_renewed();
    second.terminate();
    assert_eq!(space.record("orders", 0).unwrap().fence, 3);

    // The controller makes more slots, mends a Lease, and buries one.
    space.change_pool("orders", &json!({ "slots": { "first": 0, "last": 2 } }));
    let opened = || Ok(space.record("orders", 2));
    until(|| "slot 2 is not opened".into(), PATIENCE, opened).unwrap();
    let controller = court.controller();
    let spoils: [fn(&mut ObjectMeta); 2] = [
        |metadata| (metadata.finalizers, metadata.owner_references) = (None, None),
        |metadata| metadata.labels = None,
    ];
    for spoil in spoils {
        court.write(&controller, &court.lease("orders", 0).metadata(spoil));
        let mended = || {
            let metadata = court.lease("orders", 0).metadata;
            let labelled = metadata.labels.is_some_and(|labels| labels[POOL_LABEL] == "orders");
            let finalized = metadata.finalizers.is_some_and(|names| names.contains(&FINALIZER.into()));
            Ok((labelled && finalized && metadata.owner_references.is_some()).then_some(()))
        };
        until(|| "orders-0 is not mended".into(), PATIENCE, mended).unwrap();
    }
    let uid = court.lease("orders", 0).metadata.uid;
    court.block_on(controller.leases().delete("orders-0", &DeleteParams::default())).unwrap();
    let anew = || {
        let lease = court.block_on(court.leases().get_opt("orders-0")).unwrap();
        Ok(lease.filter(|lease| lease.metadata.uid != uid).and(space.record("orders", 0)))
    };
    let record = until(|| "orders-0 is not made anew".into(), PATIENCE, anew).unwrap();
    assert!(record.fence >= 3 && record.next_floor >= taken.floor);

    // A pool goes once nobody holds a slot, and its name may be used again.
    let mut third = space.agent("web-2", &["--pool", "orders"]);
    third.wait_held();
    space.delete_pool("orders");
    third.wait_renewed();
    third.terminate();
    until(|| "the pool is still there".into(), PATIENCE, || Ok((!space.has_pool("orders")).then_some(())))
        .unwrap();
    space.pool("orders", 1, 3);
    let again = space.agent("web-3", &["--pool", "orders"]).wait_held();
    assert!(again.fence > 3 && again.floor >= taken.floor);

    let refused = ["denied request", "is forbidden"];
    for program in [&first, &second, &third] {
        assert!(!refused.iter().any(|word| program.log().contains(word)), "{}", program.log());
    }
    assert!(!ground.controller_log().contains("denied request"), "{}", ground.controller_log());
}
