//! `SlotPool`: one ID space, as people declare it.
//!
//! The version is `v1` from the start. A beta would have to be promoted some day, which rewrites every stored object,
//! and this one keeps the watermark that uniqueness rests on. Fields are only ever added, each with a default.

#![allow(unreachable_pub, reason = "KubeSchema copies each type, with its visibility, into a function")]

use std::collections::BTreeSet;

use cosid_id::{FieldOrder, Layout, LayoutBuilder};
use cosid_lease::{Millis, Pool, PoolState, Slot, Terms};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
#[cfg(feature = "kubeconfig")]
use kube::CustomResourceExt as _;
use kube::{CustomResource, KubeSchema, ResourceExt as _};
use schemars::Schema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// One ID space: how wide its slots are, which may be leased, and for how long.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, CustomResource, KubeSchema)]
#[kube(
    group = "cosid.dev",
    version = "v1",
    kind = "SlotPool",
    plural = "slotpools",
    shortname = "sp",
    namespaced,
    status = "SlotPoolStatus",
    derive = "PartialEq",
    doc = "One ID space: slots (worker ids) for Snowflake-style IDs, leased with a window of timestamps.",
    printcolumn(name = "Slots", type_ = "integer", json_path = ".status.slots.total"),
    printcolumn(name = "Held", type_ = "integer", json_path = ".status.slots.held"),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.slots.free"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Bits", type_ = "integer", json_path = ".spec.bits", priority = "1"),
    printcolumn(name = "Cooling", type_ = "integer", json_path = ".status.slots.cooling", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("the name is longer than 63 characters: it becomes a label's value; choose a shorter one"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.watermark) || (has(self.status) && has(self.status.watermark))")
        .message("the watermark can't be taken away: IDs would repeat")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.layout.timestampBits + self.bits + self.layout.sequenceBits <= 63")
        .message("timestampBits + bits + sequenceBits must be at most 63: an ID is a positive 64-bit integer; give the layout fewer bits"),
    validation = Rule::new("!has(self.slots) || self.slots.last < [1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,32768,65536,131072,262144,524288,1048576][self.bits]")
        .message("slots.last must be below 2^bits"),
    validation = Rule::new("self.reserved.size() == 0 || self.reserved.max() < [1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,32768,65536,131072,262144,524288,1048576][self.bits]")
        .message("reserved slots must be below 2^bits"),
    validation = Rule::new("self.reserved.size() == 0 || !has(self.slots) || (self.reserved.min() >= self.slots.first && self.reserved.max() <= self.slots.last)")
        .message("reserved slots must lie in the range of slots: those outside are never leased anyway")
)]
pub struct SlotPoolSpec {
    /// The width of the slot field of an ID: slots are 0 to 2^bits - 1. It never changes.
    #[serde(default = "defaults::bits")]
    #[schemars(range(min = 1, max = 20))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("bits never change: IDs would repeat; make another pool"))]
    pub bits: i32,

    /// The slots that may be leased, if not all that the width allows: where several pools or clusters share one ID
    /// space, each has a range of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotRange>,

    /// Slots within the range that are never leased, because something else uses them.
    #[serde(default)]
    #[schemars(length(max = 1024), inner(range(min = 0, max = 1_048_575)), extend("x-kubernetes-list-type" = "set"))]
    pub reserved: Vec<i32>,

    /// How long a lease lasts without a renewal, in seconds: a holder that died gives its slot back after it. It is
    /// well under the hour by which a slot's next floor may lie ahead.
    #[serde(default = "defaults::ttl_seconds")]
    #[schemars(range(min = 3, max = LONGEST_TTL_SECONDS))]
    pub ttl_seconds: i32,

    /// How long past its expiry a holder may go on issuing, in milliseconds. It never changes.
    #[serde(default = "defaults::tolerance_milliseconds")]
    #[schemars(range(min = 0, max = 60_000))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("toleranceMilliseconds never changes: its holders must agree on it; make another pool"))]
    pub tolerance_milliseconds: i32,

    /// How an ID is put together. It never changes.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message("the layout never changes: IDs would repeat; make another pool"))]
    pub layout: PoolLayout,

    /// No ID has a timestamp before this: when another system used the ID space until then. It counts for slots that
    /// are opened after it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("format" = "date-time"))]
    pub not_before: Option<String>,

    /// The namespaces whose pods may lease slots of this pool, besides its own; `*` is all of them.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(max = 63), regex(pattern = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")), extend("x-kubernetes-list-type" = "set"))]
    pub allowed_namespaces: Vec<String>,
}

