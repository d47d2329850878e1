//! Names of flows, sessions, sockets and deadlines of carriers.
//!
//! *Responsible for* what is inside them, which the rest of the engine only passes on. *Not
//! responsible for* the objects that they name.

use neater_base::Key;
use neater_base::net::Token;
use neater_quic::StreamId;

/// What a connection is carried by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowId {
    None,
    /// A TCP, TLS or UDP socket of its own.
    Channel(Key),
    /// A stream of a QUIC connection.
    Stream {
        quic: Key,
        stream: StreamId,
    },
    /// A stream that waits for the peer's limit.
    StreamPending {
        quic: Key,
    },
    /// The datagrams of a QUIC connection.
    Datagrams {
        quic: Key,
    },
    /// A stream of an SCTP association, or all of one whose peer is not of our kind.
    Sctp {
        sctp: Key,
        /// Its number below, and which use of it above 16 bits.
        stream: u32,
    },
    /// A stream that waits for a number, or an association that is being established.
    SctpPending {
        sctp: Key,
    },
    /// One peer of a shared UDP socket; its connection knows its address.
    Peer {
        channel: Key,
    },
    /// A DTLS session.
    Dtls {
        dtls: Key,
    },
}

impl FlowId {
    /// The socket that it has for itself, if it is no more than that. Its data can be read when its
    /// connection is over.
    pub(crate) const fn own_socket(self) -> Option<Key> {
        match self {
            Self::Channel(key) => Some(key),
            _ => None,
        }
    }

    /// Whether messages keep their boundaries on it, although it is reliable.
    pub(crate) const fn has_messages(self) -> bool {
        matches!(self, Self::Sctp { .. })
    }

    /// Whether its end is known from the silence of its peer alone, so that the time is kept at
    /// which something was sent last.
    pub(crate) const fn ends_by_silence(self) -> bool {
        matches!(self, Self::Peer { .. } | Self::Dtls { .. })
    }

    /// The session of which this waits for a stream; `None`: it does not wait.
    pub(crate) const fn waits_on(self) -> Option<SessionId> {
        match self {
            Self::StreamPending { quic } => Some(SessionId::Quic(quic)),
            Self::SctpPending { sctp } => Some(SessionId::Sctp(sctp)),
            _ => None,
        }
    }

    /// The session by which a cached outcome is tried alone, if this is what a connection is to be
    /// carried by.
    pub(crate) const fn tries(self) -> Option<SessionId> {
        match self {
            Self::Channel(k) => Some(SessionId::Channel(k)),
            Self::Dtls { dtls } => Some(SessionId::Dtls(dtls)),
            flow => flow.waits_on(),
        }
    }

    /// The number of the stream on the wire, where it is one.
    pub(crate) fn stream_number(self) -> Option<u64> {
        match self {
            Self::Stream { stream, .. } => Some(stream.number()),
            Self::Sctp { stream, .. } => Some(u64::from(stream as u16)),
            _ => None,
        }
    }

    /// Whether it is one of the streams of a session.
    pub(crate) const fn is_stream_of_session(self) -> bool {
        matches!(self, Self::Stream { .. } | Self::Sctp { .. })
    }

    /// The session that it shares, or waits for, which ends with the last that uses it.
    pub(crate) const fn session(self) -> Option<SessionId> {
        match self {
            Self::Stream { quic, .. } | Self::Datagrams { quic } | Self::StreamPending { quic } => {
                Some(SessionId::Quic(quic))
            }
            Self::Sctp { sctp, .. } | Self::SctpPending { sctp } => Some(SessionId::Sctp(sctp)),
            Self::None | Self::Channel(_) | Self::Peer { .. } | Self::Dtls { .. } => None,
        }
    }

    /// Whether the peer acknowledges the end of this side's direction, and each direction can end
    /// alone for good. The flow keeps what has arrived when the connection fails.
    pub(crate) const fn acknowledges_end(self) -> bool {
        matches!(self, Self::Stream { .. } | Self::Sctp { .. })
    }

    /// Whether the flow is at its end when all has left: the peer acknowledges nothing.
    pub(crate) const fn ends_when_sent(self) -> bool {
        matches!(self, Self::Datagrams { .. })
    }

