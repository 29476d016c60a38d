//! A real Kubernetes on this machine, with no container engine: a control plane (etcd and kube-apiserver) on its
//! loopback, without root; or, as root, in a network namespace together with real nodes (containerd, kubelet,
//! kube-proxy). Several live side by side: each has its own directory, ports, certificates and data.
//!
//! [`Cluster`] is for tests and the demo: it ends with the program that started it. [`detached`] is what
//! `cargo xtask cluster` uses: it goes on until `down`.
//!
//! Without nodes there is no controller manager either. So a namespace has no `default` service account, a deleted namespace stays
//! `Terminating`, and an object whose owner is gone is not collected: give each test a namespace of its own.

mod build;
mod control_plane;
pub mod detached;
mod fleet;
mod kubeconfig;
mod network;
mod node;
mod pki;
mod ports;
mod process;
mod relay;
mod state;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;

use crate::{Error, Result, paths};

use self::control_plane::ControlPlane;
use self::process::Lifetime;
pub use self::process::ProcessId;
pub(crate) use self::process::{find_on_path, last_lines, output};
pub use self::relay::relay;
pub use self::state::{ProcessState, State};

/// What can be chosen when a [`Cluster`] is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// More arguments for kube-apiserver, such as `--service-account-max-token-expiration=1h`; they come last, so
    /// they win over the ones it has.
    pub apiserver_args: Vec<String>,
    /// How many nodes: 0 for a control plane alone. Nodes need root.
    pub nodes: u8,
}

/// A control plane that lives as long as this value. Dropping it ends its processes and removes its directory; when
/// the program dies without that, its processes are killed by the kernel, and the directory goes at the next start.
///
/// All calls block; in an async test make them with `spawn_blocking`.
///
/// ```no_run
/// use xtask::cluster::{Cluster, Options};
///
/// let cluster = Cluster::start(Options::default())?;
/// cluster.kubectl(&["create", "namespace", "shop"])?;
/// cluster.kubectl(&["create", "serviceaccount", "agent", "--namespace", "shop"])?;
/// let token = cluster.token("shop", "agent", None)?;
/// let kubeconfig = cluster.kubeconfig_with_token("agent", &token)?;
/// cluster.kill_apiserver()?;
/// cluster.start_apiserver()?;
/// # Ok::<(), xtask::Error>(())
/// ```
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    server: String,
    control_plane: Mutex<ControlPlane>,
}

/// Builds the control plane's binaries, and the nodes' if they are wanted, where the cache lacks them: minutes, with
/// progress on stderr.
///
/// # Errors
/// [`Error::Setup`] without Go.
pub fn prepare(nodes: bool) -> Result<()> {
    build::binaries()?;
    if nodes {
        build::node_binaries()?;
    }
    Ok(())
}

/// Whether this machine can have nodes: root, network namespaces, and some programs.
///
/// # Errors
/// [`Error::Setup`] with what is missing.
pub fn check_nodes() -> Result<()> {
    network::check()
}

impl Cluster {
    /// Builds the binaries when the cache does not have them (minutes, with progress on stderr), starts etcd and
    /// kube-apiserver on free ports of 127.0.0.1, and returns when `/readyz` says so: 3 to 5 s. First it removes what
    /// programs that died have left.
    ///
    /// # Errors
    /// [`Error::Setup`] without Go; [`Error::Daemon`] with the end of its log when one does not come up.
    pub fn start(options: Options) -> Result<Self> {
        let binaries = prepared(&options)?;
        let parent = paths::cache()?.join("clusters");
        fs::create_dir_all(&parent).map_err(Error::io(format_args!("make {}", parent.display())))?;
        state::remove_orphans(&parent)?;
        let dir = tempfile::Builder::new().prefix("cluster-").tempdir_in(&parent);
        let dir = dir.map_err(Error::io(format_args!("make a directory in {}", parent.display())))?;
        // Kept from here on: what removes it is the drop of the control plane below, or a later start.
        let control_plane = ControlPlane::start(&dir.keep(), &binaries, options, Lifetime::Owner)?;
        let state = control_plane.state();
        Ok(Self {
            dir: control_plane.dir().to_owned(),
            kubectl: state.kubectl.clone(),
            kubeconfig: state.kubeconfig.clone(),
            server: state.server.clone(),
            control_plane: Mutex::new(control_plane),
        })
    }

