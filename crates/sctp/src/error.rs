//! What can go wrong, by its cause.

use core::fmt;

/// An association was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// No route was given.
    NoRoute,
    /// A route names a layer that [`crate::Config::layers`] does not have.
    NoSuchLayer,
    /// There is an association with this peer already.
    Exists,
    /// There are [`crate::Config::max_associations`] associations.
    TooMany,
    /// Port 0 is no port (RFC 9260 section 3.1).
    NoPort,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRoute => "no route to the peer was given",
            Self::NoSuchLayer => "a route leads out of a packet layer that the endpoint does not have",
            Self::Exists => "there is an association with this peer already: close it, or use another port",
            Self::TooMany => "the endpoint has as many associations as it may have",
            Self::NoPort => "port 0 cannot be connected to",
        })
    }
}

impl std::error::Error for ConnectError {}

/// A message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such association, or it is over.
    Closed,
    /// The association is being shut down.
    ShuttingDown,
    /// The send buffer is full: try again after [`crate::Event::Writable`].
    Blocked,
    /// The message has no bytes (RFC 9260 section 6.2).
    Empty,
    /// The message is longer than [`crate::AssociationConfig::max_message`], or than a packet if it
    /// must not be cut.
    TooLong {
        /// What would be taken, in bytes.
        most: usize,
    },
    /// There are not so many streams.
    NoSuchStream {
        /// How many there are.
        streams: u16,
    },
    /// The peer does not support messages that may be given up (RFC 3758).
    NotPartiallyReliable,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the association is over"),
            Self::ShuttingDown => f.write_str("the association is being shut down and takes no more messages"),
            Self::Blocked => f.write_str("the send buffer is full"),
            Self::Empty => f.write_str("a message has at least one byte"),
            Self::TooLong { most } => write!(f, "the message is too long: at most {most} bytes are taken"),
            Self::NoSuchStream { streams } => write!(f, "there are only {streams} outbound streams"),
            Self::NotPartiallyReliable => f.write_str("the peer does not support partial reliability (RFC 3758)"),
        }
    }
}

impl std::error::Error for SendError {}

/// A request about streams was not taken (RFC 6525).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReconfigError {
    /// There is no such association, or it is not established.
    NotEstablished,
    /// The peer does not support it.
    NotSupported,
    /// Another request is under way: one at a time (RFC 6525 section 5.1.1).
    Busy,
    /// There are not so many streams, or there would be too many.
    Streams,
}

impl fmt::Display for ReconfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotEstablished => "the association is not established",
            Self::NotSupported => "the peer does not support stream reconfiguration (RFC 6525)",
            Self::Busy => "a reconfiguration is under way: wait for its outcome",
            Self::Streams => "there are not so many streams, or there would be more than 65,535",
        })
    }
}

impl std::error::Error for ReconfigError {}

/// A change of addresses was not taken (RFC 5061).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// There is no such association, or it is not established.
    NotEstablished,
    /// The peer does not support it, or not with authentication.
    NotSupported,
    /// There is no such packet layer, or the peer does not know it.
    NoSuchLayer,
    /// Too many changes wait.
    TooMany,
    /// The last address cannot be removed (RFC 5061 section 5.3, F5).
    LastAddress,
    /// The layer's address is not announced ([`crate::Config::tell_addresses`]), and with more than
    /// two layers in use the one that is meant cannot be expressed: name the one to keep.
    NotExpressible,
    /// The peer cannot have this address (unspecified, loopback, multicast or broadcast), or no
    /// path leads there.
    NotUsable,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotEstablished => "the association is not established",
            Self::NotSupported => "the peer does not support dynamic addresses (RFC 5061)",
            Self::NoSuchLayer => "there is no such packet layer, or the peer does not know it",
            Self::TooMany => "too many changes of addresses wait already",
            Self::LastAddress => "an association has at least one address: add another one first",
            Self::NotExpressible => "an address that is not announced can only be removed by naming the one to keep",
            Self::NotUsable => "the peer cannot have this address, or no path leads there",
        })
    }
}

impl std::error::Error for AddressError {}
