//! CosId itself, to compare with: Maven fetches it into the cache, and a small program of ours is compiled against it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{find_on_path, output};
use crate::progress::step;
use crate::{Error, Result, once, paths};

/// The Java that CosId and the examples need.
const JAVA: u32 = 17;

/// Whether there is a JDK that is new enough.
///
/// # Errors
/// [`Error::Setup`] with what is missing.
pub fn check_jdk() -> Result<()> {
    version().map(drop)
}

/// Whether [`cosid`] can be made here.
///
/// # Errors
/// [`Error::Setup`] with what is missing.
pub fn check() -> Result<()> {
    check_jdk()?;
    if find_on_path("mvn").is_none() {
        return Err(Error::Setup("mvn is not on PATH: install Maven, which fetches CosId".into()));
    }
    Ok(())
}

/// A command that runs the program of `tests/cosid-java`, which asks CosId what it is asked on its standard input. Fetched
/// and compiled at the first call: half a minute, with progress on stderr.
///
/// # Errors
/// [`Error::Setup`] without Java or Maven; [`Error::Command`] where they fail.
pub fn cosid() -> Result<Command> {
    let mut java = Command::new("java");
    java.arg("-cp").arg(with_cosid("tests/cosid-java/Ask.java")?).arg("Ask");
    Ok(java)
}

/// The class path of a program in the workspace, compiled, and of CosId, which it uses. Fetched and compiled once.
///
/// # Errors
/// Those of [`cosid`].
pub fn with_cosid(program: &str) -> Result<String> {
    check()?;
    let (pom, program) =
        (paths::workspace().join("tests/cosid-java/pom.xml"), paths::workspace().join(program));
    let read =
        |path: &Path| fs::read_to_string(path).map_err(Error::io(format_args!("read {}", path.display())));
    let (pom_text, program_text) = (read(&pom)?, read(&program)?);
    let cache = paths::cache()?;

    let jars = cache.join(format!("java/jars-{}", once::key(&[&pom_text])));
    once::once(&jars, |new| step("fetch CosId (once)", |_| fetch(&pom, new, &cache)))?;

    let classes = cache.join(format!("java/classes-{}", once::key(&[&pom_text, &program_text, &version()?])));
    once::once(&classes, |new| {
        let mut javac = Command::new("javac");
        javac.arg("-Xlint:all").arg("-d").arg(new).arg("-cp").arg(jars.join("*"));
        output(javac.arg(&program)).map(drop)
    })?;
    Ok(format!("{}:{}/*", classes.display(), jars.display()))
}

/// Maven keeps what it fetches for this, its own plugin too, in a folder of the cache that goes once the jars are there.
fn fetch(pom: &Path, jars: &Path, cache: &Path) -> Result<()> {
    let repository: PathBuf = cache.join("java/maven");
    let mut maven = Command::new("mvn");
    // Its directory is what Maven looks for a configuration in.
    maven.current_dir(jars).args(["--batch-mode", "--quiet", "--no-transfer-progress", "--file"]).arg(pom);
    maven.arg("dependency:copy-dependencies").arg(format!("-DoutputDirectory={}", jars.display()));
    maven.arg(format!("-Dmaven.repo.local={}", repository.display()));
    output(&mut maven)?;
    fs::remove_dir_all(&repository).map_err(Error::io(format_args!("remove {}", repository.display())))
}

/// What `javac -version` says, if it is new enough.
fn version() -> Result<String> {
    let needs = |found: &str| {
        Error::Setup(format!(
            "Java {JAVA} or later is needed, {found}: install a JDK (openjdk-17-jdk-headless)"
        ))
    };
    if find_on_path("javac").is_none() || find_on_path("java").is_none() {
        return Err(needs("and java or javac is not on PATH"));
    }
    let version = output(Command::new("javac").arg("-version"))?;
    if release(&version) < JAVA {
        return Err(needs(&format!("and this is {}", version.trim())));
    }
    Ok(version)
}

/// 17 of `javac 17.0.15`, 1 of `javac 1.8.0_292`.
fn release(version: &str) -> u32 {
    let numbers = version.split_ascii_whitespace().nth(1).unwrap_or_default();
    let digits = numbers.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_java_release_is_its_first_number() {
        assert_eq!(release("javac 17.0.15\n"), 17);
        assert_eq!(release("javac 21-ea\n"), 21);
        assert_eq!(release("javac 1.8.0_292\n"), 1);
        assert_eq!(release(""), 0);
    }
}
