//! What two usrsctp 0.9.5 exchanged, over UDP: every packet is read to the last parameter, and
//! written again byte for byte.
//!
//! The captures were made with `interop/c/sctp_peer.c` on loopback, through a relay that loses a
//! quarter of the packets where there is something lost. What each holds is asserted below, so that
//! none is an empty proof.

mod common;

use neater_sctp_wire::chunk::{HmacId, IData, Part};
use neater_sctp_wire::parameter::Parameter;
use neater_sctp_wire::{Checksum, Chunk, Packet, PacketBuilder, ZeroChecksum};
use std::collections::BTreeMap;

const HANDSHAKE: &[u8] = include_bytes!("golden/handshake.pcap");
const PARTIAL: &[u8] = include_bytes!("golden/partial.pcap");
const INTERLEAVE: &[u8] = include_bytes!("golden/interleave.pcap");
const RESET: &[u8] = include_bytes!("golden/reset.pcap");
const AUTH: &[u8] = include_bytes!("golden/auth.pcap");

/// The UDP payloads of a capture in pcap format on Ethernet, IPv4 without options.
fn payloads(pcap: &[u8]) -> Vec<&[u8]> {
    let word = |at: usize| u32::from_le_bytes(pcap[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20)), (0xa1b2_c3d4, 1), "pcap of microseconds on Ethernet");
    let mut packets = Vec::new();
    let mut at = 24;
    while at < pcap.len() {
        let len = word(at + 8) as usize;
        assert_eq!(word(at + 12) as usize, len, "captured whole");
        let frame = &pcap[at + 16..at + 16 + len];
        assert_eq!((&frame[12..14], frame[14], frame[23]), (&[8, 0][..], 0x45, 17), "UDP over IPv4");
        packets.push(&frame[42..]);
        at += 16 + len;
    }
    packets
}

/// Reads and writes every packet, and counts chunks and parameters by name.
fn census(pcap: &[u8]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for bytes in payloads(pcap) {
        let packet = Packet::parse(bytes).unwrap();
        packet.verify(ZeroChecksum::Refused).unwrap();
        let mut buffer = vec![0xaa; bytes.len()];
        let mut again = PacketBuilder::new(&mut buffer, packet.header).unwrap();
        for raw in packet.chunks() {
            let raw = raw.unwrap();
            let chunk = Chunk::decode(&raw).unwrap();
            again.push(&chunk).unwrap();
            *counts.entry(chunk.name()).or_default() += 1;
            // Once more from the items of its lists.
            assert_eq!(common::rewritten(&chunk).unwrap()[..raw.bytes.len()], *raw.bytes, "{chunk:?}");
            let parameters = match chunk {
                Chunk::Init(init) => init.parameters,
                Chunk::InitAck(ack) => ack.0.parameters,
                Chunk::ReConfig(chunk) => chunk.parameters,
                _ => continue,
            };
            for parameter in parameters {
                *counts.entry(parameter.unwrap().name()).or_default() += 1;
            }
        }
        assert_eq!(again.finish(Checksum::Crc32c), bytes.len());
        assert_eq!(buffer, bytes, "{packet:?}");
    }
    counts
}

fn assert_has(counts: &BTreeMap<&str, usize>, names: &[&str]) {
    for name in names {
        assert!(counts.contains_key(name), "no {name} among {counts:?}");
    }
}

#[test]
fn a_handshake_data_heartbeats_and_a_shutdown() {
    let counts = census(HANDSHAKE);
    assert_has(
        &counts,
        &["INIT", "INIT ACK", "COOKIE ECHO", "COOKIE ACK", "DATA", "SACK", "HEARTBEAT", "HEARTBEAT ACK"],
    );
    assert_has(&counts, &["SHUTDOWN", "SHUTDOWN ACK", "SHUTDOWN COMPLETE"]);
    assert_has(
        &counts,
        &["IPv4 Address", "State Cookie", "Supported Extensions", "Forward-TSN-Supported", "ECN Capable"],
    );
    assert_has(&counts, &["RANDOM", "CHUNKS", "HMAC-ALGO", "Supported Address Types"]);
}

#[test]
fn abandoned_messages() {
    let counts = census(PARTIAL);
    assert_has(&counts, &["DATA", "SACK", "FORWARD TSN"]);
    let gaps = payloads(PARTIAL).iter().any(|bytes| {
        let packet = Packet::parse(bytes).unwrap();
        packet
            .chunks()
            .any(|raw| matches!(Chunk::decode(&raw.unwrap()), Ok(Chunk::Sack(sack)) if !sack.gaps.is_empty()))
    });
    assert!(gaps, "a SACK has gap blocks");
}

#[test]
fn interleaved_and_abandoned_messages() {
    let counts = census(INTERLEAVE);
    assert_has(&counts, &["I-DATA", "I-FORWARD-TSN"]);
    assert!(!counts.contains_key("DATA"));
    let later = payloads(INTERLEAVE).iter().any(|bytes| {
        let packet = Packet::parse(bytes).unwrap();
        let is_later = |chunk| matches!(chunk, Chunk::IData(IData { part: Part::Later(fsn), .. }) if fsn.0 > 0);
        packet.chunks().any(|raw| Chunk::decode(&raw.unwrap()).is_ok_and(is_later))
    });
    assert!(later, "a message is fragmented");
}

#[test]
fn streams_reset_and_added_and_an_abort() {
    let counts = census(RESET);
    assert_has(&counts, &["RE-CONFIG", "ABORT", "Outgoing SSN Reset Request", "Incoming SSN Reset Request"]);
    assert_has(&counts, &["Re-configuration Response", "Add Outgoing Streams Request", "Add Incoming Streams Request"]);
}

#[test]
fn authenticated_data() {
    let counts = census(AUTH);
    assert_has(&counts, &["AUTH", "DATA"]);
    let mut checked = 0;
    for bytes in payloads(AUTH) {
        let packet = Packet::parse(bytes).unwrap();
        for raw in packet.chunks().map(Result::unwrap) {
            if let Chunk::Auth(auth) = Chunk::decode(&raw).unwrap() {
                assert_eq!((auth.hmac, auth.digest.len()), (HmacId::SHA1, 20));
                let covered = packet.auth_input(&raw).unwrap().concat();
                assert_eq!(covered.len(), bytes.len() - raw.offset);
                assert_eq!(covered[8..28], [0; 20]);
                checked += 1;
            }
        }
    }
    assert_eq!(checked, counts["AUTH"]);
}

#[test]
fn the_address_parameters_of_a_handshake_are_those_of_the_host() {
    let mut addresses = Vec::new();
    for bytes in payloads(HANDSHAKE) {
        for raw in Packet::parse(bytes).unwrap().chunks() {
            if let Chunk::Init(init) = Chunk::decode(&raw.unwrap()).unwrap() {
                addresses.extend(init.parameters.iter().filter_map(|p: Result<Parameter<'_>, _>| p.unwrap().address()));
            }
        }
    }
    addresses.sort();
    let expected: Vec<std::net::IpAddr> = ["10.1.1.1", "127.0.0.1"].iter().map(|a| a.parse().unwrap()).collect();
    assert_eq!(addresses, expected);
}
