//! The processes in containers, seen from the machine that the nodes are on.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use rustix::process::{Pid, Signal, kill_process};

use super::wait;

/// Sends a signal to a pod's agent or to the app in one of its containers, and gives the process's id.
///
/// # Panics
/// Where there is no such process.
pub fn signal(pod: &Pod, container: &str, signal: Signal) -> u32 {
    let pid = wait(&format!("{container} does not run"), || find(pod, container));
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
    pid
}

/// The process of a container: the agent knows its pod's UID by the environment, an app has it in the name of its file.
#[must_use]
pub fn find(pod: &Pod, container: &str) -> Option<u32> {
    let uid = pod.metadata.uid.as_deref().unwrap();
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|pid: &u32| {
        let read = |what: &str| {
            let bytes = fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (command, environment) = (read("cmdline"), read("environ"));
        let has = |text: &str, word: &str| text.split('\0').any(|found| found == word);
        if container == "cosid-agent" {
            let program = command.split('\0').next();
            return program == Some("/cosid-agent") && has(&environment, &format!("POD_UID={uid}"));
        }
        command.split('\0').any(|word| word.ends_with(&format!(".{uid}.{container}")))
    })
}
