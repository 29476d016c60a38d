//! Processes: started so that they end with their owner where that is wanted, and known by pid *and* start time, so
//! that a signal never reaches another process that got the same pid later.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// How long a killed process may take to go.
const END_SECONDS: i64 = 10;

/// A process of this boot: its pid, and when it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process id.
    pub pid: u32,
    /// When it was started, in clock ticks since boot.
    pub started: u64,
}

impl ProcessId {
    /// The live process that has this pid now; `None` when there is none, or only the remains of an ended one.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        parse_stat(&stat).map(|started| Self { pid, started })
    }

    /// Whether it runs (or is stopped), and is the process that it was.
    #[must_use]
    pub fn is_running(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }

    /// Sends a signal; `false` when the process has ended.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let Some(process) = self.open()? else { return Ok(false) };
        match pidfd_send_signal(&process, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills it and returns when it has gone; `false` when it had before.
    pub(super) fn end(&self) -> io::Result<bool> {
        let Some(process) = self.open()? else { return Ok(false) };
        if !self.signal(Signal::KILL)? {
            return Ok(false);
        }
        let timeout = Timespec { tv_sec: END_SECONDS, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout))? {
            0 => Err(io::Error::new(io::ErrorKind::TimedOut, format!("pid {} outlived SIGKILL", self.pid))),
            _ => Ok(true),
        }
    }

    /// A handle that stays with this very process. The identity is checked after it was taken: a pid that was used
    /// again before shows by its start time, and one that is used again later no longer matters.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => Ok(self.is_running().then_some(process)),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The start time out of `/proc/PID/stat`; `None` for a zombie, or for text of another form.
fn parse_stat(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything, parentheses and spaces too; after the last one there are only fields.
    let mut fields = stat.rsplit_once(") ")?.1.split_ascii_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then_some(())?;
    fields.nth(18)?.parse().ok()
}

/// What a process's life depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// It is killed when the program that started it ends, in whatever way.
    Owner,
    /// It goes on.
    Detached,
}

/// Where a daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On this machine.
    Here,
    /// In the network namespace of that process.
    Network(ProcessId),
    /// In all namespaces of the node whose PID 1 that process is.
    Node(ProcessId),
}

impl Place {
    /// What goes before a command so that it runs there.
    pub(super) fn prefix(self) -> Vec<String> {
        match self {
            Self::Here => Vec::new(),
            Self::Network(process) => {
                vec!["nsenter".into(), format!("--net=/proc/{}/ns/net", process.pid), "--".into()]
            }
            Self::Node(init) => {
                let target = format!("--target={}", init.pid);
                ["nsenter", &target, "--mount", "--net", "--pid", "--uts", "--"].map(String::from).into()
            }
        }
    }

    /// A command that runs there.
    pub(super) fn command(self, program: &Path) -> Command {
        let mut words = self.prefix().into_iter();
        let Some(first) = words.next() else { return Command::new(program) };
        let mut command = Command::new(first);
        command.args(words).arg(program);
        command
    }
}

/// A part of the cluster: what it is started with, and its process while it runs.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) name: String,
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    lifetime: Lifetime,
    /// What it starts is not the program itself but the program's parent.
    forks: bool,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    id: ProcessId,
    /// The process itself, or its parent in another pid namespace, which ends with it.
    child: Child,
}

impl Daemon {
    /// A program of the directory `bin` by this name.
    pub(super) fn new(name: &str, bin: &Path, args: Vec<String>, dir: &Path, lifetime: Lifetime) -> Self {
        Self::of(name, &bin.join(name), args, dir, lifetime)
    }

    /// A program under a name of its own.
    pub(super) fn of(name: &str, program: &Path, args: Vec<String>, dir: &Path, lifetime: Lifetime) -> Self {
        let log = dir.join(format!("{name}.log"));
        Self { name: name.into(), program: program.into(), args, log, lifetime, forks: false, running: None }
    }

    /// The program starts a child, and that is the daemon.
    pub(super) fn forking(mut self) -> Self {
        self.forks = true;
        self
    }

