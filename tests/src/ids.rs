//! Files of IDs, and how many of them are equal.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

/// Writes all files of a directory, as [`undump`] reads them: the lengths of name and content, and both. There is none
/// where the directory is not there. Blocks.
///
/// # Errors
/// [`enum@Error`], naming the file.
pub fn dump(dir: &Path, to: &mut impl Write) -> Result<(), Error> {
    let doing = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { path, source }
    };
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(doing(dir))?,
    };
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(&path).map_err(doing(&path))?;
        // Of a file that is being written there may be half an ID.
        let whole = &bytes[..bytes.len() / 8 * 8];
        for part in
            [&[name.len() as u64, whole.len() as u64].map(u64::to_le_bytes).concat(), name.as_bytes(), whole]
        {
            to.write_all(part).map_err(doing(&path))?;
        }
    }
    Ok(())
}

/// The files of a dump: names, and the IDs in them.
///
/// # Errors
/// [`Error::Torn`] where it is cut off.
pub fn undump(dump: &[u8]) -> Result<Vec<(String, Vec<u64>)>, Error> {
    let torn = || Error::Torn { path: "a dump".into(), length: dump.len() };
    let mut rest = dump;
    let mut take = |length: u64| -> Result<&[u8], Error> {
        let length = usize::try_from(length).map_err(|_| torn())?;
        let (taken, left) = rest.split_at_checked(length).ok_or_else(torn)?;
        rest = left;
        Ok(taken)
    };
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| torn());
    let mut files = Vec::new();
    while let Ok(length) = take(8) {
        let (name_length, length) = (number(length)?, number(take(8)?)?);
        let name = String::from_utf8_lossy(take(name_length)?).into_owned();
        let (chunks, _) = take(length)?.as_chunks::<8>();
        files.push((name, chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()));
    }
    Ok(files)
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

    #[test]
    fn a_dump_is_read_as_it_was_written_and_a_torn_one_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.ids"), [1_u64, 2].map(u64::to_le_bytes).concat()).unwrap();
        let mut text = Vec::new();
        dump(dir.path(), &mut text).unwrap();
        assert_eq!(undump(&text).unwrap(), [("a.ids".to_owned(), vec![1, 2])]);
        assert!(undump(&text[..text.len() - 1]).is_err());
        let mut none = Vec::new();
        dump(&dir.path().join("not-there"), &mut none).unwrap();
        assert_eq!(undump(&none).unwrap(), []);
    }
}
