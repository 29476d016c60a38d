//! What a drill did and what it was promised: `drill.json`.

use std::collections::BTreeMap;

use cosid_id::Layout;
use serde::{Deserialize, Serialize};

use super::runs::Binding;

/// All that the judge has to know besides the IDs and the store's history.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The drill.
    pub name: String,
    /// The layout of the pool's IDs.
    pub layout: Layout,
    /// For each life of a program, by the name of its file: what it was promised, and how it ended.
    pub lives: BTreeMap<String, Life>,
    /// When a fault was over: from then on it is counted how long it takes until everybody has an ID.
    pub healed: Vec<u64>,
    /// What each slot was at the end, once every lease of the dead should have expired.
    pub slots: BTreeMap<u32, SlotState>,
    /// Who of the living held what at that time.
    pub living: Vec<Binding>,
    /// Slots that the drill takes out of use, by what it does to them.
    pub given_up: Vec<u32>,
}

/// A program that makes IDs, from its start to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Life {
    /// The longest time without an ID that it was promised, milliseconds.
    pub promised_ms: u64,
    /// When it was killed; without that it has to have said its last.
    pub killed: Option<u64>,
    /// From when to when it was stopped: nobody promises IDs to a program that does not run.
    #[serde(default)]
    pub stopped: Option<(u64, u64)>,
}

/// What a slot is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum SlotState {
    /// Anybody may take it.
    Free,
    /// Somebody holds it under this fence, and it has not expired.
    Held {
        /// The fence.
        fence: u32,
    },
    /// Nobody can take it, ever: its Lease is missing, shut or unreadable.
    Unusable,
}
