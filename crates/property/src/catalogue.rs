//! Every property there is, in one table: what can be asked, and what comes of it today.

use crate::TransportProperties;
use crate::value::{PropertyError, is_name, shortened};

/// Which kind of property it is (RFC 9622 section 4), which decides when it can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Decides which protocols and paths are candidates; fixed once the connection is opened
    /// (section 6.2).
    Selection,
    /// Configures a connection; can be set at any time (section 8).
    Connection,
    /// Shows the state of a connection; cannot be set (section 8.1.11).
    ReadOnly,
    /// Belongs to one Message, or is a default for all (section 9.1.3).
    Message,
    /// Configures one protocol, if it is selected (sections 4.1 and 8.2).
    Protocol,
    /// Ours, in the namespace `_neater` (section 4.1).
    Vendor,
}

/// What comes of setting a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Selection or the engine uses it.
    Implemented,
    /// In effect where the text states it; elsewhere accepted, and nothing more.
    InPart(&'static str),
    /// It is accepted and can be read back, and nothing more; the text gives the reason.
    NoEffectYet(&'static str),
}

impl core::fmt::Display for Effect {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Implemented => f.write_str("implemented"),
            Self::InPart(where_) => write!(f, "in part: {where_}"),
            Self::NoEffectYet(why) => write!(f, "no effect yet: {why}"),
        }
    }
}

/// What is known of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyInfo {
    /// The name as RFC 9622 has it.
    pub name: &'static str,
    /// The section of RFC 9622; empty for our own.
    pub section: &'static str,
    /// Which kind of property it is.
    pub class: Class,
    /// Its type and range, in words.
    pub values: &'static str,
    /// The default, as [`crate::Value`] shows it, for a connection that is initiated; `-` if there
    /// is none.
    pub default: &'static str,
    /// What comes of setting it.
    pub effect: Effect,
}

const PREFERENCE: &str = "Prohibit, Avoid, No Preference, Prefer or Require";
const BOOLEAN: &str = "true or false";
const PROFILE: &str = "Default, Scavenger, Low Latency/Interactive, Low Latency/Non-Interactive, Constant-Rate Streaming \
                       or Capacity-Seeking";
const USER_TIMEOUT_OPTION: Effect = Effect::NoEffectYet(
    "no TCP of ours speaks the User Timeout Option (RFC 5482), nor does Linux; connTimeout sets this side's timeout",
);
const MIN_RATE: Effect = Effect::NoEffectYet(
    "no path's rate is known before it is used, and no transport can promise one: watch the rate and close the connection",
);
const SCHEDULER: Effect = Effect::InPart("SCTP supports it; the other stacks have no scheduler that could be chosen");
const STREAMS: Effect = Effect::InPart("SCTP supports it; the other stacks send messages in the order of the calls");
const MULTIPATH: Effect = Effect::InPart(
    "an SCTP client over UDP or IP that is Active has a path by each network of its host, unless its listener is Disabled; a QUIC listener \
     follows a peer to another address unless Disabled; a QUIC client moves in every mode, under another connection id, when its own \
     address is gone or no peer answers there (RFC 9000 section 9.5); TCP and TLS use MPTCP (RFC 8684) unless Disabled, where the system and \
     the peer have it, with the paths that the system's path manager opens; the other stacks keep to one path",
);
const MULTIPATH_POLICY: Effect = Effect::InPart(
    "SCTP over UDP or IP supports it where it has several paths: with Handover one carries data, with Interactive data also goes by others \
     where they are earlier, with Aggregate over all that add to the rate; below MPTCP the system chooses; the other stacks use one path at \
     a time",
);
const PRIORITY: Effect = Effect::InPart(
    "of the streams of one QUIC connection or SCTP association the lower goes first; sockets of TCP, TLS and UDP clients are ranked in \
     this host's queues, where the system lets them; DTLS and datagrams of QUIC have none",
);
const TIMEOUT: Effect = Effect::InPart(
    "TCP, TLS, QUIC and SCTP support it, and listeners over UDP and DTLS, whose connections end when their peers are silent for as long; \
     clients over UDP and DTLS expect no answer",
);
const KEEP_ALIVE: Effect = Effect::InPart(
    "TCP, TLS, QUIC and SCTP support it (SCTP as it is when the connection is opened); UDP and DTLS have no keep-alives",
);
const MAX_RECV_RATE: Effect = Effect::InPart(
    "TCP, TLS, QUIC and SCTP support it; datagrams, which do not wait for a reader, cannot be slowed down",
);
const GROUP_LIMIT: Effect = Effect::InPart(
    "QUIC supports it, and SCTP between two programs of neater; the peer cannot add connections to a group of another stack",
);
const ORDERED: Effect =
    Effect::InPart("SCTP supports it; TCP, TLS and QUIC always deliver in order, and datagrams come in any order");
