//! The programs of a cluster: Kubernetes and etcd from the pinned Go module in `tests/cluster`, the rest of a node from
//! modules of their own; all by a key made of everything that decides them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::progress::step;
use crate::tools::{self, Tool};
use crate::{Error, Result, go, once, paths};

use super::process::output;

const CONTROL_PLANE: [&str; 3] =
    ["k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kubectl", "go.etcd.io/etcd/server/v3"];

const NODES: [&str; 4] = [
    "k8s.io/kubernetes/cmd/kube-controller-manager",
    "k8s.io/kubernetes/cmd/kube-scheduler",
    "k8s.io/kubernetes/cmd/kubelet",
    "k8s.io/kubernetes/cmd/kube-proxy",
];

/// The tags are those of Kubernetes' release builds; the last lets the linker drop methods that nothing calls.
const FLAGS: [&str; 4] = ["build", "-trimpath", "-tags", "selinux,notest,grpcnotrace"];

/// What runs containers, below the kubelet.
const CONTAINERD: Tool = Tool {
    name: "containerd",
    packages: &[
        "github.com/containerd/containerd/v2/cmd/containerd",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        "github.com/containerd/containerd/v2/cmd/ctr",
    ],
    version: "v2.4.2",
    tags: "urfave_cli_no_docs,osusergo,netgo,static_build",
    link: "-X github.com/containerd/containerd/v2/version.Version=v2.4.2",
    cgo: false,
};

/// Without seccomp it starts no pod at all: containerd gives each one its default profile.
const RUNC: Tool = Tool {
    name: "runc",
    packages: &["github.com/opencontainers/runc"],
    version: "v1.5.3",
    tags: "seccomp,urfave_cli_no_docs,netgo,osusergo",
    link: "-X main.version=1.5.3",
    cgo: true,
};

/// What connects a pod's network namespace.
const CNI: Tool = Tool {
    name: "cni",
    packages: &[
        "github.com/containernetworking/plugins/plugins/main/bridge",
        "github.com/containernetworking/plugins/plugins/main/loopback",
        "github.com/containernetworking/plugins/plugins/ipam/host-local",
    ],
    version: "v1.10.0",
    tags: "",
    link: "",
    cgo: false,
};

/// The built binaries of a control plane and their versions.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    /// Holds `etcd`, `kube-apiserver` and `kubectl`.
    pub(super) dir: PathBuf,
    pub(super) kubernetes: String,
    pub(super) etcd: String,
}

/// The built binaries of nodes, and of what schedules onto them.
#[derive(Debug, Clone)]
pub(super) struct NodeBinaries {
    /// Holds `kube-controller-manager`, `kube-scheduler`, `kubelet`, `kube-proxy` and `pause`.
    pub(super) kubernetes: PathBuf,
    /// Holds `containerd`, its shim and `ctr`.
    pub(super) containerd: PathBuf,
    /// Holds `runc`.
    pub(super) runc: PathBuf,
    /// Holds the plugins.
    pub(super) cni: PathBuf,
}

/// Finds the binaries in the cache, or builds them there.
pub(super) fn binaries() -> Result<Binaries> {
    let module = Module::read(&paths::workspace().join("tests/cluster"))?;
    let dir = module.build("control plane", &CONTROL_PLANE, |new| {
        // Go names a program after its package.
        fs::rename(new.join("server"), new.join("etcd")).map_err(Error::io("name etcd"))
    })?;
    Ok(Binaries { dir, kubernetes: module.kubernetes, etcd: module.etcd })
}

/// Finds the nodes' binaries in the cache, or builds them there.
pub(super) fn node_binaries() -> Result<NodeBinaries> {
    let module = Module::read(&paths::workspace().join("tests/cluster"))?;
    let kubernetes = module.build("nodes", &NODES, |new| module.pause(&new.join("pause")))?;
    Ok(NodeBinaries {
        kubernetes,
        containerd: tools::install(&CONTAINERD)?,
        runc: tools::install(&RUNC)?,
        cni: tools::install(&CNI)?,
    })
}

struct Module {
    dir: PathBuf,
    go_mod: String,
    go_sum: String,
    go: String,
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
        let go = go::version(word_after(&go_mod, "go").unwrap_or_default())?;
        Ok(Self { dir: dir.to_owned(), go_mod, go_sum, go, kubernetes, etcd })
    }

    /// Builds packages of this module, and finishes with what `then` does in their directory.
    fn build(
        &self,
        what: &str,
        packages: &[&str],
        then: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let flags = self.flags(packages);
        let key = once::key(&[&self.go_mod, &self.go_sum, &flags.join(" "), &self.go]);
        let place = paths::cache()?.join("bin").join(key);
        once::once(&place, |new| {
            eprintln!("building the {what} of Kubernetes {} (once; minutes)", self.kubernetes);
            step("download the Go modules", |_| output(&mut go::command(&self.dir, &["mod", "download"])))?;
            let names = packages.iter().map(|package| package.rsplit('/').next().unwrap_or(package));
            let names = names.collect::<Vec<_>>().join(", ").replace("v3", "etcd");
            step(&format!("compile {names}"), |detail| {
                // One command for all: linking one overlaps with compiling another.
                let mut command = go::command(&self.dir, &[&flags[0], "-v", "-o"]);
                go::compile(command.arg(new).args(&flags[1..]), detail)
            })?;
            then(new)
        })?;
        Ok(place)
    }

    /// The arguments of `go build` that decide what comes out.
    fn flags(&self, packages: &[&str]) -> Vec<String> {
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
        let words = FLAGS.iter().copied().chain(["-ldflags", &link]).chain(packages.iter().copied());
        words.map(String::from).collect()
    }

    /// Compiles the program of a pod's sandbox, which comes in Kubernetes' module as C.
    fn pause(&self, to: &Path) -> Result<()> {
        let args = ["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"];
        let module = output(&mut go::command(&self.dir, &args))?;
        let source = Path::new(module.trim()).join("build/pause/linux/pause.c");
        let mut gcc = Command::new("gcc");
        gcc.args(["-Os", "-static", "-s", "-o"]).arg(to).arg(source);
        output(gcc.arg(format!("-DVERSION={}", self.kubernetes))).map(drop)
    }
}

/// The word that follows `name` at the start of a line of a go.mod, as in `k8s.io/kubernetes v1.37.2`.
fn word_after<'a>(go_mod: &'a str, name: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().filter(|word| *word != "require");
        (words.next() == Some(name)).then(|| words.next()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(module.flags(&NODES).iter().any(|arg| arg.contains("version.gitMajor=1 ")));
    }
}
