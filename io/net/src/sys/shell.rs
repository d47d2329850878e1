//! A platform that can do nothing: keeps everything compiling where there is no other, and shows
//! what one must provide.
//!
//! *Responsible for* the list in `sys/mod.rs` in standard Rust. *Invariant*: what would hold a
//! resource of the system cannot be made (its type has no values), so that `OsNet::new` fails with
//! `Unsupported` and nothing else is reached.

use super::{Fd, Outgoing, PathChange, Traits};
use core::convert::Infallible;
use neater_base::net::{
    ErrorKind, IcmpError, Interface, NetError, Ready, RecvBatch, SocketOption, SocketOptions, StreamInfo, StreamPaths,
};
use neater_base::{Instant, WallTime};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Where the resolver's configuration is.
pub(crate) const RESOLV_CONF: &str = "resolv.conf";
/// Where the names of hosts are.
pub(crate) const HOSTS: &str = "hosts";

type Result<T> = core::result::Result<T, NetError>;

const fn unsupported<T>() -> Result<T> {
    Err(NetError::new(ErrorKind::Unsupported))
}

/// Monotonic time; standard Rust does not specify whether it advances while the machine sleeps.
pub(crate) fn boot_time() -> Instant {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    Instant::ZERO + START.get_or_init(std::time::Instant::now).elapsed()
}

/// The same clock, so that no sleep is ever seen.
pub(crate) fn awake_time() -> Instant {
    boot_time()
}

