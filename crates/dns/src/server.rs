//! A tiny authoritative responder.
//!
//! *Responsible for* answering real questions with real messages from a table, so that simulations,
//! demonstrations and tests need no foreign server. *Deliberately not*: zone transfers, wildcards,
//! delegation, DNSSEC, or anything that a public server needs.
//!
//! *Invariant*: an answer is a function of the question and the table.

use core::fmt;
use core::str::FromStr;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, HTTPS, SOA, SVCB};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use std::collections::BTreeMap;

use crate::name;
use crate::wire::{EDNS_PAYLOAD, MAX_CNAMES};

/// Bytes in an answer over UDP to a question without EDNS (RFC 1035 section 4.2.1).
pub const UDP_LIMIT: usize = 512;
/// Records in a zone at most.
const MAX_ZONE_RECORDS: usize = 65_536;
/// Seconds that records live, if the zone sets none.
const DEFAULT_TTL: u32 = 60;
/// Seconds that "there is none" lives, if the zone sets none.
const DEFAULT_NEGATIVE: u32 = 30;

/// A table of names and records.
#[derive(Clone, Debug)]
pub struct Zone {
    names: BTreeMap<String, Vec<(u32, RData)>>,
    negative: u32,
    records: usize,
}

impl Default for Zone {
    /// A zone in which nothing exists.
    fn default() -> Self {
        Self { names: BTreeMap::new(), negative: DEFAULT_NEGATIVE, records: 0 }
    }
}

/// A line of a zone that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong, and what is expected.
    pub problem: String,
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone, line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ZoneError {}

impl Zone {
    /// Reads a table of lines `name [ttl] type value`: types A, AAAA, CNAME, HTTPS. `#` starts a
    /// comment, `$TTL seconds` sets the lifetime of the records that follow, `$NEGATIVE seconds`
    /// that of "there is none".
    ///
    /// ```text
    /// example.test A 10.0.0.1
    /// example.test HTTPS 1 . alpn=h3,h2 port=443 ipv4hint=10.0.0.1
    /// www.example.test 300 CNAME example.test
    /// ```
    ///
    /// # Errors
    /// The first line that cannot be understood.
    pub fn parse(text: &str) -> Result<Self, ZoneError> {
        let mut zone = Self::default();
        let mut ttl = DEFAULT_TTL;
        for (i, line) in text.lines().enumerate() {
            zone.line(line, &mut ttl).map_err(|problem| ZoneError { line: i + 1, problem })?;
        }
        Ok(zone)
    }

    fn line(&mut self, line: &str, ttl: &mut u32) -> Result<(), String> {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { return Ok(()) };
        if first.starts_with('$') {
            let seconds = words.next().and_then(|w| w.parse().ok()).ok_or("expected a number of seconds")?;
            match first {
                "$TTL" => *ttl = seconds,
                "$NEGATIVE" => self.negative = seconds,
                _ => return Err(format!("unknown directive {first}: expected $TTL or $NEGATIVE")),
            }
            return Ok(());
        }
        let owner = first.strip_suffix('.').unwrap_or(first);
        name::check(owner).map_err(|why| format!("{first} is not a name: {why}"))?;
        let mut kind = words.next().ok_or("expected a record type after the name")?;
        let mut own_ttl = *ttl;
        if let Ok(seconds) = kind.parse() {
            own_ttl = seconds;
            kind = words.next().ok_or("expected a record type after the lifetime")?;
        }
        let data = record(kind, words.collect())?;
        if self.records >= MAX_ZONE_RECORDS {
            return Err("too many records".to_owned());
        }
        self.records += 1;
        self.names.entry(owner.to_ascii_lowercase()).or_default().push((own_ttl, data));
        Ok(())
    }

    /// Whether a lower-case name exists, be it only because a longer one does (RFC 8020 section 2).
    fn exists(&self, lower: &str) -> bool {
        let below = format!(".{lower}");
        self.names.contains_key(lower) || self.names.keys().any(|n| n.ends_with(&below))
    }
}

