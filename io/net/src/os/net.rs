//! The operations of [`Net`], checked and passed on.

use super::direct::{DirectState, OsDirectStream};
use super::slots::{Datagram, Kind, Writes};
use super::{OsNet, Result, fresh};
use crate::sys::{self, MAX_SEGMENTS, Outgoing, UdpSupport};
use neater_base::net::{
    ErrorKind, IcmpError, Interface, NameConfig, Net, NetError, NetEvent, RecvBatch, Sock, SocketOption, SocketOptions,
    StreamInfo, StreamPaths, Token, Transmit,
};
use neater_base::{Instant, WallTime};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

/// The largest payload of a UDP datagram over IPv4; over IPv6 it is 20 bytes more, which no
/// interface carries anyway.
const MAX_DATAGRAM: usize = 65_507;

/// Returned when the files cannot be read now, and in a child of `fork` whose parent had not read
/// them.
static NO_NAMES: NameConfig = NameConfig { resolv_conf: Vec::new(), hosts: Vec::new() };

const fn invalid() -> NetError {
    NetError::new(ErrorKind::InvalidInput)
}

/// An IPv4 address in IPv6's clothes is an IPv4 address: an IPv6 socket of ours never speaks IPv4.
#[inline]
fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V4(_) => addr,
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => SocketAddr::from((ip, addr.port())),
            None => addr,
        },
    }
}

/// How a batch is cut up.
///
/// # Errors
/// `InvalidInput` for more than [`MAX_SEGMENTS`] segments, `MessageTooLarge` for what no datagram
/// holds.
fn segments(transmit: &Transmit<'_>) -> Result<Option<u16>> {
    let len = transmit.contents.len();
    let size = transmit.segment_size.filter(|size| *size < len);
    if transmit.segment_size == Some(0) || size.is_some_and(|size| len.div_ceil(size) > MAX_SEGMENTS) {
        return Err(invalid());
    }
    let too_large = NetError::new(ErrorKind::MessageTooLarge);
    if size.unwrap_or(len) > MAX_DATAGRAM {
        return Err(too_large);
    }
    size.map(|size| u16::try_from(size).map_err(|_| too_large)).transpose()
}

/// Why is in [`OsNet::not_read`]: a result that fits into registers is worth a few instructions of
/// each read.
struct NotRead;

/// The codepoint that a socket is opened with.
fn dscp_of(options: &SocketOptions) -> u8 {
    let of = |o: &SocketOption| if let SocketOption::Dscp(codepoint) = o { Some(*codepoint) } else { None };
    options.set.iter().rev().find_map(of).unwrap_or(0)
}

impl OsNet {
    /// A datagram socket's descriptor, family and place in the side table.
    fn datagram(&self, sock: Sock) -> Result<(sys::Fd, bool, u32)> {
        self.alive()?;
        let (fd, slot) = self.slots.get(sock)?;
        match slot.kind {
            Kind::Datagram(index) => Ok((fd, slot.v6, index)),
            _ => Err(invalid()),
        }
    }

    /// Takes in the descriptor of a datagram socket.
    fn adopt_datagram(&mut self, fd: sys::Fd, token: Token, side: Datagram, v6: bool) -> Result<Sock> {
        let index = self.datagrams.insert(side);
        let result = self.adopt(fd, token, Kind::Datagram(index), v6);
        if result.is_err() {
            self.datagrams.remove(index);
        }
        result
    }

    /// As [`Net::read`], of what has a direct stream, or of which there is something to report
    /// without a system call.
    #[inline(never)]
    fn read_otherwise(&mut self, sock: Sock, buf: &mut [u8]) -> core::result::Result<usize, NotRead> {
        let result = self.try_to_read(sock, buf);
        self.noted(result)
    }

