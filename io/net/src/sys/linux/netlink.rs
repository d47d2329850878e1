//! Route netlink (rtnetlink(7)): dumps and notifications.
//!
//! *Responsible for* asking the kernel for lists, and for noticing that they have changed.
//! *Deliberately not here*: what the lists mean, which is `interfaces`'.
//!
//! *Invariants*: only the kernel is believed; whatever length a message states, reading stays
//! within what was received; a dump ends after [`MAX_DUMP_BYTES`].

use super::errno::{check, from_errno, retry};
use super::poller::{Poller, own};
use super::{Result, errno};
use crate::sys::{DATA_PATHS, Fd, PathChange};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A dump is cut off here. Default routes come first in both families' tables, so that a full
/// routing table of the Internet does no harm.
const MAX_DUMP_BYTES: usize = 4 << 20;
/// The kernel writes at most 32 kB at a time.
const BUFFER: usize = 65_536;
/// A dump that the kernel calls inconsistent is repeated this often.
const DUMP_TRIES: usize = 3;
/// Receive calls in one [`PathMonitor::drain`]. What remains repeats what is already known:
/// something has changed.
const MAX_DRAIN: usize = 64;
/// The header of a message.
const HEADER: usize = 16;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
/// `RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE`.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) body: &'a [u8],
}

/// Reads a native-endian number at an offset.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads a native-endian number at an offset.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Cuts an item off the front whose length, header included, is `len`; items are padded to four
/// bytes.
fn cut<'a>(rest: &mut &'a [u8], len: usize, header: usize) -> Option<&'a [u8]> {
    let body = rest.get(header..len)?;
    *rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    Some(body)
}

/// The messages in what was received; ends at the first that makes no sense.
pub(super) fn messages(bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (len, kind, flags) = (u32_at(rest, 0)? as usize, u16_at(rest, 4)?, u16_at(rest, 6)?);
        let body = cut(&mut rest, len, HEADER)?;
        Some(Message { kind, flags, body })
    })
}

/// The attributes in (part of) a message: type and value; ends at the first that makes no sense.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (len, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
        // The two high bits are flags.
        Some((kind & 0x3fff, cut(&mut rest, len, 4)?))
    })
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers and returns a new descriptor.
    own(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })
}