/// A range of slots, both ends included.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, KubeSchema)]
#[x_kube(validation = Rule::new("self.first <= self.last").message("first must not be above last"))]
pub struct SlotRange {
    /// The lowest slot.
    #[schemars(range(min = 0, max = 1_048_575))]
    pub first: i32,
    /// The highest slot.
    #[schemars(range(min = 0, max = 1_048_575))]
    pub last: i32,
}

/// How an ID is put together, from its highest bits: timestamp, then slot (the pool's `bits`) and sequence in either order.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.epoch % self.unitMilliseconds == 0")
        .message("the epoch must be a whole number of units"),
    validation = Rule::new("self.timestampBits >= (self.unitMilliseconds == 1 ? 35 : self.unitMilliseconds == 10 ? 32 : 25)")
        .message("timestampBits are used up within a year: a year takes 35 bits of 1 ms, 32 of 10 ms, 25 of 1000 ms")
)]
pub struct PoolLayout {
    /// Bits of the timestamp.
    #[serde(default = "defaults::timestamp_bits")]
    #[schemars(range(min = 1, max = 50))]
    pub timestamp_bits: i32,
    /// Bits of the sequence.
    #[serde(default = "defaults::sequence_bits")]
    #[schemars(range(min = 1, max = 31))]
    pub sequence_bits: i32,
    /// What the timestamp counts, in milliseconds: 1, 10 or 1000.
    #[serde(default = "defaults::unit_milliseconds")]
    #[schemars(range(min = 1, max = 1000))]
    #[x_kube(validation = Rule::new("self in [1, 10, 1000]").message("unitMilliseconds must be 1, 10 or 1000"))]
    pub unit_milliseconds: i32,
    /// The time of timestamp 0, in milliseconds since 1970.
    #[serde(default = "defaults::epoch")]
    #[schemars(range(min = 0, max = 4_102_444_800_000_i64))]
    pub epoch: i64,
    /// The order of the fields, from the highest bits: `timestamp-slot-sequence` is Twitter's and CosId's,
    /// `timestamp-sequence-slot` Sonyflake's.
    #[serde(default)]
    #[schemars(schema_with = "order_schema")]
    pub order: PoolOrder,
}

/// The order of an ID's fields.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum PoolOrder {
    /// Twitter's and CosId's.
    #[default]
    TimestampSlotSequence,
    /// Sonyflake's.
    TimestampSequenceSlot,
}

impl Default for PoolLayout {
    fn default() -> Self {
        Self {
            timestamp_bits: defaults::timestamp_bits(),
            sequence_bits: defaults::sequence_bits(),
            unit_milliseconds: defaults::unit_milliseconds(),
            epoch: defaults::epoch(),
            order: PoolOrder::default(),
        }
    }
}

impl Default for SlotPoolSpec {
    fn default() -> Self {
        Self {
            bits: defaults::bits(),
            slots: None,
            reserved: Vec::new(),
            ttl_seconds: defaults::ttl_seconds(),
            tolerance_milliseconds: defaults::tolerance_milliseconds(),
            layout: PoolLayout::default(),
            not_before: None,
            allowed_namespaces: Vec::new(),
        }
    }
}

/// The condition of a pool whose store went backwards, until a [`Barrier`] is above all that may have been lost.
pub const STORE_REGRESSED: &str = "StoreRegressed";

/// The longest ttl that a pool can have, seconds: at an hour a live holder's ceiling would be past what counts as plausible.
pub const LONGEST_TTL_SECONDS: u32 = 1_800;

/// The annotation by which a [`Barrier`] is asked for: a [`Request`].
pub const RECOVER: &str = "cosid.dev/recover";

/// What the controller found.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlotPoolStatus {
    /// The `metadata.generation` that this was found for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// `Ready`: slots can be acquired. `Exhausted`: none is free. `Deleting`: what the deletion waits for.
    /// `StoreRegressed`: the store was restored from a backup, and no slot can be acquired before `kubectl cosid recover`.
    #[serde(default)]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
    /// How many slots are in which state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotCounts>,
    /// Where slots that are opened start: above every window of any slot that has gone. Without it no slot can be
    /// acquired. It only grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watermark: Option<Watermark>,
    /// Slots that are never leased again: their next floor lies implausibly far ahead, or their fence is used up.
    #[serde(default)]
    #[schemars(length(max = 65_536), inner(range(min = 0, max = 1_048_575)), extend("x-kubernetes-list-type" = "set"))]
    pub retired: Vec<i32>,
    /// The last barrier that was written after the store went backwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barrier: Option<Barrier>,
}