    #[inline]
    fn try_to_read(&mut self, sock: Sock, buf: &mut [u8]) -> Result<usize> {
        let fd = match self.plain_to_read(sock) {
            Some(fd) => fd,
            None => self.with_direct(sock, DirectState::take_read_error)?,
        };
        if buf.is_empty() {
            // The answer could not be distinguished from the end of the stream.
            return Err(invalid());
        }
        if core::mem::take(&mut self.slots.get_mut(sock)?.1.drained) {
            return Err(NetError::new(ErrorKind::WouldBlock));
        }
        let first = sys::tcp_read_once(fd, buf);
        self.understood(sock, buf, first)
    }

    /// The system has just returned `first` for a read into `buf`.
    #[inline(never)]
    fn read_in_part(&mut self, sock: Sock, buf: &mut [u8], first: isize) -> core::result::Result<usize, NotRead> {
        let result = self.understood(sock, buf, first);
        self.noted(result)
    }

    /// The reason goes to the place that [`NotRead`] describes.
    #[inline]
    fn noted(&mut self, result: Result<usize>) -> core::result::Result<usize, NotRead> {
        result.map_err(|e| {
            self.not_read = e;
            NotRead
        })
    }

    #[inline]
    fn understood(&mut self, sock: Sock, buf: &mut [u8], first: isize) -> Result<usize> {
        let (fd, slot) = self.slots.get_mut(sock)?;
        match sys::told(first, || sys::tcp_read_once(fd, buf)) {
            Ok(n) if n < buf.len() => {
                // A call that is saved for each piece that arrives: by epoll(7), a read of less
                // than was asked for has taken all that a stream had. What comes after it makes an
                // edge, which `turn` sees before the next read.
                slot.drained = n > 0 && !slot.wary;
                if slot.writes == Writes::Untold && slot.drained {
                    // If it cannot be registered, the next read finds out.
                    slot.drained = fresh::tell(&self.poller, fd, sock, slot).is_ok();
                }
                Ok(n)
            }
            Err(e) if e.is_would_block() => {
                // The reader is notified when something arrives.
                fresh::tell(&self.poller, fd, sock, slot)?;
                Err(e)
            }
            result => result,
        }
    }

    /// A stream that has no direct stream.
    #[inline]
    fn plain_to_read(&self, sock: Sock) -> Option<sys::Fd> {
        match self.slots.get(sock) {
            Ok((fd, slot)) if slot.kind == Kind::Stream && !self.guard.forked() => Some(fd),
            _ => None,
        }
    }

    /// As [`Net::write`], of what has a direct stream or comes in pieces.
    #[inline(never)]
    fn write_otherwise(&mut self, sock: Sock, bufs: &[IoSlice<'_>]) -> Result<usize> {
        let fd = match self.plain(sock) {
            Some(fd) => Ok(fd),
            None if !self.guard.forked() && self.slots.get(sock).is_ok_and(|(_, slot)| slot.is_full()) => {
                return Err(NetError::new(ErrorKind::WouldBlock));
            }
            None => self.with_direct(sock, DirectState::take_write_error),
        };
        let result = fd.and_then(|fd| if bufs.is_empty() { Ok(0) } else { sys::tcp_write(fd, bufs) });
        self.not_written(sock, result)
    }

    /// A write has used up the room, as epoll(7) describes for one that took less than it was
    /// given: the writer is notified when there is more, and until then the system need not be
    /// asked.
    #[cold]
    #[inline(never)]
    fn written_in_part(&mut self, sock: Sock) {
        // If it cannot be watched, the next write finds out.
        let _ = self.await_writes(sock);
    }

    /// Makes sure that a blocked writer is notified when there is room.
    #[inline(never)]
    fn not_written(&mut self, sock: Sock, result: Result<usize>) -> Result<usize> {
        if result.as_ref().is_err_and(NetError::is_would_block) {
            self.await_writes(sock)?;
        }
        result
    }

    fn udp_support(&mut self) -> Result<&UdpSupport> {
        match &mut self.udp {
            Some(support) => Ok(support),
            none => Ok(none.insert(UdpSupport::probe()?)),
        }
    }
}

impl Net for OsNet {
    #[inline]
    fn forked(&self) -> bool {
        self.guard.forked()
    }

