//! RFC 9260 sections 3 and 6.10: chunks and parameters that are unknown, malformed, or where they
//! must not be.

use crate::support::kinds;
use crate::support::raw::{FIRST, Raw, data};
use core::time::Duration;
use neater_sctp::{AssociationConfig, CloseReason, Event};
use neater_sctp_wire::chunk::{CookieAck, Error, Heartbeat, HeartbeatAck, Init, InitAck, Pad};
use neater_sctp_wire::parameter::{EcnCapable, HostName, SupportedAddressTypes};
use neater_sctp_wire::{Array, Cause, Causes, Chunk, Packet as Wire, Parameter, Parameters, Tag, Tsn};

/// A chunk of any type.
fn chunk(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0];
    bytes.extend_from_slice(&(4 + value.len() as u16).to_be_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The causes in ERROR chunks: their codes and bytes.
fn causes(packets: &[Vec<u8>]) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    for packet in packets {
        for raw in Wire::parse(packet).unwrap().chunks().flatten() {
            if let Ok(Chunk::Error(error)) = Chunk::decode(&raw) {
                for cause in error.causes.iter().flatten() {
                    let bytes = match cause {
                        Cause::UnrecognizedChunk(c) => c.0.to_vec(),
                        _ => Vec::new(),
                    };
                    found.push((cause.code(), bytes));
                }
            }
        }
    }
    found
}

#[test]
fn section_3_2_the_highest_bits_of_an_unknown_chunk_say_what_to_do() {
    // Type, whether it is reported, whether what follows is looked at.
    for (kind, reported, goes_on) in
        [(0x3a, false, false), (0x7a, true, false), (0xba, false, true), (0xfa, true, true)]
    {
        let mut raw = Raw::connected(AssociationConfig::rfc9260());
        let unknown = chunk(kind, b"what?");
        let heartbeat = chunk(Heartbeat::KIND, &[0, 1, 0, 8, 1, 2, 3, 4]);
        raw.bytes(&[unknown.clone(), heartbeat].concat());
        let sent = raw.take();
        let answered = sent.iter().any(|p| kinds(p).contains(&HeartbeatAck::KIND));
        assert_eq!(answered, goes_on, "{kind:#x}");
        let expected = if reported { vec![(6, unknown[..9].to_vec())] } else { Vec::new() };
        assert_eq!(causes(&sent), expected, "{kind:#x}");
        assert_eq!(raw.closed(), None);
    }
}

#[test]
fn section_3_2_reports_are_bounded() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    for _ in 0..100 {
        raw.bytes(&chunk(0xfa, &[7; 1000]));
    }
    let sent = raw.take();
    let reported = causes(&sent);
    assert!((1..=8).contains(&reported.len()), "{}", reported.len());
    assert!(reported.iter().all(|(_, bytes)| bytes.len() <= 256), "not all of it is sent back");
}

#[test]
fn section_3_2_1_unknown_parameters_come_back_in_the_init_ack() {
    let known = Parameter::from(EcnCapable);
    for (kind, reported) in [(0x3123u16, false), (0x7123, true), (0xb123, false), (0xf123, true)] {
        let mut raw = Raw::listening(AssociationConfig::rfc9260());
        let mut list = kind.to_be_bytes().to_vec();
        list.extend([0, 7, 1, 2, 3, 0]);
        raw.init_with(9899, Parameters::from_bytes(&list));
        let sent = raw.take();
        let first = Wire::parse(&sent[0]).unwrap().chunks().next().unwrap().unwrap();
        let Ok(Chunk::InitAck(ack)) = Chunk::decode(&first) else { panic!() };
        let back: Vec<&[u8]> = ack
            .0
            .parameters
            .iter()
            .flatten()
            .filter_map(|p| match p {
                Parameter::Unrecognized(u) => Some(u.0),
                _ => None,
            })
            .collect();
        let expected: Vec<&[u8]> = if reported { vec![&list[..7]] } else { vec![] };
        assert_eq!(back, expected, "{kind:#x}");
    }
    let _ = known;
}

