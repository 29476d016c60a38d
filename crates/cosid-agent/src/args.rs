//! The command line.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, Subcommand, ValueEnum};
use cosid_id::Layout;
use cosid_kube::ClusterOptions;
use cosid_kube::config::Server;
use cosid_lease::Slot;
use cosid_lease::choose::Preference;

use crate::error::Error;
use crate::static_slot::{StaticWish, parse_layout};

/// Keeps one slot of a SlotPool and serves its window of timestamps to the apps beside it.
///
/// Apps reach it at the socket: by the cosid-client crate, or with
/// `curl --unix-socket $COSID_SOCKET http://cosid/v1/lease`.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    /// What to do instead of running.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The pool: NAME, or NAMESPACE/NAME. Without it: the namespace's only pool, else the one named `default`.
    #[arg(long, env = "COSID_POOL")]
    pub pool: Option<String>,

    /// Which slot: `auto`, a number (that one and no other), `ordinal` (the number at the end of the pod's name, as a
    /// StatefulSet gives it, and no other), or `prefer:NUMBER` and `prefer:ordinal` (that one if it is free, else any).
    #[arg(long, env = "COSID_SLOT", default_value = "auto")]
    pub slot: SlotWish,

    /// The logical identity. Default: NAMESPACE/POD from the environment, else NAMESPACE/HOSTNAME.
    #[arg(long, env = "COSID_KEY")]
    pub key: Option<String>,

    /// The Unix socket to serve. Its directory also holds the pages and the state, so that each agent needs its own.
    /// Default: $XDG_RUNTIME_DIR/cosid/agent.sock.
    #[arg(long, env = "COSID_SOCKET", global = true)]
    pub socket: Option<PathBuf>,

    /// Where the slots are kept: in a cluster, or in this machine's memory (for a laptop; a reboot forgets them).
    #[arg(long, env = "COSID_STORE", value_enum, default_value_t = StoreKind::Kubernetes)]
    pub store: StoreKind,

    /// With `--store memory`: the directory that the agents share. Default: /dev/shm/cosid-UID, one for each
    /// user.
    #[arg(long, env = "COSID_STORE_DIR")]
    pub store_dir: Option<PathBuf>,

    /// With `--store memory`: the lease's length without a renewal, in whole seconds.
    #[arg(long, env = "COSID_MEMORY_TTL", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub memory_ttl: u32,

    /// Serve a slot by configuration, with no cluster: a number, or `hostname` for the number at the end of the pod's or
    /// host's name (a StatefulSet's). That nobody else has it is up to you.
    #[arg(long = "static", env = "COSID_STATIC", value_name = "SLOT|hostname", requires = "state_dir", conflicts_with_all = ["store", "slot"])]
    pub static_slot: Option<StaticWish>,

    /// With --static: the directory of the state file, which has to exist, on a disk that outlives restarts and belongs to
    /// this machine alone.
    #[arg(long, env = "COSID_STATE_DIR", requires = "static_slot")]
    pub state_dir: Option<PathBuf>,

    /// With --static: how IDs are put together: `millisecond` (the default), `second`, `javascript-millisecond`,
    /// `javascript-second`, `twitter`, `datacenter-worker`, `sonyflake`, or JSON as GET /v1/lease has it.
    #[arg(long, env = "COSID_LAYOUT", requires = "static_slot", value_parser = parse_layout)]
    pub layout: Option<Layout>,

    /// With --static: every ID's time is later than this, in Unix milliseconds: where something else used the slot until
    /// then, or the state file is lost.
    #[arg(long, env = "COSID_NOT_BEFORE", requires = "static_slot")]
    pub not_before: Option<u64>,

    /// The kubeconfig to use; without it and outside a cluster: $KUBECONFIG, else ~/.kube/config.
    #[cfg(feature = "kubeconfig")]
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,

    /// The kubeconfig's context to use.
    #[cfg(feature = "kubeconfig")]
    #[arg(long)]
    pub context: Option<String>,

    /// The API server's address, `https://HOST:PORT`, instead of a kubeconfig or the pod's own cluster.
    #[arg(long, env = "COSID_SERVER", requires = "ca_file", requires = "token_file")]
    pub server: Option<String>,

    /// With --server: the certificates (PEM) that the API server's own must be signed with.
    #[arg(long, env = "COSID_CA_FILE", requires = "server")]
    pub ca_file: Option<PathBuf>,

    /// With --server: the file of a service account's token. It may be replaced at any time.
    #[arg(long, env = "COSID_TOKEN_FILE", requires = "server")]
    pub token_file: Option<PathBuf>,

    /// The namespace. Default: the pod's, or the kubeconfig context's.
    #[arg(long, short, env = "POD_NAMESPACE")]
    pub namespace: Option<String>,

    /// The pod's name, by the downward API.
    #[arg(long, env = "POD_NAME", hide = true)]
    pub pod_name: Option<String>,

    /// The pod's UID, by the downward API: the API server compares it with the caller's token.
    #[arg(long, env = "POD_UID", hide = true)]
    pub pod_uid: Option<String>,

    /// How many milliseconds without a slot until that is reported as a failure. Default: the pool's ttl. The agent
    /// tries on after it.
    #[arg(long, env = "COSID_ACQUIRE_TIMEOUT")]
    pub acquire_timeout: Option<u64>,

    /// How many milliseconds the release may take when the agent is told to end. A slot that was not released is free a
    /// ttl later. In a pod, less than is left of the grace period once the apps have ended.
    #[arg(long, env = "COSID_RELEASE_TIMEOUT", default_value_t = 1_500, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub release_timeout: u64,

    /// Refuse a pool whose slots don't have this many bits.
    #[arg(long, env = "COSID_BITS")]
    pub bits: Option<u8>,

    /// Refuse a pool with another tolerance, in milliseconds.
    #[arg(long, env = "COSID_TOLERANCE")]
    pub tolerance: Option<u64>,

    /// What to log: a level, or a list such as `warn,cosid_agent=debug`.
    #[arg(long, env = "COSID_LOG", default_value = "info")]
    pub log: String,

    /// How to log.
    #[arg(long, env = "COSID_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

