//! Deadlines.

use neater_base::Key;

/// What a deadline is for. A deadline whose object is gone, or no longer waits, has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The race of a connection.
    Race(Key),
    /// A connection that tries the cached outcome alone has waited long enough.
    Cached(Key),
    /// A QUIC connection.
    Quic(Key),
    /// A QUIC attempt that was withdrawn has had its time to be answered.
    Trial(Key),
    /// The resolver.
    Resolver,
    /// A channel must have finished its handshake, or its lingering.
    Channel(Key),
    /// The closing of a connection must have made progress.
    Closing(Key),
    /// A framer's handshake must be over.
    Greeting(Key),
    /// A connection may have been idle for too long.
    Idle(Key),
    /// Messages of a connection may have expired.
    Expiry(Key),
    /// A listener that could not accept tries again.
    Accept(Key),
    /// The rate of a connection may allow more.
    Rate(Key),
    /// Somebody who waits for room in a connection wants to look, whether there is any or not.
    Look(Key),
    /// A QUIC connection may have been silent for too long.
    Silence(Key),
    /// The associations of an SCTP port.
    Sctp(Key),
    /// An SCTP attempt that was withdrawn has had its time to be answered.
    SctpTrial(Key),
    /// An SCTP port that nobody uses has answered for long enough.
    SctpEnd(Key),
    /// The connections that policies want to know of.
    Flows,
    /// A name that the program was asked for.
    ExternalNames,
    /// A DTLS session.
    Dtls(Key),
    /// DTLS clients of a listener's socket that have not proved their address are forgotten.
    DtlsUnverified(Key),
    /// A DTLS client must have finished its handshake with a listener.
    DtlsIncoming(Key),
}
