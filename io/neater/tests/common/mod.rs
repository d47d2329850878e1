//! What the tests over real sockets share.

#![allow(dead_code, reason = "no test uses all of it")]

use neater::tls::Trust;
use neater::{Connection, Listener, Neater, SecurityParameters};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// No single test lasts longer than this.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Security of a client and of a server that trust each other.
pub(crate) fn security() -> (SecurityParameters, SecurityParameters) {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let identity = neater::tls::self_signed(&["localhost", "127.0.0.1"], neater_base::WallTime(wall), [7; 32]);
    let mut client = SecurityParameters::new();
    client.trust = Trust::Only(vec![identity.chain[0].clone()]);
    let mut server = SecurityParameters::new();
    server.server_certificates = vec![identity];
    (client, server)
}

pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Sends every message of every connection back, until the listener stops.
pub(crate) async fn echo(listener: Listener) {
    while let Some(connection) = listener.accept().await {
        tokio::spawn(echo_one(connection));
    }
}

pub(crate) async fn echo_one(connection: Connection) {
    while let Ok(Some(message)) = connection.receive().await {
        if connection.send(message.data).await.is_err() {
            return;
        }
    }
}

/// Waits until an engine holds nothing any more.
pub(crate) async fn nothing_left(neater: &Neater) {
    for _ in 0..800 {
        let s = neater.stats();
        if s.connections == 0 && s.channels == 0 && s.quic_connections == 0 && s.bytes_queued == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("something is left: {:?}", neater.stats());
}

/// Descriptors that this process has open.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}
