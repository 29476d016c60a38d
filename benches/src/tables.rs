//! What is compared.

use std::error::Error;
use std::time::{Duration, Instant};

use cosid_id::{Form, Id, Layout, WideId, Zone};

use crate::cap;
use crate::measure::{Median, Subject, medians, subject, threads};
use crate::ours::{LONG, Ours, wide};
use crate::peers::{self, FerroidAtomic, FerroidLock, Snowdon, SnowdonId, Wide};
use crate::programs::Programs;
use crate::table::Table;

type Made<T> = Result<T, Box<dyn Error>>;

/// All tables, in order.
pub const ALL: [fn(&Programs) -> Made<Table>; 10] = [
    one_table,
    |_| Ok(Table::of_medians("One ID, 1 thread and the generator shared", &shared(1)?)),
    |_| Ok(Table::of_medians("One ID, 2 threads share the generator", &shared(2)?)),
    |_| Ok(Table::of_medians("One ID, 4 threads share the generator", &shared(4)?)),
    |_| Ok(Table::of_medians("One ID, 2 processes share a page; others 2 threads", &processes()?)),
    |_| batches_table(),
    |_| cap_table(),
    |_| Ok(Table::of_medians("A burst of 200,000 IDs in the default layout, ahead of the clock", &burst()?)),
    |_| Ok(Table::of_medians("An ID as text", &forms()?)),
    |_| latency_table(),
];

const TURNS: usize = 31;
const MANY: u64 = 500_000;
/// Fewer than anybody's cap of a millisecond.
const PACED: u64 = 2_000;
const NEXT_MS: Duration = Duration::from_millis(2);

fn one_table(programs: &Programs) -> Made<Table> {
    let ours = Ours::new(wide()?)?;
    let ferroid = FerroidAtomic::<Wide>::new(1, peers::ferroid_clock());
    let locked = FerroidLock::<Wide>::new(1, peers::ferroid_clock());
    let snowflaked = snowflaked::sync::Generator::new(1);
    let mut rs_snowflake = snowflake::SnowflakeIdGenerator::new(1, 1);
    let snowdon = Snowdon::default();
    let snowflake_me = peers::snowflake_me(true)?;
    let snowid = snowid::SnowID::new(1)?;
    peers::idgenerator()?;
    let mut tsid = tsid::TsidFactory::with_node_bits(10, 1);
    let sonyflake = peers::sonyflake()?;
    let mut ulids = ulid::Generator::new();
    let mut subjects = vec![
        subject("cosid-id, shared page, window checked", MANY, || ours.generator.next(LONG)),
        subject("ferroid Atomic", MANY, || ferroid.next_id(peers::spin)),
        subject("ferroid Lock", MANY, || locked.try_next_id(peers::spin)),
        subject("snowflaked (paced)", PACED, || snowflaked.generate::<u64>()).resting(NEXT_MS),
        subject("rs-snowflake `generate`, not shared (paced)", PACED, || rs_snowflake.generate())
            .resting(NEXT_MS),
        subject("snowdon", MANY, || -> Option<SnowdonId> { snowdon.generate().ok() }),
        subject("snowflake_me", MANY, || snowflake_me.next_id()),
        subject("snowid, logical time", MANY, || snowid.generate()),
        subject("idgenerator", MANY, idgenerator::IdInstance::next_id),
        subject("tsid, not shared", MANY, || tsid.create()),
        subject("sonyflake (paced)", 200, || sonyflake.next_id()).resting(Duration::from_millis(20)),
        subject("uuid v4", 20_000, uuid::Uuid::new_v4),
        subject("uuid v7", 20_000, uuid::Uuid::now_v7),
        subject("ulid, growing, not shared", 20_000, || ulids.generate().ok()),
    ];
    subjects.extend(programs.subjects(MANY)?);
    let title = "One ID, 1 thread, sequences to spare (paced: below the cap of a layout that is fixed)";
    Ok(Table::of_medians(title, &medians(subjects, TURNS)))
}

/// This project, and each of the programs.
pub fn against(programs: &Programs) -> Made<Vec<Median>> {
    let ours = Ours::new(wide()?)?;
    let mut subjects = vec![subject("cosid-id", MANY, || ours.generator.next(LONG))];
    subjects.extend(programs.subjects(MANY)?);
    Ok(medians(subjects, TURNS))
}

