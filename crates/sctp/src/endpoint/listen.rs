//! INIT and COOKIE ECHO chunks: associations that peers open (RFC 9260 sections 5.1 and 5.2).

use super::Endpoint;
use super::sources::Source;
use crate::association::{Association, Fresh, Resolution, Setup, State};
use crate::handshake::{Cookie, CookieError, Offer, Refusal, write_init};
use crate::ids::Route;
use neater_base::{Instant, Key};
use neater_sctp_wire::cause::{
    InvalidMandatoryParameter, OutOfResource, ProtocolViolation, Restart, StaleCookie, UnresolvableAddress,
};
use neater_sctp_wire::chunk::{Abort, Error, Init};
use neater_sctp_wire::{Cause, Causes, Checksum, Chunk, CommonHeader, List, Packet, PacketBuilder, RawChunk, Tag, Tsn};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// An answer may have at most this many times the bytes of its question.
const AMPLIFICATION: usize = 3;
/// The longest INIT ACK packet.
const MAX_INIT_ACK: usize = 1200;

impl Endpoint {
    /// The association that the sender of an INIT chunk is known by: its source address, or one
    /// that it names (section 5.1.2, rule D).
    fn known_by(&self, route: Route, port: u16, addresses: &[IpAddr]) -> Option<Key> {
        let named = addresses.iter().map(|a| SocketAddr::new(*a, route.remote.port()));
        core::iter::once(route.remote).chain(named).find_map(|a| self.index.by_peer(a, port))
    }

    /// Whether no association more is taken from there.
    fn is_full_for(&self, route: Route) -> bool {
        let own = self.sources.of(Source::of(route.remote.ip()));
        self.associations.len() >= self.config.max_associations || own >= self.config.max_per_source
    }

    pub(super) fn on_init(&mut self, now: Instant, route: Route, packet: &Packet<'_>, raw: &RawChunk<'_>) {
        let question = CommonHeader::LEN + raw.bytes.len();
        let alone = packet.chunks().count() == 1 && packet.header.tag == Tag::ZERO;
        let Ok(Chunk::Init(init)) = Chunk::decode(raw) else { return };
        if !alone || !crate::association::is_unicast(route.remote.ip()) {
            return; // Section 8.5.1 A.
        }
        let port = packet.header.source_port;
        let read = Offer::read(&init).and_then(|(peer, _, report)| {
            let protected = self.config.layers.get(usize::from(route.layer.0)).is_some_and(|l| l.authenticates);
            peer.acceptable(&self.association_config, protected)?;
            Ok((peer, report))
        });
        let (peer, report) = match read {
            Ok(read) => read,
            Err(refusal) => return self.refuse_init(now, route, port, &init, &refusal),
        };
        let known = self.known_by(route, port, &peer.addresses);
        let (tag, initial, ties) = match known.and_then(|k| self.associations.get(k)) {
            Some(entry) => {
                let association = &entry.association;
                match association.state() {
                    State::ShutdownAckSent => {
                        // Section 9.2. Nothing in the INIT proves its sender.
                        if self.replies.allow(now, route.remote.ip())
                            && let Some(key) = known
                        {
                            self.resend_shutdown_ack(key);
                        }
                        return;
                    }
                    State::CookieWait => (association.tag(), association.initial(), (0, 0)),
                    State::CookieEchoed(_) => (association.tag(), association.initial(), association.ties()),
                    _ => (Tag::ZERO, Tsn(0), association.ties()),
                }
            }
            None if !self.config.accept && self.config.reserved => return,
            None if !self.config.accept => return self.abort_init(now, route, port, peer.tag, &[]),
            None if self.is_full_for(route) => {
                self.stats.refused += 1;
                return self.abort_init(now, route, port, peer.tag, &[OutOfResource.into()]);
            }
            None => (Tag::ZERO, Tsn(0), (0, 0)),
        };
        if let Some(key) = known
            && self.brings_addresses(now, key, route, port, &peer)
        {
            return;
        }
        let (tag, initial) = if tag == Tag::ZERO { (self.fresh_tag(), Tsn(self.rng.u32())) } else { (tag, initial) };
        let cookie = Cookie { created: now, route, peer_port: port, tag, initial, peer, ties };
        self.answer_init(now, &cookie, &report, question);
    }