    /// Starts it, its output appended to its log. One that runs is left alone.
    pub(super) fn start(&mut self, place: Place) -> Result<()> {
        if self.has_ended().is_none() && self.running.is_some() {
            return Ok(());
        }
        let starting = || format!("start {}", self.program.display());
        let log =
            OpenOptions::new().create(true).append(true).open(&self.log).map_err(Error::io(starting()))?;
        let mut command = self.command(place);
        command.stdin(Stdio::null()).stderr(log.try_clone().map_err(Error::io(starting()))?).stdout(log);
        // Its own group: the terminal's Ctrl-C must not end it before its owner has decided to.
        command.process_group(0);
        let mut child = spawn(command).map_err(Error::io(starting()))?;
        let forks = self.forks || matches!(place, Place::Node(_));
        let id = if forks { only_child(&mut child) } else { ProcessId::of(child.id()) };
        if let Some(id) = id {
            self.running = Some(Running { id, child });
            return Ok(());
        }
        let status = child.wait().map_err(Error::io(starting()))?;
        Err(self.failure(format!("ended at once ({status})")))
    }

    fn command(&self, place: Place) -> Command {
        let mut command = match self.lifetime {
            Lifetime::Owner if has_setpriv() => {
                let mut setpriv = Command::new("setpriv");
                setpriv.args(["--pdeathsig", "KILL", "--"]).args(place.prefix()).arg(&self.program);
                setpriv
            }
            _ => place.command(&self.program),
        };
        command.args(&self.args);
        command
    }

    pub(super) fn id(&self) -> Option<ProcessId> {
        self.running.as_ref().map(|running| running.id)
    }

    /// How it ended, if it did.
    pub(super) fn has_ended(&mut self) -> Option<String> {
        let running = self.running.as_mut()?;
        let status = running.child.try_wait().ok()??;
        self.running = None;
        Some(format!("ended by itself ({status})"))
    }

    /// Stops it, or lets it go on.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let Some(Running { id, child }) = &self.running else { return Ok(()) };
        // A parent that sees its child stopped stops too, and has to be woken as well.
        let parent = ProcessId::of(child.id()).filter(|parent| parent != id);
        let mut both = std::iter::once(*id).chain(parent);
        both.try_for_each(|process| process.signal(signal).map(drop))
            .map_err(Error::io(format_args!("signal {}", self.name)))
    }

    /// Kills it and returns when it has gone. It does not get to end in order: kube-apiserver would wait up to a
    /// minute for its open watches.
    pub(super) fn kill(&mut self) -> Result<()> {
        let Some(Running { id, mut child }) = self.running.take() else { return Ok(()) };
        id.end()
            .and_then(|_| child.kill())
            .and_then(|()| child.wait())
            .map(drop)
            .map_err(Error::io(format_args!("end {}", self.name)))
    }

    /// An error about it that shows the end of its log.
    pub(super) fn failure(&self, what: String) -> Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        Error::Daemon { name: self.name.clone(), what, tail: last_lines(&log, 15) }
    }
}

