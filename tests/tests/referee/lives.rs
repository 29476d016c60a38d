//! What the controller alone may do, and what not even it may.

use cosid_kube::codec::{BARRED, FINALIZER, NEXT_FLOOR, STORE_REGRESSED};
use cosid_kube::pool::{SlotRange, Watermark};
use cosid_kube::{SlotPoolSpec, codec};
use cosid_tests::ground::Ground;
use cosid_tests::http::PATIENCE;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use xtask::programs::until;

use crate::court::{Court, Spoil as _, fence, now, time};

pub(crate) fn the_controller_itself_lowers_nothing(ground: &Ground) {
    let court = Court::new(ground, "above");
    // The slot that is reserved has no Lease of the controller's, and none is opened.
    let spec = SlotPoolSpec { reserved: vec![1], slots: Some(range(1)), ..SlotPoolSpec::default() };
    court.space.create_pool("orders", spec);
    court.space.wait_ready("orders");
    let (controller, pod) = (court.controller(), court.pod("web-0"));
    let free = || court.lease("orders", 0);
    let at = time(&free(), NEXT_FLOOR);
    court.write(&controller, &free().with(NEXT_FLOOR, at + 5));
    let refused = |lease: Lease, says: &str| {
        let (code, said) = court.refusal(&controller, &lease);
        assert!(code == 422 && said.contains(says), "{code} {said}");
    };
    refused(free().with(NEXT_FLOOR, at + 4), "nobody lowers a next floor");
    refused(free().without(NEXT_FLOOR), "may not be taken off, by anyone");
    refused(free().with(codec::LAST_OWNER, "x"), "a slot that is free changes only by being acquired");

    let pool = court.block_on(Api::namespaced(court.leases().into_client(), "above").get("orders")).unwrap();
    let shut = codec::new_lease(&pool, 1);
    let open = shut.clone().with(NEXT_FLOOR, 5);
    let (code, said) = court.refused_creation(&controller, &open);
    assert!(code == 422 && said.contains("is made shut and with the finalizer"), "{code} {said}");
    let shut = court.block_on(controller.leases().create(&PostParams::default(), &shut)).unwrap();
    let open = codec::open(&shut, Watermark { next_floor: 9, fence: i32::MAX - 1 }, 30).unwrap();
    let (code, said) = court.refusal(&pod, &open);
    assert!(code == 403 && said.contains("this slot is shut: only the cosid controller opens it"), "{said}");
    refused(pod.acquisition(&open, now()), "a slot is opened only if it was never used, and for nobody");
    let opened = court.write(&controller, &open);
    // A fence that is spent stays where it is.
    let held = court.write(&pod, &pod.acquisition(&opened, now()));
    let freed = court.write(&pod, &pod.release(&held, now()));
    assert_eq!(freed.spec.unwrap().lease_transitions, Some(i32::MAX));
}

pub(crate) fn after_a_restore_holders_put_back_and_the_controller_lifts(ground: &Ground) {
    let court = Court::new(ground, "restored");
    court.space.pool("orders", 2, 30);
    let (controller, pod, now) = (court.controller(), court.pod("web-0"), now());
    // A barrier: a higher fence and next floor where nobody holds the slot.
    let free = || court.lease("orders", 0);
    let at = time(&free(), NEXT_FLOOR);
    let (code, said) = court.refusal(&pod, &fence(free(), 7));
    assert!(code == 422 && said.contains("changes only by being acquired"), "{code} {said}");
    court.write(&controller, &fence(free(), 7).with(NEXT_FLOOR, at + 9));
    let (code, said) = court.refusal(&controller, &fence(free(), 7).with(NEXT_FLOOR, at + 8));
    assert!(code == 422 && said.contains("nobody lowers a next floor"), "{code} {said}");
    // A bar: no acquisition, and nobody else takes it off.
    let (code, said) = court.refusal(&pod, &free().with(BARRED, "x"));
    assert!(code == 403 && said.contains("does not hold this one"), "{code} {said}");
    court.write(&controller, &free().with(BARRED, "x"));
    let (code, said) = court.refusal(&pod, &pod.acquisition(&free(), now));
    assert!(code == 422 && said.contains("`kubectl cosid recover orders -n restored`"), "{code} {said}");
    let (code, said) = court.refusal(&pod, &pod.acquisition(&free(), now).without(BARRED));
    assert!(
        code == 403 && said.contains("only the cosid controller takes cosid.dev/barred off"),
        "{code} {said}"
    );
    let back = court.write(&pod, &pod.acquisition(&free(), now).with(STORE_REGRESSED, "before"));
    court.write(&pod, &pod.release(&back, now));
    court.write(&controller, &free().without(BARRED).without(STORE_REGRESSED));
    // Several changes of hands at once: only with a note that is new, and not to the end of all fences.
    let ahead = |by| fence(pod.acquisition(&free(), now), by);
    for lease in [ahead(2), ahead(65_536).with(STORE_REGRESSED, "a")] {
        let (code, said) = court.refusal(&pod, &lease);
        assert!(
            code == 422 && said.contains("the fence (spec.leaseTransitions) moves by 0 or 1"),
            "{code} {said}"
        );
    }
    let (code, said) = court.refusal(&pod, &ahead(2).with(STORE_REGRESSED, "a").with(codec::FLOOR, 0));
    assert!(code == 422 && said.contains("is below the next floor"), "{code} {said}");
    let held = court.write(&pod, &ahead(2).with(STORE_REGRESSED, "a"));
    let again = fence(pod.acquisition(&held, now + 60_000), 2);
    let (code, said) = court.refusal(&pod, &again);
    assert!(code == 422 && said.contains("moves by 0 or 1"), "the note is an old one: {code} {said}");
}

