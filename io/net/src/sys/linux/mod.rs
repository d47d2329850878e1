//! Linux.
//!
//! *Responsible for* the system calls behind the list in `sys/mod.rs`. *Deliberately not here*:
//! handles, tokens, caches.
//!
//! *Invariants*: every descriptor is non-blocking and close-on-exec from the call that makes it; a
//! function that fails leaves no descriptor behind; no system call is given a length that does not
//! belong to its pointer.

// System calls are foreign functions; each call states why it is sound.
#![allow(unsafe_code)]

mod addr;
mod clock;
mod errno;
mod fork;
mod icmp;
mod info;
mod inotify;
mod interfaces;
mod mptcp;
mod netlink;
mod options;
mod poller;
mod raw;
mod routers;
mod socket;
mod source;
mod tcp;
mod udp;

pub(crate) use clock::{awake_time, boot_time, wall_time};
pub(crate) use errno::{from_io as io_error, told};
pub(crate) use fork::ForkGuard;
pub(crate) use icmp::take_icmp_error;
pub(crate) use info::stream_info;
pub(crate) use inotify::NameWatch;
pub(crate) use interfaces::list_interfaces;
pub(crate) use mptcp::stream_paths;
pub(crate) use netlink::PathMonitor;
pub(crate) use options::set_option;
pub(crate) use poller::{Poller, WakeHandle};
pub(crate) use raw::{raw_obstacle, raw_open, strip_headers};
pub(crate) use routers::RouterSocket;
pub(crate) use socket::{abort, close, local_addr};
pub(crate) use source::SourceProbe;
pub(crate) use tcp::{
    tcp_accept, tcp_connect, tcp_connect_error, tcp_listen, tcp_read_once, tcp_shutdown_write, tcp_write,
    tcp_write_once,
};
pub(crate) use udp::{UdpSupport, udp_connect, udp_lite_obstacle, udp_open, udp_recv, udp_send};

/// Where the resolver's configuration is.
pub(crate) const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Where the names of hosts are.
pub(crate) const HOSTS: &str = "/etc/hosts";

type Result<T> = core::result::Result<T, neater_base::net::NetError>;
