//! TCP over several paths (MPTCP, RFC 8684) in a host: which addresses a connection is known by, and when it takes others.
//!
//! *Responsible for* what an application can observe: whether both sides and the way between them take part, the fall-back
//! where they do not, and that a connection outlives a path. *Deliberately not*: data on several paths at a time, with a
//! window each. One path carries everything, and another takes its place when it has failed; so rates are those of one path.
//!
//! A path is joined by its first segment, and not by a handshake: each segment carries the receiver's token. A box that
//! takes options out ([`crate::World::set_multipath_stripped`]) takes the token, too; the receiver then answers with a reset,
//! as it does to a segment of no connection, and that path is given up.

use crate::host::{Host, Pair};
use crate::iface::LOOPBACK_INDEX;
use crate::sim::Sim;
use crate::tcp::Segment;
use crate::world::HostId;
use neater_base::Key;
use neater_base::net::{StreamInfo, StreamPaths, Subflow};
use std::net::SocketAddr;

impl Host {
    /// The connection that a segment from an unknown pair of addresses belongs to, by its token; the pair is one of its own
    /// from then on.
    pub(crate) fn join(&mut self, pair: Pair, segment: &Segment) -> Option<Key> {
        let token = segment.multipath.filter(|_| !segment.syn && !segment.rst)?;
        let (key, _) = self.conns.iter().find(|(_, e)| !e.conn.is_closed() && e.conn.token() == Some(token))?;
        self.add_pair(key, pair);
        Some(key)
    }

    fn add_pair(&mut self, key: Key, pair: Pair) {
        let Some(entry) = self.conns.get_mut(key) else { return };
        entry.others.push(pair);
        self.pairs.insert(pair, key);
        *self.local_ports.entry(pair.0.port()).or_default() += 1;
    }

    /// Makes a pair of a connection the one that its segments leave by.
    fn take_pair(&mut self, key: Key, pair: Pair) {
        let Some(entry) = self.conns.get_mut(key) else { return };
        let Some(at) = entry.others.iter().position(|p| *p == pair) else { return };
        entry.others.remove(at);
        entry.others.insert(0, (entry.local, entry.remote));
        (entry.local, entry.remote) = pair;
        entry.route = None;
    }

    /// A segment has come for a connection that is known by several pairs. True: it ends this path, and not the connection.
    pub(crate) fn path_input(&mut self, key: Key, pair: Pair, segment: &Segment) -> bool {
        let Some(entry) = self.conns.get(key) else { return false };
        let current = pair == (entry.local, entry.remote);
        if segment.rst && segment.multipath.is_none() && !entry.others.is_empty() {
            if current && let Some(other) = entry.others.first().copied() {
                self.take_pair(key, other);
            }
            self.drop_pair(key, pair);
            if let Some(entry) = self.conns.get_mut(key) {
                entry.refused.push(pair.0.ip());
            }
            return true;
        }
        // Its way back is the one by which the peer's news come.
        if !current && !segment.rst && segment.seq >= entry.conn.receive_next() {
            self.take_pair(key, pair);
        }
        false
    }

    fn drop_pair(&mut self, key: Key, pair: Pair) {
        if let Some(entry) = self.conns.get_mut(key) {
            entry.others.retain(|p| *p != pair);
            self.unmap_pair(key, pair);
        }
    }
}

impl Sim {
    /// The path of a connection has failed: its segments take another one from now on, if there is one.
    pub(crate) fn move_on(&mut self, id: HostId, key: Key) -> bool {
        let Some(entry) = self.hosts[id.0].conns.get(key) else { return false };
        if entry.conn.token().is_none() {
            return false;
        }
        // Only the side that has opened the connection opens further paths: a NAT box may be before it.
        let fresh = if entry.conn.is_active() { self.unused_pair(id, key) } else { None };
        let host = self.host(id);
        if let Some(pair) = fresh {
            host.add_pair(key, pair);
        }
        let known = host.conns.get(key).and_then(|e| fresh.or(e.others.last().copied()));
        let Some(pair) = known else { return false };
        if self.lookup(id, pair.1.ip(), None, Some(pair.0.ip()), None).is_err() {
            return false;
        }
        self.host(id).take_pair(key, pair);
        true
    }

    /// A pair of addresses that a connection does not have, and that there is a route for.
    fn unused_pair(&self, id: HostId, key: Key) -> Option<Pair> {
        let host = &self.hosts[id.0];
        let entry = host.conns.get(key)?;
        let (local, remote, tied) = (entry.local, entry.remote, entry.interface);
        let interfaces = host.interfaces.iter().filter(|i| i.public.index != LOOPBACK_INDEX && i.public.up);
        let addresses = interfaces
            .filter(|i| tied.is_none_or(|index| index == i.public.index))
            .flat_map(|i| i.public.addrs.iter().filter(|a| !a.deprecated).map(|a| a.addr));
        addresses
            .filter(|a| a.is_ipv4() == remote.is_ipv4() && !entry.refused.contains(a))
            .map(|a| (SocketAddr::new(a, local.port()), remote))
            .find(|pair| {
                let routed = || self.lookup(id, remote.ip(), tied, Some(pair.0.ip()), None).is_ok();
                !host.pairs.contains_key(pair) && routed()
            })
    }

    /// What an application sees of it: see [`neater_base::net::Net::stream_paths`].
    pub(crate) fn stream_paths(&self, id: HostId, key: Key) -> Option<StreamPaths> {
        let entry = self.hosts[id.0].conns.get(key)?;
        let conn = &entry.conn;
        if !conn.options().multipath || !conn.was_established() || conn.is_closed() {
            return None;
        }
        if conn.token().is_none() {
            // A listener's socket for a peer that never asked is one of ordinary TCP.
            return conn.is_active().then_some(StreamPaths::FellBack);
        }
        let of = |(local, remote): Pair, info| Subflow { local, remote, info };
        let current = of((entry.local, entry.remote), conn.info(self.now));
        let others = entry.others.iter().map(|pair| of(*pair, StreamInfo::default()));
        Some(StreamPaths::Several(core::iter::once(current).chain(others).collect()))
    }
}
