//! The nodes of a cluster, and what puts pods onto them: kube-controller-manager and kube-scheduler.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::image::{Image, Layer};
use crate::progress::step;
use crate::{Error, Result};

use super::build::NodeBinaries;
use super::network::Network;
use super::node::{Node, PAUSE};
use super::pki::NodeUsers;
use super::process::{Daemon, Lifetime, last_lines};
use super::state::Ledger;

/// How long removed processes may take to leave their cgroups.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// Nodes and their keepers.
#[derive(Debug)]
pub(super) struct Fleet {
    controller_manager: Daemon,
    scheduler: Daemon,
    nodes: Vec<Node>,
    pause: PathBuf,
    version: String,
}

impl Fleet {
    /// Prepares `count` nodes; starts nothing.
    pub(super) fn new(
        count: u8,
        dir: &Path,
        binaries: &NodeBinaries,
        users: &NodeUsers,
        ledger: &Ledger,
        lifetime: Lifetime,
    ) -> Result<Self> {
        let pause = dir.join("pause.tar");
        let layer = Layer::default().file(&binaries.kubernetes.join("pause"), "pause")?;
        Image { name: PAUSE.into(), entrypoint: vec!["/pause".into()], user: "65535".into() }
            .write(layer, &pause)?;
        let nodes = (1..=count).map(|number| {
            let cgroup = format!("{}-node{number}", ledger.state().cgroups);
            Node::new(number, count, dir, binaries, users, &cgroup, lifetime)
        });
        let part =
            |name: &str, args: Vec<String>| Daemon::new(name, &binaries.kubernetes, args, dir, lifetime);
        let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
        let common = ["--bind-address=127.0.0.1".to_owned(), "--leader-elect=false".to_owned()];
        let manager = vec![
            file("kubeconfig", &users.controller_manager),
            file("service-account-private-key-file", &users.service_account_key),
            file("root-ca-file", &users.ca),
            file("flex-volume-plugin-dir", &dir.join("flex")),
            "--use-service-account-credentials".into(),
            // A node that is cut off counts as lost after 10 s instead of 50.
            "--node-monitor-period=1s".into(),
            "--node-monitor-grace-period=10s".into(),
        ];
        let scheduler = vec![file("kubeconfig", &users.scheduler)];
        Ok(Self {
            controller_manager: part("kube-controller-manager", [manager, common.to_vec()].concat()),
            scheduler: part("kube-scheduler", [scheduler, common.to_vec()].concat()),
            nodes: nodes.collect::<Result<_>>()?,
            pause,
            version: ledger.state().kubernetes.clone(),
        })
    }

    /// Starts all of it; `kubectl` asks until every node is ready.
    pub(super) fn start(
        &mut self,
        network: &Network,
        ledger: &mut Ledger,
        kubectl: impl Fn(&[&str]) -> Result<String>,
    ) -> Result<()> {
        for daemon in [&mut self.controller_manager, &mut self.scheduler] {
            daemon.start(network.place())?;
            ledger.started(daemon, &self.version, None)?;
        }
        let label = format!("start {} nodes", self.nodes.len());
        step(&label, |_| {
            for node in &mut self.nodes {
                node.on(network, &self.version, ledger)?;
                node.import(&self.pause)?;
            }
            // A kubelet is slow to begin, and until then there is no node to wait for.
            let start = Instant::now();
            loop {
                let ready = ["wait", "node", "--all", "--for=condition=Ready", "--timeout=10s"];
                let have = || Ok::<_, Error>(kubectl(&["get", "nodes", "--output=name"])?.lines().count());
                if have()? == self.nodes.len() && kubectl(&ready).is_ok() {
                    return Ok(());
                }
                if start.elapsed() > Duration::from_secs(90) {
                    let nodes = kubectl(&["get", "nodes", "--output=wide"])?;
                    let tail = last_lines(&nodes, 15);
                    return Err(Error::Daemon { name: "a node".into(), what: "is not ready".into(), tail });
                }
                thread::sleep(Duration::from_millis(100));
            }
        })
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }

    pub(super) fn node(&mut self, name: &str) -> Result<&mut Node> {
        let known = self.names().join(", ");
        let missing = || Error::Setup(format!("there is no node {name}: {known}"));
        self.nodes.iter_mut().find(|node| node.name == name).ok_or_else(missing)
    }

    /// Gives all nodes an image.
    pub(super) fn import(&mut self, archive: &Path) -> Result<()> {
        self.nodes.iter_mut().try_for_each(|node| node.import(archive))
    }

    pub(super) fn switch_on(&mut self, name: &str, network: &Network, ledger: &mut Ledger) -> Result<()> {
        let version = self.version.clone();
        self.node(name)?.on(network, &version, ledger)
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        let nodes = self.nodes.iter_mut().map(Node::off).collect::<Result<Vec<()>>>();
        nodes.map(drop).and(self.scheduler.kill()).and(self.controller_manager.kill())
    }
}

/// Removes the cgroups whose names begin so, once their processes have gone.
pub(super) fn remove_cgroups(prefix: &str) -> Result<()> {
    let root = Path::new("/sys/fs/cgroup");
    let subfolders = |dir: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().filter_map(|entry| entry.ok());
        entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect()
    };
    fn remove(dir: &Path, subfolders: &impl Fn(&Path) -> Vec<PathBuf>) -> std::io::Result<()> {
        subfolders(dir).iter().try_for_each(|below| remove(below, subfolders))?;
        fs::remove_dir(dir)
    }
    // In version 2 they are below the root, in version 1 below each hierarchy's.
    let hierarchies = std::iter::once(root.to_owned()).chain(subfolders(root));
    let ours = |dir: &PathBuf| dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    let found: Vec<PathBuf> = hierarchies.flat_map(|hierarchy| subfolders(&hierarchy)).filter(ours).collect();
    let start = Instant::now();
    for dir in found {
        while let Err(error) = remove(&dir, &subfolders) {
            if !dir.exists() {
                break;
            }
            if start.elapsed() > LEAVE_WITHIN {
                return Err(Error::io(format_args!("remove {}", dir.display()))(error));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}
