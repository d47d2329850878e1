//! What a platform must provide, and the choice of one.
//!
//! *Responsible for* the list below: everything that `os/` asks of the operating system, in terms
//! of `neater_base` and [`Fd`]. *Deliberately not here*: state of the engine; handles and tokens
//! are `os/`'s.
//!
//! *Invariant*: every platform exports the same names with the same signatures; the compiler checks
//! it on both.
//!
//! | item | what it does |
//! | --- | --- |
//! | `boot_time`, `awake_time`, `wall_time` | clocks: monotonic with sleep, without it, wall |
//! | `ForkGuard` | knows, without a system call, that this is a child of the process that made it |
//! | `Poller` | readiness of descriptors, a timer and a wake-up, all behind one descriptor |
//! | `WakeHandle` | the wake-up, from any thread |
//! | `close`, `abort`, `local_addr`, `set_option` | of any socket |
//! | `tcp_*`, `stream_info`, `stream_paths` | streams and listeners |
//! | `UdpSupport`, `udp_*`, `take_icmp_error` | datagrams and their errors |
//! | `raw_*`, `strip_headers` | packets of other IP protocols |
//! | `PathMonitor`, `list_interfaces`, `SourceProbe` | the host's links, addresses, routes |
//! | `RouterSocket` | router advertisements and solicitations |
//! | `NameWatch`, `RESOLV_CONF`, `HOSTS` | the files that configure name resolution |

pub(crate) use crate::os::{Neighbour, Role};
use neater_base::net::Ecn;
use std::net::{IpAddr, SocketAddr};

#[cfg(all(target_os = "linux", not(feature = "shell")))]
mod linux;
#[cfg(any(not(target_os = "linux"), feature = "shell"))]
mod shell;

#[cfg(all(target_os = "linux", not(feature = "shell")))]
use linux as platform;
#[cfg(any(not(target_os = "linux"), feature = "shell"))]
use shell as platform;

pub(crate) use platform::{
    ForkGuard, HOSTS, NameWatch, PathMonitor, Poller, RESOLV_CONF, RouterSocket, SourceProbe, UdpSupport, WakeHandle,
    abort, awake_time, boot_time, close, io_error, list_interfaces, local_addr, raw_obstacle, raw_open, set_option,
    stream_info, stream_paths, strip_headers, take_icmp_error, tcp_accept, tcp_connect, tcp_connect_error, tcp_listen,
    tcp_read_once, tcp_shutdown_write, tcp_write, tcp_write_once, told, udp_connect, udp_lite_obstacle, udp_open,
    udp_recv, udp_send, wall_time,
};

/// A descriptor of the platform.
pub(crate) type Fd = i32;

/// [`Poller`] reports these numbers for what is not a socket. Their low half is no descriptor, so
/// that they are no handle.
pub(crate) const DATA_TIMER: u64 = u64::MAX;
/// Another thread, or work left over.
pub(crate) const DATA_WAKE: u64 = u64::MAX - 1;
/// The [`PathMonitor`] has something.
pub(crate) const DATA_PATHS: u64 = u64::MAX - 2;
/// The [`NameWatch`] has something.
pub(crate) const DATA_NAMES: u64 = u64::MAX - 3;

/// What a socket is, as far as options depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    /// TCP rather than UDP.
    pub(crate) stream: bool,
    /// IPv6 rather than IPv4.
    pub(crate) v6: bool,
}

/// How a batch of datagrams is to be sent, checked by the caller: `contents` holds at most
/// `MAX_SEGMENTS` segments.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(any(not(target_os = "linux"), feature = "shell"), expect(dead_code, reason = "the shell sends nothing"))]
pub(crate) struct Outgoing<'a> {
    /// Whether the socket is of IPv6.
    pub(crate) v6: bool,
    /// Where to; `None` on a connected socket means its peer.
    pub(crate) destination: Option<SocketAddr>,
    /// Source address, of the destination's family.
    pub(crate) source: Option<IpAddr>,
    /// By which interface it leaves; 0: by the one that routes select.
    pub(crate) interface: u32,
    /// The differentiated services codepoint of the socket.
    pub(crate) dscp: u8,
    /// ECN codepoint.
    pub(crate) ecn: Ecn,
    /// Length of each datagram but the last, if there is more than one.
    pub(crate) segment_size: Option<u16>,
    /// The payload.
    pub(crate) contents: &'a [u8],
}

/// What a [`PathMonitor`] saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathChange {
    /// Links or addresses may have changed: compare to know.
    pub(crate) maybe: bool,
    /// Routes have changed.
    pub(crate) routes: bool,
}

/// The most segments one `Transmit` may hold, whatever the platform can do.
pub(crate) const MAX_SEGMENTS: usize = 64;
