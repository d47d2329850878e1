//! Addresses that come and go while the association lives (RFC 5061).
//!
//! Each change of ours is an ASCONF chunk of its own, one at a time. An address that the layer does
//! not name is meant by the wildcard: then the packet leaves from the layer that it is about, and
//! the peer looks at where it came from. Behind a NAT there is no other way (RFC 6951 section 5.7).

use super::input::{Arrived, MAX_EVENTS};
use super::{Association, State};
use crate::error::AddressError;
use crate::event::{AddressChange, CloseReason, Event};
use crate::ids::{LayerId, Route};
use crate::path::PathState;
use neater_base::Instant;
use neater_sctp_wire::cause::{
    DeleteLastAddress, DeleteSourceAddress, IllegalAsconfAck, NoAuthorization, ResourceShortage, UnrecognizedParameters,
};
use neater_sctp_wire::chunk::{Asconf, AsconfAck};
use neater_sctp_wire::parameter::{AddIp, DeleteIp, ErrorIndication, SetPrimary, Success};
use neater_sctp_wire::{
    AsconfSerial, Cause, Causes, Checksum, ChunkSet, CommonHeader, Full, PacketBuilder, Parameter, Parameters, Tag, Tsn,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The chunks of this file, which are authenticated whatever the peer asks for (RFC 5061 sections
/// 4.1.1 and 4.1.2).
pub(super) const ALWAYS_SIGNED: ChunkSet = {
    let mut set = ChunkSet::EMPTY;
    set.insert(Asconf::KIND);
    set.insert(AsconfAck::KIND);
    set
};

/// The most changes that wait.
const MAX_WAITING: usize = 16;
/// The most answers that wait to be sent, and that are kept in case they were lost.
const MAX_ANSWERS: usize = 4;
/// From an address that is to be added nothing may come through. After so many times the chunk is
/// sent where data goes: there the wildcard means an address that the peer has, and the request
/// changes nothing, whether or not it was made before. The numbers of chunks have no gaps (RFC 5061
/// section 5.1, A2), so that it cannot just be dropped.
const FRUITLESS: u32 = 3;
/// The most requests of one chunk that are looked at.
const MAX_REQUESTS: usize = 8;
/// The longest answer to them, in bytes: it goes alone if need be, into the smallest packet and
/// behind an AUTH chunk.
const MAX_ANSWER: usize = 320;
/// An answer that reports only that there was no room.
const SHORT: usize = 12;
/// The most addresses that are remembered as deleted.
const MAX_DELETED: usize = 16;

/// A change of ours, and the address that stands for its layer: the unspecified one if it is not
/// named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) change: AddressChange,
    pub(crate) address: Option<IpAddr>,
}

/// A change that is under way.
#[derive(Clone, Debug)]
struct Pending {
    wish: Wish,
    /// How often it was sent.
    times: u32,
    /// It was sent from an address that the peer does not know yet, and is not answered there: see
    /// [`FRUITLESS`].
    fruitless: bool,
}

/// Both directions; nothing, and no memory, as long as nothing is changed and nothing may be. Most
/// associations never do, and idle ones are to be small.
#[derive(Debug, Default)]
pub(super) struct Addresses(Option<Box<Both>>);

/// Before anything has happened.
static NOTHING: Both = Both::new(0, 0);

impl core::ops::Deref for Addresses {
    type Target = Both;

    fn deref(&self) -> &Both {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl core::ops::DerefMut for Addresses {
    fn deref_mut(&mut self) -> &mut Both {
        self.0.get_or_insert_with(|| Box::new(Both::new(0, 0)))
    }
}

/// What there is where addresses may change.
#[derive(Debug)]
pub(super) struct Both {
    /// The number of our next chunk, or of the one under way.
    ours: AsconfSerial,
    /// The number of the peer's next chunk.
    theirs: AsconfSerial,
    pending: Option<Pending>,
    waiting: VecDeque<Wish>,
    /// It is to be sent, once or once more.
    wanted: bool,
    /// Answers to be sent: where to, number, and parameters.
    answers: VecDeque<(Route, AsconfSerial, Vec<u8>)>,
    /// The last answers, in case they were lost.
    answered: VecDeque<(AsconfSerial, Vec<u8>)>,
    /// Addresses that the peer has deleted: what comes from there is not for us (section 5.3, F13).
    deleted: VecDeque<SocketAddr>,
    /// The peer does not do as we ask with SET PRIMARY (F3b).
    no_primary: bool,
    /// Where the peer has asked in the handshake that data goes first (section 4.2.4): looked at
    /// when the association is up.
    initial_primary: Option<IpAddr>,
}

impl Addresses {
    /// Chunks are numbered from the initial TSNs on (section 5.1, A2).
    pub(super) fn new(ours: Tsn, theirs: Tsn, initial_primary: Option<IpAddr>) -> Self {
        Self(Some(Box::new(Both { initial_primary, ..Both::new(ours.0, theirs.0) })))
    }
}

impl Both {
    const fn new(ours: u32, theirs: u32) -> Self {
        Self {
            ours: AsconfSerial(ours),
            theirs: AsconfSerial(theirs),
            pending: None,
            waiting: VecDeque::new(),
            wanted: false,
            answers: VecDeque::new(),
            answered: VecDeque::new(),
            deleted: VecDeque::new(),
            no_primary: false,
            initial_primary: None,
        }
    }

    /// Where the next answer goes.
    pub(super) fn answer_route(&self) -> Option<Route> {
        self.answers.front().map(|(route, ..)| *route)
    }

    /// Whether nothing is to be sent about addresses.
    pub(super) fn is_quiet(&self) -> bool {
        !self.wanted && self.answers.is_empty()
    }

    /// Whether the peer has deleted this address.
    pub(super) fn is_deleted(&self, remote: SocketAddr) -> bool {
        self.deleted.contains(&remote)
    }
}

impl Association {
    /// Changes our addresses, one change after the other.
    pub(crate) fn change_addresses(&mut self, wishes: &[Wish]) -> Result<(), AddressError> {
        if !matches!(self.state, State::Established | State::ShutdownPending | State::ShutdownReceived) {
            return Err(AddressError::NotEstablished);
        }
        if !self.agreed.dynamic_addresses {
            return Err(AddressError::NotSupported);
        }
        if self.addresses.waiting.len() + wishes.len() > MAX_WAITING {
            return Err(AddressError::TooMany);
        }
        let mut layers: Vec<LayerId> = self.live_paths().map(|p| p.route.layer).collect();
        let under_way = self.addresses.pending.iter().map(|p| &p.wish).chain(&self.addresses.waiting);
        for wish in under_way.chain(wishes) {
            match wish.change {
                AddressChange::Add(layer) => layers.push(layer),
                AddressChange::Remove(layer) => {
                    layers.retain(|l| *l != layer);
                    layers.sort_unstable();
                    layers.dedup();
                    match layers.len() {
                        0 => return Err(AddressError::LastAddress),
                        // The wildcard deletes all but one.
                        2.. if wish.address.is_none() => return Err(AddressError::NotExpressible),
                        _ => {}
                    }
                }
                AddressChange::KeepOnly(layer) => layers.retain(|l| *l == layer),
                AddressChange::Prefer(_) if self.addresses.no_primary => return Err(AddressError::NotSupported),
                AddressChange::Prefer(layer) if !layers.contains(&layer) => return Err(AddressError::NoSuchLayer),
                AddressChange::Prefer(_) => {}
            }
            if layers.is_empty() {
                return Err(AddressError::LastAddress);
            }
        }
        self.addresses.waiting.extend(wishes);
        self.let_additions_go_first();
        self.next_change();
        Ok(())
    }

    /// A removal that was never sent and that no path is left for waits behind additions: with one
    /// of them it may be possible.
    fn let_additions_go_first(&mut self) {
        let stuck = self.addresses.pending.as_ref().is_some_and(|p| p.times == 0) && self.asconf_route().is_none();
        let adds = |wish: &Wish| matches!(wish.change, AddressChange::Add(_));
        if let Some(next) = self.addresses.waiting.iter().position(adds).filter(|_| stuck)
            && let Some(add) = self.addresses.waiting.remove(next)
            && let Some(pending) = &mut self.addresses.pending
        {
            let removal = core::mem::replace(&mut pending.wish, add);
            self.addresses.waiting.push_front(removal);
        }
    }

    fn next_change(&mut self) {
        if self.addresses.pending.is_none()
            && let Some(wish) = self.addresses.waiting.pop_front()
        {
            self.addresses.pending = Some(Pending { wish, times: 0, fruitless: false });
            self.addresses.wanted = true;
        }
    }

    /// Where our chunk goes, if it is to be sent now.
    pub(super) fn asconf_route(&self) -> Option<Route> {
        let open = matches!(
            self.state,
            State::Established | State::ShutdownPending | State::ShutdownReceived | State::ShutdownSent
        );
        if !self.addresses.wanted || !open {
            return None;
        }
        let pending = self.addresses.pending.as_ref()?;
        let Wish { change, address } = pending.wish;
        let current = self.paths[self.current].route;
        let from = |layer: LayerId| Route { layer, remote: self.remote_from(layer) };
        let other = |layer: LayerId| {
            let others = self.live_paths().filter(|p| p.is_active() && p.route.layer != layer);
            others.min_by_key(|p| p.errors).map(|p| p.route)
        };
        match change {
            // The new address may be the only one that works.
            AddressChange::Add(_) if pending.fruitless => Some(current),
            AddressChange::Add(layer) if address.is_none() || pending.times % 2 == 1 => Some(from(layer)),
            AddressChange::Add(_) => Some(current),
            AddressChange::Remove(layer) => other(layer),
            AddressChange::KeepOnly(layer) => {
                self.live_paths().find(|p| p.is_active() && p.route.layer == layer).map(|p| p.route)
            }
            AddressChange::Prefer(layer) if address.is_none() => Some(from(layer)),
            AddressChange::Prefer(_) => Some(current),
        }
    }

    /// Writes our chunk, and answers to the peer's, if they go this way.
    pub(super) fn write_asconf(&mut self, now: Instant, packet: &mut PacketBuilder<'_>, to: Route) -> Result<(), Full> {
        while let Some((_, serial, responses)) = self.addresses.answers.front().filter(|(route, ..)| *route == to) {
            packet.push(&AsconfAck { serial: *serial, responses: Parameters::from_bytes(responses) })?;
            self.addresses.answers.pop_front();
        }
        if self.asconf_route() != Some(to) {
            return Ok(());
        }
        let serial = self.addresses.ours;
        let Some(pending) = self.addresses.pending.as_mut() else { return Ok(()) };
        let Wish { change, address } = pending.wish;
        let unspecified: IpAddr =
            if to.remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let told = address.unwrap_or(unspecified);
        // One request in a chunk: its number may be that of the chunk.
        let correlation = serial.0;
        let request: Parameter<'_> = match change {
            AddressChange::Add(_) => AddIp { correlation, address: told }.into(),
            AddressChange::Remove(_) => DeleteIp { correlation, address: told }.into(),
            AddressChange::KeepOnly(_) => DeleteIp { correlation, address: unspecified }.into(),
            AddressChange::Prefer(_) => SetPrimary { correlation, address: told }.into(),
        };
        // The peer finds the association by its tag, whatever address stands here (section 4.1.1).
        packet.push(&Asconf { serial, address: unspecified, requests: Parameters::new(&[request]) })?;
        pending.times = pending.times.saturating_add(1);
        let backed_off = 1 << (pending.times.min(6) - 1);
        self.addresses.wanted = false;
        // A packet from elsewhere is no measurement of the path of data, and has a pace of its own.
        let rto = self.paths[self.current].rtt.rto();
        let wait = if to == self.paths[self.current].route { rto } else { rto * backed_off };
        self.timers.asconf = Some(now + wait);
        Ok(())
    }

    /// T-4 (section 5.1, B1 to B5).
    pub(super) fn asconf_timeout(&mut self) {
        self.timers.asconf = None;
        self.addresses.wanted = self.addresses.pending.is_some();
        let current = self.current;
        if let Some(pending) = &mut self.addresses.pending
            && matches!(pending.wish, Wish { change: AddressChange::Add(_), address: None })
            && !pending.fruitless
        {
            pending.fruitless = pending.times >= FRUITLESS;
            return;
        }
        self.paths[current].rtt.back_off();
        self.failed(current, true);
    }

    /// The peer has answered our chunk, or something else.
    pub(super) fn on_asconf_ack(&mut self, now: Instant, ack: &AsconfAck<'_>) {
        let a = &self.addresses;
        let next = if a.pending.is_some() { a.ours.next() } else { a.ours };
        if ack.serial >= next {
            // Section 5.3, F0.
            let reason = CloseReason::PeerMisbehaved("ASCONF-ACK for what was not asked");
            return self.abort_with(&[IllegalAsconfAck(&[]).into()], reason);
        }
        if ack.serial != a.ours {
            return; // An old one.
        }
        // What is not mentioned has succeeded (A8).
        let mut refused = None;
        for response in ack.responses.iter().flatten() {
            if let Parameter::ErrorIndication(error) = response {
                refused = Some(error.causes.iter().flatten().next().map_or(0, |c| c.code()));
            }
        }
        self.finish_change(now, refused);
    }

    /// The change that is under way has been made, or refused for that cause.
    fn finish_change(&mut self, now: Instant, refused: Option<u16>) {
        self.timers.asconf = None;
        self.addresses.wanted = false;
        self.addresses.ours = self.addresses.ours.next();
        let Some(Pending { wish, fruitless, .. }) = self.addresses.pending.take() else { return };
        self.errors = 0;
        let done = refused.is_none() && !fruitless;
        let unknown = refused == Some(UnrecognizedParameters::CODE);
        match wish.change {
            AddressChange::Add(layer) if done => self.use_layer(now, layer),
            AddressChange::Remove(layer) if done => self.remove_paths(|route| route.layer == layer),
            AddressChange::KeepOnly(layer) if done => self.remove_paths(|route| route.layer != layer),
            AddressChange::Prefer(_) => self.addresses.no_primary |= unknown,
            // F3a: it does not understand, and is not asked again.
            _ => self.agreed.dynamic_addresses &= !unknown,
        }
        self.events.push_back(Event::AddressChanged { change: wish.change, done });
        if !self.agreed.dynamic_addresses {
            self.give_up_changes(|_| true);
        } else if self.addresses.no_primary {
            self.give_up_changes(|change| matches!(change, AddressChange::Prefer(_)));
        }
        self.next_change();
    }

    /// Where to from a layer: where a path of it leads, or led until it was removed, for that is an
    /// address of its kind.
    fn remote_from(&self, layer: LayerId) -> SocketAddr {
        let of = |removed: bool| {
            let is = |p: &&crate::path::Path| p.route.layer == layer && (p.state == PathState::Removed) == removed;
            self.paths.iter().find(is).map(|p| p.route.remote)
        };
        of(false).or_else(|| of(true)).unwrap_or(self.paths[self.current].route.remote)
    }

    /// The peer has taken an address of ours: paths lead from there to all of its addresses. One
    /// that has a path already was opened for the one that it leads to.
    fn use_layer(&mut self, now: Instant, layer: LayerId) {
        if self.live_paths().any(|p| p.route.layer == layer) {
            return;
        }
        let current = self.remote_from(layer);
        let mut remotes: Vec<SocketAddr> = self.live_paths().map(|p| p.route.remote).collect();
        remotes.retain(|r| r.is_ipv4() == current.is_ipv4() && *r != current);
        remotes.sort_unstable();
        remotes.dedup();
        let room = self.rooms.get(usize::from(layer.0)).copied().unwrap_or(crate::config::MIN_ROOM);
        for remote in core::iter::once(current).chain(remotes) {
            self.verify_path(now, Route { layer, remote }, room);
        }
    }

    /// Adds a path that our program knows of.
    pub(crate) fn add_known_path(&mut self, now: Instant, route: Route, room: u16) -> Result<(), AddressError> {
        if !matches!(self.state, State::Established | State::ShutdownPending | State::ShutdownReceived) {
            return Err(AddressError::NotEstablished);
        }
        if !super::is_unicast(route.remote.ip()) {
            return Err(AddressError::NotUsable);
        }
        self.addresses.deleted.retain(|d| *d != route.remote);
        if self.path_of(route).is_some() || self.verify_path(now, route, room) {
            return Ok(());
        }
        Err(AddressError::TooMany)
    }

    /// Uses an address of the peer's no more.
    pub(crate) fn remove_remote(&mut self, remote: SocketAddr) -> Result<(), AddressError> {
        let is = |p: &crate::path::Path| p.route.remote == remote;
        if !self.live_paths().any(is) {
            return Err(AddressError::NotUsable);
        }
        // What is left must have answered once: data goes nowhere else.
        if !self.live_paths().any(|p| !is(p) && p.state != PathState::Unconfirmed) {
            return Err(AddressError::LastAddress);
        }
        self.forget_remotes(&[remote]);
        self.remove_paths(|route| route.remote == remote);
        Ok(())
    }

    /// What comes from there is not for us from now on (RFC 5061 section 5.3, F13).
    fn forget_remotes(&mut self, gone: &[SocketAddr]) {
        for remote in gone {
            if self.addresses.deleted.len() >= MAX_DELETED {
                self.addresses.deleted.pop_front();
            }
            self.addresses.deleted.push_back(*remote);
        }
    }

    /// Those of the changes that wait are not made.
    fn give_up_changes(&mut self, which: impl Fn(AddressChange) -> bool) {
        let events = &mut self.events;
        self.addresses.waiting.retain(|wish| {
            let gone = which(wish.change);
            if gone {
                events.push_back(Event::AddressChanged { change: wish.change, done: false });
            }
            !gone
        });
    }

    /// The peer that was asked has lost its memory: none of the changes is made.
    pub(super) fn forget_changes(&mut self) {
        let under_way = self.addresses.pending.take().map(|p| p.wish.change);
        self.events.extend(under_way.map(|change| Event::AddressChanged { change, done: false }));
        self.give_up_changes(|_| true);
    }

    /// The association is up: data goes where the peer has asked for in the handshake, as soon as
    /// that path is verified (section 4.2.4). The wildcard means the source of that packet, which
    /// is where data goes anyway.
    pub(super) fn prefer_initial(&mut self) {
        let wanted = if self.agreed.dynamic_addresses { self.addresses.initial_primary.take() } else { None };
        let is = |p: &crate::path::Path| p.state != PathState::Removed && Some(p.route.remote.ip()) == wanted;
        if let Some(index) = self.paths.iter().position(is) {
            self.preferred = index;
            self.choose_path();
        }
    }

    /// The peer does not know ASCONF after all (section 5.1, A9).
    pub(super) fn asconf_unknown(&mut self, now: Instant) {
        self.agreed.dynamic_addresses = false;
        self.finish_change(now, Some(UnrecognizedParameters::CODE));
    }

    /// The peer changes its addresses (section 5.2). The chunk is behind an AUTH chunk, or it would
    /// not have come here.
    pub(super) fn on_asconf(&mut self, arrived: &Arrived, asconf: &Asconf<'_>) {
        let open = matches!(
            self.state,
            State::Established | State::ShutdownPending | State::ShutdownReceived | State::ShutdownSent
        );
        if !open || self.addresses.answers.len() >= MAX_ANSWERS {
            return;
        }
        let route = arrived.route;
        if asconf.serial != self.addresses.theirs {
            // Answered before (E2), or nothing that we know of (E5).
            let known = self.addresses.answered.iter().find(|(serial, _)| *serial == asconf.serial).cloned();
            self.addresses.answers.extend(known.map(|(serial, responses)| (route, serial, responses)));
            return;
        }
        let Some(responses) = self.make_changes(arrived, asconf) else { return };
        self.addresses.theirs = asconf.serial.next();
        if self.addresses.answered.len() >= MAX_ANSWERS {
            self.addresses.answered.pop_front();
        }
        self.addresses.answered.push_back((asconf.serial, responses.clone()));
        self.addresses.answers.push_back((route, asconf.serial, responses));
    }

    /// Does what a chunk asks for, in order, and returns what became of it. `None`: not now.
    fn make_changes(&mut self, arrived: &Arrived, asconf: &Asconf<'_>) -> Option<Vec<u8>> {
        let requests: Vec<Parameter<'_>> = asconf.requests.iter().map_while(Result::ok).take(MAX_REQUESTS).collect();
        let source = arrived.route.remote;
        let wait = requests.iter().any(|r| match r {
            Parameter::DeleteIp(r) => self.is_too_soon(r.address, source),
            _ => false,
        });
        if wait {
            return None;
        }
        let (mut out, mut failing, mut silent) = (Vec::new(), false, true);
        for (done, request) in requests.iter().enumerate() {
            let tlv = bytes(request);
            // Once one has failed the following changes of addresses fail too (F11).
            let refused: Option<Cause<'_>> = match request {
                Parameter::AddIp(_) | Parameter::DeleteIp(_) if failing => Some(ResourceShortage(&tlv).into()),
                Parameter::AddIp(r) => self.add_peer_address(arrived, r.address, &tlv),
                Parameter::DeleteIp(r) => self.delete_peer_address(r.address, source, &tlv),
                Parameter::SetPrimary(r) => self.prefer_peer_address(r.address, source, &tlv),
                other if u8::try_from(other.kind() >> 8).is_ok_and(|k| k & 0x40 != 0) => {
                    Some(UnrecognizedParameters(&tlv).into())
                }
                _ => None,
            };
            failing |= refused.is_some() && matches!(request, Parameter::AddIp(_) | Parameter::DeleteIp(_));
            silent &= refused.is_none();
            let correlation = correlation(&tlv);
            let response = match refused {
                Some(cause) => bytes(&ErrorIndication { correlation, causes: Causes::new(&[cause]) }.into()),
                // Success need not be reported; behind a refusal it must be (A7).
                None if silent => Vec::new(),
                None => bytes(&Success { correlation }.into()),
            };
            // What the peer has sent is quoted as far as there is room for an answer to the others
            // and to those beyond.
            let left = SHORT * (requests.len() - done);
            let room = out.len() + response.len() + left <= MAX_ANSWER;
            let brief =
                || bytes(&ErrorIndication { correlation, causes: Causes::new(&[ResourceShortage(&[]).into()]) }.into());
            out.extend(if room { response } else { brief() });
        }
        // A request without an answer would count as done (section 5.1, A8); what stands behind an
        // error does not (A7).
        let beyond = asconf.requests.iter().map_while(Result::ok).nth(MAX_REQUESTS);
        if let Some(beyond) = beyond {
            let correlation = correlation(&bytes(&beyond));
            out.extend(bytes(
                &ErrorIndication { correlation, causes: Causes::new(&[ResourceShortage(&[]).into()]) }.into(),
            ));
        }
        Some(out)
    }

    /// Whether a deletion would leave only addresses that are being verified: then the peer asks
    /// again.
    fn is_too_soon(&self, address: IpAddr, source: SocketAddr) -> bool {
        let goes = |route: &Route| deletes(address, source, route);
        let stays = || self.live_paths().filter(|p| !goes(&p.route));
        stays().next().is_some() && !stays().any(|p| p.is_usable()) && self.live_paths().any(|p| goes(&p.route))
    }

    fn add_peer_address<'t>(&mut self, arrived: &Arrived, address: IpAddr, tlv: &'t [u8]) -> Option<Cause<'t>> {
        let Route { layer, remote } = arrived.route;
        // The port of the encapsulation is the one that the packet came from (RFC 6951 section
        // 5.1).
        let remote = if address.is_unspecified() { remote } else { SocketAddr::new(address, remote.port()) };
        if !super::may_be_peers(remote.ip(), arrived.route.remote.ip()) {
            return Some(NoAuthorization(tlv).into());
        }
        let route = Route { layer, remote };
        if self.live_paths().any(|p| p.route.remote == remote) {
            return None;
        }
        self.addresses.deleted.retain(|d| *d != remote);
        let room = self.rooms.get(usize::from(layer.0)).copied().unwrap_or(crate::config::MIN_ROOM);
        if self.verify_path(arrived.now, route, room) { None } else { Some(ResourceShortage(tlv).into()) }
    }

    fn delete_peer_address<'t>(&mut self, address: IpAddr, source: SocketAddr, tlv: &'t [u8]) -> Option<Cause<'t>> {
        if !self.live_paths().any(|p| !deletes(address, source, &p.route)) {
            return Some(DeleteLastAddress(tlv).into());
        }
        if address == source.ip() {
            return Some(DeleteSourceAddress(tlv).into());
        }
        let gone: Vec<_> =
            self.live_paths().map(|p| p.route).filter(|r| deletes(address, source, r)).map(|r| r.remote).collect();
        self.forget_remotes(&gone);
        self.remove_paths(|route| deletes(address, source, route));
        None
    }

    fn prefer_peer_address<'t>(&mut self, address: IpAddr, source: SocketAddr, tlv: &'t [u8]) -> Option<Cause<'t>> {
        let wanted = |route: &Route| {
            if address.is_unspecified() { route.remote == source } else { route.remote.ip() == address }
        };
        let index = self.paths.iter().position(|p| p.state != PathState::Removed && wanted(&p.route));
        let Some(index) = index else { return Some(NoAuthorization(tlv).into()) };
        self.preferred = index;
        self.choose_path();
        None
    }

    /// Adds a path that is verified before it is used; false if there are too many.
    fn verify_path(&mut self, now: Instant, route: Route, room: u16) -> bool {
        let Some(index) = self.add_path(route, room, PathState::Unconfirmed) else { return false };
        let path = &mut self.paths[index];
        if path.state == PathState::Unconfirmed {
            path.heartbeat.wanted = true;
            path.heartbeat.schedule(now, Some(now + path.rtt.rto()));
            if self.events.len() < MAX_EVENTS {
                self.events.push_back(Event::Path { path: path.id, route, state: PathState::Unconfirmed });
            }
        }
        true
    }

    /// Paths go; what is on them goes another way.
    fn remove_paths(&mut self, goes: impl Fn(&Route) -> bool) {
        for index in 0..self.paths.len() {
            let path = &mut self.paths[index];
            if path.state == PathState::Removed || !goes(&path.route) {
                continue;
            }
            path.remove();
            let (id, route) = (path.id, path.route);
            self.lose_all_on(index);
            self.outbox.forward |= self.out.has_advanced();
            if self.candidate.is_some_and(|c| c.route == route) {
                self.candidate = None;
            }
            if self.events.len() < MAX_EVENTS {
                self.events.push_back(Event::Path { path: id, route, state: PathState::Removed });
            }
        }
        self.routes_changed = true;
        self.choose_path();
        if self.paths[self.preferred].state == PathState::Removed {
            // Another path may take its place in the list, and that one was not chosen.
            self.preferred = self.current;
        }
    }
}

/// Whether a request to delete `address` that came from `source` deletes this one.
fn deletes(address: IpAddr, source: SocketAddr, route: &Route) -> bool {
    if address.is_unspecified() { route.remote != source } else { route.remote.ip() == address }
}

/// A parameter as it stands in a packet, padded.
fn bytes(parameter: &Parameter<'_>) -> Vec<u8> {
    // Written as the only one of a chunk, whose front is then cut off.
    let mut buffer = [0; 512];
    let header = CommonHeader { source_port: 1, destination_port: 1, tag: Tag::ZERO };
    let Ok(mut packet) = PacketBuilder::new(&mut buffer, header) else { return Vec::new() };
    let list = [*parameter];
    if packet.push(&AsconfAck { serial: AsconfSerial(0), responses: Parameters::new(&list) }).is_err() {
        return Vec::new();
    }
    let len = packet.finish(Checksum::Zero);
    buffer[20..len].to_vec()
}

/// The number of a request, which stands at its beginning.
fn correlation(tlv: &[u8]) -> u32 {
    tlv.get(4..8).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
}
