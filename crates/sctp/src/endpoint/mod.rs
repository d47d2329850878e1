//! One SCTP port: its associations, and what belongs to none.
//!
//! *Responsible for* finding the association of a packet, answering INIT chunks without keeping
//! anything, cookies, packets out of the blue, and which association may transmit next. *Not
//! responsible for* anything that happens within an association.
//!
//! *Invariants*: a tag leads to one association; nothing is kept of a peer before its cookie has
//! come back; stateless answers are bounded in number and rate.

mod api;
mod arrival;
mod index;
mod listen;
mod owner;
mod replies;
mod sources;
mod spent;
mod streams;
mod train;

pub use train::Train;

use crate::association::Association;
use crate::config::Config;
use crate::handshake::Keys;
use crate::ids::{AssociationId, Route};
use crate::stats::EndpointStats;
use core::time::Duration;
use index::Index;
use neater_base::{Instant, Key, Rng, Slab, Timers};
use neater_sctp_wire::Tag;
use replies::Replies;
use std::collections::VecDeque;
use std::sync::Arc;

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where it goes.
    pub route: Route,
    /// How many bytes of the buffer it has.
    pub len: usize,
    /// Send it as capable of congestion marks: ECT(0) (RFC 3168).
    pub ect: bool,
    /// Send it so that it is not cut into fragments on the way: with DF on IPv4. It is false only
    /// for what was cut for a larger path MTU and must still arrive.
    pub whole: bool,
    /// It asks whether the path takes packets of its length, and may be refused by the first link:
    /// nothing should share its fate.
    pub probe: bool,
}

/// What the endpoint keeps of each association.
#[derive(Debug)]
struct Entry {
    /// Apart, so that the table of associations is small and can grow.
    association: Box<Association>,
    /// It is in the list of those that may have packets.
    eager: bool,
    /// It is in the list of those that have events.
    eventful: bool,
    /// The deadline that is in the heap.
    scheduled: Instant,
    /// It is no longer in the index.
    gone: bool,
    /// The application wants nothing more of it.
    released: bool,
    /// Where the peer was that has opened it, if it has.
    opened_from: Option<sources::Source>,
    /// What it is known to hold of what was received.
    holds: usize,
}

/// For how long a peer that has missed the last word may ask for it: some of its T2-shutdown
/// timers.
const AFTERWARDS: Duration = Duration::from_secs(60);
/// How many packets one association sends before the next has its turn.
const TURN: u32 = 64;

/// One SCTP port with all its associations.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    association_config: Arc<crate::config::AssociationConfig>,
    rng: Rng,
    keys: Keys,
    associations: Slab<Entry>,
    /// What all of them hold of what was received, in bytes.
    unread: usize,
    index: Index,
    replies: Replies,
    sources: sources::Sources,
    spent: spent::Spent,
    /// Tags of associations that have ended here, where unmatched packets are left to other
    /// endpoints.
    ended: spent::Spent,
    eager: VecDeque<Key>,
    turn: u32,
    /// A packet that is written and did not fit into its train.
    held: train::Held,
    /// The largest packet of any layer.
    largest: usize,
    eventful: VecDeque<Key>,
    timers: Timers<(Key, Instant)>,
    stats: EndpointStats,
}

