//! The controller's program.

use std::process::ExitCode;

use clap::Parser as _;
use cosid_controller::args::Args;
use cosid_controller::{Error, run};
use tokio::signal::unix::{SignalKind, signal};

/// What `sysexits.h` calls a bad configuration.
const BAD_CONFIGURATION: u8 = 64;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help that was asked for is no failure; if nobody reads it there is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(BAD_CONFIGURATION) } else { ExitCode::SUCCESS };
        }
    };
    match start(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cosid-controller: {error}");
            ExitCode::from(BAD_CONFIGURATION)
        }
    }
}

fn start(args: &Args) -> Result<(), Error> {
    args.start_log()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Error::Setup(format!("can't start threads: {error}")))?;
    runtime.block_on(async {
        let setup = |error: std::io::Error| Error::Setup(format!("can't take signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(setup)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(setup)?;
        let mut asked = async move || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let (first, told) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            asked().await;
            let _ = first.send(());
            // Asked again: whoever asks does not want to wait.
            asked().await;
            std::process::abort();
        });
        run(args.settings(), async {
            let _ = told.await;
        })
        .await
    })
}
