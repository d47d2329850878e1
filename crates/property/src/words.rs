//! The friendly words of the command line.

use crate::security::{SecurityLevel, SecurityNeed};

/// What a word stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// `stated` is the meaning of the word; `implied` holds only where no other word contradicts
    /// it.
    Properties { stated: &'static [(&'static str, &'static str)], implied: &'static [(&'static str, &'static str)] },
    /// A need of security.
    Security(SecurityNeed),
}

/// A friendly word that [`crate::TransportProperties::parse`] knows, besides the names of
/// properties and profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The word.
    pub word: &'static str,
    /// What it asks for, in a few words for a list of them.
    pub help: &'static str,
    pub(crate) meaning: Meaning,
}

const fn says(word: &'static str, help: &'static str, stated: &'static [(&'static str, &'static str)]) -> Word {
    Word { word, help, meaning: Meaning::Properties { stated, implied: &[] } }
}

const fn secures(word: &'static str, help: &'static str, need: SecurityNeed) -> Word {
    Word { word, help, meaning: Meaning::Security(need) }
}

/// The words, in the order a list of them is shown.
///
/// `unreliable` and `datagrams` avoid reliability rather than prohibit it, as the profile of RFC
/// 9622 appendix B.2.3 does: a reliable transport is better than none.
pub const WORDS: &[Word] = &[
    says("reliable", "all data arrives, once", &[("reliability", "require")]),
    Word {
        word: "unreliable",
        help: "data may be lost, and need not be in order",
        meaning: Meaning::Properties {
            stated: &[("reliability", "avoid")],
            implied: &[("preserveOrder", "no preference")],
        },
    },
    says("ordered", "data arrives in the order it was sent in", &[("preserveOrder", "require")]),
    says("unordered", "data need not wait for earlier data", &[("preserveOrder", "avoid")]),
    says("messages", "messages stay whole", &[("preserveMsgBoundaries", "require")]),
    Word {
        word: "datagrams",
        help: "messages that may be lost, reordered or repeated",
        meaning: Meaning::Properties {
            stated: &[("reliability", "avoid"), ("preserveMsgBoundaries", "require")],
            implied: &[
                ("preserveOrder", "avoid"),
                ("congestionControl", "no preference"),
                ("safelyReplayable", "true"),
            ],
        },
    },
    says("partial-reliability", "reliability per message", &[("perMsgReliability", "require")]),
    says("low-delay", "answers soon rather than much at once", &[("connCapacityProfile", "Low Latency/Interactive")]),
    says("low-latency", "the same", &[("connCapacityProfile", "Low Latency/Interactive")]),
    says("interactive", "the same", &[("connCapacityProfile", "Low Latency/Interactive")]),
    says("real-time", "late is as bad as lost", &[("connCapacityProfile", "Low Latency/Non-Interactive")]),
    says("streaming", "a constant rate", &[("connCapacityProfile", "Constant-Rate Streaming")]),
    says("bulk", "as much as possible over a long time", &[("connCapacityProfile", "Capacity-Seeking")]),
    says("background", "gives way to everything else", &[("connCapacityProfile", "Scavenger")]),
    says("keep-alive", "keep-alives on an idle connection", &[("keepAlive", "require")]),
    says("0rtt", "a first message during establishment, where possible", &[("zeroRttMsg", "prefer")]),
    says("replayable", "messages may be delivered twice", &[("safelyReplayable", "true")]),
    says("streams", "many connections as streams of one", &[("multistreaming", "require")]),
    says("multi-path", "another path where one fails", &[("multipath", "Active")]),
    says("isolated", "no cached state of other connections", &[("isolateSession", "true")]),
    says("send-only", "nothing is received", &[("direction", "Unidirectional send")]),
    says("receive-only", "nothing is sent", &[("direction", "Unidirectional receive")]),
    secures("encrypted", "TLS 1.2 or better", SecurityNeed::Required { minimum: SecurityLevel::Tls12 }),
    secures("secure", "the same", SecurityNeed::Required { minimum: SecurityLevel::Tls12 }),
    secures("tls12", "the same", SecurityNeed::Required { minimum: SecurityLevel::Tls12 }),
    secures("tls13", "TLS 1.3 or better", SecurityNeed::Required { minimum: SecurityLevel::Tls13 }),
    secures("opportunistic", "encryption where possible", SecurityNeed::Opportunistic),
    secures("cleartext", "no encryption", SecurityNeed::Disabled),
];

/// Spellings that mean a word of [`WORDS`].
pub(crate) const SPELLINGS: &[(&str, &str)] = &[
    ("datagram", "datagrams"),
    ("message", "messages"),
    ("0-rtt", "0rtt"),
    ("zero-rtt", "0rtt"),
    ("realtime", "real-time"),
];