#[test]
fn section_3_3_2_1_parameters_that_are_known_are_taken_or_passed_over() {
    let kinds = [5u16, 6];
    let list = [SupportedAddressTypes { types: Array::new(&kinds) }.into(), EcnCapable.into()];
    let mut raw = Raw::connected_with(AssociationConfig::rfc9260(), Parameters::new(&list));
    assert!(!raw.server.agreed(raw.id.unwrap()).unwrap().0.ecn, "we did not offer it");
    assert!(causes(&raw.take()).is_empty());
    // A host name: ABORT with Unresolvable Address (section 5.1.2, rule B).
    let mut raw = Raw::listening(AssociationConfig::rfc9260());
    let list = [HostName(b"example.com\0").into()];
    raw.init_with(9899, Parameters::new(&list));
    let sent = raw.take();
    let first = Wire::parse(&sent[0]).unwrap().chunks().next().unwrap().unwrap();
    let Ok(Chunk::Abort(abort)) = Chunk::decode(&first) else { panic!("{first:?}") };
    assert!(matches!(abort.causes.iter().next(), Some(Ok(Cause::UnresolvableAddress(_)))));
}

#[test]
fn section_6_10_a_chunk_that_is_cut_short_ends_the_packet_and_not_the_association() {
    for tail in [&[1u8, 0, 0][..], &[3, 0, 0, 3], &[3, 0, 0, 0], &[0, 0, 0, 200, 1, 2, 3, 4]] {
        let mut raw = Raw::connected(AssociationConfig::rfc9260());
        let heartbeat = chunk(Heartbeat::KIND, &[0, 1, 0, 8, 1, 2, 3, 4]);
        raw.bytes(&[&heartbeat[..], tail].concat());
        let sent = raw.take();
        assert!(sent.iter().any(|p| kinds(p).contains(&HeartbeatAck::KIND)), "what stands before it is taken");
        assert_eq!(raw.closed(), None);
    }
}

#[test]
fn section_6_10_chunks_that_must_be_alone_are_not_believed_in_company() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    let init = Init {
        tag: Tag(99),
        a_rwnd: 5000,
        outbound_streams: 1,
        inbound_streams: 1,
        initial_tsn: Tsn(5),
        parameters: Parameters::EMPTY,
    };
    for chunks in [
        vec![Chunk::from(Heartbeat { info: b"x" }), init.into()],
        vec![Chunk::from(Heartbeat { info: b"x" }), InitAck(init).into()],
        vec![Chunk::from(CookieAck), InitAck(init).into()],
    ] {
        let bytes = crate::support::packet(crate::support::PORTS, raw.tag, &chunks);
        raw.bytes(&bytes[12..]);
        let sent = raw.take();
        assert!(sent.iter().all(|p| kinds(p).iter().all(|k| *k == HeartbeatAck::KIND)), "{sent:?}");
    }
    assert_eq!(raw.closed(), None);
    assert!(raw.events().is_empty());
}

#[test]
fn section_8_3_a_heartbeat_comes_back_as_it_was_whatever_is_in_it() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    for len in [0, 1, 4, 31, 300, 1000] {
        let info = vec![0xa5; len];
        raw.chunk(&Heartbeat { info: &info });
        let sent = raw.take();
        if len > 456 {
            // It is answered if it fits into a packet of that path.
            assert!(sent.len() <= 1);
            continue;
        }
        let back = Wire::parse(&sent[0]).unwrap().chunks().flatten().find_map(|c| match Chunk::decode(&c) {
            Ok(Chunk::HeartbeatAck(h)) => Some(h.info.to_vec()),
            _ => None,
        });
        assert_eq!(back, Some(info), "{len}");
    }
    // Many at once are not all answered: eight wait at most.
    for _ in 0..100 {
        raw.chunk(&Heartbeat { info: b"again" });
    }
    let sent = raw.take();
    let count: usize = sent.iter().map(|p| kinds(p).iter().filter(|k| **k == HeartbeatAck::KIND).count()).sum();
    assert_eq!(count, 8);
}

