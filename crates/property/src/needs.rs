//! The compiled form of properties.

use crate::check::Contradiction;
use crate::connection::{ConnectionProperties, ConnectionProperty};
use crate::fingerprint::Fingerprint;
use crate::message::{MessageProperties, MessageProperty};
use crate::preference::{Preference, Role};
use crate::selection::{PropertySet, SelectionProperty};
use crate::transport::{Direction, Multipath, TransportProperties};
use core::time::Duration;

/// What a program needs, checked and compiled: the form that policy and engine read.
///
/// A property is in at most one of `require`, `prohibit`, `prefer` and `avoid`; one in none of them
/// does not matter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Needs {
    /// How the connections come about.
    pub role: Role,
    /// Only candidates with all of these.
    pub require: PropertySet,
    /// Only candidates with none of these.
    pub prohibit: PropertySet,
    /// Candidates with these first.
    pub prefer: PropertySet,
    /// Candidates without these first.
    pub avoid: PropertySet,
    /// Stated by the program, not by a default of the RFC.
    pub explicit: PropertySet,
    /// Preferences for interfaces, sorted, without repetition.
    pub interface: Vec<(Preference, String)>,
    /// Preferences for provisioning domains, sorted, without repetition.
    pub pvd: Vec<(Preference, String)>,
    /// Whether several paths are used at once.
    pub multipath: Multipath,
    /// Whether alternative addresses are announced to the peer.
    pub advertises_altaddr: bool,
    /// Which way data goes.
    pub direction: Direction,
    /// What the connections begin with.
    pub connection: ConnectionProperties,
    /// The defaults for Messages.
    pub message: MessageProperties,
    /// How long one attempt runs before the next is started, if the program sets it.
    pub attempt_delay: Option<Duration>,
}

impl TransportProperties {
    /// Checks the properties and compiles them; worth keeping for all connections with the same
    /// needs.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn compile(&self, role: Role) -> Result<Needs, Contradiction> {
        self.check(role)?;
        let set_of = |preference| -> PropertySet {
            let heeded = |p: &SelectionProperty| {
                // RFC 9622 section 6.2.18: ignored for Rendezvous.
                *p != SelectionProperty::ActiveReadBeforeSend || role != Role::Rendezvous
            };
            let all = SelectionProperty::ALL.into_iter().filter(heeded);
            all.filter(|p| self.preference(*p, role) == preference).collect()
        };
        let sorted = |set: &[(Preference, String)]| {
            let mut set = set.to_vec();
            set.sort();
            set.dedup();
            set
        };
        Ok(Needs {
            role,
            require: set_of(Preference::Require),
            prohibit: set_of(Preference::Prohibit),
            prefer: set_of(Preference::Prefer),
            avoid: set_of(Preference::Avoid),
            explicit: SelectionProperty::ALL.into_iter().filter(|p| self.explicit_preference(*p).is_some()).collect(),
            interface: sorted(self.interfaces()),
            pvd: sorted(self.pvds()),
            multipath: self.multipath(role),
            advertises_altaddr: self.advertises_altaddr(),
            direction: self.direction(),
            connection: self.connection.clone(),
            message: self.message.clone(),
            attempt_delay: self.attempt_delay(),
        })
    }
}

impl Needs {
    /// What is wanted of `property`.
    #[must_use]
    pub const fn preference(&self, property: SelectionProperty) -> Preference {
        if self.require.contains(property) {
            Preference::Require
        } else if self.prohibit.contains(property) {
            Preference::Prohibit
        } else if self.prefer.contains(property) {
            Preference::Prefer
        } else if self.avoid.contains(property) {
            Preference::Avoid
        } else {
            Preference::NoPreference
        }
    }

