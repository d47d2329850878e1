//! Needs, compiled once and used for many connections.

use crate::advised::Asked;
use crate::carrier::quic::silence;
use crate::event::{EstablishmentError, Reason};
use crate::isolate::{Isolate, Sessions};
use crate::{Engine, Stack};
use core::hash::{BuildHasher, Hash, Hasher};
use core::time::Duration;
use neater_base::net::{ErrorKind, Net, NetError, SocketOption, SocketOptions};
use neater_framing::FramerSpec;
use neater_property::neat::NeatProperty;
use neater_property::{
    CapacityProfile, Preference, Role, SecurityLevel, SecurityNeed, SelectionProperty as P, TransportProperties,
};
use neater_quic::{ClientSetup, Tuning};
use neater_tls::{Protection, SecurityParameters, SessionStore, TlsVersion};
use std::sync::Arc;

/// Properties, security and framing, checked and compiled: which stacks may serve, in which order, with which options.
///
/// Cheap to clone. A program that opens many connections with the same needs compiles once.
#[derive(Clone, Debug)]
pub struct Request(pub(crate) Arc<Compiled>);

/// What a request compiles to.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) policy: neater_policy::Request,
    pub(crate) stacks: Vec<Stack>,
    pub(crate) properties: TransportProperties,
    pub(crate) framer: FramerSpec,
    pub(crate) server_name: Option<String>,
    pub(crate) tls: Option<Arc<neater_tls::rustls::ClientConfig>>,
    pub(crate) quic: Option<ClientSetup>,
    pub(crate) tls_server: Option<Arc<neater_tls::rustls::ServerConfig>>,
    pub(crate) quic_server: Option<(Arc<neater_tls::rustls::ServerConfig>, Tuning)>,
    /// For connections, and for listeners.
    pub(crate) dtls: DtlsConfigs,
    pub(crate) fingerprint: u64,
    pub(crate) isolation: u64,
    /// In nanoseconds: it is added to the time at every connect.
    pub(crate) attempt_delay: u64,
    /// Likewise [`RequestOptions::timeout`], or the largest number.
    pub(crate) most_patience: u64,
    pub(crate) tcp_options: SocketOptions,
    pub(crate) tls_options: SocketOptions,
    pub(crate) udp_options: SocketOptions,
    /// Whether datagrams of UDP go without a checksum, where that is possible.
    pub(crate) no_checksum: NoChecksum,
    /// Ask for HTTPS records (RFC 9460): the application protocol is HTTP.
    pub(crate) services: bool,
    /// Timeline entries are reported as events, too.
    pub(crate) observe: bool,
    pub(crate) soft_errors: bool,
    /// After how much silence of a QUIC peer to ask whether it is still there.
    pub(crate) silence: Option<Duration>,
    /// Nobody watches the steps of establishment, there is no framer to be started after it, and any interface will do.
    pub(crate) direct: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) alpn: Vec<Vec<u8>>,
    /// Which directions the program may use (RFC 9622 section 6.2.16).
    pub(crate) may_send: bool,
    pub(crate) may_receive: bool,
    /// `maxSendRate` and `maxRecvRate`, in bit/s (RFC 9622 section 8.1.8).
    pub(crate) rates: (Option<u64>, Option<u64>),
    /// Something is asked of paths besides interfaces, which one of them must have.
    pub(crate) demands_path: bool,
    /// Only IPv6 will do: it alone has temporary addresses (RFC 8981), and one is required.
    pub(crate) only_v6: bool,
    /// Each connection is to share no cached state: it gets a copy with this.
    pub(crate) isolate: Option<Box<Isolate>>,
    /// What policies are asked with.
    pub(crate) asked: Asked,
    /// On a request of such a connection.
    #[allow(dead_code, reason = "it is only dropped")]
    pub(crate) own_sessions: Option<Arc<Sessions>>,
}

/// What a request is compiled from, beside properties and security.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    /// How messages are framed over byte streams.
    pub framer: FramerSpec,
    /// The program wants a byte stream: datagram stacks are not eligible.
    pub bytes: bool,
    /// Report the timeline of establishment as events.
    pub observe: bool,
    /// How long establishment may take in all; `None`: as long as the candidates do.
    pub timeout: Option<Duration>,
    /// Connections with different numbers share no cached state; 0 leaves it to `isolateSession` (RFC 9622 section 8.1.10),
    /// which gives each connection a number of its own.
    pub isolation: u64,
    /// Only these stacks are eligible; empty: all.
    pub stacks: Vec<Stack>,
    /// Properties beyond those of RFC 9622 that policies may look at, such as `profile` and `flow_size`.
    pub policy: Vec<NeatProperty>,
}

