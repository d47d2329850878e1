//! Local addresses that were asked for lately.
//!
//! Each message that a program receives has the local endpoint in its context (RFC 9622 section
//! 9.3.2): without this it would cost a system call.
//!
//! *Invariant*: only what does not change is kept. A stream has its address once it is connected, a
//! datagram socket once it has a port, until it is connected elsewhere.

use super::slots::Kind;
use core::cell::Cell;
use neater_base::net::Sock;
use std::net::SocketAddr;

/// Sockets that are remembered at a time.
const KEPT: usize = 16;

/// See the module.
#[derive(Default)]
pub(super) struct Locals([Cell<Option<(Sock, SocketAddr)>>; KEPT]);

impl Locals {
    fn place(&self, sock: Sock) -> Option<&Cell<Option<(Sock, SocketAddr)>>> {
        // The low half is the descriptor.
        self.0.get(sock.0 as usize % KEPT)
    }

    pub(super) fn get(&self, sock: Sock) -> Option<SocketAddr> {
        self.place(sock)?.get().filter(|(of, _)| *of == sock).map(|(_, local)| local)
    }

    /// Remembers the address of a socket of this kind, if it is one that stays.
    pub(super) fn keep(&self, sock: Sock, kind: Kind, local: SocketAddr) {
        let stays = matches!(kind, Kind::Stream | Kind::Direct | Kind::Listener | Kind::Datagram(_));
        if stays
            && local.port() != 0
            && let Some(place) = self.place(sock)
        {
            place.set(Some((sock, local)));
        }
    }

    pub(super) fn forget(&self, sock: Sock) {
        if self.get(sock).is_some()
            && let Some(place) = self.place(sock)
        {
            place.set(None);
        }
    }
}
