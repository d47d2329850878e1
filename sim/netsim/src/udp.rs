//! UDP and UDP-Lite: datagrams in and out of a host.

use crate::host::Host;
use crate::packet::{Body, Icmp, IcmpKind, Packet, UDP_HEADER, covered, ip_header};
use crate::sim::{Event, Sim};
use crate::socket::{Kind, MAX_ICMP_ERRORS, Socket};
use crate::world::{HostId, IfaceId};
use bytes::Bytes;
use neater_base::net::{Ecn, ErrorKind, IcmpError, Ready, RecvBatch, RecvMeta, Sock, SocketOptions, Token, Transmit};
use neater_base::{Instant, Key};
use neater_link::Protocol;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Receive and send buffer unless an option says otherwise, in bytes (Linux: net.core.rmem_default).
pub(crate) const BUFFER: usize = 208 * 1024;
/// The largest payload over IPv4: 65,535 less the IP and UDP headers.
pub(crate) const MAX_PAYLOAD_V4: usize = 65_507;
/// The largest payload over IPv6: 65,535 less the UDP header.
pub(crate) const MAX_PAYLOAD_V6: usize = 65_527;
/// Segments of one [`Transmit`] of UDP.
const MAX_SEGMENTS: usize = 10;
/// What a datagram costs of a receive buffer besides its payload, so that empty ones are bounded too.
const BOOKKEEPING: usize = 64;

/// A datagram that waits to be received.
#[derive(Debug)]
pub(crate) struct Datagram {
    source: SocketAddr,
    local: IpAddr,
    interface: u32,
    ecn: Ecn,
    payload: Bytes,
}

/// What a UDP-Lite socket says of checksums, in bytes from the beginning of the header; 0 is the whole datagram (RFC 3828
/// section 3.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lite {
    /// What they cover of datagrams that it sends.
    pub(crate) coverage: u16,
    /// What they must cover of datagrams that it receives, if not all.
    pub(crate) least: u16,
}

impl Lite {
    /// As Linux has it: all is covered that is sent, and whatever is covered is received.
    const DEFAULT: Self = Self { coverage: 0, least: UDP_HEADER as u16 };

    /// Whether a datagram of `len` bytes of payload is covered far enough to be received.
    fn takes(self, coverage: u16, len: usize) -> bool {
        let covered = covered(coverage, len);
        covered == UDP_HEADER as usize + len || (self.least > 0 && covered >= self.least.into())
    }
}

/// A datagram of a socket.
pub(crate) fn body(lite: Option<Lite>, payload: Bytes) -> Body {
    match lite {
        None => Body::Udp(payload),
        Some(Lite { coverage, .. }) => {
            // A receiver drops a datagram that claims to be covered further than it goes.
            let coverage = coverage.min(UDP_HEADER as u16 + payload.len() as u16);
            Body::UdpLite { payload, coverage }
        }
    }
}

/// The UDP part of a socket.
#[derive(Debug)]
pub(crate) struct UdpSocket {
    /// UDP-Lite instead of UDP.
    pub(crate) lite: Option<Lite>,
    pub(crate) local: SocketAddr,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) interface: Option<u32>,
    pub(crate) reuse: bool,
    pub(crate) temporary: Option<bool>,
    pub(crate) dont_fragment: bool,
    /// Datagrams go without a checksum.
    pub(crate) unchecked: bool,
    pub(crate) receive_buffer: usize,
    pub(crate) send_buffer: usize,
    queue: VecDeque<Datagram>,
    queued: usize,
    /// An ICMP error to report once.
    error: Option<ErrorKind>,
    /// What has been sent and has not left the first link: when it will, and how long it is.
    sending: VecDeque<(Instant, usize)>,
    sending_bytes: usize,
}

impl UdpSocket {
    /// What a socket of UDP-Lite says of checksums, for `bytes` of coverage.
    ///
    /// # Errors
    /// `InvalidInput` for less than the header, `Unsupported` for a socket of UDP.
    pub(crate) fn coverage(&mut self, bytes: u16) -> Result<&mut Lite, ErrorKind> {
        if matches!(bytes, 1..=7) {
            return Err(ErrorKind::InvalidInput);
        }
        self.lite.as_mut().ok_or(ErrorKind::Unsupported)
    }

    /// Segments of one [`Transmit`].
    pub(crate) fn max_segments(&self) -> usize {
        if self.lite.is_some() { 1 } else { MAX_SEGMENTS }
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(at, len)) = self.sending.front() {
            if at > now {
                break;
            }
            self.sending.pop_front();
            self.sending_bytes -= len;
        }
    }

    /// When half of the send buffer will be free.
    fn half_free_at(&self) -> Option<Instant> {
        let mut left = self.sending_bytes;
        self.sending.iter().find_map(|(at, len)| {
            left -= len;
            (left <= self.send_buffer / 2).then_some(*at)
        })
    }
}

