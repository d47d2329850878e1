//! The ways that an SCTP port has to its peers: sockets of interfaces of their own, and addresses
//! of one socket that has all.
//!
//! *Responsible for* which socket a packet layer of `neater-sctp` is, for opening one more for each
//! interface that an association may use (RFC 9622 section 6.2.14), and for what becomes of them
//! when the host's addresses change. *Not responsible for* which path carries data, nor for what
//! the peer is sent about addresses (`neater-sctp`, RFC 5061).
//!
//! *Invariants*: layer 0 is the socket that the endpoint was made on; a way keeps its number, for
//! the paths of associations are named by it; an endpoint with a socket of an interface has one
//! association. A client's addresses are not named to the peer: each is added by an ASCONF chunk
//! from there, with the wildcard address (RFC 5061 section 4.2.1), which works behind a NAT, too.

use super::socket::mtu;
use super::wire::Control;
use super::{PacketLayer, Sctp, SctpEndpoint, Tie};
use crate::Stack;
use crate::carrier::SctpCarrier;
use crate::carrier::event::CarrierEvent;
use crate::carrier::layer::Layers;
use crate::context::Context;
use crate::path::{PathInfo, PathUse};
use crate::request::Compiled;
use neater_base::Key;
use neater_base::net::{Interface, Net, SocketOptions};
use neater_property::{Multipath, MultipathPolicy, Role};
use neater_sctp::{AddressChange, AssociationId, LayerId, PathScheduler, PathState, PathVerdict};
use std::net::{IpAddr, SocketAddr};

/// The most paths of an association.
pub(super) const PATHS_MAX: usize = 8;
/// The most ways of an SCTP port: more addresses of a listener's host are answered from where the
/// system chooses.
const WAYS_MAX: usize = 16;

/// One way, beside the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) socket: Key,
    /// Our address: a client's own, or one of a socket that has all.
    pub(super) at: Option<IpAddr>,
    /// The interface that its socket is bound to.
    pub(super) interface: Option<u32>,
    state: Use,
}

/// What a way is to an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Nothing: the peer has not taken it, or its address is gone.
    None,
    /// The layer below does not take packets yet.
    Opening,
    /// The peer has been asked to use it.
    Asked,
}

impl Way {
    /// Whether it is free for another address: the peer has not taken it, or its address is gone.
    pub(super) fn is_free(&self) -> bool {
        self.state == Use::None
    }
}

impl SctpEndpoint {
    /// The socket of a packet layer, and the address that packets are sent from where the socket
    /// has all.
    pub(super) fn way(&self, layer: LayerId) -> (Key, Option<IpAddr>) {
        match self.ways.get(usize::from(layer.0).wrapping_sub(1)) {
            Some(way) => (way.socket, way.at),
            None => (self.socket, self.at),
        }
    }

    /// The packet layer of what has come by a socket to this address of ours.
    pub(super) fn layer_of(&self, socket: Key, to: Option<IpAddr>) -> LayerId {
        let to = to.map(|ip| ip.to_canonical());
        let exactly = |w: &Way| w.socket == socket && w.at == to;
        // A socket of an interface alone is one way; one that has all addresses has a way for each.
        let alone = |w: &Way| w.socket == socket && w.interface.is_some() && socket != self.socket;
        let known = self.ways.iter().position(exactly).or_else(|| self.ways.iter().position(alone));
        LayerId(known.map_or(0, |i| i as u16 + 1))
    }

    /// Asks the peer to use a way.
    fn ask(&mut self, id: AssociationId, layer: LayerId) {
        let asked = self.endpoint.change_addresses(id, &[AddressChange::Add(layer)]);
        if let Some(way) = self.ways.get_mut(usize::from(layer.0).wrapping_sub(1)) {
            way.state = if asked.is_ok() { Use::Asked } else { Use::None };
        }
    }

    /// Whether it has sockets of several interfaces.
    pub(super) fn has_several_sockets(&self) -> bool {
        self.ways.iter().any(|w| w.interface.is_some())
    }

    /// The sockets that it sends by.
    pub(super) fn sockets(&self) -> impl Iterator<Item = Key> {
        core::iter::once(self.socket).chain(self.ways.iter().map(|w| w.socket))
    }
}

impl Sctp {
    /// Whether this side may open further paths.
    fn may_widen(&self) -> bool {
        let asked = self.request.properties.multipath(Role::Initiate) == Multipath::Active;
        let won = self.attempt.is_none() && !self.on_trial;
        won && self.client
            && asked
            // RFC 8261 has one session for an association: others know no second.
            && (self.stack != Stack::SctpDtls || self.mux)
            && self.connected
            && self.lost.is_none()
            && !self.over
    }
}

