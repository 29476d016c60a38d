//! What the agent holds, for programs that show it.

use std::ffi::c_char;

use cosid_client::{Lease, LeaseState};

use crate::client::{self, CosidClient};
use crate::failure::call;
use crate::pointer::{handle, put};
use crate::status::CosidStatus;

/// What an agent is doing.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CosidState {
    /// Something that this version does not know.
    Unknown = 0,
    /// It reads its pool and its old state.
    Starting = 1,
    /// It tries to get a slot.
    Seeking = 2,
    /// All slots are held by others; it goes on trying.
    Exhausted = 3,
    /// It may not have a slot.
    Refused = 4,
    /// It holds a slot.
    Held = 5,
    /// It holds a slot whose page it can't make.
    Blocked = 6,
    /// It gives its slot back.
    Closing = 7,
    /// It holds nothing and ends.
    Stopped = 8,
}

/// What the agent holds. All times are Unix ms; what is not known or not there is 0 or empty.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CosidLease {
    /// What it is doing. The fields from `slot` to `expires_at` are there while it is `COSID_STATE_HELD`.
    pub state: CosidState,
    /// The slot.
    pub slot: u32,
    /// Grows by 1 at each change of ownership.
    pub fence: u64,
    /// Every timestamp issued is above it.
    pub floor: u64,
    /// No timestamp issued is above it; moved on at each renewal.
    pub ceiling: u64,
    /// When others may take the slot, by the store's clock.
    pub expires_at: u64,
    /// While it is `COSID_STATE_EXHAUSTED`: when the first slot may be taken over, by the store's clock.
    pub earliest_expiry: u64,
    /// The pool, as `namespace/name`; ended by a zero.
    pub pool: [c_char; 352],
    /// What the agent says in words, cut where it is longer; ended by a zero.
    pub message: [c_char; 512],
}

/// What the agent holds now. One round trip, for at most 2 s.
///
/// # Safety
/// `client` is null or came from `cosid_open` and is not closed; `lease` is null or room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cosid_lease(client: *const CosidClient, lease: *mut CosidLease) -> CosidStatus {
    call(|| {
        // SAFETY: as this function's caller promises.
        let client = unsafe { handle(client, client::NULL) }?;
        let found = client.0.lease()?;
        // SAFETY: as this function's caller promises.
        unsafe { put(lease, CosidLease::from(&found)) }
    })
}

impl From<&Lease> for CosidLease {
    fn from(lease: &Lease) -> Self {
        let mut told = Self {
            state: CosidState::Unknown,
            slot: 0,
            fence: 0,
            floor: 0,
            ceiling: 0,
            expires_at: 0,
            earliest_expiry: 0,
            pool: chars(&lease.pool),
            message: chars(&lease.message),
        };
        told.state = match &lease.state {
            LeaseState::Starting => CosidState::Starting,
            LeaseState::Seeking => CosidState::Seeking,
            LeaseState::Exhausted { earliest_expiry } => {
                told.earliest_expiry = earliest_expiry.unwrap_or(0);
                CosidState::Exhausted
            }
            LeaseState::Refused => CosidState::Refused,
            LeaseState::Held(held) => {
                told.slot = held.slot;
                told.fence = held.fence;
                told.floor = held.floor;
                told.ceiling = held.ceiling;
                told.expires_at = held.expires_at;
                CosidState::Held
            }
            LeaseState::Blocked => CosidState::Blocked,
            LeaseState::Closing => CosidState::Closing,
            LeaseState::Stopped => CosidState::Stopped,
            _ => CosidState::Unknown,
        };
        told
    }
}

/// As much of a text as there is room for, without half a character, and a zero.
fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    let end = text.floor_char_boundary(N.saturating_sub(1));
    for (place, byte) in chars.iter_mut().zip(text.bytes().take(end)) {
        *place = c_char::from_ne_bytes([byte]);
    }
    chars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_cut_before_a_character() {
        let bytes = |chars: [c_char; 4]| chars.map(|char| char.to_ne_bytes()[0]);
        assert_eq!(bytes(chars("abc")), *b"abc\0");
        assert_eq!(bytes(chars("abcd")), *b"abc\0");
        assert_eq!(bytes(chars("ab\u{e4}")), *b"ab\0\0");
        assert_eq!(bytes(chars("")), [0; 4]);
    }
}
