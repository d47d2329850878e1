//! Addresses of a name, without connecting: the resolver of the engine, driven over this program's own sockets.

use crate::failure::{Exit, Failure};
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::{ErrorKind, NetError};
use neater_dns::{Answer, Config, Hosts, Input, Output, Question, ResolveError, Resolver, TransportId};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer over UDP.
const ANSWER_MAX: usize = 65_535;
/// Answers that wait to be looked at.
const WAITING: usize = 64;

/// What a socket has brought: an answer or its end.
type Arrival = (TransportId, Result<Vec<u8>, std::io::ErrorKind>);

/// What is found of a name: its addresses, or why there are none.
type Found = Result<Vec<IpAddr>, String>;

/// The addresses of `name`, looked for in other files than the usual ones where these are given; why there are none otherwise. What can be no name is an error.
pub(crate) async fn addresses(
    name: &str,
    resolv_conf: Option<&Path>,
    hosts: Option<&Path>,
    patience: Option<Duration>,
) -> Result<Found, Failure> {
    let read = |path: Option<&Path>, usual: &str| std::fs::read(path.unwrap_or(Path::new(usual))).unwrap_or_default();
    let (config, _) = Config::parse(&read(resolv_conf, "/etc/resolv.conf"));
    let hosts = Hosts::parse(&read(hosts, "/etc/hosts"));
    let mut seed = [0; 32];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut seed)
        .map_err(|_| Failure::new(Exit::Failed, "local", "the system gives no random numbers"))?;
    let resolver = Resolver::new(config, hosts, seed);
    let patience = patience.unwrap_or(PATIENCE);
    tokio::time::timeout(patience, drive(resolver, name))
        .await
        .unwrap_or_else(|_| Ok(Err(format!("no answer within {:.1} s", patience.as_secs_f64()))))
}

async fn drive(mut resolver: Resolver, name: &str) -> Result<Found, Failure> {
    let started = tokio::time::Instant::now();
    let now = || Instant::ZERO + started.elapsed();
    let (arrivals, mut arrived) = mpsc::channel::<Arrival>(WAITING);
    let mut sockets: BTreeMap<TransportId, Arc<UdpSocket>> = BTreeMap::new();
    let (mut found, mut why) = (Vec::new(), None);
    resolver.lookup(now(), &Question { name, a: true, aaaa: true, https: None, interface: None });
    loop {
        while let Some(output) = resolver.poll_output(now()) {
            match output {
                Output::OpenUdp { transport, server, .. } => match open(server).await {
                    Ok(socket) => {
                        tokio::spawn(listen(transport, socket.clone(), arrivals.clone()));
                        sockets.insert(transport, socket);
                    }
                    Err(e) => resolver.handle_input(now(), Input::UdpFailed { transport, error: error(e.kind()) }),
                },
                // Addresses alone fit into a datagram; what does not is not worth a connection here.
                Output::OpenTcp { transport, .. } => {
                    let error = Some(NetError::new(ErrorKind::Unsupported));
                    resolver.handle_input(now(), Input::TcpClosed { transport, error });
                }
                Output::Send { transport, data } => {
                    if let Some(socket) = sockets.get(&transport)
                        && let Err(e) = socket.send(&data).await
                    {
                        resolver.handle_input(now(), Input::UdpFailed { transport, error: error(e.kind()) });
                    }
                }
                Output::Close { transport } => drop(sockets.remove(&transport)),
                Output::Answer { answer: Answer::Addresses(list), .. } => found.extend(list),
                Output::Answer { answer: Answer::Failed(e @ ResolveError::InvalidName(_)), .. } => {
                    return Err(Failure::usage(format!("{name}: {e}")));
                }
                Output::Answer { answer: Answer::Failed(e), .. } => why = Some(e.to_string()),
                Output::Answer { .. } => {}
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
                Some((transport, Ok(data))) => {
                    resolver.handle_input(now(), Input::UdpReceived { transport, data: &data });
                }
                Some((transport, Err(e))) => {
                    resolver.handle_input(now(), Input::UdpFailed { transport, error: error(e) });
                }
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

async fn listen(transport: TransportId, socket: Arc<UdpSocket>, arrivals: mpsc::Sender<Arrival>) {
    let mut buf = vec![0; ANSWER_MAX];
    loop {
        let arrival = match socket.recv(&mut buf).await {
            Ok(n) => Ok(buf[..n].to_vec()),
            Err(e) => Err(e.kind()),
        };
        let over = arrival.is_err();
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
