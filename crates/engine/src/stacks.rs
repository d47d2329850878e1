//! The protocol stacks this engine has, described for the policy (RFC 9623 section 3.1).

use core::fmt;
use neater_policy::StackFeatures;
use neater_property::{PropertySet, SecurityLevel, SelectionProperty as P};

/// What the protocols of the stacks report when they end a connection.
pub(crate) mod errors {
    pub(crate) use neater_quic::QuicError;
    pub(crate) use neater_sctp::CloseReason;
    pub(crate) use neater_tls::TlsError;
}

/// What programs configure of the protocols.
pub(crate) mod settings {
    pub(crate) use neater_quic::Qlog;
    pub(crate) use neater_tls::Crypto;
}

/// A protocol stack that can carry a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum Stack {
    /// TCP in the clear.
    Tcp = 0,
    /// TLS over TCP.
    Tls = 1,
    /// A stream of a QUIC connection.
    Quic = 2,
    /// Unreliable datagrams of a QUIC connection (RFC 9221).
    QuicDatagram = 3,
    /// UDP in the clear.
    Udp = 4,
    /// A stream of an SCTP association over UDP (RFC 9260, RFC 6951), in the clear.
    Sctp = 5,
    /// A stream of an SCTP association straight over IP (RFC 9260), in the clear: protocol 132,
    /// where this process may open raw sockets.
    SctpIp = 6,
    /// A stream of an SCTP association over DTLS over UDP (RFC 8261).
    SctpDtls = 7,
    /// DTLS over UDP: secure messages, without reliability (RFC 6347, RFC 9147).
    Dtls = 8,
}

/// Ports of which a listener has each once, whatever stacks it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    Tcp,
    Udp,
}

/// What limits the size of a datagram that is not to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramLimit {
    /// The packets of a session that has streams, too.
    Session,
    /// The link.
    Link,
}

