//! Router advertisements (RFC 4861 section 4.2) with the PvD option (RFC 8801 section 3.1), to
//! bytes and back.
//!
//! Read are the options that provision a host: prefix information (RFC 4861 section 4.6.2), route
//! information (RFC 4191 section 2.3), recursive DNS servers and search lists (RFC 8106 section 5).
//! Others are passed over.

use core::fmt;
use neater_base::{Reader, Short};
use std::net::Ipv6Addr;

/// How many prefixes, routes, servers or search domains of one advertisement count, of each kind;
/// the others are passed over.
pub const MAX_ITEMS: usize = 16;
/// The longest message, in bytes: the payload of the largest IPv6 packet that is no jumbogram (RFC
/// 8200 section 4.5).
const MAX_MESSAGE: usize = 65_535;
/// The longest name, in bytes with the lengths of its labels and the root (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 255;

const ROUTER_ADVERTISEMENT: u8 = 134;
const PREFIX_INFORMATION: u8 = 3;
const ROUTE_INFORMATION: u8 = 24;
const RDNSS: u8 = 25;
const DNSSL: u8 = 31;
const PVD: u8 = 21;
/// Bytes of an advertisement before its options.
const HEADER: usize = 16;
/// Bytes of a PvD option before the name.
const PVD_HEADER: usize = 6;

/// An IPv6 prefix. The bits behind its length are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    addr: Ipv6Addr,
    len: u8,
}

impl Prefix {
    /// The first `len` bits of an address; `None` for more than 128.
    #[must_use]
    pub fn new(addr: Ipv6Addr, len: u8) -> Option<Self> {
        let shift = 128_u32.checked_sub(len.into())?;
        let bits = addr.to_bits().checked_shr(shift).and_then(|b| b.checked_shl(shift)).unwrap_or(0);
        Some(Self { addr: Ipv6Addr::from_bits(bits), len })
    }

    /// `2001:db8::/32`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (addr, len) = text.split_once('/')?;
        let plain = len.bytes().all(|b| b.is_ascii_digit());
        Self::new(addr.parse().ok()?, len.parse().ok().filter(|_| plain)?)
    }

    /// Whether an address lies in it.
    #[must_use]
    pub fn holds(&self, addr: Ipv6Addr) -> bool {
        Self::new(addr, self.len).is_some_and(|p| p == *self)
    }

    /// Whether all of another prefix lies in it.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.len <= other.len && self.holds(other.addr)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// The header of a router advertisement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// What hosts put into the hop limit of packets; 0 means unspecified.
    pub hop_limit: u8,
    /// Addresses come from DHCPv6 (the M flag).
    pub managed: bool,
    /// Other configuration comes from DHCPv6 (the O flag).
    pub other: bool,
    /// For how many seconds the router is a default router; 0: it is none.
    pub lifetime: u16,
}

/// A prefix as it is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInfo {
    /// The prefix.
    pub prefix: Prefix,
    /// Its addresses are neighbours (the L flag).
    pub on_link: bool,
    /// Hosts make themselves addresses of it (the A flag).
    pub autonomous: bool,
    /// Seconds for which it is valid; `u32::MAX` is for ever.
    pub valid: u32,
    /// Seconds for which its addresses are preferred.
    pub preferred: u32,
}

/// What hosts are provisioned with. Lifetimes are seconds; `u32::MAX` is for ever, 0 takes it back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Prefixes.
    pub prefixes: Vec<PrefixInfo>,
    /// Where the router leads to, beside everywhere.
    pub routes: Vec<(Prefix, u32)>,
    /// Servers that resolve names.
    pub dns: Vec<(Ipv6Addr, u32)>,
    /// Domains in which names are searched.
    pub search: Vec<(String, u32)>,
}

/// The PvD option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvdOption {
    /// The domain's name, in lower case and without the last dot.
    pub id: String,
    /// A document is there for the asking (the H flag).
    pub http: bool,
    /// The domain has the interface's IPv4 addresses, too (the L flag).
    pub legacy: bool,
    /// How far requests for a new document are spread, 0 to 15: over 2^(10 + `delay`) ms.
    pub delay: u8,
    /// Changes with the document.
    pub sequence: u16,
    /// What takes the place of the advertisement's own header (the R flag).
    pub header: Option<Header>,
    /// What only hosts that know of domains see.
    pub configuration: Configuration,
}

