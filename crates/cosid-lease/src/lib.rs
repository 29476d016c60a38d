//! Slots leased together with a window of timestamps: the algebra, the slot choice, the keeper.
//!
//! A lease is the exclusive right to issue timestamps `t` on a slot with `floor < t <= ceiling`. One inequality
//! makes every ID unique, whatever clocks, pauses and networks do:
//!
//! > the next holder's floor >= the largest ceiling the previous holder could have used
//!
//! This crate keeps it. It knows no clock, no network and no runtime: every function gets the time passed in, and
//! the [`Keeper`] is a state machine that takes events and gives actions, so that an agent, a simulator and a model
//! checker run the same code.
//!
//! * [`algebra`]: the three changes of a [`Record`]: acquire, renew, release.
//! * [`choose`]: which slot an acquirer tries.
//! * [`SlotStore`]: what a store must do: load, read, and write by compare-and-set.
//! * [`Keeper`]: acquire, renew, back off, lose, acquire anew, close in order.
//! * [`regress`]: noticing a store that went backwards.
//! * [`StoreClock`]: the store's time, estimated from its answers.
//! * [`memory`]: a store in this process. `conformance` (a feature): what every store must pass.
//!
//! ```
//! use cosid_lease::{algebra, Owner, Record, Terms};
//!
//! let terms = Terms { ttl: 30_000, tolerance: 1_000 };
//! let owner = Owner::new("default/web-0");
//! let free = Record::open(0, 5_000);
//! let held = algebra::acquire(&free, &owner, 1_000, terms).unwrap();
//! let holding = held.holding().unwrap();
//! // The window starts above everything the slot's history could have used, and ends after the expiry.
//! assert_eq!((holding.floor, holding.ceiling), (5_000, 32_000));
//! // A release hands the exact last timestamp on.
//! let freed = algebra::release(&held, owner.incarnation, held.fence, 7_123).unwrap();
//! assert_eq!(freed.next_floor, 7_123);
//! ```

pub mod algebra;
pub mod choose;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod keeper;
pub mod memory;
mod proof;
mod record;
pub mod regress;
mod store;

pub use clock::{Now, StoreClock, StoreTime};
pub use keeper::{Action, Event, Keeper, KeeperConfig, LossReason, Report};
pub use record::{Fence, Holding, MAX_FENCE, Millis, Owner, Record, Slot, Tenure, Terms};
pub use regress::Regression;
pub use store::{Entry, Pool, PoolState, SlotState, SlotStore, StoreError, View};
