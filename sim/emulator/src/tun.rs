//! TUN devices: an interface in a host's namespace whose packets this process reads and writes.
//!
//! TUN, and not a pair of Ethernet devices with packet sockets: no link layer, so no ARP or neighbour discovery to settle
//! and no frame around the packet; every packet of the host is handed to us and none goes another way.

use super::error::{Result, failed, last};
use super::sys;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// How many packets a host may have sent that the emulator has not read. Much, because what is full here is not the
/// scenario's queue; if it ever is, the host's interface counts it.
pub const QUEUE: u32 = 20_000;

/// A device.
#[derive(Debug)]
pub struct Tun(File);

#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: [u8; 24],
}

fn request(name: &str) -> InterfaceRequest {
    let mut r = InterfaceRequest { name: [0; libc::IFNAMSIZ], data: [0; 24] };
    for (to, from) in r.name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from;
    }
    r
}

impl Tun {
    /// Makes a device in the namespace of the calling thread. It disappears when this is dropped.
    ///
    /// # Errors
    /// There is no `/dev/net/tun`, or it refuses.
    pub fn create(name: &str) -> Result<Self> {
        let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
        let file = match opened {
            Ok(file) => file,
            Err(e) => return failed("/dev/net/tun", e),
        };
        let mut r = request(name);
        // IFF_TUN, without a header before the packets, and only if there is none of this name yet.
        let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as u16 | 0x8000;
        r.data[..2].copy_from_slice(&flags.to_ne_bytes());
        // SAFETY: TUNSETIFF reads and writes an ifreq, whose size and shape InterfaceRequest has.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut r) } != 0 {
            return last(&format!("making the TUN device {name}"));
        }
        Ok(Self(file))
    }

    /// The descriptor, non-blocking.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Reads one packet; 0 when there is none.
    ///
    /// # Errors
    /// The device is gone or down.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        sys::read(self.fd(), into)
    }

    /// Hands one packet to the host.
    ///
    /// # Errors
    /// The device is gone or down, or the host takes no more.
    pub fn write(&self, packet: &[u8]) -> io::Result<usize> {
        sys::write(self.fd(), packet)
    }
}

/// What `ethtool -K` turns off, by the numbers of the ioctl (linux/ethtool.h): segmentation and its relatives.
const OFFLOADS: [(u32, &str); 5] = [
    (0x0000_001f, "tcp segmentation offload"),
    (0x0000_0024, "generic segmentation offload"),
    (0x0000_002c, "generic receive offload"),
    (0x0000_0019, "scatter-gather"),
    (0x0000_0017, "transmit checksumming"),
];

/// Turns all offloads of an interface in the calling thread's namespace off, so that every packet that is seen is one that
/// would be on the wire. A device that never had one says so and is right.
///
/// # Errors
/// An offload stays on.
pub fn offloads_off(name: &str) -> Result<()> {
    let socket = sys::datagram_socket()?;
    for (set, what) in OFFLOADS {
        let mut value: [u32; 2] = [set, 0];
        let mut r = request(name);
        r.data[..size_of::<usize>()].copy_from_slice(&(value.as_mut_ptr() as usize).to_ne_bytes());
        // SAFETY: SIOCETHTOOL takes an ifreq whose pointer leads to an ethtool_value: two words, live during the call.
        let refused = unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &mut r) } != 0;
        if refused {
            let e = io::Error::last_os_error();
            if e.raw_os_error() != Some(libc::EOPNOTSUPP) {
                return failed(&format!("{name}: turning {what} off"), e);
            }
        }
    }
    Ok(())
}

/// Takes an interface up or down (netdevice(7)), in the namespace of a socket; false where the kernel refuses, which
/// `errno` explains.
pub(crate) fn set_up(socket: RawFd, name: &str, up: bool) -> bool {
    let mut r = request(name);
    // SAFETY: SIOCGIFFLAGS and SIOCSIFFLAGS take an ifreq, whose size and shape InterfaceRequest has; it lives.
    unsafe {
        if libc::ioctl(socket, libc::SIOCGIFFLAGS, &mut r) != 0 {
            return false;
        }
        let flags = u16::from_ne_bytes([r.data[0], r.data[1]]);
        let bit = libc::IFF_UP as u16;
        let flags = if up { flags | bit } else { flags & !bit };
        r.data[..2].copy_from_slice(&flags.to_ne_bytes());
        libc::ioctl(socket, libc::SIOCSIFFLAGS, &mut r) == 0
    }
}
