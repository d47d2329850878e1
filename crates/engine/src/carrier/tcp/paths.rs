//! TCP over several paths (MPTCP, RFC 8684): what is known of each. The system chooses among them;
//! what this engine does is to ask for them, and to report what has become of that.

use crate::carrier::{SessionId, SocketCarrier};
use crate::context::Context;
use crate::path::{PathInfo, PathUse};
use neater_base::Key;
use neater_base::net::{Net, StreamPaths, Subflow};

/// Why a connection that was to have several paths has one.
const FELL_BACK: &str = "one path: the peer, or something on the way to it, has no MPTCP";

/// The paths of a TCP connection, or why it has one where several were asked for.
pub(crate) enum TcpPaths {
    /// Several may be used, and these are.
    Several(Vec<PathInfo>),
    /// It has one; why, where several were asked for.
    One(Option<&'static str>),
}

impl SocketCarrier {
    /// The paths of the connection on a socket.
    pub(crate) fn tcp_paths<N: Net>(&self, cx: &Context<N>, channel: Key) -> TcpPaths {
        let paths = self.channels.get(channel).and_then(|ch| cx.net.stream_paths(ch.sock));
        match paths {
            None => TcpPaths::One(None),
            Some(StreamPaths::FellBack) => TcpPaths::One(Some(FELL_BACK)),
            Some(StreamPaths::Several(subflows)) => {
                TcpPaths::Several(subflows.iter().map(|subflow| describe(cx, subflow)).collect())
            }
        }
    }

    /// Whether the peer takes part where several paths were asked for below a session; `None`: they
    /// were not, or its protocol has a handshake of its own for that.
    pub(crate) fn agreed_on_paths<N: Net>(&self, cx: &Context<N>, session: SessionId) -> Option<bool> {
        let SessionId::Channel(channel) = session else { return None };
        match self.tcp_paths(cx, channel) {
            TcpPaths::Several(_) => Some(true),
            TcpPaths::One(why) => why.map(|_| false),
        }
    }
}

fn describe<N: Net>(cx: &Context<N>, subflow: &Subflow) -> PathInfo {
    let info = &subflow.info;
    let of = |i: &&neater_base::net::Interface| i.addrs.iter().any(|a| a.addr == subflow.local.ip());
    PathInfo {
        local: subflow.local,
        remote: subflow.remote,
        interface: cx.net.interfaces().iter().find(of).map(|i| i.name.clone()),
        state: PathUse::InUse,
        why: None,
        rtt: info.rtt,
        window: info.congestion_window.unwrap_or(0),
        in_flight: info.in_flight.unwrap_or(0),
        sent: 0,
        lost: info.retransmits.unwrap_or(0),
        delivered: info.acknowledged.unwrap_or(0),
        received: info.received.unwrap_or(0),
    }
}
