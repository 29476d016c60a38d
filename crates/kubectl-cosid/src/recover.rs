//! `kubectl cosid recover`: asks the controller for a barrier, which is how a pool goes on after a restore of etcd.

use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use cosid_kube::SlotPool;
use cosid_kube::pool::{Barrier, RECOVER, Request, STORE_REGRESSED};
use cosid_lease::{Millis, Slot, SlotState, SlotStore, View};
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::args::{Cluster, Output, Recover};
use crate::connection::Connection;
use crate::error::Error;
use crate::slots::time;

/// How often it is looked whether the barrier is there.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// What there is to do.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    pool: String,
    /// What the condition says, where it is so.
    store_regressed: Option<String>,
    /// About where slots begin after it, Unix ms: the controller counts from the time when it writes.
    barrier: Millis,
    /// Slots that are held, and stay so.
    held: Vec<Holder>,
    /// How many others begin at the barrier.
    lifted: usize,
    /// Slots that are out of use, and stay so.
    out_of_use: Vec<Slot>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Holder {
    slot: Slot,
    holder: String,
}

/// What was done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Done {
    #[serde(flatten)]
    plan: Plan,
    /// Whether it was done, or only would be.
    recovered: bool,
}

/// Says what it does, asks, does it, and waits for it. Blocks.
pub(crate) fn recover(runtime: &Runtime, cluster: &Cluster, args: &Recover) -> Result<String, Error> {
    let connection = runtime.block_on(Connection::open(cluster, args.pool.as_deref()))?;
    let mut plan = runtime.block_on(plan(&connection, args.longest_ttl))?;
    let text = told(&plan);
    if args.dry_run {
        return match args.output {
            Output::Json => json_text(&Done { plan, recovered: false }),
            Output::Table => Ok(format!("{text}Nothing was done: it was a dry run.\n")),
        };
    }
    if !args.yes {
        confirm(&text)?;
    }
    let barrier = runtime.block_on(ask(&connection, args))?;
    plan.barrier = Millis::try_from(barrier.next_floor).unwrap_or_default();
    match args.output {
        Output::Json => json_text(&Done { plan, recovered: true }),
        Output::Table => Ok(format!(
            "pool {}: recovered: no slot begins below {}. Newcomers get slots again; their first ID waits until then.\n",
            plan.pool,
            time(plan.barrier)
        )),
    }
}

fn json_text(done: &Done) -> Result<String, Error> {
    Ok(serde_json::to_string_pretty(done)? + "\n")
}

async fn plan(connection: &Connection, longest_ttl: Option<u32>) -> Result<Plan, Error> {
    let Connection { store, name, .. } = connection;
    let view = store.load().await.map_err(|source| Error::Slots { pool: name.to_string(), source })?;
    let now = store.now().map_or(0, |time| time.earliest);
    let pool = store.pool();
    let conditions = pool.iter().flat_map(|pool| pool.status.iter()).flat_map(|status| &status.conditions);
    let mut regressed = conditions.filter(|found| found.type_ == STORE_REGRESSED && found.status == "True");
    let store_regressed = regressed.next().map(|found| found.message.clone());
    Ok(planned(&view, now, longest_ttl, store_regressed))
}

fn planned<V>(
    view: &View<V>,
    now: Millis,
    longest_ttl: Option<u32>,
    store_regressed: Option<String>,
) -> Plan {
    let terms = view.pool.terms;
    let ttl = terms.ttl.max(Millis::from(longest_ttl.unwrap_or(0)) * 1_000);
    let mut plan = Plan {
        pool: view.pool.name.clone(),
        store_regressed,
        barrier: now + ttl + terms.tolerance,
        held: Vec::new(),
        lifted: 0,
        out_of_use: Vec::new(),
    };
    for entry in &view.entries {
        match &entry.state {
            SlotState::Open(record) => match record.live(now) {
                Some(held) => plan.held.push(Holder { slot: entry.slot, holder: held.owner.key.clone() }),
                None => plan.lifted += 1,
            },
            SlotState::Shut => plan.lifted += 1,
            SlotState::Deleting | SlotState::Corrupt(_) => plan.out_of_use.push(entry.slot),
        }
    }
    plan.held.sort_by_key(|held| held.slot);
    plan.out_of_use.sort_unstable();
    plan
}

