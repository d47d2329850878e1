//! What every part of the engine works with: the network, the time, deadlines, chance, limits and
//! memory.
//!
//! *Responsible for* lending these to whichever part is called, so that a part needs no access to
//! the others. *Not responsible for* any decision. Nothing here names a connection, a race or a
//! protocol.

use crate::carrier::packet::Misrouted;
use crate::config::{EngineConfig, EngineStats, Limits};
use crate::shards::MisroutedDatagram;
use crate::timer::Timer;
use bytes::BytesMut;
use core::time::Duration;
use neater_base::net::{Net, RecvBatch, Sock};
use neater_base::{Instant, Rng, Timers};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A link-local address with the interface it is reached by, as the system writes it on what comes
/// from there (RFC 4007 section 6): a socket with many peers distinguishes them by that.
pub(crate) fn with_scope(addr: SocketAddr, interface: Option<u32>) -> SocketAddr {
    match (addr, interface) {
        (SocketAddr::V6(mut a), Some(index)) if a.scope_id() == 0 && a.ip().is_unicast_link_local() => {
            a.set_scope_id(index);
            a.into()
        }
        _ => addr,
    }
}

/// An incoming connection must have finished its handshake after this long.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections accepted per socket and turn.
pub(crate) const ACCEPT_BUDGET: usize = 64;

/// How many datagrams of other engines one turn keeps. The others are lost, as datagrams may be.
const KEPT_MAX: usize = 256;

/// See the module's documentation.
pub(crate) struct Context<N> {
    pub(crate) net: N,
    /// The time of this turn, or call.
    pub(crate) now: Instant,
    pub(crate) rng: Rng,
    pub(crate) config: EngineConfig,
    pub(crate) limits: Limits,
    pub(crate) timers: Timers<Timer>,
    /// Buffers for received datagrams, between two uses.
    pub(crate) batch: Option<Box<RecvBatch>>,
    /// A buffer for received bytes, between two uses.
    pub(crate) scratch: Vec<u8>,
    /// A buffer for the packet that is being sent.
    pub(crate) packet: Vec<u8>,
    /// Work was left over by a budget: the network is to wake the engine at once.
    pub(crate) again: bool,
    /// Bytes in the send queues of all connections.
    pub(crate) queued: usize,
    /// How many connections there are: as of when a carrier was called that refuses sessions beyond
    /// their limit.
    pub(crate) connections: usize,
    /// Bytes of received datagrams that the program has not taken.
    pub(crate) kept: usize,
    /// What flow-control windows promise beside that.
    pub(crate) windows: Windows,
    /// Datagrams for other engines on the same port, found in this turn.
    pub(crate) misrouted: Vec<crate::MisroutedDatagram>,
    /// When the system last had no descriptor for a connection that was to be accepted, or opened.
    pub(crate) starved: Option<Instant>,
    pub(crate) stats: EngineStats,
}

impl<N: Net> Context<N> {
    /// Keeps a datagram that has arrived at a socket for the engine with this number.
    pub(crate) fn keep_misrouted(
        &mut self,
        sock: Sock,
        engine: u8,
        packet: Misrouted,
        data: impl FnOnce() -> BytesMut,
    ) {
        self.stats.foreign_datagrams += 1;
        if self.misrouted.len() >= KEPT_MAX {
            return;
        }
        if let Ok(local) = self.net.local_addr(sock) {
            self.misrouted.push(MisroutedDatagram { engine, local, packet, data: data() });
        }
    }

    pub(crate) fn new(net: N, config: EngineConfig, rng: Rng) -> Self {
        Self {
            now: net.now(),
            rng,
            limits: config.limits.usable(),
            config,
            net,
            timers: Timers::new(),
            batch: None,
            scratch: Vec::new(),
            packet: Vec::new(),
            again: false,
            queued: 0,
            connections: 0,
            kept: 0,
            windows: Windows::default(),
            misrouted: Vec::new(),
            starved: None,
            stats: EngineStats::default(),
        }
    }

    /// The address that a packet to `addr` would come from, if that can be determined; `None`: the
    /// system knows no way there. Link-local addresses are reached by their interface, whatever the
    /// routes.
    pub(crate) fn route_to(&mut self, addr: SocketAddr) -> Option<Option<IpAddr>> {
        match addr {
            SocketAddr::V6(a) if a.ip().is_unicast_link_local() => Some(None),
            _ => self.net.source_for(addr.ip()).map(Some),
        }
    }

