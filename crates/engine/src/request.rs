//! Needs, compiled once and used for many connections.

use crate::Stack;
use crate::carrier::setup::{Sessions, Setups};
use crate::isolate::Isolate;
use crate::policy::Asked;
use core::time::Duration;
use neater_framing::FramerSpec;
use neater_property::neat::NeatProperty;
use neater_property::{Preference, SelectionProperty as P, TransportProperties};
use std::sync::Arc;

/// Properties, security and framing, checked and compiled: which stacks may serve, in which order,
/// with which options.
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
    /// The program does not watch the steps of establishment, there is no framer to be started
    /// after it, and any interface will do.
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
    /// Connections with different numbers share no cached state; 0 leaves it to `isolateSession`
    /// (RFC 9622 section 8.1.10), which gives each connection a number of its own.
    pub isolation: u64,
    /// Only these stacks are eligible; empty: all.
    pub stacks: Vec<Stack>,
    /// They are tried in the order in which they are named, whatever the properties prefer: for
    /// interfaces whose programs give an order of their own.
    pub in_order: bool,
    /// Properties beyond those of RFC 9622 that policies may look at, such as `profile` and
    /// `flow_size`.
    pub policy: Vec<NeatProperty>,
}

impl Request {
    /// The eligible stacks, best first.
    #[must_use]
    pub fn stacks(&self) -> &[Stack] {
        &self.0.stacks
    }

    /// The properties of messages that set none themselves (RFC 9622 section 4).
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

    /// Whether a connection may be over this stack, by itself or in place of one that its peer does
    /// not offer.
    pub(crate) fn admits(&self, stack: Stack) -> bool {
        self.stacks.iter().any(|s| *s == stack || s.offered_instead() == Some(stack))
    }
}

/// The stacks that are named, or all; see [`Stack::is_on_request`].
pub(crate) fn eligible(needs: &neater_property::Needs, named: &[Stack]) -> Vec<Stack> {
    let is = |s: &Stack| match named.is_empty() {
        true => !s.is_on_request() || asks_for_streams_of_messages(needs),
        false => named.contains(s),
    };
    Stack::ALL.into_iter().filter(is).collect()
}

/// Whether the program itself asks for several streams of messages with their boundaries, which the
/// stacks that are tried on request have without a framer.
fn asks_for_streams_of_messages(needs: &neater_property::Needs) -> bool {
    [P::PreserveMsgBoundaries, P::Multistreaming]
        .into_iter()
        .all(|p| needs.explicit.contains(p) && needs.preference(p) > Preference::NoPreference)
}

/// The recommended Connection Attempt Delay of RFC 8305 section 8.
const DEFAULT_ATTEMPT_DELAY: u64 = 250_000_000;

/// In nanoseconds. The cached outcome is tried alone for as long, which must not be longer than all
/// may take.
pub(crate) fn attempt_delay(properties: &TransportProperties, timeout: Option<Duration>) -> u64 {
    properties.attempt_delay().map_or(DEFAULT_ATTEMPT_DELAY, nanos).min(timeout.map_or(u64::MAX, nanos))
}

pub(crate) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
