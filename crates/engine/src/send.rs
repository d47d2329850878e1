//! Sending (RFC 9622 section 9.2).

use crate::queue::SendFlags;
use core::time::Duration;
use neater_property::{MessageProperties, Preference, Role, SelectionProperty as P, TransportProperties};

/// The properties of a message that this engine acts on (RFC 9622 section 9.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOptions {
    /// The message ends with this data.
    pub end_of_message: bool,
    /// No message follows: the direction is closed after it, where the protocol can (`final`).
    pub is_final: bool,
    /// The message may be delivered more than once (`safelyReplayable`).
    pub safely_replayable: bool,
    /// The message is pointless when it could not be sent within this time (`msgLifetime`).
    pub lifetime: Option<Duration>,
    /// It keeps its place among the messages of its connection (`msgOrdered`), where the transport
    /// can do without; `None`: as set by `preserveOrder`.
    pub ordered: Option<bool>,
    /// It is sent until it is delivered (`msgReliable`), where the transport can do without;
    /// `None`: as set by `reliability`. Something else than that is refused unless the connection
    /// was opened with `perMsgReliability` (RFC 9622 section 9.1.3.7).
    pub reliable: Option<bool>,
    /// Of messages that need not be reliable, those of a larger number (`msgPriority`, 100 unless
    /// it was set) are given up first when the transport's buffer is full, where the transport can
    /// do that.
    pub priority: u32,
    /// It leaves in one packet or not at all (`noSegmentation`), where the transport knows
    /// messages.
    pub whole: bool,
    /// The stream of an SCTP association whose peer gives streams no meaning of ours, so that one
    /// connection is the whole association. Elsewhere it means nothing.
    pub stream: Option<u16>,
    /// The payload protocol identifier of the message at such a peer (RFC 9260 section 3.3.1), from
    /// IANA's registry; 0 unless it is set. Elsewhere it means nothing.
    pub ppid: Option<u32>,
    /// It is a message of its own: refused while another one is being sent in parts, whose end it
    /// would be taken for. Bytes of a stream without boundaries are no message.
    pub begins: bool,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            end_of_message: true,
            is_final: false,
            safely_replayable: true,
            lifetime: None,
            ordered: None,
            reliable: None,
            priority: DEFAULT_PRIORITY,
            whole: false,
            stream: None,
            ppid: None,
            begins: false,
        }
    }
}

impl From<&MessageProperties> for SendOptions {
    /// A whole message with these properties.
    fn from(p: &MessageProperties) -> Self {
        Self {
            end_of_message: true,
            is_final: p.is_final,
            safely_replayable: p.safely_replayable,
            lifetime: p.lifetime,
            ordered: p.ordered,
            reliable: p.reliable,
            priority: p.priority,
            whole: p.no_segmentation,
            stream: None,
            ppid: None,
            begins: false,
        }
    }
}

/// `msgPriority` unless it was set (RFC 9622 section 9.1.3.2).
const DEFAULT_PRIORITY: u32 = 100;

/// The options that matter when the message is written, with those of the connection where the
/// message sets none (RFC 9622 sections 9.1.3.3 and 9.1.3.7).
pub(crate) fn send_flags(properties: &TransportProperties, options: &SendOptions) -> SendFlags {
    let unwanted = |p| properties.preference(p, Role::Initiate) < Preference::NoPreference;
    SendFlags {
        replayable: options.safely_replayable,
        unordered: !options.ordered.unwrap_or_else(|| !unwanted(P::PreserveOrder)),
        unreliable: !options.reliable.unwrap_or_else(|| !unwanted(P::Reliability)),
        whole: options.whole,
        priority: u16::try_from(options.priority).unwrap_or(u16::MAX),
        stream: options.stream.unwrap_or(0),
        ppid: options.ppid.unwrap_or(0),
    }
}

pub(crate) const RECEIVE_ONLY: &str =
    "this connection was opened for receiving only (direction: Unidirectional receive)";