pub(crate) fn a_lease_that_goes_or_cant_be_read_is_left_alone(ground: &Ground) {
    let court = Court::new(ground, "going");
    court.space.pool("orders", 1, 30);
    let (controller, pod, now) = (court.controller(), court.pod("web-0"), now());
    court.write(&pod, &pod.acquisition(&court.lease("orders", 0), now));
    // Somebody's finalizer keeps it there.
    let kept = court.lease("orders", 0).metadata(|metadata| {
        metadata.finalizers.as_mut().unwrap().push("shop.dev/kept".into());
    });
    court.write(&controller, &kept);
    court.block_on(controller.leases().delete("orders-0", &DeleteParams::default())).unwrap();
    let settled = || {
        let lease = court.lease("orders", 0);
        Ok((lease.metadata.finalizers == Some(vec!["shop.dev/kept".into()])).then_some(lease))
    };
    let going = until(|| "orders-0 is not let go".into(), PATIENCE, settled).unwrap();
    for write in [pod.renewal(&going, now + 5_000), pod.release(&going, now)] {
        let (code, said) = court.refusal(&pod, &write);
        assert!(code == 422 && said.contains("this Lease is being deleted"), "{code} {said}");
    }
    court.write(&controller, &going.metadata(|metadata| metadata.finalizers = None));

    // As it may be from before there was a referee: a label makes it a slot's.
    let again = || Ok(court.block_on(court.leases().get_opt("orders-0")).unwrap().filter(is_open));
    let open = until(|| "orders-0 is not made anew".into(), PATIENCE, again).unwrap();
    let whole = open.clone().metadata(|metadata| {
        (metadata.name, metadata.labels) = (Some("orders-7".into()), None);
        (metadata.uid, metadata.resource_version) = (None, None);
    });
    let broken = whole.clone().with(NEXT_FLOOR, "soon");
    let broken = court.block_on(pod.leases().create(&PostParams::default(), &broken)).unwrap();
    let labelled = |lease: Lease| lease.metadata(|metadata| metadata.labels = open.metadata.labels.clone());
    let (code, said) = court.refusal(&pod, &labelled(broken.clone()));
    assert!(code == 403 && said.contains("from \"\" to \"orders\""), "{code} {said}");
    let broken = court.write(&controller, &labelled(broken));
    let acquired = pod.acquisition(&broken.clone().with(NEXT_FLOOR, 5), now);
    let (code, said) = court.refusal(&pod, &acquired);
    assert!(
        code == 422 && said.contains("this Lease can't be read") && said.contains("SlotPool orders"),
        "{said}"
    );
    court.write(&controller, &broken.metadata(|metadata| metadata.finalizers = None));
}

fn is_open(lease: &Lease) -> bool {
    lease.metadata.deletion_timestamp.is_none() && matches!(codec::read(lease), Ok(Some(_)))
}

pub(crate) fn only_the_controller_makes_and_deletes_leases(ground: &Ground) {
    let court = Court::new(ground, "lives");
    court.space.pool("orders", 2, 30);
    let pod = court.pod("web-0");
    let copy = court.lease("orders", 0).metadata(|metadata| {
        metadata.name = Some("orders-7".into());
        (metadata.uid, metadata.resource_version) = (None, None);
    });
    let (code, said) = court.refused_creation(&pod, &copy);
    assert!(
        code == 403 && said.contains("only the cosid controller makes the Leases of SlotPool orders"),
        "{said}"
    );
    let (code, said) = court.refused_deletion(&pod, "orders-0");
    let says = "only the cosid controller deletes the Leases of SlotPool orders";
    assert!(code == 403 && said.contains(says) && said.contains("spec.reserved"), "{said}");

    let delete = |user: &str| {
        let user = format!("--as=system:serviceaccount:kube-system:{user}");
        court.kubectl(&["delete", "lease", "orders-0", "--dry-run=server", &user])
    };
    // Not the administrator by hand, and not the garbage collector: it would take live holders' slots.
    for refused in [court.kubectl(&["delete", "lease", "orders-0"]), delete("generic-garbage-collector")] {
        assert!(refused.unwrap_err().to_string().contains(says));
    }
    let all = court.kubectl(&["delete", "leases", "--all", "--wait=false"]).unwrap_err().to_string();
    assert!(all.contains(says), "{all}");
    // A namespace goes as a whole.
    assert!(delete("namespace-controller").unwrap().contains("deleted"));
    assert!(court.lease("orders", 0).metadata.finalizers.unwrap().contains(&FINALIZER.to_owned()));
    let foreign = Lease { metadata: named("of-somebody"), spec: None };
    court.block_on(pod.leases().create(&PostParams::default(), &foreign)).unwrap();
    court.block_on(pod.leases().delete("of-somebody", &DeleteParams::default())).unwrap();
}

fn range(last: i32) -> SlotRange {
    SlotRange { first: 0, last }
}

fn named(name: &str) -> kube::core::ObjectMeta {
    kube::core::ObjectMeta { name: Some(name.into()), ..Default::default() }
}
