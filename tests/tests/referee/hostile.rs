//! Those who act in the name of others.

use cosid_kube::codec::{CEILING, FLOOR, LAST_OWNER, NEXT_FLOOR, POD_UID};
use cosid_lease::Millis;
use cosid_tests::ground::Ground;
use cosid_tests::http::PATIENCE;
use k8s_openapi::api::coordination::v1::Lease;
use xtask::programs::until;

use crate::court::{Caller, Court, Spoil as _, now, time};

/// What a pod writes to slots: 0 is another's, 1 is free.
type Attempt = (&'static str, fn(&Scene<'_>) -> Lease, &'static str);

struct Scene<'g> {
    court: Court<'g>,
    victim: Caller,
    hostile: Caller,
    now: Millis,
}

impl Scene<'_> {
    fn victims(&self) -> Lease {
        self.court.lease("orders", 0)
    }

    fn free(&self) -> Lease {
        self.court.lease("orders", 1)
    }
}

const ATTEMPTS: &[Attempt] = &[
    (
        "acquire a free slot in its name",
        |on| on.victim.acquisition(&on.free(), on.now),
        "caller's token is bound to pod",
    ),
    (
        "acquire a free slot in nobody's name",
        |on| on.hostile.acquisition(&on.free(), on.now).without(POD_UID),
        "the lease would be for no pod",
    ),
    (
        "take its slot before the expiry",
        |on| {
            let expired = crate::court::record(&on.victims()).holding().unwrap().expires_at;
            let honest = on.now;
            let taken = on.hostile.acquisition(&on.victims(), expired);
            taken.spec(|spec| spec.acquire_time = Some(micros(honest)))
        },
        "wait for its expiry",
    ),
    (
        "take its slot with a floor of 0",
        |on| {
            let expired = crate::court::record(&on.victims()).holding().unwrap().expires_at;
            on.hostile.acquisition(&on.victims(), expired).with(FLOOR, 0)
        },
        "below the next floor",
    ),
    (
        "renew its lease in its name",
        |on| on.victim.renewal(&on.victims(), on.now + 5_000),
        "this slot is held by hostile/web-0",
    ),
    (
        "renew its lease in one's own name",
        |on| {
            on.victim.renewal(&on.victims(), on.now + 5_000).with(POD_UID, on.hostile.uid.as_deref().unwrap())
        },
        "this is a renew by pod",
    ),
    (
        "take over its lease by its UID alone",
        |on| on.victims().with(POD_UID, on.hostile.uid.as_deref().unwrap()),
        "a holder's lease is its own pod's",
    ),
    ("shorten its window", |on| on.victims().with(CEILING, on.now), "lowers cosid.dev/ceiling"),
    (
        "push its window ahead",
        |on| on.victims().with(CEILING, i64::MAX).with(NEXT_FLOOR, i64::MAX),
        "this is a renew by pod",
    ),
    (
        "push its next floor ahead",
        |on| on.victims().with(NEXT_FLOOR, i64::MAX),
        "only the cosid controller changes a next floor by itself",
    ),
    ("release its slot", |on| on.victim.release(&on.victims(), on.now), "this is a release by pod"),
    (
        "release its slot at its floor",
        |on| {
            let floor = time(&on.victims(), FLOOR);
            on.victim.release(&on.victims(), floor.try_into().unwrap())
        },
        "this is a release by pod",
    ),
    (
        "note something on its Lease",
        |on| on.victims().with("shop.dev/note", "mine"),
        "does not hold this one",
    ),
    (
        "note something on a free Lease",
        |on| on.free().with("shop.dev/note", "mine"),
        "does not hold this one",
    ),
    (
        "be the last owner of a free slot",
        |on| on.free().with(LAST_OWNER, "hostile/web-0"),
        "changes only by being acquired",
    ),
    (
        "take the label off",
        |on| on.victims().metadata(|metadata| metadata.labels = None),
        "changes the label cosid.dev/pool",
    ),
    (
        "take the finalizer off",
        |on| on.victims().metadata(|metadata| metadata.finalizers = None),
        "takes the finalizer",
    ),
    (
        "add a finalizer",
        |on| {
            on.victims()
                .metadata(|metadata| metadata.finalizers.as_mut().unwrap().push("shop.dev/mine".into()))
        },
        "adds finalizers",
    ),
    (
        "take the owner off",
        |on| on.victims().metadata(|metadata| metadata.owner_references = None),
        "changes the owner",
    ),
];

