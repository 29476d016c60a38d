//! A control plane that outlives the command that started it, known by its directory.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{Error, Result, paths};

use super::Options;
use super::control_plane::{self, ControlPlane};
use super::ports;
use super::process::{Lifetime, Place, ProcessId};
use super::state::{self, State};

/// What [`up`] found or did.
#[derive(Debug)]
pub enum Up {
    /// It was started.
    Started(State),
    /// It was up before.
    Already(State),
}

/// What runs in a directory.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// All of it runs, and the API server answers that it is ready.
    pub ready: bool,
    /// The version of Kubernetes, when there is a cluster.
    pub kubernetes: Option<String>,
    /// Where the API server listens, when there is a cluster.
    pub server: Option<String>,
    /// The administrator's kubeconfig, when there is a cluster.
    pub kubeconfig: Option<PathBuf>,
    /// What was started there; empty when nothing is up.
    pub processes: Vec<ProcessStatus>,
}

/// One process that was started.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessStatus {
    /// Its name, such as `kube-apiserver` or `node1-kubelet`.
    pub name: String,
    /// The version of Kubernetes or etcd; empty for what is neither.
    pub version: String,
    /// The port of 127.0.0.1 that clients use, if there is one.
    pub port: Option<u16>,
    /// The process.
    pub id: ProcessId,
    /// Whether it still runs.
    pub running: bool,
}

/// Starts a control plane in `dir`, or finds that it is up. What an earlier run left half-way is removed first.
/// Blocks until it is ready; two calls for one directory wait for each other.
///
/// # Errors
/// [`Error::State`] when `dir` holds anything else; otherwise as for [`super::Cluster::start`].
pub fn up(dir: &Path, nodes: u8) -> Result<Up> {
    // Looked at before anything is built or made, and again once nobody else can change it.
    if let Found::Up(state) = look(dir)? {
        return Ok(Up::Already(state));
    }
    let options = Options { nodes, ..Options::default() };
    let binaries = super::prepared(&options)?;
    let mut lock = state::lock(dir)?;
    match look(dir)? {
        Found::Up(state) => return Ok(Up::Already(state)),
        Found::Remains(state) => {
            state::remove(dir, &state)?;
            lock = state::lock(dir)?;
        }
        Found::Nothing => {}
    }
    let control_plane = ControlPlane::start(dir, &binaries, options, Lifetime::Detached)?;
    drop(lock);
    Ok(Up::Started(control_plane.state().clone()))
}

/// Ends what [`up`] started in `dir`, and nothing else, and removes the directory. Returns the names of the processes
/// that it ended, or `None` when there is no cluster.
///
/// # Errors
/// [`Error::State`] when its state can't be read, or, once all others are ended, a process can't be; [`Error::Io`] when a
/// file can't be removed.
pub fn down(dir: &Path) -> Result<Option<Vec<String>>> {
    if state::read(dir)?.is_none() {
        return Ok(None);
    }
    let _lock = state::lock(dir)?;
    match state::read(dir)? {
        Some(state) => {
            let ended = state::remove(dir, &state);
            ports::remove_unused(&paths::cache()?.join("ports"))?;
            ended.map(Some)
        }
        None => Ok(None),
    }
}

/// Gives container images (OCI archives) to all nodes of what runs in `dir`, and returns the nodes' names. Blocks.
///
/// # Errors
/// [`Error::Setup`] where no nodes run there; [`Error::Command`] with what containerd says about an archive.
pub fn load(dir: &Path, archives: &[PathBuf]) -> Result<Vec<String>> {
    let state = state::read(dir)?.filter(State::is_up);
    let Some(state) = state.filter(|state| state.nodes > 0) else {
        return Err(Error::Setup(format!(
            "no nodes run in {}: start some with `cluster up --nodes 2`",
            dir.display()
        )));
    };
    let ctr = super::build::node_binaries()?.containerd.join("ctr");
    let names: Vec<String> = (1..=state.nodes).map(|number| format!("node{number}")).collect();
    for node in state.processes.iter().filter(|process| names.contains(&process.name)) {
        for archive in archives {
            super::node::import(Place::Node(node.id), &ctr, archive)?;
        }
    }
    Ok(names)
}

/// Says what runs in `dir`. Blocks for at most some seconds, when an API server does not answer.
///
/// # Errors
/// [`Error::State`] when its state can't be read.
pub fn status(dir: &Path) -> Result<Status> {
    let Some(state) = state::read(dir)? else {
        let processes = Vec::new();
        return Ok(Status { ready: false, kubernetes: None, server: None, kubeconfig: None, processes });
    };
    let processes = state.processes.iter().map(|process| ProcessStatus {
        name: process.name.clone(),
        version: process.version.clone(),
        port: process.port,
        id: process.id,
        running: state.runs(process),
    });
    Ok(Status {
        processes: processes.collect(),
        ready: state.is_up() && control_plane::is_ready(&state),
        kubernetes: Some(state.kubernetes),
        server: Some(state.server),
        kubeconfig: Some(state.kubeconfig),
    })
}

enum Found {
    Up(State),
    Remains(State),
    Nothing,
}

/// What is in a directory; one with other files is refused, lest they be mixed with a cluster and removed with it.
fn look(dir: &Path) -> Result<Found> {
    if let Some(state) = state::read(dir)? {
        return Ok(if state.is_up() { Found::Up(state) } else { Found::Remains(state) });
    }
    let is_empty = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => return Err(Error::io(format_args!("read {}", dir.display()))(error)),
    };
    if is_empty {
        return Ok(Found::Nothing);
    }
    let why = "not empty, and holds no cluster: give an empty or new directory as --dir".to_owned();
    Err(Error::State { path: dir.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_other_files_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("thesis.txt");
        fs::write(&file, "x").unwrap();
        assert!(matches!(up(dir.path(), 0), Err(Error::State { .. })));
        assert_eq!(down(dir.path()).unwrap(), None);
        assert!(file.exists());
    }

    #[test]
    fn where_nothing_is_up_there_is_nothing_to_end_and_nothing_is_made() {
        let dir = tempfile::tempdir().unwrap().path().join("none");
        assert_eq!(down(&dir).unwrap(), None);
        assert!(!status(&dir).unwrap().ready);
        assert!(!dir.exists());
    }
}
