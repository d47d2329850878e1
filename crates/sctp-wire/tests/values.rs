//! How values print, and views that are given what is not theirs.

use neater_sctp_wire::chunk::{Auth, HmacId, Sack};
use neater_sctp_wire::parameter::{Adaptation, Random};
use neater_sctp_wire::*;

const HEADER: CommonHeader = CommonHeader { source_port: 1, destination_port: 2, tag: Tag(3) };

fn packet(chunk: &impl Emit, buffer: &mut [u8]) -> usize {
    let mut packet = PacketBuilder::new(buffer, HEADER).unwrap();
    packet.push(chunk).unwrap();
    packet.finish(Checksum::Crc32c)
}

#[test]
fn numbers_are_printed_as_numbers_and_go_round() {
    assert_eq!((Tsn(u32::MAX).to_string(), Ssn(65_535).to_string()), ("4294967295".into(), "65535".into()));
    assert_eq!((StreamId(7).to_string(), Ppid(8).to_string()), ("7".into(), "8".into()));
    assert_eq!((Tsn(u32::MAX).next(), Ssn(65_535).next()), (Tsn(0), Ssn(0)));
    assert_eq!((Tsn(5).since(Tsn(u32::MAX)), Tsn(0).plus(9)), (6, Tsn(9)));
    // RFC 1982: half the circle is neither before nor behind.
    assert!(Tsn(u32::MAX) < Tsn(0) && Ssn(65_535) < Ssn(3) && Tsn(1) > Tsn(u32::MAX - 5));
    assert_eq!(Tsn(0).partial_cmp(&Tsn(1 << 31)), None);
}

#[test]
fn every_cause_and_chunk_has_a_name() {
    let causes: [(Cause<'_>, &str); 3] = [
        (cause::InvalidStream { stream: StreamId(1) }.into(), "tream"),
        (cause::OutOfResource.into(), "esource"),
        (cause::StaleCookie { staleness_us: 1 }.into(), "ookie"),
    ];
    for (cause, part) in causes {
        assert!(cause.name().contains(part), "{}", cause.name());
    }
    let mut buffer = [0; 64];
    let sack = Sack { cumulative: Tsn(1), a_rwnd: 2, gaps: Array::EMPTY, duplicates: Array::EMPTY, packets: 0 };
    let len = packet(&sack, &mut buffer);
    buffer[12] = 0x3f;
    let packet = Packet::parse(&buffer[..len]).unwrap();
    let raw = packet.chunks().next().unwrap().unwrap();
    assert!(Chunk::decode(&raw).unwrap().name().contains("unknown"));
}

#[test]
fn lists_are_equal_when_their_items_are_wherever_those_are() {
    let items: [Parameter<'_>; 2] = [Adaptation { code: 7 }.into(), Random(&[9; 4]).into()];
    let own = Parameters::from(&items[..]);
    let bytes = [0xc0, 6, 0, 8, 0, 0, 0, 7, 0x80, 2, 0, 8, 9, 9, 9, 9];
    let read = Parameters::from_bytes(&bytes);
    assert!(own == read && !own.is_empty() && !read.is_empty());
    assert!(own != Parameters::from_bytes(&bytes[..8]) && Parameters::from_bytes(&[]).is_empty());
    // Items of unknown types: the type counts, and the value, and not where they stand.
    let unknown = [0x3f, 1, 0, 6, 1, 2, 0, 0, 0x3f, 1, 0, 6, 1, 2, 0, 0, 0x3f, 2, 0, 6, 1, 2, 0, 0, 0x3f, 1, 0, 5, 1];
    let list: Vec<_> = Parameters::from_bytes(&unknown).iter().map(Result::unwrap).collect();
    assert_eq!(list.len(), 4);
    assert!(list[0] == list[1] && list[0] != list[2] && list[0] != list[3]);
    let Parameter::Unknown(raw) = list[1] else { panic!("{:?}", list[1]) };
    assert_eq!((raw.kind, raw.offset, raw.bytes.len()), (0x3f01, 8, 6));
    assert!(format!("{raw:?}").contains("0x3f01"));
}

#[test]
fn arrays_give_what_is_in_them_and_nothing_else() {
    let own = [Tsn(1), Tsn(2)];
    let array = Array::from(&own[..]);
    assert_eq!((array.get(1), array.get(2), array.len()), (Some(Tsn(2)), None, 2));
    let mut buffer = [0; 64];
    let sack = Sack { cumulative: Tsn(1), a_rwnd: 2, gaps: Array::EMPTY, duplicates: array, packets: 0 };
    let len = packet(&sack, &mut buffer);
    let packet = Packet::parse(&buffer[..len]).unwrap();
    let raw = packet.chunks().next().unwrap().unwrap();
    let Ok(Chunk::Sack(read)) = Chunk::decode(&raw) else { panic!("{raw:?}") };
    assert_eq!((read.duplicates.get(0), read.duplicates.get(2)), (Some(Tsn(1)), None));
    assert_eq!(read.duplicates.get(usize::MAX), None, "no overflow");
    assert_eq!(read.duplicates.iter().rev().collect::<Vec<_>>(), [Tsn(2), Tsn(1)]);
}

#[test]
fn an_auth_chunk_of_another_packet_vouches_for_nothing_here() {
    let auth = |digest: &'static [u8]| Auth { key: 1, hmac: HmacId::SHA256, digest };
    let (mut one, mut other) = ([0; 64], [0; 64]);
    let len = packet(&auth(&[1; 32]), &mut one);
    assert_eq!(packet(&auth(&[2; 32]), &mut other), len);
    let (one, other) = (Packet::parse(&one[..len]).unwrap(), Packet::parse(&other[..len]).unwrap());
    let raw = one.chunks().next().unwrap().unwrap();
    assert!(one.auth_input(&raw).is_some());
    assert!(other.auth_input(&raw).is_none());
}
