//! fork(2), for a process of one thread.
#![allow(unsafe_code, reason = "there is no other way to fork: the standard library has none")]

use std::fs;
use std::io;

use rustix::process::Pid;

/// Which side of a fork this is.
pub(crate) enum Side {
    /// The parent, with its new child.
    Parent(Pid),
    /// The child.
    Child,
}

/// Forks this process.
///
/// # Errors
/// Where the process has more threads than this one (a child has only the one that forked: locks that others hold
/// would stay locked in it for ever), and what fork(2) says.
pub(crate) fn fork() -> io::Result<Side> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("a process of {threads} threads must not fork")));
    }
    // SAFETY: this is the process's only thread, as was just seen, and only it could have started another since. So the
    // child is a whole copy: no lock is held by a thread that it does not have, and it may do whatever the parent may.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => Pid::from_raw(pid).map(Side::Parent).ok_or_else(|| io::Error::other("fork gave no child")),
    }
}
