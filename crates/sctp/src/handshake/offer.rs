//! The content of INIT and INIT ACK chunks (RFC 9260 sections 3.3.2, 3.3.3 and 5.1; the extensions
//! of their own RFCs).

use super::auth::{self, RANDOM_LEN};
use crate::config::{AssociationConfig, Extensions};
use neater_sctp_wire::chunk::{
    Asconf, AsconfAck, Auth, ForwardTsn, IData, IForwardTsn, Init, InitAck, NrSack, ReConfig,
};
use neater_sctp_wire::parameter::{
    Adaptation, EcnCapable, ErrorDetection, ForwardTsnSupported, Padding, StateCookie, SupportedExtensions,
    Unrecognized, ZeroChecksumAcceptable,
};
use neater_sctp_wire::{Full, PacketBuilder, Parameter, Parameters, Tag, Tsn};
use std::net::IpAddr;

/// The most addresses that are believed of one peer.
pub(crate) const MAX_ADDRESSES: usize = 16;
/// The most bytes of parameters that are sent back as not understood.
const MAX_REPORTED: usize = 256;
/// The least window that may be offered (RFC 9260 section 3.3.2).
const LEAST_WINDOW: u32 = 1500;

/// What one side brings to an association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) tag: Tag,
    pub(crate) window: u32,
    pub(crate) outbound: u16,
    pub(crate) inbound: u16,
    pub(crate) initial: Tsn,
    pub(crate) extensions: Extensions,
    /// I-FORWARD-TSN is among the chunks that its sender knows (RFC 8260 section 2.3.1).
    pub(crate) skips_messages: bool,
    pub(crate) adaptation: Option<u32>,
    pub(crate) addresses: Vec<IpAddr>,
    /// The address that data should go to first (RFC 5061 section 4.2.4).
    pub(crate) primary: Option<IpAddr>,
    /// The key vector of RFC 4895 section 6.1: the RANDOM, CHUNKS and HMAC-ALGO parameters as they
    /// were sent; empty without [`Extensions::authentication`].
    pub(crate) auth: Vec<u8>,
}

/// Why an INIT or INIT ACK chunk is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Without a word.
    Silent,
    /// A mandatory field has a value that it must not have.
    InvalidField(&'static str),
    /// A host name is given, the parameter as it stands there (RFC 9260 section 5.1.2, rule B).
    HostName(Vec<u8>),
    /// There is no cookie in an INIT ACK chunk.
    NoCookie,
    /// Something that must not be.
    Violation(&'static str),
}

/// A chunk that was understood: the offer, the cookie if there is one, and parameters to report as
/// not understood.
pub(crate) type Understood<'a> = (Offer, Option<&'a [u8]>, Vec<u8>);

impl Offer {
    /// What we offer.
    pub(crate) fn ours(tag: Tag, initial: Tsn, config: &AssociationConfig, authenticated: bool) -> Self {
        Self {
            tag,
            window: config.first_receive_buffer.min(config.receive_buffer),
            outbound: config.outbound_streams,
            inbound: config.inbound_streams,
            initial,
            extensions: Extensions {
                zero_checksum: config.extensions.zero_checksum && authenticated,
                ..config.extensions
            },
            skips_messages: config.extensions.interleaving && config.extensions.partial_reliability,
            adaptation: config.adaptation,
            addresses: Vec::new(),
            primary: None,
            auth: Vec::new(),
        }
    }

    /// The same with our side of the keys, if we authenticate.
    pub(crate) fn with_random(mut self, random: &[u8; RANDOM_LEN], config: &AssociationConfig) -> Self {
        if self.extensions.authentication {
            self.auth = auth::vector(random, &config.authentication);
        }
        self
    }

    /// Whether we can have an association with a peer that offers this; `protected`: the layer
    /// below authenticates packets.
    pub(crate) fn acceptable(&self, config: &AssociationConfig, protected: bool) -> Result<(), Refusal> {
        // RFC 5061 section 6: an INIT that is for ASCONF and against AUTH must not be answered by
        // INIT ACK. Behind DTLS the extension is left out instead
        // (`specs/exceptions/rfc5061-6-behind-dtls.toml`).
        let authenticates = auth::has_common_algorithm(&self.auth);
        let both = config.extensions.dynamic_addresses && self.extensions.dynamic_addresses;
        if both && !authenticates && !protected {
            return Err(Refusal::Violation("dynamic addresses are offered without authentication"));
        }
        let asconf = |k: &u8| [Asconf::KIND, AsconfAck::KIND].contains(k);
        let strict = config.extensions.authentication && !config.authentication.required.iter().all(asconf);
        // SHA-1 must be among the peer's algorithms (RFC 4895 section 3.3): a list without any of
        // ours was made by an attacker on the path.
        if strict && !authenticates {
            return Err(Refusal::Violation("authentication is required"));
        }
        Ok(())
    }

