//! What a program fills in: RFC 9622's TransportProperties.
//!
//! *Responsible for* every settable property by name and by type, with its range and its default.
//! *Not for* what two properties mean together (`check`), nor for the compiled form (`needs`).
//!
//! *Invariants*: an unset property is distinguished from one that was set to its default; a refused
//! value changes nothing; the preferences for interfaces and provisioning domains are bounded by
//! [`MAX_PREFERENCES`].

use crate::catalogue::{ATTEMPT_DELAY, MEASURED_RATES, NEAT_ATTEMPT_DELAY, not_settable};
use crate::connection::{ConnectionProperties, ConnectionProperty, boolean};
use crate::message::{MessageProperties, MessageProperty};
use crate::preference::{Preference, Role};
use crate::selection::SelectionProperty;
use crate::value::{PropertyError, Value, invalid, is_name};
use core::time::Duration;

/// How many preferences for interfaces, or for provisioning domains, there may be.
pub const MAX_PREFERENCES: usize = 32;
/// How long the name of an interface or of a provisioning domain may be, in bytes: a domain name
/// fits.
pub const MAX_PREFERENCE_NAME: usize = 255;
/// The shortest attempt delay (RFC 8305 section 8, Minimum Connection Attempt Delay).
pub const MIN_ATTEMPT_DELAY: Duration = Duration::from_millis(10);
/// The longest attempt delay (RFC 8305 section 8, Maximum Connection Attempt Delay).
pub const MAX_ATTEMPT_DELAY: Duration = Duration::from_millis(2000);

/// Whether several paths are used at once (RFC 9622 section 6.2.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Multipath {
    /// One path at a time, also where the protocol could use more. A QUIC client still moves, under
    /// another connection id, when its address is gone or no peer answers there (RFC 9000 section
    /// 9); a QUIC listener does not follow a peer to another address.
    #[default]
    Disabled,
    /// Negotiate several.
    Active,
    /// Accept several when the peer asks.
    Passive,
}

impl Multipath {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Disabled, Self::Active, Self::Passive];

    /// The name as RFC 9622 has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::Active => "Active",
            Self::Passive => "Passive",
        }
    }

    /// The default when the program sets nothing.
    #[must_use]
    pub const fn default_for(role: Role) -> Self {
        match role {
            Role::Initiate | Role::Rendezvous => Self::Disabled,
            Role::Listen => Self::Passive,
        }
    }
}

/// Which way data goes (RFC 9622 section 6.2.16). A stack that could do both may be selected for
/// either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Both ways.
    #[default]
    Bidirectional,
    /// The program only sends.
    UnidirectionalSend,
    /// The program only receives.
    UnidirectionalReceive,
}

impl Direction {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Bidirectional, Self::UnidirectionalSend, Self::UnidirectionalReceive];

    /// The name as RFC 9622 has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bidirectional => "Bidirectional",
            Self::UnidirectionalSend => "Unidirectional send",
            Self::UnidirectionalReceive => "Unidirectional receive",
        }
    }
}

/// What a program asks of a transport (RFC 9622 section 6.2): Selection Properties, the Connection
/// Properties its connections begin with, and the defaults for its Messages.
///
/// What is not set takes the RFC's default, which may depend on the [`Role`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransportProperties {
    preferences: [Option<Preference>; SelectionProperty::COUNT],
    interface: Vec<(Preference, String)>,
    pvd: Vec<(Preference, String)>,
    multipath: Option<Multipath>,
    advertises_altaddr: bool,
    direction: Direction,
    attempt_delay: Option<Duration>,
    /// `_neater.measuredRates` is false.
    ignores_rates: bool,
    /// What the connections begin with.
    pub connection: ConnectionProperties,
    /// The defaults for Messages.
    pub message: MessageProperties,
}

/// A settable property, whatever its class.
#[derive(Clone, Copy)]
enum Id {
    Selection(SelectionProperty),
    Interface,
    Pvd,
    Multipath,
    AdvertisesAltaddr,
    Direction,
    Connection(ConnectionProperty),
    Message(MessageProperty),
    AttemptDelay,
    MeasuredRates,
}

