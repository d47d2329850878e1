//! Needs, compiled once and used for many connections.

use crate::carrier::setup::{self, Requirements, SecurityParameters, Sessions, Setups};
use crate::event::{EstablishmentError, Reason};
use crate::isolate::Isolate;
use crate::policy::Asked;
use crate::{Engine, Stack};
use core::hash::{BuildHasher, Hash, Hasher};
use core::time::Duration;
use neater_base::net::Net;
use neater_framing::FramerSpec;
use neater_property::neat::NeatProperty;
use neater_property::{CapacityProfile, Preference, Role, SecurityNeed, SelectionProperty as P, TransportProperties};
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
    pub(crate) setups: Setups,
    pub(crate) fingerprint: u64,
    pub(crate) isolation: u64,
    /// In nanoseconds: it is added to the time at every connect.
    pub(crate) attempt_delay: u64,
    /// Likewise [`RequestOptions::timeout`], or the largest number.
    pub(crate) most_patience: u64,
    /// Ask for HTTPS records (RFC 9460): the application protocol is HTTP.
    pub(crate) services: bool,
    /// Timeline entries are reported as events, too.
    pub(crate) observe: bool,
    pub(crate) soft_errors: bool,
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
        self.stacks.iter().all(|s| !s.has_handshake())
    }
}

/// Whether an application protocol is a version of HTTP.
fn is_http(alpn: &[u8]) -> bool {
    alpn == b"h2" || alpn == b"h3" || alpn.starts_with(b"http/")
}

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
        let need = setup::security_need(security);
        let shape = neater_policy::Shape { bytes_needed: options.bytes, framer: options.framer.frames() };
        let (eligible, unfit) = setup::of_version(eligible(&needs, &options.stacks), security);
        let mut policy = self.rank(&needs, need, shape, eligible, unfit)?;
        let mut ranked: Vec<Stack> = policy.ranked.iter().filter_map(|r| Stack::from_number(r.stack)).collect();
        let connection = &properties.connection;
        let rates = (connection.max_send_rate, connection.max_recv_rate);
        let of_paths = |set: neater_property::PropertySet| set.contains(P::UseTemporaryLocalAddress);
        let demands_path = !needs.pvd.is_empty() || of_paths(needs.require) || of_paths(needs.prohibit);

        let isolation = options.isolation;
        let direct = self.cx.config.fast_path
            && !options.observe
            && !options.framer.frames()
            && properties.interfaces().is_empty()
            && rates == (None, None)
            && !demands_path;
        let sessions = (security.max_cached_sessions, security.cached_session_lifetime);
        let isolate = (connection.isolate_session && isolation == 0 && role != Role::Listen)
            .then(|| Box::new(Isolate { sessions, direct }));
        let requirements = Requirements { properties, security, role, isolation };
        let (setups, unfit) =
            Setups::compile(&self.cx, &requirements, &mut ranked).map_err(|e| invalid(e.to_string()))?;
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
            setups,
            isolation,
            attempt_delay: attempt_delay(properties, options.timeout),
            most_patience: options.timeout.map_or(u64::MAX, nanos),
            services: security.alpn().iter().any(|a| is_http(a)) && need != SecurityNeed::Disabled,
            policy,
            observe: options.observe,
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
        let mut impossible = setup::impossible(&mut self.cx, &mut eligible);
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
}

/// The stacks that are named, or all; see [`Stack::is_on_request`].
fn eligible(needs: &neater_property::Needs, named: &[Stack]) -> Vec<Stack> {
    let is = |s: &Stack| match named.is_empty() {
        true => !s.is_on_request() || asks_for_streams_of_messages(needs),
        false => named.contains(s),
    };
    Stack::ALL.into_iter().filter(is).collect()
}

/// Whether the program itself says that it wants several streams of messages with their boundaries, which the stacks that are tried
/// on request have without a framer.
fn asks_for_streams_of_messages(needs: &neater_property::Needs) -> bool {
    [P::PreserveMsgBoundaries, P::Multistreaming]
        .into_iter()
        .all(|p| needs.explicit.contains(p) && needs.preference(p) > Preference::NoPreference)
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
pub(crate) fn wants(properties: &TransportProperties, p: P, role: Role) -> bool {
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

/// The rank of a connection's packets in this host's queues, where the connection has a socket of its own: Linux knows bulk
/// (2), best effort (0) and interactive (6) traffic, in this order.
pub(crate) const fn socket_priority(conn_priority: u32) -> u8 {
    match conn_priority {
        0..100 => 6,
        100 => 0,
        _ => 2,
    }
}

/// What to ask of the source address (RFC 9622 section 6.2.13).
pub(crate) fn temporary(properties: &TransportProperties) -> Option<bool> {
    match properties.explicit_preference(P::UseTemporaryLocalAddress)? {
        Preference::Require | Preference::Prefer => Some(true),
        Preference::Prohibit | Preference::Avoid => Some(false),
        // The default (prefer for Initiate, avoid for Listen) is what systems do anyway.
        Preference::NoPreference => None,
    }
}
