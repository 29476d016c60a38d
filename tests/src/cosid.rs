//! CosId itself, in a Java process that is asked in bulk.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops at the first surprise, and says what it leaves out"
)]

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::{env, thread};

use xtask::java;

/// What CosId answers.
pub type Answer = Result<String, Refused>;

/// CosId threw an exception of this class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// Whether CosId can be asked here. Without Java or Maven it can't, and the test is left out, which is said.
///
/// # Panics
/// Where it can't, and `COSID_TEST_JAVA=require` says that it must.
#[must_use]
pub fn is_here() -> bool {
    let Err(missing) = java::check() else { return true };
    assert!(!env::var("COSID_TEST_JAVA").is_ok_and(|value| value == "require"), "{missing}");
    eprintln!("NOT compared with CosId: {missing}");
    false
}

/// Asks all questions, and gives an answer to each. What a question looks like is in `tests/cosid-java/Ask.java`.
///
/// # Panics
/// Where the Java program fails.
#[must_use]
pub fn ask(questions: &[String]) -> Vec<Answer> {
    let mut command = java::cosid().unwrap();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let text: String = questions.iter().flat_map(|question| [question.as_str(), "\n"]).collect();
    // Written beside the reading: else both sides would wait once the pipe is full.
    let answers: Vec<Answer> = thread::scope(|scope| {
        scope.spawn(move || input.write_all(text.as_bytes()).unwrap());
        let lines = BufReader::new(output).lines().map(|line| line.unwrap());
        lines
            .map(|line| line.strip_prefix('!').map_or(Ok(line.clone()), |why| Err(Refused(why.into()))))
            .collect()
    });
    assert!(child.wait().unwrap().success());
    assert_eq!(answers.len(), questions.len(), "answers");
    answers
}
