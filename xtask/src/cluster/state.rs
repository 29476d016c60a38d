//! What a cluster's directory says about it: `state.json`, written anew at each change, so that a later run can end
//! what an earlier one left, however that one ended.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

use super::fleet;
use super::process::{Daemon, ProcessId};

/// A cluster as its directory describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct State {
    /// The boot that its processes belong to: their ids mean nothing after the next one.
    pub boot: String,
    /// The program that it ends with; none when it was started by `cargo xtask cluster up`.
    pub owner: Option<ProcessId>,
    /// Whether the API server has been ready.
    pub ready: bool,
    /// The version of Kubernetes, such as `v1.37.2`.
    pub kubernetes: String,
    /// Where the API server listens.
    pub server: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The `kubectl` of the same version.
    pub kubectl: PathBuf,
    /// How many nodes it has.
    pub nodes: u8,
    /// How the names of its nodes' cgroups begin.
    pub cgroups: String,
    /// What was started.
    pub processes: Vec<ProcessState>,
}

/// One started process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessState {
    /// Its name, such as `kube-apiserver` or `node1-kubelet`.
    pub name: String,
    /// The version of Kubernetes or etcd; empty for what is neither.
    pub version: String,
    /// The port of 127.0.0.1 that clients use, if there is one.
    pub port: Option<u16>,
    /// The process.
    pub id: ProcessId,
}

impl State {
    /// Whether all that was started still runs, and was ready.
    pub(super) fn is_up(&self) -> bool {
        self.ready && self.is_of_this_boot() && self.processes.iter().all(|process| process.id.is_running())
    }

    /// Whether this process is one of the cluster's and runs.
    pub(super) fn runs(&self, process: &ProcessState) -> bool {
        self.is_of_this_boot() && process.id.is_running()
    }

    fn is_of_this_boot(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot)
    }

    fn is_orphan(&self) -> bool {
        !self.is_of_this_boot() || self.owner.is_some_and(|owner| !owner.is_running())
    }
}

/// The state of a cluster while it is being changed: written down at each change.
#[derive(Debug)]
pub(super) struct Ledger {
    dir: PathBuf,
    state: State,
}

impl Ledger {
    /// Begins it, before anything is started: whatever happens from here on can be cleaned up by a later run.
    pub(super) fn begin(dir: &Path, state: State) -> Result<Self> {
        write(dir, &state)?;
        Ok(Self { dir: dir.to_owned(), state })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// A daemon has been started, for the first time or again.
    pub(super) fn started(&mut self, daemon: &Daemon, version: &str, port: Option<u16>) -> Result<()> {
        let Some(id) = daemon.id() else { return Ok(()) };
        self.state.processes.retain(|process| process.name != daemon.name);
        let process = ProcessState { name: daemon.name.clone(), version: version.into(), port, id };
        self.state.processes.push(process);
        write(&self.dir, &self.state)
    }

    /// The API server has been ready.
    pub(super) fn ready(&mut self) -> Result<()> {
        self.state.ready = true;
        write(&self.dir, &self.state)
    }
}

/// The id of this boot.
pub(super) fn boot() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    fs::read_to_string(path).map(|id| id.trim().to_owned()).map_err(Error::io(format_args!("read {path}")))
}

fn file(dir: &Path) -> PathBuf {
    dir.join("state.json")
}

/// Reads the state; `None` when the directory has none or does not exist.
pub(super) fn read(dir: &Path) -> Result<Option<State>> {
    let path = file(dir);
    match fs::read(&path) {
        Ok(bytes) => parse(&bytes).map(Some).map_err(|why| Error::State { path, why }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format_args!("read {}", path.display()))(error)),
    }
}

fn parse(bytes: &[u8]) -> std::result::Result<State, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        format!("not a cluster's state as this version writes it ({error}); end its processes and remove the directory")
    })
}

/// Writes the state whole or not at all.
pub(super) fn write(dir: &Path, state: &State) -> Result<()> {
    let path = file(dir);
    let new = path.with_extension("new");
    let bytes = serde_json::to_vec_pretty(state).map_err(io::Error::from);
    bytes
        .and_then(|bytes| fs::write(&new, bytes))
        .and_then(|()| fs::rename(&new, &path))
        .map_err(Error::io(format_args!("write {}", path.display())))
}

