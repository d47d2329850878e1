//! Serial number arithmetic.

use core::cmp::Ordering;

/// A 32-bit sequence number that wraps, compared as RFC 1982 section 3.2 has it.
///
/// Numbers exactly 2³¹ apart have no order: [`Serial32::partial_cmp`] gives `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Serial32(pub u32);

impl Serial32 {
    /// This number plus `n`, wrapping.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The distance from `earlier` to this number, going forward.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl PartialOrd for Serial32 {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match other.since(*self) {
            0 => Some(Ordering::Equal),
            d if d < 1 << 31 => Some(Ordering::Less),
            d if d > 1 << 31 => Some(Ordering::Greater),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(Serial32(u32::MAX) < Serial32(0));
        assert!(Serial32(5) > Serial32(u32::MAX - 5));
        assert_eq!(Serial32(0).partial_cmp(&Serial32(1 << 31)), None);
        assert_eq!(Serial32(3).since(Serial32(u32::MAX)), 4);
    }
}