impl Request {
    /// The eligible stacks, best first.
    #[must_use]
    pub fn stacks(&self) -> &[Stack] {
        &self.0.stacks
    }

    /// What messages are sent with where nothing else is said (RFC 9622 section 4).
    #[must_use]
    pub fn message_defaults(&self) -> crate::SendOptions {
        (&self.0.properties.message).into()
    }

    /// How policy came to its ranking.
    #[must_use]
    pub fn policy(&self) -> &neater_policy::Request {
        &self.0.policy
    }

    /// The properties it was compiled from.
    #[must_use]
    pub fn properties(&self) -> &TransportProperties {
        &self.0.properties
    }

    /// Whether connections of this request frame messages over byte streams.
    #[must_use]
    pub fn framer(&self) -> &FramerSpec {
        &self.0.framer
    }
}

impl Compiled {
    /// Whether no stack has a handshake, which would show that the peer is there.
    pub(crate) fn has_no_handshake(&self) -> bool {
        self.stacks.iter().all(|s| *s == Stack::Udp)
    }
}

/// The application protocols that a stack may offer: `h3` is HTTP over QUIC only (RFC 9114 section 3.1), `h2` and
/// `http/1.x` are HTTP over TLS only; anything else may run over either.
fn alpn_for(stack: Stack, all: &[Vec<u8>]) -> Vec<&[u8]> {
    let quic = stack != Stack::Tls;
    let over_quic = |a: &[u8]| a == b"h3" || a.starts_with(b"h3-");
    let over_tls = |a: &[u8]| a == b"h2" || a.starts_with(b"http/");
    all.iter().map(Vec::as_slice).filter(|a| if quic { !over_tls(a) } else { !over_quic(a) }).collect()
}

/// Whether an application protocol is a version of HTTP.
fn is_http(alpn: &[u8]) -> bool {
    alpn == b"h2" || alpn == b"h3" || alpn.starts_with(b"http/")
}

/// QUIC cannot do without an application protocol (RFC 9001 section 8.1); this is ours when the program names none.
const DEFAULT_QUIC_ALPN: &[u8] = b"neater";

/// DSCP for a capacity profile (RFC 9622 section 8.1.6; the lowest drop precedence of each class, RFC 2597).
#[must_use]
pub const fn dscp(profile: CapacityProfile) -> u8 {
    match profile {
        CapacityProfile::Default => 0,
        CapacityProfile::Scavenger => 1,                 // LE, RFC 8622
        CapacityProfile::LowLatencyInteractive => 34,    // AF41
        CapacityProfile::LowLatencyNonInteractive => 18, // AF21
        CapacityProfile::ConstantRateStreaming => 26,    // AF31
        CapacityProfile::CapacitySeeking => 10,          // AF11
    }
}