/// Ends the processes of a cluster that still run, the last started first, and removes its directory. Returns the
/// names of those it ended. Where one can't be ended the others are all the same; the directory stays then, since it is
/// all that is known of that one.
pub(super) fn remove(dir: &Path, state: &State) -> Result<Vec<String>> {
    let (mut ended, mut left) = (Vec::new(), Vec::new());
    for process in state.processes.iter().rev().filter(|process| state.runs(process)) {
        match process.id.end() {
            Ok(true) => ended.push(process.name.clone()),
            Ok(false) => {}
            Err(error) => left.push(format!("{} (pid {}): {error}", process.name, process.id.pid)),
        }
    }
    if !left.is_empty() {
        return Err(Error::State { path: dir.to_owned(), why: still_running(&left, &ended) });
    }
    if state.nodes > 0 && state.is_of_this_boot() {
        fleet::remove_cgroups(&state.cgroups)?;
    }
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::io(format_args!("remove {}", dir.display()))(error))
        }
        _ => Ok(ended),
    }
}

fn still_running(left: &[String], ended: &[String]) -> String {
    let also = if ended.is_empty() { String::new() } else { format!("; ended {}", ended.join(", ")) };
    format!(
        "can't end {}{also}. The directory stays: run `cargo xtask cluster down` again, as the user who started it",
        left.join(", ")
    )
}

/// Removes the clusters in `parent` whose owner died without doing so.
pub(super) fn remove_orphans(parent: &Path) -> Result<()> {
    let entries = fs::read_dir(parent).map_err(Error::io(format_args!("read {}", parent.display())))?;
    for dir in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        // One without a state is just being made, or just being removed by its owner.
        if let Ok(Some(state)) = read(&dir)
            && state.is_orphan()
        {
            remove(&dir, &state)?;
        }
    }
    Ok(())
}

/// Makes the directory if need be and waits until no other process has it locked. The lock goes with the file.
pub(super) fn lock(dir: &Path) -> Result<File> {
    let doing = || format!("lock {}", dir.display());
    loop {
        fs::create_dir_all(dir).map_err(Error::io(doing()))?;
        let held = match File::open(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened.map_err(Error::io(doing()))?,
        };
        held.lock().map_err(Error::io(doing()))?;
        // Whoever held it before may have removed the directory: then this is a lock on nothing.
        let inode = held.metadata().map_err(Error::io(doing()))?.ino();
        if fs::metadata(dir).is_ok_and(|now| now.ino() == inode) {
            return Ok(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let id = ProcessId { pid: u32::MAX, started: 1 };
        State {
            boot: boot().unwrap(),
            owner: Some(id),
            ready: true,
            kubernetes: "v1.37.2".into(),
            server: "https://127.0.0.1:20001".into(),
            kubeconfig: "/run/admin.kubeconfig".into(),
            kubectl: "/bin/kubectl".into(),
            nodes: 0,
            cgroups: "cosid-20001".into(),
            processes: vec![ProcessState {
                name: "etcd".into(),
                version: "v3.7.0".into(),
                port: Some(20_000),
                id,
            }],
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        write(dir.path(), &state()).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(state()));
    }

    #[test]
    fn a_state_of_another_form_is_refused_by_name_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(file(dir.path()), r#"{"boot": "x", "pid": 1}"#).unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("state.json") && error.contains("remove the directory"), "{error}");
        assert!(file(dir.path()).exists());
    }

    #[test]
    fn processes_of_another_boot_do_not_run_whatever_their_ids() {
        let id = ProcessId::of(std::process::id()).unwrap();
        let mut state = state();
        state.processes[0].id = id;
        assert!(state.is_up());
        state.boot = "another".into();
        assert!(!state.is_up());
        assert!(!state.runs(&state.processes[0]));
    }

    #[test]
    fn what_can_not_be_ended_is_named_with_what_was_and_with_the_next_step() {
        let why = still_running(&["etcd (pid 7): not permitted".to_owned()], &["kube-apiserver".to_owned()]);
        assert!(why.starts_with("can't end etcd (pid 7): not permitted; ended kube-apiserver."), "{why}");
        assert!(why.contains("cluster down"), "{why}");
    }

    #[test]
    fn a_cluster_goes_when_its_owner_has_gone_and_stays_while_it_lives() {
        let parent = tempfile::tempdir().unwrap();
        let (dead, live, new) =
            (parent.path().join("dead"), parent.path().join("live"), parent.path().join("new"));
        for dir in [&dead, &live, &new] {
            fs::create_dir(dir).unwrap();
        }
        write(&dead, &state()).unwrap();
        write(&live, &State { owner: ProcessId::of(std::process::id()), ..state() }).unwrap();
        remove_orphans(parent.path()).unwrap();
        assert!(!dead.exists() && live.exists() && new.exists());
    }
}
