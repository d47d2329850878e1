//! Socket addresses to the kernel's form and back, by hand: a copy of 16 or 28 bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An address in the kernel's form, IPv4 or IPv6.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union RawAddr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// Length of [`RawAddr`] when the kernel fills it.
pub(super) const RAW_LEN: libc::socklen_t = size_of::<RawAddr>() as libc::socklen_t;
const V4_LEN: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;
const V6_LEN: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;

impl RawAddr {
    /// All zero: room for the kernel to fill.
    pub(super) const fn empty() -> Self {
        Self {
            v6: libc::sockaddr_in6 {
                sin6_family: 0,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
                sin6_scope_id: 0,
            },
        }
    }

    /// `addr` in the kernel's form, and its length there.
    pub(super) const fn new(addr: &SocketAddr) -> (Self, libc::socklen_t) {
        match addr {
            SocketAddr::V4(a) => (
                Self {
                    v4: libc::sockaddr_in {
                        sin_family: libc::AF_INET as libc::sa_family_t,
                        sin_port: a.port().to_be(),
                        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
                        sin_zero: [0; 8],
                    },
                },
                V4_LEN,
            ),
            SocketAddr::V6(a) => (
                Self {
                    v6: libc::sockaddr_in6 {
                        sin6_family: libc::AF_INET6 as libc::sa_family_t,
                        sin6_port: a.port().to_be(),
                        sin6_flowinfo: a.flowinfo(),
                        sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                        sin6_scope_id: a.scope_id(),
                    },
                },
                V6_LEN,
            ),
        }
    }

    /// An address that stands at the beginning of what the kernel wrote.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<SocketAddr> {
        let mut raw = Self::empty();
        let len = bytes.len().min(size_of::<Self>());
        // SAFETY: both have `len` bytes and do not overlap; any bytes are valid in both variants.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut raw).cast(), len) };
        raw.get(len as libc::socklen_t)
    }

    /// For system calls.
    pub(super) const fn as_ptr(&self) -> *const libc::sockaddr {
        core::ptr::from_ref(self).cast()
    }

    /// For system calls that fill it with at most [`RAW_LEN`] bytes.
    pub(super) const fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        core::ptr::from_mut(self).cast()
    }

    /// What the kernel wrote, `len` bytes of it; `None` if that is no Internet address.
    pub(super) fn get(&self, len: libc::socklen_t) -> Option<SocketAddr> {
        // SAFETY: the family is the first field of both variants, and all bytes were initialised by
        // `new` or `empty`.
        let family = libc::c_int::from(unsafe { self.v4.sin_family });
        if family == libc::AF_INET && len >= V4_LEN {
            // SAFETY: as above; any bytes are a valid `sockaddr_in`.
            let a = unsafe { self.v4 };
            let ip = Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(a.sin_port))))
        } else if family == libc::AF_INET6 && len >= V6_LEN {
            // SAFETY: `empty` initialised the longer variant and the kernel wrote all of it; any
            // bytes are valid.
            let a = unsafe { self.v6 };
            let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(a.sin6_port), a.sin6_flowinfo, a.sin6_scope_id)))
        } else {
            None
        }
    }
}

/// An IPv4 address in the kernel's form.
pub(super) const fn in_addr(ip: Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) }
}

/// The wildcard address and port 0 of a family.
pub(super) const fn any(v6: bool) -> SocketAddr {
    let ip = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    SocketAddr::new(ip, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_way_to_the_kernel_and_back() {
        let v6 = SocketAddrV6::new("fe80::1".parse().unwrap(), 443, 7, 3);
        for addr in [SocketAddr::from(([192, 0, 2, 1], 80)), SocketAddr::V6(v6), any(false), any(true)] {
            let (raw, len) = RawAddr::new(&addr);
            assert_eq!(raw.get(len), Some(addr));
            assert_eq!(raw.get(4), None, "a short answer is not an address");
        }
        assert_eq!(RawAddr::empty().get(RAW_LEN), None);
    }
}