/// The process that this one has started, as soon as it has; `None` where it ends without.
fn only_child(parent: &mut Child) -> Option<ProcessId> {
    let children = format!("/proc/{0}/task/{0}/children", parent.id());
    loop {
        let first = fs::read_to_string(&children).ok().and_then(|pids| {
            pids.split_ascii_whitespace().next().and_then(|pid| pid.parse().ok()).and_then(ProcessId::of)
        });
        if first.is_some() || !matches!(parent.try_wait(), Ok(None)) {
            return first;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Starts a command on a thread that stays: the kernel sends the death signal when the *thread* that started the
/// process ends, and a test's thread ends before the program does.
fn spawn(command: Command) -> io::Result<Child> {
    type Request = (Command, Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<Sender<Request>> = LazyLock::new(|| {
        let (requests, receiver) = channel::<Request>();
        thread::spawn(move || {
            for (mut command, answer) in receiver {
                // An asker that is gone can't be told; its child then goes with this program.
                let _ = answer.send(command.spawn());
            }
        });
        requests
    });
    let (answer, child) = channel();
    let gone = || io::Error::other("the thread that starts processes has ended");
    SPAWNER.send((command, answer)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

/// Without util-linux's setpriv a killed owner leaves its processes; the next start ends them.
fn has_setpriv() -> bool {
    static FOUND: LazyLock<bool> = LazyLock::new(|| find_on_path("setpriv").is_some());
    *FOUND
}

/// Where a program is on `PATH`.
pub(crate) fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Runs a command to its end and returns its stdout.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = command_line(command);
    let output = command.stdin(Stdio::null()).output().map_err(Error::io(format_args!("run `{line}`")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(Error::Command { command: line, status: output.status.to_string(), output: last_lines(&text, 15) })
}

/// The command as a person would type it: the program by its last name.
pub(super) fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, state: &str) -> String {
        format!(
            "4711 ({name}) {state} 1 4711 4711 0 -1 4194560 11 0 0 0 1 2 0 0 20 0 9 0 987654 1000 20 184467"
        )
    }

    #[test]
    fn the_start_time_is_read_past_any_program_name() {
        assert_eq!(parse_stat(&stat("etcd", "S")), Some(987_654));
        assert_eq!(parse_stat(&stat("a) Z 1 (b", "T")), Some(987_654));
    }

    #[test]
    fn a_zombie_or_broken_stat_is_no_process() {
        assert_eq!(parse_stat(&stat("etcd", "Z")), None);
        assert_eq!(parse_stat("4711 (etcd) S 1 2"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn a_process_with_another_start_time_is_another_process_and_is_never_signalled() {
        let me = ProcessId::of(std::process::id()).unwrap();
        assert!(me.is_running());
        let earlier = ProcessId { started: me.started - 1, ..me };
        assert!(!earlier.is_running());
        assert!(!earlier.end().unwrap());
    }

    #[test]
    fn a_daemon_is_ended_and_an_unexpected_end_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let new = |args: &[&str]| {
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            Daemon::new("sh", Path::new("/bin"), args, dir.path(), Lifetime::Owner)
        };
        let mut lives = new(&["-c", "read _ < /dev/zero"]);
        lives.start(Place::Here).unwrap();
        let id = lives.id().unwrap();
        assert!(id.is_running());
        lives.kill().unwrap();
        assert!(!id.is_running());

        let mut ends = new(&["-c", "echo no luck; exit 3"]);
        // A program this short may have ended when it is looked at first: that is reported just the same.
        let error = match ends.start(Place::Here) {
            Ok(()) => loop {
                if let Some(what) = ends.has_ended() {
                    break ends.failure(what);
                }
                thread::yield_now();
            },
            Err(error) => error,
        };
        let text = error.to_string();
        assert!(text.contains("exit status: 3") && text.contains("no luck"), "{text}");
    }

    #[test]
    fn a_daemon_behind_a_parent_is_the_child_and_takes_the_parent_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let script = "read _ < /dev/zero & wait";
        let args = vec!["-c".to_owned(), script.to_owned()];
        let mut daemon = Daemon::new("sh", Path::new("/bin"), args, dir.path(), Lifetime::Owner).forking();
        daemon.start(Place::Here).unwrap();
        let parent = ProcessId::of(daemon.running.as_ref().unwrap().child.id()).unwrap();
        let id = daemon.id().unwrap();
        assert_ne!(id, parent);
        daemon.signal(Signal::STOP).unwrap();
        daemon.signal(Signal::CONT).unwrap();
        daemon.kill().unwrap();
        assert!(!id.is_running() && !parent.is_running());
    }

    #[test]
    fn the_words_before_a_command_say_where_it_runs() {
        let process = ProcessId { pid: 7, started: 1 };
        assert!(Place::Here.prefix().is_empty());
        assert_eq!(Place::Network(process).prefix(), ["nsenter", "--net=/proc/7/ns/net", "--"]);
        let node = Place::Node(process).command(Path::new("/bin/kubelet"));
        assert_eq!(command_line(&node), "nsenter --target=7 --mount --net --pid --uts -- /bin/kubelet");
    }
}
