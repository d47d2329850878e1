//! A number that stands for a canonical form.

/// FNV-1a over 64 bits: the same bytes give the same number on every machine and in every release,
/// so that it may be written to a cache file. It is no protection against an attacker who wants two
/// forms to collide.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Adds one byte.
    pub const fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) {
        number.to_le_bytes().into_iter().for_each(|b| self.byte(b));
    }

    /// Adds a text and its length, so that no two sequences of texts look alike.
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        text.bytes().for_each(|b| self.byte(b));
    }

    /// The number.
    #[must_use]
    pub const fn finish(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fnv_1a() {
        let mut f = Fingerprint::default();
        assert_eq!(f.finish(), 0xcbf2_9ce4_8422_2325);
        b"foobar".iter().for_each(|b| f.byte(*b));
        assert_eq!(f.finish(), 0x85944171f73967e8, "the published test vector for \"foobar\"");
    }
}
