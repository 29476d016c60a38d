//! etcd and kube-apiserver, and the nodes where there are some: their arguments, their start, and when they count as
//! ready.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::progress::step;
use crate::{Error, Result, paths};

use super::Options;
use super::build::{self, Binaries};
use super::fleet::Fleet;
use super::kubeconfig::{self, User};
use super::network::{self, Network};
use super::pki::{self, NodeUsers, Pki};
use super::ports::{self, Port};
use super::process::{self, Daemon, Lifetime, Place, ProcessId};
use super::state::{self, Ledger, State};

/// Far more than it takes (3 to 5 s on two cores), for a machine that does something else too.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How often a starting server is looked at: it has no other way to say that it is ready.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Requests are logged once, at their end, without bodies; what the server does by itself and health checks are not.
const AUDIT_POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  users: ["system:apiserver"]
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*"]
- level: Metadata
"#;

/// A control plane that this program started, and its nodes. Dropping it ends it, unless it is detached.
#[derive(Debug)]
pub(super) struct ControlPlane {
    lifetime: Lifetime,
    pub(super) ledger: Ledger,
    versions: [String; 2],
    ports: [Port; 3],
    place: Place,
    pub(super) etcd: Daemon,
    pub(super) apiserver: Daemon,
    /// Where there are nodes.
    network: Option<Network>,
    fleet: Option<Fleet>,
}

/// Where the audit log is.
pub(super) fn audit_log(dir: &Path) -> PathBuf {
    dir.join("audit.log")
}

impl ControlPlane {
    /// Starts it in `dir`, which is empty, and returns when it is ready, its nodes too. What fails leaves nothing
    /// behind.
    pub(super) fn start(dir: &Path, bin: &Binaries, options: Options, lifetime: Lifetime) -> Result<Self> {
        let ports: [Port; 3] = ports::take(&paths::cache()?.join("ports"))?;
        let [client, peer, secure] = [&ports[0], &ports[1], &ports[2]].map(|port| port.number);
        let kubeconfig = dir.join("admin.kubeconfig");
        let state = State {
            boot: state::boot()?,
            owner: (lifetime == Lifetime::Owner).then(|| ProcessId::of(std::process::id())).flatten(),
            ready: false,
            kubernetes: bin.kubernetes.clone(),
            server: format!("https://127.0.0.1:{secure}"),
            kubeconfig: kubeconfig.clone(),
            kubectl: bin.dir.join("kubectl"),
            nodes: options.nodes,
            cgroups: format!("cosid-{secure}"),
            processes: Vec::new(),
        };
        let ledger = Ledger::begin(dir, state)?;
        // The port is the same inside, so that only the address differs.
        let inside = format!("https://{}:{secure}", network::CONTROL_PLANE);
        let (pki, users) = pki::create(dir, options.nodes, &inside)?;
        pki::write(&dir.join("audit-policy.yaml"), AUDIT_POLICY)?;
        kubeconfig::write(&kubeconfig, &ledger.state().server, &pki.ca, &User::Certificate(&pki.admin))?;

        let mut apiserver_args = apiserver_args(dir, &pki, client, secure);
        apiserver_args.extend(match options.nodes {
            0 => alone(),
            _ => with_nodes(&pki),
        });
        apiserver_args.extend(options.apiserver_args);
        let mut new = Self {
            lifetime,
            ledger,
            versions: [bin.etcd.clone(), bin.kubernetes.clone()],
            ports,
            place: Place::Here,
            etcd: Daemon::new("etcd", &bin.dir, etcd_args(dir, client, peer), dir, lifetime),
            apiserver: Daemon::new("kube-apiserver", &bin.dir, apiserver_args, dir, lifetime),
            network: None,
            fleet: None,
        };
        if let Err(error) = new.start_all(options.nodes, &users) {
            new.end();
            return Err(error);
        }
        Ok(new)
    }

    fn start_all(&mut self, nodes: u8, users: &NodeUsers) -> Result<()> {
        let dir = self.dir().to_owned();
        if nodes > 0 {
            let network = Network::start(&dir, self.lifetime, self.ports[2].number, &mut self.ledger)?;
            self.place = network.place();
            self.network = Some(network);
        }
        step("start etcd and kube-apiserver", |_| {
            self.start_etcd()?;
            self.start_apiserver()
        })?;
        let Some(network) = &self.network else { return Ok(()) };
        let binaries = build::node_binaries()?;
        let fleet = Fleet::new(nodes, &dir, &binaries, users, &self.ledger, self.lifetime)?;
        let fleet = self.fleet.insert(fleet);
        let state = self.ledger.state().clone();
        fleet.start(network, &mut self.ledger, |args| {
            let mut kubectl = Command::new(&state.kubectl);
            kubectl.arg("--kubeconfig").arg(&state.kubeconfig).args(args);
            process::output(&mut kubectl)
        })
    }

    pub(super) fn dir(&self) -> &Path {
        self.ledger.dir()
    }

    pub(super) fn state(&self) -> &State {
        self.ledger.state()
    }