const RELIABLE: Effect = Effect::InPart(
    "SCTP supports it, where perMsgReliability was asked for; TCP, TLS and QUIC deliver everything, and datagrams are sent once",
);
const NO_SEGMENTATION: Effect = Effect::InPart(
    "SCTP supports it; TCP, TLS and QUIC know no packets of messages, datagrams of QUIC are never cut, and those of UDP and DTLS are cut \
     by IP alone",
);
const MESSAGE: Effect = Effect::NoEffectYet("no stack applies it to messages yet");

const fn row(
    name: &'static str,
    section: &'static str,
    class: Class,
    values: &'static str,
    default: &'static str,
    effect: Effect,
) -> PropertyInfo {
    PropertyInfo { name, section, class, values, default, effect }
}

use Class::{Connection, Message, Protocol, ReadOnly, Selection, Vendor};
use Effect::{Implemented, NoEffectYet};

/// Every property, in the order of RFC 9622.
///
/// An effect becomes [`Effect::Implemented`] with the test that observes it on the wire or the
/// socket, or, where selection is all there is to it, in the ranking. Rows of class
/// [`ReadOnly`](Class::ReadOnly) are facts of a connection and have no effect to speak of.
#[rustfmt::skip] // one row a property, to be read as a table
pub const PROPERTIES: &[PropertyInfo] = &[
    row("reliability", "6.2.1", Selection, PREFERENCE, "Require", Implemented),
    row("preserveMsgBoundaries", "6.2.2", Selection, PREFERENCE, "No Preference", Implemented),
    row("perMsgReliability", "6.2.3", Selection, PREFERENCE, "No Preference", Implemented),
    row("preserveOrder", "6.2.4", Selection, PREFERENCE, "Require", Implemented),
    row("zeroRttMsg", "6.2.5", Selection, PREFERENCE, "No Preference", Implemented),
    row("multistreaming", "6.2.6", Selection, PREFERENCE, "Prefer", Implemented),
    row("fullChecksumSend", "6.2.7", Selection, PREFERENCE, "Require", Implemented),
    row("fullChecksumRecv", "6.2.8", Selection, PREFERENCE, "Require", Implemented),
    row("congestionControl", "6.2.9", Selection, PREFERENCE, "Require", Implemented),
    row("keepAlive", "6.2.10", Selection, PREFERENCE, "No Preference", Implemented),
    row("interface", "6.2.11", Selection, "a set such as require:eth0 or prefer:wifi+avoid:cellular", "", Implemented),
    row("pvd", "6.2.12", Selection, "a set such as prefer:example.com", "", Implemented),
    row("useTemporaryLocalAddress", "6.2.13", Selection, PREFERENCE, "Prefer", Implemented),
    row("multipath", "6.2.14", Selection, "Disabled, Active or Passive", "Disabled", MULTIPATH),
    row("advertisesAltaddr", "6.2.15", Selection, BOOLEAN, "false",
        NoEffectYet("no stack advertises addresses yet")),
    row("direction", "6.2.16", Selection, "Bidirectional, Unidirectional send or Unidirectional receive", "Bidirectional", Implemented),
    row("softErrorNotify", "6.2.17", Selection, PREFERENCE, "No Preference", Implemented),
    row("activeReadBeforeSend", "6.2.18", Selection, PREFERENCE, "No Preference", Implemented),
    row("recvChecksumLen", "8.1.1", Connection, "a number of bytes or Full Coverage", "Full Coverage",
        NoEffectYet("only UDP-Lite has checksums of a part, and no stack speaks it")),
    row("connPriority", "8.1.2", Connection, "an integer, lower first", "100", PRIORITY),
    row("connTimeout", "8.1.3", Connection, "seconds or Disabled", "Disabled", TIMEOUT),
    row("keepAliveTimeout", "8.1.4", Connection, "seconds or Disabled", "Disabled", KEEP_ALIVE),
    row("connScheduler", "8.1.5", Connection, "FCFS, RR, RR_PKT, PRIO, FC or WFQ (RFC 8260)", "Weighted Fair Queueing", SCHEDULER),
    row("connCapacityProfile", "8.1.6", Connection, PROFILE, "Default", Implemented),
    row("multipathPolicy", "8.1.7", Connection, "Handover, Interactive or Aggregate", "Handover",
        MULTIPATH_POLICY),
    row("minSendRate", "8.1.8", Connection, "bit/s or Unlimited", "Unlimited", MIN_RATE),
    row("minRecvRate", "8.1.8", Connection, "bit/s or Unlimited", "Unlimited", MIN_RATE),
    row("maxSendRate", "8.1.8", Connection, "bit/s or Unlimited", "Unlimited", Implemented),
    row("maxRecvRate", "8.1.8", Connection, "bit/s or Unlimited", "Unlimited", MAX_RECV_RATE),
    row("groupConnLimit", "8.1.9", Connection, "a positive integer or Unlimited", "Unlimited", GROUP_LIMIT),
    row("isolateSession", "8.1.10", Connection, BOOLEAN, "false", Implemented),
    row("connState", "8.1.11.1", ReadOnly, "Establishing, Established, Closing or Closed", "-", Implemented),
    row("canSend", "8.1.11.2", ReadOnly, BOOLEAN, "-", Implemented),
    row("canReceive", "8.1.11.3", ReadOnly, BOOLEAN, "-", Implemented),
    row("singularTransmissionMsgMaxLen", "8.1.11.4", ReadOnly, "bytes or Not applicable", "-", Implemented),
    row("sendMsgMaxLen", "8.1.11.5", ReadOnly, "bytes", "-", Implemented),
    row("recvMsgMaxLen", "8.1.11.6", ReadOnly, "bytes", "-", Implemented),
    row("tcp.userTimeoutValue", "8.2.1", Protocol, "1 to 1966020 seconds or Default", "Default",
        USER_TIMEOUT_OPTION),
    row("tcp.userTimeoutEnabled", "8.2.2", Protocol, BOOLEAN, "false",
        USER_TIMEOUT_OPTION),
    row("tcp.userTimeoutChangeable", "8.2.3", Protocol, BOOLEAN, "true",
        USER_TIMEOUT_OPTION),
    row("msgLifetime", "9.1.3.1", Message, "seconds or Infinite", "Infinite", Implemented),
    row("msgPriority", "9.1.3.2", Message, "an integer, lower first", "100", STREAMS),
    row("msgOrdered", "9.1.3.3", Message, "true, false or Inherited", "Inherited", ORDERED),
    row("safelyReplayable", "9.1.3.4", Message, BOOLEAN, "false", Implemented),
    row("final", "9.1.3.5", Message, BOOLEAN, "false", Implemented),
    row("msgChecksumLen", "9.1.3.6", Message, "a number of bytes or Full Coverage", "Full Coverage", MESSAGE),
    row("msgReliable", "9.1.3.7", Message, "true, false or Inherited", "Inherited", RELIABLE),
    row("msgCapacityProfile", "9.1.3.8", Message, "as connCapacityProfile, or Inherited", "Inherited", MESSAGE),
    row("noFragmentation", "9.1.3.9", Message, BOOLEAN, "false", MESSAGE),
    row("noSegmentation", "9.1.3.10", Message, BOOLEAN, "false", NO_SEGMENTATION),
    row(ATTEMPT_DELAY, "", Vendor, "10 to 2000 ms or Default", "Default", Implemented),
    row(MEASURED_RATES, "", Vendor, BOOLEAN, "true", Implemented),
];

