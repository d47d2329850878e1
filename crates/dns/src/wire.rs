//! Messages: writing a question, and reading an answer that may be hostile.
//!
//! *Responsible for* the checks that make an answer ours, for walking its sections with bounded
//! work, and for following CNAMEs inside it. *Deliberately not*: a full decoder. Records that were
//! not asked for are skipped unread, so that a broken one among them costs nothing.
//!
//! *Invariant*: at most [`MAX_RECORDS_READ`] records of a message are looked at, whatever its
//! header claims.

use core::time::Duration;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::{Name, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cache::{self, Fact};
use crate::svcb::{HttpsSet, ServiceRecord};
use crate::{ResolveError, name};

/// Bytes of an answer that we can take over UDP, as announced to the server (RFC 6891 section
/// 6.2.5): what fits into an unfragmented IPv6 packet of the minimum MTU.
pub const EDNS_PAYLOAD: u16 = 1232;
/// Bytes in the longest message (RFC 1035 section 4.2.2: the length over TCP has two bytes).
pub const MAX_MESSAGE: usize = 65_535;
/// Records of an answer that are kept at most.
pub const MAX_RECORDS: usize = 64;
/// Records of a message that are looked at, at most.
pub const MAX_RECORDS_READ: usize = 256;
/// CNAME records that are followed inside an answer, at most. Content networks chain nine and more,
/// and other resolvers follow 11 to 16.
pub const MAX_CNAMES: usize = 16;

/// The class IN (RFC 1035 section 3.2.4).
const CLASS_IN: u16 = 1;
/// Response codes (RFC 1035 section 4.1.1, RFC 6891 section 9).
const NOERROR: u16 = 0;
const FORMERR: u16 = 1;
const NXDOMAIN: u16 = 3;
const NOTIMP: u16 = 4;
const REFUSED: u16 = 5;
const BADVERS: u16 = 16;

/// What is asked: a name in its wire form, and a type.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) name: Name,
    pub(crate) record: RecordType,
}

/// The question as a message; `None` only if the name cannot be encoded.
pub(crate) fn question(id: u16, asked: &Asked, edns: bool, trust_ad: bool) -> Option<Vec<u8>> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.metadata.authentic_data = trust_ad;
    message.add_query(Query::query(asked.name.clone(), asked.record));
    if edns {
        let mut option = Edns::new();
        option.set_max_payload(EDNS_PAYLOAD);
        message.set_edns(option);
    }
    message.to_vec().ok()
}

/// What a message means for the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Not an answer to this question: ignore it.
    Foreign,
    /// The answer does not fit into UDP: ask over TCP.
    Truncated,
    /// The server does not understand the question with its EDNS option.
    Plainer,
    /// This server does not help: ask the next.
    Useless(ResolveError),
    /// The answer cannot become better by asking another server.
    Hopeless(ResolveError),
    /// The answer, with how long it may be cached, if at all.
    Answer(Fact, Option<Duration>),
}

/// Judges a message that came from where the question went.
///
/// `stream`: it came over TCP, so truncation means nothing. `edns`: the question carried the
/// option.
pub(crate) fn judge(data: &[u8], id: u16, asked: &Asked, edns: bool, stream: bool) -> Reply {
    if data.len() > MAX_MESSAGE {
        return Reply::Foreign;
    }
    let mut decoder = BinDecoder::new(data);
    let Some(head) = Head::read(&mut decoder) else { return Reply::Foreign };
    if !head.is_ours(&mut decoder, id, asked) {
        return Reply::Foreign;
    }
    if head.truncated && !stream {
        return Reply::Truncated;
    }
    let Some(body) = Body::read(&head, &mut decoder, asked.record) else {
        return Reply::Useless(ResolveError::Malformed);
    };
    match body.code {
        NOERROR => body.resolve(asked),
        NXDOMAIN => Reply::Answer(Fact::NoName, body.negative),
        FORMERR | NOTIMP | BADVERS if edns => Reply::Plainer,
        REFUSED => Reply::Useless(ResolveError::Refused),
        _ => Reply::Useless(ResolveError::ServerFailure),
    }
}

/// The header (RFC 1035 section 4.1.1).
struct Head {
    id: u16,
    response: bool,
    opcode: u8,
    truncated: bool,
    code: u16,
    questions: u16,
    /// Records in the answer, authority and additional sections.
    counts: [u16; 3],
}

impl Head {
    fn read(decoder: &mut BinDecoder<'_>) -> Option<Self> {
        let id = u16(decoder)?;
        let flags = u16(decoder)?;
        let questions = u16(decoder)?;
        Some(Self {
            id,
            response: flags & 0x8000 != 0,
            opcode: (flags >> 11 & 0xf) as u8,
            truncated: flags & 0x0200 != 0,
            code: flags & 0xf,
            questions,
            counts: [u16(decoder)?, u16(decoder)?, u16(decoder)?],
        })
    }