    /// The administrator's kubeconfig file (group `system:masters`, by client certificate). Its paths are absolute.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where the API server listens: `https://127.0.0.1:PORT`. It stays the same over restarts.
    #[must_use]
    pub fn server_url(&self) -> &str {
        &self.server
    }

    /// The certificate (PEM) that the API server's own is signed with.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        pki::ca(&self.dir)
    }

    /// The API server's own certificate and its key (PEM), for something else on 127.0.0.1 that the API server is to trust.
    #[must_use]
    pub fn server_certificate(&self) -> (PathBuf, PathBuf) {
        pki::server(&self.dir)
    }

    /// The audit log: a JSON line for each request at its end, with verb, user, object and status, without bodies.
    /// The API server's own requests and health checks are left out. It is written before the client has its answer.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        control_plane::audit_log(&self.dir)
    }

    /// Runs `kubectl` as the administrator and returns what it wrote to stdout.
    ///
    /// # Errors
    /// [`Error::Command`] with its output when it fails.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        output(self.kubectl_command(&self.kubeconfig).args(args))
    }

    /// A command that runs this Kubernetes version's `kubectl` with a kubeconfig; the caller adds the arguments.
    #[must_use]
    pub fn kubectl_command(&self, kubeconfig: &Path) -> Command {
        let mut kubectl = Command::new(&self.kubectl);
        // Not in the home directory: what it learnt about another cluster's types on this port is not true of this one.
        kubectl.arg("--kubeconfig").arg(kubeconfig).arg("--cache-dir").arg(self.dir.join("kubectl"));
        kubectl
    }

    /// A token of a service account, valid for an hour. With a pod's name it is bound to that pod, as a projected
    /// token is: the API server then knows the caller's pod and its UID.
    ///
    /// # Errors
    /// [`Error::Command`] when the service account or the pod does not exist.
    pub fn token(&self, namespace: &str, service_account: &str, pod: Option<&str>) -> Result<String> {
        let mut args = vec!["create", "token", service_account, "--namespace", namespace];
        if let Some(pod) = pod {
            args.extend(["--bound-object-kind=Pod", "--bound-object-name", pod]);
        }
        Ok(self.kubectl(&args)?.trim().to_owned())
    }

    /// Writes a kubeconfig `NAME.kubeconfig` that uses `token`, into the cluster's directory, and returns its path.
    ///
    /// # Errors
    /// [`Error::Io`] when it can't be written.
    pub fn kubeconfig_with_token(&self, name: &str, token: &str) -> Result<PathBuf> {
        let path = self.dir.join(format!("{name}.kubeconfig"));
        kubeconfig::write(&path, &self.server, &self.ca(), &kubeconfig::User::Token(token))?;
        Ok(path)
    }

    /// Kills kube-apiserver (SIGKILL) and returns when it has gone. etcd stays.
    ///
    /// # Errors
    /// [`Error::Io`] when the signal can't be sent.
    pub fn kill_apiserver(&self) -> Result<()> {
        self.lock().apiserver.kill()
    }

    /// Starts kube-apiserver again, on the same port, and returns when it is ready.
    ///
    /// # Errors
    /// [`Error::Daemon`] when it does not come up.
    pub fn start_apiserver(&self) -> Result<()> {
        self.lock().start_apiserver()
    }

    /// Stops kube-apiserver as it is (SIGSTOP): connections stay open and nothing is answered.
    ///
    /// # Errors
    /// [`Error::Io`] when the signal can't be sent.
    pub fn pause_apiserver(&self) -> Result<()> {
        self.lock().apiserver.signal(Signal::STOP)
    }

    /// Lets a paused kube-apiserver go on (SIGCONT).
    ///
    /// # Errors
    /// [`Error::Io`] when the signal can't be sent.
    pub fn resume_apiserver(&self) -> Result<()> {
        self.lock().apiserver.signal(Signal::CONT)
    }

    /// Kills etcd (SIGKILL) and returns when it has gone; its data stay. kube-apiserver then answers with errors.
    ///
    /// # Errors
    /// [`Error::Io`] when the signal can't be sent.
    pub fn kill_etcd(&self) -> Result<()> {
        self.lock().etcd.kill()
    }

    /// Starts etcd again, with its data, and returns when kube-apiserver is ready.
    ///
    /// # Errors
    /// [`Error::Daemon`] when one of them does not come up.
    pub fn start_etcd(&self) -> Result<()> {
        let mut control_plane = self.lock();
        control_plane.start_etcd()?;
        control_plane.wait_ready()
    }

    /// Makes a backup of etcd's data, in place of an earlier one. etcd is away meanwhile, for about a second.
    ///
    /// # Errors
    /// [`Error::Command`] where it can't be copied; [`Error::Daemon`] where etcd does not come up again.
    pub fn back_up_etcd(&self) -> Result<()> {
        let mut control_plane = self.lock();
        control_plane.etcd.kill()?;
        copy(&self.dir.join("etcd"), &self.dir.join("etcd-backup"))?;
        control_plane.start_etcd()?;
        control_plane.wait_ready()
    }

    /// Restores etcd from the backup, as administrators do: all API servers stopped, etcd stopped, its data replaced, all
    /// started again. Whatever was written since the backup is gone, and versions count on from there.
    ///
    /// # Errors
    /// As [`back_up_etcd`](Self::back_up_etcd).
    pub fn restore_etcd(&self) -> Result<()> {
        let mut control_plane = self.lock();
        control_plane.apiserver.kill()?;
        control_plane.etcd.kill()?;
        copy(&self.dir.join("etcd-backup"), &self.dir.join("etcd"))?;
        control_plane.start_etcd()?;
        control_plane.start_apiserver()
    }

    /// The names of the nodes.
    ///
    /// # Errors
    /// [`Error::Setup`] where there are none, here and in all that is done to nodes.
    pub fn node_names(&self) -> Result<Vec<String>> {
        Ok(self.lock().nodes()?.0.names())
    }

    /// Gives all nodes a container image (an OCI archive), under the name it has in it.
    ///
    /// # Errors
    /// [`Error::Command`] with what containerd says about it.
    pub fn load_image(&self, archive: &Path) -> Result<()> {
        self.lock().nodes()?.0.import(archive)
    }

    /// Cuts a node off from the network: nothing leaves it or reaches it. What runs there goes on.
    ///
    /// # Errors
    /// [`Error::Command`] where its cable can't be unplugged.
    pub fn cut_node(&self, name: &str) -> Result<()> {
        self.lock().nodes()?.1.ip(&format!("link set {name} down"))
    }

    /// Connects a node again.
    ///
    /// # Errors
    /// [`Error::Command`] where its cable can't be plugged in.
    pub fn join_node(&self, name: &str) -> Result<()> {
        self.lock().nodes()?.1.ip(&format!("link set {name} up"))
    }

    /// Switches a node off as if its power had gone: all its processes are killed, its disk stays.
    ///
    /// # Errors
    /// [`Error::Io`] where a process can't be ended.
    pub fn switch_node_off(&self, name: &str) -> Result<()> {
        self.lock().nodes()?.0.node(name)?.off()
    }

    /// Switches a node on again, with the images it had. It is ready some seconds later.
    ///
    /// # Errors
    /// [`Error::Daemon`] where one of its parts does not come up.
    pub fn switch_node_on(&self, name: &str) -> Result<()> {
        let mut control_plane = self.lock();
        let (fleet, network, ledger) = control_plane.nodes()?;
        fleet.switch_on(name, network, ledger)
    }

    /// What a node has as `/var/lib`, seen from this machine.
    #[must_use]
    pub fn node_disk(&self, name: &str) -> PathBuf {
        self.dir.join(name).join("lib")
    }

    /// Runs a program of this machine in a node's namespaces, and returns what it wrote to stdout.
    ///
    /// # Errors
    /// [`Error::Command`] with its output when it fails.
    pub fn run_on_node(&self, name: &str, program: &str, args: &[&str]) -> Result<String> {
        // Not under the lock: it may take long.
        let mut command = self.lock().nodes()?.0.node(name)?.command(Path::new(program));
        output(command.args(args))
    }

    fn lock(&self) -> MutexGuard<'_, ControlPlane> {
        self.control_plane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies a directory, in place of what is there.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).map_err(Error::io(format_args!("remove {}", to.display())))?;
    }
    output(Command::new("cp").arg("--archive").arg(from).arg(to)).map(drop)
}

/// All binaries that these options need, built before anything is started.
fn prepared(options: &Options) -> Result<build::Binaries> {
    if options.nodes > 0 {
        check_nodes()?;
        build::node_binaries()?;
    }
    build::binaries()
}
