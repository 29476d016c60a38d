//! `cargo xtask cluster up|down|status`.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Subcommand, ValueEnum};
use xtask::cluster;
use xtask::cluster::detached::{self, Up};
use xtask::{Error, Result, paths};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Build what is missing, start it, and print where the kubeconfig is
    Up {
        #[command(flatten)]
        place: Place,
        /// How many nodes (containerd, kubelet, kube-proxy), which need root; 0 for a control plane only
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=9))]
        nodes: u8,
    },
    /// End what `up` started and remove its state
    Down(Place),
    /// Say what runs, on which ports, in which versions; exit code 1 when nothing does
    Status {
        #[command(flatten)]
        place: Place,
        /// Output format
        #[arg(short, long, default_value = "text")]
        output: Output,
    },
    /// Give container images (OCI archives, such as those of `cargo xtask image`) to all nodes
    Load {
        #[command(flatten)]
        place: Place,
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Relay a port of this machine into a cluster's network; `up` starts it
    #[command(hide = true)]
    Relay {
        /// A process in that network
        #[arg(long)]
        network: u32,
        #[arg(long)]
        listen: SocketAddrV4,
        #[arg(long)]
        to: SocketAddrV4,
    },
}

#[derive(Args)]
pub(crate) struct Place {
    /// The cluster's directory [default: run/ in the cache]
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

impl Place {
    fn dir(&self) -> Result<PathBuf> {
        match &self.dir {
            Some(dir) => {
                std::path::absolute(dir).map_err(Error::io(format_args!("resolve --dir {}", dir.display())))
            }
            None => Ok(paths::cache()?.join("run")),
        }
    }

    fn flag(&self) -> String {
        self.dir.as_ref().map(|dir| format!(" --dir {}", dir.display())).unwrap_or_default()
    }
}

impl Command {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            Self::Up { place, nodes } => up(&place, nodes),
            Self::Down(place) => down(&place.dir()?),
            Self::Status { place, output } => status(&place, output),
            Self::Load { place, archives } => load(&place.dir()?, &archives),
            Self::Relay { network, listen, to } => {
                cluster::relay(network, listen, to).map(|()| ExitCode::FAILURE)
            }
        }
    }
}

fn up(place: &Place, nodes: u8) -> Result<ExitCode> {
    let start = Instant::now();
    let dir = place.dir()?;
    let (state, how) = match detached::up(&dir, nodes)? {
        Up::Started(state) => (state, format!("up after {:.1} s", start.elapsed().as_secs_f64())),
        Up::Already(state) => (state, "already up".to_owned()),
    };
    if state.nodes != nodes {
        println!("note: what is up there has {} nodes; `down` first for another number", state.nodes);
    }
    let with = if state.nodes == 0 { String::new() } else { format!(" with {} nodes", state.nodes) };
    println!("Kubernetes {}{with} is {how} at {}", state.kubernetes, state.server);
    println!("use it:     export KUBECONFIG={}", quoted(&state.kubeconfig));
    println!("next:       {} get namespaces", quoted(&state.kubectl));
    println!("end it:     cargo xtask cluster down{}", place.flag());
    Ok(ExitCode::SUCCESS)
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@:".contains(&byte));
    if plain { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

fn load(dir: &Path, archives: &[PathBuf]) -> Result<ExitCode> {
    // containerd looks for them from another directory.
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(Error::io(format_args!("resolve {}", path.display())))
    };
    let archives = archives.iter().map(absolute).collect::<Result<Vec<_>>>()?;
    let nodes = detached::load(dir, &archives)?;
    println!("gave {} images to {}", archives.len(), nodes.join(", "));
    Ok(ExitCode::SUCCESS)
}

fn down(dir: &Path) -> Result<ExitCode> {
    match detached::down(dir)? {
        Some(ended) if ended.is_empty() => println!("nothing ran any more; removed {}", dir.display()),
        Some(ended) => println!("ended {}; removed {}", ended.join(", "), dir.display()),
        None => println!("nothing is up in {}", dir.display()),
    }
    Ok(ExitCode::SUCCESS)
}

fn status(place: &Place, output: Output) -> Result<ExitCode> {
    let dir = place.dir()?;
    let status = detached::status(&dir)?;
    match output {
        Output::Json => {
            let json = serde_json::to_string_pretty(&status).map_err(std::io::Error::from);
            println!("{}", json.map_err(Error::io("write the status as JSON"))?);
        }
        Output::Text if status.processes.is_empty() => {
            println!("nothing is up in {}; start it: cargo xtask cluster up{}", dir.display(), place.flag());
        }
        Output::Text => {
            for process in &status.processes {
                let port = process.port.map(|port| format!(", 127.0.0.1:{port}")).unwrap_or_default();
                let doing = if process.running { "runs" } else { "has ended" };
                let (name, version, pid) = (&process.name, &process.version, process.id.pid);
                println!("{name:<24} {version:<8} {doing}, pid {pid}{port}");
            }
            if let Some(kubeconfig) = &status.kubeconfig {
                println!("ready: {}; kubeconfig: {}", status.ready, kubeconfig.display());
            }
        }
    }
    Ok(ExitCode::from(u8::from(!status.ready)))
}