/// Wall-clock time.
pub(crate) fn wall_time() -> WallTime {
    WallTime(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// An error of the standard library.
pub(crate) fn io_error(_: &io::Error) -> NetError {
    NetError::new(ErrorKind::Other)
}

/// Cannot be made.
#[derive(Clone, Debug)]
pub(crate) struct ForkGuard(Infallible);

impl ForkGuard {
    pub(crate) fn new() -> io::Result<Self> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    pub(crate) fn unsure(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn forked(&self) -> bool {
        match self.0 {}
    }
}

/// Cannot be made.
#[derive(Clone, Debug)]
pub(crate) struct WakeHandle(Infallible);

impl WakeHandle {
    pub(crate) fn notify(&self) {
        match self.0 {}
    }
}

/// Cannot be made.
pub(crate) struct Poller(Infallible);

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    pub(crate) fn fd(&self) -> Fd {
        match self.0 {}
    }

    #[cfg(unix)]
    pub(crate) fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self.0 {}
    }

    pub(crate) fn wake_handle(&self) -> WakeHandle {
        match self.0 {}
    }

    pub(crate) fn notify(&self) {
        match self.0 {}
    }

    pub(crate) fn add_socket(&self, _fd: Fd, _data: u64, _writes: bool) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn watch_writes(&self, _fd: Fd, _data: u64, _writes: bool) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn wait(&mut self, _each: impl FnMut(u64, Ready, bool)) -> bool {
        match self.0 {}
    }

    pub(crate) fn set_timer(&self, _at: Instant) {
        match self.0 {}
    }
}

/// Cannot be made.
#[derive(Debug)]
pub(crate) struct UdpSupport(Infallible);

impl UdpSupport {
    pub(crate) fn probe() -> Result<Self> {
        unsupported()
    }

    pub(crate) fn max_segments(&self) -> usize {
        match self.0 {}
    }
}

/// Cannot be made.
#[derive(Debug)]
pub(crate) struct PathMonitor(Infallible);

impl PathMonitor {
    pub(crate) fn open(_poller: &Poller) -> Result<Self> {
        unsupported()
    }

    pub(crate) fn drain(&self) -> PathChange {
        match self.0 {}
    }
}

/// Cannot be made.
#[derive(Debug)]
pub(crate) struct RouterSocket(Infallible);

impl RouterSocket {
    pub(crate) fn open(_role: super::Role) -> Result<Self> {
        unsupported()
    }

    pub(crate) fn bind_to(&self, _name: &str) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn receive(&self, _buffer: &mut [u8]) -> Result<(usize, super::Neighbour)> {
        match self.0 {}
    }

    pub(crate) fn send(&self, _index: u32, _message: &[u8]) -> Result<()> {
        match self.0 {}
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for RouterSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self.0 {}
    }
}

/// Cannot be made.
#[derive(Debug)]
pub(crate) struct NameWatch(Infallible);

impl NameWatch {
    pub(crate) fn open(_poller: &Poller) -> Result<Self> {
        unsupported()
    }

    pub(crate) fn watch(&mut self, _files: &[PathBuf]) {
        match self.0 {}
    }

    pub(crate) fn drain(&self) -> bool {
        match self.0 {}
    }
}

/// Knows no source.
#[derive(Debug, Default)]
pub(crate) struct SourceProbe;

impl SourceProbe {
    pub(crate) fn ask(&mut self, _remote: IpAddr) -> Result<Option<IpAddr>> {
        Ok(None)
    }
}

pub(crate) fn list_interfaces() -> Result<Vec<Interface>> {
    unsupported()
}

pub(crate) fn close(_fd: Fd) {}

pub(crate) fn abort(_fd: Fd) {}

pub(crate) fn local_addr(_fd: Fd) -> Result<SocketAddr> {
    unsupported()
}

pub(crate) fn set_option(_fd: Fd, _traits: Traits, _option: SocketOption) -> Result<()> {
    unsupported()
}

pub(crate) fn tcp_connect(_remote: &SocketAddr, _options: &SocketOptions) -> Result<Fd> {
    unsupported()
}

pub(crate) fn tcp_connect_error(_fd: Fd) -> Result<()> {
    unsupported()
}

pub(crate) fn tcp_listen(_local: &SocketAddr, _options: &SocketOptions) -> Result<Fd> {
    unsupported()
}

pub(crate) fn tcp_accept(_listener: Fd) -> Result<(Fd, SocketAddr)> {
    unsupported()
}

pub(crate) fn tcp_write(_fd: Fd, _bufs: &[IoSlice<'_>]) -> Result<usize> {
    unsupported()
}

pub(crate) fn tcp_read_once(_fd: Fd, _buf: &mut [u8]) -> isize {
    -1
}

pub(crate) fn tcp_write_once(_fd: Fd, _buf: &[u8]) -> isize {
    -1
}

pub(crate) fn told(_first: isize, _call: impl FnMut() -> isize) -> Result<usize> {
    unsupported()
}

pub(crate) fn tcp_shutdown_write(_fd: Fd) -> Result<()> {
    unsupported()
}

pub(crate) fn stream_info(_fd: Fd) -> Result<StreamInfo> {
    unsupported()
}

pub(crate) fn stream_paths(_fd: Fd) -> Option<StreamPaths> {
    None
}

pub(crate) fn udp_open(support: &UdpSupport, _v6: bool, _options: &SocketOptions) -> Result<Fd> {
    match support.0 {}
}

pub(crate) fn udp_lite_obstacle() -> Option<&'static str> {
    Some("this platform has no UDP-Lite")
}

pub(crate) fn raw_open(_protocol: u8, _v6: bool, _options: &SocketOptions) -> Result<Fd> {
    unsupported()
}

pub(crate) fn raw_obstacle(_protocol: u8) -> Option<&'static str> {
    Some("this platform has no raw sockets")
}

pub(crate) fn strip_headers(_batch: &mut RecvBatch) {}

pub(crate) fn udp_connect(_fd: Fd, _remote: &SocketAddr) -> Result<()> {
    unsupported()
}

pub(crate) fn udp_send(_fd: Fd, _out: &Outgoing<'_>, _offload: &mut bool) -> Result<()> {
    unsupported()
}

pub(crate) fn udp_recv(support: &UdpSupport, _fd: Fd, _batch: &mut RecvBatch) -> Result<usize> {
    match support.0 {}
}

pub(crate) fn take_icmp_error(_fd: Fd) -> Option<IcmpError> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn without_a_platform_nothing_is_made_and_the_error_says_so() {
        let error = crate::OsNet::new().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
        assert!(super::wall_time().0 > core::time::Duration::ZERO && super::boot_time() <= super::awake_time());
    }
}
