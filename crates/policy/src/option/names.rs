//! Socket options by name: `SOL_SOCKET/SO_SNDBUF` becomes `1/7`.
//!
//! The numbers are Linux's, for NEAT's files name options as Linux does. Other systems number them
//! otherwise, which is why neater's own programs name options and never see these numbers.

/// Levels and options by name, in the order of their names.
#[rustfmt::skip]
const NAMES: [(&str, u32); 133] = [
    ("IPPROTO_AH", 51), ("IPPROTO_DSTOPTS", 60), ("IPPROTO_EGP", 8), ("IPPROTO_ESP", 50), ("IPPROTO_FRAGMENT", 44),
    ("IPPROTO_GRE", 47), ("IPPROTO_HOPOPTS", 0), ("IPPROTO_ICMP", 1), ("IPPROTO_ICMPV6", 58), ("IPPROTO_IDP", 22),
    ("IPPROTO_IGMP", 2), ("IPPROTO_IP", 0), ("IPPROTO_IPIP", 4), ("IPPROTO_IPV6", 41), ("IPPROTO_MPTCP", 262),
    ("IPPROTO_NONE", 59), ("IPPROTO_PIM", 103), ("IPPROTO_PUP", 12), ("IPPROTO_RAW", 255), ("IPPROTO_ROUTING", 43),
    ("IPPROTO_RSVP", 46), ("IPPROTO_SCTP", 132), ("IPPROTO_TCP", 6), ("IPPROTO_TP", 29), ("IPPROTO_UDP", 17),
    ("IPPROTO_UDPLITE", 136), ("IPV6_CHECKSUM", 7), ("IPV6_DONTFRAG", 62), ("IPV6_DSTOPTS", 59),
    ("IPV6_HOPLIMIT", 52), ("IPV6_HOPOPTS", 54), ("IPV6_JOIN_GROUP", 20), ("IPV6_LEAVE_GROUP", 21), ("IPV6_MTU", 24),
    ("IPV6_MTU_DISCOVER", 23), ("IPV6_MULTICAST_HOPS", 18), ("IPV6_MULTICAST_IF", 17), ("IPV6_MULTICAST_LOOP", 19),
    ("IPV6_NEXTHOP", 9), ("IPV6_PATHMTU", 61), ("IPV6_PKTINFO", 50), ("IPV6_RECVDSTOPTS", 58), ("IPV6_RECVERR", 25),
    ("IPV6_RECVHOPLIMIT", 51), ("IPV6_RECVHOPOPTS", 53), ("IPV6_RECVPATHMTU", 60), ("IPV6_RECVPKTINFO", 49),
    ("IPV6_RECVRTHDR", 56), ("IPV6_RECVTCLASS", 66), ("IPV6_RTHDR", 57), ("IPV6_RTHDRDSTOPTS", 55),
    ("IPV6_TCLASS", 67), ("IPV6_UNICAST_HOPS", 16), ("IPV6_V6ONLY", 26), ("IP_ADD_MEMBERSHIP", 35),
    ("IP_BIND_ADDRESS_NO_PORT", 24), ("IP_DROP_MEMBERSHIP", 36), ("IP_FREEBIND", 15), ("IP_HDRINCL", 3),
    ("IP_MTU", 14), ("IP_MTU_DISCOVER", 10), ("IP_MULTICAST_IF", 32), ("IP_MULTICAST_LOOP", 34),
    ("IP_MULTICAST_TTL", 33), ("IP_OPTIONS", 4), ("IP_RECVERR", 11), ("IP_RECVOPTS", 6), ("IP_RECVRETOPTS", 7),
    ("IP_RECVTOS", 13), ("IP_RETOPTS", 7), ("IP_TOS", 1), ("IP_TRANSPARENT", 19), ("IP_TTL", 2), ("SOL_IP", 0),
    ("SOL_IPV6", 41), ("SOL_MPTCP", 284), ("SOL_SCTP", 132), ("SOL_SOCKET", 1), ("SOL_TCP", 6), ("SOL_UDP", 17),
    ("SOL_UDPLITE", 136), ("SO_ACCEPTCONN", 30), ("SO_BINDTODEVICE", 25), ("SO_BROADCAST", 6), ("SO_BUSY_POLL", 46),
    ("SO_DEBUG", 1), ("SO_DOMAIN", 39), ("SO_DONTROUTE", 5), ("SO_ERROR", 4), ("SO_INCOMING_CPU", 49),
    ("SO_KEEPALIVE", 9), ("SO_LINGER", 13), ("SO_MARK", 36), ("SO_MAX_PACING_RATE", 47), ("SO_OOBINLINE", 10),
    ("SO_PASSCRED", 16), ("SO_PASSSEC", 34), ("SO_PEERCRED", 17), ("SO_PEERSEC", 31), ("SO_PRIORITY", 12),
    ("SO_PROTOCOL", 38), ("SO_RCVBUF", 8), ("SO_RCVLOWAT", 18), ("SO_RCVTIMEO", 20), ("SO_REUSEADDR", 2),
    ("SO_REUSEPORT", 15), ("SO_SNDBUF", 7), ("SO_SNDLOWAT", 19), ("SO_SNDTIMEO", 21), ("SO_TXTIME", 61),
    ("SO_TYPE", 3), ("SO_ZEROCOPY", 60), ("TCP_CONGESTION", 13), ("TCP_CORK", 3), ("TCP_DEFER_ACCEPT", 9),
    ("TCP_FASTOPEN", 23), ("TCP_FASTOPEN_CONNECT", 30), ("TCP_INFO", 11), ("TCP_KEEPCNT", 6), ("TCP_KEEPIDLE", 4),
    ("TCP_KEEPINTVL", 5), ("TCP_LINGER2", 8), ("TCP_MAXSEG", 2), ("TCP_NODELAY", 1), ("TCP_NOTSENT_LOWAT", 25),
    ("TCP_QUICKACK", 12), ("TCP_SYNCNT", 7), ("TCP_USER_TIMEOUT", 18), ("TCP_WINDOW_CLAMP", 10),
    ("UDPLITE_RECV_CSCOV", 11), ("UDPLITE_SEND_CSCOV", 10), ("UDP_GRO", 104), ("UDP_SEGMENT", 103),
];

/// `LEVEL/NAME`, in any case and of numbers or names, as two numbers; `None` where a name is
/// unknown or something else than a level and a name stands there.
#[must_use]
pub(crate) fn by_number(option: &str) -> Option<String> {
    let number = |part: &str| -> Option<u32> {
        if let Ok(n) = part.parse() {
            return Some(n);
        }
        let upper = part.to_ascii_uppercase();
        NAMES.binary_search_by_key(&upper.as_str(), |(name, _)| name).ok().map(|at| NAMES[at].1)
    };
    let (level, name) = option.split_once('/')?;
    Some(format!("{}/{}", number(level)?, number(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_by_name_and_number() {
        assert!(NAMES.is_sorted());
        assert_eq!(by_number("sol_socket/so_sndbuf").as_deref(), Some("1/7"));
        assert_eq!(by_number("IPPROTO_TCP/TCP_NODELAY").as_deref(), Some("6/1"));
        assert_eq!(by_number("6/tcp_congestion").as_deref(), Some("6/13"));
        for unknown in ["", "/", "1", "1/so_none", "sol_none/7", "1/7/3", "-1/7"] {
            assert_eq!(by_number(unknown), None, "{unknown}");
        }
    }
}