pub fn shared(count: u64) -> Made<Vec<Median>> {
    let ours = Ours::new(wide()?)?;
    let ferroid = FerroidAtomic::<Wide>::new(1, peers::ferroid_clock());
    let locked = FerroidLock::<Wide>::new(1, peers::ferroid_clock());
    let snowdon = Snowdon::default();
    let snowflake_me = peers::snowflake_me(true)?;
    let subjects = vec![
        threads("cosid-id", count, || ours.generator.next(LONG)),
        threads("ferroid Atomic", count, || ferroid.next_id(peers::spin)),
        threads("ferroid Lock", count, || locked.try_next_id(peers::spin)),
        threads("snowdon", count, || -> Option<SnowdonId> { snowdon.generate().ok() }),
        threads("snowflake_me", count, || snowflake_me.next_id()),
    ];
    Ok(medians(subjects, TURNS))
}

pub fn processes() -> Made<Vec<Median>> {
    let ours = Ours::new(wide()?)?;
    let mut workers = ours.workers(2, MANY)?;
    let ferroid = FerroidAtomic::<Wide>::new(1, peers::ferroid_clock());
    let turn = move |_| workers.turn().unwrap_or(Duration::MAX);
    let two = Subject {
        name: "cosid-id, 2 processes",
        count: 2 * MANY,
        rest: Duration::ZERO,
        turn: Box::new(turn),
    };
    Ok(medians(vec![two, threads("ferroid Atomic, 2 threads", 2, || ferroid.next_id(peers::spin))], TURNS))
}

/// ns an ID, in batches of so many.
pub fn batches(size: usize) -> Made<Vec<Median>> {
    let ours = Ours::new(wide()?)?;
    let snowflake_me = peers::snowflake_me(true)?;
    let (mut ids, mut theirs) = (vec![0; size], Vec::with_capacity(size));
    let rounds = (MANY as usize / size).max(1);
    let mine = move |_| {
        let start = Instant::now();
        for _ in 0..rounds {
            let _ = ours.generator.fill(&mut ids, LONG);
            std::hint::black_box(&ids);
        }
        start.elapsed()
    };
    let other = move |_| {
        let start = Instant::now();
        for _ in 0..rounds {
            theirs.clear();
            let _ = snowflake_me.next_ids_into(size, &mut theirs);
            std::hint::black_box(&theirs);
        }
        start.elapsed()
    };
    let subject = |name, turn| Subject { name, count: (rounds * size) as u64, rest: Duration::ZERO, turn };
    Ok(medians(vec![subject("cosid-id", Box::new(mine)), subject("snowflake_me", Box::new(other))], TURNS))
}

fn batches_table() -> Made<Table> {
    let mut rows = Vec::new();
    for size in [16, 1_024, 100_000] {
        let medians = batches(size)?;
        for &(name, ns) in &medians {
            rows.push((
                format!("{size}: {name}"),
                vec![format!("{ns:.2}"), format!("{:.2}", ns / medians[0].1)],
            ));
        }
    }
    Ok(Table { title: "Batches into a buffer that is kept".into(), columns: vec!["ns an ID", "ratio"], rows })
}

fn cap_table() -> Made<Table> {
    let row = |one: cap::Sustained| {
        let wait = if one.spins { "spins" } else { "sleeps" };
        (
            one.name.to_owned(),
            vec![format!("{:.3}", one.millions_a_second), format!("{:.1}", one.cpu_ns), wait.into()],
        )
    };
    Ok(Table {
        title: "Sustained, one by one, at the cap of 4.096 million a second (41/10/12)".into(),
        columns: vec!["million a second", "CPU ns an ID", "waits"],
        rows: cap::sustained()?.into_iter().map(row).collect(),
    })
}

