//! [`Town`]: a client, a server with both families on ways of their own, and a name server.
//!
//! ```text
//!   client ──access── internet ──v4 way── server
//!                        ├─────v6 way──── server
//!                        └──────────────── name server
//! ```
//!
//! *Responsible for* the topology and for requests that fit it. *Not for* driving it (`playground`).

use crate::flow::{FlowId, Manner};
use crate::names::{NameServer, Temper};
use crate::playground::{Node, Playground};
use crate::security;
use core::time::Duration;
use neater_base::net::{InterfaceKind, NameConfig, Net};
use neater_base::{Rng, WallTime};
use neater_dns::Zone;
use neater_engine::{
    EngineConfig, EstablishmentError, Limits, ListenerId, LocalEndpoint, RemoteEndpoint, Request, RequestOptions,
    SendOptions, Stack,
};
use neater_link::{Family, Filter, LinkConfig, Match, Protocol};
use neater_netsim::{IfaceId, LinkId, SimNet, World};
use neater_property::{Role, TransportProperties, profile};
use neater_tls::{SecurityParameters, TlsVersion};
use std::net::{IpAddr, SocketAddr};

/// The client's IPv4 address.
pub const CLIENT_V4: &str = "192.0.2.1";
/// The client's IPv6 address.
pub const CLIENT_V6: &str = "2001:db8::1";
/// The server's IPv4 address.
pub const SERVER_V4: &str = "198.51.100.1";
/// The server's IPv6 address.
pub const SERVER_V6: &str = "2001:db8:1::1";
/// The name server's address.
pub const NAME_SERVER: &str = "203.0.113.53";
/// The server's name.
pub const SERVER_NAME: &str = "server.test";
/// The port that servers listen on, unless told otherwise.
pub const SERVER_PORT: u16 = 443;
/// The way to the name server, one way.
pub const NAMES_DELAY: Duration = Duration::from_millis(5);

/// The zone of the name server, unless it is given another.
#[must_use]
pub fn default_zone() -> String {
    format!("{SERVER_NAME} A {SERVER_V4}\n{SERVER_NAME} AAAA {SERVER_V6}\n")
}

/// What can be wrong with the way of a family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Packets vanish.
    BlackHole,
    /// Packets are dropped and the sender is told.
    Unreachable,
    /// UDP vanishes, as behind many firewalls.
    UdpBlocked,
    /// UDP is dropped and the sender is told.
    UdpRejected,
    /// TCP vanishes.
    TcpBlocked,
}

impl Fault {
    fn filters(self, family: Family) -> Vec<Filter> {
        match self {
            Self::None => Vec::new(),
            Self::BlackHole => vec![Filter::drop(Match::Family(family))],
            Self::Unreachable => vec![Filter::reject(Match::Family(family))],
            Self::UdpBlocked => vec![Filter::drop(Match::Protocol(Protocol::Udp))],
            Self::UdpRejected => vec![Filter::reject(Match::Protocol(Protocol::Udp))],
            Self::TcpBlocked => vec![Filter::drop(Match::Protocol(Protocol::Tcp))],
        }
    }
}

/// What a town is like.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything random follows from it.
    pub seed: u64,
    /// Towards the server and back, by IPv4; the access link's properties come on top.
    pub v4: (LinkConfig, LinkConfig),
    /// The same by IPv6.
    pub v6: (LinkConfig, LinkConfig),
    /// What is wrong with the ways to the server.
    pub faults: (Fault, Fault),
    /// The client's link up and down.
    pub access: (LinkConfig, LinkConfig),
    /// What the name server knows.
    pub zone: String,
    /// What is wrong with it.
    pub temper: Temper,
    /// More lines of the client's resolver configuration.
    pub resolv_conf: String,
    /// Bounds of the client's engine.
    pub client_limits: Limits,
    /// Bounds of the server's engine.
    pub server_limits: Limits,
    /// Whether the engines of client and server offer congestion marks over SCTP.
    pub sctp_ecn: (bool, bool),
    /// Whether plain TCP may take the engines' fast path.
    pub fast_path: bool,
}