pub(crate) fn a_hostile_pod_gets_nowhere(ground: &Ground) {
    let court = Court::new(ground, "hostile");
    court.space.pool("orders", 2, 30);
    let (victim, hostile, now) = (court.pod("web-0"), court.pod("evil"), now());
    court.write(&victim, &victim.acquisition(&court.lease("orders", 0), now));
    let on = Scene { court, victim, hostile, now };
    let mut rows = Vec::new();
    for (attempt, write, says) in ATTEMPTS {
        let (code, said) = on.court.refusal(&on.hostile, &write(&on));
        assert!(said.contains(says), "{attempt}: {said}");
        rows.push((*attempt, code, said));
    }
    let (code, said) = on.court.refused_deletion(&on.hostile, "orders-0");
    rows.push(("delete its Lease", code, said));
    let made = on.victims().metadata(|metadata| {
        metadata.name = Some("orders-2".into());
        (metadata.uid, metadata.resource_version) = (None, None);
    });
    let (code, said) = on.court.refused_creation(&on.hostile, &made);
    rows.push(("make a Lease", code, said));
    println!("A pod that may write all Leases tries to:");
    for (attempt, code, said) in rows {
        let (_, why) = said.split_once(" denied request: ").unwrap_or_else(|| panic!("{attempt}: {said}"));
        assert!(matches!(code, 403 | 422), "{attempt}: {code} {said}");
        println!("  {attempt:<38} {code}  {why}");
    }
    // The victim never noticed.
    on.court.write(&on.victim, &on.victim.renewal(&on.victims(), on.now + 5_000));
    on.court.write(&on.hostile, &on.hostile.acquisition(&on.free(), on.now));
}

/// The policies have no clock. This is all that a lie about the time gains.
pub(crate) fn who_lies_about_the_time_takes_a_slot_and_no_timestamp(ground: &Ground) {
    let court = Court::new(ground, "liar");
    court.space.pool("orders", 1, 30);
    let (victim, liar, now) = (court.pod("web-0"), court.pod("evil"), now());
    let held = court.write(&victim, &victim.acquisition(&court.lease("orders", 0), now));
    let taken = court.write(&liar, &liar.acquisition(&held, now + 3_600_000));
    assert!(time(&taken, FLOOR) >= time(&held, CEILING));
    // The victim can't go on under what it had.
    let back = held.metadata(|metadata| metadata.resource_version = taken.metadata.resource_version.clone());
    let (_, said) = court.refusal(&victim, &victim.renewal(&back, now + 5_000));
    assert!(said.contains("the fence (spec.leaseTransitions) moves by 0 or 1, not from 2 to 1"), "{said}");
}

pub(crate) fn who_has_no_pod_needs_the_verb_hold(ground: &Ground) {
    let court = Court::new(ground, "laptop");
    court.space.pool("orders", 2, 30);
    let (laptop, pod, now) = (court.account("laptop"), court.pod("web-0"), now());
    let free = || court.lease("orders", 0);
    let (code, said) = court.refusal(&laptop, &laptop.acquisition(&free(), now));
    let says = "system:serviceaccount:laptop:laptop is no pod, and may not \"hold\" SlotPool orders";
    assert!(code == 403 && said.contains(says) && said.contains("be granted the verb hold"), "{said}");

    court
        .kubectl(&[
            "create",
            "role",
            "hold",
            "--verb=hold",
            "--resource=slotpools.cosid.dev",
            "--resource-name=orders",
        ])
        .unwrap();
    court
        .kubectl(&["create", "rolebinding", "hold", "--role=hold", "--serviceaccount=laptop:laptop"])
        .unwrap();
    let may = || {
        let user = "--as=system:serviceaccount:laptop:laptop";
        // It exits with 1 where the answer is no.
        Ok(court.kubectl(&["auth", "can-i", "hold", "slotpools.cosid.dev/orders", user]).ok())
    };
    until(|| "the laptop may not hold".into(), PATIENCE, may).unwrap();
    let (_, said) = court.refusal(&laptop, &pod.acquisition(&free(), now));
    assert!(
        said.contains("and the caller's token is bound to no pod: give the agent its pod's UID"),
        "{said}"
    );
    let held = court.write(&laptop, &laptop.acquisition(&free(), now));
    let (_, said) = court.refusal(&pod, &laptop.release(&held, now));
    assert!(said.contains("held by laptop/laptop for no pod, and this is a release by pod"), "{said}");
    let renewed = court.write(&laptop, &laptop.renewal(&held, now + 5_000));
    court.write(&laptop, &laptop.release(&renewed, now));

    // To hold is not to act for a pod.
    let held = court.write(&pod, &pod.acquisition(&free(), now));
    let (_, said) = court.refusal(&laptop, &pod.release(&held, now));
    assert!(said.contains("held by laptop/web-0 for pod") && said.contains("a release by no pod"), "{said}");
    // What is no holding needs no leave but the role's: somebody with kubectl notes something.
    court.kubectl(&["label", "lease", "orders-0", "shop.dev/seen=yes"]).unwrap();
    court.write(&pod, &pod.renewal(&court.lease("orders", 0), now + 5_000));
}

fn micros(at: Millis) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime {
    let at = at.try_into().unwrap();
    k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(
        k8s_openapi::jiff::Timestamp::from_millisecond(at).unwrap(),
    )
}
