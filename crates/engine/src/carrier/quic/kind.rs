//! What a QUIC session carries: streams, datagrams, or both.
//!
//! *Responsible for* attempts whose peer does not offer what they were started for, and for the
//! datagrams that come to a listener (decision 0034). *Not responsible for* what this side offers,
//! which follows from its request, nor for streams.
//!
//! *Invariants*: a connection is established only as something that its peer has offered; a session
//! has at most one connection for datagrams in its life, and a client that has nothing else learns
//! of its end; datagrams wait in their session only for what looks at them again.

use super::Quic;
use crate::Stack;
use crate::carrier::event::CarrierEvent;
use crate::carrier::terms::OpenedStream;
use crate::carrier::{FlowId, QuicCarrier, SessionId};
use crate::event::AttemptError;
use bytes::Bytes;
use neater_base::Key;
use neater_quic::{ConnectionApi, Direction};

/// Why an attempt for datagrams cannot go on.
const NO_DATAGRAMS: &str = "the peer takes no QUIC datagrams, it offers streams: let reliable transports be candidates (do not \
                            prohibit reliability), and set a message framer, which keeps messages apart on a stream";
/// Why an attempt for a stream cannot go on.
const NO_STREAMS: &str = "the peer allows no QUIC stream, it offers datagrams: do not require reliability and order (the words \
                          \"unreliable\" and \"datagrams\" do not)";
/// Why a listener closes the session of a client that takes no datagrams.
pub(super) const NONE_OFFERED: &str = "this listener carries QUIC datagrams only, and the client takes none";

impl Quic {
    /// Of what direction the stream of an attempt is: a connection for sending only needs no more
    /// than one.
    pub(super) fn direction(&self) -> Direction {
        if self.request.may_receive { Direction::Both } else { Direction::One }
    }

    /// Whether this is a session of datagrams alone whose connection is over. What its client still
    /// sends is acknowledged, and not received: the session has to end, too.
    pub(crate) fn is_spent(&self) -> bool {
        self.datagrams_over && self.conn.stats().stream_frames == 0
    }
}

impl QuicCarrier {
    /// The handshake of an attempt is complete, and with it is known what its peer offers: the
    /// attempt is established as what it was started for, or as what is offered instead, or it has
    /// failed.
    pub(super) fn attempt_connected(&mut self, key: Key, attempt: Key) {
        let session = SessionId::Quic(key);
        if let Some((instead, why)) = self.not_offered(key) {
            let Some(q) = self.connections.get_mut(key) else { return };
            if q.may_become != Some(instead) {
                let error = AttemptError::NotOffered(why);
                return self.events.push_back(CarrierEvent::Failed { attempt, session, error });
            }
            let before = core::mem::replace(&mut q.stack, instead);
            self.events.push_back(CarrierEvent::Became { attempt, session, before, stack: instead });
        }
        self.events.push_back(CarrierEvent::Established { attempt, session });
    }

    /// What the peer of an attempt offers instead of what it was started for, and in words.
    fn not_offered(&mut self, key: Key) -> Option<(Stack, &'static str)> {
        let q = self.connections.get_mut(key)?;
        let datagrams = q.conn.max_datagram().is_some_and(|max| max > 0);
        let early = q.early.is_some() && q.conn.accepted_early_data();
        match q.stack {
            Stack::QuicDatagram if !datagrams => Some((Stack::Quic, NO_DATAGRAMS)),
            // A peer that takes datagrams and allows no stream by the end of the handshake wants
            // none. Another one may allow a stream later.
            Stack::Quic if datagrams && !early => {
                q.opened = q.conn.open(q.direction());
                q.opened.is_none().then_some((Stack::QuicDatagram, NO_STREAMS))
            }
            _ => None,
        }
    }

    /// Whether something can be sent to a client that is to have datagrams alone, if anything is to
    /// be.
    pub(super) fn can_be_answered(&mut self, key: Key) -> bool {
        let Some(q) = self.connections.get_mut(key) else { return false };
        q.stack != Stack::QuicDatagram || !q.request.may_send || q.conn.max_datagram().is_some_and(|max| max > 0)
    }

    /// Throws away the datagrams that wait in a session. True if there were any.
    pub(crate) fn drop_datagrams(&mut self, key: Key) -> bool {
        let mut any = false;
        while self.receive_datagram(key).is_some() {
            any = true;
        }
        any
    }

    /// The oldest datagram that waits in a session, which keeps the latest of those that nothing
    /// receives.
    pub(crate) fn receive_datagram(&mut self, key: Key) -> Option<Bytes> {
        self.connections.get_mut(key)?.conn.recv_datagram()
    }

    /// Whether the datagrams of a session whose listener delivers streams and datagrams may have a
    /// connection: what a client that offers both will use is not known before the first of them.
    /// Those of one whose connection is closed are thrown away.
    pub(crate) fn may_begin_datagrams(&mut self, key: Key) -> bool {
        let Some(q) = self.connections.get(key) else { return false };
        if q.datagrams_over {
            self.drop_datagrams(key);
            return false;
        }
        let open = !q.client && q.connected && q.lost.is_none() && q.datagrams.is_none();
        open && q.request.stacks.contains(&Stack::QuicDatagram)
    }

    /// The flow of a session's datagrams.
    pub(crate) fn datagrams(&self, quic: Key) -> Option<OpenedStream> {
        let q = self.connections.get(quic)?;
        let (request, remotes) = (q.request.clone(), q.remotes.clone());
        Some(OpenedStream { flow: FlowId::Datagrams { quic }, stack: Stack::QuicDatagram, request, remotes })
    }
}
