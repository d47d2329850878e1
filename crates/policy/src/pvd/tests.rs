//! Provisioning domains: bytes, documents, and what becomes of both in time.

use super::*;
use crate::rows::network_nodes;
use core::time::Duration;
use neater_base::net::{Interface, InterfaceAddr, InterfaceKind};
use neater_base::{Instant, Rng, WallTime};
use neater_property::neat::NeatValue;
use std::net::Ipv6Addr;

/// 2026-11-22T00:00:00Z.
const WALL: WallTime = WallTime(Duration::from_secs(1_795_305_600));
const ROUTER: &str = "fe80::1";

fn addr(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn prefix(text: &str) -> Prefix {
    Prefix::parse(text).expect("a prefix")
}

/// RFC 8801 figure 2 within an advertisement, byte for byte.
fn golden() -> Vec<u8> {
    let mut bytes = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([21, 12, 0x80, 0x01, 0, 123]);
    bytes.extend(*b"\x07example\x03org\0");
    bytes.extend([0; 5]);
    bytes.extend([25, 5, 0, 0, 0, 0, 0x0e, 0x10]);
    bytes.extend(addr("2001:db8:cafe::53").octets());
    bytes.extend(addr("2001:db8:f00d::53").octets());
    bytes.extend([3, 4, 64, 0xc0, 0, 1, 0x51, 0x80, 0, 0, 0x38, 0x40, 0, 0, 0, 0]);
    bytes.extend(addr("2001:db8:f00d::").octets());
    bytes
}

fn parse(bytes: &[u8]) -> Result<Advertisement, BadAdvertisement> {
    Advertisement::parse(addr(ROUTER), 255, bytes)
}

#[test]
fn the_example_of_rfc_8801_is_read() {
    let told = parse(&golden()).expect("an advertisement");
    let pvd = told.pvd.as_ref().expect("an option");
    assert_eq!((pvd.id.as_str(), pvd.http, pvd.legacy, pvd.delay, pvd.sequence), ("example.org", true, false, 1, 123));
    assert_eq!(pvd.header, None);
    assert_eq!(told.effective_header().lifetime, 1800);
    let dns = [(addr("2001:db8:cafe::53"), 3600), (addr("2001:db8:f00d::53"), 3600)];
    assert_eq!(pvd.configuration.dns, dns);
    let info = PrefixInfo {
        prefix: prefix("2001:db8:f00d::/64"),
        on_link: true,
        autonomous: true,
        valid: 86_400,
        preferred: 14_400,
    };
    assert_eq!(pvd.configuration.prefixes, [info]);
    assert_eq!(told.configuration, Configuration::default());
}

/// Everything that an advertisement can carry.
fn full() -> Advertisement {
    let info = |text: &str| PrefixInfo {
        prefix: prefix(text),
        on_link: true,
        autonomous: false,
        valid: u32::MAX,
        preferred: 60,
    };
    let inside = Configuration {
        prefixes: vec![info("2001:db8:2::/64")],
        routes: vec![(prefix("2001:db8:8000::/33"), 1500), (prefix("::/0"), 1550), (prefix("2001:db8::1/128"), 1590)],
        dns: vec![(addr("2001:db8::53"), 1200)],
        search: vec![("example.com".into(), 1200)],
    };
    Advertisement {
        header: Header { hop_limit: 64, managed: false, other: true, lifetime: 0 },
        configuration: Configuration { prefixes: vec![info("2001:db8:1::/64")], ..Configuration::default() },
        pvd: Some(PvdOption {
            id: "a.example".into(),
            http: true,
            legacy: true,
            delay: 15,
            sequence: 0xffff,
            header: Some(Header { hop_limit: 0, managed: true, other: false, lifetime: 1600 }),
            configuration: inside,
        }),
    }
}

#[test]
fn what_is_written_is_read_again_and_the_inner_header_counts() {
    let said = full();
    let read = parse(&said.to_bytes()).expect("an advertisement");
    assert_eq!(read, said);
    assert_eq!(read.effective_header().lifetime, 1600);
    assert_eq!(read.configurations().flat_map(|c| &c.prefixes).count(), 2);
}

#[test]
fn what_came_through_a_router_or_is_cut_short_counts_for_nothing() {
    let bytes = golden();
    assert_eq!(Advertisement::parse(addr(ROUTER), 254, &bytes), Err(BadAdvertisement::HopLimit));
    assert_eq!(Advertisement::parse(addr("2001:db8::1"), 255, &bytes), Err(BadAdvertisement::Source));
    for len in 0..bytes.len() {
        let told = parse(&bytes[..len]);
        assert_eq!(told.is_ok(), len == 16, "{len} bytes: {told:?}");
    }
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        parse(&bytes)
    };
    assert_eq!(with(0, 133), Err(BadAdvertisement::Type));
    assert_eq!(with(17, 0), Err(BadAdvertisement::Option), "an option without length");
    assert_eq!(with(22, 0xc0), Err(BadAdvertisement::Name), "compression");
    assert_eq!(with(22, 0), Err(BadAdvertisement::Name), "the root");
    assert_eq!(with(23, b'/'), Err(BadAdvertisement::Name), "no part of a URL");
    // The name ends within the option, and no sooner than its padding.
    assert_eq!(with(17, 2), Err(BadAdvertisement::Name));
    assert!(with(23, b'E').is_ok_and(|a| a.pvd.is_some_and(|p| p.id == "example.org")), "case does not count");
}

