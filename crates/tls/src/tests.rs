//! Clients and servers over byte pipes.

mod handshake;
mod hostile;
mod resumption;
mod trust;

use crate::*;
use core::time::Duration;
use neater_base::{Rng, WallTime};
use rustls::{ClientConfig, ServerConfig};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

const WALL: WallTime = WallTime(Duration::from_secs(1_750_000_000));
const NAME: &str = "server.example";

/// One direction of a byte stream, in pieces of random size if it has a random source.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    ended: bool,
    pieces: Option<Rng>,
    /// Everything that went through.
    seen: Vec<u8>,
}

impl Pipe {
    fn piece(&mut self, most: usize) -> usize {
        self.pieces.as_mut().map_or(most, |rng| most.min(1 + rng.below(700) as usize))
    }
}

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            return if self.ended { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let n = self.piece(buf.len().min(self.bytes.len()));
        self.bytes.read(&mut buf[..n])
    }
}

impl Write for Pipe {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.piece(buf.len());
        self.bytes.extend(&buf[..n]);
        self.seen.extend(&buf[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client and a server, what each has received, and how each failed.
struct Pair {
    client: TlsStream,
    server: TlsStream,
    up: Pipe,
    down: Pipe,
    at_client: Vec<u8>,
    at_server: Vec<u8>,
    client_error: Option<TlsError>,
    server_error: Option<TlsError>,
}

/// Moves what can be moved at one end; true if anything did.
fn turn(tls: &mut TlsStream, rd: &mut Pipe, wr: &mut Pipe, plain: &mut Vec<u8>, error: &mut Option<TlsError>) -> bool {
    let mut moved = false;
    while tls.wants_write() {
        moved |= tls.write_tls(wr).unwrap() > 0;
    }
    if tls.wants_read() {
        match tls.read_tls(rd) {
            Ok(n) => moved |= n > 0,
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
        }
        if let Err(e) = tls.process() {
            *error = Some(e);
        }
    }
    let mut buf = [0; 1000];
    while let Ok(n) = tls.read_plain(&mut buf) {
        plain.extend_from_slice(&buf[..n]);
        moved = true;
    }
    moved
}

impl Pair {
    fn new(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Self {
        let name = SecurityParameters::new().name_for(NAME).unwrap();
        Self {
            client: TlsStream::client(client, &name).unwrap(),
            server: TlsStream::server(server).unwrap(),
            up: Pipe::default(),
            down: Pipe::default(),
            at_client: Vec::new(),
            at_server: Vec::new(),
            client_error: None,
            server_error: None,
        }
    }

    fn in_pieces(mut self, seed: u64) -> Self {
        let mut rng = Rng::from_number(seed);
        (self.up.pieces, self.down.pieces) = (Some(rng.fork()), Some(rng.fork()));
        self
    }

    /// Runs until nothing moves.
    fn run(&mut self) {
        loop {
            let Self { client, server, up, down, at_client, at_server, client_error, server_error } = self;
            let moved = turn(client, down, up, at_client, client_error);
            if !turn(server, up, down, at_server, server_error) && !moved {
                return;
            }
        }
    }

    /// Runs the handshake, which must succeed.
    fn connected(mut self) -> Self {
        self.run();
        assert_eq!((&self.client_error, &self.server_error), (&None, &None));
        assert!(!self.client.is_handshaking() && !self.server.is_handshaking());
        self
    }

    /// Runs the handshake, which must fail, and returns how each side sees it.
    fn refused(mut self) -> (Option<TlsError>, Option<TlsError>) {
        self.run();
        assert!(self.client_error.is_some() || self.server_error.is_some(), "the handshake succeeded");
        (self.client_error, self.server_error)
    }
}

fn write(tls: &mut TlsStream, data: &[u8]) -> usize {
    tls.write_plain(&[IoSlice::new(data)])
}

/// What a test varies: parameters of both sides, on one simulated host.
struct World {
    crypto: Crypto,
    sessions: SessionStore,
    client: SecurityParameters,
    server: SecurityParameters,
    client_alpn: Vec<&'static [u8]>,
    server_alpn: Vec<&'static [u8]>,
}

impl World {
    /// A server with a self-signed certificate that the client trusts.
    fn new(seed: u8) -> Self {
        let crypto = Crypto::deterministic([seed; 32]);
        crypto.clock.set(WALL);
        let identity = self_signed(&[NAME], WALL, [7; 32]);
        let (mut client, mut server) = (SecurityParameters::new(), SecurityParameters::new());
        client.trust = Trust::Only(identity.chain.clone());
        server.server_certificates = vec![identity];
        let sessions = SessionStore::new(crypto.clock.clone());
        Self { crypto, sessions, client, server, client_alpn: Vec::new(), server_alpn: Vec::new() }
    }

    fn only(mut self, version: TlsVersion) -> Self {
        (self.client.min_version, self.client.max_version) = (version, version);
        self
    }

    fn client_config(&self) -> Arc<ClientConfig> {
        client_config(&self.client, &self.crypto, &self.client_alpn, false, &self.sessions).unwrap()
    }

    fn server_config(&self) -> Arc<ServerConfig> {
        server_config(&self.server, &self.crypto, &self.server_alpn, false).unwrap()
    }

    fn pair(&self) -> Pair {
        Pair::new(self.client_config(), self.server_config())
    }

    fn advance(&self, by: Duration) {
        self.crypto.clock.set(WallTime(self.crypto.clock.get().unwrap().0 + by));
    }
}
