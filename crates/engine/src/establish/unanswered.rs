//! Plain UDP beside stacks with a handshake.
//!
//! *Responsible for* when an attempt over UDP counts as established: it has no handshake, and would
//! win every race, whether or not its peer is there and listens (decision 0034). It is chosen when
//! every other candidate has failed, or has had its time and no peer has answered one. *Not
//! responsible for* requests that leave UDP alone: there is nothing to wait for.

use neater_base::Instant;

/// What is to become of an attempt over UDP.
pub(crate) enum Verdict {
    /// It is established.
    Now,
    /// It is looked at again, unless something happens before.
    At(Instant),
    /// A peer has answered another attempt, which wins or fails.
    Later,
}
