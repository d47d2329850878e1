//! The content of packets: chunk by chunk, as plain values.

use neater_sctp_wire::chunk::Part;
use neater_sctp_wire::{Chunk, Packet as Wire};

/// A chunk with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub tsn: u32,
    pub stream: u16,
    /// Stream sequence number or message identifier.
    pub number: u32,
    pub begins: bool,
    pub ends: bool,
    pub unordered: bool,
    pub immediate: bool,
    pub len: usize,
    /// The first byte of its payload.
    pub mark: u8,
    /// The number of the packet that it was in.
    pub packet: usize,
}

/// A SACK chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub cumulative: u32,
    pub window: u32,
    pub gaps: Vec<(u16, u16)>,
    pub duplicates: Vec<u32>,
}

/// Every chunk of every packet, with the packet's number.
pub fn each(packets: &[Vec<u8>], mut see: impl FnMut(usize, &Chunk<'_>)) {
    for (number, packet) in packets.iter().enumerate() {
        for raw in Wire::parse(packet).unwrap().chunks() {
            see(number, &Chunk::decode(&raw.unwrap()).unwrap());
        }
    }
}

/// The chunks with data.
pub fn datas(packets: &[Vec<u8>]) -> Vec<Seen> {
    let mut found = Vec::new();
    each(packets, |packet, chunk| match chunk {
        Chunk::Data(d) => found.push(Seen {
            tsn: d.tsn.0,
            stream: d.stream.0,
            number: u32::from(d.ssn.0),
            begins: d.beginning,
            ends: d.ending,
            unordered: d.unordered,
            immediate: d.immediate,
            len: d.payload.len(),
            mark: d.payload[0],
            packet,
        }),
        Chunk::IData(d) => found.push(Seen {
            tsn: d.tsn.0,
            stream: d.stream.0,
            number: d.mid.0,
            begins: matches!(d.part, Part::First(_)),
            ends: d.ending,
            unordered: d.unordered,
            immediate: d.immediate,
            len: d.payload.len(),
            mark: d.payload[0],
            packet,
        }),
        _ => {}
    });
    found
}

/// The SACK chunks.
pub fn reports(packets: &[Vec<u8>]) -> Vec<Report> {
    let mut found = Vec::new();
    each(packets, |_, chunk| {
        if let Chunk::Sack(s) = chunk {
            found.push(Report {
                cumulative: s.cumulative.0,
                window: s.a_rwnd,
                gaps: s.gaps.iter().map(|g| (g.start, g.end)).collect(),
                duplicates: s.duplicates.iter().map(|t| t.0).collect(),
            });
        }
    });
    found
}

/// The types of all chunks of all packets.
pub fn all_kinds(packets: &[Vec<u8>]) -> Vec<u8> {
    packets.iter().flat_map(|p| super::kinds(p)).collect()
}
