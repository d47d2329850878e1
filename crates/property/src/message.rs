//! Message Properties (RFC 9622 section 9.1.3).

use crate::connection::{CapacityProfile, boolean, checksum_len, priority, seconds_or};
use crate::value::{PropertyError, Value, is_name};
use core::time::Duration;

/// The Message Properties by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageProperty {
    /// msgLifetime (9.1.3.1).
    MsgLifetime,
    /// msgPriority (9.1.3.2).
    MsgPriority,
    /// msgOrdered (9.1.3.3).
    MsgOrdered,
    /// safelyReplayable (9.1.3.4).
    SafelyReplayable,
    /// final (9.1.3.5).
    Final,
    /// msgChecksumLen (9.1.3.6).
    MsgChecksumLen,
    /// msgReliable (9.1.3.7).
    MsgReliable,
    /// msgCapacityProfile (9.1.3.8).
    MsgCapacityProfile,
    /// noFragmentation (9.1.3.9).
    NoFragmentation,
    /// noSegmentation (9.1.3.10).
    NoSegmentation,
}

use MessageProperty as M;

impl MessageProperty {
    /// All, in the order of RFC 9622.
    pub const ALL: [Self; 10] = [
        M::MsgLifetime,
        M::MsgPriority,
        M::MsgOrdered,
        M::SafelyReplayable,
        M::Final,
        M::MsgChecksumLen,
        M::MsgReliable,
        M::MsgCapacityProfile,
        M::NoFragmentation,
        M::NoSegmentation,
    ];

    /// The name as RFC 9622 has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            M::MsgLifetime => "msgLifetime",
            M::MsgPriority => "msgPriority",
            M::MsgOrdered => "msgOrdered",
            M::SafelyReplayable => "safelyReplayable",
            M::Final => "final",
            M::MsgChecksumLen => "msgChecksumLen",
            M::MsgReliable => "msgReliable",
            M::MsgCapacityProfile => "msgCapacityProfile",
            M::NoFragmentation => "noFragmentation",
            M::NoSegmentation => "noSegmentation",
        }
    }

    /// Finds a property by name, in any case, also as snake_case or kebab-case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| is_name(name, p.name()))
    }
}

/// The word for a value that is taken from the connection.
const INHERITED: &str = "Inherited";

/// The Message Properties, with the defaults of RFC 9622.
///
/// On a Preconnection or a Connection they are defaults for its Messages. Three defaults are taken
/// from the connection and stand as `None` until [`resolved`](Self::resolved).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MessageProperties {
    /// msgLifetime: how long a Message may wait before it is sent; `None` is infinite.
    pub lifetime: Option<Duration>,
    /// msgPriority: rank among the Messages of a connection, lower first.
    pub priority: u32,
    /// msgOrdered: whether order among such Messages is kept; `None` is whether the stack has
    /// preserveOrder.
    pub ordered: Option<bool>,
    /// safelyReplayable: whether a Message may be delivered more than once.
    pub safely_replayable: bool,
    /// final: whether this is the last Message of the connection.
    pub is_final: bool,
    /// msgChecksumLen: how many bytes from the start must be protected; `None` is full coverage.
    pub checksum_len: Option<u32>,
    /// msgReliable: whether delivery must be reliable; `None` is whether the stack has reliability.
    pub reliable: Option<bool>,
    /// msgCapacityProfile: as connCapacityProfile, for one Message; `None` is the connection's.
    pub capacity_profile: Option<CapacityProfile>,
    /// noFragmentation: whether the network layer must not fragment.
    pub no_fragmentation: bool,
    /// noSegmentation: whether neither transport nor network layer may divide the Message.
    pub no_segmentation: bool,
}

impl Default for MessageProperties {
    fn default() -> Self {
        Self {
            lifetime: None,
            priority: 100,
            ordered: None,
            safely_replayable: false,
            is_final: false,
            checksum_len: None,
            reliable: None,
            capacity_profile: None,
            no_fragmentation: false,
            no_segmentation: false,
        }
    }
}