impl Id {
    fn all() -> impl Iterator<Item = Self> {
        let paths = [Self::Interface, Self::Pvd, Self::Multipath, Self::AdvertisesAltaddr];
        let others = paths.into_iter().chain([Self::Direction, Self::AttemptDelay, Self::MeasuredRates]);
        let selection = SelectionProperty::ALL.into_iter().map(Self::Selection);
        let connection = ConnectionProperty::ALL.into_iter().map(Self::Connection);
        let message = MessageProperty::ALL.into_iter().map(Self::Message);
        selection.chain(others).chain(connection).chain(message)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Selection(p) => p.name(),
            Self::Interface => "interface",
            Self::Pvd => "pvd",
            Self::Multipath => "multipath",
            Self::AdvertisesAltaddr => "advertisesAltaddr",
            Self::Direction => "direction",
            Self::Connection(p) => p.name(),
            Self::Message(p) => p.name(),
            Self::AttemptDelay => ATTEMPT_DELAY,
            Self::MeasuredRates => MEASURED_RATES,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        let name = if name.eq_ignore_ascii_case(NEAT_ATTEMPT_DELAY) { ATTEMPT_DELAY } else { name };
        Self::all().find(|id| is_name(name, id.name()))
    }
}

impl TransportProperties {
    /// Properties with RFC 9622's defaults (NewTransportProperties).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a property by name, in any case, also as snake_case or kebab-case. Overrides an earlier
    /// value.
    ///
    /// # Errors
    /// [`PropertyError`] when the name is not known, the property is read-only, or the value is of
    /// another type or out of range; the properties stay as they were.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) -> Result<(), PropertyError> {
        let id = Id::from_name(name).ok_or_else(|| not_settable(name))?;
        let (name, value) = (id.name(), value.into());
        match id {
            Id::Selection(p) => {
                let preference = value.as_preference();
                let preference = preference
                    .ok_or_else(|| invalid(name, "Prohibit, Avoid, No Preference, Prefer or Require", &value))?;
                self.prefer_as(p, preference);
            }
            Id::Interface => self.interface = preferences(name, value)?,
            Id::Pvd => self.pvd = preferences(name, value)?,
            Id::Multipath => {
                let found = Multipath::ALL.into_iter().find(|m| value.is_text(m.as_str()));
                self.multipath = Some(found.ok_or_else(|| invalid(name, "Disabled, Active or Passive", &value))?);
            }
            Id::AdvertisesAltaddr => self.advertises_altaddr = boolean(name, &value)?,
            Id::Direction => {
                const EXPECTED: &str = "Bidirectional, Unidirectional send or Unidirectional receive";
                let found = Direction::ALL.into_iter().find(|d| value.is_text(d.as_str()));
                self.direction = found.ok_or_else(|| invalid(name, EXPECTED, &value))?;
            }
            Id::Connection(p) => self.connection.set_property(p, &value)?,
            Id::Message(p) => self.message.set_property(p, &value)?,
            Id::AttemptDelay => self.attempt_delay = attempt_delay(name, &value)?,
            Id::MeasuredRates => self.ignores_rates = !boolean(name, &value)?,
        }
        Ok(())
    }

    /// Sets a property from a text: `require`, `true`, `interactive`, `1.5`, `250ms`,
    /// `prefer:wifi+avoid:cellular`.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_text(&mut self, name: &str, text: &str) -> Result<(), PropertyError> {
        self.set(name, text)
    }

    /// Reads a property by name; `None` when there is no such property, or it belongs to a
    /// connection. Defaults are those of [`Role::Initiate`]; [`preference`](Self::preference) and
    /// [`multipath`](Self::multipath) return the others.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value> {
        Id::from_name(name).map(|id| self.value(id))
    }

    fn value(&self, id: Id) -> Value {
        match id {
            Id::Selection(p) => self.preference(p, Role::Initiate).into(),
            Id::Interface => Value::Set(self.interface.clone()),
            Id::Pvd => Value::Set(self.pvd.clone()),
            Id::Multipath => self.multipath(Role::Initiate).as_str().into(),
            Id::AdvertisesAltaddr => self.advertises_altaddr.into(),
            Id::Direction => self.direction.as_str().into(),
            Id::Connection(p) => self.connection.property(p),
            Id::Message(p) => self.message.property(p),
            Id::AttemptDelay => match self.attempt_delay {
                Some(delay) => Value::Integer(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
                None => "Default".into(),
            },
            Id::MeasuredRates => (!self.ignores_rates).into(),
        }
    }

    /// Every settable property with its value: Selection Properties, then those of connections,
    /// then those of Messages.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Value)> + '_ {
        Id::all().map(|id| (id.name(), self.value(id)))
    }

    /// Sets one preference.
    pub fn prefer_as(&mut self, property: SelectionProperty, preference: Preference) -> &mut Self {
        self.preferences[property as usize] = Some(preference);
        self
    }

    /// Only protocols and paths that have `property`, else fail.
    pub fn require(&mut self, property: SelectionProperty) -> &mut Self {
        self.prefer_as(property, Preference::Require)
    }

    /// Those that have `property` first.
    pub fn prefer(&mut self, property: SelectionProperty) -> &mut Self {
        self.prefer_as(property, Preference::Prefer)
    }

    /// `property` does not matter.
    pub fn no_preference(&mut self, property: SelectionProperty) -> &mut Self {
        self.prefer_as(property, Preference::NoPreference)
    }

    /// Those without `property` first.
    pub fn avoid(&mut self, property: SelectionProperty) -> &mut Self {
        self.prefer_as(property, Preference::Avoid)
    }

    /// Only protocols and paths without `property`, else fail.
    pub fn prohibit(&mut self, property: SelectionProperty) -> &mut Self {
        self.prefer_as(property, Preference::Prohibit)
    }

    /// What is wanted of `property`: what was set, or the default for `role`.
    #[must_use]
    pub fn preference(&self, property: SelectionProperty, role: Role) -> Preference {
        self.explicit_preference(property).unwrap_or_else(|| property.default_preference(role))
    }

    /// What was set for `property`, if anything was.
    #[must_use]
    pub fn explicit_preference(&self, property: SelectionProperty) -> Option<Preference> {
        self.preferences[property as usize]
    }

    /// Adds a preference for an interface, by name or by type (`wifi`, `cellular`, ...; RFC 9622
    /// section 6.2.11).
    ///
    /// # Errors
    /// [`PropertyError::Invalid`] when the name is empty, too long or holds control characters, or
    /// there are [`MAX_PREFERENCES`] already.
    pub fn interface(&mut self, preference: Preference, name: &str) -> Result<&mut Self, PropertyError> {
        add_preference("interface", &mut self.interface, preference, name)?;
        Ok(self)
    }

    /// Adds a preference for a provisioning domain (RFC 9622 section 6.2.12).
    ///
    /// # Errors
    /// As [`interface`](Self::interface).
    pub fn pvd(&mut self, preference: Preference, name: &str) -> Result<&mut Self, PropertyError> {
        add_preference("pvd", &mut self.pvd, preference, name)?;
        Ok(self)
    }

    /// The preferences for interfaces, as they were given.
    #[must_use]
    pub fn interfaces(&self) -> &[(Preference, String)] {
        &self.interface
    }

    /// The preferences for provisioning domains, as they were given.
    #[must_use]
    pub fn pvds(&self) -> &[(Preference, String)] {
        &self.pvd
    }

    /// Whether several paths are used at once: what was set, or the default for `role`.
    #[must_use]
    pub fn multipath(&self, role: Role) -> Multipath {
        self.multipath.unwrap_or_else(|| Multipath::default_for(role))
    }

    /// Sets whether several paths are used at once.
    pub fn set_multipath(&mut self, multipath: Multipath) -> &mut Self {
        self.multipath = Some(multipath);
        self
    }

    /// Which way data goes.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Sets which way data goes.
    pub fn set_direction(&mut self, direction: Direction) -> &mut Self {
        self.direction = direction;
        self
    }

    /// Whether alternative addresses are announced to the peer (RFC 9622 section 6.2.15).
    #[must_use]
    pub fn advertises_altaddr(&self) -> bool {
        self.advertises_altaddr
    }

    /// How long one attempt runs before the next is started, if the program sets it.
    #[must_use]
    pub fn attempt_delay(&self) -> Option<Duration> {
        self.attempt_delay
    }

    /// Whether the rates of earlier transfers decide which of equally good stacks goes first
    /// (`_neater.measuredRates`).
    #[must_use]
    pub fn measured_rates(&self) -> bool {
        !self.ignores_rates
    }
}

