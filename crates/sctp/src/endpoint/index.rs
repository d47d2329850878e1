//! Which association a packet belongs to: by our tag, or by where it comes from.

use crate::association::Association;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use neater_base::Key;
use neater_sctp_wire::Tag;
use std::net::SocketAddr;

type Peer = (SocketAddr, u16);

#[derive(Debug)]
struct Names {
    tag: Tag,
    peers: Vec<Peer>,
}

/// The table.
///
/// Peers are distinguished by IP address, UDP port and SCTP port: two hosts behind one NAT may have
/// chosen the same SCTP port.
#[derive(Debug)]
pub(super) struct Index {
    tags: HashMap<u32, Key, FixedState>,
    peers: HashMap<Peer, Key, FixedState>,
    names: HashMap<Key, Names, FixedState>,
}

impl Index {
    /// `seed` keeps peers from choosing addresses that collide.
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            tags: HashMap::with_hasher(FixedState::with_seed(seed)),
            peers: HashMap::with_hasher(FixedState::with_seed(seed)),
            names: HashMap::with_hasher(FixedState::with_seed(seed)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn by_tag(&self, tag: Tag) -> Option<Key> {
        self.tags.get(&tag.0).copied()
    }

    pub(super) fn by_peer(&self, address: SocketAddr, port: u16) -> Option<Key> {
        self.peers.get(&(address, port)).copied()
    }

    /// Learns the names of an association, in place of those that it had.
    pub(super) fn update(&mut self, key: Key, association: &Association) {
        self.remove(key);
        let port = association.peer_port();
        let mut peers: Vec<Peer> = association.routes().map(|r| (r.remote, port)).collect();
        // An address belongs to the peer that had it first.
        peers.retain(|peer| *self.peers.entry(*peer).or_insert(key) == key);
        self.tags.insert(association.tag().0, key);
        self.names.insert(key, Names { tag: association.tag(), peers });
    }

    pub(super) fn remove(&mut self, key: Key) {
        if let Some(names) = self.names.remove(&key) {
            self.tags.remove(&names.tag.0);
            for peer in names.peers {
                self.peers.remove(&peer);
            }
        }
    }
}