#[test]
fn section_8_3_a_heartbeat_ack_that_we_never_asked_for_is_nothing() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    let before = raw.server.paths(raw.id.unwrap());
    for info in [&b""[..], b"short", &[0; 12], &[0xff; 12], &[1; 200]] {
        raw.chunk(&HeartbeatAck { info });
    }
    assert_eq!(raw.server.paths(raw.id.unwrap()), before);
    assert!(raw.take().is_empty() && raw.events().is_empty());
}

#[test]
fn section_3_3_10_errors_are_told_to_the_application_and_bounded() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    let causes = [Cause::OutOfResource(neater_sctp_wire::cause::OutOfResource)];
    for _ in 0..5000 {
        raw.chunk(&Error { causes: Causes::new(&causes) });
    }
    let events = raw.events();
    assert!(events.iter().all(|e| *e == Event::PeerError { cause: 4 }));
    assert!((1..=1024).contains(&events.len()), "{}", events.len());
}

#[test]
fn rfc4820_padding_is_nothing_wherever_it_stands() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    let pad = chunk(Pad::KIND, &[0; 40]);
    let bytes = crate::support::packet(crate::support::PORTS, raw.tag, &[data(FIRST, true, true, b"payload").into()]);
    raw.bytes(&[&pad[..], &bytes[12..], &pad[..]].concat());
    let id = raw.id.unwrap();
    assert_eq!(raw.server.receive(id).map(|m| m.payload), Some(b"payload".to_vec()));
    assert!(causes(&raw.take()).is_empty());
}

#[test]
fn section_3_1_ports_and_checksums_are_looked_at_first() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    let heartbeat = crate::support::packet(crate::support::PORTS, raw.tag, &[Heartbeat { info: b"x" }.into()]);
    let give = |raw: &mut Raw, bytes: &[u8]| {
        let route = neater_sctp::Route { layer: neater_sctp::LayerId(0), remote: crate::support::address(0, 0) };
        raw.server.handle_packet(raw.now, route, false, bytes);
        raw.take().len()
    };
    assert_eq!(give(&mut raw, &heartbeat), 1);
    for i in 0..heartbeat.len() {
        let mut wrong = heartbeat.clone();
        wrong[i] ^= 0x10;
        assert_eq!(give(&mut raw, &wrong), 0, "byte {i}");
    }
    for len in 0..heartbeat.len() {
        assert_eq!(give(&mut raw, &heartbeat[..len]), 0, "{len} bytes");
    }
    let other = crate::support::packet([crate::support::PORTS[0], 9], raw.tag, &[Heartbeat { info: b"x" }.into()]);
    assert_eq!(give(&mut raw, &other), 0);
    let stats = raw.server.stats();
    assert_eq!((stats.malformed, stats.wrong_port), (2 * heartbeat.len() as u64, 1));
    // A layer that we do not have.
    let route = neater_sctp::Route { layer: neater_sctp::LayerId(7), remote: crate::support::address(0, 0) };
    raw.server.handle_packet(raw.now, route, false, &heartbeat);
    assert!(raw.take().is_empty());
}

#[test]
fn section_6_2_data_and_nothing_but_data_counts() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    // Out of the window: half the numbers away.
    raw.chunk(&data(FIRST.wrapping_add(1 << 31), true, true, b"far"));
    raw.chunk(&data(FIRST.wrapping_sub(5), true, true, b"long ago"));
    raw.wait(Duration::from_secs(1));
    let id = raw.id.unwrap();
    assert_eq!(raw.server.receive(id), None);
    raw.chunk(&data(FIRST, true, true, b"here"));
    assert_eq!(raw.server.receive(id).map(|m| m.payload), Some(b"here".to_vec()));
    assert_eq!(raw.closed(), None::<CloseReason>);
}