fn udp_mut(host: &mut Host, key: Key) -> Option<(&mut UdpSocket, &mut bool)> {
    let socket = host.sockets.get_mut(key)?;
    match &mut socket.kind {
        Kind::Udp(udp) => Some((udp, &mut socket.watch.wants_write)),
        _ => None,
    }
}

impl Sim {
    pub(crate) fn udp_open(
        &mut self,
        id: HostId,
        token: Token,
        family: SocketAddr,
        options: &SocketOptions,
    ) -> Result<Sock, ErrorKind> {
        let host = self.host(id);
        host.check_room()?;
        let any: IpAddr = if family.is_ipv4() {
            std::net::Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        };
        let wanted = options.local.unwrap_or(SocketAddr::new(any, 0));
        if wanted.is_ipv4() != family.is_ipv4() {
            return Err(ErrorKind::InvalidInput);
        }
        host.check_local(wanted.ip())?;
        if options.interface.is_some_and(|index| host.iface(index).is_none()) {
            return Err(ErrorKind::InvalidInput);
        }
        let (reuse, is_lite) = (options.reuse_address, options.udp_lite);
        if is_lite && !host.udp_lite {
            return Err(ErrorKind::Unsupported);
        }
        let local = if wanted.port() == 0 {
            let fits = |h: &Host, port| h.udp_fits(SocketAddr::new(wanted.ip(), port), false, is_lite);
            SocketAddr::new(wanted.ip(), host.ephemeral_port(fits)?)
        } else {
            SocketAddr::new(wanted.ip(), wanted.port())
        };
        if !host.udp_fits(local, reuse, is_lite) {
            return Err(ErrorKind::AddrInUse);
        }
        let udp = UdpSocket {
            lite: is_lite.then_some(Lite::DEFAULT),
            local,
            remote: None,
            interface: options.interface,
            reuse,
            temporary: options.temporary_address,
            dont_fragment: false,
            unchecked: false,
            receive_buffer: BUFFER,
            send_buffer: BUFFER,
            queue: VecDeque::new(),
            queued: 0,
            error: None,
            sending: VecDeque::new(),
            sending_bytes: 0,
        };
        let key = host.sockets.insert(Socket::new(token, Kind::Udp(Box::new(udp))));
        host.udp_ports.entry(local.port()).or_default().push(key);
        Ok(Sock(key.to_bits()))
    }