/// How long one attempt runs before the next is started (RFC 8305 section 8: Connection Attempt
/// Delay).
pub(crate) const ATTEMPT_DELAY: &str = "_neater.attemptDelay";
/// Whether of stacks that are equally good the one goes first whose transfers were fastest.
pub(crate) const MEASURED_RATES: &str = "_neater.measuredRates";
/// What NEAT called the delay of attempts; there it was the delay of a candidate in milliseconds.
pub(crate) const NEAT_ATTEMPT_DELAY: &str = "__he_delay";

/// What is known of the property `name`, in any case, also as snake_case or kebab-case.
#[must_use]
pub fn lookup(name: &str) -> Option<&'static PropertyInfo> {
    let name = if name.eq_ignore_ascii_case(NEAT_ATTEMPT_DELAY) { ATTEMPT_DELAY } else { name };
    PROPERTIES.iter().find(|p| is_name(name, p.name))
}

/// The effect of setting the property `name`. A name that is no property has no effect, with that
/// as the reason.
#[must_use]
pub fn effect(name: &str) -> Effect {
    lookup(name).map_or(NoEffectYet("there is no such property"), |p| p.effect)
}

impl TransportProperties {
    /// The properties that are set to something else than their default, although nothing comes of
    /// it yet, and why.
    #[must_use]
    pub fn without_effect(&self) -> Vec<(&'static str, &'static str)> {
        // connTimeout switches this one off (RFC 9622 section 8.2.3): the program has not set it.
        let implied = |name| name == "tcp.userTimeoutChangeable" && self.connection.timeout.is_some();
        self.changed(|p| match p.effect {
            NoEffectYet(why) if !implied(p.name) => Some(why),
            _ => None,
        })
    }

