//! HTTPS records (RFC 9460): reading them, and what they add up to.
//!
//! *Responsible for* the parameters of one record, the choice between AliasMode and ServiceMode,
//! the chain of aliases and the addresses of targets other than the host itself. *Not responsible
//! for* asking (a [`Walk`] returns what to ask) nor for connecting.
//!
//! *Invariants*: a walk asks for at most [`MAX_ALIASES`] more HTTPS names and for the addresses of
//! at most [`MAX_TARGETS`] names, whatever the records contain.

use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};
use neater_base::{Instant, Reader, Rng};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::api::Answer;
use crate::{ResolveError, name};

/// AliasMode records that are followed, at most (RFC 9460 section 3.1 asks for a limit).
pub const MAX_ALIASES: u8 = 4;
/// Foreign targets whose addresses are resolved, at most; bindings with further ones are left out.
pub const MAX_TARGETS: usize = 4;
/// Addresses that are kept of a hint or of a target, of each family at most.
const MAX_ADDRESSES: usize = 16;
/// Protocols that are kept of one record, at most.
const MAX_ALPN: usize = 16;

/// Parameter keys (RFC 9460 section 14.3.2).
mod key {
    pub(super) const MANDATORY: u16 = 0;
    pub(super) const ALPN: u16 = 1;
    pub(super) const NO_DEFAULT_ALPN: u16 = 2;
    pub(super) const PORT: u16 = 3;
    pub(super) const IPV4HINT: u16 = 4;
    pub(super) const ECH: u16 = 5;
    pub(super) const IPV6HINT: u16 = 6;
}

/// The default set of the `https` scheme (RFC 9460 section 9).
const DEFAULT_ALPN: &[u8] = b"http/1.1";

/// One alternative endpoint of a service, ready for use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceBinding {
    /// Lower is preferred. An endpoint that exists only through an alias comes last, with 65,535.
    pub priority: u16,
    /// The name of the endpoint, in lower case without final dot.
    pub target: String,
    /// The protocols it speaks, in the record's order; `http/1.1` is added unless the record
    /// forbids it. Empty where no record lists any, which is at the end of a chain of aliases (RFC
    /// 9460 section 3): as free as the host itself.
    pub alpn: Vec<Vec<u8>>,
    /// Its port, if it is not the one of the request.
    pub port: Option<u16>,
    /// Addresses to try before the target's own are known.
    pub hints: Vec<IpAddr>,
    /// The ECHConfigList, unread.
    pub ech: Option<Vec<u8>>,
    /// The target is not the host that was looked up.
    pub foreign: bool,
    /// The addresses of a foreign target, IPv6 first, as far as they could be found out, and hints
    /// for a family of which they could not; those of the host are answers of their own.
    pub addresses: Vec<IpAddr>,
}

impl ServiceBinding {
    /// Whether it can be reached without the addresses of the host.
    pub(crate) fn leads_elsewhere(&self) -> bool {
        self.foreign && !(self.addresses.is_empty() && self.hints.is_empty())
    }

    pub(crate) fn weight(&self) -> usize {
        size_of::<Self>()
            + self.target.len()
            + self.alpn.iter().map(|a| size_of::<Vec<u8>>() + a.len()).sum::<usize>()
            + size_of_val(self.hints.as_slice())
            + size_of_val(self.addresses.as_slice())
            + self.ech.as_ref().map_or(0, Vec::len)
    }
}

/// One HTTPS record, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServiceRecord {
    /// AliasMode (RFC 9460 section 2.4.2); no target means that the service does not exist.
    Alias(Option<String>),
    /// ServiceMode (RFC 9460 section 2.4.3); an empty target means the record's owner.
    Service(ServiceBinding),
    /// Well-formed, but not for us: it demands what we do not know, or contradicts itself.
    Unusable,
}

/// The HTTPS records of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HttpsSet {
    /// The name that holds them, after CNAMEs; `None` if it has no plain text form.
    pub(crate) owner: Option<String>,
    pub(crate) records: Vec<ServiceRecord>,
}

