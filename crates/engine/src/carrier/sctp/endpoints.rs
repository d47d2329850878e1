//! Endpoints that a program adds to an established association and removes from it (RFC 9622
//! section 7.5).
//!
//! *Responsible for* what AddRemote, RemoveRemote, AddLocal and RemoveLocal mean to SCTP. *Not
//! responsible for* the interfaces that are used without being asked for (`paths`), nor for how a
//! path is verified before it carries data (`neater-sctp`).
//!
//! *Invariants*: a path that is added carries nothing before a heartbeat was answered from there
//! (RFC 9260 section 5.4); the last path that has answered is never removed; an interface that the
//! program has removed is not used again until it adds it.

use super::Tie;
use super::paths::address_of;
use super::{PacketLayer, SctpEndpoint};
use crate::carrier::SctpCarrier;
use crate::carrier::layer::Layers;
use crate::context::Context;
use crate::path::{EndpointChange, EndpointError};
use crate::{LocalEndpoint, Stack};
use neater_base::Key;
use neater_base::net::{Interface, Net};
use neater_property::{Multipath, Role};
use neater_sctp::{AddressChange, AddressError, AssociationId, LayerId, PathState, Route};
use std::net::{IpAddr, SocketAddr};

/// What is changed of an association, and where it is found.
struct Changed<'a> {
    sctp: &'a mut SctpCarrier,
    key: Key,
    end: Key,
    id: AssociationId,
    client: bool,
    stack: Stack,
    /// Where its data goes.
    route: SocketAddr,
}

/// A way to be opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    index: u32,
    at: IpAddr,
}

impl From<AddressError> for EndpointError {
    fn from(error: AddressError) -> Self {
        match error {
            AddressError::NotEstablished => Self::NotEstablished,
            AddressError::NotSupported => Self::Unsupported(NO_CHANGE),
            AddressError::LastAddress => Self::Last,
            AddressError::NoSuchLayer | AddressError::NotUsable => Self::Unused,
            // TooMany, and what the enum may grow: NotExpressible is never asked for.
            _ => Self::TooMany,
        }
    }
}

const NO_CHANGE: &str =
    "the peer takes no further addresses (RFC 5061): `multipath` is to be Active here, and not Disabled there";

impl SctpCarrier {
    /// Changes the endpoints of a connection's association. The other connections of its group have
    /// the same.
    pub(crate) fn change_endpoints<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        key: Key,
        change: &EndpointChange,
    ) -> Result<(), EndpointError> {
        let a = self.associations.get(key).filter(|a| a.connected && !a.over && a.attempt.is_none());
        let a = a.ok_or(EndpointError::NotEstablished)?;
        let role = if a.client { Role::Initiate } else { Role::Listen };
        if a.request.properties.multipath(role) == Multipath::Disabled {
            return Err(EndpointError::OnePath);
        }
        let end = a.end;
        let mut of = Changed { key, end, id: a.id, client: a.client, stack: a.stack, route: a.route, sctp: self };
        let changed = match change {
            EndpointChange::AddRemote(remote) => of.add_remote(cx, *remote),
            EndpointChange::RemoveRemote(remote) => of.remove_remote(*remote),
            EndpointChange::AddLocal(local) if of.client => of.add_local(cx, local),
            EndpointChange::AddLocal(local) => of.add_listening(cx, local),
            EndpointChange::RemoveLocal(local) if of.client => of.remove_local(cx, local),
            EndpointChange::RemoveLocal(local) => of.remove_listening(cx, local),
        };
        self.mark_dirty(end);
        self.report_paths(key);
        changed
    }

    /// Opens a way, and a path from there where it leads to another address than data goes to.
    pub(super) fn open<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        layers: Option<&mut Layers<'_>>,
        key: Key,
        Opened { index, at }: Opened,
        remote: Option<SocketAddr>,
    ) -> Result<(), EndpointError> {
        let a = self.associations.get(key).ok_or(EndpointError::NotEstablished)?;
        let (end, id) = (a.end, a.id);
        let e = self.endpoints.get(end).ok_or(EndpointError::NotEstablished)?;
        let options = self.sockets.get(e.socket).map(|s| s.options.clone()).unwrap_or_default();
        let alike =
            |w: &super::paths::Way| w.interface == Some(index) && w.at.is_none_or(|a| a.is_ipv6() == at.is_ipv6());
        // One that is in use stays as it is: the paths from there have its number.
        let same = |w: &super::paths::Way| alike(w) && (w.is_free() || w.at == Some(at));
        let slot = e.ways.iter().position(same);
        self.widen_to(cx, layers, key, (index, at, slot), &options);
        let e = self.endpoints.get_mut(end).ok_or(EndpointError::NotEstablished)?;
        let layer = e.ways.iter().position(|w| w.interface == Some(index) && w.at == Some(at));
        let layer = layer.map(|i| LayerId(i as u16 + 1)).ok_or(EndpointError::TooMany)?;
        if let Some(remote) = remote {
            e.endpoint.add_path(cx.now, id, Route { layer, remote })?;
        }
        self.mark_dirty(end);
        Ok(())
    }
}

