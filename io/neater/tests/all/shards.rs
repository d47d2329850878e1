//! Several engines listen on one port, and a QUIC or SCTP connection stays with its engine whatever
//! its peer's address becomes.

use crate::common::{LIMIT, echo, loopback, nothing_left, security};
use neater::{Connection, EngineShards, FramerSpec, LocalEndpoint, Neater, RemoteEndpoint, SecurityParameters, Stack};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A network address translator between a client and a server, which forgets its bindings on
/// command.
struct Nat {
    addr: SocketAddr,
    rebind: Arc<AtomicUsize>,
    done: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Nat {
    fn new(server: SocketAddr) -> Self {
        let inside = UdpSocket::bind(loopback(0)).expect("a socket");
        let addr = inside.local_addr().expect("bound");
        let (rebind, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (wanted, over) = (rebind.clone(), done.clone());
        inside.set_nonblocking(true).expect("set");
        let thread = std::thread::spawn(move || {
            let outside = || {
                let socket = UdpSocket::bind(loopback(0)).expect("a socket");
                socket.set_nonblocking(true).expect("set");
                socket
            };
            let (mut bound, mut out, mut client, mut buf) = (0, outside(), None, [0; 65_536]);
            let mut old = Vec::new();
            while !over.load(Ordering::Relaxed) {
                if wanted.load(Ordering::Relaxed) != bound {
                    bound = wanted.load(Ordering::Relaxed);
                    // What still comes to the old port is lost, as in a NAT: no ICMP error reports
                    // the port as closed.
                    old.push(std::mem::replace(&mut out, outside()));
                }
                let mut idle = true;
                while let Ok((n, from)) = inside.recv_from(&mut buf) {
                    client = Some(from);
                    let _ = out.send_to(&buf[..n], server);
                    idle = false;
                }
                while let Ok((n, _)) = out.recv_from(&mut buf) {
                    if let Some(client) = client {
                        let _ = inside.send_to(&buf[..n], client);
                    }
                    idle = false;
                }
                if idle {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Self { addr, rebind, done, thread: Some(thread) }
    }

    fn rebind(&self) {
        self.rebind.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_peer_moves_stays_with_its_engine_of_several_on_a_port() {
    let shards = EngineShards::new().expect("random numbers");
    let engines: Vec<Neater> = (0..3).map(|_| Neater::builder().shard_of(&shards).build().expect("engine")).collect();
    let client = Neater::new().expect("engine");
    let (needs, server) = security();
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    let (mut port, mut tasks) = (0, Vec::new());
    for engine in &engines {
        let pre = engine.preconnection().framer(framer.clone()).security(server.clone()).stacks(&[Stack::Quic]);
        let listener = pre.local(loopback(port)).listen().expect("listening on a port that engine shards share");
        port = listener.port();
        tasks.push(tokio::spawn(echo(listener)));
    }
    let nats: Vec<_> = (0..4).map(|_| Nat::new(loopback(port))).collect();
    let mut connections = Vec::new();
    for nat in &nats {
        let pre = client.preconnection().framer(framer.clone()).security(needs.clone()).stacks(&[Stack::Quic]);
        connections.push(pre.remote(nat.addr).initiate().await.expect("connected"));
    }
    stay(&nats, &connections, &engines).await;
    drop(connections);
    nothing_left(&client).await;
    for task in tasks {
        task.abort();
    }
}

/// An association's packets come to another engine when a NAT has given it another port: its
/// verification tag names their engine. No peer is answered that there is no such association.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_association_whose_peer_moves_stays_with_its_engine() {
    let shards = EngineShards::new().expect("random numbers");
    let engines: Vec<Neater> = (0..3).map(|_| Neater::builder().shard_of(&shards).build().expect("engine")).collect();
    let client = Neater::new().expect("engine");
    let over = |n: &Neater| n.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Sctp]);
    let (mut ports, mut tasks) = ((0, 0), Vec::new());
    for engine in &engines {
        let local = LocalEndpoint::from(loopback(ports.0)).with_udp_port(ports.1);
        let listener = over(engine).local(local).listen().expect("listening on ports that engine shards share");
        ports = (listener.port(), listener.udp_ports()[0]);
        tasks.push(tokio::spawn(echo(listener)));
    }
    let nats: Vec<_> = (0..4).map(|_| Nat::new(loopback(ports.1))).collect();
    let mut connections = Vec::new();
    for nat in &nats {
        let remote = RemoteEndpoint::from(loopback(ports.0)).with_udp_port(nat.addr.port());
        connections.push(over(&client).remote(remote).initiate().await.expect("connected"));
    }
    stay(&nats, &connections, &engines).await;
    drop(connections);
    nothing_left(&client).await;
    for task in tasks {
        task.abort();
    }
}

/// Peers move eight times, and every connection goes on.
async fn stay(nats: &[Nat], connections: &[Connection], engines: &[Neater]) {
    for round in 0..8 {
        for (nat, connection) in nats.iter().zip(connections) {
            connection.send(format!("round {round}")).await.expect("sent");
            let answer = tokio::time::timeout(LIMIT, connection.receive()).await;
            let answer = answer.unwrap_or_else(|_| panic!("no answer in round {round}"));
            assert_eq!(answer.expect("alive").expect("echo")[..], *format!("round {round}").as_bytes());
            nat.rebind();
        }
    }
    let passed_on: u64 = engines.iter().map(|e| e.stats().foreign_datagrams).sum();
    assert!(passed_on > 0, "of 32 moves some lead to another engine");
    let received: u64 = engines.iter().map(|e| e.stats().received).sum();
    assert_eq!(received, 4, "no connection was begun anew");
}

/// Castagnoli's checksum of a packet of SCTP (RFC 9260 appendix A), bit by bit.
fn checksum(packet: &[u8]) -> u32 {
    !packet.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

/// The verification tag of a packet names an engine that is gone, with its connections: the peer
/// gets an ABORT and need not wait for its timers.
#[tokio::test]
async fn the_peer_of_an_engine_that_is_gone_is_told() {
    let shards = EngineShards::new().expect("random numbers");
    let neater = Neater::builder().shard_of(&shards).build().expect("engine");
    let over = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Sctp]);
    let listener = over.local(loopback(0)).listen().expect("listening");
    let tag = [200, 1, 2, 3];
    // SHUTDOWN, from port 5000.
    let (from, to, chunk) = (5000_u16.to_be_bytes(), listener.port().to_be_bytes(), [7, 0, 0, 8, 0, 0, 0, 1]);
    let mut packet = [&from[..], &to, &tag, &[0; 4], &chunk].concat();
    let sum = checksum(&packet);
    packet[8..12].copy_from_slice(&sum.to_le_bytes());
    let peer = tokio::net::UdpSocket::bind(loopback(0)).await.expect("a socket");
    peer.send_to(&packet, loopback(listener.udp_ports()[0])).await.expect("sent");
    let mut answer = [0; 2048];
    let (n, _) = tokio::time::timeout(LIMIT, peer.recv_from(&mut answer)).await.expect("answered").expect("received");
    assert!(n >= 16);
    assert_eq!((&answer[4..8], answer[12], answer[13] & 1), (&tag[..], 6, 1), "ABORT with the tag that was sent");

    let (_, server) = security();
    let listener = neater.preconnection().security(server).stacks(&[Stack::Quic]).local(loopback(0)).listen();
    let listener = listener.expect("listening");
    let packet: Vec<u8> = [0x40, 200].into_iter().chain(0..98).collect();
    peer.send_to(&packet, loopback(listener.port())).await.expect("sent");
    let (n, _) = tokio::time::timeout(LIMIT, peer.recv_from(&mut answer)).await.expect("answered").expect("received");
    assert!(n < packet.len() && answer[0] & 0xc0 == 0x40, "a stateless reset");
}

/// The same where the engine is there and has left the port.
#[tokio::test]
async fn the_peer_of_an_engine_that_has_left_the_port_is_told() {
    let shards = EngineShards::new().expect("random numbers");
    let engines = [0; 2].map(|_| Neater::builder().shard_of(&shards).build().expect("engine"));
    let (_, server) = security();
    let over = |n: &Neater| n.preconnection().security(server.clone()).stacks(&[Stack::Quic]);
    let listener = over(&engines[0]).local(loopback(0)).listen().expect("listening");
    let peer = tokio::net::UdpSocket::bind(loopback(0)).await.expect("a socket");
    // A short header, to the second of them, which has never listened here.
    let packet: Vec<u8> = [0x40, 1].into_iter().chain(0..98).collect();
    peer.send_to(&packet, loopback(listener.port())).await.expect("sent");
    let mut answer = [0; 2048];
    let (n, _) = tokio::time::timeout(LIMIT, peer.recv_from(&mut answer)).await.expect("answered").expect("received");
    assert!(n < packet.len() && answer[0] & 0xc0 == 0x40, "a stateless reset");
}

#[tokio::test]
async fn a_number_is_free_again_when_its_engine_is_gone() {
    let shards = EngineShards::new().expect("random numbers");
    for _ in 0..600 {
        let (neater, driver) = Neater::builder().shard_of(&shards).without_driver().expect("a number is free");
        drop((neater, driver));
    }
}

#[tokio::test]
async fn strangers_do_not_share_a_port() {
    let shards = EngineShards::new().expect("random numbers");
    let (a, b) = (Neater::builder().shard_of(&shards).build().expect("engine"), Neater::new().expect("engine"));
    let (_, server) = security();
    let listen = |n: &Neater, port| n.preconnection().security(server.clone()).local(loopback(port)).listen();
    let listener = listen(&a, 0).expect("listening");
    assert!(listen(&b, listener.port()).is_err());
}