    /// Whether the message answers the question: RFC 5452 section 9.1 lists what must match. Reads
    /// past the question.
    fn is_ours(&self, decoder: &mut BinDecoder<'_>, id: u16, asked: &Asked) -> bool {
        if self.id != id || !self.response || self.opcode != 0 {
            return false;
        }
        match self.questions {
            1 => {
                let (Ok(name), Some(record), Some(class)) = (Name::read(decoder), u16(decoder), u16(decoder)) else {
                    return false;
                };
                // Equality of names ignores case.
                name == asked.name && record == u16::from(asked.record) && class == CLASS_IN
            }
            // A server that could not read the question cannot repeat it.
            0 => matches!(self.code, FORMERR | NOTIMP) && self.counts == [0; 3],
            _ => false,
        }
    }
}

/// The data of a record that matters here.
enum Data {
    Address(IpAddr),
    Alias(Name),
    Service(Option<ServiceRecord>),
}

struct Record {
    owner: Name,
    ttl: u32,
    data: Data,
}

struct Body {
    code: u16,
    records: Vec<Record>,
    /// How long "no" may be cached (RFC 2308 section 5).
    negative: Option<Duration>,
}

impl Body {
    fn read(head: &Head, decoder: &mut BinDecoder<'_>, wanted: RecordType) -> Option<Self> {
        let mut body = Self { code: head.code, records: Vec::new(), negative: None };
        let mut budget = MAX_RECORDS_READ;
        let [answers, authorities, additionals] = head.counts.map(usize::from);
        for _ in 0..answers {
            if budget == 0 {
                return Some(body);
            }
            budget -= 1;
            let raw = Raw::read(decoder)?;
            if raw.class == CLASS_IN
                && let Some(data) = raw.data(wanted)?
            {
                body.records.push(Record { owner: raw.owner, ttl: raw.ttl, data });
            }
        }
        for _ in 0..authorities.min(budget) {
            budget -= 1;
            let raw = Raw::read(decoder)?;
            if raw.record == RecordType::SOA && raw.class == CLASS_IN && body.negative.is_none() {
                let soa = SOA::read(&mut raw.decoder.clone(raw.start)).ok()?;
                // RFC 2308 section 3: "the minimum of the MINIMUM field of the SOA record and the
                // TTL of the SOA itself".
                body.negative = Some(cache::negative_lifetime(soa.minimum.min(raw.ttl)));
            }
        }
        // Only the option record matters here: its TTL holds the upper bits of the response code
        // (RFC 6891 section 6.1.3).
        for _ in 0..additionals.min(budget) {
            let Some(raw) = Raw::read(decoder) else { break };
            if raw.record == RecordType::OPT {
                body.code |= (raw.ttl_bits >> 24 << 4) as u16;
                break;
            }
        }
        Some(body)
    }

    /// Follows the chain of CNAMEs from the question to its records.
    fn resolve(self, asked: &Asked) -> Reply {
        let mut owner = &asked.name;
        let mut ttl = u32::MAX;
        for _ in 0..=MAX_CNAMES {
            let here = || self.records.iter().filter(|r| r.owner == *owner);
            if here().any(|r| !matches!(r.data, Data::Alias(_))) {
                let ttl = here().map(|r| r.ttl).fold(ttl, u32::min);
                return collect(here().map(|r| &r.data), asked.record, owner, ttl);
            }
            let Some((target, alias_ttl)) = here().find_map(|r| match &r.data {
                Data::Alias(target) => Some((target, r.ttl)),
                _ => None,
            }) else {
                // The name exists, but not with this type. Without an SOA record this is not cached
                // (RFC 2308 section 5).
                let lifetime = self.negative.map(|n| n.min(cache::positive_lifetime(ttl)));
                return Reply::Answer(empty(asked.record), lifetime);
            };
            ttl = ttl.min(alias_ttl);
            owner = target;
        }
        Reply::Hopeless(ResolveError::Loop)
    }
}

/// The fact that there is no record of a type.
fn empty(record: RecordType) -> Fact {
    if record == RecordType::HTTPS { Fact::Https(HttpsSet::default()) } else { Fact::Addresses(Vec::new()) }
}

