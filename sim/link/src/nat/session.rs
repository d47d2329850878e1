//! What passes between one inside endpoint and one peer, and how long a box remembers it.

use super::config::NatConfig;
use crate::config::Protocol;
use core::time::Duration;
use neater_base::Instant;

/// The flags of a TCP segment that a box looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFlags {
    /// It opens a direction.
    pub syn: bool,
    /// It acknowledges.
    pub ack: bool,
    /// It closes a direction.
    pub fin: bool,
    /// It resets.
    pub rst: bool,
}

/// The way of a packet through a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Out,
    In,
}

/// One inside endpoint and one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    /// When it was kept alive last.
    last: Instant,
    /// The inside endpoint has sent to the peer: it may answer.
    pub(super) invited: bool,
    /// Which directions were opened and closed: out, in.
    opened: [bool; 2],
    closed: [bool; 2],
    reset: bool,
}

impl Session {
    pub(super) fn new(now: Instant) -> Self {
        Self { last: now, invited: false, opened: [false; 2], closed: [false; 2], reset: false }
    }

    /// Takes note of a packet that passes.
    pub(super) fn pass(&mut self, now: Instant, config: &NatConfig, protocol: Protocol, way: Way, tcp: TcpFlags) {
        let refreshes = way == Way::Out || protocol != Protocol::Udp || config.udp_refresh_inbound;
        if refreshes {
            self.last = self.last.max(now);
        }
        self.invited |= way == Way::Out;
        if protocol == Protocol::Tcp {
            let side = way as usize;
            if tcp.syn {
                // A new connection with the same addresses.
                if self.reset || self.closed == [true; 2] {
                    (self.opened, self.closed, self.reset) = ([false; 2], [false; 2], false);
                }
                self.opened[side] = true;
            } else if !tcp.rst && self.opened == [false; 2] {
                // Adopted in its midst.
                self.opened = [true; 2];
            }
            self.closed[side] |= tcp.fin;
            self.reset |= tcp.rst;
        }
    }

    fn timeout(&self, config: &NatConfig, protocol: Protocol) -> Duration {
        match protocol {
            Protocol::Udp => config.udp_timeout,
            Protocol::Tcp if self.opened == [true; 2] && self.closed != [true; 2] && !self.reset => {
                config.tcp_established
            }
            Protocol::Tcp => config.tcp_transitory,
            _ => config.other_timeout,
        }
    }

    /// When it is forgotten.
    pub(super) fn ends(&self, config: &NatConfig, protocol: Protocol) -> Instant {
        self.last + self.timeout(config, protocol)
    }
}
