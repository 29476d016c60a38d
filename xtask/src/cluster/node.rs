//! A node: its own namespaces, and in them containerd, kubelet and kube-proxy.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

use super::build::NodeBinaries;
use super::network::{self, Network};
use super::pki::NodeUsers;
use super::process::{Daemon, Lifetime, Place, output};
use super::state::Ledger;

/// PID 1.
const INIT: &str = include_str!("node.sh");

/// How long a part may take to be there.
const START_WITHIN: Duration = Duration::from_secs(60);

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The image of a pod's sandbox.
pub(super) const PAUSE: &str = "localhost/pause:1";

/// A node. It is switched off with the cluster.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    number: u8,
    dir: PathBuf,
    binaries: NodeBinaries,
    /// What it has been given, and gets again when it is switched on again.
    images: Vec<PathBuf>,
    machine: Daemon,
    containerd: Daemon,
    kubelet: Daemon,
    proxy: Daemon,
}

impl Node {
    /// Writes its files; starts nothing. `count` is the number of all nodes, `cgroup` what it runs below.
    pub(super) fn new(
        number: u8,
        count: u8,
        cluster: &Path,
        binaries: &NodeBinaries,
        users: &NodeUsers,
        cgroup: &str,
        lifetime: Lifetime,
    ) -> Result<Self> {
        let name = format!("node{number}");
        let dir = cluster.join(&name);
        let etc = dir.join("etc");
        for made in ["lib", "log", "etc/cni"] {
            fs::create_dir_all(dir.join(made))
                .map_err(Error::io(format_args!("make {}", dir.join(made).display())))?;
        }
        write(&etc.join("cni/pods.conflist"), &cni(number))?;
        write(&etc.join("containerd.toml"), &containerd(binaries, &etc))?;
        write(&etc.join("kubelet.yaml"), &kubelet(cgroup, &users.ca))?;
        write(&etc.join("kube-proxy.yaml"), &proxy(&name, &users.proxy))?;

        let init = [
            "--net",
            "--uts",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation=private",
            "--",
            "sh",
            "-c",
            INIT,
            "node",
            &name,
            &dir.to_string_lossy(),
            &network::node_address(number).to_string(),
            &network::CONTROL_PLANE.to_string(),
            cgroup,
        ];
        let ways = (1..=count)
            .filter(|other| *other != number)
            .flat_map(|other| [network::pod_addresses(other), network::node_address(other).to_string()]);
        let init = init.map(String::from).into_iter().chain(ways).collect();
        let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
        let part = |part: &str, program: &Path, args: Vec<String>| {
            Daemon::of(&format!("{name}-{part}"), program, args, cluster, lifetime)
        };
        let kubelet_args = vec![
            file("config", &etc.join("kubelet.yaml")),
            file("kubeconfig", &users.kubelets[usize::from(number) - 1]),
            format!("--hostname-override={name}"),
            format!("--node-ip={}", network::node_address(number)),
        ];
        Ok(Self {
            machine: Daemon::of(&name, Path::new("unshare"), init, cluster, lifetime).forking(),
            containerd: part(
                "containerd",
                &binaries.containerd.join("containerd"),
                vec![file("config", &etc.join("containerd.toml"))],
            ),
            kubelet: part("kubelet", &binaries.kubernetes.join("kubelet"), kubelet_args),
            proxy: part(
                "kube-proxy",
                &binaries.kubernetes.join("kube-proxy"),
                vec![file("config", &etc.join("kube-proxy.yaml"))],
            ),
            images: Vec::new(),
            binaries: binaries.clone(),
            name,
            number,
            dir,
        })
    }

