//! What a request compiles to for each protocol.
//!
//! *Responsible for* the configurations of clients and servers, the options of sockets, and which
//! stacks cannot serve a request because of its security, its role or this host. *Not responsible
//! for* the ranking of the others ([`crate::request`]). Fields are for the protocols; generic code
//! calls the methods that name none.

use crate::Stack;
use crate::context::Context;
use crate::preferences::{dscp, keep_alive, socket_priority, temporary, wants};
use core::time::Duration;
use neater_base::net::{ErrorKind, Net, NetError, SocketOption, SocketOptions};
use neater_policy::Excluded;
use neater_property::{Preference, Role, SecurityLevel, SecurityNeed, SelectionProperty as P, TransportProperties};
use neater_quic::{ClientSetup, Tuning};
pub(crate) use neater_tls::SecurityParameters;
use neater_tls::rustls::{ClientConfig, ServerConfig};
use neater_tls::{Crypto, Protection, SecurityError, SessionStore, TlsVersion};
use std::sync::Arc;

/// QUIC cannot do without an application protocol (RFC 9001 section 8.1); this is ours when the
/// program names none.
const DEFAULT_QUIC_ALPN: &[u8] = b"neater";

/// What the protocols are set up for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requirements<'a> {
    pub(crate) properties: &'a TransportProperties,
    pub(crate) security: &'a SecurityParameters,
    pub(crate) role: Role,
    /// Connections with different numbers share no cached sessions.
    pub(crate) isolation: u64,
}

/// The configurations of all protocols.
#[derive(Clone, Debug)]
pub(crate) struct Setups {
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) quic: Option<ClientSetup>,
    pub(crate) tls_server: Option<Arc<ServerConfig>>,
    pub(crate) quic_server: Option<(Arc<ServerConfig>, Tuning)>,
    /// For connections, and for listeners.
    pub(crate) dtls: DtlsConfigs,
    pub(crate) tcp_options: SocketOptions,
    tls_options: SocketOptions,
    udp_options: SocketOptions,
    /// Whether datagrams of UDP go without a checksum, where that is possible.
    no_checksum: NoChecksum,
    /// After how much silence of a QUIC peer to ask whether it is still there.
    pub(crate) silence: Option<Duration>,
}

/// Cached sessions of one group of connections, which are forgotten when this is dropped.
#[derive(Debug)]
pub(crate) struct Sessions(SessionStore);

impl Drop for Sessions {
    fn drop(&mut self) {
        self.0.forget();
    }
}

impl Setups {
    /// Sets up the protocols of `ranked`. Takes those out of it that cannot serve beside the
    /// others, and returns why.
    ///
    /// # Errors
    /// The security parameters contradict each other, or the only stack cannot have them.
    pub(crate) fn compile<N: Net>(
        cx: &Context<N>,
        requirements: &Requirements<'_>,
        ranked: &mut Vec<Stack>,
    ) -> Result<(Self, Vec<Excluded>), SecurityError> {
        let Requirements { properties, security, role, isolation } = *requirements;
        let crypto = &cx.config.crypto;
        let sockets = socket_options(properties, role);
        let tuning = tuning(properties, role, ranked, cx.limits.datagram_buffer);
        let sessions = SessionStore::global(crypto, isolation);
        let (mut tls, mut quic, mut tls_server, mut quic_server) = (None, None, None, None);
        // Each stack offers its own choice of the application protocols, and not all that the
        // parameters name.
        let all = security.alpn().to_vec();
        let mut parameters = security.clone();
        parameters.alpn.clear();
        // A first message may always be early, unless the program is against it; a listener must
        // ask for what may be a replay (RFC 9622 section 6.2.5).
        parameters.early_data &= match (role, properties.preference(P::ZeroRttMsg, role)) {
            (Role::Listen, p) => p >= Preference::Prefer,
            (_, p) => p >= Preference::NoPreference,
        };
        for stack in &*ranked {
            let alpn = alpn_for(*stack, &all);
            let alpn = if alpn.is_empty() && stack.over_udp() { vec![DEFAULT_QUIC_ALPN] } else { alpn };
            match (stack, role) {
                (Stack::Tls, Role::Listen) => {
                    tls_server = Some(neater_tls::server_config(&parameters, crypto, &alpn, false)?);
                }
                (Stack::Tls, _) => {
                    tls = Some(neater_tls::client_config(&parameters, crypto, &alpn, false, &sessions)?);
                }
                (Stack::Quic | Stack::QuicDatagram, Role::Listen) => {
                    let config = neater_tls::server_config(&parameters, crypto, &alpn, true)?;
                    quic_server = Some((config, tuning.clone()));
                }
                (Stack::Quic | Stack::QuicDatagram, _) => {
                    let config = neater_tls::client_config(&parameters, crypto, &alpn, true, &sessions)?;
                    quic = Some(ClientSetup { tls: config, tuning: tuning.clone() });
                }
                (Stack::Tcp | Stack::Udp | Stack::Sctp | Stack::SctpIp | Stack::SctpDtls | Stack::Dtls, _) => {}
            }
        }
        let (dtls, unfit) = dtls_configs(ranked, security, crypto, role)?;
        let silence = patience(properties, role, &tuning);
        let setups = Self {
            tls,
            quic,
            tls_server,
            quic_server,
            dtls,
            tcp_options: sockets.tcp,
            tls_options: sockets.tls,
            udp_options: sockets.udp,
            no_checksum: NoChecksum::of(properties, role),
            silence,
        };
        Ok((setups, unfit))
    }