/// A number of milliseconds, or a text with a unit, within the bounds of RFC 8305 section 8.
fn attempt_delay(property: &'static str, value: &Value) -> Result<Option<Duration>, PropertyError> {
    if value.is_text("default") {
        return Ok(None);
    }
    let millis = match value.as_integer() {
        Some(ms) => Some(Duration::from_millis(ms)),
        // A bare number is milliseconds here, seconds elsewhere: a text must state its unit.
        None => match value {
            Value::Text(t) if t.ends_with(|c: char| c.is_ascii_alphabetic()) => value.as_duration(),
            _ => None,
        },
    };
    let in_range =
        |d: &Duration| (MIN_ATTEMPT_DELAY..=MAX_ATTEMPT_DELAY).contains(d) && d.subsec_micros().is_multiple_of(1000);
    millis.filter(in_range).map(Some).ok_or_else(|| invalid(property, "10 to 2000 milliseconds or Default", value))
}

const EXPECTED_SET: &str = "up to 32 names of up to 255 bytes, such as require:eth0 or prefer:wifi+avoid:cellular";

fn add_preference(
    property: &'static str,
    to: &mut Vec<(Preference, String)>,
    preference: Preference,
    name: &str,
) -> Result<(), PropertyError> {
    let fits = !name.is_empty() && name.len() <= MAX_PREFERENCE_NAME && !name.chars().any(char::is_control);
    if !fits || to.len() >= MAX_PREFERENCES {
        return Err(invalid(property, EXPECTED_SET, &name.into()));
    }
    to.push((preference, name.into()));
    Ok(())
}