    pub(crate) fn udp_connect(&mut self, id: HostId, key: Key, remote: SocketAddr) -> Result<(), ErrorKind> {
        let (udp, _) = udp_mut(self.host(id), key).ok_or(ErrorKind::NotConnected)?;
        let (local, interface, temporary) = (udp.local, udp.interface, udp.temporary);
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(ErrorKind::FamilyNotSupported);
        }
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(ErrorKind::InvalidInput);
        }
        let found = self.lookup(id, remote.ip(), interface, Some(local.ip()), temporary)?;
        if let Some((udp, _)) = udp_mut(self.host(id), key) {
            udp.remote = Some(SocketAddr::new(remote.ip(), remote.port()));
            udp.local.set_ip(found.source);
        }
        Ok(())
    }

    pub(crate) fn udp_send(&mut self, id: HostId, key: Key, t: &Transmit<'_>) -> Result<(), ErrorKind> {
        let now = self.now;
        let (udp, _) = udp_mut(self.host(id), key).ok_or(ErrorKind::NotConnected)?;
        if let Some(error) = udp.error.take() {
            return Err(error);
        }
        let destination = SocketAddr::new(t.destination.ip(), t.destination.port());
        if udp.local.is_ipv4() != destination.is_ipv4() {
            return Err(ErrorKind::FamilyNotSupported);
        }
        if destination.port() == 0 || destination.ip().is_unspecified() {
            return Err(ErrorKind::InvalidInput);
        }
        let segment = t.segment_size.unwrap_or(t.contents.len().max(1));
        if segment == 0 || t.contents.len().div_ceil(segment) > udp.max_segments() {
            return Err(ErrorKind::InvalidInput);
        }
        let largest = segment.min(t.contents.len());
        let max = if destination.is_ipv4() { MAX_PAYLOAD_V4 } else { MAX_PAYLOAD_V6 };
        if largest > max {
            return Err(ErrorKind::MessageTooLarge);
        }
        let (port, whole, interface, temporary) = (udp.local.port(), udp.dont_fragment, udp.interface, udp.temporary);
        let interface = interface.or(t.interface.filter(|_| t.source.is_some()));
        let (unchecked, lite) = (udp.unchecked, udp.lite);
        let source = t.source.unwrap_or(udp.local.ip());
        let found = self.lookup(id, destination.ip(), interface, Some(source), temporary)?;
        let overhead = ip_header(&destination.ip()) + UDP_HEADER;
        let packet_len = overhead + largest as u32;
        // Forbidding fragments sets no bound but the interface's (Linux: IP_PMTUDISC_PROBE, which is what `io/net` asks for):
        // anybody can forge an ICMP error that says less. A train is cut by the interface, which does not fragment.
        if (whole || t.segment_size.is_some()) && packet_len > found.iface_mtu {
            return Err(ErrorKind::MessageTooLarge);
        }
        let (udp, wants_write) = udp_mut(self.host(id), key).ok_or(ErrorKind::NotConnected)?;
        udp.expire(now);
        let total = t.contents.len() + t.contents.len().div_ceil(segment).max(1) * overhead as usize;
        if udp.sending_bytes > 0 && udp.sending_bytes + total > udp.send_buffer {
            if let (false, Some(at)) = (std::mem::replace(wants_write, true), udp.half_free_at()) {
                self.schedule(at, Event::UdpWritable { host: id, key });
            }
            return Err(ErrorKind::WouldBlock);
        }
        let source = SocketAddr::new(found.source, port);
        let pieces = if whole { None } else { Some(found.mtu) };
        let all = Bytes::copy_from_slice(t.contents);
        let first = found.route.first();
        let mut from = 0;
        loop {
            let to = (from + segment).min(all.len());
            let body = body(lite, all.slice(from..to));
            let packet = Packet { source, destination, ecn: t.ecn, pieces, body };
            self.send_parcel(packet, found.route.clone(), unchecked);
            from = to;
            if from >= all.len() {
                break;
            }
        }
        let leaves = first.map_or(now, |link| self.link(link).drained_at());
        if leaves > now
            && let Some((udp, _)) = udp_mut(self.host(id), key)
        {
            udp.sending.push_back((leaves, total));
            udp.sending_bytes += total;
        }
        Ok(())
    }

    /// Half of the send buffer is free again.
    pub(crate) fn udp_drained(&mut self, id: HostId, key: Key) {
        let now = self.now;
        if let Some((udp, _)) = udp_mut(self.host(id), key) {
            udp.expire(now);
            self.host(id).wake_writer(key);
        }
    }

    pub(crate) fn udp_recv(&mut self, id: HostId, key: Key, batch: &mut RecvBatch) -> Result<usize, ErrorKind> {
        batch.metas.clear();
        let socket = self.host(id).sockets.get_mut(key).ok_or(ErrorKind::NotConnected)?;
        let Kind::Udp(udp) = &mut socket.kind else { return Err(ErrorKind::NotConnected) };
        if let Some(error) = udp.error.take() {
            return Err(error);
        }
        for buffer in &mut batch.buffers {
            let Some(datagram) = udp.queue.pop_front() else { break };
            udp.queued -= datagram.payload.len() + BOOKKEEPING;
            // What does not fit is cut off, as by a socket.
            let len = datagram.payload.len().min(buffer.len());
            buffer[..len].copy_from_slice(&datagram.payload[..len]);
            batch.metas.push(RecvMeta {
                source: datagram.source,
                local: Some(datagram.local),
                interface: Some(datagram.interface),
                ecn: datagram.ecn,
                start: 0,
                len,
                stride: len,
            });
        }
        batch.drained = batch.metas.len() < batch.buffers.len();
        socket.watch.wants_read |= batch.drained;
        if batch.metas.is_empty() { Err(ErrorKind::WouldBlock) } else { Ok(batch.metas.len()) }
    }

    /// A datagram has arrived.
    pub(crate) fn udp_input(&mut self, to: IfaceId, packet: &Packet, payload: &Bytes) {
        let id = to.host;
        let (source, destination, ecn) = (packet.source, packet.destination, packet.ecn);
        let coverage = if let Body::UdpLite { coverage, .. } = &packet.body { Some(*coverage) } else { None };
        let host = self.host(id);
        if coverage.is_some() && !host.udp_lite {
            return self.host_icmp(id, packet, IcmpKind::ProtocolUnreachable);
        }
        if let Some(key) = find(host, coverage.is_some(), source, destination, Some(to.index)) {
            let Some((udp, _)) = udp_mut(host, key) else { return };
            if let (Some(lite), Some(coverage)) = (udp.lite, coverage)
                && !lite.takes(coverage, payload.len())
            {
                return;
            }
            let cost = payload.len() + BOOKKEEPING;
            if udp.queued + cost > udp.receive_buffer {
                return;
            }
            udp.queued += cost;
            let (local, interface, payload) = (destination.ip(), to.index, payload.clone());
            udp.queue.push_back(Datagram { source, local, interface, ecn, payload });
            host.wake_reader(key);
            return;
        }
        // Agents and services speak UDP.
        if coverage.is_some() {
            return self.host_icmp(id, packet, IcmpKind::PortUnreachable);
        }
        if let Some(&agent) = self.host(id).agent_ports.get(&destination.port()) {
            return self.agent_udp(agent, id, source, payload);
        }
        if !self.udp_service_input(id, source, destination, payload) {
            self.host_icmp(id, packet, IcmpKind::PortUnreachable);
        }
    }

    /// An ICMP error about a datagram of ours has arrived.
    pub(crate) fn udp_icmp(&mut self, id: HostId, icmp: Icmp, offender: IpAddr) {
        let host = self.host(id);
        let quoted = icmp.quoted;
        let is_lite = quoted.protocol == Protocol::UDP_LITE;
        let Some(key) = find(host, is_lite, quoted.destination, quoted.source, None) else { return };
        let Some(socket) = host.sockets.get_mut(key) else { return };
        let error = icmp.kind.error(quoted.source.is_ipv6());
        let wants = socket.wants_icmp;
        let first = queue_icmp(socket, icmp, offender);
        let Kind::Udp(udp) = &mut socket.kind else { return };
        let too_big = matches!(icmp.kind, IcmpKind::TooBig { .. });
        let reported = wants || (udp.remote.is_some() && (icmp.kind.is_hard() || (too_big && udp.dont_fragment)));
        if reported {
            udp.error = Some(error);
            host.wake_reader(key);
            host.wake_writer(key);
        }
        if first {
            host.wake(key, Ready { error: true, ..Ready::default() });
        }
    }

    /// Sends the answer of a scripted service.
    pub(crate) fn udp_reply(&mut self, id: HostId, from: SocketAddr, to: SocketAddr, payload: Vec<u8>) {
        let Ok(found) = self.lookup(id, to.ip(), None, Some(from.ip()), None) else { return };
        let max = if to.is_ipv4() { MAX_PAYLOAD_V4 } else { MAX_PAYLOAD_V6 };
        if payload.len() > max {
            return;
        }
        let body = Body::Udp(payload.into());
        let packet = Packet { source: from, destination: to, ecn: Ecn::NotEct, pieces: Some(found.mtu), body };
        self.send_packet(packet, found.route);
    }
}