    fn now(&self) -> Instant {
        sys::boot_time()
    }

    fn wall(&self) -> WallTime {
        sys::wall_time()
    }

    fn connect(&mut self, token: Token, remote: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.alive()?;
        let remote = canonical(remote);
        let fd = sys::tcp_connect(&remote, options)?;
        self.adopt(fd, token, Kind::Connecting, remote.is_ipv6())
    }

    fn connect_result(&mut self, sock: Sock) -> Result<()> {
        self.alive()?;
        let (fd, slot) = self.slots.get_mut(sock)?;
        if slot.kind == Kind::Settled {
            let result = sys::tcp_connect_error(fd);
            slot.kind = if result.is_ok() { Kind::Stream } else { Kind::Failed };
            return result;
        }
        match slot.kind {
            // The kernel's error is empty while the attempt goes on, as after its success: only
            // readiness shows it.
            Kind::Connecting | Kind::Settled => Err(NetError::new(ErrorKind::WouldBlock)),
            Kind::Ended(reason) => {
                slot.kind = Kind::Failed;
                Err(NetError::new(reason))
            }
            Kind::Stream | Kind::Direct => Ok(()),
            Kind::Failed => Err(NetError::new(ErrorKind::NotConnected)),
            Kind::Listener | Kind::Datagram(_) => Err(invalid()),
        }
    }

    fn listen(&mut self, token: Token, local: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.alive()?;
        let local = canonical(local);
        let fd = sys::tcp_listen(&local, options)?;
        self.adopt(fd, token, Kind::Listener, local.is_ipv6())
    }

    fn accept(&mut self, listener: Sock, token: Token) -> Result<(Sock, SocketAddr)> {
        self.alive()?;
        let (fd, slot) = self.slots.get(listener)?;
        if slot.kind != Kind::Listener {
            return Err(invalid());
        }
        let v6 = slot.v6;
        let (fd, peer) = sys::tcp_accept(fd)?;
        Ok((self.adopt_accepted(fd, token, v6)?, peer))
    }

    #[inline(always)]
    fn read(&mut self, sock: Sock, buf: &mut [u8]) -> Result<usize> {
        // Small on purpose: this is what most reads of much cost here.
        if let Ok((fd, slot)) = self.slots.get(sock)
            && slot.kind == Kind::Stream
            && !slot.drained
            && !buf.is_empty()
            && !self.guard.forked()
        {
            let first = sys::tcp_read_once(fd, buf);
            if first == buf.len() as isize {
                return Ok(buf.len());
            }
            return self.read_in_part(sock, buf, first).map_err(|NotRead| self.not_read);
        }
        self.read_otherwise(sock, buf).map_err(|NotRead| self.not_read)
    }

