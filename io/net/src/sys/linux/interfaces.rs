//! The interfaces of this host, out of three dumps.
//!
//! *Responsible for* links, addresses and default routes as [`Interface`]s, ordered by index, and
//! for distinguishing Wi-Fi from Ethernet. *Deliberately not here*: noticing changes.
//!
//! *Invariant*: the lists are bounded by [`MAX_INTERFACES`] and [`MAX_ADDRS`].

use super::Result;
use super::netlink::{Dumped, Message, attributes, dump, u16_at, u32_at};
use neater_base::net::{Interface, InterfaceAddr, InterfaceKind};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// More interfaces than this are not looked at.
const MAX_INTERFACES: usize = 1024;
/// More addresses of one interface than this are not looked at.
const MAX_ADDRS: usize = 256;

// linux/if_arp.h, linux/if_link.h, linux/if_addr.h, linux/rtnetlink.h.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_RAWIP: u16 = 519;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_TEMPORARY: u32 = 0x01;
const IFA_F_OPTIMISTIC: u32 = 0x04;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_DEPRECATED: u32 = 0x20;
const IFA_F_TENTATIVE: u32 = 0x40;
const RTA_OIF: u16 = 4;
const RTA_MULTIPATH: u16 = 9;
const RTN_UNICAST: u8 = 1;

/// The interfaces, ordered by index.
///
/// # Errors
/// When the kernel does not answer.
pub(crate) fn list_interfaces() -> Result<Vec<Interface>> {
    let mut table = Table::default();
    for request in [libc::RTM_GETLINK, libc::RTM_GETADDR, libc::RTM_GETROUTE] {
        dump(request, |part| match part {
            Dumped::Message(message) => table.take(message),
            Dumped::Restart => table.forget(request),
        })?;
    }
    for (interface, hints) in table.interfaces.values_mut() {
        interface.kind = classify(hints, &Sysfs::of(&interface.name));
    }
    Ok(table.interfaces.into_values().map(|(interface, _)| interface).collect())
}

/// What a link reports of its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hints {
    loopback: bool,
    hardware: u16,
    /// The driver's word for it, for virtual links.
    driver: String,
}

/// What `/sys/class/net` reports of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sysfs {
    wireless: bool,
    tun: bool,
    wwan: bool,
}

impl Sysfs {
    fn of(name: &str) -> Self {
        // A name that leads elsewhere is not asked for; the kernel does not allow one.
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Self::default();
        }
        let dir = Path::new("/sys/class/net").join(name);
        let has = |file: &str| dir.join(file).exists();
        // A file of a few lines that the kernel makes up.
        let uevent = std::fs::read(dir.join("uevent")).unwrap_or_default();
        let device_type =
            |kind: &[u8]| uevent.split(|b| *b == b'\n').any(|l| l.strip_prefix(b"DEVTYPE=") == Some(kind));
        Self {
            wireless: has("wireless") || has("phy80211") || device_type(b"wlan"),
            tun: has("tun_flags"),
            wwan: device_type(b"wwan"),
        }
    }
}

fn classify(hints: &Hints, sysfs: &Sysfs) -> InterfaceKind {
    if hints.loopback {
        InterfaceKind::Loopback
    } else if sysfs.wireless {
        InterfaceKind::WiFi
    } else if sysfs.wwan || hints.hardware == ARPHRD_RAWIP || matches!(&*hints.driver, "rmnet" | "wwan") {
        InterfaceKind::Cellular
    } else if sysfs.tun
        || matches!(
            hints.hardware,
            libc::ARPHRD_NONE | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT | libc::ARPHRD_IPGRE
        )
        || matches!(&*hints.driver, "tun" | "wireguard" | "gretap" | "ip6gretap" | "vxlan" | "geneve" | "xfrm")
    {
        InterfaceKind::Tunnel
    } else if matches!(&*hints.driver, "dummy" | "ifb" | "nlmon") {
        InterfaceKind::Other
    } else if hints.hardware == ARPHRD_ETHER {
        InterfaceKind::Wired
    } else {
        InterfaceKind::Other
    }
}

/// The interfaces as the messages of the three dumps come in.
#[derive(Debug, Default)]
struct Table {
    interfaces: BTreeMap<u32, (Interface, Hints)>,
}

impl Table {
    /// A message that makes no sense changes nothing.
    fn take(&mut self, message: Message<'_>) {
        let _ = match message.kind {
            libc::RTM_NEWLINK => self.link(message.body),
            libc::RTM_NEWADDR => self.address(message.body),
            libc::RTM_NEWROUTE => self.route(message.body),
            _ => None,
        };
    }

    /// Undoes a dump that is to be repeated.
    fn forget(&mut self, request: u16) {
        match request {
            libc::RTM_GETLINK => self.interfaces.clear(),
            libc::RTM_GETADDR => self.interfaces.values_mut().for_each(|(i, _)| i.addrs.clear()),
            _ => self.interfaces.values_mut().for_each(|(i, _)| (i.default_v4, i.default_v6) = (false, false)),
        }
    }

