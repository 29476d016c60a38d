//! The network of a cluster with nodes: a network namespace that lives as long as one process in it, with a bridge that
//! the nodes are plugged into; and a relay by which this machine's programs reach the API server in there. Addresses
//! are the same in every cluster, since no cluster sees another's.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Error, Result, programs};

use super::process::{Daemon, Lifetime, Place, ProcessId, output};
use super::state::Ledger;

/// The control plane's address on the bridge.
pub(super) const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(10, 250, 0, 1);

/// The address of a node on the bridge; nodes are counted from 1.
pub(super) const fn node_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 250, 0, 10 + number)
}

/// The addresses of a node's pods.
pub(super) fn pod_addresses(number: u8) -> String {
    format!("10.244.{number}.0/24")
}

/// A cluster's network.
#[derive(Debug)]
pub(super) struct Network {
    holder: Daemon,
    relay: Daemon,
    process: ProcessId,
}

impl Network {
    /// Makes the namespace and the bridge, and relays `port` of 127.0.0.1 to the same port of the control plane.
    pub(super) fn start(dir: &Path, lifetime: Lifetime, port: u16, ledger: &mut Ledger) -> Result<Self> {
        let args = ["--net", "--", "sleep", "infinity"].map(String::from).into();
        let mut holder = Daemon::of("network", Path::new("unshare"), args, dir, lifetime);
        holder.start(Place::Here)?;
        ledger.started(&holder, "", None)?;
        let process = wait_for_namespace(&mut holder)?;
        let args = vec![
            "cluster".into(),
            "relay".into(),
            format!("--network={}", process.pid),
            format!("--listen={}", SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)),
            format!("--to={}", SocketAddrV4::new(CONTROL_PLANE, port)),
        ];
        let relay = Daemon::of("relay", &programs::path("xtask")?, args, dir, lifetime);
        let mut network = Self { holder, relay, process };
        network.ip("link set lo up")?;
        network.ip("link add br0 type bridge")?;
        network.ip(&format!("address add {CONTROL_PLANE}/24 dev br0"))?;
        network.ip("link set br0 up")?;
        network.relay.start(Place::Here)?;
        ledger.started(&network.relay, "", Some(port))?;
        Ok(network)
    }

    /// Where processes run that are to be in it.
    pub(super) fn place(&self) -> Place {
        Place::Network(self.process)
    }

    /// Runs `ip` in it.
    pub(super) fn ip(&self, words: &str) -> Result<()> {
        output(self.place().command(Path::new("ip")).args(words.split(' '))).map(drop)
    }

    /// Plugs a node in, by a cable whose one end is the node's `eth0` and whose other end bears the node's name.
    pub(super) fn plug(&self, name: &str, number: u8, init: ProcessId) -> Result<()> {
        // The end that an earlier life of the node has left, unless the kernel was quicker.
        let _ = self.ip(&format!("link delete {name}"));
        self.ip(&format!("link add {name} type veth peer name eth0 netns {}", init.pid))?;
        self.ip(&format!("link set {name} master br0 up"))?;
        self.ip(&format!("route replace {} via {}", pod_addresses(number), node_address(number)))
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        self.relay.kill().and(self.holder.kill())
    }
}

/// Moves this thread, and those that it starts from now on, into the network of a process.
pub(super) fn enter(pid: u32) -> io::Result<()> {
    let namespace = fs::File::open(format!("/proc/{pid}/ns/net"))?;
    let network = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), network).map_err(io::Error::from)
}

/// What a thread in the network of a process finds.
pub(super) fn inside<T: Send>(place: Place, look: impl FnOnce() -> T + Send) -> io::Result<T> {
    let Place::Network(process) = place else { return Ok(look()) };
    let looked = thread::scope(|scope| scope.spawn(|| enter(process.pid).map(|()| look())).join());
    looked.unwrap_or_else(|_| Err(io::Error::other("the look panicked")))
}

/// The process is there at once; its namespace is when `unshare` has made it.
fn wait_for_namespace(holder: &mut Daemon) -> Result<ProcessId> {
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/net"));
    let own = namespace("self").map_err(Error::io("look at this process's network"))?;
    loop {
        if let Some(how) = holder.has_ended() {
            return Err(holder.failure(how));
        }
        if let Some(process) = holder.id()
            && namespace(&process.pid.to_string()).is_ok_and(|found| found != own)
        {
            return Ok(process);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether this machine can have nodes.
///
/// # Errors
/// [`Error::Setup`] with what is missing.
pub(super) fn check() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let why = "nodes need root, for their namespaces and mounts: run this as root, take --nodes 0 (a control \
                   plane only), or use a cluster that you have by --context";
        return Err(Error::Setup(why.into()));
    }
    for (program, package) in
        [("ip", "iproute2"), ("nft", "nftables"), ("unshare", "util-linux"), ("nsenter", "util-linux")]
    {
        // /usr/sbin is not on everybody's PATH, and root's commands are there.
        let found = super::find_on_path(program).is_some() || Path::new("/usr/sbin").join(program).is_file();
        if !found {
            return Err(Error::Setup(format!("nodes need `{program}`: install the package {package}")));
        }
    }
    output(Command::new("unshare").args(["--net", "--", "true"])).map(drop).map_err(|error| {
        Error::Setup(format!("no network namespace can be made here, which nodes need: {error}"))
    })
}