fn preferences(property: &'static str, value: Value) -> Result<Vec<(Preference, String)>, PropertyError> {
    let mut set = Vec::new();
    match &value {
        Value::Set(items) => {
            for (preference, name) in items {
                add_preference(property, &mut set, *preference, name)?;
            }
        }
        Value::Text(text) if text.trim().is_empty() => {}
        Value::Text(text) => {
            for item in text.split('+').map(str::trim) {
                // A provisioning domain may hold a colon itself; without a preference in front, the
                // name is required.
                let split = item.split_once(':').and_then(|(p, name)| Some((Preference::from_text(p)?, name.trim())));
                let (preference, name) = split.unwrap_or((Preference::Require, item));
                add_preference(property, &mut set, preference, name)?;
            }
        }
        _ => return Err(invalid(property, EXPECTED_SET, &value)),
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_property_is_set_by_name_or_by_builder_and_the_last_word_counts() {
        let mut p = TransportProperties::new();
        p.set("preserve_msg_boundaries", "require").unwrap();
        p.avoid(SelectionProperty::PreserveMsgBoundaries).prohibit(SelectionProperty::KeepAlive);
        assert_eq!(p.get("preserveMsgBoundaries"), Some(Preference::Avoid.into()));
        assert_eq!(p.get("KEEPALIVE"), Some(Preference::Prohibit.into()));
        p.set("keep-alive", true).unwrap();
        assert_eq!(p.preference(SelectionProperty::KeepAlive, Role::Listen), Preference::Require);
        assert_eq!(p.get("nonsense"), None);
    }

    #[test]
    fn defaults_that_depend_on_the_role_do() {
        let p = TransportProperties::new();
        assert_eq!(p.multipath(Role::Listen), Multipath::Passive);
        assert_eq!(p.multipath(Role::Rendezvous), Multipath::Disabled);
        let temporary = SelectionProperty::UseTemporaryLocalAddress;
        assert_eq!(p.preference(temporary, Role::Initiate), Preference::Prefer);
        assert_eq!(p.preference(temporary, Role::Rendezvous), Preference::Avoid);
    }

    #[test]
    fn interface_preferences_are_read_from_text_and_bounded() {
        let mut p = TransportProperties::new();
        p.set_text("interface", "eth0+prefer:wifi + avoid:cellular").unwrap();
        assert_eq!(
            p.interfaces(),
            [
                (Preference::Require, "eth0".into()),
                (Preference::Prefer, "wifi".into()),
                (Preference::Avoid, "cellular".into())
            ]
        );
        assert_eq!(p.get("interface").unwrap().to_string(), "Require:eth0+Prefer:wifi+Avoid:cellular");
        p.set_text("pvd", "urn:example:one").unwrap();
        assert_eq!(p.pvds(), [(Preference::Require, "urn:example:one".into())]);
        for wrong in ["prefer:", "a++b", "a\u{0}b", &"x".repeat(256), &"x+".repeat(40)] {
            assert!(p.set_text("interface", wrong).is_err(), "{wrong}");
        }
        assert_eq!(p.interfaces().len(), 3, "a refused value leaves the earlier one");
        p.set_text("interface", "").unwrap();
        assert!(p.interfaces().is_empty());
        for i in 0..MAX_PREFERENCES {
            p.interface(Preference::Prefer, &format!("if{i}")).unwrap();
        }
        assert!(p.interface(Preference::Prefer, "one-more").is_err());
    }

    #[test]
    fn the_attempt_delay_is_bounded_and_answers_to_neats_name() {
        let mut p = TransportProperties::new();
        p.set("__he_delay", 25u32).unwrap();
        assert_eq!(p.attempt_delay(), Some(Duration::from_millis(25)));
        p.set_text("_neater.attempt_delay", "1.5s").unwrap();
        assert_eq!(p.get("_neater.attemptDelay"), Some(Value::Integer(1500)));
        for wrong in [
            Value::from(9u32),
            2001u32.into(),
            "soon".into(),
            f64::NAN.into(),
            "1.5".into(),
            "10.5ms".into(),
            true.into(),
        ] {
            assert!(p.set("_neater.attemptDelay", wrong.clone()).is_err(), "{wrong}");
        }
        assert!(p.set("neater.attemptDelay", 25u32).is_err(), "the namespace of a vendor begins with _");
        p.set("_neater.attemptDelay", "default").unwrap();
        assert_eq!(p.attempt_delay(), None);
    }

    #[test]
    fn every_property_is_listed_once_and_what_is_read_can_be_set() {
        let mut p = TransportProperties::parse("datagrams,low-delay,interface=prefer:wlan0,connTimeout=0.25")
            .unwrap()
            .properties;
        p.set("groupConnLimit", 3u32).unwrap();
        let mut copy = TransportProperties::new();
        let mut names = std::collections::BTreeSet::new();
        for (name, value) in p.iter() {
            assert!(names.insert(name), "{name} twice");
            copy.set_text(name, &value.to_string()).unwrap();
            assert_eq!(copy.get(name), Some(value), "{name}");
        }
        assert_eq!(names.len(), crate::PROPERTIES.iter().filter(|i| i.class != crate::Class::ReadOnly).count());
    }

    /// Any value there can be, sane or not.
    fn any_value() -> impl Strategy<Value = Value> {
        let preference = || (0usize..5).prop_map(|i| Preference::ALL[i]);
        prop_oneof![
            preference().prop_map(Value::Preference),
            any::<bool>().prop_map(Value::Bool),
            any::<u64>().prop_map(Value::Integer),
            any::<f64>().prop_map(Value::Number),
            "\\PC{0,20}".prop_map(Value::Text),
            "[0-9.e-]{1,6}(ms|s|k|M|min)?".prop_map(Value::Text),
            proptest::collection::vec((preference(), "\\PC{0,8}"), 0..40).prop_map(Value::Set),
        ]
    }

    proptest! {
        #[test]
        fn prop_a_value_is_taken_and_read_back_or_refused_without_a_trace(
            which in 0usize..crate::PROPERTIES.len(), value in any_value(),
        ) {
            let name = crate::PROPERTIES[which].name;
            let mut p = TransportProperties::parse("datagrams,bulk,connTimeout=3,interface=eth0").unwrap().properties;
            let before = p.clone();
            match p.set(name, value) {
                Err(error) => {
                    prop_assert_eq!(p, before);
                    prop_assert!(error.to_string().len() < 1000);
                }
                Ok(()) => {
                    // What is read sets the same again: no value is rounded twice.
                    let read = p.get(name).unwrap();
                    let mut again = p.clone();
                    again.set(name, read).unwrap();
                    prop_assert_eq!(again, p);
                }
            }
        }
    }
}
