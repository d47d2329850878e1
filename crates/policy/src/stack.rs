//! What is known before deciding.

use neater_base::net::Interface;
use neater_property::{PropertySet, SecurityLevel};

/// What a protocol stack can do, as the engine states it (RFC 9623 section 3.1 asks for such a
/// list).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackFeatures {
    /// The engine's number for the stack.
    pub id: u16,
    /// Its name, for people.
    pub name: &'static str,
    /// What it provides.
    pub provides: PropertySet,
    /// What it can have or not, as asked: either value can be met.
    pub configurable: PropertySet,
    /// The best security it gives.
    pub security: SecurityLevel,
    /// Whether it always protects what it carries; such a stack needs certificates on the listening
    /// side.
    pub secure: bool,
    /// Whether it can carry a byte stream.
    pub bytes: bool,
    /// Whether it carries messages with their boundaries.
    pub messages: bool,
    /// Round trips until the first byte of the program can be sent; names and address lookups not
    /// counted.
    pub handshake_rtts: u8,
    /// Whether it may deliver a message twice, as UDP does: then it can only be selected with
    /// safelyReplayable (RFC 9622 section 9.1.3.4).
    pub duplicates: bool,
    /// The engine's own order between stacks that are otherwise equal; counts up to 20 either way.
    pub base_score: i32,
}

/// What passes between the program and the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The program reads and writes a byte stream.
    pub bytes_needed: bool,
    /// A framer of the program's divides a byte stream into messages (RFC 9622 section 9.1.2), so
    /// that boundaries are preserved on any stack that carries bytes.
    pub framer: bool,
}

/// How an attempt with a stack ended, the last time this network was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The engine's number for the stack.
    pub stack: u16,
    /// Whether the connection was established.
    pub succeeded: bool,
}

/// What changes between two connections with the same needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// The interfaces of this host.
    pub interfaces: &'a [Interface],
    /// What attempts taught on this network, to this peer; the order does not matter.
    pub history: &'a [Outcome],
}