/// Gathers the records of one owner, without duplicates.
fn collect<'a>(data: impl Iterator<Item = &'a Data>, record: RecordType, owner: &Name, ttl: u32) -> Reply {
    let mut addresses = Vec::new();
    let mut set = HttpsSet { owner: name::from_wire(owner), records: Vec::new() };
    for data in data {
        match data {
            Data::Address(a) if addresses.len() < MAX_RECORDS && !addresses.contains(a) => addresses.push(*a),
            Data::Service(Some(r)) if set.records.len() < MAX_RECORDS => set.records.push(r.clone()),
            // RFC 9460 section 2.2: "If any RRs are malformed, the client MUST reject the entire
            // RRSet".
            Data::Service(None) => return Reply::Hopeless(ResolveError::Malformed),
            _ => {}
        }
    }
    let fact = if record == RecordType::HTTPS { Fact::Https(set) } else { Fact::Addresses(addresses) };
    Reply::Answer(fact, Some(cache::positive_lifetime(ttl)))
}

/// A record whose data has not been read.
struct Raw<'a> {
    owner: Name,
    record: RecordType,
    class: u16,
    /// Zero if the top bit was set (RFC 2181 section 8).
    ttl: u32,
    ttl_bits: u32,
    decoder: BinDecoder<'a>,
    start: u16,
    bytes: &'a [u8],
}

impl<'a> Raw<'a> {
    fn read(decoder: &mut BinDecoder<'a>) -> Option<Self> {
        let owner = Name::read(decoder).ok()?;
        let record = RecordType::from(u16(decoder)?);
        let class = u16(decoder)?;
        let ttl_bits = decoder.read_u32().ok()?.unverified();
        let length = u16(decoder)?;
        let start = u16::try_from(decoder.index()).ok()?;
        let here = decoder.clone(start);
        let bytes = decoder.read_slice(usize::from(length)).ok()?.unverified();
        let ttl = if ttl_bits >> 31 == 0 { ttl_bits } else { 0 };
        Some(Self { owner, record, class, ttl, ttl_bits, decoder: here, start, bytes })
    }

    /// The data, if it is of the wanted type or a CNAME. The outer `None` means that the message is
    /// broken.
    fn data(&self, wanted: RecordType) -> Option<Option<Data>> {
        Some(match self.record {
            RecordType::CNAME => {
                // The only data here that may be compressed, so it is read in place.
                let mut decoder = self.decoder.clone(self.start);
                let target = Name::read(&mut decoder).ok()?;
                if decoder.index() != usize::from(self.start) + self.bytes.len() {
                    return None;
                }
                Some(Data::Alias(target))
            }
            r if r != wanted => None,
            RecordType::A => Some(Data::Address(Ipv4Addr::from(<[u8; 4]>::try_from(self.bytes).ok()?).into())),
            RecordType::AAAA => Some(Data::Address(Ipv6Addr::from(<[u8; 16]>::try_from(self.bytes).ok()?).into())),
            RecordType::HTTPS => Some(Data::Service(ServiceRecord::read(self.bytes))),
            _ => None,
        })
    }
}

