//! The mappings: the one module with `unsafe`.
//!
//! It hands out the words of a page, and of memory that is the process's own, as atomics and nothing else, so all
//! that programs share through the file is atomic and no access to it is a data race.

#![allow(unsafe_code, reason = "the words of a mapped file become atomics by a cast of its address")]

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(not(miri))]
use memmap2::MmapOptions;
use memmap2::{MmapMut, MmapRaw};
#[cfg(not(miri))]
use rustix::mm::{Advice, madvise};

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
        Self::map(file)
    }

    #[cfg(not(miri))]
    fn map(file: &File) -> io::Result<Self> {
        MmapOptions::new().len(PAGE_LEN).map_raw(file).map(Self)
    }

    /// Miri maps no files. What it gets is memory of its own with the file's bytes: enough for all that happens on one
    /// [`Page`](super::Page), not for two that map the same file.
    #[cfg(miri)]
    fn map(file: &File) -> io::Result<Self> {
        use std::io::{Read, Seek};
        let mut copy = MmapMut::map_anon(PAGE_LEN)?;
        let mut file = file;
        file.rewind()?;
        file.read_exact(&mut copy)?;
        Ok(Self(copy.into()))
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

/// Words of this process alone, zero at first, and zero again in a child that is forked.
pub(crate) struct OwnWords(MmapRaw);

/// A memory page, at the least: nobody else's words are wiped at a fork.
const OWN_LEN: usize = 4096;
const OWN_WORDS: usize = OWN_LEN / 8;

impl OwnWords {
    /// Fails where memory is short, or the kernel can't wipe it at a fork (Linux can since 4.14).
    pub(crate) fn new() -> io::Result<Self> {
        let memory = MmapRaw::from(MmapMut::map_anon(OWN_LEN)?);
        // Miri has no fork either.
        #[cfg(not(miri))]
        // SAFETY: the address and length are those of a mapping that is ours alone. Until a fork the advice changes none
        // of its bytes, and what a child finds in its copy is the zeros of a new mapping.
        unsafe {
            madvise(memory.as_mut_ptr().cast(), OWN_LEN, Advice::LinuxWipeOnFork)?
        };
        Ok(Self(memory))
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64; OWN_WORDS] {
        let address = self.0.as_mut_ptr().cast::<[AtomicU64; OWN_WORDS]>();
        // SAFETY: the mapping is OWN_LEN = 8 * OWN_WORDS bytes long, aligned to a memory page, readable and writable,
        // and lives as long as `self`, to which the reference is bound. Every bit pattern is a valid u64. Nothing
        // else has its address.
        unsafe { &*address }
    }
}

/// A word that is found at once, without asking what keeps it mapped where it is.
pub(crate) struct Word<M> {
    word: NonNull<AtomicU64>,
    owner: Arc<M>,
}

impl<M> Word<M> {
    /// `pick` shows a word of a mapping that `owner` keeps unchanged for as long as it lives.
    pub(crate) fn new(owner: Arc<M>, pick: impl FnOnce(&M) -> &AtomicU64) -> Self {
        Self { word: pick(&owner).into(), owner }
    }

    pub(crate) fn owner(&self) -> &Arc<M> {
        &self.owner
    }
}

impl<M> Deref for Word<M> {
    type Target = AtomicU64;

    #[inline]
    fn deref(&self) -> &AtomicU64 {
        // SAFETY: the word is one of a mapping of `owner`, a `Page` or `Gate`, neither of which ever lets go of its
        // mapping while it lives; and it lives as long as `self`, to which the reference is bound.
        unsafe { self.word.as_ref() }
    }
}

impl<M: fmt::Debug> fmt::Debug for Word<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Word").field(&self.owner).finish()
    }
}

impl<M> Clone for Word<M> {
    fn clone(&self) -> Self {
        Self { word: self.word, owner: Arc::clone(&self.owner) }
    }
}

// SAFETY: it is what the `Arc` is, and a reference to an atomic word, which any thread may have.
unsafe impl<M: Send + Sync> Send for Word<M> {}
// SAFETY: as above; there is no way to change it.
unsafe impl<M: Send + Sync> Sync for Word<M> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn what_is_a_process_s_own_is_zero_in_a_forked_child() {
        let own = OwnWords::new().unwrap();
        own.words().iter().for_each(|word| word.store(7, Ordering::Relaxed));
        // SAFETY: the child reads memory and ends, without a lock, an allocation or a destructor.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_wiped = own.words().iter().all(|word| word.load(Ordering::Relaxed) == 0);
            // SAFETY: it ends the child at once.
            unsafe { libc::_exit(if is_wiped { 3 } else { 4 }) };
        }
        let mut status = 0;
        // SAFETY: `status` lives while it is written, and the child is this one's own.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 3);
        assert!(own.words().iter().all(|word| word.load(Ordering::Relaxed) == 7), "and the parent keeps it");
    }
}
