//! Where the demo plays: a control plane of its own, the user's cluster, or this machine's memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::admin::{Access, Admin};
use crate::cluster::{Cluster, Options as ClusterOptions};
use crate::demo::{Narrator, Options, PATIENCE, POOL};
use crate::programs::{self, Program, until};
use crate::{Error, Result, paths};

/// The namespace of the pool and its agents.
const NAMESPACE: &str = "cosid-demo";
/// The namespace of the controller.
const SYSTEM: &str = "cosid-demo-system";
/// The controller's account and roles: names of the demo's own, as a cluster of the user's may have the chart installed.
const CONTROLLER: &str = "cosid-demo-controller";
/// The lease's length where a pool says nothing, seconds.
pub const DEFAULT_TTL_SECONDS: u64 = 30;

/// A place with a pool that agents can be started in.
pub enum Ground {
    /// This machine's memory.
    Memory {
        /// The directory that the agents share.
        store: PathBuf,
        /// The leases' length, seconds.
        ttl_seconds: u64,
    },
    /// A cluster with a controller.
    Cluster(Box<InCluster>),
}

/// A cluster, and what was started for it.
pub struct InCluster {
    admin: Admin,
    dir: PathBuf,
    _controller: Program,
}

/// Whether there is a place to play, before minutes are spent on building: the control plane's binaries are built where
/// they are missing, a user's cluster is asked whether it is there.
pub(super) fn check(options: &Options) -> Result<()> {
    match &options.context {
        _ if options.memory => Ok(()),
        None if options.no_nodes => crate::cluster::prepare(false),
        None => crate::cluster::check_nodes().and_then(|()| crate::cluster::prepare(true)),
        Some(context) => {
            let admin = Admin::Users { context: context.clone() };
            let reached = admin.kubectl(&["get", "--raw", "/readyz", "--request-timeout=10s"]);
            reached
                .map(drop)
                .map_err(|error| Error::Setup(format!("the cluster of context {context}: {error}")))
        }
    }
}