/// The data of one record from its words.
fn record(kind: &str, words: Vec<&str>) -> Result<RData, String> {
    let one = || match words.as_slice() {
        [one] => Ok(*one),
        _ => Err(format!("{kind} takes one value")),
    };
    let bad = |what: &str| format!("{what} expected after {kind}");
    match kind.to_ascii_uppercase().as_str() {
        "A" => Ok(RData::A(one()?.parse().map_err(|_| bad("an IPv4 address"))?)),
        "AAAA" => Ok(RData::AAAA(one()?.parse().map_err(|_| bad("an IPv6 address"))?)),
        "CNAME" => Ok(RData::CNAME(CNAME(target(one()?).ok_or_else(|| bad("a name"))?))),
        "HTTPS" => {
            let mut words = words.into_iter();
            let priority = words.next().and_then(|w| u16::from_str(w).ok()).ok_or_else(|| bad("a priority"))?;
            let name = match words.next() {
                Some(".") => Name::root(),
                Some(word) => target(word).ok_or_else(|| bad("a target"))?,
                None => return Err(bad("a priority and a target")),
            };
            let parameters: Vec<&str> = words.collect();
            let mut parameters = service_parameters(&parameters.join(" "))?;
            // Zone files may list them in any order, messages may not (RFC 9460 section 2.2).
            parameters.sort_by_key(|(key, _)| u16::from(*key));
            if parameters.is_sorted_by(|a, b| u16::from(a.0) < u16::from(b.0)) {
                Ok(RData::HTTPS(HTTPS(SVCB::new(priority, name, parameters))))
            } else {
                Err("a service parameter is there twice".to_owned())
            }
        }
        other => Err(format!("unknown record type {other}: expected A, AAAA, CNAME or HTTPS")),
    }
}

type Parameters = Vec<(hickory_proto::rr::rdata::svcb::SvcParamKey, hickory_proto::rr::rdata::svcb::SvcParamValue)>;

/// The parameters of an HTTPS record in presentation form (RFC 9460 section 2.1).
fn service_parameters(text: &str) -> Result<Parameters, String> {
    match RData::try_from_str(RecordType::HTTPS, &format!("1 . {text}")) {
        Ok(RData::HTTPS(https)) => Ok(https.0.svc_params),
        Ok(_) => Err("not service parameters".to_owned()),
        Err(e) => Err(format!("the service parameters cannot be read: {e}")),
    }
}

fn target(word: &str) -> Option<Name> {
    name::to_wire(word.strip_suffix('.').unwrap_or(word))
}

/// Answers a question that came over UDP; `None` if it is not a question.
///
/// An answer that is longer than the asker can take is truncated (RFC 2181 section 9).
#[must_use]
pub fn answer(query: &[u8], zone: &Zone) -> Option<Vec<u8>> {
    let (message, limit) = respond(query, zone)?;
    let bytes = message.to_vec().ok()?;
    if bytes.len() <= limit { Some(bytes) } else { message.truncate().to_vec().ok() }
}

/// Answers a question that came over TCP, without the two-byte length; `None` if it is not a
/// question.
#[must_use]
pub fn answer_stream(query: &[u8], zone: &Zone) -> Option<Vec<u8>> {
    let mut bytes = respond(query, zone)?.0.to_vec().ok()?;
    if bytes.len() > crate::MAX_MESSAGE {
        bytes = respond(query, zone)?.0.truncate().to_vec().ok()?;
    }
    Some(bytes)
}

/// The response, and how many bytes of it fit into UDP.
fn respond(query: &[u8], zone: &Zone) -> Option<(Message, usize)> {
    let query = Message::from_vec(query).ok()?;
    if query.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut message = Message::response(query.metadata.id, query.metadata.op_code);
    message.metadata.recursion_desired = query.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.authoritative = true;
    let mut limit = UDP_LIMIT;
    if let Some(edns) = &query.edns {
        let mut own = Edns::new();
        own.set_max_payload(EDNS_PAYLOAD);
        message.set_edns(own);
        limit = usize::from(edns.max_payload().clamp(UDP_LIMIT as u16, EDNS_PAYLOAD));
    }
    let [question] = query.queries.as_slice() else {
        message.metadata.response_code = ResponseCode::FormErr;
        return Some((message, limit));
    };
    message.add_query(question.clone());
    if query.metadata.op_code != OpCode::Query || question.query_class() != DNSClass::IN {
        message.metadata.response_code = ResponseCode::NotImp;
        return Some((message, limit));
    }
    fill(&mut message, question.name().clone(), question.query_type(), zone);
    Some((message, limit))
}