    /// `struct ifinfomsg`: family 0, hardware 2, index 4, flags 8, change 12.
    fn link(&mut self, body: &[u8]) -> Option<()> {
        let (hardware, index, flags) = (u16_at(body, 2)?, u32_at(body, 4)?, u32_at(body, 8)?);
        let flag = |f: libc::c_int| flags & f as u32 != 0;
        let mut interface = Interface {
            index,
            name: String::new(),
            kind: InterfaceKind::Other,
            // "Running" means that there is a carrier and nothing is in the way (RFC 2863
            // operational state).
            up: flag(libc::IFF_UP) && flag(libc::IFF_RUNNING),
            addrs: Vec::new(),
            mtu: 0,
            default_v4: false,
            default_v6: false,
        };
        let mut hints = Hints { loopback: flag(libc::IFF_LOOPBACK), hardware, driver: String::new() };
        for (kind, value) in attributes(body.get(16..)?) {
            match kind {
                IFLA_IFNAME => interface.name = text(value),
                IFLA_MTU => interface.mtu = u32_at(value, 0)?,
                IFLA_LINKINFO => {
                    if let Some((_, v)) = attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND) {
                        hints.driver = text(v);
                    }
                }
                _ => {}
            }
        }
        if self.interfaces.len() < MAX_INTERFACES || self.interfaces.contains_key(&index) {
            self.interfaces.insert(index, (interface, hints));
        }
        Some(())
    }

    /// `struct ifaddrmsg`: family 0, prefix length 1, flags 2, scope 3, index 4.
    fn address(&mut self, body: &[u8]) -> Option<()> {
        let (family, prefix, index) = (*body.first()?, *body.get(1)?, u32_at(body, 4)?);
        let mut flags = u32::from(*body.get(2)?);
        let (mut address, mut local) = (None, None);
        for (kind, value) in attributes(body.get(8..)?) {
            match kind {
                IFA_ADDRESS => address = ip(family, value),
                // On a point-to-point link the other one is the peer's.
                IFA_LOCAL => local = ip(family, value),
                IFA_FLAGS => flags = u32_at(value, 0)?,
                _ => {}
            }
        }
        let addr = local.or(address)?;
        // Not (or not yet) this host's: duplicate address detection is running or has failed (RFC
        // 4862 section 5.4). An optimistic address may be used meanwhile (RFC 4429).
        let tentative = flags & (IFA_F_TENTATIVE | IFA_F_OPTIMISTIC) == IFA_F_TENTATIVE;
        if tentative || flags & IFA_F_DADFAILED != 0 {
            return None;
        }
        let (interface, _) = self.interfaces.get_mut(&index)?;
        if interface.addrs.len() < MAX_ADDRS {
            interface.addrs.push(InterfaceAddr {
                addr,
                prefix,
                // The same bit means "secondary" in IPv4.
                temporary: addr.is_ipv6() && flags & IFA_F_TEMPORARY != 0,
                deprecated: flags & IFA_F_DEPRECATED != 0,
            });
        }
        Some(())
    }

    /// `struct rtmsg`: family 0, destination length 1, source length 2, class 3, table 4, protocol
    /// 5, scope 6, type 7, flags 8. A default route of any table counts: VPNs keep theirs in a
    /// table of their own.
    fn route(&mut self, body: &[u8]) -> Option<()> {
        let (family, destination_len, table, kind) = (*body.first()?, *body.get(1)?, *body.get(4)?, *body.get(7)?);
        let cloned = u32_at(body, 8)? & libc::RTM_F_CLONED != 0;
        if destination_len != 0 || kind != RTN_UNICAST || table == libc::RT_TABLE_LOCAL || cloned {
            return None;
        }
        for (kind, value) in attributes(body.get(12..)?) {
            match kind {
                RTA_OIF => self.default_route(family, u32_at(value, 0)?),
                RTA_MULTIPATH => {
                    // A list of `struct rtnexthop`: length 0, flags 2, hops 3, index 4.
                    let mut rest = value;
                    while let (Some(len), Some(index)) = (u16_at(rest, 0), u32_at(rest, 4)) {
                        self.default_route(family, index);
                        rest = rest.get(usize::from(len).max(8).next_multiple_of(4)..).unwrap_or(&[]);
                    }
                }
                _ => {}
            }
        }
        Some(())
    }

    fn default_route(&mut self, family: u8, index: u32) {
        if let Some((interface, _)) = self.interfaces.get_mut(&index) {
            match libc::c_int::from(family) {
                libc::AF_INET => interface.default_v4 = true,
                libc::AF_INET6 => interface.default_v6 = true,
                _ => {}
            }
        }
    }
}

/// A name that ends at its first zero.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match libc::c_int::from(family) {
        libc::AF_INET => Some(IpAddr::V4(Ipv4Addr::from(*value.first_chunk::<4>()?))),
        libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(*value.first_chunk::<16>()?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