impl<N: Net> Engine<N> {
    /// Checks and compiles needs. Costs microseconds; do it once and use the result for every connection of its kind.
    ///
    /// # Errors
    /// [`Reason::InvalidConfiguration`]: the properties contradict each other, and which.
    /// [`Reason::NoCandidates`]: no stack can serve, with the properties that rule out each.
    /// Nothing has been sent in either case.
    pub fn compile(
        &mut self,
        properties: &TransportProperties,
        security: &SecurityParameters,
        role: Role,
        options: &RequestOptions,
    ) -> Result<Request, EstablishmentError> {
        let invalid = |m: String| EstablishmentError::new(Reason::InvalidConfiguration, m);
        let needs = properties.compile(role).map_err(|e| invalid(e.to_string()))?;
        let need = security_need(security);
        let shape = neater_policy::Shape { bytes_needed: options.bytes, framer: options.framer.frames() };
        let (eligible, unfit) = of_version(eligible(&needs, &options.stacks), security);
        let mut policy = self.rank(&needs, need, shape, eligible, unfit)?;
        let mut ranked: Vec<Stack> = policy.ranked.iter().filter_map(|r| Stack::from_number(r.stack)).collect();
        let connection = &properties.connection;
        let rates = (connection.max_send_rate, connection.max_recv_rate);
        let of_paths = |set: neater_property::PropertySet| set.contains(P::UseTemporaryLocalAddress);
        let demands_path = !needs.pvd.is_empty() || of_paths(needs.require) || of_paths(needs.prohibit);
        let sockets = socket_options(properties, role);
        let tuning = tuning(properties, role, &ranked, self.cx.limits.datagram_buffer);

        let isolation = options.isolation;
        let direct = !options.observe
            && !options.framer.frames()
            && properties.interfaces().is_empty()
            && rates == (None, None)
            && !demands_path;
        let sessions = (security.max_cached_sessions, security.cached_session_lifetime);
        let isolate = (connection.isolate_session && isolation == 0 && role != Role::Listen)
            .then(|| Box::new(Isolate { sessions, direct }));
        let crypto = &self.cx.config.crypto;
        let sessions = SessionStore::global(crypto, isolation);
        let bad_security = |e: neater_tls::SecurityError| invalid(e.to_string());
        let (mut tls, mut quic, mut tls_server, mut quic_server) = (None, None, None, None);
        // Each stack offers its own choice of the application protocols, and not all that the parameters name.
        let all = security.alpn().to_vec();
        let mut parameters = security.clone();
        parameters.alpn.clear();
        // A first message may always be early, unless the program is against it; a listener must ask for what may be a
        // replay (RFC 9622 section 6.2.5).
        parameters.early_data &= match (role, properties.preference(P::ZeroRttMsg, role)) {
            (Role::Listen, p) => p >= Preference::Prefer,
            (_, p) => p >= Preference::NoPreference,
        };
        for stack in &ranked {
            let alpn = alpn_for(*stack, &all);
            let alpn = if alpn.is_empty() && stack.over_udp() { vec![DEFAULT_QUIC_ALPN] } else { alpn };
            match (stack, role) {
                (Stack::Tls, Role::Listen) => {
                    tls_server =
                        Some(neater_tls::server_config(&parameters, crypto, &alpn, false).map_err(bad_security)?);
                }
                (Stack::Tls, _) => {
                    tls = Some(
                        neater_tls::client_config(&parameters, crypto, &alpn, false, &sessions)
                            .map_err(bad_security)?,
                    );
                }
                (Stack::Quic | Stack::QuicDatagram, Role::Listen) => {
                    let config = neater_tls::server_config(&parameters, crypto, &alpn, true).map_err(bad_security)?;
                    quic_server = Some((config, tuning.clone()));
                }
                (Stack::Quic | Stack::QuicDatagram, _) => {
                    let config =
                        neater_tls::client_config(&parameters, crypto, &alpn, true, &sessions).map_err(bad_security)?;
                    quic = Some(ClientSetup { tls: config, tuning: tuning.clone() });
                }
                (Stack::Tcp | Stack::Udp | Stack::Sctp | Stack::SctpIp | Stack::SctpDtls | Stack::Dtls, _) => {}
            }
        }
        let (dtls, unfit) = dtls_configs(&mut ranked, security, crypto, role).map_err(bad_security)?;
        policy.ranked.retain(|r| !unfit.iter().any(|e| e.stack == r.stack));
        policy.excluded.extend(unfit);
        policy.excluded.sort_by_key(|e| e.stack);
        let mut h = foldhash::fast::FixedState::with_seed(3).build_hasher();
        (policy.fingerprint, security.fingerprint(), options.framer.frames(), options.bytes).hash(&mut h);
        security.alpn().hash(&mut h);
        // What has worked with one choice of stacks says nothing where that stack is not eligible.
        ranked.hash(&mut h);
        Ok(Request(Arc::new(Compiled {
            asked: Asked::new(&ranked, &options.policy, h.finish()),
            fingerprint: h.finish(),
            stacks: ranked,
            properties: properties.clone(),
            framer: options.framer.clone(),
            server_name: security.server_name().map(str::to_owned),
            tls,
            quic,
            tls_server,
            quic_server,
            dtls,
            isolation,
            attempt_delay: attempt_delay(properties, options.timeout),
            most_patience: options.timeout.map_or(u64::MAX, nanos),
            tcp_options: sockets.tcp,
            tls_options: sockets.tls,
            udp_options: sockets.udp,
            no_checksum: NoChecksum::of(properties, role),
            services: security.alpn().iter().any(|a| is_http(a)) && need != SecurityNeed::Disabled,
            policy,
            observe: options.observe,
            silence: silence::patience(properties, role, &tuning),
            soft_errors: wants(properties, P::SoftErrorNotify, role),
            direct: direct && isolate.is_none(),
            timeout: options.timeout,
            idle_timeout: connection.timeout,
            alpn: security.alpn().to_vec(),
            may_send: properties.direction() != neater_property::Direction::UnidirectionalReceive,
            may_receive: properties.direction() != neater_property::Direction::UnidirectionalSend,
            rates,
            demands_path,
            only_v6: needs.require.contains(P::UseTemporaryLocalAddress),
            isolate,
            own_sessions: None,
        })))
    }
}

