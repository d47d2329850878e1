//! The chunks: one file each.

mod abort;
mod asconf;
mod asconf_ack;
mod auth;
mod cookie_ack;
mod cookie_echo;
mod cwr;
mod data;
mod ecne;
mod error;
mod forward_tsn;
mod heartbeat;
mod heartbeat_ack;
mod i_data;
mod i_forward_tsn;
mod init;
mod init_ack;
mod nr_sack;
mod pad;
mod re_config;
mod sack;
mod shutdown;
mod shutdown_ack;
mod shutdown_complete;

pub use abort::Abort;
pub use asconf::Asconf;
pub use asconf_ack::AsconfAck;
pub use auth::{Auth, HmacId};
pub use cookie_ack::CookieAck;
pub use cookie_echo::CookieEcho;
pub use cwr::Cwr;
pub use data::Data;
pub use ecne::Ecne;
pub use error::Error;
pub use forward_tsn::{ForwardTsn, Skipped};
pub use heartbeat::Heartbeat;
pub use heartbeat_ack::HeartbeatAck;
pub use i_data::{IData, Part};
pub use i_forward_tsn::{IForwardTsn, SkippedMessage};
pub use init::Init;
pub use init_ack::InitAck;
pub use nr_sack::NrSack;
pub use pad::Pad;
pub use re_config::ReConfig;
pub use sack::{GapBlock, Sack};
pub use shutdown::Shutdown;
pub use shutdown_ack::ShutdownAck;
pub use shutdown_complete::ShutdownComplete;

use crate::error::WireError;
use crate::packet::RawChunk;
use crate::writer::{Emit, Writer};

