//! Names of the engine's objects, and the tokens of its sockets.

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
    Channel(Key),
    QuicSocket(Key),
    Resolver(u32),
    SctpSocket(Key),
}

const TAG: u32 = 62;

impl SocketId {
    pub(crate) const fn token(self) -> Token {
        Token(match self {
            Self::Channel(k) => k.to_bits(),
            Self::QuicSocket(k) => 1 << TAG | k.to_bits(),
            Self::Resolver(t) => 2 << TAG | t as u64,
            Self::SctpSocket(k) => 3 << TAG | k.to_bits(),
        })
    }

    #[inline]
    pub(crate) const fn of(token: Token) -> Option<Self> {
        let bits = token.0 & ((1 << TAG) - 1);
        // Most are.
        if bits == token.0 {
            return Some(Self::Channel(Key::from_bits(bits)));
        }
        match token.0 >> TAG {
            1 => Some(Self::QuicSocket(Key::from_bits(bits))),
            2 => Some(Self::Resolver(bits as u32)),
            3 => Some(Self::SctpSocket(Key::from_bits(bits))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_their_owner() {
        let key = Key::from_bits(0x3fff_ffff_0000_0007);
        for owner in
            [SocketId::Channel(key), SocketId::QuicSocket(key), SocketId::Resolver(u32::MAX), SocketId::SctpSocket(key)]
        {
            assert_eq!(SocketId::of(owner.token()), Some(owner));
        }
    }
}