    /// Reads what the peer offers.
    pub(crate) fn read<'a>(init: &Init<'a>) -> Result<Understood<'a>, Refusal> {
        if init.tag == Tag::ZERO {
            return Err(Refusal::Silent);
        }
        if init.outbound_streams == 0 || init.inbound_streams == 0 {
            return Err(Refusal::InvalidField("a number of streams is zero"));
        }
        if init.a_rwnd < LEAST_WINDOW {
            return Err(Refusal::InvalidField("the receive window is below 1,500 bytes"));
        }
        let mut offer = Self {
            tag: init.tag,
            window: init.a_rwnd,
            outbound: init.outbound_streams,
            inbound: init.inbound_streams,
            initial: init.initial_tsn,
            extensions: Extensions::NONE,
            skips_messages: false,
            adaptation: None,
            addresses: Vec::new(),
            primary: None,
            auth: Vec::new(),
        };
        let (mut cookie, mut report) = (None, Vec::new());
        let mut parts = auth::Parts::default();
        for parameter in init.parameters.iter() {
            let Ok(parameter) = parameter else { return Err(Refusal::InvalidField("a parameter is malformed")) };
            match parameter {
                Parameter::StateCookie(StateCookie(bytes)) => cookie = Some(bytes),
                Parameter::HostName(name) => return Err(Refusal::HostName(name.0.to_vec())),
                Parameter::Unknown(raw) => {
                    let action = raw.unknown_action();
                    if action.reports() && report.len() + raw.bytes.len() <= MAX_REPORTED {
                        report.extend_from_slice(raw.bytes);
                        report.resize(report.len().next_multiple_of(4), 0);
                    }
                    if action.stops() {
                        break;
                    }
                }
                Parameter::Random(p) if p.0.len() != RANDOM_LEN => {
                    // RFC 4895 section 6.1.
                    return Err(Refusal::Violation("the random number has not 32 bytes"));
                }
                Parameter::Random(p) => parts.random = parts.random.or(Some(p)),
                Parameter::ChunkList(p) => parts.chunks = parts.chunks.or(Some(p)),
                Parameter::HmacAlgo(p) => parts.algorithms = parts.algorithms.or(Some(p)),
                known => offer.take(&known),
            }
        }
        offer.auth = parts.vector();
        offer.extensions.authentication = !offer.auth.is_empty();
        Ok((offer, cookie, report))
    }

    fn take(&mut self, parameter: &Parameter<'_>) {
        let e = &mut self.extensions;
        match parameter {
            Parameter::SupportedExtensions(SupportedExtensions(kinds)) => {
                e.interleaving |= kinds.contains(&IData::KIND);
                e.reconfiguration |= kinds.contains(&ReConfig::KIND);
                e.partial_reliability |= kinds.contains(&ForwardTsn::KIND);
                self.skips_messages |= kinds.contains(&IForwardTsn::KIND);
                e.nr_sack |= kinds.contains(&NrSack::KIND);
                e.dynamic_addresses |= kinds.contains(&Asconf::KIND) && kinds.contains(&AsconfAck::KIND);
            }
            Parameter::ForwardTsnSupported(_) => e.partial_reliability = true,
            Parameter::EcnCapable(_) => e.ecn = true,
            Parameter::ZeroChecksumAcceptable(z) => e.zero_checksum |= z.method == ErrorDetection::DTLS,
            Parameter::Adaptation(a) => self.adaptation = Some(a.code),
            Parameter::SetPrimary(p) => self.primary = Some(p.address),
            other => {
                if let Some(address) = other.address().filter(|_| self.addresses.len() < MAX_ADDRESSES) {
                    self.addresses.push(address);
                }
            }
        }
    }

    /// What both offer. Partial reliability together with interleaving wants I-FORWARD-TSN, which
    /// the peer must have named (RFC 8260 section 2.3.1): Linux (6.1) has the first two and does
    /// not name the third.
    pub(crate) const fn agreed(&self, peer: &Self) -> Extensions {
        let mut both = self.extensions.and(peer.extensions);
        if both.interleaving && !peer.skips_messages {
            both.partial_reliability = false;
        }
        both
    }

    /// How many streams we may send on (RFC 9260 section 5.1.1).
    pub(crate) fn outbound_with(&self, peer: &Self) -> u16 {
        self.outbound.min(peer.inbound)
    }

    /// How many streams the peer may send on.
    pub(crate) fn inbound_with(&self, peer: &Self) -> u16 {
        self.inbound.min(peer.outbound)
    }
}