fn told(plan: &Plan) -> String {
    let mut text = format!("pool {}: ", plan.pool);
    text.push_str(match &plan.store_regressed {
        Some(_) => "its store went backwards.\n",
        None => "nothing says that its store went backwards. A barrier does no harm.\n",
    });
    // Writing to a String can't fail.
    if let Some(message) = &plan.store_regressed {
        let _ = writeln!(text, "  {message}");
    }
    let _ = writeln!(
        text,
        "This puts a barrier at about {}: above every window that was given before the restore.",
        time(plan.barrier)
    );
    let _ = writeln!(
        text,
        "  {} slots that nobody holds begin there, under fences above all that are known",
        plan.lifted
    );
    let _ = writeln!(
        text,
        "  {} slots that are held stay with their holders, who finish their windows",
        plan.held.len()
    );
    for Holder { slot, holder } in &plan.held {
        let _ = writeln!(text, "    {slot:<8}{holder}");
    }
    if !plan.out_of_use.is_empty() {
        let _ = writeln!(text, "  slots that are out of use stay so: {:?}", plan.out_of_use);
    }
    text.push_str("Run it once the restore is over and every API server has been started anew.\n");
    text
}

fn confirm(text: &str) -> Result<(), Error> {
    eprint!("{text}Go on? [yes/no] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() == "yes" { Ok(()) } else { Err(Error::NotConfirmed) }
}

/// Asks for a barrier, and waits for it.
async fn ask(connection: &Connection, args: &Recover) -> Result<Barrier, Error> {
    let Connection { client, name, .. } = connection;
    let pools: Api<SlotPool> = Api::namespaced(client.clone(), &name.namespace);
    // No two requests are made in one nanosecond by people.
    let id = Timestamp::now().to_string();
    let request = Request { id, longest_ttl: args.longest_ttl }.to_string();
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { RECOVER: &request } } }));
    let asked = pools.patch(&name.name, &PatchParams::default(), &patch).await;
    asked.map_err(|source| Error::Ask { pool: name.to_string(), source })?;
    let written = async {
        loop {
            let found = pools.get(&name.name).await.ok();
            let barrier = found.and_then(|pool| pool.status?.barrier);
            if let Some(barrier) = barrier.filter(|barrier| barrier.request == request) {
                return barrier;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(args.timeout), written)
        .await
        .map_err(|_| Error::NoBarrier { pool: name.to_string(), seconds: args.timeout })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cosid_lease::{Entry, Owner, Pool, PoolState, Record, Terms, algebra};

    use super::*;

    const NOW: Millis = 1_800_000_000_000;
    const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };

    fn view() -> View<()> {
        let pool = Pool {
            name: "ns/orders".into(),
            bits: 10,
            first: 0,
            last: 4,
            withheld: BTreeSet::new(),
            terms: TERMS,
            state: PoolState::Regressed,
            barrier: 0,
        };
        let held = |at| algebra::acquire(&Record::open(0, 0), &Owner::new("ns/web-0"), at, TERMS).unwrap();
        let states = [
            SlotState::Open(Record::open(0, 0)),
            SlotState::Open(held(NOW)),
            SlotState::Open(held(NOW - 30_000)),
            SlotState::Shut,
            SlotState::Corrupt("x".into()),
        ];
        let entries = (0..).zip(states).map(|(slot, state)| Entry { slot, version: (), state }).collect();
        View { pool, entries }
    }

    #[test]
    fn the_plan_says_who_keeps_a_slot_and_which_begin_at_the_barrier() {
        let plan = planned(&view(), NOW, None, Some("slot 1 was at fence 5".into()));
        assert_eq!((plan.barrier, plan.lifted, &*plan.out_of_use), (NOW + 31_000, 3, &[4][..]));
        assert_eq!(plan.held, [Holder { slot: 1, holder: "ns/web-0".into() }]);
        let text = told(&plan);
        for said in
            ["slot 1 was at fence 5", "2027-01-15T08:00:31.000Z", "ns/web-0", "out of use stay so: [4]"]
        {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn a_longer_ttl_since_the_backup_lifts_the_barrier_and_a_shorter_one_does_not_lower_it() {
        assert_eq!(planned(&view(), NOW, Some(600), None).barrier, NOW + 601_000);
        assert_eq!(planned(&view(), NOW, Some(3), None).barrier, NOW + 31_000);
    }
}