/// Keeps an ICMP error for a socket that wants them. True if it is the first in the queue.
pub(crate) fn queue_icmp(socket: &mut Socket, icmp: Icmp, offender: IpAddr) -> bool {
    if !socket.wants_icmp || socket.icmp.len() >= MAX_ICMP_ERRORS {
        return false;
    }
    let v6 = icmp.quoted.source.is_ipv6();
    let (icmp_type, icmp_code) = icmp.kind.type_and_code(v6);
    socket.icmp.push_back(IcmpError {
        destination: Some(icmp.quoted.destination),
        quoted: icmp.quoted.payload,
        offender: Some(offender),
        icmp_type,
        icmp_code,
        mtu: if let IcmpKind::TooBig { mtu } = icmp.kind { Some(mtu) } else { None },
        error: icmp.kind.error(v6).into(),
    });
    socket.icmp.len() == 1
}

/// The socket that a datagram from `source` to `destination` belongs to, of UDP-Lite or UDP: the most specific one.
fn find(
    host: &Host,
    is_lite: bool,
    source: SocketAddr,
    destination: SocketAddr,
    interface: Option<u32>,
) -> Option<Key> {
    let mut best = None;
    for &key in host.udp_ports.get(&destination.port())? {
        let Some(Socket { kind: Kind::Udp(udp), .. }) = host.sockets.get(key) else { continue };
        let any = udp.local.ip().is_unspecified();
        let local = if any { udp.local.is_ipv4() == destination.is_ipv4() } else { udp.local.ip() == destination.ip() };
        let remote = udp.remote.is_none_or(|r| r == source);
        let through = udp.interface.is_none() || interface.is_none() || udp.interface == interface;
        if udp.lite.is_some() == is_lite && local && remote && through {
            let score = (udp.remote.is_some(), !any, udp.interface.is_some());
            if best.is_none_or(|(s, _)| s < score) {
                best = Some((score, key));
            }
        }
    }
    best.map(|(_, key)| key)
}
