use super::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn link(index: u32, hardware: u16, flags: libc::c_int, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(hardware.to_ne_bytes());
    bytes.extend(index.to_ne_bytes());
    bytes.extend((flags as u32).to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(attributes.concat());
    bytes
}

fn address(family: libc::c_int, prefix: u8, flags: u32, index: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![family as u8, prefix, flags as u8, 0];
    bytes.extend(index.to_ne_bytes());
    bytes.extend(attributes.concat());
    bytes.extend(attribute(IFA_FLAGS, &flags.to_ne_bytes()));
    bytes
}

fn route(family: libc::c_int, len: u8, table: u8, kind: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![family as u8, len, 0, 0, table, 0, 0, kind, 0, 0, 0, 0];
    bytes.extend(attributes.concat());
    bytes
}

fn take(table: &mut Table, kind: u16, body: &[u8]) {
    table.take(Message { kind, flags: 0, body });
}

fn two_links() -> Table {
    let mut table = Table::default();
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    for index in [2, 1] {
        let body = link(
            index,
            ARPHRD_ETHER,
            up,
            &[attribute(IFLA_IFNAME, b"eth\0"), attribute(IFLA_MTU, &1400u32.to_ne_bytes())],
        );
        take(&mut table, libc::RTM_NEWLINK, &body);
    }
    table
}

#[test]
fn links_addresses_and_default_routes_come_together() {
    let mut table = two_links();
    let local = attribute(IFA_LOCAL, &[192, 0, 2, 1]);
    let peer = attribute(IFA_ADDRESS, &[192, 0, 2, 2]);
    take(&mut table, libc::RTM_NEWADDR, &address(libc::AF_INET, 24, IFA_F_TEMPORARY, 2, &[peer, local]));
    let temporary = attribute(IFA_ADDRESS, &[0x20; 16]);
    let flags = IFA_F_TEMPORARY | IFA_F_DEPRECATED;
    take(&mut table, libc::RTM_NEWADDR, &address(libc::AF_INET6, 64, flags, 2, &[temporary]));
    let oif = attribute(RTA_OIF, &2u32.to_ne_bytes());
    take(&mut table, libc::RTM_NEWROUTE, &route(libc::AF_INET, 0, libc::RT_TABLE_MAIN, RTN_UNICAST, &[oif]));
    let hops: Vec<u8> =
        [1u32, 2].iter().flat_map(|i| [&8u16.to_ne_bytes()[..], &[0, 0], &i.to_ne_bytes()].concat()).collect();
    let multi = attribute(RTA_MULTIPATH, &hops);
    take(&mut table, libc::RTM_NEWROUTE, &route(libc::AF_INET6, 0, libc::RT_TABLE_MAIN, RTN_UNICAST, &[multi]));

    let found: Vec<_> = table.interfaces.values().map(|(i, _)| i).collect();
    assert_eq!(found.iter().map(|i| i.index).collect::<Vec<_>>(), [1, 2]);
    assert!(found.iter().all(|i| i.up && i.mtu == 1400 && i.name == "eth" && i.default_v6));
    assert!(!found[0].default_v4 && found[1].default_v4);
    let (v4, v6) = (found[1].addrs[0], found[1].addrs[1]);
    assert_eq!((v4.addr, v4.prefix, v4.temporary), (IpAddr::from([192, 0, 2, 1]), 24, false));
    assert!(v6.temporary && v6.deprecated && v6.prefix == 64);
}

#[test]
fn addresses_under_duplicate_detection_and_routes_that_are_none_are_left_out() {
    let mut table = two_links();
    let ip = || attribute(IFA_ADDRESS, &[0x20; 16]);
    for flags in [IFA_F_TENTATIVE, IFA_F_DADFAILED | IFA_F_TENTATIVE] {
        take(&mut table, libc::RTM_NEWADDR, &address(libc::AF_INET6, 64, flags, 1, &[ip()]));
    }
    assert!(table.interfaces[&1].0.addrs.is_empty());
    take(&mut table, libc::RTM_NEWADDR, &address(libc::AF_INET6, 64, IFA_F_TENTATIVE | IFA_F_OPTIMISTIC, 1, &[ip()]));
    assert_eq!(table.interfaces[&1].0.addrs.len(), 1);

    let oif = || attribute(RTA_OIF, &1u32.to_ne_bytes());
    let unreachable = 7;
    for body in [
        route(libc::AF_INET, 0, libc::RT_TABLE_MAIN, unreachable, &[oif()]),
        route(libc::AF_INET, 0, libc::RT_TABLE_LOCAL, RTN_UNICAST, &[oif()]),
        route(libc::AF_INET, 8, libc::RT_TABLE_MAIN, RTN_UNICAST, &[oif()]),
    ] {
        take(&mut table, libc::RTM_NEWROUTE, &body);
    }
    assert!(!table.interfaces[&1].0.default_v4);
}

#[test]
fn messages_cut_anywhere_are_harmless_and_the_table_is_bounded() {
    let body = link(
        7,
        ARPHRD_ETHER,
        0,
        &[attribute(IFLA_IFNAME, b"x\0"), attribute(IFLA_LINKINFO, &attribute(IFLA_INFO_KIND, b"tun"))],
    );
    for len in 0..body.len() {
        for kind in [libc::RTM_NEWLINK, libc::RTM_NEWADDR, libc::RTM_NEWROUTE] {
            take(&mut Table::default(), kind, &body[..len]);
        }
    }
    let mut table = Table::default();
    for index in 0..2000 {
        take(&mut table, libc::RTM_NEWLINK, &link(index, ARPHRD_ETHER, 0, &[]));
    }
    assert_eq!(table.interfaces.len(), MAX_INTERFACES);
    for i in 0..1000u32 {
        take(
            &mut table,
            libc::RTM_NEWADDR,
            &address(libc::AF_INET, 8, 0, 0, &[attribute(IFA_LOCAL, &i.to_be_bytes())]),
        );
    }
    assert_eq!(table.interfaces[&0].0.addrs.len(), MAX_ADDRS);
}

#[test]
fn a_dump_that_is_repeated_starts_from_nothing() {
    let mut table = two_links();
    let local = attribute(IFA_LOCAL, &[192, 0, 2, 1]);
    take(&mut table, libc::RTM_NEWADDR, &address(libc::AF_INET, 24, 0, 2, &[local]));
    table.forget(libc::RTM_GETADDR);
    assert!(table.interfaces.values().all(|(i, _)| i.addrs.is_empty()) && table.interfaces.len() == 2);
    table.forget(libc::RTM_GETLINK);
    assert!(table.interfaces.is_empty());
}

#[test]
fn the_kind_of_a_link_follows_hardware_driver_and_sysfs() {
    let hints = |hardware, driver: &str| Hints { loopback: false, hardware, driver: driver.into() };
    let nothing = Sysfs::default();
    let cases = [
        (
            Hints { loopback: true, hardware: libc::ARPHRD_LOOPBACK, driver: String::new() },
            nothing,
            InterfaceKind::Loopback,
        ),
        (hints(ARPHRD_ETHER, ""), nothing, InterfaceKind::Wired),
        (hints(ARPHRD_ETHER, "veth"), nothing, InterfaceKind::Wired),
        (hints(ARPHRD_ETHER, "dummy"), nothing, InterfaceKind::Other),
        (hints(ARPHRD_ETHER, ""), Sysfs { wireless: true, ..nothing }, InterfaceKind::WiFi),
        (hints(ARPHRD_ETHER, ""), Sysfs { wwan: true, ..nothing }, InterfaceKind::Cellular),
        (hints(ARPHRD_RAWIP, ""), nothing, InterfaceKind::Cellular),
        (hints(ARPHRD_ETHER, ""), Sysfs { tun: true, ..nothing }, InterfaceKind::Tunnel),
        (hints(libc::ARPHRD_NONE, "wireguard"), nothing, InterfaceKind::Tunnel),
        (hints(libc::ARPHRD_IEEE802154, ""), nothing, InterfaceKind::Other),
    ];
    for (hints, sysfs, kind) in cases {
        assert_eq!(classify(&hints, &sysfs), kind, "{hints:?} {sysfs:?}");
    }
}

#[test]
fn the_kernels_own_list_has_a_loopback() {
    let Ok(list) = list_interfaces() else {
        eprintln!("skipped: this process may not ask for interfaces");
        return;
    };
    let lo = list.iter().find(|i| i.kind == InterfaceKind::Loopback).expect("every host has one");
    assert!(lo.name == "lo" && lo.mtu > 0 && !lo.default_v4);
    assert!(list.is_sorted_by_key(|i| i.index));
}