impl Plan {
    /// Unlimited links with 10 ms from the client to the server, nothing lost, and a good name server.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let way = LinkConfig::delay(Duration::from_millis(10));
        Self {
            seed,
            v4: (way.clone(), way.clone()),
            v6: (way.clone(), way),
            faults: (Fault::None, Fault::None),
            access: (LinkConfig::default(), LinkConfig::default()),
            zone: default_zone(),
            temper: Temper::default(),
            resolv_conf: String::new(),
            client_limits: Limits::default(),
            server_limits: Limits::default(),
            sctp_ecn: (false, false),
            fast_path: true,
        }
    }

    /// The same with this delay from the client to the server, one way, by either family.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        self.delays(delay, delay)
    }

    /// The same with these delays one way, by IPv4 and by IPv6.
    #[must_use]
    pub fn delays(mut self, v4: Duration, v6: Duration) -> Self {
        (self.v4.0.delay, self.v4.1.delay) = (v4, v4);
        (self.v6.0.delay, self.v6.1.delay) = (v6, v6);
        self
    }

    /// The same with a rate of the client's link, in bits per second.
    #[must_use]
    pub fn rate(mut self, bits_per_second: u64) -> Self {
        self.access.0.rate = bits_per_second.into();
        self.access.1.rate = bits_per_second.into();
        self
    }

    /// The same with each packet lost with probability `p` on the client's link, in both directions.
    #[must_use]
    pub fn loss(mut self, p: f64) -> Self {
        self.access = (self.access.0.with_loss(p), self.access.1.with_loss(p));
        self
    }

    /// The same with something wrong by IPv4.
    #[must_use]
    pub fn fault_v4(mut self, fault: Fault) -> Self {
        self.faults.0 = fault;
        self
    }

    /// The same with something wrong by IPv6.
    #[must_use]
    pub fn fault_v6(mut self, fault: Fault) -> Self {
        self.faults.1 = fault;
        self
    }

    /// The same with something wrong by both families.
    #[must_use]
    pub fn fault(self, fault: Fault) -> Self {
        self.fault_v4(fault).fault_v6(fault)
    }

    /// The same with another zone.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self
    }

    /// The same with something wrong with the name server.
    #[must_use]
    pub fn temper(mut self, temper: Temper) -> Self {
        self.temper = temper;
        self
    }

    /// Builds it.
    ///
    /// # Panics
    /// If the zone makes no sense.
    #[must_use]
    pub fn build(self) -> Town {
        self.build_over(|net, _| net)
    }

    /// Builds it over something between the engines and the network: `wrap` is given each host's network and randomness.
    ///
    /// # Panics
    /// If the zone makes no sense.
    #[must_use]
    pub fn build_over<N: Net>(self, mut wrap: impl FnMut(SimNet, Rng) -> N) -> Town<N> {
        let world = World::new(self.seed);
        let mut rng = Rng::from_number(self.seed ^ 0x746f_776e);
        let (client, server, names) = (world.add_host("client"), world.add_host("server"), world.add_host("names"));
        let ip = |s: &str| s.parse::<IpAddr>().expect("an address");
        let wired = InterfaceKind::Wired;
        let client_iface = world.add_interface(client, "eth0", wired, &[ip(CLIENT_V4), ip(CLIENT_V6)]);
        let client_links = world.attach(client_iface, self.access.0, self.access.1);
        let way = |name: &str, addr: &str, (to, from): (LinkConfig, LinkConfig), fault: Fault, family| {
            let iface = world.add_interface(server, name, wired, &[ip(addr)]);
            let to = fault.filters(family).into_iter().fold(to, LinkConfig::with_filter);
            let (up, down) = world.attach(iface, from, to);
            Way { iface, to: down, from: up }
        };
        let v4 = way("eth0", SERVER_V4, self.v4, self.faults.0, Family::V4);
        let v6 = way("eth1", SERVER_V6, self.v6, self.faults.1, Family::V6);
        let names_iface = world.add_interface(names, "eth0", wired, &[ip(NAME_SERVER)]);
        world.attach(names_iface, LinkConfig::delay(NAMES_DELAY), LinkConfig::delay(NAMES_DELAY));
        let zone = Zone::parse(&self.zone).unwrap_or_else(|e| panic!("{e}"));
        let name_server = NameServer::install(&world, names, zone, self.temper);
        let resolv_conf = format!("nameserver {NAME_SERVER}\n{}", self.resolv_conf).into_bytes();
        world.set_name_config(client, NameConfig { resolv_conf, hosts: Vec::new() });

        let mut play = Playground::new(world.clone());
        let mut node = |host, number, limits, sctp_ecn| {
            let crypto = security::crypto(self.seed, number);
            let fast_path = self.fast_path;
            let config = EngineConfig { limits, sctp_ecn, fast_path, ..EngineConfig::new(rng.seed(), crypto) };
            let net = wrap(world.net(host), rng.fork());
            play.add(host, net, config)
        };
        let client = node(client, 1, self.client_limits, self.sctp_ecn.0);
        let server = node(server, 2, self.server_limits, self.sctp_ecn.1);
        Town { play, client, server, names: name_server, client_iface, client_links, v4, v6 }
    }
}