impl Endpoint {
    /// An endpoint without associations. Everything random in it follows from `seed`;
    /// `cookie_secret` is shared by the endpoints of one listener.
    ///
    /// # Panics
    /// If `config.layers` is empty: that is a mistake of the program.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32], cookie_secret: &[u8; 32]) -> Self {
        assert!(!config.layers.is_empty(), "an endpoint needs a packet layer");
        let mut rng = Rng::new(seed);
        Self {
            association_config: Arc::new(config.association.clone().sane()),
            keys: Keys::new(cookie_secret, config.port),
            associations: Slab::new(),
            unread: 0,
            index: Index::new(rng.u64()),
            replies: Replies::new(config.max_replies, config.replies_per_second, config.replies_per_source, rng.u64()),
            sources: sources::Sources::new(rng.u64()),
            spent: spent::Spent::default(),
            ended: spent::Spent::default(),
            rng,
            eager: VecDeque::new(),
            turn: 0,
            held: train::Held::default(),
            largest: config.layers.iter().map(|l| usize::from(l.room())).max().unwrap_or_default(),
            eventful: VecDeque::new(),
            timers: Timers::new(),
            stats: EndpointStats::default(),
            config,
        }
    }

    /// A tag that no association has: random, not zero, with our engine's number in front.
    fn fresh_tag(&mut self) -> Tag {
        loop {
            let mut tag = self.rng.u32();
            if let Some(engine) = self.config.engine {
                tag = u32::from(engine) << 24 | tag & 0x00ff_ffff;
            }
            // Nor one whose cookie was spent: its holder would be answered that it is over.
            if tag != 0 && self.index.by_tag(Tag(tag)).is_none() && !self.spent.has(Tag(tag)) {
                return Tag(tag);
            }
        }
    }

    /// Tie tags of a new association: random and not zero (RFC 9260 section 5.2.2).
    fn fresh_ties(&mut self) -> (u32, u32) {
        (self.rng.u32().max(1), self.rng.u32().max(1))
    }

    /// Our addresses, if they are announced.
    fn addresses(&self) -> Vec<std::net::IpAddr> {
        let told = self.config.layers.iter().filter(|_| self.config.tell_addresses).filter_map(|l| l.address);
        let all: Vec<_> = told.take(crate::handshake::MAX_ADDRESSES).collect();
        if all.len() > 1 { all } else { Vec::new() }
    }

    /// Something has happened to an association: its packets, events and deadline are seen to.
    #[inline]
    fn touch(&mut self, key: Key) {
        let Some(entry) = self.associations.get_mut(key) else { return };
        let holds = entry.association.holds();
        if holds != entry.holds {
            self.unread = self.unread + holds - core::mem::replace(&mut entry.holds, holds);
            entry.association.set_receive_room(self.config.receive_budget.saturating_sub(self.unread));
        }
        // It is after every packet and every message: most often everything is seen to already.
        let settled = entry.eager && (entry.eventful || !entry.association.has_events());
        if !settled || entry.association.wants_care() {
            self.attend(key);
        }
    }

    /// What [`Endpoint::touch`] has found something to do for.
    fn attend(&mut self, key: Key) {
        let Some(entry) = self.associations.get_mut(key) else { return };
        if entry.association.routes_changed && !entry.gone {
            entry.association.routes_changed = false;
            self.index.update(key, &entry.association);
        }
        if let Some((route, bytes)) = entry.association.take_farewell() {
            self.replies.push_final(route, bytes);
        }
        if entry.association.is_closed() {
            entry.scheduled = Instant::FAR_FUTURE;
            if !core::mem::replace(&mut entry.gone, true) {
                self.index.remove(key);
                if self.config.reserved {
                    self.ended.add(entry.association.heard(), AFTERWARDS, entry.association.tag());
                }
            }
        } else if !core::mem::replace(&mut entry.eager, true) {
            // Its deadline is seen to when it has no more packets: what is due may be a packet.
            self.eager.push_back(key);
        }
        if entry.association.has_events() && !core::mem::replace(&mut entry.eventful, true) {
            self.eventful.push_back(key);
        }
        self.sweep(key);
    }

    /// Forgets an association that is over, when none of its events is left.
    fn sweep(&mut self, key: Key) {
        let forget = self
            .associations
            .get_mut(key)
            .is_some_and(|e| e.association.is_closed() && (e.released || e.association.is_drained() && !e.eventful));
        if forget && let Some(entry) = self.associations.remove(key) {
            self.unread -= entry.holds;
            entry.opened_from.into_iter().for_each(|source| self.sources.remove(source));
        }
    }

    /// Drops deadlines that mean nothing any more, so that the next one is true.
    fn prune(&mut self) {
        let associations = &self.associations;
        self.timers.prune_head(|(key, at)| associations.get(*key).is_some_and(|e| e.scheduled == *at));
    }

    /// The unread data of all associations, in bytes.
    #[must_use]
    pub const fn unread(&self) -> usize {
        self.unread
    }

    /// The number of associations that are not over.
    #[must_use]
    pub fn associations(&self) -> usize {
        self.index.len()
    }

    /// The number of associations of which anything is kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.associations.len()
    }

    /// What has been counted.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        EndpointStats { replies_suppressed: self.replies.suppressed(), ..self.stats }
    }

    fn live(&self, id: AssociationId) -> Option<&Association> {
        self.associations.get(id.0).filter(|e| !e.released).map(|e| &*e.association)
    }
}
