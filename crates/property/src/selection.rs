//! The Selection Properties of type Preference, and sets of them.

use crate::preference::{Preference, Role};
use crate::value::is_name;
use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign, Not, Sub};

/// A Selection Property of type Preference (RFC 9622 section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SelectionProperty {
    /// All data arrives, without loss or duplication (6.2.1).
    Reliability,
    /// Message boundaries are preserved by the protocol (6.2.2).
    PreserveMsgBoundaries,
    /// Reliability can be stated per Message (6.2.3).
    PerMsgReliability,
    /// Data arrives in the order it was sent in (6.2.4).
    PreserveOrder,
    /// A Message may be sent before or during establishment (6.2.5).
    ZeroRttMsg,
    /// Connections of a group are streams of one transport connection (6.2.6).
    Multistreaming,
    /// All data sent is protected against corruption (6.2.7).
    FullChecksumSend,
    /// All data received is protected against corruption (6.2.8).
    FullChecksumRecv,
    /// The connection is congestion controlled (6.2.9).
    CongestionControl,
    /// Keep-alive packets are sent (6.2.10).
    KeepAlive,
    /// Temporary local addresses of RFC 8981 are used (6.2.13): a property of paths, not of
    /// protocols.
    UseTemporaryLocalAddress,
    /// ICMP errors that do not end the connection are reported (6.2.17).
    SoftErrorNotify,
    /// The initiator reads first, or the listener writes first (6.2.18); ignored for Rendezvous.
    ActiveReadBeforeSend,
}

use SelectionProperty as P;

impl SelectionProperty {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// All, in the order of RFC 9622 section 6.2.
    pub const ALL: [Self; 13] = [
        P::Reliability,
        P::PreserveMsgBoundaries,
        P::PerMsgReliability,
        P::PreserveOrder,
        P::ZeroRttMsg,
        P::Multistreaming,
        P::FullChecksumSend,
        P::FullChecksumRecv,
        P::CongestionControl,
        P::KeepAlive,
        P::UseTemporaryLocalAddress,
        P::SoftErrorNotify,
        P::ActiveReadBeforeSend,
    ];

    /// The name as RFC 9622 has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            P::Reliability => "reliability",
            P::PreserveMsgBoundaries => "preserveMsgBoundaries",
            P::PerMsgReliability => "perMsgReliability",
            P::PreserveOrder => "preserveOrder",
            P::ZeroRttMsg => "zeroRttMsg",
            P::Multistreaming => "multistreaming",
            P::FullChecksumSend => "fullChecksumSend",
            P::FullChecksumRecv => "fullChecksumRecv",
            P::CongestionControl => "congestionControl",
            P::KeepAlive => "keepAlive",
            P::UseTemporaryLocalAddress => "useTemporaryLocalAddress",
            P::SoftErrorNotify => "softErrorNotify",
            P::ActiveReadBeforeSend => "activeReadBeforeSend",
        }
    }

    /// Finds a property by name, in any case, also as snake_case or kebab-case (RFC 9622 section
    /// 4.1).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| is_name(name, p.name()))
    }

    /// The default when the program sets nothing (RFC 9622 section 6.2).
    #[must_use]
    pub const fn default_preference(self, role: Role) -> Preference {
        match self {
            P::Reliability | P::PreserveOrder | P::FullChecksumSend | P::FullChecksumRecv | P::CongestionControl => {
                Preference::Require
            }
            P::Multistreaming => Preference::Prefer,
            P::UseTemporaryLocalAddress => match role {
                Role::Initiate => Preference::Prefer,
                Role::Listen | Role::Rendezvous => Preference::Avoid,
            },
            P::PreserveMsgBoundaries
            | P::PerMsgReliability
            | P::ZeroRttMsg
            | P::KeepAlive
            | P::SoftErrorNotify
            | P::ActiveReadBeforeSend => Preference::NoPreference,
        }
    }

    /// Whether paths have it rather than protocols.
    #[must_use]
    pub const fn is_of_paths(self) -> bool {
        matches!(self, P::UseTemporaryLocalAddress)
    }

    const fn bit(self) -> u32 {
        1 << self as u8
    }
}

impl fmt::Display for SelectionProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of [`SelectionProperty`], as bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PropertySet(u32);

