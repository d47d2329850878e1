//! Connections over TCP whose local address the host has no more.
//!
//! *Responsible for* how long they are waited for: TCP cannot move, and its own patience is a
//! quarter of an hour, or for ever where nothing is sent. The address may come back: a lease is
//! renewed, a cable was pulled for a moment. One with several paths goes on by another, or ends
//! when the system finds none (RFC 8684 section 3.3.6). *Not responsible for* noticing that
//! addresses have changed (the engine), nor for what a program asks for (`connTimeout`,
//! `keepAliveTimeout`), which holds again when the address is back.

use crate::carrier::SocketCarrier;
use crate::carrier::channel::Channel;
use crate::context::Context;
use core::time::Duration;
use neater_base::Key;
use neater_base::net::{Net, SocketOption, StreamPaths};
use std::net::IpAddr;

/// How long the peer may be silent while the address is gone: as long as the answer of a server to
/// which a QUIC session moves is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// After how much silence it is asked: with the least interval, so that there is a probe that is
/// not answered.
const ASKED: Duration = Duration::from_secs(1);

impl SocketCarrier {
    /// The host's addresses have changed. `usual`: what a connection's program wants of keep-alives
    /// and of unacknowledged data.
    pub(crate) fn paths_changed<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        usual: impl Fn(Key) -> Option<(Option<Duration>, Option<Duration>)>,
    ) {
        let interfaces = cx.net.interfaces().to_vec();
        let runs = |ch: &Channel| ch.connected && ch.carries_bytes();
        let keys: Vec<Key> = self.channels.iter().filter(|(_, ch)| runs(ch)).map(|(key, _)| key).collect();
        for key in keys {
            let Some(ch) = self.channels.get_mut(key) else { continue };
            let Some((keep_alive, timeout)) = ch.used_by.conn().and_then(&usual) else { continue };
            let Ok(local) = cx.net.local_addr(ch.sock) else { continue };
            let ip = local.ip().to_canonical();
            let here = |ip: IpAddr| interfaces.iter().any(|i| i.addrs.iter().any(|a| a.addr == ip.to_canonical()));
            let gone = !here(ip) && !ip.is_loopback() && !ip.is_unspecified();
            let paths = if gone { cx.net.stream_paths(ch.sock) } else { None };
            let (several, elsewhere) = match &paths {
                Some(StreamPaths::Several(subflows)) => (true, subflows.iter().any(|s| here(s.local.ip()))),
                _ => (false, false),
            };
            let stranded = gone && !elsewhere;
            if stranded == ch.stranded {
                continue;
            }
            ch.stranded = stranded;
            let (keep_alive, timeout) = match stranded {
                // The system may yet find another path, which asking the peer makes it look for.
                true if several => (Some(ASKED), timeout),
                true => (Some(ASKED), Some(timeout.map_or(PATIENCE, |t| t.min(PATIENCE)))),
                false => (keep_alive, timeout),
            };
            // Where the system refuses, its own patience holds.
            let _ = cx.net.set(ch.sock, SocketOption::UserTimeout(timeout));
            let _ = cx.net.set(ch.sock, SocketOption::KeepAlive(keep_alive));
        }
    }
}
