//! The mapping: the one module with `unsafe`.
//!
//! It hands out the page's words as atomics and nothing else, so all that programs share through the file is
//! atomic and no access to it is a data race.

#![allow(unsafe_code, reason = "the words of a mapped file become atomics by a cast of its address")]

use std::fs::File;
use std::io;

use memmap2::{MmapOptions, MmapRaw};

use crate::format::{PAGE_LEN, PAGE_WORDS};
use crate::sync::AtomicU64;

// The words are native atomics and the format is little-endian.
#[cfg(target_endian = "big")]
compile_error!("the window page is little-endian; big-endian machines are not supported");

pub(super) struct Mapping(MmapRaw);

impl Mapping {
    /// Maps a page for reading and writing, shared with everybody else who maps it.
    ///
    /// The file must have a page's length: whoever touches a mapping past the end of its file is killed by
    /// SIGBUS. That also goes for a file cut short later; only the agent that owns it could do that.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() != PAGE_LEN as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        MmapOptions::new().len(PAGE_LEN).map_raw(file).map(Self)
    }

    pub(super) fn words(&self) -> &[AtomicU64; PAGE_WORDS] {
        let address = self.0.as_mut_ptr().cast::<[AtomicU64; PAGE_WORDS]>();
        // SAFETY: the mapping is PAGE_LEN = 8 * PAGE_WORDS bytes long, aligned to a memory page, readable and
        // writable, and lives as long as `self`, to which the reference is bound. Every bit pattern is a valid
        // u64. All programs of this crate touch the mapped bytes through these atomics only, and what another
        // process writes is outside this program's memory model but still whole words on the hardware.
        unsafe { &*address }
    }
}