    #[inline(always)]
    fn write(&mut self, sock: Sock, bufs: &[IoSlice<'_>]) -> Result<usize> {
        // Small on purpose: this is what most writes cost here.
        if let [buf] = bufs
            && let Some(fd) = self.plain(sock)
        {
            let first = sys::tcp_write_once(fd, buf);
            return match usize::try_from(first) {
                Ok(n) => {
                    if n < buf.len() {
                        self.written_in_part(sock);
                    }
                    Ok(n)
                }
                Err(_) => self.not_written(sock, sys::told(first, || sys::tcp_write_once(fd, buf))),
            };
        }
        self.write_otherwise(sock, bufs)
    }

    fn shutdown_write(&mut self, sock: Sock) -> Result<()> {
        sys::tcp_shutdown_write(self.stream(sock)?)
    }

    fn close(&mut self, sock: Sock) {
        if let Some(fd) = self.release(sock) {
            sys::close(fd);
        }
    }

    fn abort(&mut self, sock: Sock) {
        let stream = self.slots.get(sock).is_ok_and(|(_, slot)| slot.kind.is_stream());
        if let Some(fd) = self.release(sock) {
            // In a child, a reset would be the parent's connection's.
            if stream && !self.guard.forked() { sys::abort(fd) } else { sys::close(fd) }
        }
    }

    fn direct_stream(&mut self, sock: Sock) -> Option<Box<dyn neater_base::net::DirectStream>> {
        Some(Box::new(OsDirectStream(self.make_direct(sock)?)))
    }

    fn stream_info(&self, sock: Sock) -> Result<StreamInfo> {
        sys::stream_info(self.stream(sock)?)
    }

    fn stream_paths(&self, sock: Sock) -> Option<StreamPaths> {
        sys::stream_paths(self.stream(sock).ok()?)
    }

    fn take_error(&mut self, sock: Sock) -> Option<NetError> {
        if let Err(forked) = self.alive() {
            return Some(forked);
        }
        for said in [DirectState::take_write_error, DirectState::take_read_error] {
            match self.with_direct(sock, said) {
                Err(e) if !e.is_would_block() => return Some(e),
                _ => {}
            }
        }
        match self.stream(sock) {
            Ok(fd) => sys::tcp_connect_error(fd).err(),
            Err(e) => Some(e),
        }
    }

    fn udp(&mut self, token: Token, family: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.alive()?;
        let v6 = options.local.map_or(canonical(family), canonical).is_ipv6();
        let support = self.udp_support()?;
        let fd = sys::udp_open(support, v6, options)?;
        let offload = support.max_segments() > 1 && !options.udp_lite;
        let side = Datagram { peer: None, dscp: dscp_of(options), offload, raw: false };
        self.adopt_datagram(fd, token, side, v6)
    }

    fn udp_lite_obstacle(&mut self) -> Option<&'static str> {
        if self.alive().is_err() {
            return Some("the engine was made in another process");
        }
        sys::udp_lite_obstacle()
    }

    fn raw(&mut self, token: Token, protocol: u8, family: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.alive()?;
        let v6 = options.local.map_or(canonical(family), canonical).is_ipv6();
        // Receiving is as for datagrams.
        self.udp_support()?;
        let fd = sys::raw_open(protocol, v6, options)?;
        let side = Datagram { peer: None, dscp: dscp_of(options), offload: false, raw: true };
        self.adopt_datagram(fd, token, side, v6)
    }

    fn raw_obstacle(&mut self, protocol: u8) -> Option<&'static str> {
        if self.alive().is_err() {
            return Some("the engine was made in another process");
        }
        sys::raw_obstacle(protocol)
    }

    fn udp_connect(&mut self, sock: Sock, remote: SocketAddr) -> Result<()> {
        let (fd, v6, index) = self.datagram(sock)?;
        let remote = canonical(remote);
        if remote.is_ipv6() != v6 {
            return Err(NetError::new(ErrorKind::FamilyNotSupported));
        }
        self.locals.forget(sock);
        sys::udp_connect(fd, &remote)?;
        if let Some(side) = self.datagrams.get_mut(index) {
            side.peer = Some(remote);
        }
        Ok(())
    }

    fn send(&mut self, sock: Sock, transmit: &Transmit<'_>) -> Result<()> {
        let (fd, v6, index) = self.datagram(sock)?;
        let side = self.datagrams.get_mut(index).ok_or(NetError::new(ErrorKind::NotConnected))?;
        let mut destination = canonical(transmit.destination);
        if side.raw {
            // To the system it would be the protocol (raw(7)).
            destination.set_port(0);
        }
        let source = transmit.source.map(|ip| ip.to_canonical());
        if destination.is_ipv6() != v6 || source.is_some_and(|ip| ip.is_ipv6() != v6) {
            return Err(NetError::new(ErrorKind::FamilyNotSupported));
        }
        let out = Outgoing {
            v6,
            // To its peer a connected socket sends without looking for the way again.
            destination: Some(destination).filter(|to| side.peer != Some(*to)),
            source,
            interface: transmit.interface.filter(|_| source.is_some()).unwrap_or_default(),
            dscp: side.dscp,
            ecn: transmit.ecn,
            segment_size: segments(transmit)?,
            contents: transmit.contents,
        };
        sys::udp_send(fd, &out, &mut side.offload)
    }