impl PropertySet {
    /// No property.
    pub const EMPTY: Self = Self(0);
    /// Every property.
    pub const ALL: Self = Self::of(&SelectionProperty::ALL);

    /// The set of the given properties; usable in constants.
    #[must_use]
    pub const fn of(properties: &[SelectionProperty]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < properties.len() {
            bits |= properties[i].bit();
            i += 1;
        }
        Self(bits)
    }

    /// This set and `property`.
    #[must_use]
    pub const fn with(self, property: SelectionProperty) -> Self {
        Self(self.0 | property.bit())
    }

    /// This set without `property`.
    #[must_use]
    pub const fn without(self, property: SelectionProperty) -> Self {
        Self(self.0 & !property.bit())
    }

    /// Adds `property`.
    pub const fn insert(&mut self, property: SelectionProperty) {
        self.0 |= property.bit();
    }

    /// Takes `property` out.
    pub const fn remove(&mut self, property: SelectionProperty) {
        self.0 &= !property.bit();
    }

    /// Whether `property` is in it.
    #[must_use]
    pub const fn contains(self, property: SelectionProperty) -> bool {
        self.0 & property.bit() != 0
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn contains_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many properties are in it.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The properties in it, in the order of RFC 9622.
    pub fn iter(self) -> impl Iterator<Item = SelectionProperty> {
        SelectionProperty::ALL.into_iter().filter(move |p| self.contains(*p))
    }

    /// The set as bits: bit *n* is the *n*-th of [`SelectionProperty::ALL`].
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl FromIterator<SelectionProperty> for PropertySet {
    fn from_iter<I: IntoIterator<Item = SelectionProperty>>(iter: I) -> Self {
        iter.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl BitOr for PropertySet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for PropertySet {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for PropertySet {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for PropertySet {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl Not for PropertySet {
    type Output = Self;
    fn not(self) -> Self {
        Self::ALL - self
    }
}

impl fmt::Debug for PropertySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(SelectionProperty::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_is_found_by_each_spelling_of_its_name() {
        for p in SelectionProperty::ALL {
            let snake: String = p
                .name()
                .chars()
                .flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain(c.to_lowercase()))
                .collect();
            for spelling in [p.name().to_string(), p.name().to_uppercase(), snake.clone(), snake.replace('_', "-")] {
                assert_eq!(SelectionProperty::from_name(&spelling), Some(p), "{spelling}");
            }
        }
        for wrong in
            ["", "reliabilit", "reliability2", "relia-bility", "_reliability", "reliability-", "preserve__order"]
        {
            assert_eq!(SelectionProperty::from_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn defaults_are_those_of_rfc_9622_section_6_2() {
        let with = |preference, role| -> Vec<&str> {
            SelectionProperty::ALL
                .into_iter()
                .filter(|p| p.default_preference(role) == preference)
                .map(SelectionProperty::name)
                .collect()
        };
        assert_eq!(
            with(Preference::Require, Role::Initiate),
            ["reliability", "preserveOrder", "fullChecksumSend", "fullChecksumRecv", "congestionControl"]
        );
        assert_eq!(with(Preference::Prefer, Role::Initiate), ["multistreaming", "useTemporaryLocalAddress"]);
        assert_eq!(with(Preference::Avoid, Role::Initiate), [""; 0]);
        for role in [Role::Listen, Role::Rendezvous] {
            assert_eq!(with(Preference::Prefer, role), ["multistreaming"]);
            assert_eq!(with(Preference::Avoid, role), ["useTemporaryLocalAddress"]);
        }
    }

    #[test]
    fn a_set_holds_what_was_put_in_and_lists_it_in_order() {
        let set = PropertySet::of(&[P::KeepAlive, P::Reliability]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [P::Reliability, P::KeepAlive]);
        assert_eq!(format!("{set:?}"), r#"{"reliability", "keepAlive"}"#);
        assert_eq!((set - PropertySet::of(&[P::KeepAlive])).len(), 1);
        assert_eq!(!!set, set);
        assert_eq!(PropertySet::ALL.len(), SelectionProperty::COUNT);
        assert!(PropertySet::ALL.contains_all(set) && !set.contains_all(PropertySet::ALL));
        assert!((set & !set).is_empty());
    }
}
