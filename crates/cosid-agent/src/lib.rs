//! The agent beside an app: keeps one slot and serves its window on a Unix socket.
