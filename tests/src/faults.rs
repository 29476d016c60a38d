//! A bad network between an agent and its API server: a relay of TCP connections that can be told to be slow, to lose what
//! goes one way or both, or to cut.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Nothing bad.
    Fair,
    /// Each piece of an answer comes this much later.
    Slow(Duration),
    /// Nothing comes through and nobody is told: connections look open at both ends, new ones too.
    HalfOpen,
    /// Requests come through, answers do not.
    AnswersLost,
    /// All connections are reset, and new ones at once.
    Cut,
}

/// A relay. It takes no more connections once this value has gone.
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    weather: Mutex<Weather>,
    /// All that were ever made; a closed one is shut down once more without harm.
    connections: Mutex<Vec<TcpStream>>,
    has_ended: AtomicBool,
}

impl Relay {
    /// Listens on a free port of this address, and connects to `to`.
    ///
    /// # Panics
    /// Where it can't.
    #[must_use]
    pub fn start(listen: IpAddr, to: SocketAddr) -> Self {
        let listener = TcpListener::bind((listen, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            weather: Mutex::new(Weather::Fair),
            connections: Mutex::default(),
            has_ended: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.has_ended.load(Ordering::Relaxed) {
                    break;
                }
                if accepting.weather() != Weather::Cut
                    && let Ok(server) = TcpStream::connect(to)
                {
                    accepting.join(client, server);
                }
            }
        });
        Self { address, shared }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the weather. A connection that has lost something stays broken when it is fair again, as one does whose
    /// other end has gone.
    pub fn set(&self, weather: Weather) {
        *self.shared.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
        if weather == Weather::Cut {
            for connection in self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner).drain(..)
            {
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        self.set(Weather::Cut);
        // Wakes the one that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn weather(&self) -> Weather {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let ends = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
        let (Some(there), Some(back), Some(kept)) = (ends(), ends(), ends()) else { return };
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).extend([kept.0, kept.1]);
        let (requests, answers) = (Arc::clone(self), Arc::clone(self));
        thread::spawn(move || requests.copy(there.0, there.1, false));
        thread::spawn(move || answers.copy(back.1, back.0, true));
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream, answers: bool) {
        let mut buffer = vec![0; 64 << 10];
        let mut broken = false;
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            match self.weather() {
                Weather::HalfOpen => broken = true,
                Weather::AnswersLost if answers => broken = true,
                Weather::Slow(late) if answers => thread::sleep(late),
                _ => {}
            }
            if !broken && to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        // Whoever waits for the rest of what was lost waits.
        if !broken {
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::Ipv4Addr;

    use super::*;

    /// A server that sends back what it gets.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        address
    }

    fn connect(relay: &Relay) -> TcpStream {
        let stream = TcpStream::connect(relay.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream
    }

    fn ask(stream: &mut TcpStream) -> Result<[u8; 2], ErrorKind> {
        let mut answer = [0; 2];
        stream.write_all(b"hi").map_err(|error| error.kind())?;
        stream.read_exact(&mut answer).map_err(|error| error.kind())?;
        Ok(answer)
    }

    #[test]
    fn each_weather_does_what_it_says_and_a_broken_connection_stays_broken() {
        let relay = Relay::start(Ipv4Addr::LOCALHOST.into(), echo());
        let mut stream = connect(&relay);
        assert_eq!(ask(&mut stream), Ok(*b"hi"));
        for lost in [Weather::HalfOpen, Weather::AnswersLost, Weather::Slow(Duration::from_secs(1))] {
            let mut stream = connect(&relay);
            assert_eq!(ask(&mut stream), Ok(*b"hi"));
            relay.set(lost);
            assert_eq!(ask(&mut stream), Err(ErrorKind::WouldBlock), "{lost:?}");
            relay.set(Weather::Fair);
            if lost == Weather::HalfOpen {
                assert_eq!(ask(&mut stream), Err(ErrorKind::WouldBlock));
            }
            assert_eq!(ask(&mut connect(&relay)), Ok(*b"hi"));
        }
        relay.set(Weather::Cut);
        assert!(ask(&mut stream).is_err_and(|kind| kind != ErrorKind::WouldBlock));
        assert!(ask(&mut connect(&relay)).is_err_and(|kind| kind != ErrorKind::WouldBlock));
    }
}
