//! Each rule, broken.

use std::time::Duration;

use cosid_kube::codec::{CEILING, FLOOR, INCARNATION, LAST_OWNER, NEXT_FLOOR, POOL_LABEL};
use cosid_lease::Millis;
use cosid_tests::ground::Ground;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::court::{Caller, Court, Spoil as _, fence, now, time};

/// A pool whose slots are, from 0: mine, free but used before, another's, another's and expired, never used.
struct Stage<'g> {
    court: Court<'g>,
    me: Caller,
    now: Millis,
}

const MINE: u32 = 0;
const FREE: u32 = 1;
const ANOTHERS: u32 = 2;
const EXPIRED: u32 = 3;

impl<'g> Stage<'g> {
    fn new(ground: &'g Ground, namespace: &str) -> Self {
        let court = Court::new(ground, namespace);
        court.space.pool("orders", 5, 30);
        let (me, another, now) = (court.pod("web-0"), court.pod("web-1"), now());
        let hold = |caller: &Caller, slot: u32, at: Millis| {
            court.write(caller, &caller.acquisition(&court.lease("orders", slot), at))
        };
        let used = hold(&me, MINE, now - 2_000);
        court.write(&me, &me.release(&used, now - 1_500));
        hold(&me, MINE, now - 1_000);
        let used = hold(&me, FREE, now - 1_000);
        court.write(&me, &me.release(&used, now));
        hold(&another, ANOTHERS, now - 1_000);
        hold(&another, EXPIRED, now - 60_000);
        Self { court, me, now }
    }

    fn lease(&self, slot: u32) -> Lease {
        self.court.lease("orders", slot)
    }

    /// A right renewal of my own.
    fn renewal(&self) -> Lease {
        self.me.renewal(&self.lease(MINE), self.now)
    }

    /// A right release of my own.
    fn release(&self) -> Lease {
        self.me.release(&self.lease(MINE), self.now)
    }

    /// A right acquisition.
    fn acquisition(&self, slot: u32) -> Lease {
        self.me.acquisition(&self.lease(slot), self.now)
    }
}

fn shift(time: &mut Option<MicroTime>, by: Duration, back: bool) {
    let MicroTime(at) = time.as_mut().unwrap();
    *at = if back { *at - by } else { *at + by };
}

const SECOND: Duration = Duration::from_secs(1);

/// What is wrong with it, the write, and what is said.
type Bad = (&'static str, fn(&Stage<'_>) -> Lease, &'static [&'static str]);

const FENCE: &[Bad] = &[
    ("a renewal with fence + 2", |on| fence(on.renewal(), 2), &["moves by 0 or 1, not from 3 to 5"]),
    ("a renewal with fence - 1", |on| fence(on.renewal(), -1), &["moves by 0 or 1, not from 3 to 2"]),
    ("an acquisition with the old fence", |on| fence(on.acquisition(FREE), -1), &["grows by 1", "2 to 2"]),
    ("an acquisition with fence + 2", |on| fence(on.acquisition(FREE), 1), &["0 or 1, not from 2 to 4"]),
    ("a release with the old fence", |on| fence(on.release(), -1), &["with each release", "3 to 3"]),
    ("a release with fence + 2", |on| fence(on.release(), 1), &["0 or 1, not from 3 to 5"]),
];

const ACQUISITIONS: &[Bad] = &[
    (
        "a floor below the next floor of a free slot",
        |on| on.acquisition(FREE).with(FLOOR, on.now - 1),
        &["is below the next floor", "begin at the next floor"],
    ),
    (
        "a floor below the next floor of an expired lease",
        |on| {
            let lease = on.acquisition(EXPIRED);
            let floor = time(&lease, FLOOR);
            lease.with(FLOOR, floor - 1)
        },
        &["the new holder's floor", "IDs of an earlier holder would repeat"],
    ),
    (
        "a takeover of a live lease, honest about the time",
        |on| {
            let record = crate::court::record(&on.lease(ANOTHERS));
            let expired = record.holding().unwrap().expires_at;
            let lease = on.me.acquisition(&on.lease(ANOTHERS), expired);
            lease.spec(|spec| shift(&mut spec.acquire_time, Duration::from_millis(1), true))
        },
        &["/web-1 until", "wait for its expiry"],
    ),
    (
        "a ceiling below the floor",
        |on| on.acquisition(FREE).with(CEILING, on.now - 1),
        &["cosid.dev/ceiling", "is below cosid.dev/floor"],
    ),
    (
        "a next floor below the floor",
        |on| {
            let lease = on.acquisition(FREE);
            let floor = time(&lease, FLOOR);
            lease.with(NEXT_FLOOR, floor - 1)
        },
        &["cosid.dev/next-floor", "is below cosid.dev/floor", "set the next floor to the ceiling"],
    ),
    (
        "a next floor below the ceiling",
        |on| {
            let lease = on.acquisition(FREE);
            let ceiling = time(&lease, CEILING);
            lease.with(NEXT_FLOOR, ceiling - 1)
        },
        &["is below cosid.dev/ceiling", "would repeat this one's IDs"],
    ),
    (
        "no acquisition: a free slot's next floor moved on",
        |on| on.lease(FREE).with(NEXT_FLOOR, i64::MAX),
        &["only the cosid controller changes a next floor by itself"],
    ),
    (
        "no acquisition: a free slot's fence moved on",
        |on| fence(on.lease(FREE), 1),
        &["a slot that is free changes only by being acquired"],
    ),
    (
        "no acquisition: a free slot promised to oneself",
        |on| on.lease(FREE).with(LAST_OWNER, "me"),
        &["a slot that is free changes only by being acquired"],
    ),
];

