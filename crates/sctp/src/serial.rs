//! Numbers of the wire, continued to 64 bits so that nothing inside the association wraps.

/// The 64-bit form of an initial number: high enough that a few steps back do not go below zero.
pub(crate) const fn first(wire: u32) -> u64 {
    (1 << 32) + wire as u64
}

/// The 64-bit number nearest to `near` whose low 32 bits are `wire` (RFC 1982 section 3.2: half the
/// circle each way).
pub(crate) const fn unwrap32(near: u64, wire: u32) -> u64 {
    near.wrapping_add_signed((wire.wrapping_sub(near as u32)) as i32 as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_continue_over_the_wrap_in_both_directions() {
        let near = first(u32::MAX - 1);
        assert_eq!(unwrap32(near, u32::MAX), near + 1);
        assert_eq!(unwrap32(near, 3), near + 5);
        assert_eq!(unwrap32(near + 5, u32::MAX - 1), near);
        assert_eq!(unwrap32(first(0), u32::MAX), first(0) - 1);
    }
}