impl Changed<'_> {
    /// Where the association is, and its number there.
    fn end(&mut self) -> Result<(&mut SctpEndpoint, AssociationId), EndpointError> {
        let id = self.id;
        self.sctp.endpoints.get_mut(self.end).map(|e| (e, id)).ok_or(EndpointError::NotEstablished)
    }

    /// The packet layers that its paths leave by, each once.
    fn layers_of(&mut self, confirmed: bool) -> Result<Vec<LayerId>, EndpointError> {
        let (e, id) = self.end()?;
        let paths = e.endpoint.paths(id).into_iter();
        let live = |s: PathState| s != PathState::Removed && (!confirmed || s != PathState::Unconfirmed);
        let mut layers: Vec<_> = paths.filter(|p| live(p.state)).map(|p| p.route.layer).collect();
        layers.sort_unstable();
        layers.dedup();
        Ok(layers)
    }

    /// The address of a packet layer and the interface that it is bound to, as far as it has them.
    fn bound_to(&self, layer: LayerId) -> (Option<IpAddr>, Option<u32>) {
        let Some(e) = self.sctp.endpoints.get(self.end) else { return (None, None) };
        let (socket, at) = e.way(layer);
        let Some(s) = self.sctp.sockets.get(socket) else { return (None, None) };
        let local = s.options.local.map(|l| l.ip()).filter(|ip| !ip.is_unspecified());
        (at.or(local), s.options.interface)
    }

    fn below(&self) -> PacketLayer {
        let socket = self.sctp.endpoints.get(self.end).and_then(|e| self.sctp.sockets.get(e.socket));
        socket.map_or(PacketLayer::Udp, |s| s.below)
    }

    /// The peer's address as a packet goes there: with the port of the layer below.
    fn as_sent(&self, remote: SocketAddr) -> SocketAddr {
        let port = match (self.below(), remote.port()) {
            (PacketLayer::Ip, _) => 0,
            (_, 0) => self.route.port(),
            (_, port) => port,
        };
        SocketAddr::new(remote.ip(), port)
    }

    fn add_remote<N: Net>(&mut self, cx: &mut Context<N>, to: SocketAddr) -> Result<(), EndpointError> {
        if self.below() == PacketLayer::Dtls {
            let why = "over DTLS all paths lead to the address of the peer that was connected to";
            return Err(EndpointError::Unsupported(why));
        }
        let (remote, broadcast) = (self.as_sent(to), matches!(to.ip(), IpAddr::V4(a) if a.is_broadcast()));
        if to.ip().is_unspecified() || to.ip().is_multicast() || broadcast {
            return Err(EndpointError::NoAddress);
        }
        let layers = self.layers_of(false)?;
        let here = |ip: IpAddr| ip.is_ipv6() == remote.is_ipv6();
        let fits = |c: &Self, layer: LayerId| c.bound_to(layer).0.map_or(here(self.route.ip()), here);
        let (now, mut added) = (cx.now, None);
        for layer in layers.iter().copied().filter(|l| fits(self, *l)).collect::<Vec<_>>() {
            let (e, id) = self.end()?;
            let one = e.endpoint.add_path(now, id, Route { layer, remote });
            added = if added == Some(Ok(())) { added } else { Some(one) };
        }
        if let Some(added) = added {
            return added.map_err(EndpointError::from);
        }
        if !self.client {
            return Err(EndpointError::Unsupported("the listener has no socket for this kind of address"));
        }
        self.open_for_remote(cx, &layers, remote)
    }

    /// The other version of IP: from each interface that is used, or from the one that leads there.
    fn open_for_remote<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        layers: &[LayerId],
        remote: SocketAddr,
    ) -> Result<(), EndpointError> {
        let interfaces = cx.net.interfaces().to_vec();
        let mut used: Vec<u32> = layers.iter().filter_map(|l| self.bound_to(*l).1).collect();
        let source = cx.net.source_for(remote.ip());
        let leads = |i: &&Interface| source.is_some_and(|s| i.addrs.iter().any(|a| a.addr == s));
        if used.is_empty() {
            used.extend(interfaces.iter().find(leads).map(|i| i.index));
        }
        let mut opened = Err(EndpointError::NoInterface);
        for index in used {
            let interface = interfaces.iter().find(|i| i.index == index && i.up);
            let Some(at) = interface.and_then(|i| address_of(i, remote.is_ipv6())) else { continue };
            let one = self.sctp.open(cx, None, self.key, Opened { index, at }, Some(remote));
            opened = if opened.is_ok() { opened } else { one };
        }
        opened
    }

    fn remove_remote(&mut self, remote: SocketAddr) -> Result<(), EndpointError> {
        let remote = self.as_sent(remote);
        let (e, id) = self.end()?;
        e.endpoint.remove_remote(id, remote)?;
        self.sctp.follow(self.key);
        Ok(())
    }

    /// The interface that a program names, by its name or its address.
    fn named<N: Net>(cx: &Context<N>, local: &LocalEndpoint) -> Result<Interface, EndpointError> {
        let has = |i: &Interface, ip: IpAddr| i.addrs.iter().any(|a| a.addr == ip);
        let is = |i: &&Interface| {
            let named = local.interface.as_deref().is_none_or(|name| i.name == *name);
            i.up && named && local.addr.is_none_or(|ip| has(i, ip))
        };
        let any = local.interface.is_none() && local.addr.is_none();
        cx.net.interfaces().iter().find(is).filter(|_| !any).cloned().ok_or(EndpointError::NoInterface)
    }

    fn add_local<N: Net>(&mut self, cx: &mut Context<N>, at: &LocalEndpoint) -> Result<(), EndpointError> {
        let interface = Self::named(cx, at)?;
        let a = self.sctp.associations.get(self.key).ok_or(EndpointError::NotEstablished)?;
        let all = cx.net.interfaces().to_vec();
        let allowed = neater_policy::rank_paths(&a.request.policy.needs, &all).unwrap_or_default();
        if !allowed.iter().any(|r| r.index == interface.index) {
            return Err(EndpointError::Prohibited);
        }
        if self.stack == Stack::SctpDtls && !a.mux {
            // RFC 8261 has one session for an association.
            return Err(EndpointError::Unsupported(NO_CHANGE));
        }
        let address =
            at.addr.or_else(|| address_of(&interface, self.route.is_ipv6())).ok_or(EndpointError::NoInterface)?;
        let used = self.layers_of(false)?;
        // One that is being removed is added again behind that.
        let leaves = self.sctp.associations.get(self.key).is_some_and(|a| a.left.contains(&interface.index));
        if !leaves && used.iter().any(|l| self.bound_to(*l).0 == Some(address)) {
            return Ok(());
        }
        let (e, id) = self.end()?;
        if !e.endpoint.agreed(id).is_some_and(|(x, _)| x.dynamic_addresses) {
            return Err(EndpointError::Unsupported(NO_CHANGE));
        }
        let known = e.endpoint.paths(id).into_iter().filter(|p| p.state != PathState::Removed);
        let remote = known.map(|p| p.route.remote).find(|r| r.is_ipv6() == address.is_ipv6());
        let to =
            remote.ok_or(EndpointError::Unsupported("add an address of the peer of the same version of IP first"))?;
        let opened = Opened { index: interface.index, at: address };
        if let Some(a) = self.sctp.associations.get_mut(self.key) {
            a.left.retain(|i| *i != opened.index);
        }
        if self.stack == Stack::SctpDtls {
            self.sctp.ties.push(Tie::Open(self.key, opened));
            return Ok(());
        }
        let other = address.is_ipv6() != self.route.is_ipv6();
        self.sctp.open(cx, None, self.key, opened, Some(to).filter(|_| other))
    }

    fn remove_local<N: Net>(&mut self, cx: &Context<N>, at: &LocalEndpoint) -> Result<(), EndpointError> {
        let index = |name: &str| cx.net.interfaces().iter().find(|i| i.name == name).map(|i| i.index);
        let named = at.interface.as_deref().map(|name| index(name).ok_or(EndpointError::Unused)).transpose()?;
        let is = |c: &Self, layer: LayerId| {
            let (address, interface) = c.bound_to(layer);
            let there = at.addr.is_none_or(|ip| address == Some(ip)) && named.is_none_or(|i| interface == Some(i));
            there && (at.addr.is_some() || named.is_some())
        };
        let (gone, kept): (Vec<_>, Vec<_>) = self.layers_of(false)?.into_iter().partition(|l| is(self, *l));
        if gone.is_empty() {
            return Err(EndpointError::Unused);
        }
        let confirmed = self.layers_of(true)?;
        let (e, id) = self.end()?;
        let primary = e.endpoint.peer(id).map(|(route, _)| route.layer);
        let works = |l: &&LayerId| confirmed.contains(l);
        let stays = kept.iter().filter(works).find(|l| Some(**l) == primary).or_else(|| kept.iter().find(works));
        let stays = *stays.ok_or(EndpointError::Last)?;
        // The wildcard means where a packet comes from: with it all but one can be removed, and the
        // others are added again.
        let changes: Vec<_> = match (&gone[..], kept.len()) {
            ([one], 1) => vec![AddressChange::Remove(*one)],
            _ => core::iter::once(AddressChange::KeepOnly(stays))
                .chain(kept.iter().filter(|l| **l != stays).map(|l| AddressChange::Add(*l)))
                .collect(),
        };
        e.endpoint.change_addresses(id, &changes)?;
        for layer in &gone {
            self.sctp.not_widened(self.key, *layer);
            if let (Some(i), Some(a)) = (self.bound_to(*layer).1, self.sctp.associations.get_mut(self.key))
                && !a.left.contains(&i)
            {
                a.left.push(i);
            }
        }
        Ok(())
    }

    /// A listener's address that its client is to know of, too.
    fn add_listening<N: Net>(&mut self, cx: &mut Context<N>, at: &LocalEndpoint) -> Result<(), EndpointError> {
        let interface = Self::named(cx, at)?;
        let address =
            at.addr.or_else(|| address_of(&interface, self.route.is_ipv6())).ok_or(EndpointError::NoInterface)?;
        let (e, _) = self.end()?;
        let (socket, spread) = (e.socket, e.spread);
        if !spread {
            return Err(EndpointError::Unsupported("the listener is bound to one address, or is behind DTLS"));
        }
        if address.is_ipv6() != self.route.is_ipv6() {
            return Err(EndpointError::Unsupported(
                "a client is given addresses of the version of IP that it has used",
            ));
        }
        let layer = self.sctp.layer_at(self.end, socket, address).ok_or(EndpointError::TooMany)?;
        if self.layers_of(false)?.contains(&layer) {
            return Ok(());
        }
        let (e, id) = self.end()?;
        Ok(e.endpoint.change_named_address(id, AddressChange::Add(layer), address)?)
    }

    fn remove_listening<N: Net>(&mut self, cx: &Context<N>, at: &LocalEndpoint) -> Result<(), EndpointError> {
        let of_interface = |name: &str| cx.net.interfaces().iter().find(|i| i.name == name);
        let named = at.interface.as_deref().and_then(of_interface);
        let has = |ip: IpAddr| named.is_some_and(|i| i.addrs.iter().any(|a| a.addr == ip));
        let is = |ip: IpAddr| at.addr.map_or_else(|| has(ip), |a| a == ip);
        let used = self.layers_of(false)?;
        let layer = used.into_iter().find_map(|l| self.bound_to(l).0.filter(|ip| is(*ip)).map(|ip| (l, ip)));
        let (layer, address) = layer.ok_or(EndpointError::Unused)?;
        let confirmed = self.layers_of(true)?;
        if !confirmed.iter().any(|l| *l != layer) {
            return Err(EndpointError::Last);
        }
        let (e, id) = self.end()?;
        Ok(e.endpoint.change_named_address(id, AddressChange::Remove(layer), address)?)
    }
}
