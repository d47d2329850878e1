//! Whose a datagram on a socket of DTLS sessions is.
//!
//! *Responsible for* the books: which session holds an address, which one is about to take it over,
//! and the sessions of clients that have not proved that they receive at theirs. *Not responsible
//! for* doing anything with them.
//!
//! *Invariants*: an address belongs to a client that has proved it; what has not been proved costs
//! at most [`crate::Limits::unverified`] sessions, of which the oldest goes first. Nothing that can
//! be sent under a false address changes anything but these.

use crate::carrier::peer::Peer;
use core::time::Duration;
use neater_base::{Instant, Key};
use neater_dtls::{HelloRandom, Session};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// To how many of an address's unfinished hellos a fragment is shown that names no sender. More are
/// there only if they are forged, and each costs work.
const FRAGMENT_READERS: usize = 4;

/// The sessions on a socket, by peer: one of a client's, any number of a listener's.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    holders: BTreeMap<Peer, Key>,
    /// A client that has come back to its address, where its earlier connection still stands: it
    /// takes over when it has finished its handshake (RFC 6347 section 4.2.8, RFC 9147 section
    /// 5.11).
    successors: BTreeMap<Peer, Key>,
    pub(crate) unverified: Unverified,
}

impl Peers {
    /// With this session alone.
    pub(crate) fn of(peer: Peer, session: Key) -> Self {
        Self { holders: [(peer, session)].into(), ..Self::default() }
    }

    /// The session that holds an address, and the one that is about to take it over.
    pub(crate) fn at(&self, peer: Peer) -> (Option<Key>, Option<Key>) {
        (self.holders.get(&peer).copied(), self.successors.get(&peer).copied())
    }

    /// The sessions that hold an address of the peer's: several only if it speaks to several of
    /// this host's from there.
    pub(crate) fn of_remote(&self, remote: SocketAddr) -> impl Iterator<Item = Key> {
        let first = Peer::from(remote);
        self.holders.range(first..).take_while(move |(p, _)| p.remote == remote).map(|(_, key)| *key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        self.holders.values().chain(self.successors.values()).copied()
    }

    /// How many addresses are held.
    pub(crate) fn len(&self) -> usize {
        self.holders.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// A client has proved its address: it holds it, or is its successor if the holder has a
    /// connection. Returns the session that has to go.
    pub(crate) fn verified(&mut self, peer: Peer, session: Key, holder_stays: bool) -> Option<Key> {
        let place = if holder_stays { &mut self.successors } else { &mut self.holders };
        place.insert(peer, session)
    }

    /// A session has finished its handshake: it holds its address now. Returns the session that it
    /// has taken it from.
    pub(crate) fn takes_over(&mut self, peer: Peer, session: Key) -> Option<Key> {
        if self.successors.get(&peer) != Some(&session) {
            return None;
        }
        self.successors.remove(&peer);
        self.holders.insert(peer, session)
    }

    /// A session is over, and holds no address any more. Its successor holds it, if there is one.
    pub(crate) fn remove(&mut self, peer: Peer, session: Key) {
        if self.successors.get(&peer) == Some(&session) {
            self.successors.remove(&peer);
        } else if self.holders.get(&peer) == Some(&session) {
            match self.successors.remove(&peer) {
                Some(next) => self.holders.insert(peer, next),
                None => self.holders.remove(&peer),
            };
        }
    }
}

/// A client that has sent a ClientHello, and has not yet proved that it receives at its source
/// address.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) session: Session,
    pub(crate) since: Instant,
    /// The HelloVerifyRequest that it was sent, for retransmission when its ClientHello is
    /// repeated.
    pub(crate) question: Option<Vec<u8>>,
    /// More fragments of its hello are to come.
    pub(crate) unfinished: bool,
    /// Its place in the order of arrival.
    turn: u64,
}

impl Pending {
    pub(crate) fn new(session: Session, since: Instant) -> Self {
        Self { session, since, question: None, unfinished: false, turn: 0 }
    }
}

/// One client's handshake: its address and the random of its hellos.
type Name = (Peer, HelloRandom);

/// The sessions of clients that have not proved their address.
#[derive(Debug, Default)]
pub(crate) struct Unverified {
    sessions: BTreeMap<Name, Pending>,
    order: BTreeMap<u64, Name>,
    turns: u64,
    /// A timer runs.
    pub(crate) armed: bool,
}

impl Unverified {
    pub(crate) fn get_mut(&mut self, name: Name) -> Option<&mut Pending> {
        self.sessions.get_mut(&name)
    }

    /// Takes one more, and throws the oldest out if they are more than `max` then. True if one was.
    pub(crate) fn insert(&mut self, name: Name, mut pending: Pending, max: usize) -> bool {
        self.remove(name);
        self.turns += 1;
        pending.turn = self.turns;
        self.order.insert(self.turns, name);
        self.sessions.insert(name, pending);
        let full = self.sessions.len() > max;
        if full && let Some((_, oldest)) = self.order.pop_first() {
            self.sessions.remove(&oldest);
        }
        full
    }

    pub(crate) fn remove(&mut self, name: Name) -> Option<Pending> {
        let pending = self.sessions.remove(&name)?;
        self.order.remove(&pending.turn);
        Some(pending)
    }

