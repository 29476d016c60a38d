//! An agent as a process, and what it says.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cosid_client::{Client, Held};
use serde_json::Value;
use xtask::programs::{self, Program, until};

use crate::http::{self, Answer, PATIENCE};

/// What an agent is started with. The environment has nothing else.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    args: Vec<OsString>,
    env: Vec<(String, OsString)>,
    /// The program, if it is not the one that was built.
    program: Option<PathBuf>,
    /// A command that runs it, with its arguments.
    by: Vec<OsString>,
}

impl Launch {
    /// With these arguments.
    #[must_use]
    pub fn new(args: &[&str]) -> Self {
        Self { args: args.iter().map(OsString::from).collect(), ..Self::default() }
    }

    /// With more arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(OsString::from));
        self
    }

    /// With an option whose value is a path.
    #[must_use]
    pub fn path(mut self, option: &str, path: &Path) -> Self {
        self.args.extend([option.into(), path.into()]);
        self
    }

    /// With a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// With another program than the one that was built.
    #[must_use]
    pub fn program(mut self, path: &Path) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Run by a command that becomes it, as `ip netns exec NAME` does.
    #[must_use]
    pub fn by(mut self, words: &[&str]) -> Self {
        self.by = words.iter().map(OsString::from).collect();
        self
    }

    /// The command, to run it by hand.
    #[must_use]
    pub fn command(&self) -> Command {
        let program = self.program.clone().unwrap_or_else(|| programs::path("cosid-agent").unwrap());
        let mut words = self.by.iter().cloned().chain([program.into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        // Nothing of whoever runs the tests: no kubeconfig, no socket.
        command.env_clear().envs(self.env.iter().cloned()).args(&self.args);
        command
    }

    /// Starts an agent that serves `dir`. Its log is `dir.log`.
    #[must_use]
    pub fn start(self, dir: &Path) -> Agent {
        let socket = dir.join("agent.sock");
        let launch = self.path("--socket", &socket);
        let program = run(&launch, dir);
        Agent { launch, dir: dir.into(), socket, program }
    }
}

/// A process that serves a directory.
#[derive(Debug)]
pub struct Agent {
    launch: Launch,
    dir: PathBuf,
    /// Where it serves.
    pub socket: PathBuf,
    /// Its process.
    pub program: Program,
}

impl Agent {
    /// Kills it with SIGKILL and starts it again, with the same command line.
    pub fn kill_and_restart(&mut self) {
        self.program.kill().unwrap();
        self.program = run(&self.launch, &self.dir);
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Everything it logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.program.log()
    }

    /// Waits until its log has this in it.
    pub fn wait_for_log(&self, text: &str) {
        let what = || format!("the log has no {text:?}:\n{}", self.log());
        until(what, PATIENCE, || Ok(self.log().contains(text).then_some(()))).unwrap();
    }

    /// Asks it.
    #[must_use]
    pub fn ask(&self, method: &str, path: &str) -> Answer {
        http::ask(&self.socket, method, path)
    }

    /// What `GET /v1/lease` says; null while nobody listens.
    #[must_use]
    pub fn lease(&self) -> Value {
        if std::os::unix::net::UnixStream::connect(&self.socket).is_err() {
            return Value::Null;
        }
        self.ask("GET", "/v1/lease").json()
    }

    /// Waits until `GET /v1/lease` is as wanted, and gives it.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let told = || format!("{what}: {}\n{}", self.lease(), self.log());
        until(told, PATIENCE, || Ok(Some(self.lease()).filter(&wanted))).unwrap()
    }

    /// Waits for a state, with a message that has this in it.
    pub fn wait_for_state(&self, state: &str, message: &str) -> Value {
        self.wait_for(&format!("not {state} with {message:?}"), |lease| {
            lease["state"] == state && lease["message"].as_str().is_some_and(|said| said.contains(message))
        })
    }

    /// Waits until it holds a slot.
    pub fn wait_held(&self) -> Held {
        self.wait_held_if(|_| true)
    }

    /// Waits until it holds the slot that is wanted.
    pub fn wait_held_if(&self, wanted: impl Fn(&Held) -> bool) -> Held {
        let lease = self.wait_for("holds no such slot", |lease| {
            lease["state"] == "held" && serde_json::from_value(lease.clone()).is_ok_and(|held| wanted(&held))
        });
        serde_json::from_value(lease).unwrap()
    }

    /// Waits until the lease has been renewed after this was called, and gives the new expiry.
    pub fn wait_renewed(&self) -> u64 {
        let before = self.counted("lease_events_total{event=\"Renewed\"}");
        let renewed = || Ok((self.counted("lease_events_total{event=\"Renewed\"}") > before).then_some(()));
        until(|| format!("no renewal:\n{}", self.log()), PATIENCE, renewed).unwrap();
        self.lease()["expiresAt"].as_u64().unwrap_or_default()
    }

    /// One of its metrics; 0 where there is none of that name.
    #[must_use]
    pub fn counted(&self, name: &str) -> u64 {
        let text = self.ask("GET", "/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix("cosid_agent_")?.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    }

    /// A program's way to it.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect_to(&self.socket).unwrap()
    }

    /// Ends it with SIGTERM, and checks that it does so in order and within 2 s.
    pub fn terminate(&mut self) {
        let ended = self.program.terminate(Duration::from_secs(2));
        let ended = ended.unwrap_or_else(|error| fail(&format!("{error}:\n{}", self.log())));
        assert_eq!(ended.code(), Some(0), "{}", self.log());
    }
}

fn run(launch: &Launch, dir: &Path) -> Program {
    let name = dir.file_name().unwrap().to_str().unwrap();
    Program::start(name, launch.command(), dir.parent().unwrap()).unwrap()
}

#[allow(clippy::panic, reason = "this is how a test fails")]
fn fail(why: &str) -> ! {
    panic!("{why}")
}
