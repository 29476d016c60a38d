//! Disks that are full or read-only.

use std::ffi::CString;
use std::io;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};

use super::*;

/// A file system of its own, which goes with this value. It is at `rw` and, read-only, at `ro`; a link leads to one of them,
/// since no file system with a file that is open for writing can be made read-only by hand, as a failing disk is by itself.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None` only where somebody asked for tests without root's rights.
    fn mount() -> Option<Self> {
        let disk = Self(tempfile::tempdir().unwrap());
        fs::create_dir(disk.at("rw")).unwrap();
        fs::create_dir(disk.at("ro")).unwrap();
        disk.set_read_only(false);
        let options = CString::new("size=64k,mode=0700").unwrap();
        let mounted = mount("tmpfs", disk.at("rw"), "tmpfs", MountFlags::empty(), options.as_c_str());
        if mounted.is_err() && std::env::var_os("COSID_TEST_NO_ROOT").is_some() {
            println!("not tested: a failing disk, because COSID_TEST_NO_ROOT is set");
            return None;
        }
        mounted.expect(
            "mounting a small disk to fill needs root; set COSID_TEST_NO_ROOT to go without these tests",
        );
        mount_bind(disk.at("rw"), disk.at("ro")).unwrap();
        mount_remount(disk.at("ro"), MountFlags::BIND | MountFlags::RDONLY, c"").unwrap();
        Some(disk)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn state(&self) -> PathBuf {
        self.at("disk/orders-3.state")
    }

    fn fill(&self) {
        let free = rustix::fs::statvfs(self.at("rw")).unwrap();
        let free = usize::try_from(free.f_bavail * free.f_bsize).unwrap();
        fs::write(self.at("rw/filler"), vec![1; free]).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.at("rw/filler")).unwrap();
    }

    fn set_read_only(&self, is_read_only: bool) {
        std::os::unix::fs::symlink(if is_read_only { "ro" } else { "rw" }, self.at("next")).unwrap();
        fs::rename(self.at("next"), self.at("disk")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for name in ["ro", "rw"] {
            let _ = unmount(self.at(name), UnmountFlags::DETACH);
        }
    }
}

/// What the disk says when nothing can be written.
fn kind(error: &Error) -> Option<io::ErrorKind> {
    match error {
        Error::StateIo { source, .. } => Some(source.kind()),
        _ => None,
    }
}

/// Stopped at the ceiling with the reason, and going on once it can be written again.
fn stops_and_heals(disk: &Disk, fail: impl Fn(), mend: impl Fn(), expected: io::ErrorKind) {
    let clock = Hands::at(NOON);
    let builder = StaticSlot::builder(3).ahead(Duration::from_millis(40));
    let mut slot = builder.open_with_clock(&disk.state(), clock.clone()).unwrap();
    let (floor, ceiling) = (slot.page().header().floor, slot.page().ceiling());
    let orders = generator(&mut slot, &clock);
    fail();
    clock.put(ceiling);
    until("no failure", || slot.health().is_err());
    let error = slot.health().unwrap_err();
    assert_eq!(kind(&error), Some(expected), "{error}");
    assert!(error.to_string().contains(disk.state().to_str().unwrap()), "{error}");
    orders.try_next().expect("what is written can be issued");
    clock.put(ceiling + 1);
    let above = Wait::AboveCeiling { now: ceiling + 1, ceiling };
    assert_eq!(orders.try_next(), Err(above.into()));
    assert_eq!(slot.page().ceiling(), ceiling);
    assert!(floor < ceiling);

    mend();
    until("no extension", || slot.page().ceiling() > ceiling);
    until("still failing", || slot.health().is_ok());
    orders.try_next().unwrap();
    slot.close().unwrap();
}

#[test]
fn a_full_disk_stops_the_slot_at_its_ceiling_and_it_goes_on_once_there_is_room() {
    let Some(disk) = Disk::mount() else { return };
    stops_and_heals(&disk, || disk.fill(), || disk.free(), io::ErrorKind::StorageFull);
}

#[test]
fn a_read_only_disk_stops_the_slot_at_its_ceiling_and_it_goes_on_once_it_can_be_written() {
    let Some(disk) = Disk::mount() else { return };
    let (fail, mend) = (|| disk.set_read_only(true), || disk.set_read_only(false));
    stops_and_heals(&disk, fail, mend, io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn a_slot_is_not_opened_on_a_disk_that_does_not_take_its_first_write() {
    let Some(disk) = Disk::mount() else { return };
    disk.fill();
    let error = StaticSlot::builder(3).open(disk.state()).unwrap_err();
    assert_eq!(kind(&error), Some(io::ErrorKind::StorageFull), "{error}");
    disk.free();
    StaticSlot::builder(3).open(disk.state()).unwrap().close().unwrap();
    disk.set_read_only(true);
    let error = StaticSlot::builder(3).open(disk.state()).unwrap_err();
    assert_eq!(kind(&error), Some(io::ErrorKind::ReadOnlyFilesystem), "{error}");
}

#[test]
fn a_close_that_can_not_be_written_says_so_and_the_next_start_begins_above_the_ceiling() {
    let Some(disk) = Disk::mount() else { return };
    let clock = Hands::at(NOON);
    let slot = StaticSlot::builder(3).open_with_clock(&disk.state(), clock.clone()).unwrap();
    disk.fill();
    assert_eq!(kind(&slot.close().unwrap_err()), Some(io::ErrorKind::StorageFull));
    disk.free();
    let again = StaticSlot::builder(3).open_with_clock(&disk.state(), clock).unwrap();
    assert_eq!(again.page().header().floor, NOON + AHEAD);
}