#[test]
fn of_two_options_the_first_counts_and_none_stands_in_another() {
    let mut two = golden();
    let option = two[16..].to_vec();
    let mut second = option.clone();
    second[7] = b'E';
    second[6..].copy_from_slice(&option[6..]);
    second[4..6].copy_from_slice(&[0, 7]);
    two.extend(second);
    assert_eq!(parse(&two).expect("read").pvd.expect("one").sequence, 123);
    let mut nested = golden()[..16 + 24].to_vec();
    nested[17] = 3 + 12;
    nested.extend(option);
    let pvd = parse(&nested).expect("read").pvd.expect("one");
    assert_eq!(pvd.configuration, Configuration::default());
}

#[test]
fn lists_are_bounded() {
    let mut said = full();
    said.configuration.dns = (0..40).map(|i| (Ipv6Addr::from_bits(0x2001_0db8 << 96 | i), 60)).collect();
    let read = parse(&said.to_bytes()).expect("an advertisement");
    assert_eq!(read.configuration.dns.len(), MAX_ITEMS);
}

fn document(more: &str) -> String {
    format!(r#"{{"identifier": "A.example.", "expires": "2026-11-22T01:00:00Z", "prefixes": ["2001:db8::/32"]{more}}}"#)
}

#[test]
fn documents_are_what_rfc_8801_wants_or_refused_with_a_reason() {
    let read = |text: &str| Information::parse("a.example", text.as_bytes(), WALL);
    let told = read(&document(
        r#", "noInternet": true, "dnsZones": ["IoT.example."], "metered": true, "vendor-other": {"capacity": 1},
        "vendor-neater": {"capacity": 8e6, "latency": 20, "cost": 0, "iot": true, "interface": "eth9", "security": false, "x y": 1, "z": null}"#,
    ));
    let told = told.expect("a document");
    assert_eq!(told.expires.0, WALL.0 + Duration::from_secs(3600));
    let mut said: Vec<String> = told.properties.iter().map(|p| format!("{}={}", p.key, p.value)).collect();
    said.sort();
    let wanted = [
        "capacity=8000000",
        "cost=0",
        "latency=20",
        "metered=true",
        "pvd_dns_zones=iot.example",
        "pvd_interface=eth9",
        "pvd_internet=false",
        "pvd_iot=true",
        "pvd_security=false",
    ];
    assert_eq!(said, wanted, "what is the system's to say begins with pvd_");
    assert!(told.covers([prefix("2001:db8:1::/64")].iter()));
    assert!(!told.covers([prefix("2001:db8:1::/64"), prefix("2001:db9::/64")].iter()));
    let odd = read(&document(r#", "vendor-neater": {"capacity": "much", "cost": -1, "metered": 1}"#)).expect("read");
    assert!(odd.properties.iter().all(|p| p.key == "pvd_internet"), "{:?}", odd.properties);
    let cases = [
        (document("").replace("A.example.", "b.example"), "identifier"),
        (document("").replace("identifier", "id"), "identifier"),
        (document("").replace("2026-11-22T01", "2026-11-21T23"), "expired"),
        (document("").replace("expires", "until"), "expires"),
        (document("").replace("2001:db8::/32", "2001:db8::/129"), "prefix"),
        (document("").replace("\"prefixes\"", "\"x\""), "prefixes"),
        (document(r#", "dnsZones": "example""#), "dnsZones"),
        (document(r#", "expires": "2027-01-01T00:00:00Z""#), "expires"),
        ("[]".into(), "object"),
        ("{".repeat(5000), ""),
        (document(&" ".repeat(MAX_DOCUMENT)), "bytes"),
    ];
    for (text, word) in cases {
        let why = read(&text).expect_err(&text);
        assert!(why.contains(word), "{why} is not about {word}");
    }
}

/// A host with one interface.
fn interface(addrs: &[&str]) -> Interface {
    let addr =
        |a: &&str| InterfaceAddr { addr: a.parse().expect("one"), prefix: 64, temporary: false, deprecated: false };
    Interface {
        index: 3,
        name: "wlan0".into(),
        kind: InterfaceKind::WiFi,
        up: true,
        addrs: addrs.iter().map(addr).collect(),
        mtu: 1500,
        default_v4: true,
        default_v6: true,
    }
}

struct Host {
    domains: Domains,
    start: Instant,
}

impl Host {
    fn new() -> Self {
        let mut domains = Domains::new(Rng::from_number(8801));
        domains.set_interfaces(&[interface(&["2001:db8:1::7", "2001:db8:2::7", "192.0.2.7", "2001:db8:9::7"])]);
        Self { domains, start: Instant::from_nanos(1_000_000_000) }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn wall(ms: u64) -> WallTime {
        WallTime(WALL.0 + Duration::from_millis(ms))
    }

    fn hear(&mut self, ms: u64, said: &Advertisement) -> Heard {
        let now = self.at(ms);
        self.domains.heard(now, 3, addr(ROUTER), 255, &said.to_bytes()).expect("sound")
    }

    fn answer(&mut self, ms: u64, ticket: u64, text: &str) -> Result<(), String> {
        let now = self.at(ms);
        self.domains.fetched(now, Self::wall(ms), ticket, Ok(text.as_bytes().to_vec()))
    }

    fn provisioned(&mut self, ms: u64) -> Vec<Provisioned> {
        let now = self.at(ms);
        self.domains.provisioned(now, Self::wall(ms))
    }

    fn told(&mut self, key: &str) -> Option<NeatValue> {
        let all = self.provisioned(0);
        all.first()?.properties.iter().find(|p| p.key == key).map(|p| p.value.clone())
    }
}

fn with_option(change: impl FnOnce(&mut PvdOption)) -> Advertisement {
    let mut said = full();
    said.pvd.iter_mut().for_each(|p| p.delay = 1);
    said.pvd.as_mut().map(change);
    said
}

/// A router's option for a domain that leads nowhere any more.
fn leave(option: &mut PvdOption) {
    option.header = None;
    option.configuration.routes.iter_mut().for_each(|r| r.1 = 0);
}

#[test]
fn a_domain_is_known_from_its_advertisement_to_the_end_of_its_lifetime() {
    let mut host = Host::new();
    assert_eq!(host.hear(0, &full()), Heard::New);
    assert_eq!(host.hear(10, &full()), Heard::Known);
    let all = host.provisioned(10);
    let addrs: Vec<String> = all[0].addrs.iter().map(ToString::to_string).collect();
    assert_eq!(addrs, ["2001:db8:1::7", "2001:db8:2::7", "192.0.2.7"], "both prefixes, and IPv4 by the L flag");
    assert_eq!(host.told("pvd"), Some("a.example".into()));
    assert_eq!(all[0].expires, WallTime(Host::wall(10).0 + Duration::from_secs(1600)));
    let nodes = network_nodes(&[interface(&["2001:db8:1::7", "2001:db8:9::7"])], &all);
    let uids: Vec<&str> = nodes.iter().map(|n| n.uid.as_str()).collect();
    assert_eq!(uids, ["pvd-wlan0:a.example", "interface-wlan0"]);
    let rows = |i: usize| nodes[i].alternatives.iter().map(|a| a.get("local_ip").map(|p| p.value.clone()));
    assert_eq!(rows(0).collect::<Vec<_>>(), [Some("2001:db8:1::7".into())]);
    assert_eq!(rows(1).collect::<Vec<_>>(), [Some("2001:db8:9::7".into())], "no address has two rows");
    host.domains.handle_timeout(host.at(1_600_009));
    assert_eq!(host.domains.len(), 1);
    host.domains.handle_timeout(host.at(1_600_010));
    assert!(host.domains.is_empty());
    // A router that leaves takes its domain along.
    host.hear(1_700_000, &full());
    assert_eq!(host.hear(1_700_001, &with_option(leave)), Heard::Withdrawn);
    // An interface that goes down does, too.
    host.hear(1_700_002, &full());
    host.domains.set_interfaces(&[Interface { up: false, ..interface(&[]) }]);
    assert!(host.domains.is_empty());
}

#[test]
fn an_address_belongs_to_the_domain_that_told_its_prefix_last() {
    let mut host = Host::new();
    host.hear(0, &full());
    let other = with_option(|p| p.id = "b.example".into());
    host.hear(5, &other);
    let all = host.provisioned(5);
    assert_eq!(all.len(), 1, "a.example has no address left");
    assert_eq!(all[0].id, "b.example");
    // Two that claim the addresses of IPv4 get none.
    assert!(all[0].addrs.iter().all(|a| a.is_ipv6()), "{:?}", all[0].addrs);
    let implicit = Advertisement { pvd: None, ..full() };
    assert_eq!(host.hear(6, &implicit), Heard::NoDomain);
    assert_eq!(host.provisioned(6)[0].addrs.len(), 1, "one prefix is nobody's now");
}

#[test]
fn the_document_counts_until_it_expires_or_its_sequence_number_changes() {
    let mut host = Host::new();
    host.hear(0, &full());
    let fetch = host.domains.poll_fetch(host.at(0)).expect("asked for");
    assert_eq!((fetch.id.as_str(), fetch.source, fetch.index), ("a.example", addr("2001:db8:1::7"), 3));
    assert_eq!(fetch.dns, [addr("2001:db8::53")]);
    assert_eq!(host.domains.poll_fetch(host.at(0)), None);
    host.answer(100, fetch.ticket, &document(r#", "vendor-neater": {"latency": 9}"#)).expect("taken");
    assert_eq!(host.told("latency"), Some(NeatValue::Number(9.0)));
    assert_eq!(host.provisioned(100)[0].expires, WallTime(WALL.0 + Duration::from_millis(1_600_000)));
    // A sequence number that changed: nothing counts until the new document is there, which is
    // asked for in 2^11 ms at most.
    let changed = with_option(|p| p.sequence = 4);
    host.hear(20_000, &changed);
    assert_eq!(host.told("latency"), None);
    let due = host.domains.next_timeout().expect("something to do");
    assert!(due >= host.at(20_000) && due <= host.at(22_048), "{due:?}");
    let fetch = host.domains.poll_fetch(due).expect("asked for");
    let again = with_option(|p| p.sequence = 5);
    host.hear(23_000, &again);
    host.answer(23_001, fetch.ticket, &document("")).expect("dropped");
    assert_eq!(host.told("pvd_internet"), None, "the answer is about what was before");
    // Not more often than every ten seconds.
    assert_eq!(host.domains.poll_fetch(host.at(26_000)), None);
    let due = host.domains.next_timeout().expect("something to do");
    assert!(due >= host.at(30_000) && due < host.at(33_000), "{due:?}");
    let fetch = host.domains.poll_fetch(due).expect("asked for");
    host.answer(33_000, fetch.ticket, &document("").replace("01:00:00", "00:10:00")).expect("taken");
    assert_eq!(host.told("pvd_internet"), Some(NeatValue::Bool(true)));
    // The next one is asked for in the second half of its life.
    let due = host.domains.next_timeout().expect("something to do");
    assert!(due > host.at(316_000) && due <= host.at(600_000), "{due:?}");
    host.domains.handle_timeout(host.at(600_000));
    assert_eq!(host.told("pvd_internet"), None, "it has expired");
    assert_eq!(host.told("pvd"), Some("a.example".into()), "the domain has not");
}

#[test]
fn without_h_flag_address_or_server_nothing_is_asked() {
    let mut host = Host::new();
    host.hear(0, &with_option(|p| p.http = false));
    assert_eq!(host.domains.poll_fetch(host.at(60_000)), None);
    let mut host = Host::new();
    host.hear(60_000, &with_option(|p| p.configuration.dns.clear()));
    assert_eq!(host.domains.poll_fetch(host.at(60_000)), None);
    host.domains.set_interfaces(&[interface(&["2001:db8:9::7"])]);
    host.hear(60_001, &full());
    assert_eq!(host.domains.poll_fetch(host.at(60_001)), None);
    assert!(host.domains.next_timeout().is_some_and(|at| at > host.at(120_000)), "and nobody is woken for it");
    host.domains.set_interfaces(&[interface(&["2001:db8:2::8"])]);
    assert!(host.domains.poll_fetch(host.at(60_001)).is_some());
}

#[test]
fn what_does_not_speak_for_its_domain_is_not_asked_again() {
    let mut host = Host::new();
    host.hear(0, &full());
    let fetch = host.domains.poll_fetch(host.at(0)).expect("asked for");
    let elsewhere = document("").replace("2001:db8::/32", "2001:db8:1::/48");
    let why = host.answer(1, fetch.ticket, &elsewhere).expect_err("not all prefixes");
    assert!(why.contains("prefixes"), "{why}");
    let changed = with_option(|p| p.sequence = 9);
    host.hear(50_000, &changed);
    assert_eq!(host.domains.poll_fetch(host.at(100_000)), None);
    // A prefix that comes later, and that the document does not cover.
    let mut host = Host::new();
    host.hear(0, &full());
    let fetch = host.domains.poll_fetch(host.at(0)).expect("asked for");
    host.answer(1, fetch.ticket, &document("")).expect("taken");
    host.hear(2, &with_option(|p| p.configuration.prefixes[0].prefix = prefix("2001:db9::/64")));
    assert_eq!(host.told("pvd_internet"), None);
    assert_eq!(host.domains.poll_fetch(host.at(4_000_000)), None);
}

#[test]
fn who_cannot_be_reached_is_tried_less_and_less_often() {
    let mut host = Host::new();
    host.hear(0, &with_option(|p| p.header = Some(Header { lifetime: 9000, ..Header::default() })));
    let (mut ms, mut gaps) = (0, Vec::new());
    while let Some(fetch) = host.domains.poll_fetch(host.at(ms)) {
        let now = host.at(ms);
        let failed =
            host.domains.fetched(now, Host::wall(ms), fetch.ticket, Err(Failure::Unreachable("nobody".into())));
        assert!(failed.is_err());
        let due = host.domains.next_timeout().expect("something to do").saturating_since(now).as_secs();
        gaps.push(due);
        ms += due * 1000;
    }
    assert_eq!(gaps[..4], [10, 20, 40, 80], "{gaps:?}");
    assert_eq!(gaps.len(), 5, "then it has failed");
}

#[test]
fn a_network_that_tells_of_many_domains_makes_few_requests() {
    let mut host = Host::new();
    let mut asked = 0;
    // An attack with changing names, each with a prefix of the host's addresses and gone before the
    // next.
    for i in 0..200_u64 {
        let ms = i * 100;
        host.hear(ms, &with_option(|p| p.id = format!("d{i}.example")));
        while let Some(fetch) = host.domains.poll_fetch(host.at(ms)) {
            asked += 1;
            let now = host.at(ms);
            let refused = Err(Failure::Refused("HTTP 404".into()));
            host.domains.fetched(now, Host::wall(ms), fetch.ticket, refused).expect_err("refused");
        }
        assert!(asked <= 5 * (1 + ms / 10_000), "{asked} requests in {ms} ms");
        host.hear(
            ms,
            &with_option(|p| {
                p.id = format!("d{i}.example");
                leave(p);
            }),
        );
    }
    assert_eq!(asked, 10, "ten failures end it");
    // Without leaving, there are only so many.
    for i in 0..40 {
        host.hear(60_000, &with_option(|p| p.id = format!("e{i}.example")));
    }
    assert_eq!(host.domains.len(), MAX_DOMAINS);
}

#[test]
fn whoever_sets_the_clock_on_the_wall_ends_no_domain_and_drift_is_no_news() {
    let mut host = Host::new();
    host.hear(0, &full());
    let before = host.provisioned(0)[0].expires;
    // The clocks of a host drift apart by less than a second before that is reported.
    let drifted = WallTime(Host::wall(1000).0 + Duration::from_millis(300));
    assert_eq!(host.domains.provisioned(host.at(1000), drifted)[0].expires, before);
    // A day forward, and back again.
    for wall in [WallTime(Host::wall(2000).0 + Duration::from_secs(86_400)), Host::wall(2000)] {
        let told = host.domains.provisioned(host.at(2000), wall);
        assert_eq!(told[0].expires, WallTime(wall.0 + Duration::from_secs(1598)), "what is left of its life");
    }
    let at = host.at(1_600_000);
    host.domains.handle_timeout(at);
    assert!(host.domains.is_empty());
}
