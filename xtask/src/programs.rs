//! The project's own programs as processes that tests and the demo start, stop, kill and read.

use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cosid_client::{Client, Held, LeaseState};
use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, Result, progress};

/// How often something is looked at that can't be waited for.
const LOOK: Duration = Duration::from_millis(10);

/// cargo in the source tree, as if from a shell. The cargo that runs this program has left it variables that some build
/// scripts watch (ring's does): with them, the inner and the outer cargo would undo each other's builds.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let left = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CFG_"];
        if name.to_str().is_some_and(|name| left.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    command.current_dir(crate::paths::workspace());
    command
}

/// Builds all programs of the workspace and the C library, in the profile of this one. Blocks; shows its progress.
///
/// # Errors
/// [`Error::Command`] with cargo's last lines.
pub fn build() -> Result<()> {
    progress::step("build the programs", |_| {
        let mut command = cargo();
        command.args(["build", "--quiet", "--locked", "--workspace", "--lib", "--bins"]);
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        let status = command.status().map_err(Error::io("start cargo"))?;
        if status.success() {
            return Ok(());
        }
        let command = "cargo build --workspace --lib --bins".into();
        Err(Error::Command { command, status: status.to_string(), output: "see above".into() })
    })
}

/// The path of one of the workspace's programs, or of its C library, beside this one.
///
/// # Errors
/// [`Error::Setup`] where it has not been built.
pub fn path(name: &str) -> Result<PathBuf> {
    let me = env::current_exe().map_err(Error::io("find this program"))?;
    let beside = me.parent().unwrap_or(Path::new(".")).join(name);
    // A test is one folder deeper.
    let above = me.parent().and_then(Path::parent).unwrap_or(Path::new(".")).join(name);
    [beside, above].into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Error::Setup(format!(
            "{name} has not been built: run `cargo build --workspace --lib --bins`, or `cargo xtask test`"
        ))
    })
}

/// A process that ends with this value.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    out: PathBuf,
    log: PathBuf,
}

impl Program {
    /// Starts a program. What it writes goes to `NAME.out` and `NAME.log` in `dir`, behind what is there already.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn start(name: &str, mut command: Command, dir: &Path) -> Result<Self> {
        let (out, log) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.log")));
        let append = |path: &Path| -> Result<File> {
            File::options()
                .create(true)
                .append(true)
                .open(path)
                .map_err(Error::io(format_args!("open {}", path.display())))
        };
        // In a group of its own: a Ctrl-C ends this program, which then ends its children in order.
        command.stdin(Stdio::null()).stdout(append(&out)?).stderr(append(&log)?).process_group(0);
        let child = command.spawn().map_err(Error::io(format_args!("start {name}")))?;
        Ok(Self { name: name.into(), child, out, log })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it wrote to standard output so far.
    #[must_use]
    pub fn output(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Everything it logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal. Nothing where it has ended.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The child is waited for only here, so that its pid is not anybody else's.
        match kill_process(Pid::from_child(&self.child), signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(Error::io(format_args!("signal {}", self.name))(error.into())),
        }
    }

    /// Kills it (SIGKILL) and waits for its end.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.child.wait().map_err(Error::io(format_args!("wait for {}", self.name)))?;
        Ok(())
    }

    /// Asks it to end (SIGTERM) and waits for that, for at most `within`.
    ///
    /// # Errors
    /// [`Error::TooLate`] where it goes on.
    pub fn terminate(&mut self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(within)
    }

    /// Waits for its end, for at most `within`.
    ///
    /// # Errors
    /// [`Error::TooLate`] with its last lines.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let name = self.name.clone();
        let log = self.log.clone();
        let what = || format!("{name} did not end; its log is {}", log.display());
        until(what, within, || self.child.try_wait().map_err(Error::io("wait")))
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn has_ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(Error::io(format_args!("look at {}", self.name)))
    }

    /// Waits until its standard output has a line with `text`, for at most `within`, and gives that line.
    ///
    /// # Errors
    /// [`Error::TooLate`].
    pub fn wait_for_line(&self, text: &str, within: Duration) -> Result<String> {
        let what = || format!("{} did not say {text:?}; its log is {}", self.name, self.log.display());
        until(what, within, || Ok(self.output().lines().find(|line| line.contains(text)).map(str::to_owned)))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // At the end of a test or demo nobody is left to tell of a failure.
        let _ = self.kill();
    }
}

/// Looks until there is something, for at most `within`.
///
/// # Errors
/// [`Error::TooLate`] with `what`; the look's own error at once.
pub fn until<T>(
    what: impl FnOnce() -> String,
    within: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() > within {
            return Err(Error::TooLate { what: what(), within });
        }
        thread::sleep(LOOK);
    }
}

/// What the agent at a socket holds, if it holds anything.
#[must_use]
pub fn held(socket: &Path) -> Option<Held> {
    match Client::connect_to(socket).ok()?.lease().ok()?.state {
        LeaseState::Held(held) => Some(held),
        _ => None,
    }
}

/// Waits until the agent at a socket holds a slot.
///
/// # Errors
/// [`Error::TooLate`] with what it says instead.
pub fn wait_held(socket: &Path, within: Duration) -> Result<Held> {
    wait_held_if(socket, within, |_| true)
}

/// Waits until the agent at a socket holds a slot of which `is_it` says that it is the one.
///
/// # Errors
/// [`Error::TooLate`] with what it says instead.
pub fn wait_held_if(socket: &Path, within: Duration, is_it: impl Fn(&Held) -> bool) -> Result<Held> {
    let what = || {
        let lease = Client::connect_to(socket).and_then(|client| client.lease());
        let says = lease.map_or_else(|error| error.to_string(), |lease| lease.message);
        format!("the agent at {} holds no such slot; it says: {says}", socket.display())
    };
    until(what, within, || Ok(held(socket).filter(&is_it)))
}
