//! Whether a client of the agent's socket, or of its page, keeps to `docs/socket.md`: the program is run beside an agent
//! that is none, which refuses, breaks off, talks nonsense and loses its slot at the worst moments.
//!
//! A program that can be checked is called with three more arguments, `GENERATOR WORKERS COUNT`, and the agent's socket in
//! `COSID_SOCKET`. It makes at least `COUNT` IDs in each of so many threads, tasks or processes, prints them one a line, and
//! exits with 0; where it can't it says why on standard error and exits with something else.

mod agent;
mod cases;
mod http;
mod judge;
mod listener;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use serde::Serialize;

use crate::programs::Program;
use crate::{Error, Result};
use agent::{Agent, Seen};
use cases::Case;

/// How long a client may take for a case: its own start, and giving up.
const PATIENCE: Duration = Duration::from_secs(60);
const GENERATOR: &str = "orders";

/// A client to check.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The program and its first arguments.
    pub command: Vec<OsString>,
    /// What its environment has besides that of whoever checks.
    pub environment: Vec<(OsString, OsString)>,
}

/// What came of one case.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Its name.
    pub check: &'static str,
    /// What a client has to do.
    pub rule: &'static str,
    /// Whether it does.
    pub passed: bool,
    /// What it did instead; empty if it passed.
    pub why: String,
}

/// How a client's run ended.
struct Run {
    /// `None` where it did not end by itself.
    status: Option<ExitStatus>,
    output: String,
    log: String,
    seen: Seen,
}

/// Runs all cases, one after the other; `tell` is called after each. Takes some 20 s, most of them the client's own timeouts.
///
/// # Errors
/// [`Error::Setup`] where the program can't be started; [`Error::Io`]. A client that fails a case is none.
pub fn run(subject: &Subject, mut tell: impl FnMut(&Row)) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut odd = Vec::new();
    for case in cases::all() {
        let run = run_case(subject, &case)?;
        odd.extend(run.seen.odd.iter().map(|request| format!("{}: {request}", case.name)));
        let why = judge::judge(&case, &run).err();
        let row =
            Row { check: case.name, rule: case.rule, passed: why.is_none(), why: why.unwrap_or_default() };
        tell(&row);
        rows.push(row);
    }
    odd.dedup();
    let row = Row {
        check: "requests",
        rule: "asks only what the document has, in all cases above",
        passed: odd.is_empty(),
        why: odd.join("; "),
    };
    tell(&row);
    rows.push(row);
    Ok(rows)
}

fn run_case(subject: &Subject, case: &Case) -> Result<Run> {
    let dir = tempfile::Builder::new().prefix("cosid-check-").tempdir();
    let dir = dir.map_err(Error::io("make a directory"))?;
    let agent = Agent::start(dir.path(), case)?;
    let mut program = start(subject, dir.path(), case)?;
    let status = match program.wait(PATIENCE) {
        Ok(status) => Some(status),
        Err(Error::TooLate { .. }) => None,
        Err(error) => return Err(error),
    };
    program.kill()?;
    let (output, log) = (program.output(), program.log());
    Ok(Run { status, output, log, seen: agent.end() })
}

fn start(subject: &Subject, dir: &Path, case: &Case) -> Result<Program> {
    let Some((program, arguments)) = subject.command.split_first() else {
        return Err(Error::Setup("no command to check: give it after `--`".into()));
    };
    let mut command = Command::new(program);
    command.args(arguments).args([GENERATOR, &case.workers.to_string(), &case.count.to_string()]);
    command.envs(subject.environment.iter().map(|(name, value)| (name, value)));
    command.env("COSID_SOCKET", agent::socket(dir));
    Program::start("client", command, dir).map_err(|error| match error {
        Error::Io { source, .. } => Error::Setup(format!("can't start {}: {source}", program.display())),
        error => error,
    })
}
