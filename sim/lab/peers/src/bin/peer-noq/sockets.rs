//! A socket for each local address as one: what is sent leaves by the socket of its source address,
//! and so by the interface that this is bound to. noq's endpoint takes one socket, which the system
//! routes by destination alone.

use noq::udp::{RecvMeta, Transmit};
use noq::{AsyncUdpSocket, Runtime, TokioRuntime, UdpSender};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll};

/// From where a path begins.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) ip: IpAddr,
    /// By which interface its packets leave; without one, as the system routes them.
    pub(crate) interface: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Sockets {
    all: Vec<(IpAddr, Box<dyn AsyncUdpSocket>)>,
    /// Which is read first: each in its turn, so that none waits for the others.
    next: usize,
}

impl Sockets {
    /// # Errors
    /// Those of the sockets; there is no address.
    pub(crate) fn bind(locals: &[Local]) -> io::Result<Self> {
        let all: io::Result<Vec<_>> = locals.iter().map(|local| Ok((local.ip, bound(local)?))).collect();
        let all = all?;
        if all.is_empty() {
            return Err(io::Error::other("there is no local address"));
        }
        Ok(Self { all, next: 0 })
    }
}

fn bound(local: &Local) -> io::Result<Box<dyn AsyncUdpSocket>> {
    let addr = SocketAddr::new(local.ip, 0);
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if let Some(interface) = &local.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.bind(&addr.into())?;
    socket.set_nonblocking(true)?;
    TokioRuntime.wrap_udp_socket(socket.into())
}

impl AsyncUdpSocket for Sockets {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(Senders(self.all.iter().map(|(ip, socket)| (*ip, socket.create_sender())).collect()))
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        for _ in 0..self.all.len() {
            let at = self.next;
            self.next = (at + 1) % self.all.len();
            let received = self.all[at].1.poll_recv(cx, bufs, meta);
            if received.is_ready() {
                return received;
            }
        }
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.all[0].1.local_addr()
    }

    fn max_receive_segments(&self) -> NonZeroUsize {
        self.all.iter().map(|(_, s)| s.max_receive_segments()).max().unwrap_or(NonZeroUsize::MIN)
    }

    fn may_fragment(&self) -> bool {
        self.all.iter().any(|(_, s)| s.may_fragment())
    }
}

/// A sender for each address.
#[derive(Debug)]
struct Senders(Vec<(IpAddr, Pin<Box<dyn UdpSender>>)>);

impl UdpSender for Senders {
    fn poll_send(self: Pin<&mut Self>, transmit: &Transmit<'_>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let senders = &mut self.get_mut().0;
        // The handshake, which knows of no address yet, is the first one's.
        let at = transmit.src_ip.and_then(|ip| senders.iter().position(|(own, _)| *own == ip)).unwrap_or(0);
        senders[at].1.as_mut().poll_send(transmit, cx)
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.0.iter().map(|(_, s)| s.max_transmit_segments()).min().unwrap_or(NonZeroUsize::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::net::UdpSocket;

    #[test]
    fn what_is_sent_leaves_by_the_socket_of_its_source_address() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let peer = UdpSocket::bind("127.0.0.1:0").expect("bound");
            let destination = peer.local_addr().expect("an address");
            let locals = ["127.0.0.1", "127.0.0.2"].map(|ip| Local { ip: ip.parse().expect("IP"), interface: None });
            let mut sockets = Sockets::bind(&locals).expect("bound");
            let mut sender = sockets.create_sender();
            for (source, from) in [(None, 0), (Some(locals[1].ip), 1), (Some(locals[0].ip), 0)] {
                let transmit =
                    Transmit { destination, ecn: None, contents: b"there", segment_size: None, src_ip: source };
                poll_fn(|cx| sender.as_mut().poll_send(&transmit, cx)).await.expect("sent");
                let (_, seen) = peer.recv_from(&mut [0; 16]).expect("received");
                assert_eq!(seen.ip(), locals[from].ip);
                peer.send_to(b"back", seen).expect("sent");
                let (mut buffer, mut meta) = ([0; 2048], [RecvMeta::default()]);
                let n = poll_fn(|cx| sockets.poll_recv(cx, &mut [IoSliceMut::new(&mut buffer)], &mut meta)).await;
                assert_eq!((n.expect("received"), meta[0].len, meta[0].dst_ip), (1, 4, Some(seen.ip())));
            }
        });
    }
}
