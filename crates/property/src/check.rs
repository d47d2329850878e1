//! Contradictions: what no transport could do, found before any is looked at (RFC 9623 section
//! 3.1).

use crate::preference::{Preference, Role};
use crate::selection::SelectionProperty as P;
use crate::transport::{Direction, TransportProperties};
use core::fmt;
use std::net::IpAddr;

/// Two properties that cannot both hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contradiction {
    /// The properties, by their names in RFC 9622; both are the same when one property contradicts
    /// itself.
    pub properties: [&'static str; 2],
    /// What was asked of them and why it cannot be.
    pub text: &'static str,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = self.properties;
        if a == b {
            write!(f, "{a} contradicts itself: {}", self.text)
        } else {
            write!(f, "{a} contradicts {b}: {}", self.text)
        }
    }
}

impl std::error::Error for Contradiction {}

/// The local endpoint, where a contradiction is with the address given for it.
const LOCAL_ENDPOINT: &str = "local endpoint";

const fn clash(a: &'static str, b: &'static str, text: &'static str) -> Contradiction {
    Contradiction { properties: [a, b], text }
}

impl TransportProperties {
    /// Whether the properties can hold together, whatever protocols there are. What merely no
    /// protocol does today (reliable without congestion control) is no contradiction: policy
    /// reports it when it finds no candidate.
    ///
    /// # Errors
    /// The first [`Contradiction`], in a fixed order.
    ///
    /// # Spec
    /// RFC 9623 section 3.1; RFC 9622 sections 6.2, 8.1 and 9.1.3.
    pub fn check(&self, role: Role) -> Result<(), Contradiction> {
        match self.contradiction(role) {
            Some(found) => Err(found),
            None => Ok(()),
        }
    }

    /// As [`check`](Self::check), when the program binds to `local` (RFC 9622 section 6.1.4).
    ///
    /// # Errors
    /// The first [`Contradiction`].
    pub fn check_local(&self, role: Role, local: IpAddr) -> Result<(), Contradiction> {
        self.check(role)?;
        if local.is_ipv4() && self.preference(P::UseTemporaryLocalAddress, role) == Preference::Require {
            let text = "only IPv6 has temporary addresses (RFC 8981), and the local address is IPv4";
            return Err(clash(P::UseTemporaryLocalAddress.name(), LOCAL_ENDPOINT, text));
        }
        Ok(())
    }

    fn contradiction(&self, role: Role) -> Option<Contradiction> {
        self.reliability_contradiction(role)
            .or_else(|| self.direction_contradiction(role))
            .or_else(|| self.checksum_contradiction())
            .or_else(|| self.keep_alive_contradiction(role))
            .or_else(|| self.rate_contradiction())
            .or_else(|| self.interface_contradiction())
    }

    fn reliability_contradiction(&self, role: Role) -> Option<Contradiction> {
        let requires = |p| self.preference(p, role) == Preference::Require;
        let prohibits = |p| self.preference(p, role) == Preference::Prohibit;
        let explicitly_requires = |p| self.explicit_preference(p) == Some(Preference::Require);
        let message = &self.message;
        if prohibits(P::Reliability) && requires(P::PerMsgReliability) {
            let text = "reliability per message is required of a transport that must not be reliable";
            return Some(clash("reliability", "perMsgReliability", text));
        }
        if prohibits(P::Reliability) && message.reliable == Some(true) {
            let text = "messages are to be reliable on a transport that must not be";
            return Some(clash("reliability", "msgReliable", text));
        }
        // RFC 9622 section 9.1.3.7: msgReliable can only be changed where perMsgReliability was
        // obtained.
        if prohibits(P::PerMsgReliability) && message.reliable.is_some() {
            let text = "the reliability of messages is set, but reliability per message is prohibited";
            return Some(clash("perMsgReliability", "msgReliable", text));
        }
        if prohibits(P::PreserveOrder) && message.ordered == Some(true) {
            let text = "messages are to be ordered on a transport that must not keep order";
            return Some(clash("preserveOrder", "msgOrdered", text));
        }
        if explicitly_requires(P::PreserveOrder) && message.ordered == Some(false) {
            let text = "order is required, but messages need not be ordered";
            return Some(clash("preserveOrder", "msgOrdered", text));
        }
        None
    }

