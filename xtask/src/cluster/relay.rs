//! A relay of TCP connections into a network namespace: what a port of this machine takes goes to an address in there.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::{Error, Result};

use super::network;

/// How long the other end may take to answer a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Listens here, connects from inside the network of process `pid`. Returns only on an error.
///
/// # Errors
/// [`Error::Io`] where the port can't be had or the network can't be entered.
pub fn relay(pid: u32, listen: SocketAddrV4, to: SocketAddrV4) -> Result<()> {
    let listener = TcpListener::bind(listen).map_err(Error::io(format_args!("listen on {listen}")))?;
    // The socket stays in the network that it was made in; those that are made from here on are in the other.
    network::enter(pid).map_err(Error::io(format_args!("enter the network of process {pid}")))?;
    for client in listener.incoming() {
        let client = client.map_err(Error::io(format_args!("accept on {listen}")))?;
        thread::spawn(move || {
            // A server that is down is seen by the client as a closed connection.
            if let Ok(server) = TcpStream::connect_timeout(&to.into(), CONNECT_WITHIN) {
                let _ = join(&client, &server);
            }
        });
    }
    Ok(())
}

/// Copies both ways until both ends have said their last.
fn join(client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    thread::scope(|scope| {
        scope.spawn(|| copy(client, server));
        copy(server, client);
    });
    Ok(())
}

/// Copies one way. At the end of what is read, or when it can't be written, both ends learn of it.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break to.shutdown(Shutdown::Write).unwrap_or_default(),
            Ok(length) if to.write_all(&buffer[..length]).is_ok() => {}
            // A reset is passed on whole: half a connection to a server that has died would look alive.
            _ => {
                let _ = to.shutdown(Shutdown::Both);
                break from.shutdown(Shutdown::Both).unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn both_ways_are_copied_to_their_ends() {
        let ((mut client, near), (mut server, far)) = (pair(), pair());
        thread::scope(|scope| {
            scope.spawn(|| join(&near, &far).unwrap());
            client.write_all(b"question").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut text = String::new();
            server.read_to_string(&mut text).unwrap();
            assert_eq!(text, "question");
            server.write_all(b"answer").unwrap();
            server.shutdown(Shutdown::Write).unwrap();
            text.clear();
            client.read_to_string(&mut text).unwrap();
            assert_eq!(text, "answer");
        });
    }
}
