//! What goes into a resolver and what comes out of it.
//!
//! *Responsible for* the vocabulary alone: plain data, one variant per fact. *Not responsible for*
//! any behaviour.

use neater_base::Instant;
use neater_base::net::NetError;
use std::net::{IpAddr, SocketAddr};

use crate::{ResolveError, ServiceBinding};

/// A lookup, as [`crate::Resolver::lookup`] named it. Not used again before 2³² further lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookupId(pub u32);

/// A socket that the resolver asked for. Not used again while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportId(pub u32);

/// What can be asked about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Service bindings.
    Https,
}

impl RecordKind {
    /// All kinds, in the order in which they are asked for (RFC 8305 section 3 wants AAAA right
    /// before A).
    pub(crate) const ALL: [Self; 3] = [Self::Https, Self::Aaaa, Self::A];

    /// All kinds, in the order in which they are reported when several are known at once: a program
    /// that begins with the first AAAA, as in RFC 8305 section 3, knows all addresses by then.
    pub(crate) const REPORT_ORDER: [Self; 3] = [Self::Https, Self::A, Self::Aaaa];

    /// The position in [`RecordKind::ALL`].
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Https => 0,
            Self::Aaaa => 1,
            Self::A => 2,
        }
    }
}

/// What a lookup asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// The host's name: ASCII, absolute if it ends in a dot, in any case.
    pub name: &'a str,
    /// Whether IPv4 addresses are wanted.
    pub a: bool,
    /// Whether IPv6 addresses are wanted.
    pub aaaa: bool,
    /// The port of the service whose bindings are wanted.
    pub https: Option<u16>,
    /// Ask through this interface only; answers are cached for it alone.
    pub interface: Option<u32>,
}

impl Question<'_> {
    pub(crate) fn wants(&self, kind: RecordKind) -> bool {
        match kind {
            RecordKind::A => self.a,
            RecordKind::Aaaa => self.aaaa,
            RecordKind::Https => self.https.is_some(),
        }
    }
}

/// One fact from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A datagram has come in.
    UdpReceived {
        /// Where.
        transport: TransportId,
        /// One whole datagram.
        data: &'a [u8],
    },
    /// A datagram socket could not be opened, sent to, or has an ICMP error.
    UdpFailed {
        /// Which.
        transport: TransportId,
        /// Why.
        error: NetError,
    },
    /// A connection is made.
    TcpConnected {
        /// Which.
        transport: TransportId,
    },
    /// Bytes have come in.
    TcpReceived {
        /// Where.
        transport: TransportId,
        /// Any number of bytes.
        data: &'a [u8],
    },
    /// A connection could not be made or has ended.
    TcpClosed {
        /// Which.
        transport: TransportId,
        /// Why; `None` if the server closed it.
        error: Option<NetError>,
    },
}

/// One effect that the driver carries out, or one result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Open a UDP socket with a port of its own, connected to the server.
    OpenUdp {
        /// Its name from now on.
        transport: TransportId,
        /// The server.
        server: SocketAddr,
        /// Bind it to this interface.
        interface: Option<u32>,
    },
    /// Connect to the server.
    OpenTcp {
        /// Its name from now on.
        transport: TransportId,
        /// The server.
        server: SocketAddr,
        /// Bind it to this interface.
        interface: Option<u32>,
    },
    /// Send a datagram, or write to a connection that is made.
    Send {
        /// Where.
        transport: TransportId,
        /// All of it; over TCP the two-byte length is already there.
        data: Vec<u8>,
    },
    /// Close the socket. Comes once for every transport, also after it has failed.
    Close {
        /// Which.
        transport: TransportId,
    },
    /// One kind of a lookup is answered.
    Answer {
        /// Which lookup.
        lookup: LookupId,
        /// Which kind.
        kind: RecordKind,
        /// The answer.
        answer: Answer,
    },
    /// What is known of the services while the addresses of their targets are looked up, each time
    /// that it is more; the [`Output::Answer`] comes all the same. For each family the addresses of
    /// a target are its own where they are known, and else its hints (RFC 9460 section 7.3: a
    /// client may use them while it waits).
    ServicesSoFar {
        /// Which lookup.
        lookup: LookupId,
        /// As in [`Answer::Services`].
        services: Vec<ServiceBinding>,
    },
    /// Every kind has been answered; the lookup is over.
    Done {
        /// Which lookup.
        lookup: LookupId,
    },
}

/// What is known about one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The addresses of one family, in the server's order; none if the name exists without any.
    Addresses(Vec<IpAddr>),
    /// The service bindings, best first; none if the service has none that we can use.
    Services(Vec<ServiceBinding>),
    /// It could not be found out.
    Failed(ResolveError),
}

/// What [`crate::Resolver::cached`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedAddresses<'a> {
    /// IPv6 addresses.
    pub v6: &'a [IpAddr],
    /// IPv4 addresses.
    pub v4: &'a [IpAddr],
    /// The service bindings for port 443; `None` if they are not known.
    pub https: Option<&'a [ServiceBinding]>,
    /// When the first part of it expires.
    pub expires: Instant,
    /// The name is known not to exist (both families are empty then).
    pub no_such_name: bool,
}