/// The server's interface of one family with its links.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The interface.
    pub iface: IfaceId,
    /// The link to the server.
    pub to: LinkId,
    /// The link back.
    pub from: LinkId,
}

/// What a request is for, in the terms of tests.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The stacks that are eligible; empty: those that the properties leave.
    pub stacks: Vec<Stack>,
    /// The properties; `None`: what the stacks are for.
    pub properties: Option<TransportProperties>,
    /// Framing, time limit and the like. Its stacks are set from the above.
    pub options: RequestOptions,
    /// The highest version of TLS.
    pub max_version: TlsVersion,
    /// Application protocols.
    pub alpn: Vec<Vec<u8>>,
    /// Changes the security parameters at last.
    pub security: Option<SecurityParameters>,
}

impl Ask {
    /// A request that only these stacks may serve.
    #[must_use]
    pub fn over(stacks: &[Stack]) -> Self {
        Self {
            stacks: stacks.to_vec(),
            properties: None,
            options: RequestOptions::default(),
            max_version: TlsVersion::Tls13,
            alpn: Vec::new(),
            security: None,
        }
    }

    /// The same with messages framed by a length of four bytes.
    #[must_use]
    pub fn framed(mut self) -> Self {
        self.options.framer = neater_framing::FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
        self
    }

    /// The same with TLS 1.2 at most.
    #[must_use]
    pub fn tls12(mut self) -> Self {
        self.max_version = TlsVersion::Tls12;
        self
    }

    /// The same with a limit on establishment.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// The same with application protocols.
    #[must_use]
    pub fn alpn(mut self, protocols: &[&str]) -> Self {
        self.alpn = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        self
    }

    /// The same with the properties that these words and names ask for.
    ///
    /// # Panics
    /// A word is none.
    #[must_use]
    pub fn needs(self, words: &str) -> Self {
        let parsed = TransportProperties::parse(words).unwrap_or_else(|e| panic!("{e}"));
        self.properties(parsed.properties)
    }

    /// The same with other properties.
    #[must_use]
    pub fn properties(mut self, properties: TransportProperties) -> Self {
        self.properties = Some(properties);
        self
    }

    fn is_secure(&self) -> bool {
        self.stacks.is_empty() || self.stacks.iter().any(|s| s.is_secure())
    }

    /// The security parameters of one role.
    #[must_use]
    pub fn security(&self, role: Role) -> SecurityParameters {
        let mut security = match (&self.security, self.is_secure(), role) {
            (Some(given), ..) => given.clone(),
            (None, false, _) => SecurityParameters::disabled(),
            (None, true, Role::Listen) => security::server_security(),
            (None, true, _) => security::client_security(),
        };
        if self.security.is_none() {
            if self.stacks.contains(&Stack::Dtls) || self.stacks.contains(&Stack::SctpDtls) {
                security = security::on_p256(security);
            }
            security.max_version = self.max_version;
            security.alpn.clone_from(&self.alpn);
        }
        security
    }

    /// The properties: those given, or those that leave the stacks in.
    #[must_use]
    pub fn transport(&self) -> TransportProperties {
        let datagrams = !self.stacks.is_empty() && self.stacks.iter().all(|s| !s.is_stream());
        let usual = if datagrams { profile("unreliable-datagram") } else { None };
        self.properties.clone().or(usual).unwrap_or_default()
    }
}

/// A town that stands.
pub struct Town<N: Net = SimNet> {
    /// The engines in their world.
    pub play: Playground<N>,
    /// The client.
    pub client: Node,
    /// The server.
    pub server: Node,
    /// The name server.
    pub names: NameServer,
    /// The client's interface.
    pub client_iface: IfaceId,
    /// The client's links, up and down.
    pub client_links: (LinkId, LinkId),
    /// The way by IPv4.
    pub v4: Way,
    /// The way by IPv6.
    pub v6: Way,
}

