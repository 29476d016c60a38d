//! Puts the parts together and runs them.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cosid_id::Layout;
use cosid_kube::PoolName;
use cosid_lease::choose::Preference;
use cosid_lease::keeper::Expect;
use cosid_lease::{Keeper, KeeperConfig, Now, Owner, SlotStore};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::api::{Api, IdsRoom, router};
use crate::args::{Args, Command, LogFormat, StoreKind};
use crate::clock::host_now;
use crate::cluster;
use crate::directory::Directory;
use crate::error::Error;
use crate::health;
use crate::holder::AgentHolder;
use crate::local::{self, LocalStore};
use crate::metrics::Metrics;
use crate::serve::Server;
use crate::static_slot::{self, Plan};
use crate::status::StatusBoard;
use crate::window::{Resumable, Window};

/// Runs an agent until it is told to stop, or answers its subcommand. Blocks.
///
/// # Errors
/// [`Error`], before it serves. The cluster is no reason to end.
pub fn run(args: Args) -> Result<(), Error> {
    let socket = socket_path(&args)?;
    if let Some(Command::Health { ready, output }) = args.command {
        return health::tell(&socket, ready, output);
    }
    start_log(&args)?;
    let directory = Directory::claim(&socket)?;
    // One thread is plenty for a lease and some requests, and costs the least memory.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
    let ended = runtime.block_on(agent(args, directory));
    // A name that is still being looked up, or a credential plugin that hangs, must not hold up the end.
    runtime.shutdown_background();
    ended
}

/// What every kind of store's agent shares.
struct Agent {
    args: Args,
    key: String,
    preference: Preference,
    board: StatusBoard,
    window: Window,
    metrics: Metrics,
}

async fn agent(args: Args, directory: Directory) -> Result<(), Error> {
    let key = key(&args);
    let pod = key.rsplit('/').next().unwrap_or_default();
    let preference = args.slot.preference(args.pod_name.as_deref().unwrap_or(pod))?;
    let plan = Plan::of(&args)?;
    let board = StatusBoard::new(&key);
    let window = Window::new(directory.path(), board.clone());
    let metrics = Metrics::default();
    let stop = stop_signals()?;
    let agent = Agent {
        args,
        key,
        preference,
        board: board.clone(),
        window: window.clone(),
        metrics: metrics.clone(),
    };
    let app = router(Api { board: board.clone(), window, metrics, room: IdsRoom::default() });
    let server = Server::start(directory.listen()?, app);
    let result = match (plan, agent.args.store) {
        (Some(plan), _) => agent.keep_static(plan, stop).await,
        (None, StoreKind::Memory) => agent.keep_local(stop).await,
        (None, StoreKind::Kubernetes) => agent.keep_in_cluster(stop).await,
    };
    board.stopped();
    directory.unlink_socket();
    server.end().await;
    result
}

impl Agent {
    async fn keep_static(self, plan: Plan, stop: oneshot::Receiver<()>) -> Result<(), Error> {
        let closing = Duration::from_millis(self.args.release_timeout);
        static_slot::keep(plan, self.window, self.board, self.metrics, closing, stop).await
    }

    async fn keep_local(self, stop: oneshot::Receiver<()>) -> Result<(), Error> {
        let name = match self.args.pool.as_deref() {
            Some(pool) if pool.contains('/') => pool.to_owned(),
            Some(pool) => format!("local/{pool}"),
            None => "local/default".to_owned(),
        };
        let directory = match &self.args.store_dir {
            Some(directory) => directory.clone(),
            None => local::default_directory()?,
        };
        let store = LocalStore::open(&directory, &name, u64::from(self.args.memory_ttl) * 1000)?;
        tracing::warn!(
            "slots are kept in this machine's memory ({}): fine for a laptop; a reboot forgets them",
            directory.display()
        );
        let resumable = self.window.resume(&self.key, Some(&name))?;
        if resumable.is_none() {
            self.board.found_pool(&name);
        }
        let layout = store.layout();
        self.keep(&name, Arc::new(store), move || Ok(layout), resumable, stop).await;
        Ok(())
    }

