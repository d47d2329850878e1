use super::icmp::{ERROR_MAX, Origin, Problem, error};
use super::*;

fn v4(payload: &[u8], protocol: u8) -> Vec<u8> {
    let total = (V4_HEADER + payload.len()) as u16;
    let mut p = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 1, 2];
    p[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = checksum(&p, 0);
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    p.extend_from_slice(payload);
    p
}

fn v6(payload: &[u8], next: u8) -> Vec<u8> {
    let mut p = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    p[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    p.extend_from_slice(&Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets());
    p.extend_from_slice(&Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2).octets());
    p.extend_from_slice(payload);
    p
}

const PORTS: [u8; 8] = [0x12, 0x34, 0, 53, 0, 8, 0, 0];

#[test]
fn a_packet_is_read_only_if_it_is_whole() {
    for p in [v4(&PORTS, 17), v6(&PORTS, 17)] {
        let m = meta(&p).expect("whole");
        assert_eq!((m.protocol, m.source.port(), m.destination.port()), (Protocol::Udp, 0x1234, 53));
        for cut in 0..p.len() {
            assert_eq!(meta(&p[..cut]), None, "cut to {cut}");
        }
        let mut longer = p.clone();
        longer.push(0);
        assert_eq!(meta(&longer), None);
    }
    assert_eq!(meta(&[]), None);
    assert_eq!(meta(&[0x55; 60]), None, "no version 5");
    let mut bad = v4(&PORTS, 17);
    bad[0] = 0x4f; // a header longer than the packet
    assert_eq!(meta(&bad), None);
}

#[test]
fn extension_headers_lead_to_the_ports_and_later_fragments_have_none() {
    // Destination options of 8 bytes, then UDP.
    let mut body = vec![17, 0, 1, 4, 0, 0, 0, 0];
    body.extend_from_slice(&PORTS);
    assert_eq!(meta(&v6(&body, 60)).expect("whole").destination.port(), 53);
    let mut fragment = vec![17, 0, 0, 8, 0, 0, 0, 1]; // offset 1
    fragment.extend_from_slice(&PORTS);
    let m = meta(&v6(&fragment, 44)).expect("whole");
    assert_eq!((m.protocol, m.destination.port()), (Protocol::Udp, 0));
    let mut later = v4(&PORTS, 17);
    later[7] = 9;
    assert_eq!(meta(&later).expect("whole").source.port(), 0);
    // A chain that runs out of the packet is no packet that a link could judge, and does not panic.
    assert!(meta(&v6(&[0, 255, 0, 0, 0, 0, 0, 0], 0)).is_none());
}

#[test]
fn marking_and_forwarding_keep_the_header_checksum_right() {
    for tos in 0..=255u8 {
        let mut p = v4(&PORTS, 17);
        p[1] = tos;
        p[10..12].fill(0);
        let sum = checksum(&p[..V4_HEADER], 0);
        p[10..12].copy_from_slice(&sum.to_be_bytes());
        mark_ce(&mut p);
        assert_eq!((traffic_class(&p), checksum(&p[..V4_HEADER], 0)), (tos | 3, 0));
        for left in (1..64).rev() {
            assert!(decrement_ttl(&mut p));
            assert_eq!((p[8], checksum(&p[..V4_HEADER], 0)), (left, 0));
        }
        assert!(!decrement_ttl(&mut p), "1 is not forwarded");
    }
    let mut p = v6(&PORTS, 17);
    mark_ce(&mut p);
    assert_eq!(meta(&p).expect("whole").ecn, Ecn::Ce);
    assert!(decrement_ttl(&mut p) && p[7] == 63);
}

#[test]
fn a_flipped_bit_is_in_the_payload_and_flips_back() {
    for original in [v4(&PORTS, 17), v6(&PORTS, 17)] {
        let header = original.len() - PORTS.len();
        for bit in 0..200 {
            let mut p = original.clone();
            flip_payload_bit(&mut p, bit);
            assert_eq!(p[..header], original[..header]);
            let changed: u32 = p.iter().zip(&original).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(changed, 1);
            flip_payload_bit(&mut p, bit);
            assert_eq!(p, original);
        }
    }
    let mut empty = v4(&[], 17);
    flip_payload_bit(&mut empty, 3);
    assert_eq!(empty, v4(&[], 17));
}

fn here() -> Origin {
    Origin { v4: Some(Ipv4Addr::new(10, 9, 9, 9)), v6: Some("fd00::9".parse().expect("address")) }
}

#[test]
fn errors_have_right_checksums_and_quote_the_packet() {
    let mut out = [0; ERROR_MAX];
    let big = v4(&[0xaa; 3000], 17);
    let n = error(Problem::TooBig { mtu: 1400 }, &big, here(), &mut out).expect("sent");
    assert_eq!(n, 576);
    let e = &out[..n];
    assert_eq!(checksum(&e[..20], 0), 0);
    assert_eq!(checksum(&e[20..], 0), 0);
    assert_eq!((e[20], e[21], be16(e, 26)), (3, 4, Some(1400)));
    assert_eq!(addresses(e), Some((Ipv4Addr::new(10, 9, 9, 9).into(), Ipv4Addr::new(10, 0, 0, 1).into())));
    assert_eq!(e[28..], big[..548]);

    let big = v6(&[0xbb; 3000], 17);
    let n = error(Problem::TooBig { mtu: 1400 }, &big, here(), &mut out).expect("sent");
    assert_eq!(n, 1280);
    let e = &out[..n];
    let pseudo: u32 = (8..40).step_by(2).filter_map(|i| be16(e, i)).map(u32::from).sum::<u32>() + 1240 + 58;
    assert_eq!(checksum(&e[40..], pseudo), 0);
    assert_eq!((e[40], e[41], be16(e, 46)), (2, 0, Some(1400)));
    assert!(meta(e).is_some());
}

#[test]
fn no_error_about_an_error_a_later_fragment_or_a_group() {
    let mut out = [0; ERROR_MAX];
    let mut none = |p: &[u8]| error(Problem::TimeExceeded, p, here(), &mut out).is_none();
    assert!(none(&v4(&[3, 4, 0, 0, 0, 0, 0, 0], 1)));
    assert!(!none(&v4(&[8, 0, 0, 0, 0, 0, 0, 0], 1)), "an echo request is answered");
    assert!(none(&v6(&[1, 0, 0, 0, 0, 0, 0, 0], 58)));
    assert!(!none(&v6(&[128, 0, 0, 0, 0, 0, 0, 0], 58)));
    let mut fragment = v4(&PORTS, 17);
    fragment[7] = 1;
    assert!(none(&fragment));
    let mut to_group = v4(&PORTS, 17);
    to_group[16] = 224;
    assert!(none(&to_group));
    assert!(error(Problem::NoRoute, &v4(&PORTS, 17), Origin::default(), &mut out).is_none(), "nobody to send it");
}
