//! Datagrams for another engine that shares this one's port.
//!
//! The system spreads a port's datagrams over the engines by their addresses. When a peer's address changes, or an engine joins or
//! leaves, packets may arrive at an engine that does not know the peer; QUIC's connection id and SCTP's verification tag say which one
//! does.
//!
//! *Responsible for* keeping such datagrams for whoever drives, and for taking in those that others have kept. *Not
//! responsible for* carrying them from one engine to the other: engines do not know each other.
//!
//! *Invariants*: what is kept is bounded and belongs to one turn; what was passed on once is not passed on again.

use crate::Engine;
use crate::carrier::quic::transmit;
use crate::carrier::sctp::Came;
use bytes::BytesMut;
use neater_base::Key;
use neater_base::net::{Net, Sock};
use neater_quic::{Datagram, Foreign, Transmit};
use std::net::SocketAddr;

/// How many datagrams of other engines one turn keeps. The others are lost, as datagrams may be.
const KEPT_MAX: usize = 256;

/// A datagram that arrived here and is for the engine with the number [`ForeignDatagram::engine`].
#[derive(Debug)]
pub struct ForeignDatagram {
    engine: u8,
    /// Where it arrived.
    local: SocketAddr,
    what: What,
    data: BytesMut,
}

/// What the sender of a datagram is told if nobody knows its connection.
type Answer = (Transmit, Box<[u8]>);

/// Whose datagram it is, and what came with it.
#[derive(Debug)]
enum What {
    Quic(Datagram, Option<Answer>),
    Sctp(Came),
}

impl ForeignDatagram {
    /// The number of the engine whose connection id or tag it carries, if it is not garbage.
    #[must_use]
    pub fn engine(&self) -> u8 {
        self.engine
    }
}

impl<N: Net> Engine<N> {
    /// Keeps a datagram for another engine, if this one has siblings. Without, it is answered as nobody's.
    pub(crate) fn keep_foreign(&mut self, socket: Key, meta: Datagram, foreign: Foreign) {
        let Some(sock) = self.carriers.quic.sockets.get(socket).map(|s| s.sock) else { return };
        if self.cx.config.shared_secret.is_none() {
            self.cx.stats.foreign_datagrams += 1;
            return self.answer(sock, foreign.answer.as_ref());
        }
        self.keep(sock, foreign.engine, What::Quic(meta, foreign.answer), || foreign.data);
    }

    fn answer(&mut self, sock: Sock, answer: Option<&Answer>) {
        // Stateless answers may be lost.
        if let Some((t, contents)) = answer {
            let _ = self.cx.net.send(sock, &transmit(t, None, contents));
        }
    }

    /// The number of the sibling to which an SCTP packet over UDP belongs, if it is another one's: that of the tag, which every engine
    /// begins with its own. What opens an association has none.
    pub(crate) fn sctp_sibling(&self, packet: &[u8]) -> Option<u8> {
        self.cx.config.shared_secret?;
        let tag: &[u8; 4] = packet.get(4..8)?.try_into().ok()?;
        // A peer that knows nothing of an association sends back the tag that it was sent, which is its own.
        let is_sent_back = matches!(packet.get(12..14), Some([6 | 14, flags]) if flags & 1 == 1);
        (*tag != [0; 4] && !is_sent_back && tag[0] != self.cx.config.engine).then_some(tag[0])
    }

    /// The same for a packet of SCTP.
    pub(crate) fn keep_foreign_sctp(&mut self, sock: Sock, engine: u8, came: Came, data: &[u8]) {
        self.keep(sock, engine, What::Sctp(came), || BytesMut::from(data));
    }

    fn keep(&mut self, sock: Sock, engine: u8, what: What, data: impl FnOnce() -> BytesMut) {
        self.cx.stats.foreign_datagrams += 1;
        if self.foreign.len() >= KEPT_MAX {
            return;
        }
        if let Ok(local) = self.cx.net.local_addr(sock) {
            self.foreign.push(ForeignDatagram { engine, local, what, data: data() });
        }
    }

    /// Takes the datagrams for other engines that the last turn has found. What is not taken is gone after the next turn.
    pub fn take_foreign(&mut self) -> Vec<ForeignDatagram> {
        core::mem::take(&mut self.foreign)
    }

    /// Takes in a datagram that has arrived at another engine on the same port. One that is for yet another has no effect. One that this
    /// engine cannot take, because it is not at that port any more, is returned, for [`Engine::deliver_unclaimed`] of the engine at
    /// which it has arrived.
    pub fn deliver_foreign(&mut self, datagram: ForeignDatagram) -> Option<ForeignDatagram> {
        if datagram.engine == self.cx.config.engine { self.take_in(datagram, false) } else { None }
    }

    /// Takes in a datagram that this engine has found to be another one's, of which there is none with that number: its peer is told that
    /// nobody knows its connection (RFC 9000 section 10.3, RFC 9260 section 8.4).
    pub fn deliver_unclaimed(&mut self, datagram: ForeignDatagram) {
        let _ = self.take_in(datagram, true);
    }

    fn take_in(&mut self, datagram: ForeignDatagram, unclaimed: bool) -> Option<ForeignDatagram> {
        if self.is_forked() {
            return None;
        }
        self.cx.now = self.cx.net.now();
        let net = &self.cx.net;
        let is_here = |sock| net.local_addr(sock).is_ok_and(|local| local == datagram.local);
        match datagram.what {
            What::Quic(meta, answer) => {
                let here = self.carriers.quic.sockets.iter().find(|(_, s)| s.endpoint.is_server() && is_here(s.sock));
                match here.map(|(socket, s)| (socket, s.sock)) {
                    Some((_, sock)) if unclaimed => self.answer(sock, answer.as_ref()),
                    Some((socket, _)) => self.quic_datagram(socket, meta, datagram.data),
                    None => return Some(ForeignDatagram { what: What::Quic(meta, answer), ..datagram }),
                }
            }
            What::Sctp(came) => {
                let here = self.carriers.sctp.sockets.iter().find(|(_, s)| s.server && is_here(s.sock));
                match here {
                    Some((socket, _)) => self.sctp_unclaimed(socket, came, &datagram.data),
                    None => return Some(ForeignDatagram { what: What::Sctp(came), ..datagram }),
                }
            }
        }
        None
    }
}
