//! etcd and kube-apiserver: their arguments, their start, and when they count as ready.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::progress::step;
use crate::{Result, paths};

use super::Options;
use super::build::Binaries;
use super::kubeconfig::{self, User};
use super::pki::{self, Pki};
use super::ports::{self, Port};
use super::process::{self, Daemon, Lifetime, ProcessId};
use super::state::{self, ProcessState, State};

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

/// A control plane that this program started. Dropping it ends it, unless it is detached.
#[derive(Debug)]
pub(super) struct ControlPlane {
    dir: PathBuf,
    lifetime: Lifetime,
    state: State,
    versions: [String; 2],
    ports: [Port; 3],
    pub(super) etcd: Daemon,
    pub(super) apiserver: Daemon,
}

/// Where the audit log is.
pub(super) fn audit_log(dir: &Path) -> PathBuf {
    dir.join("audit.log")
}

impl ControlPlane {
    /// Starts both in `dir`, which is empty, and returns when they are ready. What fails leaves nothing behind.
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
            processes: Vec::new(),
        };
        // Before anything else, so that whatever happens from here on can be cleaned up by a later run.
        state::write(dir, &state)?;
        let pki = pki::create(dir)?;
        pki::write(&dir.join("audit-policy.yaml"), AUDIT_POLICY)?;
        kubeconfig::write(&kubeconfig, &state.server, &pki.ca, &User::Certificate(&pki.admin))?;

        let mut apiserver_args = apiserver_args(dir, &pki, client, secure);
        apiserver_args.extend(options.apiserver_args);
        let mut new = Self {
            dir: dir.to_owned(),
            lifetime,
            state,
            versions: [bin.etcd.clone(), bin.kubernetes.clone()],
            ports,
            etcd: Daemon::new("etcd", &bin.dir, etcd_args(dir, client, peer), dir, lifetime),
            apiserver: Daemon::new("kube-apiserver", &bin.dir, apiserver_args, dir, lifetime),
        };
        let started = step("start etcd and kube-apiserver", |_| {
            new.start_etcd()?;
            new.start_apiserver()
        });
        if let Err(error) = started {
            new.end();
            return Err(error);
        }
        Ok(new)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Starts etcd and returns when it takes connections.
    pub(super) fn start_etcd(&mut self) -> Result<()> {
        self.etcd.start()?;
        self.save()?;
        let port = self.ports[0].number;
        wait_until(&mut self.etcd, || accepts(port))
    }

    /// Starts kube-apiserver and returns when it is ready.
    pub(super) fn start_apiserver(&mut self) -> Result<()> {
        self.apiserver.start()?;
        self.save()?;
        self.wait_ready()?;
        self.state.ready = true;
        self.save()
    }

    /// Returns when kube-apiserver says that it is ready and has made the `default` namespace.
    pub(super) fn wait_ready(&mut self) -> Result<()> {
        let port = self.ports[2].number;
        // kubectl is slow to start, so it is asked only once there is someone to talk to.
        wait_until(&mut self.apiserver, || accepts(port))?;
        let state = &self.state;
        wait_until(&mut self.apiserver, || is_ready(state))
    }

    /// Writes down which processes there are now.
    fn save(&mut self) -> Result<()> {
        let [etcd_version, kubernetes_version] = &self.versions;
        let parts = [
            (&self.etcd, etcd_version, self.ports[0].number),
            (&self.apiserver, kubernetes_version, self.ports[2].number),
        ];
        let running = |(daemon, version, port): (&Daemon, &String, u16)| {
            let id = daemon.id()?;
            Some(ProcessState { name: daemon.name.to_owned(), version: version.clone(), port, id })
        };
        self.state.processes = parts.into_iter().filter_map(running).collect();
        state::write(&self.dir, &self.state)
    }

    /// Ends both and removes the directory.
    fn end(&mut self) {
        let ended = self.apiserver.kill().and(self.etcd.kill());
        let removed = state::remove(&self.dir, &self.state);
        if let Err(error) = ended.and(removed.map(drop)) {
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

fn accepts(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
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
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={secure}"),
        // A loopback address may not be advertised, and nobody here uses the `kubernetes` service.
        "--endpoint-reconciler-type=none".into(),
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