    fn recv(&mut self, sock: Sock, batch: &mut RecvBatch) -> Result<usize> {
        let (fd, v6, index) = self.datagram(sock)?;
        let Some(support) = &self.udp else { return Err(NetError::new(ErrorKind::NotConnected)) };
        let n = sys::udp_recv(support, fd, batch)?;
        if !v6 && self.datagrams.get(index).is_some_and(|side| side.raw) {
            sys::strip_headers(batch);
        }
        Ok(n)
    }

    fn max_segments(&self, sock: Sock) -> usize {
        let offload =
            self.datagram(sock).ok().and_then(|(_, _, index)| self.datagrams.get(index)).is_some_and(|s| s.offload);
        match &self.udp {
            Some(support) if offload => support.max_segments().clamp(1, MAX_SEGMENTS),
            _ => 1,
        }
    }

    fn take_icmp_error(&mut self, sock: Sock) -> Option<IcmpError> {
        self.alive().ok()?;
        let (fd, slot) = self.slots.get_mut(sock).ok()?;
        if matches!(slot.kind, Kind::Connecting | Kind::Settled)
            && let Err(error) = sys::tcp_connect_error(fd)
        {
            // Taking the last ICMP error takes the socket's own error with it, and the attempt
            // would seem to have succeeded.
            slot.kind = Kind::Ended(error.kind);
        }
        sys::take_icmp_error(fd)
    }

    fn local_addr(&self, sock: Sock) -> Result<SocketAddr> {
        self.alive()?;
        let (fd, slot) = self.slots.get(sock)?;
        if let Some(local) = self.locals.get(sock) {
            return Ok(local);
        }
        let mut local = sys::local_addr(fd)?;
        if let Kind::Datagram(index) = slot.kind
            && self.datagrams.get(index).is_some_and(|side| side.raw)
        {
            // The system puts the protocol there.
            local.set_port(0);
        }
        self.locals.keep(sock, slot.kind, local);
        Ok(local)
    }

    fn descriptor(&self, sock: Sock) -> Option<i32> {
        self.alive().ok()?;
        self.slots.get(sock).ok().map(|(fd, _)| fd)
    }

    fn set(&mut self, sock: Sock, option: SocketOption) -> Result<()> {
        self.alive()?;
        let (fd, slot) = self.slots.get(sock)?;
        sys::set_option(fd, slot.traits(), option)?;
        if let (Kind::Datagram(index), SocketOption::Dscp(codepoint)) = (slot.kind, option)
            && let Some(side) = self.datagrams.get_mut(index)
        {
            side.dscp = codepoint;
        }
        Ok(())
    }

    fn poll(&mut self, events: &mut Vec<NetEvent>) -> bool {
        self.turn(events)
    }

    fn arm(&mut self, deadline: Option<Instant>, again: bool) {
        self.deadline = deadline;
        if self.guard.forked() {
            return;
        }
        self.set_timer(self.next_deadline());
        // Not by way of the waker, which is content with an edge that `poll` has not yet seen: if
        // the array was full, the watcher has seen it.
        if again && !core::mem::replace(&mut self.again, true) {
            self.poller.notify();
        }
    }

    fn interfaces(&self) -> &[Interface] {
        if self.guard.forked() { self.paths.known() } else { self.paths.interfaces(&self.poller) }
    }

    fn source_for(&mut self, remote: IpAddr) -> Option<IpAddr> {
        self.alive().ok()?;
        self.paths.source_for(&self.poller, remote.to_canonical())
    }

    fn name_config_error(&self) -> Option<NetError> {
        match self.alive() {
            Ok(()) => self.names.error(),
            Err(forked) => Some(forked).filter(|_| self.names.known().is_none()),
        }
    }

    fn name_config(&self) -> &NameConfig {
        let known = if self.guard.forked() { self.names.known() } else { self.names.config(&self.poller) };
        known.unwrap_or(&NO_NAMES)
    }
}