/// How data is spread over the paths of an association, by `multipathPolicy` (RFC 9622 section
/// 8.1.7).
pub(super) fn spread(policy: MultipathPolicy) -> Option<neater_sctp::Multipath> {
    Some(match policy {
        MultipathPolicy::Aggregate => neater_sctp::Multipath::aggregate(),
        MultipathPolicy::Interactive => neater_sctp::Multipath::interactive(),
        MultipathPolicy::Handover => neater_sctp::Multipath::handover(),
    })
}

/// An address of an interface that a socket may be bound to, of this family.
pub(super) fn address_of(interface: &Interface, v6: bool) -> Option<IpAddr> {
    let fits = |ip: &IpAddr| {
        let near = matches!(ip, IpAddr::V6(a) if a.is_unicast_link_local());
        ip.is_ipv6() == v6 && !ip.is_loopback() && !near
    };
    let of = interface.addrs.iter().filter(|a| fits(&a.addr));
    // A temporary one reveals less about this host (RFC 8981).
    of.min_by_key(|a| (a.deprecated, !a.temporary)).map(|a| a.addr)
}

/// Whether an address is one of the host's that can be used.
fn is_here(interfaces: &[Interface], at: IpAddr) -> bool {
    interfaces.iter().any(|i| i.up && i.addrs.iter().any(|a| a.addr == at))
}

/// What the first socket of a client is bound to, if its association is to have several paths: were
/// it left to the system where its packets leave, they would go where those of another path go as
/// soon as routes change.
pub(super) fn bound_first<N: Net>(
    cx: &mut Context<N>,
    request: &Compiled,
    to: IpAddr,
    options: &SocketOptions,
) -> Option<SocketOptions> {
    let wanted = request.properties.multipath(Role::Initiate) == Multipath::Active;
    if !wanted || options.local.is_some() || options.interface.is_some() {
        return None;
    }
    // What is sent to this host itself takes no interface that leads out, whichever has the
    // address.
    if cx.net.interfaces().iter().any(|i| i.addrs.iter().any(|a| a.addr == to)) {
        return None;
    }
    let source = cx.net.source_for(to).filter(|ip| !ip.is_loopback())?;
    let has = |i: &&Interface| i.up && i.addrs.iter().any(|a| a.addr == source);
    let interface = cx.net.interfaces().iter().find(has)?.index;
    Some(SocketOptions { local: Some(SocketAddr::new(source, 0)), interface: Some(interface), ..options.clone() })
}

impl SctpCarrier {
    /// The packet layer of what has come to this address of ours on a socket that has all: an
    /// answer leaves from where it was sent to, for at another address of ours we would be a host
    /// that the peer does not know (RFC 9260 section 8.4).
    pub(super) fn arrived_at<N: Net>(&mut self, cx: &Context<N>, end: Key, socket: Key, to: Option<IpAddr>) -> LayerId {
        let Some(e) = self.endpoints.get(end) else { return LayerId(0) };
        let layer = e.layer_of(socket, to);
        let Some(to) = to.map(|ip| ip.to_canonical()).filter(|_| layer.0 == 0 && e.spread) else { return layer };
        // What has come to it is ours also where its interface is not reported to be up yet, or
        // where it is another one's.
        let ours = cx.net.interfaces().iter().any(|i| i.addrs.iter().any(|a| a.addr == to));
        if ours { self.layer_at(end, socket, to).unwrap_or(layer) } else { layer }
    }

    /// The packet layer of an address of ours on a socket that has all. `None`: there are as many
    /// as there may be.
    pub(super) fn layer_at(&mut self, end: Key, socket: Key, at: IpAddr) -> Option<LayerId> {
        let e = self.endpoints.get(end)?;
        match e.layer_of(socket, Some(at)) {
            LayerId(0) if e.ways.len() >= WAYS_MAX => None,
            LayerId(0) => {
                let made = self.layer(socket, e.profile.mtu);
                let e = self.endpoints.get_mut(end)?;
                e.ways.push(Way { socket, at: Some(at), interface: None, state: Use::Asked });
                Some(e.endpoint.add_layer(made))
            }
            known => Some(known),
        }
    }

