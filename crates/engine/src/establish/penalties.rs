//! What establishments teach: which candidates were no good, so that the next race puts them back.
//!
//! *Responsible for* deciding what counts against a candidate. It does where something else has
//! won, so that it is the candidate and not the network, and while the host is still attached to
//! the same network; trouble of this host's own (descriptors, buffers, ports) counts against no
//! candidate. *Not responsible for* how long that is remembered, nor for what a race makes of it
//! (`neater-race`).

use crate::Stack;
use crate::carrier::SessionId;
use crate::measured::Tried;
use crate::request::Compiled;
use core::num::NonZeroU64;
use core::time::Duration;
use neater_base::Instant;
use neater_race::{BadCause, CacheKey, PathId, Penalty, StackId};
use std::net::SocketAddr;
use std::sync::Arc;

/// How long a peer has to answer before its silence counts against it: as long as TCP and QUIC
/// themselves wait before they doubt that a packet has arrived (RFC 6298 section 2, RFC 9002
/// section 6.2.2: 1 s each). A path of 400 ms, or a lost answer on a shorter one, needs most of it;
/// the attempt delay, which only starts the next candidate, would condemn them all.
pub(crate) const FAIR_TIME: Duration = Duration::from_secs(1);

/// Attempts that were withdrawn before their time: they are closed, but an answer that is under way
/// is still reported by their carriers.
#[derive(Debug, Default)]
pub(crate) struct Trials(pub(crate) Vec<(SessionId, Trial)>);

impl Trials {
    /// The trial of a withdrawn attempt, which is over.
    pub(crate) fn take(&mut self, session: SessionId) -> Option<Trial> {
        let at = self.0.iter().position(|(of, _)| *of == session)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// An attempt that was withdrawn before its time.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) network: NonZeroU64,
    pub(crate) key: CacheKey,
    pub(crate) penalty: Penalty,
    /// Where it was tried, for policies that want to know.
    pub(crate) tried: Option<Box<Tried>>,
    /// What was asked for.
    pub(crate) request: Arc<Compiled>,
}

/// What a race that was won teaches about the others.
#[derive(Debug, Default)]
pub(crate) struct Penalties {
    /// What has got through.
    pub(crate) won: Option<(CacheKey, StackId, SocketAddr)>,
    /// How long its peer took to its first answer.
    pub(crate) answered_after: Option<Duration>,
    /// Which remote endpoint was reached, and by which interface if the connection is bound to one.
    pub(crate) by: Option<(usize, Option<u32>)>,
    pub(crate) now: Vec<(CacheKey, Penalty, PathId)>,
    /// Remote endpoint and interface of each path, as for `by`.
    pub(crate) paths: Vec<(usize, Option<u32>)>,
    /// Attempts whose time is up later.
    pub(crate) trials: Vec<(SessionId, CacheKey, Penalty, PathId, Instant)>,
}

/// The penalty of a candidate that lost. A winner by the same path shows what is not to blame.
pub(crate) fn penalty(stack: Stack, addr: SocketAddr, cause: BadCause, winner: Option<(Stack, SocketAddr)>) -> Penalty {
    let silent = cause == BadCause::Silent;
    Penalty {
        suspect_group: silent && winner.is_none_or(|w| stack.may_be_blocked() != w.0.may_be_blocked()),
        suspect_family: silent && winner.is_none_or(|w| addr.is_ipv4() != w.1.is_ipv4()),
        ..Penalty::new(StackId(stack as u16), addr, cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_winner_shares_with_a_silent_candidate_is_not_suspected() {
        let v6: SocketAddr = "[2001:db8::1]:443".parse().unwrap();
        let v4: SocketAddr = "192.0.2.1:443".parse().unwrap();
        let suspected = |stack, addr, cause, winner| {
            let l = penalty(stack, addr, cause, Some(winner));
            (l.suspect_group, l.suspect_family)
        };
        let silent = BadCause::Silent;
        assert_eq!(suspected(Stack::Quic, v6, silent, (Stack::Tls, v4)), (true, true));
        assert_eq!(suspected(Stack::Quic, v6, silent, (Stack::Quic, v4)), (false, true));
        assert_eq!(suspected(Stack::Quic, v4, silent, (Stack::Tls, v4)), (true, false));
        assert_eq!(suspected(Stack::Quic, v6, BadCause::Failed, (Stack::Tls, v4)), (false, false));
        let elsewhere = penalty(Stack::Quic, v4, silent, None);
        assert!(elsewhere.suspect_group && elsewhere.suspect_family, "a winner by another path shows nothing");
    }
}
