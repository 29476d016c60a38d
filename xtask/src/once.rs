//! What is built once and kept in the cache. What is there is complete: it is built beside its place, under a lock, and
//! moves there at its end.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use ring::digest;

use crate::progress::step;
use crate::{Error, Result};

/// A name for what these parts decide; no two lists of parts run together into the same text.
#[must_use]
pub fn key(parts: &[&str]) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finish().as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes the directory `place` by `build`, which gets an empty directory to fill; nothing to do where it is there
/// already. One process builds at a time, others wait for it. Blocks.
///
/// # Errors
/// [`Error::Io`], or the build's own.
pub fn once(place: &Path, build: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if place.exists() {
        return Ok(());
    }
    let doing = || format!("build {}", place.display());
    fs::create_dir_all(place.parent().unwrap_or(place)).map_err(Error::io(doing()))?;
    let lock = File::create(place.with_extension("lock")).map_err(Error::io(doing()))?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => step("wait for another process that builds it", |_| lock.lock()),
        Err(TryLockError::Error(error)) => Err(error),
        Ok(()) => Ok(()),
    }
    .map_err(Error::io(doing()))?;
    if place.exists() {
        return Ok(());
    }
    let new = place.with_extension("building");
    // The lock is ours, so what is there is left from a build that was broken off.
    match fs::remove_dir_all(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io(doing())(error)),
        _ => fs::create_dir(&new).map_err(Error::io(doing()))?,
    }
    build(&new)?;
    fs::rename(new, place).map_err(Error::io(doing()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_depends_on_every_part_and_on_where_one_ends() {
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
        assert_ne!(key(&["a", "b"]), key(&["ab", ""]));
        assert_ne!(key(&["a", "b"]), key(&["a", "c"]));
        assert_eq!(key(&["a"]).len(), 16);
    }

    #[test]
    fn what_failed_half_way_is_not_there_and_is_built_anew() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("made");
        let wrong = || Error::Wrong("no luck".into());
        let write = |new: &Path| fs::write(new.join("half"), "x").map_err(Error::io("write"));
        assert!(once(&place, |new| write(new).and(Err(wrong()))).is_err());
        assert!(!place.exists());
        once(&place, |new| {
            assert!(!new.join("half").exists());
            write(new)
        })
        .unwrap();
        once(&place, |_| Err(wrong())).unwrap();
        assert!(place.join("half").exists());
    }
}