    /// A number that is the same for equal needs, on every machine and in every run. Different
    /// needs differ in it but for a chance of 2⁻⁶⁴; an attacker who chooses the needs can make them
    /// collide, so nothing secret may hang on it.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        // Taken apart completely, so that a field that is added later is not forgotten here.
        let Self {
            role,
            require,
            prohibit,
            prefer,
            avoid,
            explicit,
            interface,
            pvd,
            multipath,
            advertises_altaddr,
            direction,
            connection,
            message,
            attempt_delay,
        } = self;
        let mut f = Fingerprint::default();
        f.text(role.as_str());
        for set in [require, prohibit, prefer, avoid, explicit] {
            f.number(set.bits().into());
        }
        for set in [interface, pvd] {
            f.number(set.len() as u64);
            for (preference, name) in set {
                f.text(preference.as_str());
                f.text(name);
            }
        }
        f.text(multipath.as_str());
        f.byte(u8::from(*advertises_altaddr));
        f.text(direction.as_str());
        for property in ConnectionProperty::ALL {
            f.text(&connection.property(property).to_string());
        }
        for property in MessageProperty::ALL {
            f.text(&message.property(property).to_string());
        }
        f.number(attempt_delay.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)));
        f.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    fn needs(words: &str) -> Needs {
        TransportProperties::parse(words).unwrap().properties.compile(Role::Initiate).unwrap()
    }

    #[test]
    fn the_defaults_compile_to_the_defaults_of_the_rfc() {
        let n = TransportProperties::new().compile(Role::Initiate).unwrap();
        assert_eq!(
            format!("{:?}", n.require),
            r#"{"reliability", "preserveOrder", "fullChecksumSend", "fullChecksumRecv", "congestionControl"}"#
        );
        assert_eq!(format!("{:?}", n.prefer), r#"{"multistreaming", "useTemporaryLocalAddress"}"#);
        assert!(n.prohibit.is_empty() && n.avoid.is_empty() && n.explicit.is_empty());
    }

    #[test]
    fn rendezvous_ignores_active_read_before_send() {
        let mut p = TransportProperties::new();
        p.require(SelectionProperty::ActiveReadBeforeSend);
        let require = |role| p.compile(role).unwrap().require.contains(SelectionProperty::ActiveReadBeforeSend);
        assert!(require(Role::Initiate) && require(Role::Listen) && !require(Role::Rendezvous));
    }

    #[test]
    fn equal_needs_have_equal_fingerprints_whatever_the_order_of_setting() {
        let a = needs("reliable,keep-alive,interface=prefer:eth0,interface=avoid:wlan0");
        let b = needs(
            "interface=avoid:wlan0,keepAlive=require,interface=prefer:eth0,reliability=require,interface=prefer:eth0",
        );
        assert_eq!(a, b);
        assert_eq!(a.fingerprint(), b.fingerprint());
    }

    #[test]
    fn the_fingerprint_of_the_defaults_never_changes() {
        assert_eq!(
            needs("").fingerprint(),
            8_902_254_981_337_600_780,
            "files may hold it: a change here needs a new file format"
        );
    }

    #[test]
    fn changing_any_property_changes_the_fingerprint() {
        let mut seen = std::collections::BTreeMap::new();
        seen.insert(needs("").fingerprint(), "the defaults".to_string());
        // What worked is the same whether rates order stacks or not.
        let all = TransportProperties::new();
        for (name, _) in all.iter().filter(|(name, _)| *name != crate::catalogue::MEASURED_RATES) {
            let mut changed = 0;
            for value in [
                Value::from("require"),
                "prefer".into(),
                "no preference".into(),
                "avoid".into(),
                "prohibit".into(),
                true.into(),
                false.into(),
                17u32.into(),
                "Active".into(),
                "Passive".into(),
                "Scavenger".into(),
                "FCFS".into(),
                "Aggregate".into(),
                "Unidirectional send".into(),
            ] {
                let mut p = TransportProperties::new();
                let shown = value.to_string();
                if p.set(name, value).is_err() || p == TransportProperties::new() || p.compile(Role::Initiate).is_err()
                {
                    continue;
                }
                let print = p.compile(Role::Initiate).unwrap().fingerprint();
                let what = format!("{name}={}", p.get(name).unwrap());
                if let Some(earlier) = seen.insert(print, what.clone()) {
                    assert_eq!(earlier, what, "{shown} collides");
                }
                changed += 1;
            }
            assert!(changed > 0, "{name} was never changed");
        }
    }
}