impl HttpsSet {
    pub(crate) fn weight(&self) -> usize {
        let records = self.records.iter().map(|r| match r {
            ServiceRecord::Service(b) => b.weight(),
            ServiceRecord::Alias(_) | ServiceRecord::Unusable => 256,
        });
        records.sum::<usize>() + self.owner.as_ref().map_or(0, String::len)
    }
}

/// A run of 16-bit keys in strictly increasing order.
fn keys(bytes: &[u8]) -> Option<Vec<u16>> {
    let keys: Vec<u16> = bytes.chunks_exact(2).map(|k| u16::from_be_bytes([k[0], k[1]])).collect();
    (!bytes.is_empty() && bytes.len().is_multiple_of(2) && keys.is_sorted_by(|a, b| a < b)).then_some(keys)
}

/// Non-empty length-prefixed strings that fill `bytes` exactly (RFC 9460 section 7.1.1).
fn protocols(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut reader = Reader::new(bytes);
    let mut list = Vec::new();
    while let Ok(length) = reader.u8() {
        let id = reader.take(usize::from(length)).ok().filter(|id| !id.is_empty())?;
        if list.len() < MAX_ALPN && !list.iter().any(|l| l == id) {
            list.push(id.to_vec());
        }
    }
    (!bytes.is_empty()).then_some(list)
}

/// Addresses of `N` bytes that fill `bytes` exactly (RFC 9460 section 7.3).
fn addresses<const N: usize>(bytes: &[u8], make: impl Fn([u8; N]) -> IpAddr) -> Option<Vec<IpAddr>> {
    let (chunks, rest) = bytes.as_chunks::<N>();
    (!bytes.is_empty() && rest.is_empty()).then(|| chunks.iter().take(MAX_ADDRESSES).map(|c| make(*c)).collect())
}

impl ServiceRecord {
    /// Reads a record's data; `None` if it is malformed (RFC 9460 section 2.2), which condemns its
    /// whole set.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        let priority = reader.u16().ok()?;
        // The target is uncompressed, so the record's bytes are all there is to read.
        let mut decoder = BinDecoder::new(reader.rest());
        let target = Name::read(&mut decoder).ok()?;
        reader.take(decoder.index()).ok()?;
        let root = target.is_root();
        let target = name::from_wire(&target);
        if priority == 0 {
            // Section 2.4.2: an AliasMode record's parameters are ignored.
            return Some(match target {
                None if !root => Self::Unusable,
                target => Self::Alias(target),
            });
        }
        let mut binding = ServiceBinding { priority, ..ServiceBinding::default() };
        let (mut mandatory, mut seen, mut no_default) = (Vec::new(), Vec::new(), false);
        let mut v4 = Vec::new();
        while !reader.rest().is_empty() {
            let k = reader.u16().ok()?;
            let length = usize::from(reader.u16().ok()?);
            let value = reader.take(length).ok()?;
            if seen.last().is_some_and(|last| *last >= k) {
                return None;
            }
            seen.push(k);
            match k {
                key::MANDATORY => mandatory = keys(value)?,
                key::ALPN => binding.alpn = protocols(value)?,
                key::NO_DEFAULT_ALPN if value.is_empty() => no_default = true,
                key::NO_DEFAULT_ALPN => return None,
                key::PORT => binding.port = Some(u16::from_be_bytes(value.try_into().ok()?)),
                key::IPV4HINT => v4 = addresses::<4>(value, |a| Ipv4Addr::from(a).into())?,
                key::IPV6HINT => binding.hints = addresses::<16>(value, |a| Ipv6Addr::from(a).into())?,
                key::ECH => binding.ech = Some(value.to_vec()),
                _ => {}
            }
        }
        binding.hints.extend(v4);
        // Section 8: a record whose mandatory keys we do not all know is not for us; each of them
        // has to be there, and `mandatory` cannot list itself. Section 7.1.1: `no-default-alpn`
        // needs `alpn`. To understand ECH is to use it, and neater does not.
        let known = |k: &u16| (key::ALPN..=key::IPV6HINT).contains(k) && *k != key::ECH;
        let understood = mandatory.iter().all(|k| known(k) && seen.contains(k));
        let consistent = !no_default || !binding.alpn.is_empty();
        if !understood || !consistent || (target.is_none() && !root) {
            return Some(Self::Unusable);
        }
        if !no_default && !binding.alpn.iter().any(|a| a == DEFAULT_ALPN) {
            binding.alpn.push(DEFAULT_ALPN.to_vec());
        }
        binding.target = target.unwrap_or_default();
        Some(Self::Service(binding))
    }
}

