//! What fuzzers drive: one function per target, which takes bytes and panics when something is wrong.
//!
//! *Responsible for* the targets, the inputs they start from, and a driver ([`drive`]) that mutates inputs on a stable
//! toolchain. *Deliberately not*: coverage; `fuzz/fuzz_targets` wraps the same functions for libFuzzer.
//!
//! *Invariants*: a target is a function of its bytes alone, so that an input that failed fails again; a target checks against
//! a model or a law wherever there is one, and not only that nothing panics.

#![forbid(unsafe_code)]

mod base;
mod dns;
pub mod drive;
mod dtls;
mod engine;
mod framing;
mod http;
mod link;
mod policy;
mod property;
mod race;
mod scenario;
mod sctp;
mod sctp_wire;
mod seeds;
mod tls;

pub use base::{base_reader, base_serial, base_slab, base_timers};
pub use dns::{dns_answer, dns_config, dns_hosts, dns_resolver, dns_zone};
pub use dtls::dtls_session;
pub use engine::{engine_commands, engine_endpoint};
pub use framing::{framing_length, framing_lines};
pub use http::{http_conditions, http_url};
pub use link::{link_nat, link_packets, link_trace};
pub use policy::{policy_daemon, policy_follower, policy_manager, policy_pvd, policy_source};
pub use property::{property_neat, property_parse};
pub use race::{race_events, race_saved};
pub use scenario::scenario_text;
pub use sctp::sctp_commands;
pub use sctp_wire::sctp_wire_packet;
pub use tls::tls_pem;

/// One thing to fuzz.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: the crate's folder, `_`, what is driven. Also the name of its file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// What must hold, in one line.
    pub law: &'static str,
    /// The function; it panics if the law is broken.
    pub run: fn(&[u8]),
    /// Inputs to start from: valid ones, so that mutation begins beyond the first check.
    pub seeds: &'static [&'static [u8]],
}

/// Every target. Adding one is a line here and the two lines for libFuzzer that a test asks for.
#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "base_reader", law: "reads what was written, and a short read changes nothing", run: base_reader, seeds: &[b"\0\x01\x02\x03\x13abcdefghijk"] },
    Target { name: "base_serial", law: "order is antisymmetric and survives the wrap", run: base_serial, seeds: &[b"\xff\xff\xff\xff\0\0\0\x01", b"\0\0\0\0\x80\0\0\0"] },
    Target { name: "base_slab", law: "a key finds its own object or nothing", run: base_slab, seeds: &[b"\0\0\0\x01\0\x02\x03\x01"] },
    Target { name: "base_timers", law: "deadlines come out by time, then by age", run: base_timers, seeds: &[b"\x08\x04\x08\0\x01\x02\x03\x05"] },
    Target { name: "dns_answer", law: "answers its own question, and never an answer", run: dns_answer, seeds: seeds::DNS_ANSWER },
    Target { name: "dns_config", law: "any text gives a configuration within its bounds", run: dns_config, seeds: seeds::DNS_CONFIG },
    Target { name: "dns_hosts", law: "any text gives bounded answers, whatever the case", run: dns_hosts, seeds: seeds::DNS_HOSTS },
    Target { name: "dns_resolver", law: "every lookup ends, every socket is closed once", run: dns_resolver, seeds: seeds::DNS_RESOLVER },
    Target { name: "dns_zone", law: "any text gives a zone or the line that is wrong", run: dns_zone, seeds: seeds::DNS_ZONE },
    Target { name: "dtls_session", law: "what comes out went in, however the link behaves", run: dtls_session, seeds: seeds::DTLS_SESSION },
    Target { name: "engine_commands", law: "any commands over any network: no panic, nothing left behind", run: engine_commands, seeds: seeds::ENGINE_COMMANDS },
    Target { name: "engine_endpoint", law: "what is read is written and read as the same again", run: engine_endpoint, seeds: seeds::ENGINE_ENDPOINT },
    Target { name: "framing_length", law: "messages do not depend on how the stream is cut", run: framing_length, seeds: seeds::FRAMING_LENGTH },
    Target { name: "framing_lines", law: "lines do not depend on how the stream is cut", run: framing_lines, seeds: seeds::FRAMING_LINES },
    Target { name: "http_conditions", law: "a part that is served lies in the file, and one that is announced makes sense", run: http_conditions, seeds: seeds::HTTP_CONDITIONS },
    Target { name: "http_url", law: "what is read is written as a URL that means the same", run: http_url, seeds: seeds::HTTP_URL },
    Target { name: "link_nat", law: "one inside endpoint per outside endpoint, and answers find back", run: link_nat, seeds: seeds::LINK_NAT },
    Target { name: "link_packets", law: "every packet comes out once, in time and in order", run: link_packets, seeds: seeds::LINK_PACKETS },
    Target { name: "link_trace", law: "any text gives a trace that carries packets, or the line that is wrong", run: link_trace, seeds: seeds::LINK_TRACE },
    Target { name: "policy_daemon", law: "one user steers no other, and security that is required stays", run: policy_daemon, seeds: seeds::POLICY_DAEMON },
    Target { name: "policy_follower", law: "how a stream is cut does not matter, and every question has its page", run: policy_follower, seeds: seeds::POLICY_FOLLOWER },
    Target { name: "policy_manager", law: "both forms decide alike, and what is wrong has its place", run: policy_manager, seeds: seeds::POLICY_MANAGER },
    Target { name: "policy_pvd", law: "what a router says is bounded, and no network speaks for the system", run: policy_pvd, seeds: seeds::POLICY_PVD },
    Target { name: "policy_source", law: "a document is taken whole or not at all, and nothing stays of one that is gone", run: policy_source, seeds: seeds::POLICY_SOURCE },
    Target { name: "property_neat", law: "what is read can be written and read again", run: property_neat, seeds: seeds::PROPERTY_NEAT },
    Target { name: "property_parse", law: "the order of needs does not matter", run: property_parse, seeds: seeds::PROPERTY_PARSE },
    Target { name: "race_events", law: "one end by the deadline, and nothing runs after it", run: race_events, seeds: seeds::RACE_EVENTS },
    Target { name: "race_saved", law: "what is read is written and read as the same again, and damage changes nothing", run: race_saved, seeds: seeds::RACE_SAVED },
    Target { name: "scenario_text", law: "any text gives a scenario within its bounds, or the place that is wrong", run: scenario_text, seeds: seeds::SCENARIO_TEXT },
    Target { name: "sctp_commands", law: "any commands and packets: no panic, once, within bounds, nothing left behind", run: sctp_commands, seeds: seeds::SCTP_COMMANDS },
    Target { name: "sctp_wire_packet", law: "what is read lies in the packet, and is written and read again", run: sctp_wire_packet, seeds: seeds::SCTP_WIRE_PACKET },
    Target { name: "tls_pem", law: "any bytes give a chain, a key, or what is wrong", run: tls_pem, seeds: seeds::TLS_PEM },
];

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

/// Runs one target on one input.
///
/// # Panics
/// When the target's law is broken, or there is no such target.
pub fn run(target: &str, data: &[u8]) {
    match self::target(target) {
        Some(t) => (t.run)(data),
        None => panic!("no fuzz target is called {target}"),
    }
}