impl<N: Net> Engine<N> {
    /// Ranks the stacks that may serve, of those that this process can have.
    fn rank(
        &mut self,
        needs: &neater_property::Needs,
        need: SecurityNeed,
        shape: neater_policy::Shape,
        mut eligible: Vec<Stack>,
        unfit: Vec<neater_policy::Excluded>,
    ) -> Result<neater_policy::Request, EstablishmentError> {
        let mut impossible = self.impossible(&mut eligible);
        impossible.extend(unfit);
        let stacks: Vec<_> = eligible.iter().map(|s| s.features()).collect();
        let mut policy = neater_policy::compile_with(needs, need, shape, &stacks).map_err(|e| {
            let mut error = EstablishmentError::new(Reason::NoCandidates, "no protocol stack can serve this request");
            error.excluded = e.stacks.iter().chain(&impossible).map(ToString::to_string).collect();
            error
        })?;
        policy.excluded.extend(impossible);
        policy.excluded.sort_by_key(|e| e.stack);
        Ok(policy)
    }

    /// Takes out the stacks that this process cannot have, and says why.
    fn impossible(&mut self, eligible: &mut Vec<Stack>) -> Vec<neater_policy::Excluded> {
        let ip = Stack::SctpIp;
        if !eligible.contains(&ip) {
            return Vec::new();
        }
        let Some(text) = self.cx.net.raw_obstacle(crate::carrier::sctp::PROTOCOL) else { return Vec::new() };
        eligible.retain(|s| *s != ip);
        vec![unfit_for(ip, "this host", text.to_owned())]
    }
}

/// The stacks that have the versions of TLS that are wanted, and those that do not: QUIC has no other than 1.3 (RFC 9001 section 4.2).
/// Where it alone is asked for, that is an error elsewhere.
fn of_version(stacks: Vec<Stack>, security: &SecurityParameters) -> (Vec<Stack>, Vec<neater_policy::Excluded>) {
    let tls13 = |s: &Stack| matches!(s, Stack::Quic | Stack::QuicDatagram);
    if security.max_version >= TlsVersion::Tls13 || stacks.iter().all(tls13) {
        return (stacks, Vec::new());
    }
    let (without, rest): (Vec<_>, Vec<_>) = stacks.into_iter().partition(tls13);
    let why = "QUIC has TLS 1.3 alone (RFC 9001 section 4.2), and less is the most that is wanted";
    (rest, without.into_iter().map(|s| unfit_for(s, "security", why.into())).collect())
}

/// A stack that nothing but `text` keeps from serving.
fn unfit_for(stack: Stack, property: &'static str, text: String) -> neater_policy::Excluded {
    let (preference, verdict) = (Preference::NoPreference, neater_policy::Verdict::Excludes);
    let reason = neater_policy::Reason { property, preference, verdict, text };
    neater_policy::Excluded { stack: stack as u16, name: stack.as_str(), reasons: vec![reason] }
}

/// The stacks that are named, or all; see [`Stack::is_on_request`].
fn eligible(needs: &neater_property::Needs, named: &[Stack]) -> Vec<Stack> {
    let is = |s: &Stack| match named.is_empty() {
        true => !s.is_on_request() || asks_for_streams_of_messages(needs),
        false => named.contains(s),
    };
    Stack::ALL.into_iter().filter(is).collect()
}

/// Whether the program itself says that it wants several streams of messages with their boundaries: what SCTP was made for, and
/// what no other stack has without a framer.
fn asks_for_streams_of_messages(needs: &neater_property::Needs) -> bool {
    [P::PreserveMsgBoundaries, P::Multistreaming]
        .into_iter()
        .all(|p| needs.explicit.contains(p) && needs.preference(p) > Preference::NoPreference)
}

/// What DTLS clients and servers are set up with.
pub(crate) type DtlsConfigs = (Option<neater_dtls::ClientConfig>, Option<neater_dtls::ServerConfig>);

