//! What has been counted.

use crate::ids::{PathId, Route};
use crate::multipath::PathVerdict;
use crate::path::PathState;
use core::time::Duration;

/// Of one association.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssociationStats {
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received and found to be ours.
    pub packets_received: u64,
    /// Chunks with data sent, first transmissions.
    pub chunks_sent: u64,
    /// Chunks with data sent again.
    pub retransmissions: u64,
    /// Chunks with data that the network is believed to have lost: not those that probe for losses
    /// or for a closed window.
    pub lost: u64,
    /// Timeouts (T3-rtx).
    pub timeouts: u64,
    /// Recoveries that began because losses were seen in SACK chunks.
    pub fast_recoveries: u64,
    /// Probes for losses at the end (RFC 8985 section 7).
    pub tail_probes: u64,
    /// Chunks with data received for the first time.
    pub chunks_received: u64,
    /// Chunks with data received again.
    pub duplicates: u64,
    /// Chunks with data dropped for want of room.
    pub dropped: u64,
    /// SACK chunks sent.
    pub sacks_sent: u64,
    /// SACK chunks received.
    pub sacks_received: u64,
    /// Bytes of payload in the retransmission queue, now: sent, and kept because the peer may not
    /// have them or may take them back.
    pub retransmission_queue: u64,
    /// Bytes of payload acknowledged by the peer.
    pub bytes_acknowledged: u64,
    /// Bytes of payload received for the first time.
    pub bytes_received: u64,
    /// Messages given up.
    pub abandoned: u64,
    /// Packets that arrived with a congestion mark.
    pub marked: u64,
    /// Probes of the size of packets (RFC 8899).
    pub mtu_probes: u64,
    /// How often packets were made smaller because none arrived any more.
    pub black_holes: u64,
    /// Packets with chunks that blocked the peer's receive window and were sent once more on
    /// another path.
    pub opportunistic: u64,
    /// Chunks of which a copy went on another path ([`crate::Multipath::reinject`]).
    pub copies: u64,
    /// How often a path was left because nothing came back from it
    /// ([`crate::Multipath::leave_silent`]).
    pub silences: u64,
    /// Chunks that had to be authenticated and were not, and digests that were wrong (RFC 4895).
    pub unauthenticated: u64,
}

/// Of one path, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStats {
    /// Which.
    pub path: PathId,
    /// Where it goes.
    pub route: Route,
    /// Whether it can be used.
    pub state: PathState,
    /// The smoothed round-trip time, once measured.
    pub srtt: Option<Duration>,
    /// The retransmission timeout.
    pub rto: Duration,
    /// The congestion window in bytes.
    pub window: u64,
    /// The slow start threshold in bytes, once there is one.
    pub threshold: Option<u64>,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Unanswered transmissions in a row.
    pub errors: u32,
    /// The largest SCTP packet in bytes.
    pub room: u16,
    /// Chunks with data sent, retransmissions included.
    pub sent: u64,
    /// Of those, retransmissions.
    pub retransmissions: u64,
    /// Chunks with data that this path is believed to have lost.
    pub lost: u64,
    /// Bytes of payload that were acknowledged.
    pub delivered: u64,
    /// Bytes of payload that have come by this path.
    pub received: u64,
    /// Timeouts (T3-rtx).
    pub timeouts: u64,
    /// Why it carries new data, or does not, while it is active.
    pub verdict: PathVerdict,
}

/// Of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// Packets received.
    pub packets_received: u64,
    /// Packets that were no SCTP packets, or whose checksum was wrong.
    pub malformed: u64,
    /// Packets for another port.
    pub wrong_port: u64,
    /// Packets out of the blue (RFC 9260 section 8.4).
    pub out_of_the_blue: u64,
    /// Packets whose tag was not the association's.
    pub wrong_tag: u64,
    /// INIT chunks answered with a cookie.
    pub cookies_sent: u64,
    /// Cookies that were not ours, or too old.
    pub cookies_refused: u64,
    /// Associations that peers opened.
    pub accepted: u64,
    /// Associations that peers could not open: there are too many, in all or of one source.
    pub refused: u64,
    /// ICMP messages that were about a packet of ours (RFC 9260 section 10), and those that were
    /// not.
    pub icmp: u64,
    /// ICMP messages that were ignored: about no packet of ours.
    pub icmp_ignored: u64,
    /// Stateless answers that were not sent, because there were too many.
    pub replies_suppressed: u64,
}
