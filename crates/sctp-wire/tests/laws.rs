//! Laws that hold for any packet: what is read lies in it and can be written and read again;
//! nothing panics.

mod common;

use neater_sctp_wire::chunk::{Data, GapBlock, IData, Part, Sack};
use neater_sctp_wire::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Every type of chunk that is known, and some that are not.
const CHUNKS: &[u8] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 64, 0x80, 0x82, 0x84, 0xc0, 0xc1, 0xc2, 16, 0x41, 0x9f, 0xff,
];

/// Every type of parameter and cause that is known, and some that are not.
const ITEMS: &[u16] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 0x8000, 0x8001, 0x8002, 0x8003, 0x8004, 0x8005,
    0x8008, 0xc000, 0xc001, 0xc002, 0xc003, 0xc004, 0xc005, 0xc006, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0x105, 0x7fff,
    0xbfff, 0xffff,
];

fn item(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(value.len() as u16 + 4).to_be_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Values of words, of anything, and of items within.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let words = vec(prop_oneof![Just(0u32), Just(1), any::<u32>()], 0..6)
        .prop_map(|words| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>());
    let leaf = prop_oneof![words, vec(any::<u8>(), 0..24)];
    leaf.prop_recursive(3, 32, 4, |inner| {
        let items = vec((proptest::sample::select(ITEMS), inner), 1..4)
            .prop_map(|items| items.iter().flat_map(|(kind, value)| item(*kind, value)).collect::<Vec<u8>>());
        (vec(any::<u32>(), 0..5), items)
            .prop_map(|(words, items)| [words.iter().flat_map(|w| w.to_be_bytes()).collect(), items].concat())
    })
}

/// A chunk's header and value, with its padding.
fn chunk() -> impl Strategy<Value = Vec<u8>> {
    (proptest::sample::select(CHUNKS), any::<u8>(), value()).prop_map(|(kind, flags, value)| {
        let mut bytes = item(0, &value);
        (bytes[0], bytes[1]) = (kind, flags);
        bytes
    })
}

/// A chunk that is as its type requires, as often as not.
fn likely_chunk() -> impl Strategy<Value = Vec<u8>> {
    let sack = (any::<u32>(), any::<u32>(), vec((1u16.., any::<u16>()), 0..20), vec(any::<u32>(), 0..5)).prop_map(
        |(cumulative, a_rwnd, gaps, duplicates)| {
            let gaps: Vec<_> =
                gaps.iter().map(|(a, b)| GapBlock { start: *a.min(b).max(&1), end: *a.max(b) }).collect();
            let duplicates: Vec<_> = duplicates.into_iter().map(Tsn).collect();
            let (gaps, duplicates) = (Array::new(&gaps), Array::new(&duplicates));
            common::written(&Sack { cumulative: Tsn(cumulative), a_rwnd, gaps, duplicates, packets: 0 })
        },
    );
    let fields = (any::<u32>(), any::<u16>(), any::<u32>(), any::<u32>(), any::<[bool; 4]>(), vec(any::<u8>(), 0..80));
    let data = fields.clone().prop_map(|(tsn, stream, n, ppid, [immediate, unordered, beginning, ending], payload)| {
        let base = Data::whole(Tsn(tsn), StreamId(stream), Ssn(n as u16), Ppid(ppid));
        common::written(&Data { immediate, unordered, beginning, ending, payload: &payload, ..base })
    });
    let i_data = fields.prop_map(|(tsn, stream, mid, word, [immediate, unordered, first, ending], payload)| {
        let part = if first { Part::First(Ppid(word)) } else { Part::Later(Fsn(word)) };
        let (tsn, stream, mid) = (Tsn(tsn), StreamId(stream), Mid(mid));
        common::written(&IData { tsn, stream, mid, part, immediate, unordered, ending, payload: &payload })
    });
    prop_oneof![4 => chunk(), 1 => sack, 1 => data, 1 => i_data]
}

fn packet(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0x13, 0x88, 0x13, 0x89, 1, 2, 3, 4, 0, 0, 0, 0];
    bytes.extend(chunks.concat());
    bytes
}

