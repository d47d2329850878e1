//! TCP over several paths (MPTCP, RFC 8684), as Linux has it (`Documentation/networking/mptcp.rst`,
//! `include/uapi/linux/mptcp.h` of the kernel).

use super::Result;
use super::addr::RawAddr;
use super::errno::check;
use super::info::{TcpInfo, UNCONNECTED, summarise};
use super::socket::{get_int, open_as};
use crate::sys::{Fd, Traits};
use neater_base::net::{ErrorKind, NetError, SocketOptions, StreamPaths, Subflow};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

const SOL_MPTCP: libc::c_int = 284;
/// `MPTCP_INFO`: fails once the connection has fallen back to TCP.
const INFO: libc::c_int = 1;
/// `MPTCP_TCPINFO` and `MPTCP_SUBFLOW_ADDRS`: an array each, in the same order.
const TCP_INFO: libc::c_int = 2;
const SUBFLOW_ADDRS: libc::c_int = 3;
/// Flags of `struct mptcp_info`: the connection fell back, and the peer's key has come.
const FALLBACK: u32 = 1;
const REMOTE_KEY: u32 = 2;

/// A connection has at most eight subflows (`MPTCP_SUBFLOWS_MAX` and the first).
const MAX_SUBFLOWS: usize = 9;
/// `struct sockaddr_storage`, once for our address and once for the peer's.
const ADDRESS: usize = 128;

/// What comes before the array (`struct mptcp_subflow_data`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Head {
    size: u32,
    subflows: u32,
    size_kernel: u32,
    size_user: u32,
}

/// The array, each entry of `N` bytes.
#[repr(C)]
struct Entries<const N: usize> {
    head: Head,
    entries: [[u8; N]; MAX_SUBFLOWS],
}

/// A socket for several paths; `None`: the system has no MPTCP, or an option that was asked for is
/// none of such sockets.
pub(super) fn open(traits: Traits, options: &SocketOptions) -> Option<OwnedFd> {
    open_as(libc::SOCK_STREAM, libc::IPPROTO_MPTCP, traits, options).ok()
}

/// What has become of the wish for several paths; `None`: there was none, or the socket is not
/// connected.
pub(crate) fn stream_paths(fd: Fd) -> Option<StreamPaths> {
    if get_int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL).ok()? != libc::IPPROTO_MPTCP {
        return None;
    }
    let (mut peer, mut len) = (RawAddr::empty(), super::addr::RAW_LEN);
    // SAFETY: `peer` has room for `len` bytes.
    check(unsafe { libc::getpeername(fd, peer.as_mut_ptr(), &mut len) }).ok()?;
    match flags(fd) {
        Err(e) if e.code == Some(libc::EOPNOTSUPP) || e.code == Some(libc::ENOPROTOOPT) => {
            return has_info().then_some(StreamPaths::FellBack);
        }
        Err(_) => return None,
        Ok(flags) if flags & FALLBACK != 0 => return Some(StreamPaths::FellBack),
        Ok(flags) if flags & REMOTE_KEY == 0 => return None,
        Ok(_) => {}
    }
    let infos = array::<{ size_of::<TcpInfo>() }>(fd, TCP_INFO);
    let addresses = array::<{ 2 * ADDRESS }>(fd, SUBFLOW_ADDRS);
    // One has come or gone between the two questions: what belongs together is not known.
    if infos.len() != addresses.len() {
        return Some(StreamPaths::Several(Vec::new()));
    }
    let subflows = infos.iter().zip(&addresses).filter_map(|((info, len), (address, _))| subflow(info, *len, address));
    Some(StreamPaths::Several(subflows.collect()))
}

/// Whether this kernel has `MPTCP_INFO` at all (Linux 5.16): without it a fall-back shows nowhere.
fn has_info() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let traits = Traits { stream: true, v6: false };
        open(traits, &SocketOptions::default()).is_some_and(|fd| flags(fd.as_raw_fd()).is_ok())
    })
}

/// The flags of `struct mptcp_info`, which come after eight bytes of counts.
fn flags(fd: Fd) -> Result<u32> {
    // Longer than the structure of any kernel so far, of which as much as fits is copied.
    let mut info = [0u32; 64];
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` is writable for `len` bytes, and any bytes are valid numbers.
    check(unsafe { libc::getsockopt(fd, SOL_MPTCP, INFO, info.as_mut_ptr().cast(), &mut len) })?;
    if len >= 12 { Ok(info[2]) } else { Err(NetError::new(ErrorKind::Unsupported)) }
}

/// The entries of an array, and how many bytes of each the kernel has filled.
fn array<const N: usize>(fd: Fd, name: libc::c_int) -> Vec<([u8; N], usize)> {
    let head = Head { size: size_of::<Head>() as u32, size_user: N as u32, ..Head::default() };
    let mut read = Entries { head, entries: [[0; N]; MAX_SUBFLOWS] };
    let mut len = size_of_val(&read) as libc::socklen_t;
    // SAFETY: `read` is writable for `len` bytes, and any bytes are valid for it.
    let done = check(unsafe { libc::getsockopt(fd, SOL_MPTCP, name, (&raw mut read).cast(), &mut len) });
    if done.is_err() {
        return Vec::new();
    }
    let filled = (read.head.size_kernel as usize).min(N);
    read.entries.into_iter().take(read.head.subflows as usize).map(|entry| (entry, filled)).collect()
}

/// One subflow; `None`: it is not connected.
fn subflow(info: &[u8; size_of::<TcpInfo>()], len: usize, addresses: &[u8; 2 * ADDRESS]) -> Option<Subflow> {
    // SAFETY: any bytes are a valid `TcpInfo`, and there are as many as it has.
    let info: TcpInfo = unsafe { core::ptr::read_unaligned(info.as_ptr().cast()) };
    if UNCONNECTED.contains(&info.state) {
        return None;
    }
    let (local, remote) = addresses.split_at(ADDRESS);
    Some(Subflow {
        local: RawAddr::from_bytes(local)?,
        remote: RawAddr::from_bytes(remote)?,
        // How much the socket holds is not known of one subflow: it counts whole segments.
        info: summarise(&info, len.min(core::mem::offset_of!(TcpInfo, notsent_bytes)), || None),
    })
}
