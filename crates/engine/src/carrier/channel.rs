//! One socket that carries a connection, or an attempt at one, or a listener.

use super::terms::Target;
use crate::carrier::tcp::connect::Client;
use crate::carrier::tcp::linger::Lingering;
use crate::carrier::udp::shared::Shared;
use neater_base::net::{ErrorKind, Net, NetError, Ready, Sock};
use neater_base::{Instant, Key};
use neater_tls::TlsStream;
use neater_tls::rustls::ServerConfig;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;

/// The owner of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketUse {
    /// An attempt of a race for a connection.
    Attempt(Key),
    /// The cached outcome, tried alone for a connection.
    Alone(Key),
    /// A connection.
    Conn(Key),
    /// A listener: this socket accepts, or its connection is not established yet.
    Listener(Key),
    /// No connection any more: what was sent is being delivered.
    Lingering(Lingering),
}

impl SocketUse {
    /// The connection that is attempted.
    pub(crate) fn attempt(self) -> Option<Key> {
        match self {
            Self::Attempt(conn) | Self::Alone(conn) => Some(conn),
            _ => None,
        }
    }

    /// The connection that it carries.
    pub(crate) fn conn(self) -> Option<Key> {
        match self {
            Self::Conn(conn) => Some(conn),
            _ => None,
        }
    }

    /// The listener that it accepts for, or whose handshake it is in.
    pub(crate) fn listener(self) -> Option<Key> {
        match self {
            Self::Listener(listener) => Some(listener),
            _ => None,
        }
    }
}

/// ICMP errors that are taken from a socket at once: more than a queue of the kernel's usual size
/// (208 KiB) holds.
pub(crate) const ICMP_BUDGET: usize = 1024;

/// What runs on the socket.
#[derive(Debug)]
pub(crate) enum Kind {
    Tcp,
    /// An attempt over TCP, which TLS will run over.
    TlsPending(Box<Client>),
    /// A connection over TCP that was accepted and whose handshake has not begun: TLS will run over
    /// it, if there is a configuration.
    Accepted(Option<Arc<ServerConfig>>),
    Tls(Box<TlsStream>),
    Udp,
    /// A socket from which connections are accepted, and what TLS over these runs with, if it does.
    Accept(Option<Arc<ServerConfig>>),
    /// A UDP socket shared by the connections of a listener.
    UdpShared(Box<Shared>),
}

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) sock: Sock,
    pub(crate) kind: Kind,
    pub(crate) used_by: SocketUse,
    pub(crate) remote: SocketAddr,
    /// Worth reading, as far as is known.
    pub(crate) readable: bool,
    /// Worth writing, as far as is known.
    pub(crate) writable: bool,
    /// The peer's end of stream is waiting, or the connection is gone.
    pub(crate) hangup: bool,
    /// The TCP connection is made.
    pub(crate) connected: bool,
    /// The host does not have its local address any more.
    pub(crate) stranded: bool,
    pub(crate) started: Instant,
    /// By when the handshake must be finished.
    pub(crate) deadline: Option<Instant>,
}

impl Target<'_> {
    /// What stands behind a socket that is the attempt's own.
    pub(in crate::carrier) const fn used_by(&self, attempt: Key) -> SocketUse {
        if self.alone { SocketUse::Alone(attempt) } else { SocketUse::Attempt(attempt) }
    }
}

impl Channel {
    /// A socket of a stream without anything above it.
    #[inline(always)]
    pub(crate) fn plain(sock: Sock, used_by: SocketUse, remote: SocketAddr, now: Instant) -> Self {
        Self::new(sock, Kind::Tcp, used_by, remote, now)
    }

    /// Whether it is the socket of a stream without anything above it.
    #[inline(always)]
    pub(crate) const fn is_plain(&self) -> bool {
        matches!(self.kind, Kind::Tcp)
    }

