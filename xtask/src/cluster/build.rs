//! The binaries, built from the pinned Go module in `tests/cluster` into the cache, by a key made of all that decides
//! them. What is there is complete: a build happens beside its place and moves there at its end.

use std::fs::{self, File, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ring::digest;

use crate::progress::{Detail, step};
use crate::{Error, Result, paths};

use super::process;

const PACKAGES: [&str; 3] =
    ["k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kubectl", "go.etcd.io/etcd/server/v3"];

/// The environment of every `go` command: this Go and no other, no cgo, nothing of the user's own settings.
const ENVIRONMENT: [(&str, &str); 4] =
    [("GOTOOLCHAIN", "local"), ("GOFLAGS", "-buildvcs=false"), ("CGO_ENABLED", "0"), ("GOWORK", "off")];

/// The tags are those of Kubernetes' release builds; the last lets the linker drop methods that nothing calls.
const FLAGS: [&str; 4] = ["build", "-trimpath", "-tags", "selinux,notest,grpcnotrace"];

const WAY_OUT: &str = "or go without a local control plane: `--memory` (demo) needs no cluster, \
                       `--context NAME` (demo, test) uses one that you already have";

/// The built binaries and their versions.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    /// Holds `etcd`, `kube-apiserver` and `kubectl`.
    pub(super) dir: PathBuf,
    pub(super) kubernetes: String,
    pub(super) etcd: String,
}

/// Finds the binaries in the cache, or builds them there.
pub(super) fn binaries() -> Result<Binaries> {
    let module = Module::read(&paths::workspace().join("tests/cluster"))?;
    let go = go_version(&module)?;
    let flags = module.go_build();
    let dir = paths::cache()?.join("bin").join(key(&[&module.go_mod, &module.go_sum, &flags.join(" "), &go]));
    if !dir.exists() {
        build(&module, &flags, &dir)?;
    }
    Ok(Binaries { dir, kubernetes: module.kubernetes, etcd: module.etcd })
}

struct Module {
    dir: PathBuf,
    go_mod: String,
    go_sum: String,
    kubernetes: String,
    etcd: String,
}

impl Module {
    fn read(dir: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(Error::io(format_args!("read {}", path.display())))
        };
        let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
        let version = |name: &str| {
            let missing = || Error::State { path: dir.join("go.mod"), why: format!("no version of {name}") };
            word_after(&go_mod, name).map(str::to_owned).ok_or_else(missing)
        };
        let (kubernetes, etcd) = (version("k8s.io/kubernetes")?, version("go.etcd.io/etcd/server/v3")?);
        Ok(Self { dir: dir.to_owned(), go_mod, go_sum, kubernetes, etcd })
    }

    /// The arguments of `go build` that decide what comes out.
    fn go_build(&self) -> Vec<String> {
        let mut link = String::from("-s -w");
        let mut numbers = self.kubernetes.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        // What the API server answers at /version, and what kubectl calls itself.
        for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            for (name, value) in [
                ("gitVersion", self.kubernetes.as_str()),
                ("gitMajor", major),
                ("gitMinor", minor),
                ("gitTreeState", "archive"),
                ("gitCommit", ""),
            ] {
                link.push_str(&format!(" -X {package}.{name}={value}"));
            }
        }
        let linked = ["-ldflags".to_owned(), link];
        FLAGS.map(String::from).into_iter().chain(linked).chain(PACKAGES.map(String::from)).collect()
    }
}

/// The word that follows `name` at the start of a line of a go.mod, as in `k8s.io/kubernetes v1.37.2`.
fn word_after<'a>(go_mod: &'a str, name: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().filter(|word| *word != "require");
        (words.next() == Some(name)).then(|| words.next()).flatten()
    })
}

/// A name for what these parts decide; no two lists of parts run together into the same text.
fn key(parts: &[&str]) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finish().as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What `go version` says, if it can build the module.
fn go_version(module: &Module) -> Result<String> {
    let needed = word_after(&module.go_mod, "go").unwrap_or_default();
    let needs = |found: &str| {
        Error::Setup(format!(
            "a local control plane is built with Go {needed} or later, {found}: install it (https://go.dev/dl), {WAY_OUT}"
        ))
    };
    if process::find_on_path("go").is_none() {
        return Err(needs("which is not on PATH"));
    }
    let version = process::output(&mut go(module, &["version"]))?;
    if numbers(version.split_ascii_whitespace().nth(2).unwrap_or_default()) < numbers(needed) {
        return Err(needs(&format!("and this is {}", version.trim())));
    }
    Ok(version)
}