/// A router advertisement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertisement {
    /// For hosts that know nothing of domains, and for all where the option has none.
    pub header: Header,
    /// For all hosts.
    pub configuration: Configuration,
    /// The first PvD option.
    pub pvd: Option<PvdOption>,
}

/// Why a message is no router advertisement that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BadAdvertisement {
    /// It came from beyond a router: its hop limit was not 255 (RFC 4861 section 6.1.2).
    HopLimit,
    /// Its source was no link-local address.
    Source,
    /// It is something else.
    Type,
    /// It ends too early, or is too long.
    Length,
    /// An option has no length, or one that leads beyond the end.
    Option,
    /// The name of the domain is no domain name of letters, digits, `-` and `_`, or is compressed.
    Name,
}

impl fmt::Display for BadAdvertisement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HopLimit => "its hop limit is not 255: it came through a router",
            Self::Source => "its source is no link-local address",
            Self::Type => "it is no router advertisement of code 0",
            Self::Length => "it is cut short, or too long",
            Self::Option => "an option has a length that cannot be",
            Self::Name => "the name of its provisioning domain is none",
        })
    }
}

impl std::error::Error for BadAdvertisement {}

impl From<Short> for BadAdvertisement {
    fn from(_: Short) -> Self {
        Self::Length
    }
}

impl Advertisement {
    /// Reads an ICMPv6 message, whose checksum was verified.
    ///
    /// # Errors
    /// [`BadAdvertisement`], by RFC 4861 section 6.1.2: one bad option makes the whole message
    /// count for nothing.
    pub fn parse(source: Ipv6Addr, hop_limit: u8, message: &[u8]) -> Result<Self, BadAdvertisement> {
        if hop_limit != 255 {
            return Err(BadAdvertisement::HopLimit);
        }
        if !source.is_unicast_link_local() {
            return Err(BadAdvertisement::Source);
        }
        if message.len() < HEADER || message.len() > MAX_MESSAGE {
            return Err(BadAdvertisement::Length);
        }
        if message[..2] != [ROUTER_ADVERTISEMENT, 0] {
            return Err(BadAdvertisement::Type);
        }
        let mut r = Reader::new(message);
        let mut read = Self { header: Header::read(&mut r)?, ..Self::default() };
        while let Some((kind, body)) = next_option(&mut r)? {
            match kind {
                // Of several, the first counts (RFC 8801 section 3.4).
                PVD if read.pvd.is_none() => read.pvd = Some(PvdOption::read(body)?),
                PVD => {}
                kind => read.configuration.read(kind, body)?,
            }
        }
        Ok(read)
    }

    /// The header that counts for hosts that know of domains.
    #[must_use]
    pub fn effective_header(&self) -> Header {
        self.pvd.as_ref().and_then(|p| p.header).unwrap_or(self.header)
    }

    /// What counts for hosts that know of domains: what stands outside the option, then what stands
    /// within.
    pub fn configurations(&self) -> impl Iterator<Item = &Configuration> {
        core::iter::once(&self.configuration).chain(self.pvd.as_ref().map(|p| &p.configuration))
    }

    /// The message, its checksum zero: the system computes it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.header.write(&mut out);
        self.configuration.write(&mut out);
        if let Some(pvd) = &self.pvd {
            pvd.write(&mut out);
        }
        out
    }
}

impl Header {
    fn read(r: &mut Reader<'_>) -> Result<Self, Short> {
        // Type, code and checksum: the caller's, or to be ignored.
        r.take(4)?;
        let (hop_limit, flags, lifetime) = (r.u8()?, r.u8()?, r.u16()?);
        // Reachable time and retransmission timer are the system's.
        r.take(8)?;
        Ok(Self { hop_limit, managed: flags & 0x80 != 0, other: flags & 0x40 != 0, lifetime })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.managed) << 7 | u8::from(self.other) << 6;
        out.extend([ROUTER_ADVERTISEMENT, 0, 0, 0, self.hop_limit, flags]);
        out.extend(self.lifetime.to_be_bytes());
        out.extend([0; 8]);
    }
}

