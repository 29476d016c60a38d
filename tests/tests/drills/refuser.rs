//! An admission webhook that refuses everything, with the status that it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use xtask::cluster::Cluster;

/// Serves on a port of 127.0.0.1 as long as the process lives, and says where. It has the API server's own certificate.
pub fn start(cluster: &Cluster, code: u16, message: &'static str) -> SocketAddr {
    let (certificate, key) = cluster.server_certificate();
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).unwrap().collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.unwrap(), PrivateKeyDer::from_pem_file(key).unwrap())
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let config = Arc::clone(&config);
            // A connection that ends is no surprise: the API server keeps some for later.
            thread::spawn(move || serve(stream, config, code, message));
        }
    });
    address
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>, code: u16, message: &str) -> Option<()> {
    let connection = ServerConnection::new(config).ok()?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            length =
                line.strip_prefix("content-length:").map_or(Some(length), |text| text.trim().parse().ok())?;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        let review: Value = serde_json::from_slice(&body).ok()?;
        let answer = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": { "uid": review["request"]["uid"], "allowed": false,
                          "status": { "code": code, "message": message } },
        });
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        stream.get_mut().write_all((head + &answer).as_bytes()).ok()?;
        stream.get_mut().flush().ok()?;
    }
}
