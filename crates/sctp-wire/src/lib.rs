//! SCTP's wire format: packets, chunks, parameters and error causes of RFC 9260 and its extensions.
//!
//! *Responsible for* the format: finding the chunks of a received packet and the parameters of a
//! chunk, reading their fields, the checksum, and writing all of it into a buffer of the caller's.
//! *Not responsible for* what a chunk means: nothing here has a state, a timer or an opinion; a
//! stream count of zero is read as zero, and the association answers it.
//!
//! Key types: [`Packet`] is a received packet and [`Packet::chunks`] walks over it;
//! [`Chunk::decode`] reads one chunk. [`PacketBuilder`] writes a packet up to a limit. The same
//! types are read and written: a list ([`List`], [`Array`]) is either bytes of the wire or a slice
//! of the caller's. One file per chunk, parameter and cause, each with its diagram.
//!
//! ```
//! use neater_sctp_wire::chunk::{Data, Sack};
//! use neater_sctp_wire::*;
//!
//! let header = CommonHeader { source_port: 5000, destination_port: 5001, tag: Tag(7) };
//! let mut buffer = [0; 1400];
//! let mut packet = PacketBuilder::new(&mut buffer, header)?;
//! let (gaps, duplicates) = (Array::EMPTY, Array::EMPTY);
//! let sack = Sack { cumulative: Tsn(9), a_rwnd: 65_536, gaps, duplicates, packets: 0 };
//! packet.push(&sack)?;
//! packet.push(&Data { payload: b"hello", ..Data::whole(Tsn(1), StreamId(0), Ssn(0), Ppid(0)) })?;
//! let len = packet.finish(Checksum::Crc32c);
//!
//! let received = Packet::parse(&buffer[..len])?;
//! received.verify(ZeroChecksum::Refused)?;
//! let mut chunks = received.chunks();
//! let first = Chunk::decode(&chunks.next().unwrap()?)?;
//! assert!(matches!(first, Chunk::Sack(sack) if sack.cumulative == Tsn(9)));
//! let second = Chunk::decode(&chunks.next().unwrap()?)?;
//! assert!(matches!(second, Chunk::Data(data) if data.payload == b"hello"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Invariants*: no input makes anything here panic or run longer than its length, and nothing
//! allocates: outside its tests the crate is `no_std`. A view borrows the packet and lies within
//! it; what is written can be read again and is then equal; the length field of a chunk never
//! counts its padding.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod array;
mod builder;
pub mod cause;
mod checksum;
pub mod chunk;
mod error;
mod fields;
mod list;
mod number;
mod packet;
pub mod parameter;
mod writer;

pub use array::{Array, Fixed};
pub use builder::{AuthSlot, ChunkSet, PacketBuilder, Signing};
pub use cause::{Cause, Causes};
pub use checksum::{Checksum, ZeroChecksum};
pub use chunk::Chunk;
pub use error::{Full, Problem, WireError};
pub use list::{Item, List, RawItem, UnknownAction};
pub use number::{AsconfSerial, Fsn, Mid, Ppid, ReconfigSeq, Ssn, StreamId, Tag, Tsn};
pub use packet::{Chunks, CommonHeader, Packet, RawChunk};
pub use parameter::{Parameter, Parameters};
pub use writer::{Emit, Writer};

/// The UDP port that SCTP packets are encapsulated to (RFC 6951 section 4.1, assigned by IANA as
/// `sctp-tunneling`).
pub const UDP_PORT: u16 = 9899;

/// The longest packet that [`PacketBuilder`] writes, in bytes: the largest multiple of four that a
/// 16-bit length can name.
pub const PACKET_MAX: usize = 65_532;

/// The next multiple of four: chunks, parameters and causes are padded to it (RFC 9260 section
/// 3.2).
const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}
