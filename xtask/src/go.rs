//! The Go toolchain: control plane, nodes and tools are built with it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cluster::{find_on_path, last_lines, output};
use crate::progress::Detail;
use crate::{Error, Result, paths};

/// The environment of every `go` command: this Go and no other, no cgo, nothing of the user's own settings.
const ENVIRONMENT: [(&str, &str); 4] =
    [("GOTOOLCHAIN", "local"), ("GOFLAGS", "-buildvcs=false"), ("CGO_ENABLED", "0"), ("GOWORK", "off")];

const WAY_OUT: &str = "or go without a local control plane: `--memory` (demo) needs no cluster, \
                       `--context NAME` (demo, test) uses one that you already have";

/// What `go version` says, if it is as new as is needed.
///
/// # Errors
/// [`Error::Setup`] where there is no Go, or an older one.
pub fn version(needed: &str) -> Result<String> {
    let needs = |found: &str| {
        Error::Setup(format!(
            "this is built with Go {needed} or later, {found}: install it (https://go.dev/dl), {WAY_OUT}"
        ))
    };
    if find_on_path("go").is_none() {
        return Err(needs("which is not on PATH"));
    }
    let version = output(&mut command(Path::new("/"), &["version"]))?;
    if numbers(version.split_ascii_whitespace().nth(2).unwrap_or_default()) < numbers(needed) {
        return Err(needs(&format!("and this is {}", version.trim())));
    }
    Ok(version)
}

/// A `go` command in a directory.
#[must_use]
pub fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("go");
    command.current_dir(dir).envs(ENVIRONMENT).args(args);
    // For this machine, whatever else is being built from the same shell.
    command.env_remove("GOOS").env_remove("GOARCH").env_remove("GOBIN");
    command
}

/// Builds the program of a module in the workspace, and returns where it is.
///
/// # Errors
/// Those of [`version`]; [`Error::Command`] where it does not build.
pub fn program<'a>(module: &str, needed: &str, to: &'a Path) -> Result<&'a Path> {
    version(needed)?;
    let mut build = command(&paths::workspace().join(module), &["build", "-trimpath", "-o"]);
    output(build.arg(to).arg("."))?;
    Ok(to)
}

/// Runs `go build -v` or `go install -v`, which name each package as they compile it.
///
/// # Errors
/// [`Error::Command`] with its last lines.
pub fn compile(command: &mut Command, detail: &Detail) -> Result<()> {
    let doing = || "run `go build`";
    let mut child =
        command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(Error::io(doing()))?;
    let mut text = String::new();
    if let Some(stderr) = child.stderr.take() {
        for (count, line) in BufReader::new(stderr).lines().map_while(|line| line.ok()).enumerate() {
            detail.set(&format!("{} packages", count + 1));
            text.push_str(&line);
            text.push('\n');
        }
    }
    let status = child.wait().map_err(Error::io(doing()))?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Command {
        command: "go build".into(),
        status: status.to_string(),
        output: last_lines(&text, 15),
    })
}

/// `go1.26.8` and `1.26.0` as numbers that compare; a release candidate counts as its release.
fn numbers(version: &str) -> Vec<u32> {
    let text = version.trim_start_matches("go");
    let leading = |part: &str| part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().parse();
    text.split('.').map(|part| leading(part).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_compare_by_number() {
        assert!(numbers("go1.26.8") >= numbers("1.26.0"));
        assert!(numbers("go1.9") < numbers("1.26.0"));
        assert!(numbers("go1.27rc1") >= numbers("1.26.0"));
    }
}
