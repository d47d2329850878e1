//! Datagrams that have come to the wrong one of several engines that share a port.
//!
//! *Responsible for* finding out to which engine a packet of each carrier belongs, and for taking
//! in one that another engine has found. *Not responsible for* keeping them ([`crate::shards`],
//! the engine shards).

use super::packet::{Answer, Misrouted, Packet};
use super::quic::transmit;
use super::{Carriers, QuicCarrier};
use crate::context::Context;
use crate::shards::MisroutedDatagram;
use neater_base::Key;
use neater_base::net::{Net, Sock};
use neater_quic::{Datagram, Foreign};

/// Answers a datagram of a connection that is unknown everywhere.
fn answer<N: Net>(cx: &mut Context<N>, sock: Sock, answer: Option<&Answer>) {
    // Stateless answers may be lost.
    if let Some((t, contents)) = answer {
        let _ = cx.net.send(sock, &transmit(t, None, contents));
    }
}

impl QuicCarrier {
    /// Keeps a datagram for another engine, if this one shares its port with others. Otherwise it
    /// is answered as one of an unknown connection.
    pub(super) fn keep_quic_misrouted<N: Net>(
        &self,
        cx: &mut Context<N>,
        socket: Key,
        meta: Datagram,
        foreign: Foreign,
    ) {
        let Some(sock) = self.sockets.get(socket).map(|s| s.sock) else { return };
        if cx.config.shared_secret.is_none() {
            cx.stats.foreign_datagrams += 1;
            return answer(cx, sock, foreign.answer.as_ref());
        }
        let packet = Misrouted(Packet::Quic(meta, foreign.answer));
        cx.keep_misrouted(sock, foreign.engine, packet, || foreign.data);
    }
}

impl Carriers {
    /// Takes in a datagram that has come to the wrong engine. `unmatched`: the right one does not
    /// exist, and the peer is sent that its connection is unknown. The datagram is returned if
    /// there is no socket for it here.
    pub(crate) fn on_misrouted<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        datagram: MisroutedDatagram,
        unmatched: bool,
    ) -> Option<MisroutedDatagram> {
        let net = &cx.net;
        let is_here = |sock| net.local_addr(sock).is_ok_and(|local| local == datagram.local);
        match datagram.packet.0 {
            Packet::Quic(meta, unknown) => {
                let here = self.quic.sockets.iter().find(|(_, s)| s.endpoint.is_server() && is_here(s.sock));
                match here.map(|(socket, s)| (socket, s.sock)) {
                    Some((_, sock)) if unmatched => answer(cx, sock, unknown.as_ref()),
                    Some((socket, _)) => {
                        self.quic.datagram(cx, socket, meta, datagram.data);
                    }
                    None => {
                        return Some(MisroutedDatagram { packet: Misrouted(Packet::Quic(meta, unknown)), ..datagram });
                    }
                }
            }
            Packet::Sctp(came) => {
                let here = self.sctp.sockets.iter().find(|(_, s)| s.server && is_here(s.sock));
                match here {
                    Some((socket, _)) => self.sctp.unmatched(cx, socket, came, &datagram.data),
                    None => return Some(MisroutedDatagram { packet: Misrouted(Packet::Sctp(came)), ..datagram }),
                }
            }
        }
        None
    }
}
