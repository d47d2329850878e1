//! Datagrams are handed to other engines that share a port, and taken in from them: see [`crate::siblings`].

use super::Engine;
use crate::ForeignDatagram;
use neater_base::net::Net;

impl<N: Net> Engine<N> {
    /// Takes the datagrams for other engines that the last turn has found. What is not taken is gone after the next turn.
    pub fn take_foreign(&mut self) -> Vec<ForeignDatagram> {
        core::mem::take(&mut self.cx.foreign)
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
        self.cx.connections = self.conns.len();
        let left = self.carriers.on_misrouted(&mut self.cx, datagram, unclaimed);
        self.drain_carriers();
        left
    }
}
