//! Free ports that stay ours while a server is down between two starts.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process;

use crate::{Error, Result};

/// Below the range that the kernel gives to outgoing connections: there, while an API server is down, a client that
/// tries to reach it could be given the very port as its own, and would be connected to itself.
/// No wider than needed: a port that was used leaves an empty file until the next `cluster down`.
const RANGE: std::ops::Range<u16> = 20_000..22_000;

/// A port of 127.0.0.1 that no other cluster of this user takes while this value lives.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) number: u16,
    /// The lock on a file named after the port; the kernel gives it up with the process.
    _held: File,
}

/// Takes `N` ports that nothing listens on; `locks` is a directory that all clusters share.
pub(super) fn take<const N: usize>(locks: &Path) -> Result<[Port; N]> {
    fs::create_dir_all(locks).map_err(Error::io(format_args!("make {}", locks.display())))?;
    let mut ports = Vec::with_capacity(N);
    for number in order(process::id()) {
        if let Some(port) = try_take(number, locks)? {
            ports.push(port);
        }
        if ports.len() == N {
            break;
        }
    }
    ports.try_into().map_err(|_| {
        Error::Setup(format!("no {N} free ports on 127.0.0.1 from {} to {}", RANGE.start, RANGE.end))
    })
}

/// All ports of the range, from a place that differs from process to process, so that several seldom meet.
fn order(seed: u32) -> impl Iterator<Item = u16> {
    let count = u32::from(RANGE.end - RANGE.start);
    let first = seed.wrapping_mul(2_654_435_761) % count;
    RANGE.cycle().skip(first as usize).take(count as usize)
}

fn try_take(number: u16, locks: &Path) -> Result<Option<Port>> {
    let path = locks.join(number.to_string());
    let doing = || format!("lock {}", path.display());
    let held = File::create(&path).map_err(Error::io(doing()))?;
    match held.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(Error::io(doing())(error)),
        Ok(()) => {}
    }
    // Removed between the two: then this is a lock on nothing, and the port may be another's.
    if !is_at(&held, &path) {
        return Ok(None);
    }
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok();
    Ok(free.then_some(Port { number, _held: held }))
}

/// Removes the files of all ports that nobody has: those of the cluster that has just ended, and of others before it.
pub(super) fn remove_unused(locks: &Path) -> Result<()> {
    let entries = match fs::read_dir(locks) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(Error::io(format_args!("read {}", locks.display())))?,
    };
    for entry in entries.filter_map(std::result::Result::ok) {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u16>().ok());
        let Some(number) = number.filter(|number| RANGE.contains(number)) else { continue };
        // Under its lock, so that nobody takes the port by a file that is about to go.
        if let Some(port) = try_take(number, locks)? {
            let path = entry.path();
            fs::remove_file(&path).map_err(Error::io(format_args!("remove {}", path.display())))?;
            drop(port);
        }
    }
    Ok(())
}

/// Whether a path still leads to this very file.
fn is_at(file: &File, path: &Path) -> bool {
    let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    file.metadata().map(inode).is_ok_and(|held| fs::metadata(path).map(inode).is_ok_and(|now| now == held))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_not_given_again_until_it_is_dropped() {
        let locks = tempfile::tempdir().unwrap();
        let [a, b] = take(locks.path()).unwrap();
        assert_ne!(a.number, b.number);
        assert!(try_take(a.number, locks.path()).unwrap().is_none());
        let number = a.number;
        drop(a);
        assert!(try_take(number, locks.path()).unwrap().is_some());
    }

    #[test]
    fn a_port_that_something_listens_on_is_passed_over() {
        let locks = tempfile::tempdir().unwrap();
        let [port] = take(locks.path()).unwrap();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number)).unwrap();
        let number = port.number;
        drop(port);
        assert!(try_take(number, locks.path()).unwrap().is_none());
    }

    #[test]
    fn files_of_ports_that_nobody_has_go_and_the_others_stay() {
        let locks = tempfile::tempdir().unwrap();
        let [ended, running, listening] = take(locks.path()).unwrap();
        let file = |port: &Port| locks.path().join(port.number.to_string());
        let [gone, kept, used] = [file(&ended), file(&running), file(&listening)];
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, listening.number)).unwrap();
        drop((ended, listening));
        remove_unused(locks.path()).unwrap();
        assert!(!gone.exists() && kept.exists() && used.exists());
    }

    #[test]
    fn every_port_of_the_range_is_tried_once() {
        let mut all: Vec<u16> = order(12_345).collect();
        assert_eq!(all.len(), RANGE.len());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), RANGE.len());
    }
}