impl Args {
    /// Which cluster is meant.
    #[must_use]
    pub fn cluster(&self) -> ClusterOptions {
        let Self { server, ca_file, token_file, .. } = self;
        let server = match (server, ca_file, token_file) {
            (Some(url), Some(ca_file), Some(token_file)) => {
                Some(Server { url: url.clone(), ca_file: ca_file.clone(), token_file: token_file.clone() })
            }
            // Each requires the others.
            _ => None,
        };
        ClusterOptions {
            server,
            #[cfg(feature = "kubeconfig")]
            kubeconfig: self.kubeconfig.clone(),
            #[cfg(feature = "kubeconfig")]
            context: self.context.clone(),
            #[cfg(not(feature = "kubeconfig"))]
            kubeconfig: None,
            #[cfg(not(feature = "kubeconfig"))]
            context: None,
        }
    }
}

/// What an agent's binary can do besides running.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Ask a running agent for its health; exit code 0 if it is healthy. For probes in images without a shell.
    Health {
        /// Ask whether it holds a slot (`/readyz`) instead of whether it works at all (`/livez`).
        #[arg(long)]
        ready: bool,
        /// How to answer.
        #[arg(long, short, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

/// How a subcommand answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A line for people.
    Text,
    /// One JSON object: `{"healthy":true,"message":"..."}`.
    Json,
}

/// Where the slots are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// In Lease objects of a Kubernetes cluster.
    Kubernetes,
    /// In this machine's memory, shared by the agents of one user.
    Memory,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people; coloured on a terminal.
    Text,
    /// For machines, an object a line.
    Json,
}

/// Which slot is wished for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotWish {
    /// A preference that needs nothing else.
    Slot(Preference),
    /// The pod's ordinal and no other.
    Ordinal,
    /// The pod's ordinal if it is free.
    PreferOrdinal,
}

const SLOT_WISHES: &str = "auto, ordinal, prefer:ordinal, a number, prefer:NUMBER";

impl FromStr for SlotWish {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::BadValue { option: "--slot", value: text.into(), allowed: SLOT_WISHES };
        let number = |digits: &str| digits.parse().map_err(|_| bad());
        match text {
            "auto" => Ok(Self::Slot(Preference::Any)),
            "ordinal" => Ok(Self::Ordinal),
            "prefer:ordinal" => Ok(Self::PreferOrdinal),
            _ => match text.strip_prefix("prefer:") {
                Some(digits) => Ok(Self::Slot(Preference::Prefer(number(digits)?))),
                None => Ok(Self::Slot(Preference::Only(number(text)?))),
            },
        }
    }
}

impl SlotWish {
    /// The preference, with the ordinal taken from the pod's name.
    ///
    /// # Errors
    /// [`Error::BadValue`] where the name has no ordinal.
    pub fn preference(self, pod_name: &str) -> Result<Preference, Error> {
        match self {
            Self::Slot(preference) => Ok(preference),
            Self::Ordinal => ordinal(pod_name).map(Preference::Only),
            Self::PreferOrdinal => ordinal(pod_name).map(Preference::Prefer),
        }
    }
}

fn ordinal(pod_name: &str) -> Result<Slot, Error> {
    let ordinal = pod_name.rsplit_once('-').and_then(|(_, digits)| digits.parse().ok());
    ordinal.ok_or_else(|| Error::BadValue {
        option: "--slot with an ordinal",
        value: pod_name.into(),
        allowed: "a StatefulSet pod's name, which ends in -NUMBER (set POD_NAME by the downward API)",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_wishes_are_read_and_others_refused_with_the_list() {
        let read = |text: &str| text.parse::<SlotWish>().map_err(|error| error.to_string());
        assert_eq!(read("auto"), Ok(SlotWish::Slot(Preference::Any)));
        assert_eq!(read("17"), Ok(SlotWish::Slot(Preference::Only(17))));
        assert_eq!(read("prefer:3"), Ok(SlotWish::Slot(Preference::Prefer(3))));
        assert_eq!(read("ordinal"), Ok(SlotWish::Ordinal));
        assert_eq!(read("prefer:ordinal"), Ok(SlotWish::PreferOrdinal));
        for bad in ["", "Auto", "-1", "prefer:", "prefer:x", "99999999999"] {
            assert_eq!(read(bad), Err(format!("--slot: {bad:?} is not one of: {SLOT_WISHES}")));
        }
    }

    #[test]
    fn an_ordinal_is_the_number_at_the_end_of_the_pods_name() {
        let ordinal = |name| SlotWish::Ordinal.preference(name);
        assert_eq!(ordinal("web-a-12").unwrap(), Preference::Only(12));
        assert!(ordinal("web").is_err());
        assert!(ordinal("web-7d9f").is_err());
        assert_eq!(SlotWish::PreferOrdinal.preference("web-3").unwrap(), Preference::Prefer(3));
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
