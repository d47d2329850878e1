//! The state cookie: everything that the responder needs to make an association, sealed (RFC 9260
//! sections 5.1.3 to 5.1.5).
//!
//! It is authenticated and not encrypted; it holds nothing that its receiver does not know. The key
//! follows from a secret, from our port and from the hour: it changes by itself, several engines
//! that share the secret agree, and what was made at one port is good at no other (section 5.1.5,
//! step 3).

use super::auth::RANDOM_LEN;
use super::offer::{MAX_ADDRESSES, Offer};
use crate::config::Extensions;
use crate::ids::{LayerId, Route};
use core::time::Duration;
use neater_base::{Instant, Reader, Short};
use neater_sctp_wire::{Tag, Tsn};
use ring::hmac;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// The first byte: the version of the layout.
const VERSION: u8 = 3;
/// The MAC is cut to this many bytes (RFC 2104 section 5: at least half of the hash).
const MAC_LEN: usize = 16;
/// In the number of addresses: the one that data should go to first stands behind them.
const HAS_PRIMARY: u8 = 0x80;
/// In the same place: the peer knows I-FORWARD-TSN.
const SKIPS_MESSAGES: u8 = 0x40;
/// The peer has NR-SACK.
const NR_SACK: u8 = 0x20;
/// In the place of the version of an IP address: version 6, and its interface behind it.
const SCOPED: u8 = 7;
/// How long one key is used (RFC 9260 section 5.1.3: "hourly").
const KEY_LIFE: Duration = Duration::from_secs(3600);

/// The content of a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    pub(crate) created: Instant,
    /// Where the INIT came from.
    pub(crate) route: Route,
    pub(crate) peer_port: u16,
    /// Our tag and initial TSN.
    pub(crate) tag: Tag,
    pub(crate) initial: Tsn,
    /// What the peer offered; of the extensions, what both offer.
    pub(crate) peer: Offer,
    /// The tie tags of the association that was there: ours and the peer's, 0 if there was none
    /// (section 5.2.2).
    pub(crate) ties: (u32, u32),
}

/// Why a cookie is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CookieError {
    /// It is not one of ours.
    Forged,
    /// It is too old, by this much.
    Stale(Duration),
}

/// The keys that seal cookies.
#[derive(Debug)]
pub(crate) struct Keys {
    master: hmac::Key,
    /// Our port.
    port: u16,
    /// The last two that were used, with their hours.
    made: [Option<(u64, hmac::Key)>; 2],
}

impl Keys {
    pub(crate) fn new(secret: &[u8; 32], port: u16) -> Self {
        Self { master: hmac::Key::new(hmac::HMAC_SHA256, secret), port, made: [None, None] }
    }

    fn key(&mut self, created: Instant) -> &hmac::Key {
        let hour = created.as_nanos() / KEY_LIFE.as_nanos() as u64;
        let slot = (hour % 2) as usize;
        if self.made[slot].as_ref().is_none_or(|(h, _)| *h != hour) {
            self.made[slot] = None;
        }
        let (master, port) = (&self.master, self.port);
        let (_, key) = self.made[slot].get_or_insert_with(|| {
            let mut context = hmac::Context::with_key(master);
            context.update(b"neater sctp state cookie");
            context.update(&port.to_be_bytes());
            context.update(&hour.to_be_bytes());
            (hour, hmac::Key::new(hmac::HMAC_SHA256, context.sign().as_ref()))
        });
        key
    }

    /// The random number of RFC 4895 section 3.1 of an association with this tag and first TSN. It
    /// follows from both, so that it need not be kept while the handshake is under way, and so that
    /// it is the same where they are (section 6.1).
    pub(crate) fn random(&self, tag: Tag, initial: Tsn) -> [u8; RANDOM_LEN] {
        let mut context = hmac::Context::with_key(&self.master);
        context.update(b"neater sctp random number");
        context.update(&tag.0.to_be_bytes());
        context.update(&initial.0.to_be_bytes());
        let mut random = [0; RANDOM_LEN];
        random.copy_from_slice(context.sign().as_ref());
        random
    }

