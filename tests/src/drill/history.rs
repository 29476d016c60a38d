//! What the API server told of a pool's slots, change by change: `store.jsonl`.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A change of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The slot.
    pub slot: u32,
    /// The fence after it.
    pub fence: u32,
    /// The window, while it is held: exclusive floor and inclusive ceiling.
    pub window: Option<(u64, u64)>,
    /// The floor that the next holder gets.
    pub next_floor: u64,
    /// Changes before it may not have been seen: the watch had ended, and everything was listed anew.
    pub after_a_hole: bool,
}

/// The window of one holder, as far as the history tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Every timestamp is above it.
    pub floor: u64,
    /// No timestamp is above it.
    pub ceiling: u64,
}

/// The windows of one slot by fence.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    seen: BTreeMap<u32, Window>,
    /// Fences that nobody saw, each with the bounds that the changes around the hole set.
    unseen: Vec<(Range<u32>, Window)>,
    /// By fence what everything before it is not above.
    floors: BTreeMap<u32, u64>,
    last: Option<Change>,
}

impl Windows {
    /// Takes a change in. Changes come in the order in which the store had them.
    pub fn take(&mut self, change: &Change) {
        if change.after_a_hole
            && let Some(last) = &self.last
            && change.fence > last.fence
        {
            // Whatever happened unseen is below what the next holder got.
            let end = change.window.map_or(change.next_floor, |(floor, _)| floor);
            if let Some(window) = self.seen.get_mut(&last.fence) {
                window.ceiling = window.ceiling.max(end);
            }
            let between =
                Window { floor: last.window.map_or(last.next_floor, |(floor, _)| floor), ceiling: end };
            self.unseen.push((last.fence + 1..change.fence, between));
        }
        if let Some((floor, ceiling)) = change.window {
            let window = self.seen.entry(change.fence).or_insert(Window { floor, ceiling });
            // A floor that changes under a fence would be a fault of the store: the narrower one is what counts.
            window.floor = window.floor.max(floor);
            window.ceiling = window.ceiling.max(ceiling);
        }
        let floor = change.window.map_or(change.next_floor, |(floor, _)| floor);
        self.floors.entry(change.fence).or_insert(floor);
        self.last = Some(change.clone());
    }

    /// The window of a fence; `None` where there can have been none.
    #[must_use]
    pub fn of(&self, fence: u32) -> Option<Window> {
        let unseen =
            || self.unseen.iter().find(|(fences, _)| fences.contains(&fence)).map(|(_, window)| *window);
        self.seen.get(&fence).copied().or_else(unseen)
    }

    /// The floor of the next holder after this fence, or of whoever will be, once it has changed hands.
    #[must_use]
    pub fn floor_after(&self, fence: u32) -> Option<u64> {
        self.floors.range(fence + 1..).next().map(|(_, floor)| *floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(fence: u32, floor: u64, ceiling: u64) -> Change {
        Change { slot: 0, fence, window: Some((floor, ceiling)), next_floor: ceiling, after_a_hole: false }
    }

    #[test]
    fn a_window_grows_by_renewals_and_ends_at_the_last() {
        let mut windows = Windows::default();
        [held(1, 0, 10), held(1, 0, 20), held(3, 15, 30)].iter().for_each(|change| windows.take(change));
        assert_eq!(windows.of(1), Some(Window { floor: 0, ceiling: 20 }));
        assert_eq!(windows.of(2), None);
        assert_eq!(windows.of(3), Some(Window { floor: 15, ceiling: 30 }));
        assert_eq!((windows.floor_after(1), windows.floor_after(3)), (Some(15), None));
    }

    #[test]
    fn a_release_sets_the_next_floor_before_anybody_has_it() {
        let mut windows = Windows::default();
        windows.take(&held(1, 0, 10));
        windows.take(&Change { window: None, next_floor: 7, ..held(2, 0, 0) });
        assert_eq!((windows.of(2), windows.floor_after(1)), (None, Some(7)));
    }

    #[test]
    fn what_was_not_seen_is_bounded_by_what_came_next() {
        let mut windows = Windows::default();
        windows.take(&held(1, 0, 10));
        windows.take(&Change { after_a_hole: true, ..held(4, 50, 60) });
        assert_eq!(windows.of(1), Some(Window { floor: 0, ceiling: 50 }));
        assert_eq!(windows.of(2), Some(Window { floor: 0, ceiling: 50 }));
        assert_eq!(windows.of(5), None);
    }
}
