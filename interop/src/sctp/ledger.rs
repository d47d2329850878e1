//! Which messages were sent, and which arrived: every byte is accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// The bytes of message `number`, as `fill` in `c/sctp_peer.c` makes them.
#[must_use]
pub fn fill(number: u32, len: usize) -> Vec<u8> {
    let mut x = number.wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The 64-bit FNV-1a hash of `bytes`.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Messages to be sent: what the peer's command `send` says.
#[derive(Clone, Debug)]
pub struct Batch {
    /// How many.
    pub count: u32,
    /// On streams 0 to this, excluded, in turn.
    pub streams: u16,
    /// How long each is, in bytes.
    pub sizes: RangeInclusive<u32>,
    /// Without order.
    pub unordered: bool,
    /// `none`, `ttl MS` or `rtx N`: how hard to try.
    pub policy: String,
}

impl Batch {
    /// Ordered and reliable messages.
    #[must_use]
    pub fn reliable(count: u32, streams: u16, sizes: RangeInclusive<u32>) -> Self {
        Self { count, streams, sizes, unordered: false, policy: "none".to_owned() }
    }

    /// The peer's command for it.
    #[must_use]
    pub fn command(&self) -> String {
        let order = if self.unordered { 'u' } else { 'o' };
        let policy = if self.policy == "none" { "none 0" } else { &self.policy };
        format!("send {} {} {}-{} {order} {policy}\n", self.count, self.streams, self.sizes.start(), self.sizes.end())
    }

    /// The stream of a message.
    #[must_use]
    pub fn stream(&self, number: u32) -> u16 {
        (number % u32::from(self.streams)) as u16
    }

    /// The length of a message.
    #[must_use]
    pub fn size(&self, number: u32) -> usize {
        let (from, to) = (u64::from(*self.sizes.start()), u64::from(*self.sizes.end()));
        (from + u64::from(number) * 7919 % (to - from + 1)) as usize
    }
}

/// A message that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number, which is its payload protocol identifier.
    pub number: u32,
    /// Its stream.
    pub stream: u16,
    /// It came as an unordered one.
    pub unordered: bool,
    /// Its length.
    pub size: usize,
    /// Its hash.
    pub hash: u64,
}

/// What was sent in one direction, and what has arrived of it.
#[derive(Debug)]
pub struct Ledger {
    next: u32,
    /// By number; and whether it may be given up.
    expected: BTreeMap<u32, (Received, bool)>,
    arrived: BTreeSet<u32>,
    last: BTreeMap<u16, u32>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { next: 1, expected: BTreeMap::new(), arrived: BTreeSet::new(), last: BTreeMap::new() }
    }
}

impl Ledger {
    /// Notes a batch that is to be sent, and returns the numbers of its messages.
    pub fn expect(&mut self, batch: &Batch) -> std::ops::Range<u32> {
        let numbers = self.next..self.next + batch.count;
        for number in numbers.clone() {
            let size = batch.size(number);
            let (stream, unordered) = (batch.stream(number), batch.unordered);
            let message = Received { number, stream, unordered, size, hash: hash(&fill(number, size)) };
            self.expected.insert(number, (message, batch.policy != "none"));
        }
        self.next = numbers.end;
        numbers
    }

    /// Notes that a message has arrived.
    ///
    /// # Panics
    /// If it was not sent, is not what was sent, has arrived before, or is out of order.
    pub fn arrive(&mut self, message: &Received) {
        let Some((expected, _)) = self.expected.get(&message.number) else { panic!("nobody sent {message:?}") };
        assert_eq!(message, expected, "what arrives is not what was sent");
        assert!(self.arrived.insert(message.number), "{message:?} arrives twice");
        if !message.unordered {
            let last = self.last.insert(message.stream, message.number);
            assert!(last < Some(message.number), "{message:?} arrives after {last:?}");
        }
    }

    /// Expects nothing of what was to come any more, and begins no number again.
    pub fn forget(&mut self) {
        self.expected.clear();
        self.arrived.clear();
        self.last.clear();
    }

    /// How many have arrived.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.arrived.len()
    }

    /// Whether all have arrived that may not be given up.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing().next().is_none()
    }

    /// The numbers of those that have not arrived and may not be given up.
    pub fn missing(&self) -> impl Iterator<Item = u32> {
        self.expected.values().filter(|(m, may)| !may && !self.arrived.contains(&m.number)).map(|(m, _)| m.number)
    }

    /// The numbers of those that have not arrived and may be given up.
    pub fn given_up(&self) -> impl Iterator<Item = u32> {
        self.expected.values().filter(|(m, may)| *may && !self.arrived.contains(&m.number)).map(|(m, _)| m.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_hashes_are_those_of_the_peer() {
        // Printed by `c/sctp_peer.c`: message 1 with 10 bytes and message 1 with 5,000.
        assert_eq!(hash(&fill(1, 10)), 0xfd1e_1b08_0f46_aaf2);
        assert_eq!(hash(&fill(1, 5000)), 0xc3ca_7432_5019_6133);
    }

    #[test]
    fn what_is_missing_is_told_apart_from_what_may_be() {
        let mut ledger = Ledger::default();
        let reliable = Batch::reliable(2, 1, 5..=5);
        let fleeting = Batch { policy: "ttl 10".to_owned(), ..reliable.clone() };
        assert_eq!((ledger.expect(&reliable), ledger.expect(&fleeting)), (1..3, 3..5));
        let first = ledger.expected[&1].0.clone();
        ledger.arrive(&first);
        assert_eq!((ledger.missing().collect::<Vec<_>>(), ledger.given_up().count()), (vec![2], 2));
        assert_eq!(reliable.command(), "send 2 1 5-5 o none 0\n");
        assert_eq!(fleeting.command(), "send 2 1 5-5 o ttl 10\n");
    }

    #[test]
    #[should_panic(expected = "arrives twice")]
    fn a_duplicate_is_noticed() {
        let mut ledger = Ledger::default();
        ledger.expect(&Batch { unordered: true, ..Batch::reliable(1, 1, 5..=5) });
        let message = ledger.expected[&1].0.clone();
        ledger.arrive(&message);
        ledger.arrive(&message);
    }

    #[test]
    #[should_panic(expected = "arrives after")]
    fn disorder_is_noticed() {
        let mut ledger = Ledger::default();
        ledger.expect(&Batch::reliable(2, 1, 5..=5));
        for number in [2, 1] {
            let message = ledger.expected[&number].0.clone();
            ledger.arrive(&message);
        }
    }
}