    /// The properties that are set to something else than their default and that not every stack
    /// supports, with those that do.
    #[must_use]
    pub fn with_effect_in_part(&self) -> Vec<(&'static str, &'static str)> {
        self.changed(|p| if let Effect::InPart(where_) = p.effect { Some(where_) } else { None })
    }

    /// The remarks of `say` on properties that are set to something else than their default.
    fn changed(&self, say: impl Fn(&PropertyInfo) -> Option<&'static str>) -> Vec<(&'static str, &'static str)> {
        let defaults = Self::new();
        let said = PROPERTIES.iter().filter_map(|p| Some((p, say(p)?)));
        said.filter(|(p, _)| self.get(p.name) != defaults.get(p.name)).map(|(p, text)| (p.name, text)).collect()
    }
}

/// Why `name` cannot be set: it is read-only, or not known.
pub(crate) fn not_settable(name: &str) -> PropertyError {
    match lookup(name) {
        Some(PropertyInfo { name, class: ReadOnly, .. }) => PropertyError::ReadOnly { property: name },
        _ => PropertyError::Unknown {
            name: shortened(name),
            close: close_matches(name, PROPERTIES.iter().map(|p| p.name)),
        },
    }
}

/// How many suggestions an error makes.
const MAX_CLOSE: usize = 3;
/// Longer words are not compared: nothing of ours is as long.
const MAX_COMPARED: usize = 40;