    /// A restart must not bring addresses along (sections 5.2.1 and 5.2.2): answers it with an
    /// ABORT chunk, and returns true.
    fn brings_addresses(&mut self, now: Instant, key: Key, route: Route, port: u16, peer: &Offer) -> bool {
        let Some(entry) = self.associations.get(key) else { return false };
        if *entry.association.state() == State::CookieWait {
            return false;
        }
        let source = route.remote.ip();
        let all = peer.addresses.iter().chain(core::iter::once(&source));
        let new: Vec<IpAddr> = all.filter(|a| !entry.association.is_peers(**a)).copied().collect();
        if new.is_empty() {
            return false;
        }
        self.abort_init(now, route, port, peer.tag, &[Restart { addresses: List::new(&new) }.into()]);
        true
    }

    /// Sends the INIT ACK chunk, with everything that we know in its cookie.
    fn answer_init(&mut self, now: Instant, cookie: &Cookie, report: &[u8], question: usize) {
        let authenticated = self.config.layers[usize::from(cookie.route.layer.0)].authenticates;
        let ours = Offer::ours(cookie.tag, cookie.initial, &self.association_config, authenticated);
        let random = self.keys.random(cookie.tag, cookie.initial);
        let ours = Offer { addresses: self.addresses(), ..ours }.with_random(&random, &self.association_config);
        let sealed = self.keys.seal(cookie);
        let mut buffer = vec![0; MAX_INIT_ACK];
        let header =
            CommonHeader { source_port: self.config.port, destination_port: cookie.peer_port, tag: cookie.peer.tag };
        let Ok(mut packet) = PacketBuilder::new(&mut buffer, header) else { return };
        if write_init(&mut packet, &ours, Some((&sealed, report)), 0).is_err() {
            return;
        }
        let len = packet.finish(Checksum::Crc32c);
        buffer.truncate(len);
        if len <= AMPLIFICATION * question || self.replies.allow(now, cookie.route.remote.ip()) {
            self.stats.cookies_sent += 1;
            self.replies.push(cookie.route, buffer);
        }
    }

    fn refuse_init(&mut self, now: Instant, route: Route, port: u16, init: &Init<'_>, refusal: &Refusal) {
        match refusal {
            Refusal::Silent | Refusal::NoCookie => {}
            Refusal::InvalidField(_) => {
                self.abort_init(now, route, port, init.tag, &[InvalidMandatoryParameter.into()]);
            }
            Refusal::Violation(what) => {
                self.abort_init(now, route, port, init.tag, &[ProtocolViolation(what.as_bytes()).into()]);
            }
            Refusal::HostName(name) => self.abort_init(now, route, port, init.tag, &[UnresolvableAddress(name).into()]),
        }
    }