/// Puts the records in: the chain of CNAMEs, then what was asked for, or an SOA record which means
/// that there is none.
fn fill(message: &mut Message, mut owner: Name, wanted: RecordType, zone: &Zone) {
    for _ in 0..=MAX_CNAMES {
        let Some(lower) = name::from_wire(&owner) else { break };
        let records = zone.names.get(&lower).map_or(&[][..], Vec::as_slice);
        let matching = records.iter().filter(|(_, d)| d.record_type() == wanted);
        message.add_answers(matching.map(|(ttl, d)| Record::from_rdata(owner.clone(), *ttl, d.clone())));
        if message.answers.iter().any(|r| r.record_type() == wanted) {
            return;
        }
        let Some((ttl, RData::CNAME(alias))) = records.iter().find(|(_, d)| d.record_type() == RecordType::CNAME)
        else {
            if !zone.exists(&lower) {
                message.metadata.response_code = ResponseCode::NXDomain;
            }
            break;
        };
        message.add_answer(Record::from_rdata(owner, *ttl, RData::CNAME(alias.clone())));
        owner = alias.0.clone();
    }
    let soa = SOA::new(Name::root(), Name::root(), 1, 3600, 600, 86_400, zone.negative);
    message.add_authority(Record::from_rdata(Name::root(), zone.negative, RData::SOA(soa)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::op::Query;

    fn ask(zone: &str, name: &str, record: RecordType, edns: bool) -> Message {
        let mut query = Message::new(9, MessageType::Query, OpCode::Query);
        query.add_query(Query::query(name::to_wire(name).unwrap(), record));
        if edns {
            let mut option = Edns::new();
            option.set_max_payload(4096);
            query.set_edns(option);
        }
        let zone = Zone::parse(zone).unwrap();
        Message::from_vec(&answer(&query.to_vec().unwrap(), &zone).unwrap()).unwrap()
    }

    #[test]
    fn a_name_that_does_not_exist_gets_nxdomain_with_soa() {
        let m = ask("a.test A 10.0.0.1\n", "b.test", RecordType::A, true);
        assert_eq!(m.metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(m.authorities.len(), 1);
        assert_eq!((m.metadata.id, m.queries.len()), (9, 1));
    }

    #[test]
    fn another_type_and_a_name_between_get_no_data() {
        for name in ["x.y.test", "y.test"] {
            let m = ask("x.y.test A 10.0.0.1\n", name, RecordType::AAAA, true);
            assert_eq!(m.metadata.response_code, ResponseCode::NoError);
            assert_eq!((m.answers.len(), m.authorities.len()), (0, 1));
        }
    }

    #[test]
    fn a_long_answer_is_truncated_at_what_the_asker_can_take() {
        let zone: String = (0..40).map(|i| format!("many.test A 10.0.0.{i}\n")).collect();
        let short = ask(&zone, "many.test", RecordType::A, false);
        assert!(short.metadata.truncation && short.answers.is_empty());
        let long = ask(&zone, "many.test", RecordType::A, true);
        assert!(!long.metadata.truncation);
        assert_eq!(long.answers.len(), 40);
    }

    #[test]
    fn https_parameters_may_come_in_any_order() {
        let zone = "a.test HTTPS 1 . port=8443 alpn=h3,h2 ipv4hint=10.0.0.1 key65400=x mandatory=port\n";
        let m = ask(zone, "a.test", RecordType::HTTPS, true);
        let RData::HTTPS(https) = &m.answers[0].data else { panic!("no HTTPS record") };
        assert_eq!(https.0.svc_params.len(), 5);
    }

    #[test]
    fn a_bad_line_is_named_with_what_was_expected() {
        for (text, line, word) in [
            ("a.test A 10.0.0.1\nb.test A ten\n", 2, "IPv4"),
            ("\n# c\na.test MX 1 x\n", 3, "unknown record type"),
            ("a.test\n", 1, "record type"),
            ("a.test HTTPS one . \n", 1, "priority"),
            ("a.test HTTPS 1 . port=99999\n", 1, "parameters"),
            ("a.test HTTPS 1 . port=1 port=2\n", 1, "twice"),
            ("$ORIGIN x\n", 1, "seconds"),
            ("a..test A 10.0.0.1\n", 1, "label"),
        ] {
            let error = Zone::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn a_response_is_not_answered() {
        let zone = Zone::default();
        assert_eq!(answer(&Message::response(1, OpCode::Query).to_vec().unwrap(), &zone), None);
        assert_eq!(answer(b"nonsense", &zone), None);
        let empty = Message::new(1, MessageType::Query, OpCode::Query).to_vec().unwrap();
        let m = Message::from_vec(&answer(&empty, &zone).unwrap()).unwrap();
        assert_eq!(m.metadata.response_code, ResponseCode::FormErr);
    }
}