fn u16(decoder: &mut BinDecoder<'_>) -> Option<u16> {
    decoder.read_u16().ok().map(hickory_proto::serialize::binary::Restrict::unverified)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Zone, answer};

    const ZONE: &str = "a.test A 10.0.0.1\na.test A 10.0.0.2\nw.test CNAME v.test\nv.test CNAME a.test\n";

    fn asked(name: &str, record: RecordType) -> Asked {
        Asked { name: name::to_wire(name).unwrap(), record }
    }

    fn exchange(name: &str, record: RecordType, zone: &str) -> (Asked, Vec<u8>) {
        let asked = asked(name, record);
        let query = question(7, &asked, true, false).unwrap();
        (asked, answer(&query, &Zone::parse(zone).unwrap()).unwrap())
    }

    fn addresses(reply: &Reply) -> Vec<String> {
        match reply {
            Reply::Answer(Fact::Addresses(a), _) => a.iter().map(ToString::to_string).collect(),
            other => panic!("no addresses: {other:?}"),
        }
    }

    #[test]
    fn cnames_inside_the_answer_are_followed() {
        let (asked, data) = exchange("w.test", RecordType::A, ZONE);
        assert_eq!(addresses(&judge(&data, 7, &asked, true, false)), ["10.0.0.1", "10.0.0.2"]);
    }

    #[test]
    fn a_long_chain_of_cnames_is_no_loop() {
        let mut zone: String = (0..MAX_CNAMES).map(|i| format!("n{i}.test CNAME n{}.test\n", i + 1)).collect();
        zone.push_str(&format!("n{MAX_CNAMES}.test A 10.0.0.1\n"));
        let (asked, data) = exchange("n0.test", RecordType::A, &zone);
        assert_eq!(addresses(&judge(&data, 7, &asked, true, false)), ["10.0.0.1"]);
    }

    #[test]
    fn a_loop_of_cnames_ends() {
        let loops = "a.test CNAME b.test\nb.test CNAME a.test\n";
        let (asked, data) = exchange("a.test", RecordType::A, loops);
        assert_eq!(judge(&data, 7, &asked, true, false), Reply::Hopeless(ResolveError::Loop));
    }

    #[test]
    fn another_id_name_type_or_direction_is_foreign() {
        let (a, data) = exchange("a.test", RecordType::A, ZONE);
        assert_eq!(judge(&data, 8, &a, true, false), Reply::Foreign);
        assert_eq!(judge(&data, 7, &asked("b.test", RecordType::A), true, false), Reply::Foreign);
        assert_eq!(judge(&data, 7, &asked("a.test", RecordType::AAAA), true, false), Reply::Foreign);
        assert_eq!(judge(&question(7, &a, true, false).unwrap(), 7, &a, true, false), Reply::Foreign);
        assert_eq!(addresses(&judge(&data, 7, &asked("A.Test", RecordType::A), true, false)).len(), 2);
    }

    #[test]
    fn records_of_other_names_do_not_count() {
        let (a, data) = exchange("a.test", RecordType::A, ZONE);
        let mut message = Message::from_vec(&data).unwrap();
        for r in &mut message.answers {
            r.name = name::to_wire("evil.test").unwrap();
        }
        let reply = judge(&message.to_vec().unwrap(), 7, &a, true, false);
        assert_eq!(reply, Reply::Answer(Fact::Addresses(Vec::new()), None));
    }

    #[test]
    fn no_truncation_and_no_flipped_byte_panics_or_invents_more_records_than_fit() {
        let zone =
            format!("{ZONE}a.test AAAA ::1\na.test HTTPS 1 . alpn=h3,h2 port=443 ipv4hint=10.0.0.1 key65400=x\n");
        for record in [RecordType::A, RecordType::AAAA, RecordType::HTTPS] {
            for name in ["a.test", "w.test", "none.test"] {
                let (asked, data) = exchange(name, record, &zone);
                let whole = judge(&data, 7, &asked, true, false);
                assert!(matches!(whole, Reply::Answer(..)), "{whole:?}");
                for end in 0..data.len() {
                    judge(&data[..end], 7, &asked, true, false);
                }
                for at in 0..data.len() {
                    for bit in 0..8 {
                        let mut bad = data.clone();
                        bad[at] ^= 1 << bit;
                        if let Reply::Answer(Fact::Addresses(a), _) = judge(&bad, 7, &asked, true, true) {
                            assert!(a.len() <= 2);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_header_that_promises_65535_records_costs_little() {
        let (asked, mut data) = exchange("a.test", RecordType::A, ZONE);
        data[6..12].fill(0xff);
        assert_eq!(judge(&data, 7, &asked, true, false), Reply::Useless(ResolveError::Malformed));
    }

    #[test]
    fn records_beyond_the_bound_are_left_out() {
        let zone: String = (0..250).map(|i| format!("many.test A 10.0.1.{i}\n")).collect();
        let asked = asked("many.test", RecordType::A);
        let query = question(7, &asked, true, false).unwrap();
        let zone = Zone::parse(&zone).unwrap();
        assert_eq!(judge(&answer(&query, &zone).unwrap(), 7, &asked, true, false), Reply::Truncated);
        let data = crate::answer_stream(&query, &zone).unwrap();
        assert_eq!(addresses(&judge(&data, 7, &asked, true, true)).len(), MAX_RECORDS);
    }

    #[test]
    fn an_extended_response_code_is_seen() {
        let (asked, data) = exchange("a.test", RecordType::A, ZONE);
        let mut message = Message::from_vec(&data).unwrap();
        message.answers.clear();
        message.metadata.response_code = hickory_proto::op::ResponseCode::BADVERS;
        let data = message.to_vec().unwrap();
        assert_eq!(judge(&data, 7, &asked, true, false), Reply::Plainer);
        assert_eq!(judge(&data, 7, &asked, false, false), Reply::Useless(ResolveError::ServerFailure));
    }

    #[test]
    fn the_negative_lifetime_is_the_smaller_of_minimum_and_ttl() {
        let (asked, data) = exchange("none.test", RecordType::A, "$NEGATIVE 20\na.test A 10.0.0.1\n");
        assert_eq!(judge(&data, 7, &asked, true, false), Reply::Answer(Fact::NoName, Some(Duration::from_secs(20))));
        let mut message = Message::from_vec(&data).unwrap();
        for (ttl, lifetime) in [(5, 5), (100, 20)] {
            message.authorities[0].ttl = ttl;
            let reply = judge(&message.to_vec().unwrap(), 7, &asked, true, false);
            assert_eq!(reply, Reply::Answer(Fact::NoName, Some(Duration::from_secs(lifetime))));
        }
    }
}