    /// Whether a connection that has ended keeps its session as long as the program has it: the
    /// program may open others beside it, or end their session with a code of its own.
    pub(crate) const fn keeps_session(self) -> bool {
        matches!(self, Self::Stream { .. })
    }

    /// Whether it is a socket that carries nothing else.
    pub(crate) const fn has_own_socket(self) -> bool {
        matches!(self, Self::Channel(_))
    }
}

/// What carries an attempt: a socket, or a session of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionId {
    Channel(Key),
    Quic(Key),
    Sctp(Key),
    Dtls(Key),
}

/// A socket of one of the carriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CarrierSocket(pub(in crate::carrier) Socket);

/// What is inside a [`CarrierSocket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::carrier) enum Socket {
    Channel(Key),
    Quic(Key),
    Sctp(Key),
    Dtls(Key),
}

/// The two bits above a key that distinguish the sockets of a token.
const TAG: u32 = 62;
const QUIC: u64 = 1;
/// Above no key, this names no carrier: see [`CarrierSocket::FREE`].
const DTLS: u64 = 2;
const SCTP: u64 = 3;

impl CarrierSocket {
    /// With this, and 0 in the 30 bits below the tag, a token is no carrier's: no key has the
    /// generation 0.
    pub(crate) const FREE: u64 = DTLS << TAG;

    /// The socket of a [`Channel`](super::channel::Channel).
    pub(crate) const fn channel(key: Key) -> Self {
        Self(Socket::Channel(key))
    }

    /// The socket of DTLS sessions.
    pub(in crate::carrier) const fn dtls(key: Key) -> Self {
        Self(Socket::Dtls(key))
    }

    /// The socket, if it is TCP's or UDP's own: [`Carriers::wake`](super::SocketCarrier::wake)
    /// finds out whose.
    #[inline]
    pub(crate) const fn own(self) -> Option<Key> {
        match self.0 {
            Socket::Channel(key) => Some(key),
            _ => None,
        }
    }

    pub(crate) const fn token(self) -> Token {
        Token(match self.0 {
            Socket::Channel(k) => k.to_bits(),
            Socket::Quic(k) => QUIC << TAG | k.to_bits(),
            Socket::Sctp(k) => SCTP << TAG | k.to_bits(),
            Socket::Dtls(k) => DTLS << TAG | k.to_bits(),
        })
    }

    /// `None`: the token is not a carrier's.
    #[inline]
    pub(crate) const fn of(token: Token) -> Option<Self> {
        // Most are.
        if let Some(key) = channel_of(token) {
            return Some(Self(Socket::Channel(key)));
        }
        let bits = token.0 & ((1 << TAG) - 1);
        let key = Key::from_bits(bits);
        match token.0 >> TAG {
            QUIC => Some(Self(Socket::Quic(key))),
            SCTP => Some(Self(Socket::Sctp(key))),
            DTLS if bits >> 32 != 0 => Some(Self(Socket::Dtls(key))),
            _ => None,
        }
    }
}

/// The channel to whose socket a token belongs, if it is one's.
#[inline]
pub(crate) const fn channel_of(token: Token) -> Option<Key> {
    if token.0 >> TAG == 0 { Some(Key::from_bits(token.0)) } else { None }
}

/// A deadline of one of the carriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CarrierTimer(pub(in crate::carrier) Due);

/// What is inside a [`CarrierTimer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::carrier) enum Due {
    /// A channel must have finished its handshake, or its lingering.
    Channel(Key),
    /// A QUIC connection.
    Quic(Key),
    /// A QUIC attempt that was withdrawn has had its time to be answered.
    QuicTrial(Key),
    /// A QUIC connection may have been silent for too long.
    QuicSilence(Key),
    /// The associations of an SCTP port.
    Sctp(Key),
    /// An SCTP attempt that was withdrawn has had its time to be answered.
    SctpTrial(Key),
    /// An SCTP port that is unused has answered for long enough.
    SctpEndpoint(Key),
    /// A DTLS session.
    Dtls(Key),
    /// DTLS clients of a listener's socket that have not proved their address are forgotten.
    DtlsUnverified(Key),
    /// A DTLS client must have finished its handshake with a listener.
    DtlsIncoming(Key),
}