    /// The youngest hellos of an address of which fragments are missing.
    pub(crate) fn unfinished(&self, peer: Peer) -> Vec<HelloRandom> {
        let of_peer = self.sessions.range((peer, [0; 32])..=(peer, [255; 32])).filter(|(_, p)| p.unfinished);
        let mut all: Vec<_> = of_peer.map(|((_, random), p)| (p.turn, *random)).collect();
        all.sort_unstable_by_key(|(turn, _)| core::cmp::Reverse(*turn));
        all.into_iter().take(FRAGMENT_READERS).map(|(_, random)| random).collect()
    }

    /// Whether at most one hello of an address is known.
    pub(crate) fn is_alone(&self, peer: Peer) -> bool {
        self.sessions.range((peer, [0; 32])..=(peer, [255; 32])).nth(1).is_none()
    }

    /// Forgets those that have had their time; returns when the next will have had it.
    pub(crate) fn expire(&mut self, now: Instant, life: Duration) -> Option<Instant> {
        while let Some((turn, name)) = self.order.first_key_value().map(|(t, n)| (*t, *n)) {
            let until = self.sessions.get(&name).map(|p| p.since + life);
            if let Some(until) = until.filter(|until| *until > now) {
                return Some(until);
            }
            self.order.remove(&turn);
            self.sessions.remove(&name);
        }
        None
    }

    pub(crate) fn clear(&mut self) {
        self.sessions.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::{Rng, Slab};
    use neater_dtls::{ClientConfig, Tuning};
    use neater_tls::{Crypto, Pin, SecurityParameters, ServerName, Trust};
    use std::net::{IpAddr, Ipv4Addr};

    const A: Peer =
        Peer { remote: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1000), here: None, interface: 0 };

    /// Any session will do, and a client's needs no certificate.
    fn session(now: Instant) -> Session {
        let mut p = SecurityParameters::new();
        p.trust = Trust::Pinned(vec![Pin::Sha256([1; 32])]);
        let config = ClientConfig::new(&p, &Crypto::system(), Tuning::default()).expect("a client");
        let name = ServerName::try_from("server.test").expect("a name");
        Session::client(&config, name, now, &mut Rng::from_number(1))
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn an_address_has_one_holder_and_one_successor() {
        let mut slab = Slab::new();
        let [a, b, c, d]: [Key; 4] = core::array::from_fn(|_| slab.insert(()));
        let mut peers = Peers::default();
        assert_eq!(peers.verified(A, a, false), None);
        assert_eq!(peers.takes_over(A, a), None, "it has it already");
        assert_eq!(peers.verified(A, b, false), Some(a), "a handshake makes room for the next");
        assert_eq!(peers.verified(A, c, true), None);
        assert_eq!(peers.at(A), (Some(b), Some(c)), "a connection does not");
        assert_eq!(peers.verified(A, d, true), Some(c));
        peers.remove(A, c);
        assert_eq!(peers.at(A), (Some(b), Some(d)), "who has gone takes nothing along");
        assert_eq!(peers.takes_over(A, d), Some(b));
        assert_eq!((peers.at(A), peers.len()), ((Some(d), None), 1));
        peers.remove(A, b);
        assert_eq!(peers.at(A), (Some(d), None));
        assert_eq!(peers.verified(A, a, true), None);
        peers.remove(A, d);
        assert_eq!(peers.at(A), (Some(a), None), "the successor holds what no other does");
        peers.remove(A, a);
        assert!(peers.is_empty() && peers.keys().next().is_none());
    }

    #[test]
    fn the_oldest_unverified_goes_first_and_all_go_in_time() {
        let mut pool = Unverified::default();
        let name = |n: u8| (A, [n; 32]);
        let life = Duration::from_secs(10);
        for n in 0..8 {
            let now = at(u64::from(n));
            let thrown_out = pool.insert(name(n), Pending::new(session(now), now), 4);
            assert_eq!(thrown_out, n >= 4);
        }
        assert!((0..4).all(|n| pool.get_mut(name(n)).is_none()) && (4..8).all(|n| pool.get_mut(name(n)).is_some()));
        // A peer that leaves makes room.
        assert!(pool.remove(name(6)).is_some());
        assert!(!pool.insert(name(9), Pending::new(session(at(9)), at(9)), 4));
        assert_eq!(pool.expire(at(10_000), life), Some(at(10_004)));
        assert_eq!(pool.expire(at(10_005), life), Some(at(10_007)));
        assert_eq!((pool.sessions.len(), pool.order.len()), (2, 2));
        assert_eq!(pool.expire(at(10_009), life), None);
        assert_eq!((pool.sessions.len(), pool.order.len()), (0, 0));
    }

    #[test]
    fn a_fragment_is_shown_to_few() {
        let mut pool = Unverified::default();
        for n in 0..20 {
            let mut pending = Pending::new(session(at(0)), at(0));
            pending.unfinished = n % 2 == 0;
            pool.insert((A, [n; 32]), pending, 100);
        }
        assert_eq!(pool.unfinished(A), [[18; 32], [16; 32], [14; 32], [12; 32]]);
        let other = Peer { here: Some(A.remote.ip()), ..A };
        assert!(pool.unfinished(other).is_empty());
    }
}
