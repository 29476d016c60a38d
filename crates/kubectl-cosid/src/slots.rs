//! `kubectl cosid slots`.

use std::fmt::Write as _;

use cosid_lease::choose::is_far_ahead;
use cosid_lease::{Entry, Millis, Pool, Record, SlotState, SlotStore, View};
use jiff::Timestamp;
use serde::Serialize;

use crate::args::{Cluster, Output, Slots};
use crate::connection::Connection;
use crate::error::Error;

/// One slot, as it is shown. Times are Unix ms.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    slot: u32,
    state: &'static str,
    holder: Option<String>,
    fence: Option<u32>,
    expires_at: Option<Millis>,
    next_floor: Option<Millis>,
    /// Why a slot can't be read.
    note: Option<String>,
}

/// The slot map, as text.
pub(crate) async fn show(cluster: &Cluster, slots: &Slots) -> Result<String, Error> {
    let Connection { store, name, .. } = Connection::open(cluster, slots.pool.as_deref()).await?;
    let view = store.load().await.map_err(|source| Error::Slots { pool: name.to_string(), source })?;
    let now = store.now().map_or(0, |time| time.earliest);
    let rows = rows(&view, now, slots.all);
    match slots.output {
        Output::Json => Ok(serde_json::to_string_pretty(&rows)? + "\n"),
        Output::Table => Ok(table(&view.pool, &rows, now)),
    }
}

fn rows<V>(view: &View<V>, now: Millis, all: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = view.entries.iter().map(|entry| row(&view.pool, entry, now)).collect();
    rows.retain(|row| all || row.state != "free" || row.holder.is_some());
    rows.sort_by_key(|row| row.slot);
    rows
}

fn row<V>(pool: &Pool, entry: &Entry<V>, now: Millis) -> Row {
    let record = entry.state.record();
    let (state, note) = match &entry.state {
        SlotState::Shut => ("shut", None),
        SlotState::Deleting => ("deleting", None),
        SlotState::Corrupt(why) => ("corrupt", Some(why.clone())),
        SlotState::Open(_) if !pool.allows(entry.slot) => ("withheld", None),
        SlotState::Open(record) if record.live(now).is_some() => ("held", None),
        SlotState::Open(record) if is_far_ahead(record.next_floor, now) => {
            ("far ahead", Some("its next floor lies more than an hour ahead: passed over".into()))
        }
        SlotState::Open(record) if record.holding().is_some() => ("expired", None),
        SlotState::Open(record) if record.next_floor > now => ("cooling", None),
        SlotState::Open(_) => ("free", None),
    };
    Row {
        slot: entry.slot,
        state,
        holder: record.and_then(Record::last_key).map(str::to_owned),
        fence: record.map(|record| record.fence),
        expires_at: record.and_then(Record::holding).map(|holding| holding.expires_at),
        next_floor: record.map(|record| record.next_floor),
        note,
    }
}

fn table(pool: &Pool, rows: &[Row], now: Millis) -> String {
    let held = rows.iter().filter(|row| row.state == "held").count();
    let mut text = format!("pool {}: {held} of {} slots held\n", pool.name, pool.size());
    let widest = rows.iter().filter_map(|row| row.holder.as_ref()).map(String::len).max().unwrap_or(0).max(6);
    // Writing to a String can't fail.
    let _ = writeln!(
        text,
        "{:<8}{:<11}{:<widest$}  {:<7}{:<12}NEXT-FLOOR",
        "SLOT", "STATE", "HOLDER", "FENCE", "EXPIRES"
    );
    for row in rows {
        let expires = match row.expires_at {
            Some(at) if at > now => format!("in {:.1} s", seconds(at - now)),
            Some(at) => format!("{:.1} s ago", seconds(now - at)),
            None => "-".into(),
        };
        let _ = writeln!(
            text,
            "{:<8}{:<11}{:<widest$}  {:<7}{:<12}{}{}",
            row.slot,
            row.state,
            row.holder.as_deref().unwrap_or("-"),
            row.fence.map_or_else(|| "-".into(), |fence| fence.to_string()),
            expires,
            row.next_floor.map_or_else(|| "-".into(), time),
            row.note.as_ref().map(|note| format!("  {note}")).unwrap_or_default(),
        );
    }
    text
}

pub(crate) fn time(millis: Millis) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    time.map_or_else(|| millis.to_string(), |time| format!("{time:.3}"))
}

#[allow(clippy::cast_precision_loss, reason = "shown to a tenth of a second")]
fn seconds(millis: Millis) -> f64 {
    millis as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cosid_lease::{Owner, PoolState, Terms, algebra};

    use super::*;

    const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };
    const NOW: Millis = 1_800_000_000_000;

    fn view(states: Vec<SlotState>) -> View<()> {
        let pool = Pool {
            name: "ns/orders".into(),
            bits: 10,
            first: 0,
            last: 1023,
            withheld: BTreeSet::new(),
            terms: TERMS,
            state: PoolState::Ready,
            barrier: 0,
        };
        let entries = (0..).zip(states).map(|(slot, state)| Entry { slot, version: (), state }).collect();
        View { pool, entries }
    }

    fn held(at: Millis) -> SlotState {
        let owner = Owner::new("ns/web-0");
        SlotState::Open(algebra::acquire(&Record::open(0, 0), &owner, at, TERMS).unwrap())
    }

    #[test]
    fn each_state_has_its_word_and_untouched_slots_are_left_out() {
        let states = vec![
            held(NOW),
            held(NOW - 40_000),
            SlotState::Open(Record::open(0, NOW + 5)),
            SlotState::Open(Record::open(0, NOW + 4_000_000)),
            SlotState::Corrupt("cosid.dev/floor: `x` is no number".into()),
            SlotState::Shut,
            SlotState::Open(Record::open(0, 0)),
        ];
        let shown = rows(&view(states.clone()), NOW, false);
        let words: Vec<_> = shown.iter().map(|row| (row.slot, row.state)).collect();
        assert_eq!(
            words,
            [(0, "held"), (1, "expired"), (2, "cooling"), (3, "far ahead"), (4, "corrupt"), (5, "shut")]
        );
        assert_eq!(rows(&view(states), NOW, true).len(), 7);
    }

    #[test]
    fn the_table_says_who_until_when_and_where_the_next_window_starts() {
        let view = view(vec![held(NOW)]);
        let text = table(&view.pool, &rows(&view, NOW, false), NOW);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "pool ns/orders: 1 of 1024 slots held");
        let words: Vec<_> = lines[2].split_whitespace().collect();
        assert_eq!(words, ["0", "held", "ns/web-0", "1", "in", "30.0", "s", "2027-01-15T08:00:31.000Z"]);
    }
}