macro_rules! chunks {
    ($($(#[$doc:meta])* $name:ident $(<$life:lifetime>)?,)*) => {
        /// A chunk.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Chunk<'a> {
            $($(#[$doc])* $name($name$(<$life>)?),)*
            /// A chunk of a type that is not known here: [`RawChunk::unknown_action`] returns what
            /// to do with it.
            Unknown(RawChunk<'a>),
        }

        impl<'a> Chunk<'a> {
            /// Reads a chunk.
            ///
            /// # Errors
            /// If its value is not as its type requires.
            #[inline]
            pub fn decode(raw: &RawChunk<'a>) -> Result<Self, WireError> {
                match raw.kind {
                    $($name::KIND => $name::decode(raw.flags, raw.fields($name::NAME)).map(Self::$name),)*
                    _ => Ok(Self::Unknown(*raw)),
                }
            }

            /// Its type.
            #[must_use]
            pub const fn kind(&self) -> u8 {
                match self {
                    $(Self::$name(_) => $name::KIND,)*
                    Self::Unknown(raw) => raw.kind,
                }
            }

            /// What the standards call it.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $name::NAME,)*
                    Self::Unknown(_) => "unknown chunk",
                }
            }
        }

        impl Emit for Chunk<'_> {
            fn emit(&self, out: &mut Writer<'_>) {
                match self {
                    $(Self::$name(chunk) => chunk.emit(out),)*
                    Self::Unknown(raw) => out.chunk(raw.kind, raw.flags, |out| out.bytes(raw.value)),
                }
            }
        }

        $(
            impl<'a> From<$name$(<$life>)?> for Chunk<'a> {
                fn from(chunk: $name$(<$life>)?) -> Self {
                    Self::$name(chunk)
                }
            }

            impl$(<$life>)? Emit for $name$(<$life>)? {
                #[inline]
                fn emit(&self, out: &mut Writer<'_>) {
                    out.chunk(Self::KIND, self.flags(), |out| self.write(out));
                }
            }
        )*
    };
}

chunks! {
    /// User data (RFC 9260).
    Data<'a>,
    /// The first packet of a handshake (RFC 9260).
    Init<'a>,
    /// The answer to INIT (RFC 9260).
    InitAck<'a>,
    /// What was received (RFC 9260).
    Sack<'a>,
    /// What was received, and what of it will never be taken back (Natarajan 2009).
    NrSack<'a>,
    /// A probe of a path (RFC 9260).
    Heartbeat<'a>,
    /// The answer to HEARTBEAT (RFC 9260).
    HeartbeatAck<'a>,
    /// The end of the association, at once (RFC 9260).
    Abort<'a>,
    /// The end of the association, when everything is delivered (RFC 9260).
    Shutdown,
    /// The answer to SHUTDOWN (RFC 9260).
    ShutdownAck,
    /// Something is wrong (RFC 9260).
    Error<'a>,
    /// The cookie comes back (RFC 9260).
    CookieEcho<'a>,
    /// The association is established (RFC 9260).
    CookieAck,
    /// A packet came with a congestion mark (RFC 4960 appendix A).
    Ecne,
    /// The congestion window was reduced for that (RFC 4960 appendix A).
    Cwr,
    /// The association is gone (RFC 9260).
    ShutdownComplete,
    /// All chunks behind it are authenticated (RFC 4895).
    Auth<'a>,
    /// User data that may be interleaved (RFC 8260).
    IData<'a>,
    /// The answer to ASCONF (RFC 5061).
    AsconfAck<'a>,
    /// Streams are reset or added (RFC 6525).
    ReConfig<'a>,
    /// Nothing, of any length (RFC 4820).
    Pad,
    /// Abandoned DATA chunks are to be given up (RFC 3758).
    ForwardTsn<'a>,
    /// Addresses change (RFC 5061).
    Asconf<'a>,
    /// Abandoned I-DATA chunks are to be given up (RFC 8260).
    IForwardTsn<'a>,
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::{Checksum, CommonHeader, Packet, PacketBuilder, Tag, ZeroChecksum};

    const HEADER: CommonHeader = CommonHeader { source_port: 1, destination_port: 2, tag: Tag(3) };

    /// That `chunk` is `wire` (with its padding): written, and read. And that no part of it, with a
    /// length field to fit, makes the reader panic, or writes anything but what it is.
    pub(crate) fn assert_wire(chunk: impl Into<Chunk<'static>>, wire: &[u8]) {
        let chunk = chunk.into();
        let mut buffer = [0xaa; 2048];
        let mut builder = PacketBuilder::new(&mut buffer, HEADER).unwrap();
        builder.push(&chunk).unwrap();
        let len = builder.finish(Checksum::Crc32c);
        assert_eq!(buffer[12..len], *wire, "{} is written otherwise", chunk.name());

        let packet = Packet::parse(&buffer[..len]).unwrap();
        packet.verify(ZeroChecksum::Refused).unwrap();
        let raw = packet.chunks().next().unwrap().unwrap();
        assert_eq!(Chunk::decode(&raw), Ok(chunk), "{} is read otherwise", chunk.name());
        assert_eq!(raw.kind, chunk.kind());

        for cut in 4..raw.bytes.len() {
            let mut bytes = buffer[..12 + cut].to_vec();
            bytes[14..16].copy_from_slice(&(cut as u16).to_be_bytes());
            let raw = Packet::parse(&bytes).unwrap().chunks().next().unwrap().unwrap();
            match Chunk::decode(&raw) {
                Err(error) => assert!(error.offset <= 12 + cut, "{error}"),
                Ok(chunk) => {
                    // Lists are read when they are walked over, which printing does.
                    let _ = format!("{chunk:?}");
                    let mut again = [0; 2048];
                    let mut builder = PacketBuilder::new(&mut again, HEADER).unwrap();
                    builder.push(&chunk).unwrap();
                    let len = builder.finish(Checksum::Zero);
                    let raw = Packet::parse(&again[..len]).unwrap().chunks().next().unwrap().unwrap();
                    assert_eq!(Chunk::decode(&raw).map(|c| format!("{c:?}")), Ok(format!("{chunk:?}")));
                }
            }
        }
    }

    /// What reading that chunk gives; `wire` may lack padding.
    pub(crate) fn decode(wire: &[u8]) -> Result<Chunk<'_>, WireError> {
        let raw = RawChunk { kind: wire[0], flags: wire[1], value: &wire[4..], bytes: wire, offset: 0 };
        Chunk::decode(&raw)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{assert_wire, decode};
    use super::*;

    #[test]
    fn an_unknown_chunk_is_handed_over_whole_and_written_as_it_was() {
        const WIRE: &[u8] = &[0xc9, 5, 0, 6, 1, 2, 0, 0];
        let raw = RawChunk { kind: 0xc9, flags: 5, value: &[1, 2], bytes: &WIRE[..6], offset: 12 };
        assert_wire(Chunk::Unknown(raw), WIRE);
        assert_eq!(Chunk::Unknown(raw).name(), "unknown chunk");
    }

    #[test]
    fn an_error_names_the_chunk() {
        assert!(decode(&[3, 0, 0, 5, 0]).unwrap_err().to_string().starts_with("SACK at byte 4: 4 bytes are needed"));
    }
}
