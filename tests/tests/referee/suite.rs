//! All that a store must do, done by a pod under the referee's eyes.

use std::time::Duration;

use cosid_kube::pool::SlotRange;
use cosid_kube::{KubeStore, SlotPool, SlotPoolSpec};
use cosid_lease::conformance::{self, CASES, Fixture, PoolSpec};
use cosid_tests::ground::Ground;
use kube::Api;
use kube::api::PostParams;
use kube_runtime::wait::await_condition;

use crate::court::{Caller, Court};

struct Pools {
    admin: Api<SlotPool>,
    pod: Caller,
}

impl Fixture for Pools {
    type Store = KubeStore;

    /// The controller makes the slots and opens them.
    async fn pool(&self, spec: &PoolSpec) -> Result<KubeStore, String> {
        let PoolSpec { name, bits, first, last, terms } = spec;
        let number = |number: u64| i32::try_from(number).map_err(|error| error.to_string());
        let spec = SlotPoolSpec {
            bits: i32::from(*bits),
            slots: Some(SlotRange { first: number((*first).into())?, last: number((*last).into())? }),
            ttl_seconds: number(terms.ttl / 1000)?,
            tolerance_milliseconds: number(terms.tolerance)?,
            ..SlotPoolSpec::default()
        };
        self.admin
            .create(&PostParams::default(), &SlotPool::new(name, spec))
            .await
            .map_err(|e| e.to_string())?;
        let ready = await_condition(self.admin.clone(), name, |pool: Option<&SlotPool>| {
            pool.and_then(|pool| pool.status.as_ref()).is_some_and(|status| {
                status.conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True")
            })
        });
        let waited = tokio::time::timeout(Duration::from_secs(60), ready).await;
        waited.map_err(|_| format!("{name} is not ready"))?.map_err(|error| error.to_string())?;
        let Caller { client, clock, uid, .. } = &self.pod;
        Ok(KubeStore::new(client.clone(), clock.clone(), "suite", name, uid.clone()))
    }
}

pub(crate) fn the_store_passes_every_case_of_the_suite(ground: &Ground) {
    let court = Court::new(ground, "suite");
    let pod = court.pod("web-0");
    let admin: Api<SlotPool> = Api::namespaced(court.leases().into_client(), "suite");
    // A pod's right to read pools is in the Role of each; with one for all it does not wait for the authorizer.
    court.kubectl(&["create", "role", "pools", "--verb=get,list", "--resource=slotpools.cosid.dev"]).unwrap();
    let group = "--group=system:serviceaccounts:suite";
    court.kubectl(&["create", "rolebinding", "pools", "--role=pools", group]).unwrap();
    match court.block_on(conformance::run(&Pools { admin, pod })) {
        Ok(passed) => assert_eq!(passed, CASES),
        Err(failure) => panic!("{failure}"),
    }
}