/// `go1.26.8` and `1.26.0` as numbers that compare; a release candidate counts as its release.
fn numbers(version: &str) -> Vec<u32> {
    let text = version.trim_start_matches("go");
    let leading = |part: &str| part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().parse();
    text.split('.').map(|part| leading(part).unwrap_or(0)).collect()
}

fn go(module: &Module, args: &[&str]) -> Command {
    let mut command = Command::new("go");
    command.current_dir(&module.dir).envs(ENVIRONMENT).args(args);
    // For this machine, whatever else is being built from the same shell.
    command.env_remove("GOOS").env_remove("GOARCH");
    command
}

/// Builds into a directory beside `place` and renames it; one build at a time for each place.
fn build(module: &Module, flags: &[String], place: &Path) -> Result<()> {
    let parent = place.parent().unwrap_or(place);
    let doing = || format!("build {}", place.display());
    fs::create_dir_all(parent).map_err(Error::io(doing()))?;
    let lock = File::create(place.with_extension("lock")).map_err(Error::io(doing()))?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => {
            step("wait for another process that builds the control plane", |_| lock.lock())
        }
        Err(TryLockError::Error(error)) => Err(error),
        Ok(()) => Ok(()),
    }
    .map_err(Error::io(doing()))?;
    if place.exists() {
        return Ok(());
    }
    eprintln!("building etcd {} and Kubernetes {} (once; minutes)", module.etcd, module.kubernetes);
    let new = place.with_extension("building");
    // The lock is ours, so what is there is left from a build that was broken off.
    match fs::remove_dir_all(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io(doing())(error)),
        _ => fs::create_dir(&new).map_err(Error::io(doing()))?,
    }
    step("download the Go modules", |_| process::output(&mut go(module, &["mod", "download"])))?;
    step("compile kube-apiserver, kubectl, etcd", |detail| {
        // One command for all: linking one overlaps with compiling another.
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut command = go(module, &[flags[0], "-v", "-o"]);
        compile(command.arg(&new).args(&flags[1..]), detail)
    })?;
    // Go names a program after its package.
    fs::rename(new.join("server"), new.join("etcd")).map_err(Error::io(doing()))?;
    fs::rename(new, place).map_err(Error::io(doing()))
}

/// Runs `go build -v`, which names each package as it compiles it.
fn compile(command: &mut Command, detail: &Detail) -> Result<()> {
    let doing = || "run `go build`";
    let mut child =
        command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(Error::io(doing()))?;
    let mut output = String::new();
    if let Some(stderr) = child.stderr.take() {
        for (count, line) in BufReader::new(stderr).lines().map_while(|line| line.ok()).enumerate() {
            detail.set(&format!("{} packages", count + 1));
            output.push_str(&line);
            output.push('\n');
        }
    }
    let status = child.wait().map_err(Error::io(doing()))?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Command {
        command: "go build".into(),
        status: status.to_string(),
        output: process::last_lines(&output, 15),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_depends_on_every_part_and_on_where_one_ends() {
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
        assert_ne!(key(&["a", "b"]), key(&["ab", ""]));
        assert_ne!(key(&["a", "b"]), key(&["a", "c"]));
        assert_eq!(key(&["a"]).len(), 16);
    }

    #[test]
    fn versions_come_from_the_go_mod() {
        let go_mod = "module x\n\ngo 1.26.0\nrequire k8s.io/kubernetes v1.37.2\n\
                      require (\n\tgo.etcd.io/etcd/server/v3 v3.7.0 // indirect\n)\n";
        assert_eq!(word_after(go_mod, "go"), Some("1.26.0"));
        assert_eq!(word_after(go_mod, "k8s.io/kubernetes"), Some("v1.37.2"));
        assert_eq!(word_after(go_mod, "go.etcd.io/etcd/server/v3"), Some("v3.7.0"));
        assert_eq!(word_after(go_mod, "k8s.io/kube"), None);
    }

    #[test]
    fn the_pinned_module_names_its_versions() {
        let module = Module::read(&paths::workspace().join("tests/cluster")).unwrap();
        assert!(module.kubernetes.starts_with("v1.") && module.etcd.starts_with("v3."));
        assert!(module.go_build().iter().any(|arg| arg.contains("version.gitMajor=1 ")));
    }

    #[test]
    fn go_versions_compare_by_number() {
        assert!(numbers("go1.26.8") >= numbers("1.26.0"));
        assert!(numbers("go1.9") < numbers("1.26.0"));
        assert!(numbers("go1.27rc1") >= numbers("1.26.0"));
    }
}
