//! Deadlines.

use crate::carrier::ids::CarrierTimer;
use neater_base::Key;

/// What a deadline is for. A deadline whose object is gone, or no longer waits, has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// What a carrier waits for.
    Carrier(CarrierTimer),
    /// The race of a connection.
    Race(Key),
    /// A connection that tries the cached outcome alone has waited long enough.
    Cached(Key),
    /// The resolver.
    Resolver,
    /// The closing of a connection must have made progress.
    Closing(Key),
    /// A framer's handshake must be over.
    FramerHandshake(Key),
    /// A connection may have been idle for too long.
    Idle(Key),
    /// Messages of a connection may have expired.
    Expiry(Key),
    /// A listener that could not accept tries again.
    Accept(Key),
    /// The rate of a connection may allow more.
    Rate(Key),
    /// A task that waits for room in a connection is to look, whether there is any or not.
    Look(Key),
    /// The connections that policies want to know of.
    Flows,
    /// A name that the program was asked for.
    ExternalNames,
}