/// Writes `offer` as an INIT chunk, padded so that the packet has at least `least` bytes; or with
/// `answer`, the cookie and the parameters not understood, as an INIT ACK chunk.
pub(crate) fn write_init(
    packet: &mut PacketBuilder<'_>,
    offer: &Offer,
    answer: Option<(&[u8], &[u8])>,
    least: usize,
) -> Result<(), Full> {
    let e = offer.extensions;
    let kinds: Vec<u8> = [
        (e.interleaving, IData::KIND),
        (e.reconfiguration, ReConfig::KIND),
        (e.partial_reliability, ForwardTsn::KIND),
        (e.partial_reliability && e.interleaving, IForwardTsn::KIND),
        (e.authentication, Auth::KIND),
        (e.nr_sack, NrSack::KIND),
        (e.dynamic_addresses, Asconf::KIND),
        (e.dynamic_addresses, AsconfAck::KIND),
    ]
    .into_iter()
    .filter_map(|(on, kind)| on.then_some(kind))
    .collect();
    let mut parameters: Vec<Parameter<'_>> = Vec::with_capacity(12);
    if let Some((cookie, _)) = answer {
        parameters.push(StateCookie(cookie).into());
    }
    parameters.extend(offer.addresses.iter().map(|a| Parameter::from(*a)));
    if e.ecn {
        parameters.push(EcnCapable.into());
    }
    if e.zero_checksum {
        parameters.push(ZeroChecksumAcceptable { method: ErrorDetection::DTLS }.into());
    }
    if e.partial_reliability {
        parameters.push(ForwardTsnSupported.into());
    }
    if !kinds.is_empty() {
        parameters.push(SupportedExtensions(&kinds).into());
    }
    // As they are in the key vector: the peer computes its keys from the same bytes.
    parameters.extend(Parameters::from_bytes(&offer.auth).iter().flatten());
    if let Some(code) = offer.adaptation {
        parameters.push(Adaptation { code }.into());
    }
    if let Some((_, report)) = answer {
        let reported: Parameters<'_> = Parameters::from_bytes(report);
        for raw in reported.iter().flatten() {
            if let Parameter::Unknown(raw) = raw {
                parameters.push(Unrecognized(raw.bytes).into());
            }
        }
    }
    if answer.is_some() {
        return packet.push(&InitAck(chunk(offer, &parameters)));
    }
    // How long it is without padding is known when it is written.
    let mut probe = [0; 2048];
    let header = neater_sctp_wire::CommonHeader { source_port: 1, destination_port: 1, tag: Tag::ZERO };
    let mut trial = PacketBuilder::new(&mut probe, header)?;
    trial.push(&chunk(offer, &parameters))?;
    if let Some(missing) = least.checked_sub(trial.len() + 4) {
        parameters.push(Padding { len: missing }.into());
    }
    packet.push(&chunk(offer, &parameters))
}

