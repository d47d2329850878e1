//! RFC 4895, computed here once more: the key of an association from its handshake, and packets
//! that are signed with it.

use neater_sctp_wire::chunk::HmacId;
use neater_sctp_wire::{
    Checksum, Chunk, CommonHeader, Emit, Packet as Wire, PacketBuilder, Parameter, Parameters, Tag,
};

/// The parameters of a handshake.
#[derive(Clone, Debug, Default)]
pub struct Handshake {
    /// The association shared key with the empty endpoint pair key (section 6.1).
    pub key: Vec<u8>,
    /// Tags and first TSNs: of the side that opens, and of the other.
    pub tags: [u32; 2],
    pub initials: [u32; 2],
}

/// RANDOM, CHUNKS and HMAC-ALGO, in the order of the key vector and without padding.
fn vector(parameters: Parameters<'_>) -> Vec<u8> {
    let mut vector = Vec::new();
    for kind in [0x8002u16, 0x8003, 0x8004] {
        for p in parameters.iter().flatten().filter(|p| p.kind() == kind) {
            let value = match p {
                Parameter::Random(r) => r.0.to_vec(),
                Parameter::ChunkList(c) => c.0.to_vec(),
                Parameter::HmacAlgo(h) => h.algorithms.iter().flat_map(|a| a.0.to_be_bytes()).collect(),
                _ => unreachable!(),
            };
            vector.extend_from_slice(&kind.to_be_bytes());
            vector.extend_from_slice(&(value.len() as u16 + 4).to_be_bytes());
            vector.extend(value);
        }
    }
    vector
}

/// Reads the INIT and INIT ACK chunks in a log.
pub fn handshake(log: &super::Log) -> Handshake {
    let mut found = Handshake::default();
    let mut vectors = Vec::new();
    for (_, bytes) in log.borrow().iter() {
        for raw in Wire::parse(bytes).unwrap().chunks().flatten() {
            let (side, init) = match Chunk::decode(&raw) {
                Ok(Chunk::Init(init)) => (0, init),
                Ok(Chunk::InitAck(ack)) => (1, ack.0),
                _ => continue,
            };
            (found.tags[side], found.initials[side]) = (init.tag.0, init.initial_tsn.0);
            vectors.push(vector(init.parameters));
        }
    }
    assert_eq!(vectors.len(), 2, "a handshake without losses");
    // The smaller number first: both are of one length, or the shorter is the smaller.
    vectors.sort_by_key(|v| (v.len(), v.clone()));
    found.key = vectors.concat();
    found
}

/// A packet with AUTH and these chunks behind it.
pub fn signed(ports: [u16; 2], tag: u32, key: &[u8], chunks: &[&dyn PushTo]) -> Vec<u8> {
    let mut buffer = vec![0; 1400];
    let header = CommonHeader { source_port: ports[0], destination_port: ports[1], tag: Tag(tag) };
    let mut packet = PacketBuilder::new(&mut buffer, header).unwrap();
    let slot = packet.push_auth(0, HmacId::SHA256, 32).unwrap();
    chunks.iter().for_each(|chunk| chunk.push_to(&mut packet));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
    let digest = ring::hmac::sign(&key, packet.signed(&slot));
    packet.set_digest(&slot, digest.as_ref());
    let len = packet.finish(Checksum::Crc32c);
    buffer.truncate(len);
    buffer
}

/// A chunk, whatever its type.
pub trait PushTo {
    fn push_to(&self, packet: &mut PacketBuilder<'_>);
}

impl<T: Emit> PushTo for T {
    fn push_to(&self, packet: &mut PacketBuilder<'_>) {
        packet.push(self).unwrap();
    }
}