impl Stack {
    /// The plainest stream, for which there is a fast path.
    pub(crate) const PLAIN: Self = Self::Tcp;

    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Tcp,
        Self::Tls,
        Self::Quic,
        Self::QuicDatagram,
        Self::Udp,
        Self::Sctp,
        Self::SctpIp,
        Self::SctpDtls,
        Self::Dtls,
    ];

    /// The stacks on which one of our application protocols may be spoken with a peer that names
    /// `theirs`; where it names none, it may speak all of ours.
    pub(crate) fn speaking(ours: &[Vec<u8>], theirs: &[Vec<u8>]) -> Vec<Self> {
        let offers = |quic: bool| {
            let speaks = |a: &Vec<u8>| theirs.is_empty() || theirs.contains(a);
            ours.iter().any(|a| speaks(a) && (a == b"h3" || a.starts_with(b"h3-")) == quic)
        };
        [(Self::Quic, true), (Self::Tls, false)].into_iter().filter(|(_, quic)| offers(*quic)).map(|(s, _)| s).collect()
    }

    /// The stack with this number.
    #[must_use]
    pub fn from_number(n: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|s| *s as u16 == n)
    }

    /// The stack with this name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str().eq_ignore_ascii_case(name)).or(match name {
            "tls" | "TLS" => Some(Self::Tls),
            "sctp" | "SCTP" => Some(Self::Sctp),
            "sctp-ip" => Some(Self::SctpIp),
            "sctp-dtls" => Some(Self::SctpDtls),
            "quic-datagram" => Some(Self::QuicDatagram),
            "dtls" | "DTLS" => Some(Self::Dtls),
            _ => None,
        })
    }

    /// The name that people read.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Tls => "TLS/TCP",
            Self::Quic => "QUIC",
            Self::QuicDatagram => "QUIC datagrams",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP/UDP",
            Self::SctpIp => "SCTP/IP",
            Self::SctpDtls => "SCTP/DTLS",
            Self::Dtls => "DTLS/UDP",
        }
    }

    /// What policies call it: the transport that carries the program's data. TCP and UDP have it
    /// with and without security, which policies name beside it.
    #[must_use]
    pub const fn policy_word(self) -> &'static str {
        match self {
            Self::Tcp | Self::Tls => "TCP",
            Self::Quic => "QUIC",
            Self::QuicDatagram => "QUIC-DATAGRAM",
            Self::Udp | Self::Dtls => "UDP",
            Self::Sctp | Self::SctpIp | Self::SctpDtls => "SCTP",
        }
    }

    /// The same, but `TLS` and `DTLS` where these are what makes it secure.
    pub(crate) const fn policy_name(self) -> &'static str {
        match self {
            Self::Tls => "TLS",
            Self::Dtls => "DTLS",
            stack => stack.policy_word(),
        }
    }

    /// Whether the stack runs over UDP: such stacks tend to be blocked together.
    #[must_use]
    pub const fn over_udp(self) -> bool {
        matches!(self, Self::Quic | Self::QuicDatagram | Self::Udp | Self::Sctp | Self::SctpDtls | Self::Dtls)
    }

    /// Whether it can carry bytes, and not only datagrams. SCTP carries messages, too: as they are,
    /// unless a framer or the byte view of a connection makes a stream of bytes of them.
    #[must_use]
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls | Self::Quic) || self.is_sctp()
    }

    /// Whether bytes go to its socket as they are, and the system reports when it takes more.
    #[must_use]
    pub const fn is_plain_stream(self) -> bool {
        matches!(self, Self::Tcp)
    }

    /// Whether the network may deliver a message twice.
    #[must_use]
    pub const fn may_duplicate(self) -> bool {
        matches!(self, Self::Udp)
    }

    /// Whether its streams carry messages, and take each when all of it is there.
    #[must_use]
    pub const fn takes_whole_messages(self) -> bool {
        self.is_sctp()
    }

    /// What limits the size of a message that leaves in one packet. `None`: it has no datagrams.
    pub(crate) const fn datagram_limit(self) -> Option<DatagramLimit> {
        match self {
            Self::QuicDatagram => Some(DatagramLimit::Session),
            Self::Udp | Self::Dtls => Some(DatagramLimit::Link),
            Self::Tcp | Self::Tls | Self::Quic | Self::Sctp | Self::SctpIp | Self::SctpDtls => None,
        }
    }

    /// The ports at which a listener listens with it. `None`: it has ports of its own.
    pub(crate) const fn ports(self) -> Option<Ports> {
        match self {
            // It has a UDP port for itself, too, or none.
            Self::Sctp | Self::SctpIp | Self::SctpDtls => None,
            Self::Tcp | Self::Tls => Some(Ports::Tcp),
            Self::Quic | Self::QuicDatagram | Self::Udp | Self::Dtls => Some(Ports::Udp),
        }
    }

    /// The port of UDP below the stack's own, where it has one: the one that an endpoint names, or
    /// else the protocol's.
    pub(crate) fn encapsulation_port(self, named: Option<u16>) -> Option<u16> {
        matches!(self, Self::Sctp | Self::SctpDtls).then(|| named.unwrap_or(neater_sctp::UDP_PORT))
    }

    /// Whether it is encrypted and authenticated.
    #[must_use]
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::Tls | Self::Quic | Self::QuicDatagram | Self::SctpDtls | Self::Dtls)
    }

    /// Whether its peer answers before it is established.
    pub(crate) const fn has_handshake(self) -> bool {
        !matches!(self, Self::Udp)
    }

    /// What a peer that does not offer it may offer instead with the same handshake.
    pub(crate) const fn offered_instead(self) -> Option<Self> {
        match self {
            Self::Quic => Some(Self::QuicDatagram),
            Self::QuicDatagram => Some(Self::Quic),
            _ => None,
        }
    }

    /// Whether the first answer of its peer establishes it.
    pub(crate) const fn is_established_by_answer(self) -> bool {
        matches!(self, Self::Tcp)
    }

    /// Whether networks tend to block it, together with all others that are.
    pub(crate) const fn may_be_blocked(self) -> bool {
        self.over_udp()
    }

    /// Whether streams are those of SCTP associations.
    #[must_use]
    pub const fn is_sctp(self) -> bool {
        matches!(self, Self::Sctp | Self::SctpIp | Self::SctpDtls)
    }

    /// Whether it is among the candidates only of requests that name it, or that ask for what it
    /// alone does well: messages with their boundaries on several streams (decision 0023).
    #[must_use]
    pub const fn is_on_request(self) -> bool {
        self.is_sctp()
    }

    /// What it provides, in the terms of RFC 9622 section 6.2.
    #[must_use]
    pub fn features(self) -> StackFeatures {
        let set = |list: &[P]| list.iter().fold(PropertySet::EMPTY, |s, p| s.with(*p));
        let stream = [P::Reliability, P::PreserveOrder, P::FullChecksumSend, P::FullChecksumRecv, P::CongestionControl];
        let base = StackFeatures {
            id: self as u16,
            name: self.as_str(),
            provides: set(&stream),
            configurable: set(&[P::KeepAlive]),
            security: SecurityLevel::None,
            secure: false,
            bytes: true,
            messages: false,
            handshake_rtts: 1,
            duplicates: false,
            base_score: 0,
        };
        match self {
            Self::Tcp => StackFeatures { provides: base.provides.with(P::ActiveReadBeforeSend), base_score: 1, ..base },
            Self::Tls => StackFeatures {
                provides: base.provides.with(P::ActiveReadBeforeSend),
                configurable: base.configurable.with(P::ZeroRttMsg),
                security: SecurityLevel::Tls13,
                secure: true,
                handshake_rtts: 2,
                ..base
            },
            Self::Quic => StackFeatures {
                provides: base.provides.with(P::Multistreaming),
                configurable: set(&[P::KeepAlive, P::ZeroRttMsg]),
                security: SecurityLevel::Tls13,
                secure: true,
                ..base
            },
            Self::QuicDatagram => StackFeatures {
                provides: set(&[
                    P::PreserveMsgBoundaries,
                    P::FullChecksumSend,
                    P::FullChecksumRecv,
                    P::CongestionControl,
                ]),
                configurable: set(&[P::KeepAlive]),
                security: SecurityLevel::Tls13,
                secure: true,
                bytes: false,
                messages: true,
                ..base
            },
            Self::Udp => StackFeatures {
                provides: set(&[P::PreserveMsgBoundaries, P::ZeroRttMsg]),
                configurable: set(&[P::FullChecksumSend, P::FullChecksumRecv, P::SoftErrorNotify]),
                bytes: false,
                messages: true,
                handshake_rtts: 0,
                duplicates: true,
                ..base
            },
            Self::Sctp | Self::SctpIp | Self::SctpDtls => StackFeatures {
                provides: set(&[
                    P::PreserveMsgBoundaries,
                    P::Multistreaming,
                    P::FullChecksumSend,
                    P::FullChecksumRecv,
                    P::CongestionControl,
                ]),
                // Message by message (RFC 3758 for those that need not arrive), and association by
                // association (heartbeats).
                configurable: set(&[P::Reliability, P::PerMsgReliability, P::PreserveOrder, P::KeepAlive]),
                messages: true,
                // UDP gets through where nothing but TCP and UDP does.
                base_score: if matches!(self, Self::SctpIp) { -2 } else { -1 },
                // Two of them are the session's.
                handshake_rtts: if self.is_secure() { 4 } else { 2 },
                security: if self.is_secure() { SecurityLevel::Tls13 } else { SecurityLevel::None },
                secure: self.is_secure(),
                ..base
            },
            // Two round trips in 1.3 and three in 1.2, because servers have the client prove its
            // address first. Records are authenticated and taken once, so that nothing arrives
            // damaged or twice. There is no congestion control.
            Self::Dtls => StackFeatures {
                provides: set(&[P::PreserveMsgBoundaries, P::FullChecksumSend, P::FullChecksumRecv]),
                configurable: set(&[P::SoftErrorNotify]),
                security: SecurityLevel::Tls13,
                secure: true,
                bytes: false,
                messages: true,
                handshake_rtts: 2,
                ..base
            },
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