fn chunk<'a>(offer: &Offer, parameters: &'a [Parameter<'a>]) -> Init<'a> {
    Init {
        tag: offer.tag,
        a_rwnd: offer.window,
        outbound_streams: offer.outbound,
        inbound_streams: offer.inbound,
        initial_tsn: offer.initial,
        parameters: Parameters::new(parameters),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_sctp_wire::parameter::{HostName, Random};
    use neater_sctp_wire::{Chunk, CommonHeader, Packet};

    const HEADER: CommonHeader = CommonHeader { source_port: 1, destination_port: 2, tag: Tag::ZERO };

    fn ours() -> Offer {
        let config = AssociationConfig { adaptation: Some(7), ..AssociationConfig::default() };
        Offer { addresses: vec!["192.0.2.1".parse().unwrap()], ..Offer::ours(Tag(9), Tsn(5), &config, true) }
    }

    #[test]
    fn what_is_offered_is_understood() {
        let mut buffer = [0; 1000];
        let mut packet = PacketBuilder::new(&mut buffer, HEADER).unwrap();
        write_init(&mut packet, &ours(), None, 128).unwrap();
        let len = packet.finish(neater_sctp_wire::Checksum::Crc32c);
        assert_eq!(len, 128);
        let packet = Packet::parse(&buffer[..len]).unwrap();
        let Chunk::Init(init) = Chunk::decode(&packet.chunks().next().unwrap().unwrap()).unwrap() else { panic!() };
        let (offer, cookie, report) = Offer::read(&init).unwrap();
        assert_eq!((offer, cookie, report), (ours(), None, vec![]));
    }

    #[test]
    fn an_answer_carries_cookie_and_what_was_not_understood() {
        let mut buffer = [0; 1000];
        let mut packet = PacketBuilder::new(&mut buffer, HEADER).unwrap();
        let strange = [0xc1, 0x23, 0, 5, 9, 0, 0, 0];
        write_init(&mut packet, &ours(), Some((b"cookie", &strange)), 0).unwrap();
        let len = packet.finish(neater_sctp_wire::Checksum::Crc32c);
        let packet = Packet::parse(&buffer[..len]).unwrap();
        let Chunk::InitAck(ack) = Chunk::decode(&packet.chunks().next().unwrap().unwrap()).unwrap() else { panic!() };
        let (offer, cookie, report) = Offer::read(&ack.0).unwrap();
        assert_eq!((offer, cookie, report), (ours(), Some(&b"cookie"[..]), vec![]));
        let reported = ack.0.parameters.iter().flatten().find_map(|p| match p {
            Parameter::Unrecognized(u) => Some(u.0),
            _ => None,
        });
        assert_eq!(reported, Some(&strange[..5]));
    }

    fn read(init: &Init<'_>) -> Result<(Offer, bool, usize), Refusal> {
        Offer::read(init).map(|(o, c, r)| (o, c.is_some(), r.len()))
    }

    #[test]
    fn impossible_offers_are_refused_and_unknown_parameters_judged_by_their_bits() {
        let good = Init {
            tag: Tag(1),
            a_rwnd: 1500,
            outbound_streams: 1,
            inbound_streams: 1,
            initial_tsn: Tsn(0),
            parameters: Parameters::EMPTY,
        };
        assert!(read(&good).is_ok());
        assert_eq!(read(&Init { tag: Tag::ZERO, ..good }), Err(Refusal::Silent));
        assert!(matches!(read(&Init { outbound_streams: 0, ..good }), Err(Refusal::InvalidField(_))));
        assert!(matches!(read(&Init { inbound_streams: 0, ..good }), Err(Refusal::InvalidField(_))));
        assert!(matches!(read(&Init { a_rwnd: 1499, ..good }), Err(Refusal::InvalidField(_))));
        let host = [HostName(b"x\0").into()];
        assert!(matches!(read(&Init { parameters: Parameters::new(&host), ..good }), Err(Refusal::HostName(_))));
        let known = [Random(&[1; 32]).into(), EcnCapable.into()];
        assert!(read(&Init { parameters: Parameters::new(&known), ..good }).unwrap().0.extensions.ecn);
        // An unknown parameter of each kind, and ECN behind it.
        for (kind, reported, goes_on) in
            [(0x3123u16, 0, false), (0x7123, 8, false), (0xb123, 0, true), (0xf123, 8, true)]
        {
            let mut bytes = kind.to_be_bytes().to_vec();
            bytes.extend([0, 8, 1, 2, 3, 4, 0x80, 0, 0, 4]);
            let offer = read(&Init { parameters: Parameters::from_bytes(&bytes), ..good }).unwrap();
            assert_eq!((offer.2, offer.0.extensions.ecn), (reported, goes_on), "{kind:#x}");
        }
        let cut = [0x80, 0, 0, 200];
        assert!(matches!(
            read(&Init { parameters: Parameters::from_bytes(&cut), ..good }),
            Err(Refusal::InvalidField(_))
        ));
    }
}