/// No slot begins below this any more: it is above every window that may have been in use when the store went backwards.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Barrier {
    /// Unix ms.
    #[schemars(range(min = 0))]
    pub next_floor: i64,
    /// The request that it was written for, see the annotation `cosid.dev/recover`.
    #[schemars(length(max = 128))]
    pub request: String,
}

/// A request for a barrier, as it stands in the annotation `cosid.dev/recover`: `ID` or `ID/SECONDS`, where no lease was
/// longer than so many seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Any name for it that no request had before.
    pub id: String,
    /// The longest that a lease may have been since the backup, seconds; `None`: the pool's ttl, or that of any Lease.
    pub longest_ttl: Option<u32>,
}

impl Request {
    /// Reads an annotation; `None` where it is not as it has to be.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, seconds) = match text.split_once('/') {
            Some((id, seconds)) => (id, Some(seconds.parse().ok()?)),
            None => (text, None),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        let fits = (1..=100).contains(&id.len()) && id.bytes().all(is_name);
        fits.then(|| Self { id: id.to_owned(), longest_ttl: seconds })
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.longest_ttl {
            Some(seconds) => write!(f, "{}/{seconds}", self.id),
            None => f.write_str(&self.id),
        }
    }
}

/// How many slots are in which state.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq, KubeSchema)]
pub struct SlotCounts {
    /// Those that may be leased.
    #[schemars(range(min = 0))]
    pub total: i32,
    /// Those held, and not expired.
    #[schemars(range(min = 0))]
    pub held: i32,
    /// Those that can be acquired, and issue IDs, at once.
    #[schemars(range(min = 0))]
    pub free: i32,
    /// Those that can be acquired, but issue IDs only once their floor has passed.
    #[schemars(range(min = 0))]
    pub cooling: i32,
}

/// The highest next floor and fence of any Lease that has gone.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.nextFloor >= oldSelf.nextFloor && self.fence >= oldSelf.fence")
        .message("the watermark only grows: IDs would repeat")
)]
pub struct Watermark {
    /// No slot is opened with a floor below this, Unix ms.
    #[schemars(range(min = 0))]
    pub next_floor: i64,
    /// No slot is opened with a fence below this.
    #[schemars(range(min = 0))]
    pub fence: i32,
}

mod defaults {
    pub(super) const fn bits() -> i32 {
        10
    }
    pub(super) const fn ttl_seconds() -> i32 {
        30
    }
    pub(super) const fn tolerance_milliseconds() -> i32 {
        1_000
    }
    pub(super) const fn timestamp_bits() -> i32 {
        41
    }
    pub(super) const fn sequence_bits() -> i32 {
        12
    }
    pub(super) const fn unit_milliseconds() -> i32 {
        1
    }
    /// 2019-12-24T16:00Z, CosId's.
    pub(super) const fn epoch() -> i64 {
        1_577_203_200_000
    }
}

impl SlotPool {
    /// `<namespace>/<name>`, as messages name it.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace().as_deref().unwrap_or_default(), self.name_any())
    }

    /// Whether a condition of its status is true.
    #[must_use]
    pub fn is(&self, condition: &str) -> bool {
        let mut conditions = self.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|found| found.type_ == condition && found.status == "True")
    }

    /// Unix ms of `spec.notBefore`, where it is given.
    ///
    /// # Errors
    /// [`Error::Pool`] where it is no time, or one before 1970. An API server that has the CRD lets none through.
    pub fn not_before(&self) -> Result<Option<Millis>, Error> {
        let Some(text) = &self.spec.not_before else { return Ok(None) };
        let time =
            text.parse::<jiff::Timestamp>().ok().and_then(|time| u64::try_from(time.as_millisecond()).ok());
        match time {
            Some(time) => Ok(Some(time)),
            None => Err(self.invalid("notBefore", text)),
        }
    }

    /// How the pool's IDs are put together, to be built.
    ///
    /// # Errors
    /// [`Error::Pool`] where a field is out of its bounds. An API server that has the CRD lets none through.
    pub fn layout(&self) -> Result<LayoutBuilder, Error> {
        let PoolLayout { timestamp_bits, sequence_bits, unit_milliseconds, epoch, order } = self.spec.layout;
        let bits = |field, value: i32| u8::try_from(value).map_err(|_| self.invalid(field, value));
        let unit = u32::try_from(unit_milliseconds);
        let epoch_ms = u64::try_from(epoch);
        Ok(Layout::builder()
            .timestamp_bits(bits("layout.timestampBits", timestamp_bits)?)
            .slot_bits(bits("bits", self.spec.bits)?)
            .sequence_bits(bits("layout.sequenceBits", sequence_bits)?)
            .unit_ms(unit.map_err(|_| self.invalid("layout.unitMilliseconds", unit_milliseconds))?)
            .epoch_ms(epoch_ms.map_err(|_| self.invalid("layout.epoch", epoch))?)
            .order(match order {
                PoolOrder::TimestampSlotSequence => FieldOrder::SlotSequence,
                PoolOrder::TimestampSequenceSlot => FieldOrder::SequenceSlot,
            }))
    }

    fn invalid(&self, field: &'static str, value: impl ToString) -> Error {
        // Short enough for a log line.
        let value = value.to_string().chars().take(80).collect();
        Error::Pool { pool: self.full_name(), field, value }
    }
}

