//! What properties ask of the system, as the values that it knows.

use core::time::Duration;
use neater_property::{CapacityProfile, Preference, Role, SelectionProperty as P, TransportProperties};

/// DSCP for a capacity profile (RFC 9622 section 8.1.6; the lowest drop precedence of each class,
/// RFC 2597).
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

/// Whether a property is required or preferred.
pub(crate) fn wants(properties: &TransportProperties, p: P, role: Role) -> bool {
    matches!(properties.preference(p, role), Preference::Require | Preference::Prefer)
}

/// The system's own default for TCP is two hours, which outlives most NAT bindings.
const DEFAULT_KEEP_ALIVE: Duration = Duration::from_secs(30);

/// After how much silence to probe; `None`: never. A time beyond `connTimeout` switches keep-alives
/// off (RFC 9622 section 8.1.4).
pub(crate) fn keep_alive(properties: &TransportProperties, role: Role) -> Option<Duration> {
    let connection = &properties.connection;
    (wants(properties, P::KeepAlive, role) || connection.keep_alive_timeout.is_some())
        .then(|| connection.keep_alive_timeout.unwrap_or(DEFAULT_KEEP_ALIVE))
        .filter(|k| connection.timeout.is_none_or(|t| *k <= t))
}

/// The rank of a connection's packets in this host's queues, where the connection has a socket of
/// its own: Linux knows bulk (2), best effort (0) and interactive (6) traffic, in this order.
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