    /// Switches it on. Returns when containerd works and the kubelet runs; the node is ready some seconds later.
    pub(super) fn on(&mut self, network: &Network, version: &str, ledger: &mut Ledger) -> Result<()> {
        let up = self.dir.join("up");
        match fs::remove_file(&up) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io("start a node")(error));
            }
            _ => {}
        }
        self.machine.start(Place::Here)?;
        ledger.started(&self.machine, "", None)?;
        if let Some(init) = self.machine.id() {
            network.plug(&self.name, self.number, init)?;
        }
        wait(&mut self.machine, || up.exists())?;
        let place = self.place();
        self.containerd.start(place)?;
        ledger.started(&self.containerd, "", None)?;
        let ctr = self.binaries.containerd.join("ctr");
        wait(&mut self.containerd, || output(place.command(&ctr).arg("version")).is_ok())?;
        for image in &self.images {
            self.give(image)?;
        }
        for daemon in [&mut self.kubelet, &mut self.proxy] {
            daemon.start(place)?;
            ledger.started(daemon, version, None)?;
        }
        Ok(())
    }

    /// Switches it off, as if its power had gone: all its processes are killed, its disk stays.
    pub(super) fn off(&mut self) -> Result<()> {
        self.machine.kill()?;
        // They ended with PID 1.
        for daemon in [&mut self.containerd, &mut self.kubelet, &mut self.proxy] {
            daemon.kill()?;
        }
        Ok(())
    }

    /// Gives it an image (an OCI archive).
    pub(super) fn import(&mut self, archive: &Path) -> Result<()> {
        self.give(archive)?;
        if !self.images.iter().any(|image| image == archive) {
            self.images.push(archive.into());
        }
        Ok(())
    }

    fn give(&self, archive: &Path) -> Result<()> {
        import(self.place(), &self.binaries.containerd.join("ctr"), archive)
    }

    /// A command that runs on it.
    pub(super) fn command(&self, program: &Path) -> Command {
        self.place().command(program)
    }

    fn place(&self) -> Place {
        self.machine.id().map_or(Place::Here, Place::Node)
    }
}

/// Gives the containerd of a node an image.
pub(super) fn import(place: Place, ctr: &Path, archive: &Path) -> Result<()> {
    let mut ctr = place.command(ctr);
    output(ctr.args(["--namespace", "k8s.io", "images", "import", "--local"]).arg(archive)).map(drop)
}

fn wait(daemon: &mut Daemon, is_so: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !is_so() {
        if let Some(how) = daemon.has_ended() {
            return Err(daemon.failure(how));
        }
        if start.elapsed() > START_WITHIN {
            return Err(daemon.failure(format!("was not there after {} s", START_WITHIN.as_secs())));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::io(format_args!("write {}", path.display())))
}

fn cni(number: u8) -> String {
    let subnet = network::pod_addresses(number);
    let plugin = serde_json::json!({
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": true,
        "hairpinMode": true,
        "ipam": {
            "type": "host-local",
            "ranges": [[{ "subnet": subnet }]],
            "routes": [{ "dst": "0.0.0.0/0" }],
        },
    });
    serde_json::json!({ "cniVersion": "1.0.0", "name": "pods", "plugins": [plugin] }).to_string()
}

/// `restrict_oom_score_adj`: without the right to lower a score, a container that asks for it would not start.
fn containerd(binaries: &NodeBinaries, etc: &Path) -> String {
    format!(
        "version = 4
disabled_plugins = ['io.containerd.nri.v1.nri']
[plugins.'io.containerd.internal.v1.opt']
  path = '/var/lib/containerd/opt'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = '{runc}'
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{cni}']
    conf_dir = '{conf}'
",
        runc = binaries.runc.join("runc").display(),
        cni = binaries.cni.display(),
        conf = etc.join("cni").display(),
    )
}

/// The node reports every 2 s, so that one that is cut off is seen within 10 s instead of 50.
fn kubelet(cgroup: &str, ca: &Path) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupRoot: /{cgroup}
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {ca}}}
authorization: {{mode: Webhook}}
clusterDomain: cluster.local
resolvConf: ''
volumePluginDir: /var/lib/kubelet/volumeplugins
oomScoreAdj: 0
maxOpenFiles: 20000
maxPods: 110
evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 8
",
        ca = ca.display()
    )
}

/// Connection tracking is set up for the machine's first network namespace only: all of it is left alone.
fn proxy(name: &str, kubeconfig: &Path) -> String {
    format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: {name}
clusterCIDR: 10.244.0.0/16
clientConnection: {{kubeconfig: {kubeconfig}}}
conntrack: {{maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}
",
        kubeconfig = kubeconfig.display()
    )
}