    #[inline(always)]
    pub(crate) fn new(sock: Sock, kind: Kind, used_by: SocketUse, remote: SocketAddr, now: Instant) -> Self {
        Self {
            sock,
            kind,
            used_by,
            remote,
            readable: false,
            writable: false,
            hangup: false,
            connected: false,
            stranded: false,
            started: now,
            deadline: None,
        }
    }

    /// Whether a stream of bytes runs on it.
    pub(crate) const fn carries_bytes(&self) -> bool {
        matches!(self.kind, Kind::Tcp | Kind::Tls(_))
    }

    /// Whether the datagrams of one connection run on it.
    pub(crate) const fn carries_datagrams(&self) -> bool {
        matches!(self.kind, Kind::Udp)
    }

    /// Whether connections are accepted from it.
    pub(crate) fn accepts(&self) -> bool {
        matches!(self.kind, Kind::Accept(_))
    }

    /// Whether it was accepted and its handshake is to begin.
    pub(crate) fn awaits_handshake(&self) -> bool {
        matches!(self.kind, Kind::Accepted(_))
    }

    /// Notes readiness; returns what is news: (readable, writable).
    #[inline]
    pub(crate) fn note(&mut self, ready: Ready) -> (bool, bool) {
        let r = (ready.readable || ready.hangup || ready.error) && !self.readable;
        let w = (ready.writable || ready.error) && !self.writable;
        self.readable |= r;
        self.writable |= w;
        self.hangup |= ready.hangup || ready.error;
        (r, w)
    }

    /// Reads from the socket, keeping the readiness flags true to the contract of [`Net`].
    #[inline]
    pub(crate) fn read<N: Net>(&mut self, net: &mut N, buf: &mut [u8]) -> Result<usize, NetError> {
        if !self.readable {
            return Err(NetError::new(ErrorKind::WouldBlock));
        }
        match net.read(self.sock, buf) {
            // Less than asked for does not mean that nothing is left: only `WouldBlock` is a
            // promise of an event.
            Ok(n) => Ok(n),
            Err(e) => {
                if e.is_would_block() {
                    self.drained();
                }
                Err(e)
            }
        }
    }

    /// There is nothing to be read now.
    pub(crate) fn drained(&mut self) {
        self.readable = false;
        self.hangup = false;
    }

    /// Writes to the socket, keeping the readiness flags true to the contract of [`Net`].
    #[inline]
    pub(crate) fn write<N: Net>(&mut self, net: &mut N, bufs: &[IoSlice<'_>]) -> Result<usize, NetError> {
        if !self.writable {
            return Err(NetError::new(ErrorKind::WouldBlock));
        }
        let result = net.write(self.sock, bufs);
        if result.as_ref().is_err_and(NetError::is_would_block) {
            self.writable = false;
        }
        result
    }
}

/// The socket as rustls wants it.
pub(crate) struct SocketIo<'a, N> {
    pub(crate) net: &'a mut N,
    pub(crate) sock: Sock,
    pub(crate) readable: &'a mut bool,
    pub(crate) writable: &'a mut bool,
    /// The first error that was not "not now".
    pub(crate) error: Option<NetError>,
}

fn would_block() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

impl<N: Net> SocketIo<'_, N> {
    fn fail<T>(&mut self, e: NetError) -> io::Result<T> {
        self.error = Some(e);
        Err(io::ErrorKind::Other.into())
    }
}

impl<N: Net> io::Read for SocketIo<'_, N> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if !*self.readable {
            return Err(would_block());
        }
        match self.net.read(self.sock, buf) {
            Ok(n) => Ok(n),
            Err(e) if e.is_would_block() => {
                *self.readable = false;
                Err(would_block())
            }
            Err(e) => self.fail(e),
        }
    }
}

impl<N: Net> io::Write for SocketIo<'_, N> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if !*self.writable {
            return Err(would_block());
        }
        match self.net.write(self.sock, bufs) {
            Ok(n) => Ok(n),
            Err(e) if e.is_would_block() => {
                *self.writable = false;
                Err(would_block())
            }
            Err(e) => self.fail(e),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
