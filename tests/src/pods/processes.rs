//! The processes in containers.

use k8s_openapi::api::core::v1::Pod;
use rustix::process::{Pid, Signal, kill_process};
use xtask::containers;

use super::wait;

/// Sends a signal to a pod's agent or to the app in one of its containers.
///
/// # Panics
/// Where there is no such process.
pub fn signal(pod: &Pod, container: &str, signal: Signal) {
    let uid = pod.metadata.uid.as_deref().unwrap();
    let pid = wait(&format!("{container} does not run"), || containers::process(uid, container));
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}
