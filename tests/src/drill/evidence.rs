//! Reads a drill's directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::history::Change;
use super::plan::Plan;
use super::runs::{self, Run};

/// What a drill left.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// What it did.
    pub plan: Plan,
    /// The store's history, in order.
    pub history: Vec<Change>,
    /// The runs of each life, in the order in which they were written.
    pub lives: BTreeMap<String, Vec<Run>>,
}

/// Why it can't be read.
#[derive(Debug, Error)]
pub enum Error {
    /// A file can't be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what a drill writes.
    #[error("{path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// There is a file of IDs that the plan knows nothing of, or none that it tells of.
    #[error("drill.json and the .runs files do not go together: {0}")]
    Lives(String),
}

impl Evidence {
    /// Reads all of it. Blocks.
    ///
    /// # Errors
    /// [`enum@Error`], naming the file.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let file = |name: &str| {
            let path = dir.join(name);
            let content = fs::read(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
            Ok::<_, Error>((path, content))
        };
        let (path, text) = file("drill.json")?;
        let plan: Plan = serde_json::from_slice(&text).map_err(|source| Error::Json { path, source })?;
        let (path, text) = file("store.jsonl")?;
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let history = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
        let history = history.map_err(|source| Error::Json { path, source })?;
        let mut lives = BTreeMap::new();
        let entries = fs::read_dir(dir).map_err(|source| Error::Io { path: dir.into(), source })?;
        for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            if path.extension().is_some_and(|extension| extension == "runs") {
                let content = fs::read(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                lives.insert(name, runs::read(&content).collect());
            }
        }
        if !lives.keys().eq(plan.lives.keys()) {
            let (files, told) = (lives.keys().collect::<Vec<_>>(), plan.lives.keys().collect::<Vec<_>>());
            return Err(Error::Lives(format!("{files:?} and {told:?}")));
        }
        Ok(Self { plan, history, lives })
    }
}
