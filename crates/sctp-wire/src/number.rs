//! The numbers of SCTP, each with a type of its own, and the order of those that wrap.

use core::cmp::Ordering;
use core::fmt;
use neater_base::Serial32;

macro_rules! serial {
    ($(#[$doc:meta])* $name:ident($int:ident) as $order:expr) => {
        $(#[$doc])*
        ///
        /// Wraps, and is compared as RFC 1982 section 3.2 has it: numbers exactly half the space
        /// apart have no order.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $int);

        impl $name {
            /// This number plus `n`, wrapping.
            #[must_use]
            pub const fn plus(self, n: $int) -> Self {
                Self(self.0.wrapping_add(n))
            }

            /// This number minus `n`, wrapping.
            #[must_use]
            pub const fn minus(self, n: $int) -> Self {
                Self(self.0.wrapping_sub(n))
            }

            /// The number after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                self.plus(1)
            }

            /// The distance from `earlier` to this number, going forward.
            #[must_use]
            pub const fn since(self, earlier: Self) -> $int {
                self.0.wrapping_sub(earlier.0)
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                let order: fn($int) -> Serial32 = $order;
                order(self.0).partial_cmp(&order(other.0))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

serial! {
    /// A transmission sequence number (RFC 9260 section 3.3.1): counts DATA and I-DATA chunks of
    /// one direction.
    Tsn(u32) as Serial32
}
serial! {
    /// A message identifier (RFC 8260 section 2.1): counts messages of one stream and direction,
    /// ordered and unordered apart.
    Mid(u32) as Serial32
}
serial! {
    /// A fragment sequence number (RFC 8260 section 2.1): counts the fragments of one message, the
    /// first being 0.
    Fsn(u32) as Serial32
}
serial! {
    /// A re-configuration request sequence number (RFC 6525 section 4.1).
    ReconfigSeq(u32) as Serial32
}
serial! {
    /// The sequence number of an address configuration change (RFC 5061 section 4.1.1).
    AsconfSerial(u32) as Serial32
}
serial! {
    /// A stream sequence number (RFC 9260 section 3.3.1): counts ordered messages of one stream and
    /// direction.
    // Numbers of 16 bits in the upper half of 32 have the order that RFC 1982 gives them.
    Ssn(u16) as |n| Serial32(u32::from(n) << 16)
}

macro_rules! plain {
    ($(#[$doc:meta])* $name:ident($int:ident)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

plain! {
    /// A stream, numbered from 0 in each direction (RFC 9260 section 3.3.1).
    StreamId(u16)
}
plain! {
    /// A payload protocol identifier: the application's, and not looked at here (RFC 9260 section
    /// 3.3.1).
    ///
    /// The wire has it big-endian; 0 means unspecified.
    Ppid(u32)
}
plain! {
    /// A verification tag or an initiate tag (RFC 9260 sections 3.1 and 5.3.1).
    Tag(u32)
}

impl Tag {
    /// The tag of a packet that carries an INIT chunk (RFC 9260 section 8.5.1).
    pub const ZERO: Self = Self(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_survives_the_wrap_in_both_widths() {
        assert!(Tsn(u32::MAX) < Tsn(0));
        assert!(Ssn(u16::MAX) < Ssn(0));
        assert!(Ssn(0x8001) > Ssn(2));
        assert_eq!(Ssn(0).partial_cmp(&Ssn(0x8000)), None);
        assert_eq!(Mid(0).partial_cmp(&Mid(1 << 31)), None);
        assert_eq!(Tsn(3).since(Tsn(u32::MAX)), 4);
        assert_eq!(Ssn(u16::MAX).next(), Ssn(0));
        assert_eq!(Tsn(0).minus(1), Tsn(u32::MAX));
    }

    proptest! {
        #[test]
        fn what_comes_less_than_half_the_space_later_is_greater(n: u32, d in 1..(1u32 << 31), m: u16, e in 1..(1u16 << 15)) {
            prop_assert!(Tsn(n).plus(d) > Tsn(n) && Tsn(n) < Tsn(n).plus(d));
            prop_assert!(Ssn(m).plus(e) > Ssn(m) && Ssn(m) < Ssn(m).plus(e));
            prop_assert_eq!(Tsn(n).plus(d).since(Tsn(n)), d);
            prop_assert_eq!(Ssn(m).plus(e).minus(e), Ssn(m));
        }
    }
}
