//! Addresses of a name, without connecting: the resolver of the engine, driven over this program's
//! own sockets.

use crate::failure::{Exit, Failure};
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::{ErrorKind, NetError};
use neater_dns::{Answer, Config, Hosts, Input, Output, Question, ResolveError, Resolver, TransportId};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How long an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer over UDP.
const ANSWER_MAX: usize = 65_535;
/// Answers that wait to be looked at.
const WAITING: usize = 64;

/// What a socket has brought.
enum Arrival {
    Datagram(Vec<u8>),
    /// A connection is made: its sending half.
    Connected(OwnedWriteHalf),
    Bytes(Vec<u8>),
    /// It has ended, and why, if not in order.
    Closed(Option<std::io::ErrorKind>),
}

type Arrivals = mpsc::Sender<(TransportId, Arrival)>;

/// What is open to a name server, as long as it is kept.
struct Open {
    way: Way,
    listening: JoinHandle<()>,
}

enum Way {
    Udp(Arc<UdpSocket>),
    Connecting,
    Tcp(OwnedWriteHalf),
}

impl Drop for Open {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// What is found of a name: its addresses, or why there are none.
pub type Found = Result<Vec<IpAddr>, String>;

/// The addresses of `name`, looked for in other files than the usual ones where these are given;
/// why there are none otherwise.
///
/// # Errors
/// The files cannot be read, the system has no random numbers, or this can be no name.
pub async fn addresses(
    name: &str,
    resolv_conf: Option<&Path>,
    hosts: Option<&Path>,
    patience: Option<Duration>,
) -> Result<Found, Failure> {
    let (config, _) = Config::of_host(&text_of(resolv_conf, "/etc/resolv.conf")?, zone);
    let hosts = Hosts::parse(&text_of(hosts, "/etc/hosts")?);
    let mut seed = [0; 32];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut seed)
        .map_err(|_| Failure::new(Exit::Failed, "local", "the system gives no random numbers"))?;
    let resolver = Resolver::new(config, hosts, seed);
    let patience = patience.unwrap_or(PATIENCE);
    tokio::time::timeout(patience, drive(resolver, name))
        .await
        .unwrap_or_else(|_| Ok(Err(format!("no answer within {:.1} s", patience.as_secs_f64()))))
}

/// The most that is read of a file about names.
const FILE_MAX: u64 = 16 << 20;

/// What stands in a file about names; nothing if the usual one cannot be read.
fn text_of(named: Option<&Path>, usual: &str) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let path = named.unwrap_or(Path::new(usual));
    match std::fs::File::open(path).and_then(|f| f.take(FILE_MAX).read_to_end(&mut text)) {
        Err(e) if named.is_some() => Err(Failure::file("read", path, &e)),
        Err(_) => Ok(Vec::new()),
        Ok(_) if text.len() as u64 == FILE_MAX => {
            Err(Failure::new(Exit::Local, "file", format!("{}: longer than 16 MB", path.display())))
        }
        Ok(_) => Ok(text),
    }
}

/// The index of an interface, for servers at link-local addresses.
fn zone(name: &str) -> Option<u32> {
    if name.contains('/') {
        return None;
    }
    std::fs::read_to_string(Path::new("/sys/class/net").join(name).join("ifindex")).ok()?.trim().parse().ok()
}