    fn abort_init(&mut self, now: Instant, route: Route, port: u16, tag: Tag, causes: &[Cause<'_>]) {
        if self.replies.allow(now, route.remote.ip()) {
            self.reply(route, port, tag, &Abort { reflected: false, causes: Causes::new(causes) });
        }
    }

    fn resend_shutdown_ack(&mut self, key: Key) {
        if let Some(entry) = self.associations.get_mut(key) {
            entry.association.resend_state();
            self.touch(key);
        }
    }

    pub(super) fn on_cookie_echo(
        &mut self,
        now: Instant,
        route: Route,
        marked: bool,
        packet: &Packet<'_>,
        auth: Option<&RawChunk<'_>>,
        raw: &RawChunk<'_>,
    ) {
        let (cookie, fresh) = match self.keys.open(now, self.config.cookie_life, raw.value) {
            Ok(opened) => opened,
            Err(_) => {
                self.stats.cookies_refused += 1;
                return;
            }
        };
        let port = packet.header.source_port;
        if packet.header.tag != cookie.tag || port != cookie.peer_port {
            self.stats.cookies_refused += 1;
            return; // Section 5.1.5, step 3.
        }
        let known = self.index.by_peer(cookie.route.remote, port);
        let known = known.or_else(|| self.index.by_peer(route.remote, port)).or_else(|| self.index.by_tag(cookie.tag));
        let resolution = known.and_then(|k| self.associations.get(k)).map(|e| e.association.resolve(&cookie));
        if let Some(entry) = known.and_then(|k| self.associations.get_mut(k))
            && !entry.association.vouches_for(&cookie, packet, auth)
        {
            self.stats.cookies_refused += 1;
            return;
        }
        if let Err(stale) = fresh
            && resolution != Some(Resolution::Same)
        {
            return self.call_stale(now, route, &cookie, stale);
        }
        if known.is_none() && self.spent.has(cookie.tag) {
            // What it opened is over. A peer that still waits for the answer is notified.
            self.stats.cookies_refused += 1;
            return self.abort_init(now, route, port, cookie.peer.tag, &[]);
        }
        self.spent.add(now, self.config.cookie_life, cookie.tag);
        match known.zip(resolution) {
            Some((key, resolution)) => {
                let ties = if resolution == Resolution::Restart { self.fresh_ties() } else { (0, 0) };
                let fresh = Fresh { random: self.keys.random(cookie.tag, cookie.initial), ties };
                let Some(entry) = self.associations.get_mut(key) else { return };
                let rest = entry.association.on_cookie(now, &cookie, resolution, route, fresh);
                self.touch(key);
                if rest {
                    self.deliver(now, key, route, marked, packet, taken(auth));
                }
            }
            None => self.accept(now, route, marked, packet, auth, &cookie),
        }
    }

    /// Makes the association that a cookie describes.
    fn accept(
        &mut self,
        now: Instant,
        route: Route,
        marked: bool,
        packet: &Packet<'_>,
        auth: Option<&RawChunk<'_>>,
        cookie: &Cookie,
    ) {
        let layer = usize::from(cookie.route.layer.0);
        if !self.config.accept || layer >= self.config.layers.len() {
            return;
        }
        if self.is_full_for(cookie.route) {
            self.stats.refused += 1;
            let causes = [OutOfResource.into()];
            return self.abort_init(now, route, cookie.peer_port, cookie.peer.tag, &causes);
        }
        let ties = self.fresh_ties();
        let setup = Setup {
            config: Arc::clone(&self.association_config),
            layers: &self.config.layers,
            addresses: self.addresses(),
            port: self.config.port,
            peer_port: cookie.peer_port,
            tag: cookie.tag,
            initial: cookie.initial,
            ties,
            random: self.keys.random(cookie.tag, cookie.initial),
        };
        let mut association = Association::accept(now, setup, cookie, route);
        if !association.vouches_for(cookie, packet, auth) {
            self.stats.cookies_refused += 1;
            return;
        }
        self.stats.accepted += 1;
        let key = self.insert(association);
        let source = Source::of(cookie.route.remote.ip());
        self.sources.add(source);
        if let Some(entry) = self.associations.get_mut(key) {
            entry.opened_from = Some(source);
        }
        self.deliver(now, key, route, marked, packet, taken(auth));
    }

    /// Reports to the peer that its cookie is too old (section 5.1.5, step 4).
    fn call_stale(&mut self, now: Instant, route: Route, cookie: &Cookie, stale: CookieError) {
        self.stats.cookies_refused += 1;
        let CookieError::Stale(by) = stale else { return };
        if self.replies.allow(now, route.remote.ip()) {
            let staleness_us = u32::try_from(by.as_micros()).unwrap_or(u32::MAX);
            let causes = [StaleCookie { staleness_us }.into()];
            self.reply(route, cookie.peer_port, cookie.peer.tag, &Error { causes: Causes::new(&causes) });
        }
    }
}

/// How many chunks have been taken when the cookie has been, and whether one of them was AUTH.
const fn taken(auth: Option<&RawChunk<'_>>) -> (usize, bool) {
    (1 + auth.is_some() as usize, auth.is_some())
}