impl MessageProperties {
    /// Sets a property by its name of RFC 9622. Overrides an earlier value.
    ///
    /// # Errors
    /// [`PropertyError`] when there is no such Message Property, or the value is of another type or
    /// out of range.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) -> Result<(), PropertyError> {
        match M::from_name(name) {
            Some(property) => self.set_property(property, &value.into()),
            None => Err(crate::catalogue::not_settable(name)),
        }
    }

    /// Reads a property by its name of RFC 9622; `None` when there is no such Message Property.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value> {
        M::from_name(name).map(|p| self.property(p))
    }

    /// As [`set`](Self::set), by id.
    ///
    /// # Errors
    /// [`PropertyError::Invalid`] when the value is of another type or out of range.
    pub fn set_property(&mut self, property: MessageProperty, value: &Value) -> Result<(), PropertyError> {
        let name = property.name();
        let or_inherited = |value: &Value| {
            if value.is_text(INHERITED) { Ok(None) } else { boolean(name, value).map(Some) }
        };
        match property {
            M::MsgLifetime => {
                self.lifetime = seconds_or(name, value, "infinite", "a positive number of seconds or Infinite")?;
            }
            M::MsgPriority => self.priority = priority(name, value)?,
            M::MsgOrdered => self.ordered = or_inherited(value)?,
            M::SafelyReplayable => self.safely_replayable = boolean(name, value)?,
            M::Final => self.is_final = boolean(name, value)?,
            M::MsgChecksumLen => self.checksum_len = checksum_len(name, value)?,
            M::MsgReliable => self.reliable = or_inherited(value)?,
            M::MsgCapacityProfile => {
                self.capacity_profile =
                    if value.is_text(INHERITED) { None } else { Some(CapacityProfile::from_value(name, value)?) };
            }
            M::NoFragmentation => self.no_fragmentation = boolean(name, value)?,
            M::NoSegmentation => self.no_segmentation = boolean(name, value)?,
        }
        Ok(())
    }

    /// As [`get`](Self::get), by id.
    #[must_use]
    pub fn property(&self, property: MessageProperty) -> Value {
        let or = |value: Option<Value>, otherwise: &str| value.unwrap_or_else(|| otherwise.into());
        match property {
            M::MsgLifetime => or(self.lifetime.map(Value::from), "Infinite"),
            M::MsgPriority => self.priority.into(),
            M::MsgOrdered => or(self.ordered.map(Value::from), INHERITED),
            M::SafelyReplayable => self.safely_replayable.into(),
            M::Final => self.is_final.into(),
            M::MsgChecksumLen => or(self.checksum_len.map(Value::from), "Full Coverage"),
            M::MsgReliable => or(self.reliable.map(Value::from), INHERITED),
            M::MsgCapacityProfile => or(self.capacity_profile.map(|p| p.as_str().into()), INHERITED),
            M::NoFragmentation => self.no_fragmentation.into(),
            M::NoSegmentation => self.no_segmentation.into(),
        }
    }

    /// These properties with nothing left to inherit, once the stack is known: whether it keeps
    /// order, whether it is reliable, and the connection's capacity profile.
    #[must_use]
    pub fn resolved(&self, ordered: bool, reliable: bool, profile: CapacityProfile) -> Self {
        Self {
            ordered: Some(self.ordered.unwrap_or(ordered)),
            reliable: Some(self.reliable.unwrap_or(reliable)),
            capacity_profile: Some(self.capacity_profile.unwrap_or(profile)),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_stated_is_taken_from_the_connection() {
        let mut m = MessageProperties::default();
        m.set("msgOrdered", false).unwrap();
        let r = m.resolved(true, true, CapacityProfile::Scavenger);
        assert_eq!(
            (r.ordered, r.reliable, r.capacity_profile),
            (Some(false), Some(true), Some(CapacityProfile::Scavenger))
        );
        m.set("msg_ordered", "inherited").unwrap();
        assert_eq!(m, MessageProperties::default());
    }

    #[test]
    fn lifetimes_are_positive() {
        let mut m = MessageProperties::default();
        m.set("msgLifetime", "200ms").unwrap();
        assert_eq!(m.lifetime, Some(Duration::from_millis(200)));
        assert!(m.set("msgLifetime", 0.0).is_err());
        m.set("msgLifetime", "Infinite").unwrap();
        assert_eq!(m.lifetime, None);
    }
}