async fn drive(mut resolver: Resolver, name: &str) -> Result<Found, Failure> {
    let started = tokio::time::Instant::now();
    let now = || Instant::ZERO + started.elapsed();
    let (arrivals, mut arrived) = mpsc::channel(WAITING);
    let mut all: BTreeMap<TransportId, Open> = BTreeMap::new();
    let (mut found, mut why) = (Vec::new(), None);
    resolver.lookup(now(), &Question { name, a: true, aaaa: true, https: None, interface: None });
    loop {
        while let Some(output) = resolver.poll_output(now()) {
            match output {
                Output::OpenUdp { transport, server, .. } => match open(server).await {
                    Ok(socket) => {
                        let listening = tokio::spawn(listen(transport, socket.clone(), arrivals.clone()));
                        all.insert(transport, Open { way: Way::Udp(socket), listening });
                    }
                    Err(e) => resolver.handle_input(now(), Input::UdpFailed { transport, error: error(e.kind()) }),
                },
                // What does not fit into a datagram is asked for again (RFC 7766).
                Output::OpenTcp { transport, server, .. } => {
                    let listening = tokio::spawn(converse(transport, server, arrivals.clone()));
                    all.insert(transport, Open { way: Way::Connecting, listening });
                }
                Output::Send { transport, data } => match all.get_mut(&transport).map(|open| &mut open.way) {
                    Some(Way::Udp(socket)) => {
                        if let Err(e) = socket.send(&data).await {
                            resolver.handle_input(now(), Input::UdpFailed { transport, error: error(e.kind()) });
                        }
                    }
                    Some(Way::Tcp(stream)) => {
                        if let Err(e) = stream.write_all(&data).await {
                            let error = Some(error(e.kind()));
                            resolver.handle_input(now(), Input::TcpClosed { transport, error });
                        }
                    }
                    Some(Way::Connecting) | None => {}
                },
                Output::Close { transport } => drop(all.remove(&transport)),
                Output::Answer { answer: Answer::Addresses(list), .. } => found.extend(list),
                Output::Answer { answer: Answer::Failed(e @ ResolveError::InvalidName(_)), .. } => {
                    return Err(Failure::usage(format!("{name}: {e}")));
                }
                Output::Answer { answer: Answer::Failed(e), .. } => why = Some(e.to_string()),
                Output::Answer { .. } | Output::ServicesSoFar { .. } => {}
                Output::Done { .. } => {
                    return Ok(if found.is_empty() {
                        Err(why.unwrap_or_else(|| "there are none".into()))
                    } else {
                        Ok(found)
                    });
                }
            }
        }
        let next = resolver.next_timeout().map_or(PATIENCE, |t| t.saturating_since(now()));
        tokio::select! {
            arrival = arrived.recv() => match arrival {
                // It may have been on its way when its socket was closed.
                Some((transport, arrival)) if all.contains_key(&transport) => {
                    let is_udp = matches!(all.get(&transport), Some(Open { way: Way::Udp(_), .. }));
                    let input = match &arrival {
                        Arrival::Datagram(data) => Input::UdpReceived { transport, data },
                        Arrival::Bytes(data) => Input::TcpReceived { transport, data },
                        Arrival::Connected(_) => Input::TcpConnected { transport },
                        Arrival::Closed(Some(e)) if is_udp => Input::UdpFailed { transport, error: error(*e) },
                        Arrival::Closed(why) => Input::TcpClosed { transport, error: why.map(error) },
                    };
                    resolver.handle_input(now(), input);
                    if let (Arrival::Connected(half), Some(open)) = (arrival, all.get_mut(&transport)) {
                        open.way = Way::Tcp(half);
                    }
                }
                Some(_) => {}
                None => return Ok(Err("the resolver has ended".into())),
            },
            () = tokio::time::sleep(next) => resolver.handle_timeout(now()),
        }
    }
}

async fn open(server: SocketAddr) -> std::io::Result<Arc<UdpSocket>> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(server).await?;
    Ok(Arc::new(socket))
}

async fn listen(transport: TransportId, socket: Arc<UdpSocket>, arrivals: Arrivals) {
    let mut buf = vec![0; ANSWER_MAX];
    loop {
        let arrival = match socket.recv(&mut buf).await {
            Ok(n) => Arrival::Datagram(buf[..n].to_vec()),
            Err(e) => Arrival::Closed(Some(e.kind())),
        };
        let over = matches!(arrival, Arrival::Closed(_));
        if arrivals.send((transport, arrival)).await.is_err() || over {
            return;
        }
    }
}

/// Connects, and reports what arrives. The resolver bounds how long that may take and how much it
/// may be.
async fn converse(transport: TransportId, server: SocketAddr, arrivals: Arrivals) {
    let mut stream = match TcpStream::connect(server).await {
        Ok(stream) => {
            let (read, write) = stream.into_split();
            if arrivals.send((transport, Arrival::Connected(write))).await.is_err() {
                return;
            }
            read
        }
        Err(e) => {
            let _ = arrivals.send((transport, Arrival::Closed(Some(e.kind())))).await;
            return;
        }
    };
    let mut buf = vec![0; ANSWER_MAX];
    loop {
        let arrival = match stream.read(&mut buf).await {
            Ok(0) => Arrival::Closed(None),
            Ok(n) => Arrival::Bytes(buf[..n].to_vec()),
            Err(e) => Arrival::Closed(Some(e.kind())),
        };
        let over = matches!(arrival, Arrival::Closed(_));
        if arrivals.send((transport, arrival)).await.is_err() || over {
            return;
        }
    }
}

fn error(kind: std::io::ErrorKind) -> NetError {
    use std::io::ErrorKind as K;
    NetError::new(match kind {
        K::ConnectionRefused => ErrorKind::ConnectionRefused,
        K::NetworkUnreachable => ErrorKind::NetworkUnreachable,
        K::HostUnreachable => ErrorKind::HostUnreachable,
        K::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Other,
    })
}