impl Ground {
    /// Brings up what the options ask for, with the pool of `examples/slotpool.yaml`.
    ///
    /// # Errors
    /// [`Error`] where a part does not come up.
    pub fn prepare(options: &Options, dir: &Path, ttl_seconds: u64, tell: &Narrator) -> Result<Self> {
        if options.memory {
            tell.say("no cluster: the slots are kept in this machine's memory");
            return Ok(Self::Memory { store: dir.join("store"), ttl_seconds });
        }
        let admin = match &options.context {
            Some(context) => Admin::Users { context: context.clone() },
            None => Admin::Own(Box::new(Cluster::start(ClusterOptions::default())?)),
        };
        match &admin {
            Admin::Own(cluster) => tell.say(format!("a control plane is up: {}", cluster.server_url())),
            Admin::Users { context } => tell.say(format!("using the cluster of context {context}")),
        }
        let root = paths::workspace();
        if admin.kubectl(&["get", "crd", "slotpools.cosid.dev"]).is_err() {
            admin.kubectl(&["create", "-f", &text(&root.join("crds/slotpools.cosid.dev.yaml"))])?;
        }
        let established = "--for=condition=Established";
        admin.kubectl(&["wait", established, "crd/slotpools.cosid.dev", "--timeout=30s"])?;
        for namespace in [SYSTEM, NAMESPACE] {
            make_namespace(&admin, namespace)?;
        }
        admin.kubectl(&["apply", "-n", NAMESPACE, "-f", &text(&root.join("examples/slotpool.yaml"))])?;
        tell.say("applied the CRD and examples/slotpool.yaml");
        if ttl_seconds != DEFAULT_TTL_SECONDS {
            let ttl = format!(r#"{{"spec":{{"ttlSeconds":{ttl_seconds}}}}}"#);
            admin.kubectl(&["patch", "slotpool", POOL, "-n", NAMESPACE, "--type=merge", "-p", &ttl])?;
            tell.say(format!(
                "made the pool's ttl {ttl_seconds} s, not {DEFAULT_TTL_SECONDS}, so that you need not wait"
            ));
        }

        let controller = start_controller(&admin, dir)?;
        let ready = "--for=condition=Ready";
        admin.kubectl(&["wait", ready, &format!("slotpool/{POOL}"), "-n", NAMESPACE, "--timeout=60s"])?;
        let slots = admin.kubectl(&["get", "leases", "-n", NAMESPACE, "-o", "name"])?.lines().count();
        tell.say(format!("the controller runs and has made the pool's {slots} slots, a Lease each"));
        Ok(Self::Cluster(Box::new(InCluster { admin, dir: dir.into(), _controller: controller })))
    }

    /// The command that starts an agent, but for its socket.
    ///
    /// # Errors
    /// [`Error`] where it can't be given an account of its own.
    pub fn agent(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(programs::path("cosid-agent")?);
        match self {
            Self::Memory { store, ttl_seconds } => {
                command.args(["--store", "memory", "--pool", POOL, "--memory-ttl", &ttl_seconds.to_string()]);
                command.arg("--store-dir").arg(store);
            }
            Self::Cluster(cluster) => {
                let kubeconfig = cluster.admin.kubeconfig_of(NAMESPACE, name, &cluster.dir)?;
                command.arg("--kubeconfig").arg(kubeconfig).args(["--pool", POOL, "--namespace", NAMESPACE]);
            }
        }
        command.args(["--key", &format!("{NAMESPACE}/{name}")]);
        Ok(command)
    }

    /// The arguments of an agent that has a service account's token and no kubeconfig, as in a pod, but for its socket.
    ///
    /// # Errors
    /// [`Error`] where it can't be given an account of its own; [`Error::Setup`] with no cluster.
    pub fn agent_in_pod(&self, name: &str) -> Result<Vec<String>> {
        let Self::Cluster(cluster) = self else {
            return Err(Error::Setup("an agent in a pod needs a cluster".into()));
        };
        let Access { server, ca, token } = cluster.admin.access(NAMESPACE, name)?;
        let write = |what: &str, bytes: &[u8]| -> Result<String> {
            let path = cluster.dir.join(format!("{name}.{what}"));
            fs::write(&path, bytes).map_err(Error::io(format_args!("write {}", path.display())))?;
            Ok(text(&path))
        };
        let (ca, token) = (write("ca", &ca)?, write("token", token.as_bytes())?);
        let args = ["--server", &server, "--ca-file", &ca, "--token-file", &token, "--pool", POOL];
        let key = format!("{NAMESPACE}/{name}");
        let own = ["--namespace", NAMESPACE, "--key", &key];
        Ok(args.into_iter().chain(own).map(str::to_owned).collect())
    }

    /// Prints who has which slot.
    pub(super) fn show_slots(&self, tell: &Narrator) -> Result<()> {
        let Self::Cluster(cluster) = self else { return Ok(()) };
        tell.say("kubectl get slotpools,leases (without the leases that nobody holds)");
        let table = cluster.admin.kubectl(&["get", "slotpools,leases", "-n", NAMESPACE])?;
        // A free slot has an empty holder: two columns where a held one has three.
        let free = |line: &&str| line.starts_with("lease") && line.split_whitespace().count() < 3;
        for line in table.lines().filter(|line| !free(line)) {
            println!("{line}");
        }
        tell.say(format!("kubectl cosid slots {POOL}"));
        let kubeconfig = cluster.admin.kubeconfig_of(SYSTEM, CONTROLLER, &cluster.dir)?;
        let mut command = Command::new(programs::path("kubectl-cosid")?);
        command.args(["slots", POOL, "-n", NAMESPACE, "--kubeconfig"]).arg(kubeconfig);
        let output = command.output().map_err(Error::io("start kubectl-cosid"))?;
        print!("{}", String::from_utf8_lossy(&output.stdout));
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Wrong(String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    /// Takes away what was put into the user's cluster. A control plane of the demo's own goes as a whole.
    pub(super) fn clean_up(self, tell: &Narrator) -> Result<()> {
        let Self::Cluster(cluster) = self else { return Ok(()) };
        if let Admin::Users { .. } = &cluster.admin {
            tell.say("removing the pool, the demo's namespaces and the controller's rights from your cluster; the CRD stays");
            cluster.admin.kubectl(&["delete", "slotpool", POOL, "-n", NAMESPACE, "--timeout=60s"])?;
            cluster.admin.kubectl(&["delete", "namespace", NAMESPACE, SYSTEM, "--wait=false"])?;
            cluster.admin.kubectl(&["delete", "clusterrolebinding,clusterrole", CONTROLLER])?;
        }
        Ok(())
    }
}

/// Starts the controller as a service account of its own, with the rights that the chart gives it.
fn start_controller(admin: &Admin, dir: &Path) -> Result<Program> {
    let kubeconfig = admin.kubeconfig_of(SYSTEM, CONTROLLER, dir)?;
    admin.apply(&controllers_rights(), dir)?;
    let mut command = Command::new(programs::path("cosid-controller")?);
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["--namespace", SYSTEM, "--listen", "127.0.0.1:0"]);
    let mut controller = Program::start(CONTROLLER, command, dir)?;
    let running = || Ok(controller.has_ended()?.is_none().then_some(()));
    until(|| "the controller ended".into(), PATIENCE, running)?;
    Ok(controller)
}

/// The rights that the chart gives the controller, bound to its account.
fn controllers_rights() -> serde_json::Value {
    let (mut in_cluster, mut own) = (cosid_controller::cluster_role(), cosid_controller::own_role(SYSTEM));
    for metadata in [&mut in_cluster.metadata, &mut own.metadata] {
        metadata.name = Some(CONTROLLER.into());
    }
    let bound = |kind: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": { "name": CONTROLLER, "namespace": SYSTEM },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": CONTROLLER },
            "subjects": [{ "kind": "ServiceAccount", "name": CONTROLLER, "namespace": SYSTEM }],
        })
    };
    let items = [
        json!(in_cluster),
        json!(own),
        bound("ClusterRoleBinding", "ClusterRole"),
        bound("RoleBinding", "Role"),
    ];
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

/// Makes a namespace that is not there: the demo ends by deleting it.
fn make_namespace(admin: &Admin, namespace: &str) -> Result<()> {
    if admin.kubectl(&["get", "namespace", namespace]).is_ok() {
        return Err(Error::Setup(format!(
            "the cluster has a namespace {namespace} already: delete it (`kubectl delete namespace {namespace}`), or \
             use another cluster; the demo deletes only what it made"
        )));
    }
    admin.kubectl(&["create", "namespace", namespace]).map(drop)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
