//! Names of the engine's objects, and the tokens of its sockets.

use crate::carrier::ids::CarrierSocket;
use neater_base::Key;
use neater_base::net::Token;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub(crate) Key);

        impl $name {
            /// The slot: small and dense, fit to index a side table.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0.index()
            }
            /// The id as a number, for foreign interfaces.
            #[must_use]
            pub const fn to_bits(self) -> u64 {
                self.0.to_bits()
            }
            /// The id of that number; one that names nothing finds nothing.
            #[must_use]
            pub const fn from_bits(bits: u64) -> Self {
                Self(Key::from_bits(bits))
            }
        }
    };
}

id!(
    /// Names a connection of one engine.
    ConnectionId
);
id!(
    /// Names a listener of one engine.
    ListenerId
);
id!(
    /// Names a connection group of one engine.
    GroupId
);

/// Names a message handed to `send`; counts up from 1 on each connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(pub u64);

/// What a socket belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketId {
    Carrier(CarrierSocket),
    Resolver(u32),
}

impl SocketId {
    pub(crate) const fn token(self) -> Token {
        match self {
            Self::Carrier(socket) => socket.token(),
            Self::Resolver(t) => Token(CarrierSocket::FREE | t as u64),
        }
    }

    #[inline]
    pub(crate) const fn of(token: Token) -> Option<Self> {
        match CarrierSocket::of(token) {
            Some(socket) => Some(Self::Carrier(socket)),
            None if token.0 & CarrierSocket::FREE == CarrierSocket::FREE => Some(Self::Resolver(token.0 as u32)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_their_owner() {
        let key = Key::from_bits(0x3fff_ffff_0000_0007);
        for owner in [SocketId::Carrier(CarrierSocket::channel(key)), SocketId::Resolver(u32::MAX)] {
            assert_eq!(SocketId::of(owner.token()), Some(owner));
        }
    }
}