    /// Whether this host has an address of an interface that leads out of its own networks.
    pub(crate) fn has_way_out(&self) -> bool {
        let leads_out = |i: &neater_base::net::Interface| i.up && (i.default_v4 || i.default_v6) && !i.addrs.is_empty();
        self.net.interfaces().iter().any(leads_out)
    }

    /// By how many bytes send windows may grow now.
    pub(crate) fn room_for_windows(&self) -> u64 {
        let all = self.limits.engine_bytes as u64;
        // Queues that are always full keep no other connection slow.
        let share = all.saturating_sub(self.queued as u64).max(all / 2);
        share.saturating_sub(self.windows.grown)
    }

    /// Whether it is time to look at the windows of all sessions, for what they do not need. The
    /// carrier that asks looks at its own; the others do before the next flush, which they see by
    /// [`Windows::looks`].
    pub(crate) fn may_look_at_windows(&mut self) -> bool {
        if self.now < self.windows.look_at {
            return false;
        }
        self.windows.look_at = self.now + LOOK_AGAIN;
        self.windows.looks += 1;
        true
    }

    /// Whether answers may come from this address, at which something has arrived: it is one
    /// host's, and that is this one. It need not be an address of an interface: a route may bring
    /// one of IPv4 here.
    pub(crate) fn is_own(&self, here: Option<IpAddr>) -> bool {
        here.is_some_and(|ip| match ip {
            IpAddr::V4(v4) => !(v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified() || self.is_for_all(v4)),
            // From another IPv6 address Linux sends only if it is configured to.
            IpAddr::V6(_) => self.net.interfaces().iter().any(|i| i.addrs.iter().any(|a| a.addr == ip)),
        })
    }

    /// Whether this is the broadcast address of a network that this host is in (RFC 922 section 7;
    /// the network's own number was another).
    fn is_for_all(&self, ip: Ipv4Addr) -> bool {
        let mut addrs = self.net.interfaces().iter().flat_map(|i| &i.addrs);
        let for_all = |net: Ipv4Addr, prefix: u8| {
            let hosts = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or_default();
            let (host, same) = (ip.to_bits() & hosts, ip.to_bits() & !hosts == net.to_bits() & !hosts);
            prefix < 31 && same && (host == hosts || host == 0)
        };
        let some = addrs.any(|a| matches!(a.addr, IpAddr::V4(net) if for_all(net, a.prefix)));
        (some || for_all(Ipv4Addr::LOCALHOST, 8))
            && !self.net.interfaces().iter().flat_map(|i| &i.addrs).any(|a| a.addr == IpAddr::V4(ip))
    }
}

/// How long after all sessions were looked at for what their windows do not need, it is worth
/// looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the windows of an engine's QUIC connections and SCTP associations have grown.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// Beyond [`neater_quic::Tuning::SEND_WINDOW_MIN`] each, in bytes; and buffers of SCTP
    /// associations, beyond [`crate::Limits::send_buffer`] each.
    pub(crate) grown: u64,
    /// What peers may send beyond [`neater_quic::Tuning::RECEIVE_WINDOW_MIN`] each, in bytes.
    pub(crate) granted: u64,
    /// When all may be looked at again.
    look_at: neater_base::Instant,
    /// How often all were looked at so far.
    pub(crate) looks: u64,
}

impl Windows {
    /// What connections and associations may keep of what they have sent, beyond what each begins
    /// with, in bytes.
    pub(crate) const fn grown(&self) -> u64 {
        self.grown
    }

    /// The buffer of an SCTP association has grown, or become smaller.
    pub(crate) const fn has_grown(&mut self, by: isize) {
        self.grown = self.grown.saturating_add_signed(by as i64);
    }

    /// What peers may send beyond [`neater_quic::Tuning::RECEIVE_WINDOW_MIN`] each, in bytes.
    pub(crate) const fn granted(&self) -> u64 {
        self.granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_link_local_addresses_without_a_scope_get_one() {
        let of = |text: &str, interface| with_scope(text.parse().unwrap(), interface).to_string();
        assert_eq!(of("[fe80::1]:443", Some(7)), "[fe80::1%7]:443");
        assert_eq!(of("[fe80::1%3]:443", Some(7)), "[fe80::1%3]:443");
        assert_eq!(of("[fe80::1]:443", None), "[fe80::1]:443");
        assert_eq!(of("[2001:db8::1]:443", Some(7)), "[2001:db8::1]:443");
        assert_eq!(of("169.254.0.1:443", Some(7)), "169.254.0.1:443");
    }
}