    async fn keep_in_cluster(self, mut stop: oneshot::Receiver<()>) -> Result<(), Error> {
        let connection = cluster::connect(&self.args).await?;
        let asked = match &self.args.pool {
            Some(reference) => Some(connection.named_pool(reference).await?),
            None => None,
        };
        let resumable = self.window.resume(&self.key, asked.as_ref().map(PoolName::to_string).as_deref())?;
        let pool = match (&resumable, asked) {
            (Some(resumable), _) => connection.named_pool(&resumable.pool).await?,
            (None, Some(asked)) => asked,
            (None, None) => tokio::select! {
                found = connection.find_pool(&self.board) => found,
                _ = &mut stop => return Ok(()),
            },
        };
        let name = pool.to_string();
        if resumable.is_none() {
            self.board.found_pool(&name);
        }
        let store = Arc::new(connection.store(&pool, self.args.pod_uid.clone()));
        let layout = {
            let store = Arc::clone(&store);
            move || cluster::layout(&store)
        };
        self.keep(&name, store, layout, resumable, stop).await;
        Ok(())
    }

    async fn keep<S: SlotStore + 'static>(
        self,
        pool: &str,
        store: Arc<S>,
        layout: impl Fn() -> Result<Layout, String> + Send,
        resumable: Option<Resumable>,
        stop: oneshot::Receiver<()>,
    ) {
        let config = KeeperConfig {
            preference: self.preference,
            acquire_timeout: self.args.acquire_timeout,
            release_timeout: self.args.release_timeout,
            expect: Expect { bits: self.args.bits, tolerance: self.args.tolerance },
            ..KeeperConfig::new(match &resumable {
                Some(resumable) => resumable.binding.holding.owner.clone(),
                None => Owner::new(self.key.clone()),
            })
        };
        let now = {
            let store = Arc::clone(&store);
            move || Now { mono: cosid_kube::monotonic(), host: host_now(), store: store.now() }
        };
        let keeper = match resumable {
            Some(resumable) => Keeper::resume(config, resumable.binding, now()),
            None => Keeper::new(config, now()),
        };
        let mut holder = AgentHolder {
            pool: pool.into(),
            layout,
            window: self.window,
            board: self.board,
            metrics: self.metrics,
        };
        // The signals' task drops its end only after it has told.
        let stopped = async { stop.await.unwrap_or_default() };
        cosid_kube::drive(keeper, &*store, now, &mut holder, stopped).await;
    }
}

fn socket_path(args: &Args) -> Result<PathBuf, Error> {
    if let Some(socket) = &args.socket {
        return Ok(socket.clone());
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let runtime = runtime.ok_or(Error::NoDefault {
        what: "the socket",
        option: "--socket or COSID_SOCKET, such as /tmp/cosid/agent.sock (XDG_RUNTIME_DIR is not set)",
    })?;
    Ok(PathBuf::from(runtime).join("cosid/agent.sock"))
}

/// `NAMESPACE/POD` as the downward API gives them, else with the host's name.
fn key(args: &Args) -> String {
    if let Some(key) = &args.key {
        return key.clone();
    }
    let namespace = args.namespace.as_deref().unwrap_or("default");
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{namespace}/{}", args.pod_name.clone().unwrap_or_else(host))
}

/// SIGTERM and SIGINT ask for an orderly end; the second one ends at once.
fn stop_signals() -> Result<oneshot::Receiver<()>, Error> {
    let (sender, receiver) = oneshot::channel();
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Runtime)?;
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        next().await;
        tracing::info!("told to end: closing the page and releasing the slot, if there is one");
        // The receiver is gone only when the agent is ending anyway.
        let _ = sender.send(());
        next().await;
        tracing::warn!("a second signal: ending at once; the lease expires by itself");
        std::process::exit(1);
    });
    Ok(receiver)
}

/// Plain targets and levels: a filter with regular expressions would double the agent's size.
fn start_log(args: &Args) -> Result<(), Error> {
    let filter: Targets = args.log.parse().map_err(|_| Error::BadValue {
        option: "--log",
        value: args.log.clone(),
        allowed: "error, warn, info, debug, trace, or a list such as warn,cosid_agent=debug",
    })?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    match args.log_format {
        LogFormat::Json => registry.with(lines.json()).init(),
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal();
            registry.with(lines.with_ansi(colour).with_target(false)).init();
        }
    }
    Ok(())
}