const RENEWALS: &[Bad] = &[
    (
        "a lower ceiling",
        |on| on.renewal().with(CEILING, time(&on.lease(MINE), CEILING) - 1),
        &["lowers cosid.dev/ceiling from"],
    ),
    (
        "a lower next floor",
        |on| on.renewal().with(NEXT_FLOOR, time(&on.lease(MINE), NEXT_FLOOR) - 1),
        &["lowers cosid.dev/next-floor from"],
    ),
    (
        "an earlier expiry",
        |on| on.renewal().spec(|spec| shift(&mut spec.renew_time, 9 * SECOND, true)),
        &["brings the expiry forward", "spec.renewTime goes from"],
    ),
    (
        "a shorter duration, and so an earlier expiry",
        |on| on.renewal().spec(|spec| spec.lease_duration_seconds = Some(3)),
        &["does not change spec.acquireTime and spec.leaseDurationSeconds"],
    ),
    ("another floor", |on| on.renewal().with(FLOOR, 1), &["does not change cosid.dev/floor"]),
    (
        "another holder",
        |on| on.renewal().spec(|spec| spec.holder_identity = Some("shop/web-9".into())),
        &["does not change the holder (spec.holderIdentity)"],
    ),
    (
        "another incarnation",
        |on| on.renewal().with(INCARNATION, "8a6e0804-2bd0-4672-b79d-d97027f9071a"),
        &["does not change cosid.dev/incarnation"],
    ),
    (
        "a ceiling above the next floor",
        |on| {
            let lease = on.renewal();
            let ceiling = time(&lease, CEILING);
            lease.with(CEILING, ceiling + 1)
        },
        &["is below cosid.dev/ceiling"],
    ),
];

const RELEASES: &[Bad] = &[
    (
        "a next floor below the floor",
        |on| on.release().with(NEXT_FLOOR, time(&on.lease(MINE), FLOOR) - 1),
        &["is outside the window from"],
    ),
    (
        "a next floor above the ceiling",
        |on| on.release().with(NEXT_FLOOR, time(&on.lease(MINE), CEILING) + 1),
        &["a release leaves the last timestamp issued", "is outside the window from"],
    ),
    (
        "another last owner",
        |on| on.release().with(LAST_OWNER, "shop/web-9"),
        &["a release leaves its holder, ", "as cosid.dev/last-owner"],
    ),
];

const METADATA: &[Bad] = &[
    (
        "the label off",
        |on| on.renewal().metadata(|metadata| metadata.labels = None),
        &["the label cosid.dev/pool, which would go from \"orders\" to \"\""],
    ),
    (
        "another pool's label",
        |on| {
            on.renewal().metadata(|metadata| {
                metadata.labels.as_mut().unwrap().insert(POOL_LABEL.into(), "other".into());
            })
        },
        &["from \"orders\" to \"other\""],
    ),
    (
        "the finalizer off",
        |on| on.renewal().metadata(|metadata| metadata.finalizers = None),
        &["takes the finalizer cosid.dev/watermark off"],
    ),
    (
        "another finalizer on",
        |on| {
            on.renewal()
                .metadata(|metadata| metadata.finalizers.as_mut().unwrap().push("shop.dev/mine".into()))
        },
        &["only the cosid controller adds finalizers"],
    ),
    (
        "the owner off",
        |on| on.renewal().metadata(|metadata| metadata.owner_references = None),
        &["changes the owner of a slot's Lease"],
    ),
    ("the next floor off", |on| on.renewal().without(NEXT_FLOOR), &["may not be taken off, by anyone"]),
];

const NONSENSE: &[Bad] = &[
    ("a next floor in words", |on| on.renewal().with(NEXT_FLOOR, "soon"), &["nobody could read the Lease"]),
    ("a negative ceiling", |on| on.renewal().with(CEILING, -1), &["decimal Unix ms below 2^63"]),
    ("a ceiling of 2^63", |on| on.renewal().with(CEILING, 1_u64 << 63), &["decimal Unix ms below 2^63"]),
    ("a holder without a ceiling", |on| on.renewal().without(CEILING), &["nobody could read the Lease"]),
    ("no UUID", |on| on.acquisition(FREE).with(INCARNATION, "first"), &["cosid.dev/incarnation is a UUID"]),
    ("a free slot with a floor", |on| on.release().with(FLOOR, 1), &["while held and only then"]),
    (
        "half a millisecond",
        |on| on.renewal().spec(|spec| shift(&mut spec.renew_time, Duration::from_micros(500), false)),
        &["in whole milliseconds"],
    ),
    (
        "a holder without an acquireTime",
        |on| on.renewal().spec(|spec| spec.acquire_time = None),
        &["a holder has a renewTime and an acquireTime"],
    ),
];

pub(crate) fn each_bad_write_is_refused_and_told_why(ground: &Ground) {
    let on = Stage::new(ground, "rules");
    for (kind, writes) in [
        ("fence", FENCE),
        ("acquire", ACQUISITIONS),
        ("renew", RENEWALS),
        ("release", RELEASES),
        ("metadata", METADATA),
        ("nonsense", NONSENSE),
    ] {
        for (wrong, write, says) in writes {
            let (code, said) = on.court.refusal(&on.me, &write(&on));
            assert!(matches!(code, 403 | 422), "{kind}: {wrong}: {code} {said}");
            for text in *says {
                assert!(said.contains(text), "{kind}: {wrong}: {said}");
            }
        }
    }
    // None of them was refused for anything else: without the fault each is done.
    on.court.write(&on.me, &on.renewal());
    on.court.write(&on.me, &on.acquisition(FREE));
    on.court.write(&on.me, &on.acquisition(EXPIRED));
    on.court.write(&on.me, &on.release());
}