/// What a walk wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The HTTPS records of this name.
    Ask(String),
    /// The addresses of these names; the index is what [`Walk::addresses`] wants back.
    Resolve(Vec<String>),
    /// Nothing: this is the answer.
    Finished(Answer),
}

#[derive(Debug)]
struct Target {
    name: String,
    v6: Family,
    v4: Family,
}

/// What is known of a target's addresses of one family.
#[derive(Debug)]
enum Family {
    Asked,
    Known(Vec<IpAddr>),
    Failed,
}

impl Target {
    /// Its addresses as far as they are known, IPv6 first; for a family of which nothing is known,
    /// the hints of the record.
    fn addresses(&self, hints: &[IpAddr]) -> Vec<IpAddr> {
        let of = |family: &Family, v6: bool| match family {
            Family::Known(list) => list.clone(),
            Family::Asked | Family::Failed => hints.iter().copied().filter(|a| a.is_ipv6() == v6).collect(),
        };
        [of(&self.v6, true), of(&self.v4, false)].concat()
    }
}

/// The way from a host's HTTPS records to its service bindings (RFC 9460 section 3).
#[derive(Debug)]
pub(crate) struct Walk {
    /// The host that was looked up: its addresses are asked for anyway.
    host: String,
    /// RFC 9460's $QNAME.
    qname: String,
    aliases: u8,
    bindings: Vec<ServiceBinding>,
    targets: Vec<Target>,
    /// When the first of the facts that went in expires.
    pub(crate) expires: Instant,
}