    /// Writes a cookie.
    pub(crate) fn seal(&mut self, cookie: &Cookie) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        cookie.write(&mut out);
        let mac = hmac::sign(self.key(cookie.created), &out);
        out.extend_from_slice(&mac.as_ref()[..MAC_LEN]);
        out
    }

    /// Reads a cookie. A stale one is returned too, for section 5.2.4 takes it if its tags are
    /// known.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        life: Duration,
        bytes: &[u8],
    ) -> Result<(Cookie, Result<(), CookieError>), CookieError> {
        let (body, mac) = bytes.split_at_checked(bytes.len().wrapping_sub(MAC_LEN)).ok_or(CookieError::Forged)?;
        let mut r = Reader::new(body);
        let (version, created) = (r.u8(), read_u64(&mut r));
        let (Ok(VERSION), Ok(created)) = (version, created) else { return Err(CookieError::Forged) };
        let created = Instant::from_nanos(created);
        // A key for any hour that a forger names costs one computation, as the check itself does.
        let signed = hmac::sign(self.key(created), body);
        let same = signed.as_ref()[..MAC_LEN].iter().zip(mac).fold(0, |d, (a, b)| d | (a ^ b)) == 0;
        if !same || created > now {
            return Err(CookieError::Forged);
        }
        let cookie = Cookie::read(created, &mut r).map_err(|Short| CookieError::Forged)?;
        let age = now - created;
        let fresh = if age > life { Err(CookieError::Stale(age - life)) } else { Ok(()) };
        Ok((cookie, fresh))
    }
}

fn read_u64(r: &mut Reader<'_>) -> Result<u64, Short> {
    Ok(u64::from(r.u32()?) << 32 | u64::from(r.u32()?))
}

fn write_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(a) => {
            out.push(4);
            out.extend_from_slice(&a.octets());
        }
        IpAddr::V6(a) => {
            out.push(6);
            out.extend_from_slice(&a.octets());
        }
    }
}

fn read_ip(r: &mut Reader<'_>) -> Result<IpAddr, Short> {
    match r.u8()? {
        4 => Ok(IpAddr::from(<[u8; 4]>::try_from(r.take(4)?).map_err(|_| Short)?)),
        6 => Ok(IpAddr::from(<[u8; 16]>::try_from(r.take(16)?).map_err(|_| Short)?)),
        _ => Err(Short),
    }
}

/// Where packets go: with the interface, if that is part of the address (RFC 4007 section 6).
fn write_remote(out: &mut Vec<u8>, remote: SocketAddr) {
    match remote {
        SocketAddr::V6(a) if a.scope_id() != 0 => {
            out.push(SCOPED);
            out.extend_from_slice(&a.ip().octets());
            out.extend_from_slice(&a.scope_id().to_be_bytes());
        }
        other => write_ip(out, other.ip()),
    }
}

fn read_remote(r: &mut Reader<'_>, port: u16) -> Result<SocketAddr, Short> {
    if r.rest().first() != Some(&SCOPED) {
        return Ok(SocketAddr::new(read_ip(r)?, port));
    }
    r.u8()?;
    let ip = <[u8; 16]>::try_from(r.take(16)?).map_err(|_| Short)?;
    Ok(SocketAddrV6::new(ip.into(), port, 0, r.u32()?).into())
}

impl Cookie {
    fn write(&self, out: &mut Vec<u8>) {
        let p = &self.peer;
        out.push(VERSION);
        out.extend_from_slice(&self.created.as_nanos().to_be_bytes());
        for n in [self.tag.0, self.initial.0, p.tag.0, p.initial.0, p.window, self.ties.0, self.ties.1] {
            out.extend_from_slice(&n.to_be_bytes());
        }
        for n in [self.peer_port, p.outbound, p.inbound, self.route.layer.0, self.route.remote.port()] {
            out.extend_from_slice(&n.to_be_bytes());
        }
        let e = p.extensions;
        let bits = [
            e.interleaving,
            e.partial_reliability,
            e.reconfiguration,
            e.ecn,
            e.zero_checksum,
            p.adaptation.is_some(),
            e.authentication,
            e.dynamic_addresses,
        ];
        out.push(bits.iter().enumerate().map(|(i, on)| u8::from(*on) << i).sum());
        if let Some(code) = p.adaptation {
            out.extend_from_slice(&code.to_be_bytes());
        }
        write_remote(out, self.route.remote);
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let flags = flag(p.primary.is_some(), HAS_PRIMARY) | flag(p.skips_messages, SKIPS_MESSAGES);
        let flags = flags | flag(e.nr_sack, NR_SACK);
        out.push(p.addresses.len() as u8 | flags);
        for address in &p.addresses {
            write_ip(out, *address);
        }
        p.primary.into_iter().for_each(|primary| write_ip(out, primary));
        out.push(p.auth.len() as u8);
        out.extend_from_slice(&p.auth);
    }