/// The next option: its type, and what follows its type and length.
fn next_option<'a>(r: &mut Reader<'a>) -> Result<Option<(u8, &'a [u8])>, BadAdvertisement> {
    if r.rest().is_empty() {
        return Ok(None);
    }
    let (Ok(kind), Ok(units)) = (r.u8(), r.u8()) else { return Err(BadAdvertisement::Option) };
    let len = usize::from(units) * 8;
    let body = len.checked_sub(2).and_then(|n| r.take(n).ok());
    body.map(|body| Some((kind, body))).ok_or(BadAdvertisement::Option)
}

fn address(bytes: &[u8]) -> Result<Ipv6Addr, BadAdvertisement> {
    bytes.first_chunk::<16>().map(|b| Ipv6Addr::from(*b)).ok_or(BadAdvertisement::Option)
}

/// Reads names until there is none, or padding.
fn names(bytes: &[u8]) -> Result<Vec<String>, BadAdvertisement> {
    let (mut r, mut all) = (Reader::new(bytes), Vec::new());
    while r.rest().first().is_some_and(|b| *b != 0) {
        all.push(name(&mut r)?);
    }
    Ok(all)
}

/// Reads a name of at least one label (RFC 1035 section 3.1), uncompressed.
fn name(r: &mut Reader<'_>) -> Result<String, BadAdvertisement> {
    let (mut text, mut len) = (String::new(), 1);
    loop {
        let n = r.u8().map_err(|_| BadAdvertisement::Name)?;
        if n == 0 {
            break;
        }
        let label = r.take(n.into()).map_err(|_| BadAdvertisement::Name)?;
        len += label.len() + 1;
        let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        // Two high bits mean compression, which may not be used here.
        if n > 63 || len > MAX_NAME || !label.iter().all(plain) {
            return Err(BadAdvertisement::Name);
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.extend(label.iter().map(|b| char::from(b.to_ascii_lowercase())));
    }
    if text.is_empty() { Err(BadAdvertisement::Name) } else { Ok(text) }
}

fn write_name(name: &str, out: &mut Vec<u8>) {
    for label in name.split('.').filter(|l| !l.is_empty()) {
        let bytes = &label.as_bytes()[..label.len().min(63)];
        out.push(bytes.len() as u8);
        out.extend(bytes);
    }
    out.push(0);
}

/// Writes an option: type, length, what `body` writes, padding.
fn option(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([kind, 0]);
    body(out);
    out.resize(start + (out.len() - start).next_multiple_of(8), 0);
    // What is longer than an option can be is cut by its reader.
    out[start + 1] = u8::try_from((out.len() - start) / 8).unwrap_or(u8::MAX);
}

fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() < MAX_ITEMS {
        list.push(item);
    }
}