    fn direction_contradiction(&self, role: Role) -> Option<Contradiction> {
        let requires = |p| self.preference(p, role) == Preference::Require;
        let (receives_only, sends_only) = match self.direction() {
            Direction::Bidirectional => return None,
            Direction::UnidirectionalReceive => (true, false),
            Direction::UnidirectionalSend => (false, true),
        };
        // RFC 9622 section 6.2.18: the initiator reads first, the listener writes first; Rendezvous
        // ignores it.
        let first = P::ActiveReadBeforeSend;
        if requires(first) && ((sends_only && role == Role::Initiate) || (receives_only && role == Role::Listen)) {
            let text = "the first data would go the way that is closed";
            return Some(clash("direction", first.name(), text));
        }
        if receives_only && role == Role::Initiate && requires(P::ZeroRttMsg) {
            let text = "a message is to be sent during establishment on a connection that only receives";
            return Some(clash("direction", "zeroRttMsg", text));
        }
        if receives_only && self.connection.min_send_rate.is_some() {
            return Some(clash(
                "direction",
                "minSendRate",
                "a sending rate is needed on a connection that only receives",
            ));
        }
        if sends_only && self.connection.min_recv_rate.is_some() {
            return Some(clash(
                "direction",
                "minRecvRate",
                "a receiving rate is needed on a connection that only sends",
            ));
        }
        None
    }

    fn checksum_contradiction(&self) -> Option<Contradiction> {
        let explicitly_requires = |p| self.explicit_preference(p) == Some(Preference::Require);
        if explicitly_requires(P::FullChecksumSend) && self.message.checksum_len.is_some() {
            let text = "all data is to be covered, but messages ask for less";
            return Some(clash("fullChecksumSend", "msgChecksumLen", text));
        }
        if explicitly_requires(P::FullChecksumRecv) && self.connection.recv_checksum_len.is_some() {
            let text = "all data is to be covered, but less is to be accepted";
            return Some(clash("fullChecksumRecv", "recvChecksumLen", text));
        }
        None
    }

    fn keep_alive_contradiction(&self, role: Role) -> Option<Contradiction> {
        let interval = self.connection.keep_alive_timeout?;
        match self.preference(P::KeepAlive, role) {
            Preference::Prohibit => {
                Some(clash("keepAlive", "keepAliveTimeout", "keep-alives are prohibited and given an interval"))
            }
            // RFC 9622 section 8.1.4: an interval above connTimeout switches keep-alives off.
            Preference::Require if self.connection.timeout.is_some_and(|t| interval > t) => {
                let text = "keep-alives are required, but an interval above connTimeout switches them off";
                Some(clash("keepAliveTimeout", "connTimeout", text))
            }
            _ => None,
        }
    }

    fn rate_contradiction(&self) -> Option<Contradiction> {
        let c = &self.connection;
        let above = |min: Option<u64>, max: Option<u64>| min.zip(max).is_some_and(|(min, max)| min > max);
        if above(c.min_send_rate, c.max_send_rate) {
            return Some(clash("minSendRate", "maxSendRate", "the least rate is above the greatest"));
        }
        if above(c.min_recv_rate, c.max_recv_rate) {
            return Some(clash("minRecvRate", "maxRecvRate", "the least rate is above the greatest"));
        }
        None
    }

