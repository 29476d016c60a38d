//! Those in other languages: programs that make as many IDs as they are told to, and say how long that took.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::measure::Subject;

pub const COSID: &str = "CosId (Java)";
pub const BWMARRIN: &str = "bwmarrin/snowflake (Go)";

/// How to start each that is there.
#[derive(Default)]
pub struct Programs {
    commands: Vec<(&'static str, Vec<String>)>,
}

impl Programs {
    pub fn add(&mut self, name: &'static str, command: &[&str]) {
        self.commands.push((name, command.iter().map(|&word| word.to_owned()).collect()));
    }

    pub fn has(&self, name: &str) -> bool {
        self.commands.iter().any(|command| command.0 == name)
    }

    /// Started and warm, to be measured in turns with everybody else.
    pub fn subjects(&self, count: u64) -> Result<Vec<Subject<'static>>, Box<dyn Error>> {
        let start = |(name, command): &(&'static str, Vec<String>)| {
            let mut program = Program::start(command).map_err(|error| format!("{name}: {error}"))?;
            // A program that has ended must not look fast.
            let turn = Box::new(move |count| program.turn(count).unwrap_or(Duration::MAX));
            Ok(Subject { name, count, rest: Duration::ZERO, turn })
        };
        self.commands.iter().map(start).collect()
    }
}

struct Program {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Program {
    /// Waits until it is warm and says so.
    fn start(command: &[String]) -> Result<Self, Box<dyn Error>> {
        let (program, arguments) = command.split_first().ok_or("no program")?;
        let mut child =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().ok_or("no pipe")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut program = Self { child, orders, answers };
        match program.line()?.as_str() {
            "ready" => Ok(program),
            other => Err(format!("it said `{other}` instead of `ready`").into()),
        }
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn turn(&mut self, count: u64) -> Result<Duration, Box<dyn Error>> {
        writeln!(self.orders, "{count}")?;
        Ok(Duration::from_nanos(self.line()?.parse()?))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