/// That `part` lies within `whole`.
fn within(part: &[u8], whole: &[u8]) -> bool {
    whole.as_ptr_range().start <= part.as_ptr() && part.as_ptr_range().end <= whole.as_ptr_range().end
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_is_written_and_read_again(chunks in vec(likely_chunk(), 0..6)) {
        let bytes = packet(&chunks);
        let parsed = Packet::parse(&bytes).unwrap();
        prop_assert_eq!(parsed.chunks().count(), chunks.len());
        for raw in parsed.chunks() {
            let raw = raw.unwrap();
            prop_assert!(within(raw.bytes, &bytes) && within(raw.value, raw.bytes));
            // In a packet of its own: the place in the packet that an error of a list reports is
            // then the same again.
            let mut alone = raw.bytes.to_vec();
            alone.resize(alone.len().next_multiple_of(4), 0);
            let alone = packet(&[alone]);
            let raw = Packet::parse(&alone).unwrap().chunks().next().unwrap().unwrap();
            let Ok(chunk) = Chunk::decode(&raw) else { continue };
            prop_assert_eq!(chunk.kind(), raw.kind);
            // From the bytes of its lists, and from their items if all of them can be read.
            let copies = [Some(common::written(&chunk)), common::rewritten(&chunk).ok()];
            for copy in copies.iter().flatten() {
                let again = packet(std::slice::from_ref(copy));
                let again = Packet::parse(&again).unwrap();
                let chunk_again = Chunk::decode(&again.chunks().next().unwrap().unwrap()).unwrap();
                if copies[1].is_some() {
                    prop_assert_eq!(chunk_again, chunk);
                }
                // What is written once is written so for ever.
                prop_assert_eq!(&common::written(&chunk_again), copy);
            }
        }
    }

    #[test]
    fn any_bytes_are_walked_over_to_their_end(bytes in vec(any::<u8>(), 0..200)) {
        let Ok(parsed) = Packet::parse(&bytes) else { return Ok(()) };
        prop_assert!(parsed.chunks().count() <= bytes.len() / 4 + 1);
        // Printing walks over every list.
        let _ = format!("{parsed:?}");
    }

    #[test]
    fn a_packet_cut_anywhere_and_changed_anywhere_is_still_only_a_packet(
        chunks in vec(likely_chunk(), 1..5),
        cut in any::<prop::sample::Index>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = packet(&chunks);
        for (at, to) in changes {
            let index = at.index(bytes.len());
            bytes[index] = to;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        if let Ok(parsed) = Packet::parse(&bytes) {
            for raw in parsed.chunks().flatten() {
                match Chunk::decode(&raw) {
                    Ok(chunk) => drop(common::rewritten(&chunk)),
                    Err(error) => prop_assert!(error.offset <= bytes.len(), "{}", error),
                }
            }
            let _ = format!("{parsed:?}");
        }
    }

    #[test]
    fn builder_and_reader_agree_on_any_chunks_that_fit(chunks in vec(likely_chunk(), 0..8), limit in 12usize..400) {
        let source = packet(&chunks);
        let header = CommonHeader { source_port: 5000, destination_port: 5001, tag: Tag(0x0102_0304) };
        let mut buffer = vec![0xaa; limit];
        let mut builder = PacketBuilder::new(&mut buffer, header).unwrap();
        let mut pushed = Vec::new();
        for raw in Packet::parse(&source).unwrap().chunks().map(Result::unwrap) {
            let before = builder.len();
            let chunk = Chunk::Unknown(raw);
            match builder.push(&chunk) {
                Ok(()) => pushed.push(raw),
                Err(Full) => {
                    prop_assert_eq!(builder.len(), before);
                    prop_assert!(raw.bytes.len() > builder.room());
                }
            }
        }
        let len = builder.finish(Checksum::Crc32c);
        let read = Packet::parse(&buffer[..len]).unwrap();
        prop_assert_eq!(read.header, header);
        prop_assert!(read.verify(ZeroChecksum::Refused).is_ok());
        prop_assert_eq!(read.chunks().map(Result::unwrap).collect::<Vec<_>>(), pushed);
    }
}