    /// Bounded: each set holds at most [`crate::MAX_PREFERENCES`].
    fn interface_contradiction(&self) -> Option<Contradiction> {
        for (property, set) in [("interface", self.interfaces()), ("pvd", self.pvds())] {
            let both = set.iter().any(|(p, name)| {
                *p == Preference::Require && set.iter().any(|(q, other)| *q == Preference::Prohibit && name == other)
            });
            if both {
                return Some(clash(property, property, "the same name is required and prohibited"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contradiction of the properties that `words` describe, as "a/b".
    fn found(words: &str, role: Role) -> Option<String> {
        let properties = TransportProperties::parse(words).unwrap().properties;
        properties.check(role).err().map(|c| c.properties.join("/"))
    }

    #[test]
    fn every_contradiction_names_both_properties() {
        for (words, role, expected) in [
            ("reliability=prohibit,perMsgReliability=require", Role::Initiate, "reliability/perMsgReliability"),
            ("reliability=prohibit,msgReliable=true", Role::Initiate, "reliability/msgReliable"),
            ("perMsgReliability=prohibit,msgReliable=false", Role::Initiate, "perMsgReliability/msgReliable"),
            ("preserveOrder=prohibit,msgOrdered=true", Role::Initiate, "preserveOrder/msgOrdered"),
            ("preserveOrder=require,msgOrdered=false", Role::Initiate, "preserveOrder/msgOrdered"),
            ("send-only,activeReadBeforeSend=require", Role::Initiate, "direction/activeReadBeforeSend"),
            ("receive-only,activeReadBeforeSend=require", Role::Listen, "direction/activeReadBeforeSend"),
            ("receive-only,zeroRttMsg=require", Role::Initiate, "direction/zeroRttMsg"),
            ("receive-only,minSendRate=1M", Role::Initiate, "direction/minSendRate"),
            ("send-only,minRecvRate=1M", Role::Initiate, "direction/minRecvRate"),
            ("fullChecksumSend=require,msgChecksumLen=8", Role::Initiate, "fullChecksumSend/msgChecksumLen"),
            ("fullChecksumRecv=require,recvChecksumLen=8", Role::Initiate, "fullChecksumRecv/recvChecksumLen"),
            ("keepAlive=prohibit,keepAliveTimeout=5", Role::Initiate, "keepAlive/keepAliveTimeout"),
            ("keep-alive,keepAliveTimeout=50,connTimeout=20", Role::Initiate, "keepAliveTimeout/connTimeout"),
            ("minSendRate=2M,maxSendRate=1M", Role::Initiate, "minSendRate/maxSendRate"),
            ("minRecvRate=2M,maxRecvRate=1M", Role::Initiate, "minRecvRate/maxRecvRate"),
            ("interface=require:eth0,interface=prohibit:eth0", Role::Initiate, "interface/interface"),
            ("pvd=require:a,pvd=prohibit:a", Role::Initiate, "pvd/pvd"),
        ] {
            assert_eq!(found(words, role).as_deref(), Some(expected), "{words}");
        }
    }

    #[test]
    fn what_only_no_protocol_does_is_no_contradiction() {
        for (words, role) in [
            ("", Role::Initiate),
            ("reliable,congestionControl=prohibit", Role::Initiate),
            ("unreliable,perMsgReliability=require", Role::Initiate),
            ("send-only,activeReadBeforeSend=require", Role::Listen),
            ("send-only,activeReadBeforeSend=require", Role::Rendezvous),
            ("msgOrdered=false,msgChecksumLen=8,recvChecksumLen=8", Role::Initiate),
            ("minSendRate=1M,maxSendRate=1M", Role::Initiate),
            ("keepAliveTimeout=50,connTimeout=20", Role::Initiate),
            ("interface=require:eth0,interface=prohibit:eth1", Role::Initiate),
        ] {
            assert_eq!(found(words, role), None, "{words}");
        }
    }

    #[test]
    fn a_required_temporary_address_contradicts_an_ipv4_local_address() {
        let mut p = TransportProperties::new();
        p.require(P::UseTemporaryLocalAddress);
        let v4 = p.check_local(Role::Initiate, [192, 0, 2, 1].into()).unwrap_err();
        assert_eq!(v4.properties, ["useTemporaryLocalAddress", "local endpoint"]);
        assert_eq!(p.check_local(Role::Initiate, "2001:db8::1".parse().unwrap()), Ok(()));
        p.prefer(P::UseTemporaryLocalAddress);
        assert_eq!(p.check_local(Role::Initiate, [192, 0, 2, 1].into()), Ok(()));
    }
}
