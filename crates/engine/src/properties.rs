//! Reading and setting properties of a connection by name (RFC 9622 section 8).
//!
//! What is set on one connection holds for its whole group, except `connPriority` (section 7.4).

use crate::Stack;
use crate::conn::{Conn, ConnectionState};
use neater_property::{
    ConnectionProperties, MessageProperties, Preference, Role, SelectionProperty as P, TransportProperties,
};

/// A property that could not be set, and why. The connection goes on (section 8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetPropertyError(pub(crate) String);

impl core::fmt::Display for SetPropertyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for SetPropertyError {}

/// Why a message cannot choose its reliability.
pub(crate) const NO_RELIABILITY_PER_MESSAGE: &str =
    "msgReliable can only be changed where perMsgReliability was required or preferred";

/// Whether a program has asked for reliability per message. A program that has set it beforehand,
/// for all messages, has asked; unless it prefers no such transport.
pub(crate) fn states_reliability(properties: &TransportProperties) -> bool {
    match properties.preference(P::PerMsgReliability, Role::Initiate) {
        Preference::Require | Preference::Prefer => true,
        Preference::NoPreference => properties.message.reliable.is_some(),
        Preference::Avoid | Preference::Prohibit => false,
    }
}

impl Conn {
    /// Whether a message may request this reliability (`msgReliable`): what its connection does
    /// anyway, and more where reliability per message was asked for (RFC 9622 section 9.1.3.7). A
    /// message that need not arrive may arrive all the same.
    pub(crate) fn may_state_reliability(&self, reliable: Option<bool>) -> bool {
        let properties = &self.request.properties;
        let Some(reliable) = reliable.filter(|_| !states_reliability(properties)) else { return true };
        let wanted = properties.preference(P::Reliability, Role::Initiate) >= Preference::NoPreference;
        let has = match self.stack.map(Stack::features) {
            Some(f) if f.provides.contains(P::Reliability) => true,
            Some(f) if !f.configurable.contains(P::Reliability) => false,
            _ => wanted,
        };
        reliable == has || !reliable && !wanted
    }

    /// The Connection Properties as they are now.
    pub(crate) fn properties(&self) -> ConnectionProperties {
        let changed = self.cold.as_ref().and_then(|e| e.changed.as_deref());
        changed.unwrap_or(&self.request.properties.connection).clone()
    }

    /// The defaults for its messages as they are now.
    pub(crate) fn messages(&self) -> &MessageProperties {
        self.cold.as_ref().and_then(|e| e.messages.as_deref()).unwrap_or(&self.request.properties.message)
    }

    /// For how long its session waits for its peer, where it has such a time.
    pub(crate) fn idle_timeout(&self) -> Option<core::time::Duration> {
        self.request.setups.idle_timeout(!self.passive)
    }

    /// The priority within the group that the connection has now.
    pub(crate) fn priority(&self) -> u32 {
        let set = self.cold.as_ref().and_then(|e| e.priority);
        set.unwrap_or(self.request.properties.connection.priority)
    }

    /// Whether it is one of those that the peer has added to a group. One that has ended in order
    /// counts no more; one that the peer has reset does until the program lets go of it, or a peer
    /// could make it hold any number of them.
    pub(crate) fn is_peers_stream(&self) -> bool {
        self.passive
            && (self.state != ConnectionState::Closed || self.error().is_some())
            && self.flow.is_stream_of_session()
    }
}