    fn read(created: Instant, r: &mut Reader<'_>) -> Result<Self, Short> {
        let (tag, initial) = (Tag(r.u32()?), Tsn(r.u32()?));
        let (peer_tag, peer_initial, window) = (Tag(r.u32()?), Tsn(r.u32()?), r.u32()?);
        let ties = (r.u32()?, r.u32()?);
        let (peer_port, outbound, inbound) = (r.u16()?, r.u16()?, r.u16()?);
        let (layer, udp_port) = (LayerId(r.u16()?), r.u16()?);
        let bits = r.u8()?;
        let on = |i: u8| bits & 1 << i != 0;
        let adaptation = if on(5) { Some(r.u32()?) } else { None };
        let remote = read_remote(r, udp_port)?;
        let count = r.u8()?;
        let addresses =
            (0..usize::from(count & 0x1f).min(MAX_ADDRESSES)).map(|_| read_ip(r)).collect::<Result<_, _>>()?;
        let primary = if count & HAS_PRIMARY == 0 { None } else { Some(read_ip(r)?) };
        let len = r.u8()?;
        let auth = r.take(usize::from(len))?.to_vec();
        let peer = Offer {
            tag: peer_tag,
            window,
            outbound,
            inbound,
            initial: peer_initial,
            extensions: Extensions {
                interleaving: on(0),
                partial_reliability: on(1),
                reconfiguration: on(2),
                ecn: on(3),
                zero_checksum: on(4),
                authentication: on(6),
                dynamic_addresses: on(7),
                nr_sack: count & NR_SACK != 0,
            },
            skips_messages: count & SKIPS_MESSAGES != 0,
            adaptation,
            addresses,
            primary,
            auth,
        };
        Ok(Self { created, route: Route { layer, remote }, peer_port, tag, initial, peer, ties })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AssociationConfig;

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    fn cookie(created: Instant) -> Cookie {
        let peer = Offer::ours(Tag(3), Tsn(4), &AssociationConfig::default(), false);
        let peer = Offer {
            adaptation: Some(9),
            addresses: vec!["2001:db8::1".parse().unwrap(), "192.0.2.7".parse().unwrap()],
            ..peer
        };
        let route = Route { layer: LayerId(2), remote: "[2001:db8::2]:9899".parse().unwrap() };
        Cookie { created, route, peer_port: 77, tag: Tag(1), initial: Tsn(2), peer, ties: (5, 6) }
    }

    const LIFE: Duration = Duration::from_secs(60);

    #[test]
    fn a_cookie_comes_back_as_it_was_for_as_long_as_it_lives() {
        let mut keys = Keys::new(&[7; 32], 5000);
        let sealed = keys.seal(&cookie(at(3599)));
        assert!(sealed.len() <= 140, "{}", sealed.len());
        assert_eq!(keys.open(at(3659), LIFE, &sealed), Ok((cookie(at(3599)), Ok(()))), "over a change of keys");
        let stale = Err(CookieError::Stale(Duration::from_secs(5)));
        assert_eq!(keys.open(at(3664), LIFE, &sealed), Ok((cookie(at(3599)), stale)));
        assert_eq!(Keys::new(&[7; 32], 5000).open(at(3600), LIFE, &sealed).unwrap().0.tag, Tag(1), "shared by engines");
        assert_eq!(Keys::new(&[8; 32], 5000).open(at(3600), LIFE, &sealed), Err(CookieError::Forged));
        assert_eq!(Keys::new(&[7; 32], 5001).open(at(3600), LIFE, &sealed), Err(CookieError::Forged), "another port");
        assert_eq!(keys.open(at(3598), LIFE, &sealed), Err(CookieError::Forged), "from the future");
    }

    #[test]
    fn the_longest_cookie_comes_back_with_everything_that_a_peer_can_say() {
        let mut keys = Keys::new(&[7; 32], 5000);
        let addresses: Vec<IpAddr> = (0..MAX_ADDRESSES).map(|i| format!("2001:db8::{i:x}").parse().unwrap()).collect();
        for primary in [None, Some(addresses[15]), Some("0.0.0.0".parse().unwrap())] {
            let plain = cookie(at(5));
            let peer =
                Offer { addresses: addresses.clone(), primary, adaptation: None, auth: vec![9; 90], ..plain.peer };
            let full = Cookie { peer, ..plain };
            let sealed = keys.seal(&full);
            assert_eq!(keys.open(at(6), LIFE, &sealed), Ok((full, Ok(()))));
        }
    }

    #[test]
    fn a_link_local_address_comes_back_with_its_interface() {
        let mut keys = Keys::new(&[7; 32], 5000);
        let mut cookie = cookie(at(5));
        cookie.route.remote = SocketAddrV6::new("fe80::7".parse().unwrap(), 9899, 0, 3).into();
        let sealed = keys.seal(&cookie);
        assert_eq!(keys.open(at(6), LIFE, &sealed), Ok((cookie, Ok(()))));
    }

    #[test]
    fn no_bit_may_be_changed_and_no_byte_cut() {
        let mut keys = Keys::new(&[7; 32], 5000);
        let sealed = keys.seal(&cookie(at(10)));
        for i in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[i] ^= 1 << (i % 8);
            assert_eq!(keys.open(at(11), LIFE, &forged), Err(CookieError::Forged), "byte {i}");
            assert_eq!(keys.open(at(11), LIFE, &sealed[..i]), Err(CookieError::Forged), "cut at {i}");
        }
    }
}