impl Walk {
    /// The start for `host`'s service on `port`.
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.to_owned(),
            qname: query_name(host, port),
            aliases: 0,
            bindings: Vec::new(),
            targets: Vec::new(),
            expires: Instant::FAR_FUTURE,
        }
    }

    /// The name whose HTTPS records are wanted.
    pub(crate) fn qname(&self) -> &str {
        &self.qname
    }

    /// The HTTPS records of [`Walk::qname`] are known.
    pub(crate) fn records(&mut self, set: &HttpsSet, rng: &mut Rng) -> Step {
        let aliases: Vec<&Option<String>> = set
            .records
            .iter()
            .filter_map(|r| match r {
                ServiceRecord::Alias(target) => Some(target),
                _ => None,
            })
            .collect();
        // Section 2.4.1: an AliasMode record makes the recipient ignore the ServiceMode records
        // beside it, and of several (section 2.4.2) one is picked at random.
        if !aliases.is_empty() {
            let pick = aliases.get(rng.below(aliases.len() as u64) as usize).copied().cloned().flatten();
            return match pick {
                // Section 2.5.1: the service does not exist; that is advice which we need not act
                // upon.
                None => Step::Finished(Answer::Services(Vec::new())),
                Some(_) if self.aliases == MAX_ALIASES => Step::Finished(Answer::Failed(ResolveError::Loop)),
                Some(target) => {
                    self.aliases += 1;
                    self.qname.clone_from(&target);
                    Step::Ask(target)
                }
            };
        }
        self.bindings = set
            .records
            .iter()
            .filter_map(|r| match r {
                ServiceRecord::Service(b) => Some(b.clone()),
                _ => None,
            })
            .filter_map(|mut b| {
                if b.target.is_empty() {
                    // Section 2.5.2: "." stands for the record's owner.
                    b.target = set.owner.clone()?;
                }
                Some(b)
            })
            .collect();
        // Section 2.4.1: equal priorities are shuffled; the sort is stable.
        rng.shuffle(&mut self.bindings);
        self.bindings.sort_by_key(|b| b.priority);
        if self.aliases > 0 {
            // Section 3: the end of a chain of aliases is an endpoint of its own, without
            // parameters, tried last.
            self.bindings.push(ServiceBinding {
                priority: u16::MAX,
                target: self.qname.clone(),
                ..ServiceBinding::default()
            });
        }
        self.choose_targets(set.owner.as_deref())
    }

    /// The HTTPS records of [`Walk::qname`] cannot be found out. Where an alias has led there, the
    /// name is an endpoint all the same (RFC 9460 section 3). `None`: there is nothing but the
    /// failure.
    pub(crate) fn records_failed(&mut self, rng: &mut Rng) -> Option<Step> {
        (self.aliases > 0).then(|| self.records(&HttpsSet::default(), rng))
    }

    /// What is known while addresses of targets are missing: for a family that is, the hints.
    pub(crate) fn so_far(&self) -> Vec<ServiceBinding> {
        let mut bindings = self.bindings.clone();
        for binding in bindings.iter_mut().filter(|b| b.foreign) {
            if let Some(t) = self.targets.iter().find(|t| t.name == binding.target) {
                binding.addresses = t.addresses(&binding.hints);
            }
        }
        bindings
    }

    fn choose_targets(&mut self, owner: Option<&str>) -> Step {
        let (host, targets) = (&self.host, &mut self.targets);
        // A host that is a CNAME: its addresses are those of the name at the end, which its records
        // mean by ".".
        let also = owner.filter(|_| self.aliases == 0 && self.qname == *host);
        self.bindings.retain_mut(|b| {
            b.foreign = b.target != *host && also != Some(&b.target);
            if !b.foreign || targets.iter().any(|t| t.name == b.target) {
                return true;
            }
            let room = targets.len() < MAX_TARGETS;
            if room {
                targets.push(Target { name: b.target.clone(), v6: Family::Asked, v4: Family::Asked });
            }
            room
        });
        if self.targets.is_empty() {
            return Step::Finished(Answer::Services(core::mem::take(&mut self.bindings)));
        }
        Step::Resolve(self.targets.iter().map(|t| t.name.clone()).collect())
    }

    /// The addresses of a target in one family are known; `None`: they cannot be found out.
    pub(crate) fn addresses(&mut self, target: usize, v6: bool, addresses: Option<&[IpAddr]>) -> Option<Answer> {
        let t = self.targets.get_mut(target)?;
        let slot = if v6 { &mut t.v6 } else { &mut t.v4 };
        *slot = match addresses {
            Some(list) => Family::Known(list.iter().copied().take(MAX_ADDRESSES).collect()),
            None => Family::Failed,
        };
        if self.targets.iter().any(|t| matches!(t.v6, Family::Asked) || matches!(t.v4, Family::Asked)) {
            return None;
        }
        for binding in &mut self.bindings {
            if let Some(t) = self.targets.iter().find(|t| t.name == binding.target) {
                binding.addresses = t.addresses(&binding.hints);
            }
        }
        // A foreign endpoint without any address cannot be reached.
        self.bindings.retain(|b| !b.foreign || !b.addresses.is_empty() || !b.hints.is_empty());
        Some(Answer::Services(core::mem::take(&mut self.bindings)))
    }
}

/// Where the HTTPS records of a service are (RFC 9460 section 9): at the host itself for port 443,
/// else under `_PORT._https`.
pub(crate) fn query_name(host: &str, port: u16) -> String {
    if port == 443 { host.to_owned() } else { format!("_{port}._https.{host}") }
}

#[cfg(test)]
#[path = "svcb_tests.rs"]
mod tests;
