//! Disks that are small enough to be filled.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A file system of its own, which goes with this value.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// One of this size, at a path where nothing is yet; `None` only where somebody asked for tests without root's rights.
    ///
    /// # Panics
    /// Where it can't be mounted.
    #[must_use]
    pub fn mount(path: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir(&path).unwrap();
        let options = std::ffi::CString::new(format!("size={size},mode=0700")).unwrap();
        let mounted = mount("tmpfs", &path, "tmpfs", MountFlags::empty(), options.as_c_str());
        if mounted.is_err() && std::env::var_os("COSID_TEST_NO_ROOT").is_some() {
            println!("  not tested: a full disk, because COSID_TEST_NO_ROOT is set");
            return None;
        }
        mounted.expect(
            "mounting a small disk to fill needs root; set COSID_TEST_NO_ROOT to go without these tests",
        );
        Some(Self(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves this many bytes.
    pub fn fill(&self, leave: u64) {
        let free = rustix::fs::statvfs(&self.0).unwrap();
        let free = free.f_bavail * free.f_bsize - leave;
        fs::write(self.0.join("filler"), vec![1; usize::try_from(free).unwrap()]).unwrap();
    }

    /// Undoes [`Disk::fill`].
    pub fn free(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // An agent may still be there for a moment.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}