impl<N: Net> core::fmt::Debug for Town<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.play.fmt(f)
    }
}

impl<N: Net> Town<N> {
    /// Compiles a request for a node.
    ///
    /// # Errors
    /// As [`neater_engine::Engine::compile`].
    pub fn compile(&mut self, node: Node, role: Role, ask: &Ask) -> Result<Request, EstablishmentError> {
        let options = RequestOptions { stacks: ask.stacks.clone(), ..ask.options.clone() };
        // Listeners have no time limit of their own.
        let wall: WallTime = self.play.world().wall();
        let engine = self.play.engine(node);
        engine.crypto().clock.set(wall);
        engine.compile(&ask.transport(), &ask.security(role), role, &options)
    }

    /// A request of the client.
    ///
    /// # Panics
    /// If nothing can serve it.
    pub fn request(&mut self, ask: &Ask) -> Request {
        self.compile(self.client, Role::Initiate, ask).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Lets the server listen at a port on all addresses, with a program of this manner.
    ///
    /// # Panics
    /// If it cannot.
    pub fn listen(&mut self, ask: &Ask, port: u16, manner: Manner) -> ListenerId {
        let request = self.compile(self.server, Role::Listen, ask).unwrap_or_else(|e| panic!("{e}"));
        self.play.serve(self.server, manner);
        let local = LocalEndpoint::new().with_port(port);
        self.play.listen(self.server, &request, &[local]).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Opens a connection from the client to the server by IPv4.
    ///
    /// # Panics
    /// If that is impossible from the start.
    pub fn open(&mut self, ask: &Ask, manner: Manner) -> FlowId {
        self.open_to(ask, &[server_v4()], manner)
    }

    /// Opens a connection from the client to the server by its name.
    ///
    /// # Panics
    /// If that is impossible from the start.
    pub fn open_by_name(&mut self, ask: &Ask, manner: Manner) -> FlowId {
        self.open_to(ask, &[server_by_name()], manner)
    }

    /// Opens a connection from the client.
    ///
    /// # Panics
    /// If that is impossible from the start.
    pub fn open_to(&mut self, ask: &Ask, remotes: &[RemoteEndpoint], manner: Manner) -> FlowId {
        let request = self.request(ask);
        self.play.initiate(self.client, &request, remotes, manner).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Lets the server listen and the client connect with the same request, and waits until both have it: the client's
    /// flow and the server's.
    ///
    /// A peer learns of a QUIC stream by its first byte, so the client says one word first; it is taken back from the
    /// books of both flows before their programs begin to behave as they are told.
    ///
    /// # Panics
    /// If it takes longer than 30 s.
    pub fn pair(&mut self, ask: &Ask, client: Manner, server: Manner) -> (FlowId, FlowId) {
        self.listen(ask, SERVER_PORT, Manner::patient());
        let flow = self.open(ask, Manner::patient());
        let (me, before) = (self.server, self.play.accepted(self.server).len());
        let whole = ask.options.framer.frames() || matches!(ask.stacks[..], [Stack::Sctp | Stack::SctpDtls]);
        self.play.say(flow, "!", SendOptions { end_of_message: whole, ..SendOptions::default() });
        let both = self.play.run_until(Duration::from_secs(30), |p| {
            let accepted = p.accepted(me).get(before).copied();
            p.flow(flow).is_ready() && accepted.is_some_and(|s| p.flow(s).count == 1)
        });
        assert!(both, "{:?}, received: {}", self.play.flow(flow).end(), self.play.accepted(me).len());
        let peer = self.play.accepted(me)[before];
        self.play.serve(me, server.clone());
        self.play.restart(flow, client);
        self.play.restart(peer, server);
        (flow, peer)
    }
}

/// The server by IPv4.
#[must_use]
pub fn server_v4() -> RemoteEndpoint {
    SocketAddr::new(SERVER_V4.parse().expect("an address"), SERVER_PORT).into()
}

/// The server by IPv6.
#[must_use]
pub fn server_v6() -> RemoteEndpoint {
    SocketAddr::new(SERVER_V6.parse().expect("an address"), SERVER_PORT).into()
}

/// The server by its name.
#[must_use]
pub fn server_by_name() -> RemoteEndpoint {
    RemoteEndpoint::new().with_host_name(SERVER_NAME).with_port(SERVER_PORT)
}