    /// The same, with cached sessions of their own: at most so many, for so long at most.
    pub(crate) fn isolated(
        &self,
        crypto: &Crypto,
        isolation: u64,
        sessions: (Option<usize>, Option<Duration>),
    ) -> (Self, Sessions) {
        let store = SessionStore::global(crypto, isolation);
        let own = |config: &Arc<_>, for_quic| neater_tls::with_sessions(config, sessions, for_quic, &store);
        let tls = self.tls.as_ref().map(|config| own(config, false));
        let quic = self.quic.as_ref().map(|q| ClientSetup { tls: own(&q.tls, true), tuning: q.tuning.clone() });
        (Self { tls, quic, ..self.clone() }, Sessions(store))
    }

    /// What the sockets of a stack are opened with, wherever they lead.
    pub(crate) fn socket_options(&self, stack: Stack) -> &SocketOptions {
        match stack {
            Stack::Tcp => &self.tcp_options,
            Stack::Tls => &self.tls_options,
            _ => &self.udp_options,
        }
    }

    /// What a stack's socket towards, or at, an address of this family is opened with besides.
    ///
    /// # Errors
    /// It cannot do what was asked.
    pub(crate) fn option_for_family(&self, stack: Stack, v4: bool) -> Result<Option<SocketOption>, NetError> {
        match self.no_checksum {
            _ if stack != Stack::Udp => Ok(None),
            NoChecksum::No => Ok(None),
            NoChecksum::May | NoChecksum::Must if v4 => Ok(Some(SocketOption::NoUdpChecksum(true))),
            NoChecksum::May => Ok(None),
            NoChecksum::Must => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Whether a stack was set up for listeners.
    pub(crate) fn may_listen(&self, stack: Stack) -> bool {
        match stack {
            Stack::Tls => self.tls_server.is_some(),
            Stack::Quic | Stack::QuicDatagram => self.quic_server.is_some(),
            Stack::Dtls | Stack::SctpDtls => self.dtls.1.is_some(),
            Stack::Tcp | Stack::Udp | Stack::Sctp | Stack::SctpIp => true,
        }
    }

    /// How QUIC is set up, for clients or for servers.
    pub(crate) fn quic_tuning(&self, client: bool) -> Option<&Tuning> {
        match client {
            true => self.quic.as_ref().map(|setup| &setup.tuning),
            false => self.quic_server.as_ref().map(|(_, tuning)| tuning),
        }
    }

    /// After how much silence of its peer a session is over, where its protocol has such a time.
    pub(crate) fn idle_timeout(&self, client: bool) -> Option<Duration> {
        self.quic_tuning(client)?.idle_timeout
    }
}

/// Removes the stacks that this process cannot use, and returns the reasons.
pub(crate) fn impossible<N: Net>(cx: &mut Context<N>, eligible: &mut Vec<Stack>) -> Vec<Excluded> {
    let ip = Stack::SctpIp;
    if !eligible.contains(&ip) {
        return Vec::new();
    }
    let Some(text) = cx.net.raw_obstacle(SCTP_PROTOCOL) else { return Vec::new() };
    eligible.retain(|s| *s != ip);
    vec![unfit_for(ip, "this host", text.to_owned())]
}

/// The stacks that have the versions of TLS that are wanted, and those that do not: QUIC has no
/// other than 1.3 (RFC 9001 section 4.2). Where it alone is asked for, that is an error elsewhere.
pub(crate) fn of_version(stacks: Vec<Stack>, security: &SecurityParameters) -> (Vec<Stack>, Vec<Excluded>) {
    let tls13 = |s: &Stack| matches!(s, Stack::Quic | Stack::QuicDatagram);
    if security.max_version >= TlsVersion::Tls13 || stacks.iter().all(tls13) {
        return (stacks, Vec::new());
    }
    let (without, rest): (Vec<_>, Vec<_>) = stacks.into_iter().partition(tls13);
    let why = "QUIC has TLS 1.3 alone (RFC 9001 section 4.2), and less is the most that is wanted";
    (rest, without.into_iter().map(|s| unfit_for(s, "security", why.into())).collect())
}

/// A stack that nothing but `text` keeps from serving.
fn unfit_for(stack: Stack, property: &'static str, text: String) -> Excluded {
    let (preference, verdict) = (Preference::NoPreference, neater_policy::Verdict::Excludes);
    let reason = neater_policy::Reason { property, preference, verdict, text };
    Excluded { stack: stack as u16, name: stack.as_str(), reasons: vec![reason] }
}

/// The application protocols that a stack may offer: `h3` is HTTP over QUIC only (RFC 9114 section
/// 3.1), `h2` and `http/1.x` are HTTP over TLS only; anything else may run over either.
fn alpn_for(stack: Stack, all: &[Vec<u8>]) -> Vec<&[u8]> {
    let quic = stack != Stack::Tls;
    let over_quic = |a: &[u8]| a == b"h3" || a.starts_with(b"h3-");
    let over_tls = |a: &[u8]| a == b"h2" || a.starts_with(b"http/");
    all.iter().map(Vec::as_slice).filter(|a| if quic { !over_tls(a) } else { !over_quic(a) }).collect()
}

/// What DTLS clients and servers are set up with.
pub(crate) type DtlsConfigs = (Option<neater_dtls::ClientConfig>, Option<neater_dtls::ServerConfig>);

/// What DTLS needs, if it may serve, alone or below SCTP. It can do less than TLS (no application
/// protocols, no keys but ECDSA): where others may serve, too, DTLS is then excluded, and the
/// reason is reported. On the port of a listener the better ranked protocol over UDP is alone, but
/// for SCTP, which has a UDP port of its own.
fn dtls_configs(
    ranked: &mut Vec<Stack>,
    security: &SecurityParameters,
    crypto: &Crypto,
    role: Role,
) -> Result<(DtlsConfigs, Vec<Excluded>), SecurityError> {
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
            let tuning = neater_dtls::Tuning { handshake_timeout: crate::context::HANDSHAKE_TIMEOUT, ..tuning };
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

/// Whether datagrams of UDP in the clear go without a checksum. Only over IPv4 they can (RFC 8200
/// section 8.1); what has its own authentication is no worse off with one.
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
        // Not for TCP: what Linux makes of it there is an error of the socket's, although the
        // connection goes on.
        udp.set.push(SocketOption::IcmpErrors(true));
    }
    // Where the peer or the way there has none of it, it is TCP (RFC 8684 section 3.7).
    tcp.multipath = properties.multipath(role) != neater_property::Multipath::Disabled;
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

/// How much security is asked for.
pub(crate) fn security_need(security: &SecurityParameters) -> SecurityNeed {
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

/// The idle timeout that peers commonly have. What this one has is not known; if it is shorter than
/// a third of this, the connection ends with it.
const COMMON: Duration = Duration::from_secs(30);

/// After how much silence to ask whether the peer is still there; `None`: the program does not want
/// that.
fn patience(properties: &TransportProperties, role: Role, tuning: &Tuning) -> Option<Duration> {
    let unwanted = matches!(properties.preference(P::KeepAlive, role), Preference::Avoid | Preference::Prohibit);
    let idle = tuning.idle_timeout.unwrap_or(COMMON).min(COMMON);
    (!unwanted).then_some(idle / 3)
}

/// SCTP's number among the protocols over IP (RFC 9260 section 1.5).
pub(crate) const SCTP_PROTOCOL: u8 = 132;