    /// Starts etcd and returns when it takes connections.
    pub(super) fn start_etcd(&mut self) -> Result<()> {
        self.etcd.start(self.place)?;
        let port = self.ports[0].number;
        self.ledger.started(&self.etcd, &self.versions[0], Some(port))?;
        let place = self.place;
        wait_until(&mut self.etcd, || accepts(place, port))
    }

    /// Starts kube-apiserver and returns when it is ready.
    pub(super) fn start_apiserver(&mut self) -> Result<()> {
        self.apiserver.start(self.place)?;
        self.ledger.started(&self.apiserver, &self.versions[1], Some(self.ports[2].number))?;
        self.wait_ready()?;
        self.ledger.ready()
    }

    /// Returns when kube-apiserver says that it is ready and has made the `default` namespace.
    pub(super) fn wait_ready(&mut self) -> Result<()> {
        let (place, port) = (self.place, self.ports[2].number);
        // kubectl is slow to start, so it is asked only once there is someone to talk to.
        wait_until(&mut self.apiserver, || accepts(place, port))?;
        let state = self.ledger.state();
        wait_until(&mut self.apiserver, || is_ready(state))
    }

    /// The nodes, for what is done to them.
    ///
    /// # Errors
    /// [`Error::Setup`] where there are none.
    pub(super) fn nodes(&mut self) -> Result<(&mut Fleet, &Network, &mut Ledger)> {
        match (&mut self.fleet, &self.network) {
            (Some(fleet), Some(network)) => Ok((fleet, network, &mut self.ledger)),
            _ => Err(Error::Setup("this cluster has no nodes: start one with --nodes 2".into())),
        }
    }

    /// Ends all of it and removes the directory.
    fn end(&mut self) {
        let nodes = self.fleet.as_mut().map_or(Ok(()), Fleet::kill);
        let control_plane = self.apiserver.kill().and(self.etcd.kill());
        let network = self.network.as_mut().map_or(Ok(()), Network::kill);
        let removed = state::remove(self.dir(), self.state()).map(drop);
        for error in [nodes, control_plane, network, removed].into_iter().filter_map(Result::err) {
            eprintln!("{error}");
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Owner {
            self.end();
        }
    }
}

/// Whether an API server answers that it is ready, and has its first namespace.
pub(super) fn is_ready(state: &State) -> bool {
    ["/readyz", "/api/v1/namespaces/default"].iter().all(|path| {
        let mut kubectl = Command::new(&state.kubectl);
        kubectl.arg("--kubeconfig").arg(&state.kubeconfig);
        process::output(kubectl.args(["--request-timeout=5s", "get", "--raw", path])).is_ok()
    })
}

fn accepts(place: Place, port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok();
    network::inside(place, connect).unwrap_or(false)
}

fn wait_until(daemon: &mut Daemon, is_so: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    loop {
        if let Some(how) = daemon.has_ended() {
            return Err(daemon.failure(how));
        }
        if is_so() {
            return Ok(());
        }
        if start.elapsed() > READY_WITHIN {
            return Err(daemon.failure(format!("was not ready after {} s", READY_WITHIN.as_secs())));
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn etcd_args(dir: &Path, client: u16, peer: u16) -> Vec<String> {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    vec![
        "--name=etcd".into(),
        format!("--data-dir={}", dir.join("etcd").display()),
        // The data need not outlive the machine; they do outlive a killed etcd.
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=etcd={peer}"),
    ]
}

fn apiserver_args(dir: &Path, pki: &Pki, etcd: u16, secure: u16) -> Vec<String> {
    let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--secure-port={secure}"),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--authorization-mode=Node,RBAC".into(),
        file("client-ca-file", &pki.ca),
        file("tls-cert-file", &pki.apiserver.certificate),
        file("tls-private-key-file", &pki.apiserver.key),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        file("service-account-key-file", &pki.service_account_public_key),
        file("service-account-signing-key-file", &pki.service_account_key),
        file("audit-policy-file", &dir.join("audit-policy.yaml")),
        file("audit-log-path", &audit_log(dir)),
        // Before the answer: a test that has its answer finds the request in the log.
        "--audit-log-mode=blocking".into(),
        // In MB. A log that is rotated away can't be counted.
        "--audit-log-maxsize=100000".into(),
    ]
}

fn alone() -> Vec<String> {
    vec![
        "--bind-address=127.0.0.1".into(),
        // A loopback address may not be advertised, and nobody here uses the `kubernetes` service.
        "--endpoint-reconciler-type=none".into(),
    ]
}

fn with_nodes(pki: &Pki) -> Vec<String> {
    let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    vec![
        // Of its own network namespace.
        "--bind-address=0.0.0.0".into(),
        format!("--advertise-address={}", network::CONTROL_PLANE),
        "--allow-privileged".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        // A webhook in a pod is called at the pod's address: there is no kube-proxy here.
        "--enable-aggregator-routing".into(),
        // Without it, a node's name would be looked up for logs and exec.
        "--kubelet-preferred-address-types=InternalIP".into(),
        file("kubelet-client-certificate", &pki.kubelet_client.certificate),
        file("kubelet-client-key", &pki.kubelet_client.key),
        // Pods of a lost node are replaced after 5 s instead of five minutes.
        "--default-not-ready-toleration-seconds=5".into(),
        "--default-unreachable-toleration-seconds=5".into(),
    ]
}