/// Receives once; `None` for what another process sent.
fn receive(fd: Fd, buffer: &mut [u8]) -> Result<Option<&[u8]>> {
    // SAFETY: all zero is a valid address.
    let mut from: libc::sockaddr_nl = unsafe { core::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    let n = retry(|| {
        // SAFETY: buffer and address are writable for the lengths given.
        unsafe { libc::recvfrom(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0, (&raw mut from).cast(), &mut len) }
    })?;
    Ok(buffer.get(..n).filter(|_| from.nl_pid == 0))
}

/// What [`dump`] hands over.
pub(super) enum Dumped<'a> {
    /// A message of the answer.
    Message(Message<'a>),
    /// The answer is inconsistent and restarts.
    Restart,
}

/// Asks for all objects of a kind (an `RTM_GET…` number) and hands over the answer.
///
/// # Errors
/// The error of the operating system; then what was handed over is not the whole.
pub(super) fn dump(request: u16, mut each: impl FnMut(Dumped<'_>)) -> Result<()> {
    let mut buffer = vec![0; BUFFER];
    for attempt in 1..=DUMP_TRIES {
        let fd = open().map_err(|e| errno::from_io(&e))?;
        // A header, and the longest of the three fixed parts (`struct ifinfomsg`), all zero: every
        // family.
        let mut bytes = [0u8; HEADER + 16];
        bytes[..4].copy_from_slice(&((HEADER + 16) as u32).to_ne_bytes());
        bytes[4..6].copy_from_slice(&request.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        // SAFETY: `bytes` is readable for its length; an unconnected netlink socket sends to the
        // kernel.
        retry(|| unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) })?;
        if read_dump(fd.as_raw_fd(), &mut buffer, &mut each)? || attempt == DUMP_TRIES {
            break;
        }
        each(Dumped::Restart);
    }
    Ok(())
}

/// Returns whether the answer is consistent. The kernel answers during the call, so that this does
/// not wait.
fn read_dump(fd: Fd, buffer: &mut [u8], each: &mut impl FnMut(Dumped<'_>)) -> Result<bool> {
    let (mut total, mut consistent) = (0, true);
    while total < MAX_DUMP_BYTES {
        let Some(bytes) = receive(fd, buffer)? else { continue };
        // Nothing at all would never end.
        total += bytes.len().max(HEADER);
        for message in messages(bytes) {
            consistent &= message.flags & NLM_F_DUMP_INTR == 0;
            match message.kind {
                NLMSG_DONE => return Ok(consistent),
                NLMSG_ERROR => {
                    let code = u32_at(message.body, 0).map_or(0, |c| (c as i32).wrapping_neg());
                    return Err(from_errno(code));
                }
                _ => each(Dumped::Message(message)),
            }
        }
    }
    Ok(consistent)
}

/// Notices changes of links, addresses and routes.
#[derive(Debug)]
pub(crate) struct PathMonitor {
    fd: OwnedFd,
}

impl PathMonitor {
    /// Subscribes, and registers with the poller.
    ///
    /// # Errors
    /// When the process may not; then changes go unnoticed.
    pub(crate) fn open(poller: &Poller) -> Result<Self> {
        let fd = open().map_err(|e| errno::from_io(&e))?;
        // SAFETY: all zero is a valid address.
        let mut address: libc::sockaddr_nl = unsafe { core::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = GROUPS;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: `address` is readable for `len` bytes.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
        poller.add_signal(fd.as_raw_fd(), DATA_PATHS)?;
        Ok(Self { fd })
    }

    /// What has happened since the last call.
    pub(crate) fn drain(&self) -> PathChange {
        let (mut buffer, mut change) = (vec![0; BUFFER], PathChange::default());
        for _ in 0..MAX_DRAIN {
            match receive(self.fd.as_raw_fd(), &mut buffer) {
                Ok(Some(bytes)) => messages(bytes).for_each(|m| note(&mut change, m)),
                Ok(None) => {}
                Err(e) if e.is_would_block() => break,
                // Messages were lost (ENOBUFS): anything may have changed.
                Err(_) => change = PathChange { maybe: true, routes: true },
            }
        }
        change
    }
}

/// What one notification means.
fn note(change: &mut PathChange, message: Message<'_>) {
    match message.kind {
        libc::RTM_NEWLINK | libc::RTM_DELLINK | libc::RTM_NEWADDR | libc::RTM_DELADDR => change.maybe = true,
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
            // Byte 4 of `struct rtmsg` is the table, its last four bytes are flags. The local table
            // follows the addresses, and cloned routes are the kernel's notes to itself.
            let local = message.body.get(4).is_some_and(|table| *table == libc::RT_TABLE_LOCAL);
            let cloned = u32_at(message.body, 8).is_some_and(|flags| flags & libc::RTM_F_CLONED != 0);
            change.routes |= !local && !cloned;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn messages_and_attributes_are_read_in_order_and_padding_is_skipped() {
        let bytes = [message(16, b"abcde"), message(20, b"xy")].concat();
        let found: Vec<_> = messages(&bytes).map(|m| (m.kind, m.body)).collect();
        assert_eq!(found, [(16, &b"abcde"[..]), (20, b"xy")]);
        let attrs = [5u8.into(), 3u16, u16::from_ne_bytes(*b"z\0"), 0].map(u16::to_ne_bytes).concat();
        assert_eq!(attributes(&attrs).collect::<Vec<_>>(), [(3, &b"z"[..])]);
    }

    #[test]
    fn lengths_that_lie_end_the_reading() {
        let good = message(16, b"abcd");
        for lie in [0u32, 15, 21, u32::MAX] {
            let mut bytes = good.clone();
            bytes[..4].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(messages(&bytes).count(), 0, "{lie}");
        }
        for len in 0..good.len() {
            assert!(messages(&good[..len]).count() == 0);
        }
        assert_eq!(attributes(&[0; 64]).count(), 0);
        assert_eq!(attributes(&[255; 64]).count(), 0);
    }

    #[test]
    fn only_routes_that_matter_are_a_change() {
        let seen = |kind, body: &[u8]| {
            let mut change = PathChange::default();
            note(&mut change, Message { kind, flags: 0, body });
            change
        };
        let mut route = [0u8; 12];
        route[4] = libc::RT_TABLE_MAIN;
        assert!(seen(libc::RTM_NEWROUTE, &route).routes);
        route[4] = libc::RT_TABLE_LOCAL;
        assert!(!seen(libc::RTM_DELROUTE, &route).routes);
        assert!(seen(libc::RTM_DELADDR, &[]).maybe);
        assert_eq!(seen(28, &[]), PathChange::default());
    }
}
