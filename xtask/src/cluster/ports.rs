//! Free ports that stay ours while a server is down between two starts.

use std::fs::{self, File, TryLockError};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process;

use crate::{Error, Result};

/// Below the range that the kernel gives to outgoing connections: there, while an API server is down, a client that
/// tries to reach it could be given the very port as its own, and would be connected to itself.
/// No wider than needed: each port that was ever used leaves an empty file.
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
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok();
    Ok(free.then_some(Port { number, _held: held }))
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
    fn every_port_of_the_range_is_tried_once() {
        let mut all: Vec<u16> = order(12_345).collect();
        assert_eq!(all.len(), RANGE.len());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), RANGE.len());
    }
}
