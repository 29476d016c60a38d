//! The examples in other languages: built once for a test program, and started beside an agent.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops at the first surprise")]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::client_check::Subject;
use xtask::languages::Language;
use xtask::programs::{self, Program};
use xtask::{go, paths};

/// An example, ready to be started.
#[derive(Clone, Debug)]
pub struct Example {
    /// Its language, and how it is linked where that differs.
    pub name: &'static str,
    command: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    /// Whether the process that starts the workers makes as many IDs as each of them.
    pub parent_makes: bool,
}

impl Example {
    fn new(name: &'static str, command: Vec<OsString>) -> Self {
        Self { name, command, environment: Vec::new(), parent_makes: false }
    }

    /// The example as a client to check.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let environment = self.environment.iter().map(|(name, value)| ((*name).into(), value.clone()));
        Subject { command: self.command.clone(), environment: environment.collect() }
    }

    /// Starts it; what it writes goes to `NAME.out` and `NAME.log` in `dir`.
    #[must_use]
    pub fn start(
        &self,
        dir: &Path,
        name: &str,
        socket: &Path,
        generator: &str,
        workers: u32,
        count: u32,
    ) -> Program {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).args([generator, &workers.to_string(), &count.to_string()]);
        // Of whoever runs the tests only where programs are, and where their homes are: version managers look there.
        command.env_clear().envs(["PATH", "HOME"].iter().filter_map(|name| Some((name, env::var_os(name)?))));
        command.envs(self.environment.iter().cloned()).env("COSID_SOCKET", socket);
        Program::start(name, command, dir).unwrap()
    }
}

/// Builds all examples into `dir`. A language that is not here is left out, which is said.
///
/// # Panics
/// Where one can't be built; where a language is missing and `COSID_TEST_LANGUAGES=require` says that it must not.
#[must_use]
pub fn build(dir: &Path) -> Vec<Example> {
    let required = env::var("COSID_TEST_LANGUAGES").is_ok_and(|value| value == "require");
    let mut examples = Vec::new();
    for language in Language::ALL {
        if let Err(missing) = language.check() {
            assert!(!required, "{language:?}: {missing}");
            eprintln!("NOT run: the example in {language:?}: {missing}");
            continue;
        }
        examples.extend(match language {
            Language::C => c(dir),
            Language::Python => vec![python()],
            Language::Go => vec![go(dir)],
            Language::Java => vec![java(dir)],
            Language::Node => vec![node()],
        });
    }
    examples
}

fn source(language: &str) -> PathBuf {
    paths::workspace().join("examples/languages").join(language)
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{said}{}", String::from_utf8_lossy(&output.stdout));
}

/// Twice: with the shared library and with the static one.
fn c(dir: &Path) -> Vec<Example> {
    let (shared, archive) = (programs::path("libcosid.so").unwrap(), programs::path("libcosid.a").unwrap());
    let include = paths::workspace().join("crates/libcosid/include");
    let compile = |name: &str, libraries: &[OsString]| {
        let program = dir.join(name);
        let mut command = Command::new("gcc");
        command.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]).arg(&include);
        command.arg(source("c").join("ids.c")).args(libraries).args(["-lpthread", "-o"]).arg(&program);
        run(&mut command);
        vec![program.into_os_string()]
    };
    let mut dynamic = Example::new("C", compile("ids-shared", &[shared.clone().into_os_string()]));
    let folder = shared.parent().unwrap_or(Path::new(".")).into();
    dynamic.environment.push(("LD_LIBRARY_PATH", folder));
    // What Rust's standard library is linked with.
    let system = ["-lgcc_s", "-lm", "-ldl"].map(OsString::from);
    let fixed = compile("ids-static", &[&[archive.into_os_string()][..], &system].concat());
    vec![dynamic, Example::new("C, linked statically", fixed)]
}

fn python() -> Example {
    let workers = source("python").join("workers.py").into_os_string();
    // No compiled files beside the sources.
    let mut example = Example::new("Python", vec!["python3".into(), "-B".into(), workers]);
    example.environment.push(("LIBCOSID", programs::path("libcosid.so").unwrap().into()));
    example.parent_makes = true;
    example
}

fn go(dir: &Path) -> Example {
    let program = dir.join("ids-go");
    run(&mut go::command(&source("go"), &["vet", "./..."]));
    run(go::command(&source("go"), &["build", "-o"]).arg(&program).arg("."));
    Example::new("Go", vec![program.into_os_string()])
}

fn java(dir: &Path) -> Example {
    let classes = dir.join("java");
    fs::create_dir_all(&classes).unwrap();
    let sources = ["CosId.java", "Ids.java"].map(|file| source("java").join(file));
    run(Command::new("javac").args(["-Xlint:all", "-Werror", "-d"]).arg(&classes).args(&sources));
    let command = vec!["java".into(), "-cp".into(), classes.into_os_string(), "Ids".into()];
    Example::new("Java", command)
}

fn node() -> Example {
    Example::new("Node", vec!["node".into(), source("node").join("ids.mjs").into_os_string()])
}