/// What DTLS needs, if it may serve, alone or below SCTP. It can do less than TLS (no application protocols, no keys but ECDSA):
/// where others may serve, too, it then takes no part, and why is told. On the port of a listener the better ranked protocol over UDP
/// is alone, but for SCTP, which has a UDP port of its own.
fn dtls_configs(
    ranked: &mut Vec<Stack>,
    security: &SecurityParameters,
    crypto: &neater_tls::Crypto,
    role: Role,
) -> Result<(DtlsConfigs, Vec<neater_policy::Excluded>), neater_tls::SecurityError> {
    let mut unfit = Vec::new();
    if let Some(at) = ranked.iter().position(|s| *s == Stack::Dtls)
        && role == Role::Listen
        && ranked[..at].iter().any(|s| s.over_udp() && !s.is_sctp())
    {
        let why = "a better protocol has the port over UDP for itself".to_owned();
        unfit.push(unfit_for(ranked.remove(at), "the port", why));
    }
    let tuning = neater_dtls::Tuning::default();
    let make = |security: &SecurityParameters| match role {
        Role::Listen => {
            let tuning = neater_dtls::Tuning { handshake_timeout: crate::carrier::dtls::INCOMING_TIMEOUT, ..tuning };
            neater_dtls::ServerConfig::new(security, crypto, tuning).map(|c| (None, Some(c)))
        }
        _ => neater_dtls::ClientConfig::new(security, crypto, tuning).map(|c| (Some(c), None)),
    };
    let mut made: Option<DtlsConfigs> = None;
    for stack in [Stack::Dtls, Stack::SctpDtls] {
        if !ranked.contains(&stack) || made.is_some() {
            continue;
        }
        // HTTP on streams of SCTP is HTTP/1.1, and there is nothing to agree upon.
        let implied = stack == Stack::SctpDtls && security.alpn().iter().any(|a| a == b"http/1.1");
        let result = if implied {
            let mut bare = security.clone();
            bare.alpn.clear();
            make(&bare)
        } else {
            make(security)
        };
        match result {
            Ok(configs) => made = Some(configs),
            Err(e) if ranked.len() > 1 => {
                ranked.retain(|s| *s != stack);
                unfit.push(unfit_for(stack, "security", e.to_string()));
            }
            Err(e) => return Err(e),
        }
    }
    Ok((made.unwrap_or_default(), unfit))
}

/// The recommended Connection Attempt Delay of RFC 8305 section 8.
const DEFAULT_ATTEMPT_DELAY: u64 = 250_000_000;

/// In nanoseconds. The cached outcome is tried alone for as long, which must not be longer than all may take.
fn attempt_delay(properties: &TransportProperties, timeout: Option<Duration>) -> u64 {
    properties.attempt_delay().map_or(DEFAULT_ATTEMPT_DELAY, nanos).min(timeout.map_or(u64::MAX, nanos))
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// The system's own default for TCP is two hours, which outlives most NAT bindings.
const DEFAULT_KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Whether a property is required or preferred.
fn wants(properties: &TransportProperties, p: P, role: Role) -> bool {
    matches!(properties.preference(p, role), Preference::Require | Preference::Prefer)
}

/// After how much silence to probe; `None`: never. A time beyond `connTimeout` switches keep-alives off (RFC 9622
/// section 8.1.4).
pub(crate) fn keep_alive(properties: &TransportProperties, role: Role) -> Option<Duration> {
    let connection = &properties.connection;
    (wants(properties, P::KeepAlive, role) || connection.keep_alive_timeout.is_some())
        .then(|| connection.keep_alive_timeout.unwrap_or(DEFAULT_KEEP_ALIVE))
        .filter(|k| connection.timeout.is_none_or(|t| *k <= t))
}

/// How QUIC is set up for these properties. What no connection of theirs delivers is not offered:
/// datagrams, or streams of a listener's peer (decision 0034).
fn tuning(properties: &TransportProperties, role: Role, stacks: &[Stack], datagram_buffer: usize) -> Tuning {
    let connection = &properties.connection;
    let datagram_buffer = if stacks.contains(&Stack::QuicDatagram) { datagram_buffer } else { 0 };
    let mut tuning = Tuning { keep_alive: keep_alive(properties, role), datagram_buffer, ..Tuning::default() };
    if role == Role::Listen && !stacks.contains(&Stack::Quic) {
        (tuning.peer_bidi_streams, tuning.peer_uni_streams) = (0, 0);
    }
    if let Some(t) = connection.timeout {
        tuning.idle_timeout = Some(t);
    }
    tuning.migration = properties.multipath(role) != neater_property::Multipath::Disabled;
    if let Some(limit) = connection.group_conn_limit {
        tuning.peer_bidi_streams = tuning.peer_bidi_streams.min(limit);
        tuning.peer_uni_streams = tuning.peer_uni_streams.min(limit);
    }
    tuning
}

/// Whether datagrams of UDP in the clear go without a checksum. Only over IPv4 they can (RFC 8200 section 8.1); what has its own
/// authentication is no worse off with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoChecksum {
    /// They have one.
    No,
    /// They go without where they can.
    May,
    /// They go without, or not at all.
    Must,
}

