//! A pool's slots, as their Leases say.

use cosid_kube::codec;
use cosid_lease::{Fence, Millis, Record};
use k8s_openapi::api::coordination::v1::Lease;

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub number: u32,
    /// What its Lease says.
    pub record: Record,
}

impl Slot {
    /// Reads a pool's Lease; `None` for one that is not open yet.
    ///
    /// # Panics
    /// Where it can't be read.
    pub(super) fn read(lease: &Lease) -> Option<Self> {
        let record = codec::read(lease).unwrap()?;
        let name = lease.metadata.name.as_deref().unwrap();
        let number = name.rsplit_once('-').unwrap().1.parse().unwrap();
        Some(Self { number, record })
    }

    /// Who holds it: `NAMESPACE/POD`.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        self.record.holding().map(|holding| holding.owner.key.as_str())
    }

    /// Whether nobody holds it.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.record.holding().is_none()
    }

    /// Its fence.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.record.fence
    }

    /// The floor that its next holder gets.
    #[must_use]
    pub fn next_floor(&self) -> Millis {
        self.record.next_floor
    }
}