/// Which of `known` look like `word`, best first, at most three; of equals the earlier first.
#[must_use]
pub fn close_matches(word: &str, known: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
    let bare = |text: &str| -> Vec<u8> {
        text.bytes().filter(|c| !matches!(c, b'-' | b'_')).map(|c| c.to_ascii_lowercase()).collect()
    };
    let word = bare(word);
    if word.is_empty() || word.len() > MAX_COMPARED {
        return Vec::new();
    }
    let mut found: Vec<(usize, &'static str)> = Vec::new();
    for name in known {
        let other = bare(name);
        let distance = if word.len() >= 3 && (other.starts_with(&word) || word.starts_with(&other)) {
            1
        } else {
            edit_distance(&word, &other)
        };
        if distance <= word.len().max(other.len()).div_ceil(4) && !found.iter().any(|(_, n)| *n == name) {
            found.push((distance, name));
        }
    }
    found.sort_by_key(|(distance, _)| *distance);
    found.truncate(MAX_CLOSE);
    found.into_iter().map(|(_, name)| name).collect()
}

/// How many letters must be put in, taken out, replaced or swapped with their neighbour to get from
/// `a` to `b`.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let mut best = (above[j] + usize::from(x != y)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = core::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnectionProperty, MessageProperty, SelectionProperty, Value};

    #[test]
    fn the_table_and_the_typed_properties_name_the_same_things() {
        let typed = SelectionProperty::ALL.map(SelectionProperty::name).into_iter();
        let typed = typed.chain(ConnectionProperty::ALL.map(ConnectionProperty::name));
        let typed = typed.chain(MessageProperty::ALL.map(MessageProperty::name));
        let typed = typed.chain(["interface", "pvd", "multipath", "advertisesAltaddr", "direction"]);
        let typed = typed.chain([ATTEMPT_DELAY, MEASURED_RATES]);
        let mut typed: Vec<_> = typed.collect();
        let mut table: Vec<_> = PROPERTIES.iter().filter(|p| p.class != ReadOnly).map(|p| p.name).collect();
        typed.sort_unstable();
        table.sort_unstable();
        assert_eq!(typed, table);
    }

    #[test]
    fn the_table_tells_the_defaults_that_hold() {
        let defaults = TransportProperties::new();
        for info in PROPERTIES {
            match defaults.get(info.name) {
                Some(value) => assert_eq!(value.to_string(), info.default, "{}", info.name),
                None => assert_eq!((info.class, info.default), (ReadOnly, "-"), "{}", info.name),
            }
        }
    }

    #[test]
    fn every_property_takes_its_own_default_as_text() {
        for info in PROPERTIES.iter().filter(|p| p.class != ReadOnly && !p.default.is_empty()) {
            let mut properties = TransportProperties::new();
            properties.set_text(info.name, info.default).unwrap();
            assert_eq!(properties.get(info.name), TransportProperties::new().get(info.name), "{}", info.name);
        }
    }

    #[test]
    fn a_property_without_effect_says_why() {
        for info in PROPERTIES {
            assert!(!matches!(info.effect, NoEffectYet("")), "{}", info.name);
        }
        assert_eq!(effect("reliability"), Implemented);
        assert!(matches!(effect("minSendRate"), NoEffectYet(_)));
        assert_eq!(effect("nonsense"), NoEffectYet("there is no such property"));
        assert_eq!(lookup("__HE_DELAY").map(|p| p.name), Some(ATTEMPT_DELAY));
    }

    #[test]
    fn properties_that_some_stacks_ignore_say_which_heed_them() {
        let words = "groupConnLimit=2,msgOrdered=false,msgReliable=false,noSegmentation=true,multipath=Active,connTimeout=5,\
                     keepAliveTimeout=3,connPriority=7,maxRecvRate=1M,msgPriority=3,connScheduler=FCFS,multipathPolicy=aggregate";
        let p = TransportProperties::parse(words).unwrap().properties;
        let told = p.with_effect_in_part();
        let stated: Vec<_> = words.split(',').map(|w| w.split('=').next().unwrap()).collect();
        assert_eq!(told.len(), stated.len(), "{told:?}");
        for name in stated {
            let (_, text) = told.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name}"));
            let heeding = ["SCTP", "QUIC", "TCP"].iter().any(|stack| text.contains(stack));
            assert!(heeding && !text.contains("  "), "{name}: {text}");
        }
        assert_eq!(TransportProperties::new().with_effect_in_part(), []);
        assert_eq!(p.without_effect(), []);
    }

    #[test]
    fn properties_that_were_set_in_vain_are_listed_with_the_reason() {
        let mut p = TransportProperties::new();
        p.set_text("reliability", "prefer").unwrap();
        p.set_text("connTimeout", "5").unwrap();
        assert_eq!(p.without_effect(), []);
        p.set_text("minRecvRate", "5000").unwrap();
        p.set_text("minSendRate", "5000").unwrap();
        let names: Vec<_> = p.without_effect().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["minSendRate", "minRecvRate"]);
    }

    #[test]
    fn misspelt_names_find_what_was_meant() {
        let close = |word| close_matches(word, PROPERTIES.iter().map(|p| p.name));
        assert_eq!(close("relaibility"), ["reliability"]);
        assert_eq!(close("multi-streaming"), ["multistreaming"]);
        assert_eq!(close("keepAlives").first(), Some(&"keepAlive"));
        assert_eq!(close("conn_timout"), ["connTimeout"]);
        assert_eq!(close("xyzzy"), [""; 0]);
        assert_eq!(close(&"a".repeat(10_000)), [""; 0]);
        assert_eq!(edit_distance(b"kitten", b"sitting"), 3);
        assert_eq!(edit_distance(b"ab", b"ba"), 1);
        assert_eq!(edit_distance(b"", b"abc"), 3);
    }

    #[test]
    fn a_read_only_property_is_not_settable_and_an_unknown_one_is_not_known() {
        let mut p = TransportProperties::new();
        for info in PROPERTIES.iter().filter(|i| i.class == ReadOnly) {
            assert_eq!(p.set(info.name, Value::from(true)), Err(PropertyError::ReadOnly { property: info.name }));
        }
        assert_eq!(
            p.set("relaibility", Value::from(true)).unwrap_err().to_string(),
            "there is no property 'relaibility'; did you mean reliability?"
        );
    }
}
