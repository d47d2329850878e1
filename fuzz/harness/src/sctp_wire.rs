//! Targets in `crates/sctp-wire`: a packet from anywhere.

use neater_sctp_wire::{Checksum, Chunk, CommonHeader, Packet, PacketBuilder, ZeroChecksum};

/// Reads `data` as a packet. What can be read lies within it, and is written and read again as what it was; a packet that
/// was put together anew is the same for ever, and has a right checksum.
pub fn sctp_wire_packet(data: &[u8]) {
    let Ok(packet) = Packet::parse(data) else {
        assert!(data.len() < CommonHeader::LEN || data[..2] == [0, 0] || data[2..4] == [0, 0]);
        return;
    };
    let _ = packet.verify(ZeroChecksum::Refused);
    let mut sound = Vec::new();
    for (count, raw) in packet.chunks().enumerate() {
        assert!(count <= data.len() / 4, "more chunks than fit");
        let raw = match raw {
            Ok(raw) => raw,
            Err(error) => {
                assert!(error.offset <= data.len(), "{error}");
                break;
            }
        };
        assert_eq!(&data[raw.offset..][..raw.bytes.len()], raw.bytes);
        let _ = packet.auth_input(&raw);
        match Chunk::decode(&raw) {
            Ok(chunk) => sound.push(chunk),
            Err(error) => assert!(error.offset <= data.len(), "{error}"),
        }
    }

    let mut buffer = vec![0xaa; data.len() + 64];
    let len = write(&mut buffer, packet.header, &sound);
    let again = Packet::parse(&buffer[..len]).expect("it was written");
    again.verify(ZeroChecksum::Refused).expect("it was summed");
    let chunks: Vec<_> = again.chunks().map(|raw| Chunk::decode(&raw.expect("written")).expect("written")).collect();
    assert_eq!(chunks.len(), sound.len());
    for (written, read) in chunks.iter().zip(&sound) {
        // Printing walks over every list. Errors within say where they are, which may be elsewhere now.
        let (written, read) = (format!("{written:?}"), format!("{read:?}"));
        assert!(written == read || read.contains("Err(") || read.contains("offset:"), "{written} is not {read}");
    }
    let mut once_more = vec![0; data.len() + 64];
    let len_once_more = write(&mut once_more, packet.header, &chunks);
    assert_eq!(once_more[..len_once_more], buffer[..len], "what is written once is written so for ever");
}

fn write(buffer: &mut [u8], header: CommonHeader, chunks: &[Chunk<'_>]) -> usize {
    let mut builder = PacketBuilder::new(buffer, header).expect("there is room");
    for chunk in chunks {
        builder.push(chunk).expect("it fitted before");
    }
    builder.finish(Checksum::Crc32c)
}
