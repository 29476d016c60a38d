//! What a restarted agent finds of its lease.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cosid_id::Layout;
use cosid_lease::{Fence, Millis, Owner, Slot, Terms};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What outlives a restart of the agent, but not of the machine.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Saved {
    /// The kernel's id of this boot. After another boot no process of the old one is left that could use the page, but
    /// its memory may be gone too: nothing is resumed.
    pub(super) boot_id: String,
    /// Which directory this is, whatever it is called. A copy of it resumes nothing: two agents would keep one lease, with
    /// a page each.
    pub(super) directory: Place,
    pub(super) pool: String,
    pub(super) owner: Owner,
    pub(super) slot: Slot,
    pub(super) fence: Fence,
    pub(super) floor: Millis,
    pub(super) acquired_at: Millis,
    pub(super) terms: Terms,
    pub(super) layout: Layout,
    pub(super) page: String,
}

/// A directory: its device and inode, which no copy of it has.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    device: u64,
    inode: u64,
}

impl Place {
    pub(super) fn of(directory: &Path) -> Result<Self, Error> {
        let metadata =
            fs::metadata(directory).map_err(Error::io("can't look at the directory", directory))?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The kernel's id of this boot.
pub(super) fn boot_id() -> Result<String, Error> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(path).map_err(Error::io("can't read", path))?;
    Ok(text.trim().to_owned())
}
