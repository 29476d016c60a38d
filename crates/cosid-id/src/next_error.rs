//! Why there is no ID now.

use std::time::Duration;

/// Why there is no ID now. Small and copied: a caller at the cap sees one every millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NextError {
    /// Not yet: waiting can help.
    #[error(transparent)]
    Wait(#[from] Wait),
    /// The page is closed. Waiting never helps: go on with a generator of the next page.
    #[error("the slot is lost: its page is closed; go on with a generator of the agent's next page")]
    SlotLost,
    /// This host's clock is before the layout's epoch.
    #[error("the clock ({now}) is before the layout's epoch {epoch} (Unix ms); set this host's clock")]
    BeforeEpoch {
        /// Unix ms.
        now: u64,
        /// Unix ms.
        epoch: u64,
    },
    /// The layout has no timestamp for this time.
    #[error("the layout's timestamps ended at {last} (Unix ms); give the pool a layout with a later epoch")]
    LayoutUsedUp {
        /// Unix ms of the last millisecond that the layout can say.
        last: u64,
    },
    /// A batch of no ID or of too many.
    #[error("a batch of {count} IDs; ask for 1 to {max}")]
    BadCount {
        /// IDs asked for.
        count: usize,
        /// IDs that one batch may have.
        max: usize,
    },
}

/// What a generator waits for. Times are Unix ms.
///
/// ```
/// use std::time::Duration;
/// use cosid_id::Wait;
///
/// let used_up = Wait::SequenceUsedUp { now: 1_700_000_000_000, until: 1_700_000_000_001 };
/// assert_eq!(used_up.remaining(), Some(Duration::from_millis(1)));
/// // Only a renewal helps here, and nobody knows when it comes.
/// let at_its_end = Wait::AboveCeiling { now: 1_700_000_000_000, ceiling: 1_699_999_999_999 };
/// assert_eq!(at_its_end.until(), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Wait {
    /// The slot's last holder may have issued up to the floor, and the clock is not above it yet.
    #[error(
        "the clock ({now}) is not above the slot's floor: the first ID can be made at {until} (Unix ms), in \
         {} ms; wait, or check this host's clock if that is long", until.saturating_sub(*now)
    )]
    BelowFloor {
        /// The clock when it was tried.
        now: u64,
        /// The first time at which it can work.
        until: u64,
    },
    /// The window's ceiling is reached: the agent has not renewed in time, a static slot's state file could not be
    /// written, or this host's clock is ahead.
    #[error(
        "the window ends at {ceiling} and the clock is at {now} (Unix ms): the lease was not renewed; look at \
         the agent's /readyz and its connection to the API server (a static slot's state file and disk), and at this \
         host's clock"
    )]
    AboveCeiling {
        /// The clock when it was tried.
        now: u64,
        /// The largest timestamp that could be issued then.
        ceiling: u64,
    },
    /// All sequences of the tick are issued (or the clock of another process was ahead of this one's).
    #[error(
        "all sequences before {until} (Unix ms) are issued, the clock is at {now}; wait {} ms, or use a layout \
         with more sequence bits", until.saturating_sub(*now)
    )]
    SequenceUsedUp {
        /// The clock when it was tried.
        now: u64,
        /// The first time at which it can work.
        until: u64,
    },
}

impl Wait {
    /// Unix ms of the first time at which it can work; `None` if that depends on the agent.
    #[must_use]
    pub const fn until(&self) -> Option<u64> {
        match self {
            Self::BelowFloor { until, .. } | Self::SequenceUsedUp { until, .. } => Some(*until),
            Self::AboveCeiling { .. } => None,
        }
    }

    /// How long that is from when it was tried.
    #[must_use]
    pub const fn remaining(&self) -> Option<Duration> {
        match self {
            Self::BelowFloor { now, until } | Self::SequenceUsedUp { now, until } => {
                Some(Duration::from_millis(until.saturating_sub(*now)))
            }
            Self::AboveCeiling { .. } => None,
        }
    }
}