pub fn burst() -> Made<Vec<Median>> {
    let ours = Ours::new(Layout::MILLISECOND)?;
    let generator = ours.generator.clone().with_burst(Duration::from_millis(500));
    let mut tsid = tsid::TsidFactory::with_node_bits(10, 1);
    let snowid = snowid::SnowID::new(1)?;
    // The clock has to come after, or the bound is reached.
    let rest = Duration::from_millis(60);
    let subjects = vec![
        subject("cosid-id, by at most 500 ms", MANY, || generator.next(LONG)).resting(rest),
        subject("tsid, not shared, without a bound", MANY, || tsid.create()).resting(rest),
        subject("snowid, logical time, without a bound", MANY, || snowid.generate()).resting(rest),
    ];
    Ok(medians(subjects, 15))
}

pub fn forms() -> Made<Vec<Median>> {
    let layout = Layout::MILLISECOND;
    let mut next = 295_913_926_632_165_376_u64;
    let mut id = move || {
        next += 4_096;
        next
    };
    let make = move |value: u64| Id::try_from(value).unwrap_or(Id::MAX);
    let (decimal, radix36, radix62) = (Form::decimal(layout), Form::radix36(layout), Form::radix62(layout));
    let friendly = Form::friendly(layout, Zone::UTC)?;
    let (around, mut text) = (radix62.clone().padded().with_prefix("order-"), String::with_capacity(32));
    let subjects = vec![
        subject("cosid-id, radix 62, `Id::to_radix62`", MANY, {
            let mut id = id.clone();
            move || make(id()).to_radix62()
        }),
        subject("snowid, base 62, `encode_array`", MANY, {
            let mut id = id.clone();
            move || snowid::base62::encode_array(id())
        }),
        subject("cosid-id, radix 62, a `String`", MANY, {
            let mut id = id.clone();
            move || radix62.format(make(id()))
        }),
        subject("snowid, base 62, a `String`", MANY, {
            let mut id = id.clone();
            move || snowid::base62::encode(id())
        }),
        subject("cosid-id, decimal, a `String`", MANY, {
            let mut id = id.clone();
            move || decimal.format(make(id()))
        }),
        subject("the standard library, decimal, a `String`", MANY, {
            let mut id = id.clone();
            move || id().to_string()
        }),
        subject("cosid-id, radix 36, a `String`", MANY, {
            let mut id = id.clone();
            move || radix36.format(make(id()))
        }),
        subject("cosid-id, radix 62 with a prefix, `append` to a `String` that is kept", MANY, {
            let mut id = id.clone();
            move || {
                text.clear();
                let appended = around.append(make(id()), &mut text);
                std::hint::black_box(&text);
                appended
            }
        }),
        subject("cosid-id, friendly, a `String`", MANY, {
            let mut id = id.clone();
            move || friendly.format(make(id()))
        }),
        subject("cosid-id, CosId's 15 characters, `WideId::to_radix62`", MANY, {
            let mut id = id.clone();
            move || WideId::from_id(&layout, make(id())).map(|wide| wide.to_radix62())
        }),
        subject("cosid-id, CosId's 15 characters, a `String`", MANY, move || {
            WideId::from_id(&layout, make(id())).map(|wide| wide.to_string())
        }),
    ];
    Ok(medians(subjects, TURNS))
}

fn latency_table() -> Made<Table> {
    let ours = Ours::new(wide()?)?;
    let ferroid = FerroidAtomic::<Wide>::new(1, peers::ferroid_clock());
    let snowflake_me = peers::snowflake_me(true)?;
    let rows = vec![
        ("nothing: what timing costs".into(), percentiles(|| ())),
        ("cosid-id".into(), percentiles(|| ours.generator.next(LONG))),
        ("ferroid Atomic".into(), percentiles(|| ferroid.next_id(peers::spin))),
        ("snowflake_me".into(), percentiles(|| snowflake_me.next_id())),
    ];
    let title = "Latency of one call among many, 1 thread, with the timing";
    Ok(Table { title: title.into(), columns: vec!["p50 ns", "p99 ns", "p99.9 ns"], rows })
}

fn percentiles<T>(mut one: impl FnMut() -> T) -> Vec<String> {
    let mut samples: Vec<u128> = (0..1_000_000)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(one());
            start.elapsed().as_nanos()
        })
        .collect();
    samples.sort_unstable();
    [500, 990, 999].map(|per_mille| samples[samples.len() * per_mille / 1_000].to_string()).into()
}
