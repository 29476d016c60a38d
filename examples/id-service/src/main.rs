//! A small HTTP service that answers with an ID: `curl localhost:8000` gives `{"id":"295913926632165376","slot":5}`.

mod ids;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use ids::Ids;

/// Answers GET / and GET /id with an ID, as JSON; /healthz and /readyz are for probes.
///
/// Without a slot the answer is 503 and says why. SIGTERM: no more requests are taken, those under way are answered.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Where it listens.
    #[arg(long, env = "LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8000")]
    listen: SocketAddr,
    /// The agent's socket. Without it: $COSID_SOCKET, asked for at the first request.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The generator's name. Two names make equal numbers: one for each kind of thing that has IDs.
    #[arg(long, env = "GENERATOR", default_value = "orders")]
    generator: String,
    /// How long a request waits for an ID, milliseconds.
    #[arg(long, env = "PATIENCE", value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    patience: u64,
    /// How many clients are served at once.
    #[arg(long, env = "CONNECTIONS", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// How long requests under way may take after SIGTERM, milliseconds.
    #[arg(long, env = "DRAIN", value_name = "MS", default_value_t = 10_000)]
    drain: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("id-service: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> std::io::Result<()> {
    // A request that waits for an ID blocks its thread, and the runtime goes on with others: that takes this kind.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let listener = TcpListener::bind(args.listen).await?;
        println!("listening on {}", listener.local_addr()?);
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let ids = Arc::new(Ids::new(args.socket, args.generator, Duration::from_millis(args.patience)));
        serve::serve(listener, ids, args.connections.into(), Duration::from_millis(args.drain), stop).await;
        println!("stopped");
        Ok(())
    })
}
