//! The socket, and a thread for each connection.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::agent::Shared;
use super::http::Connection;
use crate::{Error, Result};

/// Listens until it is told to end; its connections end with it.
pub(super) struct Listener {
    socket: PathBuf,
    is_ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Listener {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self> {
        let socket = shared.socket();
        let listener =
            UnixListener::bind(&socket).map_err(Error::io(format_args!("listen at {}", socket.display())))?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let (shared, ending) = (Arc::clone(shared), Arc::clone(&is_ending));
        let thread = thread::spawn(move || accept(&listener, &shared, &ending));
        Ok(Self { socket, is_ending, thread })
    }

    pub(super) fn end(self) {
        self.is_ending.store(true, Ordering::Release);
        // Wakes it up.
        let _ = UnixStream::connect(&self.socket);
        let _ = fs::remove_file(&self.socket);
        // A panic was told by itself.
        let _ = self.thread.join();
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>, is_ending: &AtomicBool) {
    thread::scope(|scope| {
        for stream in listener.incoming() {
            if is_ending.load(Ordering::Acquire) {
                return;
            }
            if let Ok(connection) = stream.and_then(|stream| Connection::new(stream, is_ending)) {
                scope.spawn(|| shared.serve(connection));
            }
        }
    });
}
