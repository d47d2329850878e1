//! Ready-made properties (RFC 9622 appendix B.2).

use crate::selection::SelectionProperty as P;
use crate::transport::TransportProperties;
use crate::value::is_name;

/// The names of the profiles.
pub const PROFILES: [&str; 3] = ["reliable-inorder-stream", "reliable-message", "unreliable-datagram"];

/// The properties of a profile, by its name in any case: `reliable-inorder-stream` (TCP's service,
/// appendix B.2.1), `reliable-message` (SCTP's, B.2.2) or `unreliable-datagram` (UDP's, B.2.3).
/// `None` when there is no such profile.
#[must_use]
pub fn profile(name: &str) -> Option<TransportProperties> {
    let mut p = TransportProperties::new();
    match PROFILES.iter().position(|known| is_name(&name.replace('_', "-"), known))? {
        0 => {
            p.require(P::Reliability).require(P::PreserveOrder).require(P::CongestionControl);
            p.no_preference(P::PreserveMsgBoundaries);
        }
        1 => {
            p.require(P::Reliability).require(P::PreserveOrder).require(P::CongestionControl);
            p.require(P::PreserveMsgBoundaries);
        }
        _ => {
            p.avoid(P::Reliability).avoid(P::PreserveOrder).no_preference(P::CongestionControl);
            p.require(P::PreserveMsgBoundaries);
            p.message.safely_replayable = true;
        }
    }
    Some(p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    #[test]
    fn the_profiles_are_those_of_the_rfc_and_compile() {
        for name in PROFILES {
            assert!(profile(name).unwrap().compile(Role::Initiate).is_ok());
        }
        assert_eq!(profile("Unreliable_Datagram"), profile("unreliable-datagram"));
        assert!(profile("unreliable-datagram").unwrap().message.safely_replayable);
        assert_eq!(
            profile("reliable-inorder-stream").unwrap().get("preserveMsgBoundaries").unwrap().to_string(),
            "No Preference"
        );
        assert_eq!(profile("reliable-message").unwrap().get("preserveMsgBoundaries").unwrap().to_string(), "Require");
        assert_eq!(profile("carrier-pigeon"), None);
    }
}