/// The pool as the slot store gives it. It is ready once it has a watermark, and is not being deleted.
///
/// # Errors
/// [`Error::Pool`] where a field is out of its bounds. An API server that has the CRD lets none through.
pub fn to_pool(pool: &SlotPool) -> Result<Pool, Error> {
    let spec = &pool.spec;
    let bits = u8::try_from(spec.bits).ok().filter(|bits| (1..=20).contains(bits));
    let bits = bits.ok_or_else(|| pool.invalid("bits", spec.bits))?;
    let highest: Slot = (1 << bits) - 1;
    let slot = |field, value: i32| {
        let slot = Slot::try_from(value).ok().filter(|&slot| slot <= highest);
        slot.ok_or_else(|| pool.invalid(field, value))
    };
    let (first, last) = match spec.slots {
        Some(range) => (slot("slots.first", range.first)?, slot("slots.last", range.last)?),
        None => (0, highest),
    };
    if first > last {
        return Err(pool.invalid("slots.first", first));
    }
    let retired = pool.status.iter().flat_map(|status| &status.retired);
    let reserved = spec.reserved.iter().map(|&value| slot("reserved", value));
    let withheld: Result<BTreeSet<Slot>, Error> =
        reserved.chain(retired.map(|&value| slot("status.retired", value))).collect();
    let seconds = u64::try_from(spec.ttl_seconds).ok().filter(|&seconds| seconds > 0);
    let ttl = seconds.ok_or_else(|| pool.invalid("ttlSeconds", spec.ttl_seconds))? * 1000;
    let tolerance = u64::try_from(spec.tolerance_milliseconds)
        .map_err(|_| pool.invalid("toleranceMilliseconds", spec.tolerance_milliseconds))?;
    let has_watermark = pool.status.as_ref().is_some_and(|status| status.watermark.is_some());
    let state = match (&pool.metadata.deletion_timestamp, has_watermark) {
        (Some(_), _) => PoolState::Deleting,
        (None, true) if pool.is(STORE_REGRESSED) => PoolState::Regressed,
        (None, true) => PoolState::Ready,
        (None, false) => PoolState::Unready,
    };
    let terms = Terms { ttl, tolerance };
    let barrier = pool.status.as_ref().and_then(|status| status.barrier.as_ref());
    let barrier = barrier.and_then(|barrier| Millis::try_from(barrier.next_floor).ok()).unwrap_or(0);
    Ok(Pool { name: pool.full_name(), bits, first, last, withheld: withheld?, terms, state, barrier })
}

/// The CustomResourceDefinition as it is installed: what `crds/` holds.
///
/// # Errors
/// [`Error::Yaml`] where it can't be written down.
#[cfg(feature = "kubeconfig")]
pub fn crd_yaml() -> Result<String, Error> {
    let crd = serde_json::to_value(SlotPool::crd()).map_err(|error| Error::Yaml(error.to_string()))?;
    serde_saphyr::to_string(&crd).map_err(|error| Error::Yaml(error.to_string()))
}

/// As people read it in the resource: a list of names.
fn order_schema(_: &mut schemars::SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "string", "enum": ["timestamp-slot-sequence", "timestamp-sequence-slot"] })
}

/// As the API's own `Condition` has it. k8s-openapi could give it, at the price of a schema for every Kubernetes type.
fn conditions_schema(_: &mut schemars::SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
                },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
                },
                "message": { "type": "string", "maxLength": 32768 }
            }
        }
    })
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