impl NoChecksum {
    fn of(properties: &TransportProperties, role: Role) -> Self {
        match properties.preference(P::FullChecksumSend, role) {
            Preference::Prohibit => Self::Must,
            Preference::Avoid => Self::May,
            _ => Self::No,
        }
    }

    /// What a socket towards, or at, an address of this family is opened with besides.
    ///
    /// # Errors
    /// It cannot do what was asked.
    pub(crate) fn option(self, stack: Stack, v4: bool) -> Result<Option<SocketOption>, NetError> {
        match self {
            _ if stack != Stack::Udp => Ok(None),
            Self::No => Ok(None),
            Self::May | Self::Must if v4 => Ok(Some(SocketOption::NoUdpChecksum(true))),
            Self::May => Ok(None),
            Self::Must => Err(ErrorKind::Unsupported.into()),
        }
    }
}

/// What the sockets of each kind are opened with.
struct Sockets {
    tcp: SocketOptions,
    tls: SocketOptions,
    udp: SocketOptions,
}

fn socket_options(properties: &TransportProperties, role: Role) -> Sockets {
    let connection = &properties.connection;
    let profile = connection.capacity_profile;
    let (mut udp, mut tcp) = (SocketOptions::default(), SocketOptions::default());
    if dscp(profile) != 0 {
        tcp.set.push(SocketOption::Dscp(dscp(profile)));
        udp.set.push(SocketOption::Dscp(dscp(profile)));
    }
    // After the codepoint, which sets it, too.
    if socket_priority(connection.priority) != 0 {
        tcp.set.push(SocketOption::Priority(socket_priority(connection.priority)));
    }
    if let Some(k) = keep_alive(properties, role) {
        tcp.set.push(SocketOption::KeepAlive(Some(k)));
    }
    if let Some(t) = connection.timeout {
        tcp.set.push(SocketOption::UserTimeout(Some(t)));
    }
    if wants(properties, P::SoftErrorNotify, role) {
        // Not for TCP: what Linux makes of it there is an error of the socket's, although the connection goes on.
        udp.set.push(SocketOption::IcmpErrors(true));
    }
    udp.temporary_address = temporary(properties);
    tcp.temporary_address = udp.temporary_address;
    let mut tls = tcp.clone();
    // The flights of a TLS handshake and the ends of records must not wait for acknowledgements.
    tls.set.push(SocketOption::NoDelay(true));
    if profile.is_low_latency() {
        tcp.set.push(SocketOption::NoDelay(true));
    }
    Sockets { tcp, tls, udp }
}

/// The rank of a connection's packets in this host's queues, where the connection has a socket of its own: Linux knows bulk
/// (2), best effort (0) and interactive (6) traffic, in this order.
pub(crate) const fn socket_priority(conn_priority: u32) -> u8 {
    match conn_priority {
        0..100 => 6,
        100 => 0,
        _ => 2,
    }
}

fn security_need(security: &SecurityParameters) -> SecurityNeed {
    match security.protection {
        Protection::Disabled => SecurityNeed::Disabled,
        Protection::Opportunistic => SecurityNeed::Opportunistic,
        Protection::Required => SecurityNeed::Required {
            minimum: match security.min_version {
                TlsVersion::Tls12 => SecurityLevel::Tls12,
                TlsVersion::Tls13 => SecurityLevel::Tls13,
            },
        },
    }
}

/// What to ask of the source address (RFC 9622 section 6.2.13).
fn temporary(properties: &TransportProperties) -> Option<bool> {
    match properties.explicit_preference(P::UseTemporaryLocalAddress)? {
        Preference::Require | Preference::Prefer => Some(true),
        Preference::Prohibit | Preference::Avoid => Some(false),
        // The default (prefer for Initiate, avoid for Listen) is what systems do anyway.
        Preference::NoPreference => None,
    }
}
