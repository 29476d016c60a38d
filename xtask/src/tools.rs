//! Programs that tests run and that are Go modules of their own: each is installed at a pinned version, with the
//! versions of its own dependencies and their sums from Go's checksum database, and kept in the cache.

use std::path::{Path, PathBuf};

use crate::progress::step;
use crate::{Result, go, once, paths};

/// The Go that the newest of them needs.
const GO: &str = "1.26.0";

/// Programs of one Go module.
#[derive(Debug)]
pub struct Tool {
    /// What a person calls it.
    pub name: &'static str,
    /// The packages of its programs.
    pub packages: &'static [&'static str],
    /// The module's version.
    pub version: &'static str,
    /// Build tags, comma-separated.
    pub tags: &'static str,
    /// What the linker is told beside `-s -w`: the version that the program says it has.
    pub link: &'static str,
    /// Whether it has C in it; it is linked statically just the same.
    pub cgo: bool,
}

/// Helm, which installs charts.
const HELM: Tool = Tool {
    name: "helm",
    packages: &["helm.sh/helm/v4/cmd/helm"],
    version: "v4.3.2",
    tags: "",
    link: "-X helm.sh/helm/v4/internal/version.version=v4.3.2",
    cgo: false,
};

/// The linter of manifests.
const KUBE_SCORE: Tool = Tool {
    name: "kube-score",
    packages: &["github.com/zegl/kube-score/cmd/kube-score"],
    version: "v1.20.0",
    tags: "",
    link: "-X main.version=v1.20.0",
    cgo: false,
};

/// Helm's program. Built at the first call: a minute or two, with progress on stderr.
///
/// # Errors
/// [`crate::Error::Setup`] without Go; [`crate::Error::Command`] where it can't be built.
pub fn helm() -> Result<PathBuf> {
    Ok(install(&HELM)?.join("helm"))
}

/// kube-score's program. Built at the first call: a minute, with progress on stderr.
///
/// # Errors
/// [`crate::Error::Setup`] without Go; [`crate::Error::Command`] where it can't be built.
pub fn kube_score() -> Result<PathBuf> {
    Ok(install(&KUBE_SCORE)?.join("kube-score"))
}

/// Installs a tool, unless it is there, and gives the directory of its programs. Blocks; shows its progress.
///
/// # Errors
/// [`crate::Error::Setup`] without Go; [`crate::Error::Command`] where it can't be built.
pub fn install(tool: &Tool) -> Result<PathBuf> {
    let go = go::version(GO)?;
    let link = match tool.cgo {
        true => format!("-s -w {} -extldflags -static", tool.link),
        false => format!("-s -w {}", tool.link),
    };
    let key = once::key(&[&go, &tool.packages.join(" "), tool.version, tool.tags, &link]);
    let place = paths::cache()?.join("tools").join(format!("{}-{}-{key}", tool.name, tool.version));
    once::once(&place, |new| {
        step(&format!("build {} {} (once)", tool.name, tool.version), |detail| {
            let mut command = go::command(Path::new("/"), &["install", "-v", "-trimpath"]);
            command.args(["-tags", tool.tags, "-ldflags", &link]).env("GOBIN", new);
            if tool.cgo {
                command.env("CGO_ENABLED", "1");
            }
            command.args(tool.packages.iter().map(|package| format!("{package}@{}", tool.version)));
            go::compile(&mut command, detail)
        })
    })?;
    Ok(place)
}
