//! Files of IDs, and how many of them are equal.

use std::fs;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a file of IDs can't be read.
#[derive(Debug, Error)]
pub enum Error {
    /// Reading it failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It ends within an ID.
    #[error("{path} ends within an ID: {length} bytes are no multiple of 8")]
    Torn {
        /// The file.
        path: PathBuf,
        /// Its length, bytes.
        length: usize,
    },
}

/// How many IDs there are, and how many of them are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// All of them.
    pub ids: usize,
    /// Those that equal another that was counted before.
    pub equal: usize,
    /// One that occurs more than once.
    pub example: Option<u64>,
}

/// All IDs of some files. Blocks.
///
/// # Errors
/// [`enum@Error`], naming the file.
pub fn read(files: &[PathBuf]) -> Result<Vec<u64>, Error> {
    let mut ids = Vec::new();
    for path in files {
        let bytes = fs::read(path).map_err(|source| Error::Io { path: path.clone(), source })?;
        let (chunks, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(Error::Torn { path: path.clone(), length: bytes.len() });
        }
        ids.extend(chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)));
    }
    Ok(ids)
}

/// Counts those that are equal.
#[must_use]
pub fn count(mut ids: Vec<u64>) -> Count {
    ids.sort_unstable();
    let twice = || ids.windows(2).filter(|pair| pair[0] == pair[1]);
    Count { ids: ids.len(), equal: twice().count(), example: twice().next().map(|pair| pair[0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ids_are_counted_wherever_they_stand() {
        assert_eq!(count(vec![3, 1, 2]), Count { ids: 3, equal: 0, example: None });
        assert_eq!(count(vec![3, 1, 3, 2, 3, 1]), Count { ids: 6, equal: 3, example: Some(1) });
        assert_eq!(count(vec![]), Count { ids: 0, equal: 0, example: None });
    }
}