    /// Opens a path for each further interface that a local association may use, and announces it
    /// to the peer.
    pub(super) fn widen<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        match self.associations.get(key).map(|a| a.stack) {
            Some(Stack::SctpDtls) => self.ties.push(Tie::Widen(key)),
            _ => self.widen_over(cx, None, key),
        }
    }

    /// The same, over the layer below if there is one.
    pub(super) fn widen_over<N: Net>(&mut self, cx: &mut Context<N>, mut layers: Option<&mut Layers<'_>>, key: Key) {
        let Some(a) = self.associations.get(key).filter(|a| a.may_widen()) else { return };
        let (end, id, v6, request) = (a.end, a.id, a.route.is_ipv6(), a.request.clone());
        let Some(e) = self.endpoints.get(end) else { return };
        // A socket that is bound to no interface may be anywhere already.
        let options = self.sockets.get(e.socket).map(|s| s.options.clone());
        let bound = e.at.or_else(|| options.as_ref()?.local.map(|l| l.ip()));
        let Some((options, first)) = options.filter(|o| o.interface.is_some()).zip(bound) else { return };
        if !e.endpoint.agreed(id).is_some_and(|(x, _)| x.dynamic_addresses) {
            return;
        }
        let interfaces = cx.net.interfaces().to_vec();
        let Ok(ranked) = neater_policy::rank_paths(&request.policy.needs, &interfaces) else { return };
        for index in ranked.iter().map(|r| r.index) {
            let Some(interface) = interfaces.iter().find(|i| i.index == index && i.up) else { continue };
            let Some(e) = self.endpoints.get(end) else { return };
            let known = e.ways.iter().find(|w| w.interface == Some(index)).map_or(Some(first), |w| w.at);
            let has = |at: &IpAddr| interface.addrs.iter().any(|a| a.addr == *at && !a.deprecated);
            // As long as it has the address that is in use there, it stays.
            let Some(at) = known.filter(has).or_else(|| address_of(interface, v6)) else { continue };
            // An interface that does not come back has a place that another one can take.
            let gone =
                |w: &Way| w.state == Use::None && w.interface.is_some_and(|i| interfaces.iter().all(|o| o.index != i));
            let slot = e.ways.iter().position(|w| w.interface == Some(index)).or_else(|| e.ways.iter().position(gone));
            let left = self.associations.get(key).is_some_and(|a| a.left.contains(&index));
            if !left && (slot.is_some() || at != first) {
                self.widen_to(cx, layers.as_deref_mut(), key, (index, at, slot), &options);
            }
        }
        self.ask_policy(key, None, request.properties.connection.multipath_policy);
        self.mark_dirty(end);
    }

    /// What the paths of an association are used for from now on. The peer of one that we have
    /// opened is asked to do the same.
    pub(crate) fn set_policy(&mut self, key: Key, stream: u32, policy: MultipathPolicy) {
        let Some(a) = self.associations.get(key) else { return };
        if let Some(e) = self.endpoints.get_mut(a.end).filter(|e| e.profile.several) {
            e.endpoint.set_multipath(a.id, spread(policy));
            self.ask_policy(key, Some(stream), policy);
            self.mark_dirty_of(key);
        }
    }

    /// Asks the peer of an association that we have opened to use its paths so: most of the data
    /// may be the peer's.
    fn ask_policy(&mut self, key: Key, stream: Option<u32>, policy: MultipathPolicy) {
        let Some(a) = self.associations.get(key).filter(|a| a.client) else { return };
        let open = |s: &u32| a.streams.get(s).is_some_and(|s| s.outgoing.is_open());
        let stream = stream.filter(open).or_else(|| a.numbers.values().copied().find(open));
        // A peer that has not been asked uses one path, unless its own program has set another
        // policy.
        if let Some(stream) = stream.filter(|_| policy != a.asked) {
            let code = match policy {
                MultipathPolicy::Handover => 0,
                MultipathPolicy::Interactive => 1,
                MultipathPolicy::Aggregate => 2,
            };
            if self.send_control(key, stream, Control::Paths(code))
                && let Some(a) = self.associations.get_mut(key)
            {
                a.asked = policy;
            }
        }
    }

    /// The peer requests a use of the paths of an association that it has opened.
    pub(super) fn peer_asks_paths(&mut self, key: Key, code: u64) {
        let policy = match code {
            0 => MultipathPolicy::Handover,
            1 => MultipathPolicy::Interactive,
            2 => MultipathPolicy::Aggregate,
            _ => return,
        };
        let Some(a) = self.associations.get(key).filter(|a| !a.client) else { return };
        if let Some(e) = self.endpoints.get_mut(a.end).filter(|e| e.profile.several) {
            e.endpoint.set_multipath(a.id, spread(policy));
            self.mark_dirty_of(key);
        }
    }

    /// One way more, or the one of this interface again, at the address that it has now.
    pub(super) fn widen_to<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        layers: Option<&mut Layers<'_>>,
        key: Key,
        (index, at, slot): (u32, IpAddr, Option<usize>),
        like: &SocketOptions,
    ) {
        let Some(a) = self.associations.get(key) else { return };
        let (end, id) = (a.end, a.id);
        let Some(e) = self.endpoints.get(end) else { return };
        let known = slot.and_then(|i| e.ways.get(i));
        let there = known.is_some_and(|w| w.interface == Some(index) && w.at == Some(at) && w.state != Use::None);
        if there || known.is_none() && e.ways.len() + 1 >= PATHS_MAX {
            return;
        }
        let below = self.sockets.get(e.socket).map_or(PacketLayer::Udp, |s| s.below);
        let options = SocketOptions { local: Some(SocketAddr::new(at, 0)), interface: Some(index), ..like.clone() };
        let family = SocketAddr::new(at, 0);
        let opened = match (below, layers) {
            (PacketLayer::Ip, _) => self.ip_socket(cx, family, &options),
            (_, Some(layers)) => self.open_layer_beside(cx, layers, key, &options),
            (..) => self.open_socket(cx, family, &options, below, false),
        };
        let Ok(socket) = opened else { return };
        let port = self.endpoints.get(end).map_or(0, |e| e.endpoint.port());
        let mtu = mtu(cx, Some(at), None);
        let made = self.layer(socket, mtu);
        if let Some(s) = self.sockets.get_mut(socket) {
            s.ends.insert((port, Some(at).filter(|_| below == PacketLayer::Ip)), end);
        }
        let Some(e) = self.endpoints.get_mut(end) else { return };
        let way = Way { socket, at: Some(at), interface: Some(index), state: Use::Opening };
        let (layer, before) = match slot {
            Some(i) => (LayerId(i as u16 + 1), Some(core::mem::replace(&mut e.ways[i], way).socket)),
            None => {
                e.ways.push(way);
                (e.endpoint.add_layer(made), None)
            }
        };
        if below != PacketLayer::Dtls {
            e.ask(id, layer);
        }
        if let Some(before) = before.filter(|b| *b != socket) {
            self.leave_socket(cx, end, before);
        }
        // Nothing can have come yet, but no event is promised before it was tried.
        self.socket_readable(cx, socket);
    }

    /// The peer has not taken an address, or cannot be reached from there: it is asked again when
    /// the host's addresses change.
    pub(super) fn not_widened(&mut self, key: Key, layer: LayerId) {
        let Some(a) = self.associations.get(key) else { return };
        let Some(e) = self.endpoints.get_mut(a.end) else { return };
        if let Some(way) = e.ways.get_mut(usize::from(layer.0).wrapping_sub(1)) {
            way.state = Use::None;
        }
    }

    /// The layer below takes packets: the peer is asked to use a way that was opened on it.
    pub(super) fn way_up(&mut self, key: Key, socket: Key) {
        let Some(a) = self.associations.get(key) else { return };
        let Some(e) = self.endpoints.get_mut(a.end) else { return };
        if let Some(i) = e.ways.iter().position(|w| w.socket == socket && w.state == Use::Opening) {
            e.ask(a.id, LayerId(i as u16 + 1));
            self.mark_dirty_of(key);
        }
    }

    /// The layer below a further way is over, or has never been up. True: it was one.
    pub(super) fn way_lost<N: Net>(&mut self, cx: &mut Context<N>, key: Key, socket: Key) -> bool {
        let Some((end, id)) = self.associations.get(key).map(|a| (a.end, a.id)) else { return false };
        let Some(e) = self.endpoints.get_mut(end) else { return false };
        let Some(i) = e.ways.iter().position(|w| w.socket == socket) else { return false };
        if core::mem::replace(&mut e.ways[i].state, Use::None) == Use::Asked {
            // Where the peer cannot be asked it finds out by itself.
            let _ = e.endpoint.change_addresses(id, &[AddressChange::Remove(LayerId(i as u16 + 1))]);
        }
        self.leave_socket(cx, end, socket);
        self.mark_dirty(end);
        true
    }

    /// The layer below the first way is over, and others are not.
    pub(super) fn first_way_lost(&mut self, key: Key, socket: Key) {
        let Some(a) = self.associations.get(key).filter(|a| a.client) else { return };
        let Some(e) = self.endpoints.get_mut(a.end).filter(|e| e.socket == socket) else { return };
        let _ = e.endpoint.change_addresses(a.id, &[AddressChange::Remove(LayerId(0))]);
        self.mark_dirty_of(key);
    }

    /// An endpoint uses a socket no more.
    pub(super) fn leave_socket<N: Net>(&mut self, cx: &mut Context<N>, end: Key, socket: Key) {
        if let Some(s) = self.sockets.get_mut(socket) {
            s.ends.retain(|_, e| *e != end);
        }
        self.tidy_socket(cx, socket);
    }

    /// The host's addresses have changed: associations of ours that may have several paths leave
    /// interfaces that are gone and use new ones (RFC 5061), and what does not answer is probed at
    /// once.
    pub(crate) fn paths_changed<N: Net>(&mut self, cx: &mut Context<N>) {
        let interfaces = cx.net.interfaces().to_vec();
        for key in self.associations.keys() {
            let Some(a) = self.associations.get(key).filter(|a| a.connected && !a.over) else { continue };
            let (end, id, may) = (a.end, a.id, a.may_widen());
            // New paths come first: otherwise no path may be left on which the removal of one can
            // be announced.
            self.widen(cx, key);
            let Some(e) = self.endpoints.get_mut(end) else { continue };
            for (i, way) in e.ways.iter_mut().enumerate().filter(|_| may) {
                if way.state != Use::None
                    && way.interface.is_some()
                    && way.at.is_some_and(|at| !is_here(&interfaces, at))
                {
                    way.state = Use::None;
                    // Where the peer cannot be asked it finds out by itself.
                    let _ = e.endpoint.change_addresses(id, &[AddressChange::Remove(LayerId(i as u16 + 1))]);
                }
            }
            e.endpoint.probe_paths(id);
            self.mark_dirty(end);
        }
    }

    /// A path of an association has changed: so have those of its connections.
    pub(super) fn report_paths(&mut self, key: Key) {
        let Some(a) = self.associations.get(key).filter(|a| a.connected && a.attempt.is_none()) else { return };
        let conns = a.streams.values().filter_map(|s| s.user.conn());
        self.events.extend(conns.map(|conn| CarrierEvent::PathChanged { conn }));
    }

    /// Where data goes now.
    pub(super) fn follow(&mut self, key: Key) {
        let Some(a) = self.associations.get_mut(key) else { return };
        let Some(e) = self.endpoints.get(a.end) else { return };
        if let Some((route, _)) = e.endpoint.peer(a.id) {
            a.route = route.remote;
            a.remote.set_ip(route.remote.ip());
        }
    }

    /// The paths of an association.
    pub(crate) fn paths<N: Net>(&self, cx: &Context<N>, key: Key) -> Vec<PathInfo> {
        let Some(a) = self.associations.get(key) else { return Vec::new() };
        let Some(e) = self.endpoints.get(a.end) else { return Vec::new() };
        let primary = e.endpoint.peer(a.id).map(|(route, _)| route);
        let spreads = e.endpoint.multipath(a.id).is_some_and(|m| m.scheduler != PathScheduler::Preferred);
        let info = |p: neater_sctp::PathStats| {
            let (socket, at) = e.way(p.route.layer);
            let s = self.sockets.get(socket)?;
            let bound = cx.net.local_addr(s.sock).ok()?;
            let of = |index: u32| cx.net.interfaces().iter().find(|i| i.index == index).map(|i| i.name.clone());
            let state = match p.state {
                PathState::Unconfirmed => PathUse::Unconfirmed,
                PathState::Active if p.verdict == PathVerdict::NoGain => PathUse::Standby,
                PathState::Active if spreads || Some(p.route) == primary => PathUse::InUse,
                PathState::Active => PathUse::Standby,
                PathState::PotentiallyFailed => PathUse::PotentiallyFailed,
                PathState::Inactive | PathState::Removed => PathUse::Inactive,
            };
            Some(PathInfo {
                local: SocketAddr::new(at.unwrap_or(bound.ip()), bound.port()),
                remote: p.route.remote,
                interface: s.options.interface.and_then(of),
                state,
                why: (p.state == PathState::Active).then_some(p.verdict.as_str()),
                rtt: p.srtt,
                window: p.window,
                in_flight: p.in_flight,
                sent: p.sent,
                lost: p.lost,
                delivered: p.delivered,
                received: p.received,
            })
        };
        e.endpoint.paths(a.id).into_iter().filter_map(info).collect()
    }
}