impl Configuration {
    fn read(&mut self, kind: u8, body: &[u8]) -> Result<(), BadAdvertisement> {
        let mut r = Reader::new(body);
        let bad = |_: Short| BadAdvertisement::Option;
        match kind {
            PREFIX_INFORMATION => {
                let (len, flags) = (r.u8().map_err(bad)?, r.u8().map_err(bad)?);
                let (valid, preferred) = (r.u32().map_err(bad)?, r.u32().map_err(bad)?);
                r.take(4).map_err(bad)?;
                let prefix = Prefix::new(address(r.rest())?, len).ok_or(BadAdvertisement::Option)?;
                // RFC 4862 section 5.5.3: the link-local prefix, and what is preferred for longer
                // than it is valid, are ignored.
                if preferred <= valid && !prefix.addr.is_unicast_link_local() {
                    let (on_link, autonomous) = (flags & 0x80 != 0, flags & 0x40 != 0);
                    push(&mut self.prefixes, PrefixInfo { prefix, on_link, autonomous, valid, preferred });
                }
            }
            ROUTE_INFORMATION => {
                let (len, _) = (r.u8().map_err(bad)?, r.u8().map_err(bad)?);
                let lifetime = r.u32().map_err(bad)?;
                // As many bytes of the prefix as its length needs, by eights.
                let (mut bytes, told) = ([0; 16], r.rest());
                if told.len() > 16 || usize::from(len) > told.len() * 8 {
                    return Err(BadAdvertisement::Option);
                }
                bytes[..told.len()].copy_from_slice(told);
                let prefix = Prefix::new(bytes.into(), len).ok_or(BadAdvertisement::Option)?;
                push(&mut self.routes, (prefix, lifetime));
            }
            RDNSS => {
                r.take(2).map_err(bad)?;
                let lifetime = r.u32().map_err(bad)?;
                for chunk in r.rest().chunks_exact(16) {
                    let server = address(chunk)?;
                    if !server.is_unspecified() && !server.is_multicast() {
                        push(&mut self.dns, (server, lifetime));
                    }
                }
            }
            DNSSL => {
                r.take(2).map_err(bad)?;
                let lifetime = r.u32().map_err(bad)?;
                names(r.rest())?.into_iter().for_each(|name| push(&mut self.search, (name, lifetime)));
            }
            _ => {}
        }
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) {
        for p in &self.prefixes {
            option(out, PREFIX_INFORMATION, |out| {
                out.extend([p.prefix.len, u8::from(p.on_link) << 7 | u8::from(p.autonomous) << 6]);
                out.extend(p.valid.to_be_bytes());
                out.extend(p.preferred.to_be_bytes());
                out.extend([0; 4]);
                out.extend(p.prefix.addr.octets());
            });
        }
        for (prefix, lifetime) in &self.routes {
            option(out, ROUTE_INFORMATION, |out| {
                out.extend([prefix.len, 0]);
                out.extend(lifetime.to_be_bytes());
                out.extend(&prefix.addr.octets()[..usize::from(prefix.len).div_ceil(64) * 8]);
            });
        }
        for (server, lifetime) in &self.dns {
            option(out, RDNSS, |out| {
                out.extend([0; 2]);
                out.extend(lifetime.to_be_bytes());
                out.extend(server.octets());
            });
        }
        for (name, lifetime) in &self.search {
            option(out, DNSSL, |out| {
                out.extend([0; 2]);
                out.extend(lifetime.to_be_bytes());
                write_name(name, out);
            });
        }
    }
}

impl PvdOption {
    fn read(body: &[u8]) -> Result<Self, BadAdvertisement> {
        let mut r = Reader::new(body);
        let flags = r.u16().map_err(|_| BadAdvertisement::Option)?;
        let sequence = r.u16().map_err(|_| BadAdvertisement::Option)?;
        let id = name(&mut r)?;
        // The name is padded to eight bytes, counted from the type of the option.
        let used = PVD_HEADER + (body.len() - 4 - r.rest().len());
        r.take(used.next_multiple_of(8) - used).map_err(|_| BadAdvertisement::Option)?;
        let header = match flags & 0x2000 != 0 {
            true => Some(Header::read(&mut r).map_err(|_| BadAdvertisement::Option)?),
            false => None,
        };
        let mut configuration = Configuration::default();
        while let Some((kind, body)) = next_option(&mut r)? {
            // A PvD option has no place in another one (section 3.2).
            if kind != PVD {
                configuration.read(kind, body)?;
            }
        }
        let http = flags & 0x8000 != 0;
        // Without a document, delay and sequence number have no meaning.
        let (delay, sequence) = if http { ((flags & 0xf) as u8, sequence) } else { (0, 0) };
        Ok(Self { id, http, legacy: flags & 0x4000 != 0, delay, sequence, header, configuration })
    }

    fn write(&self, out: &mut Vec<u8>) {
        option(out, PVD, |out| {
            let start = out.len() - 2;
            let flags =
                u16::from(self.http) << 15 | u16::from(self.legacy) << 14 | u16::from(self.header.is_some()) << 13;
            out.extend((flags | u16::from(self.delay & 0xf)).to_be_bytes());
            out.extend(self.sequence.to_be_bytes());
            write_name(&self.id, out);
            out.resize(start + (out.len() - start).next_multiple_of(8), 0);
            if let Some(header) = &self.header {
                header.write(out);
            }
            self.configuration.write(out);
        });
    }
}
