//! How often a connection that is over answers the packets that still arrive (RFC 9000 section
//! 10.2.1).
//!
//! quinn-proto (0.11) repeats CONNECTION_CLOSE for every packet that it accepts, and a closing
//! connection accepts packets that take no key, as Retry and Version Negotiation are, or a key that
//! every observer can compute, as that of Initial packets is. A client that closes during its
//! handshake would send 1,200 bytes for each of 40.
//!
//! *Invariants*: the first CONNECTION_CLOSE leaves at once. The n-th repetition takes twice as many
//! packets as the one before it, and all repetitions together have at most [`AMPLIFICATION`] times
//! the bytes that have arrived since the close.

/// A peer whose address is not validated is sent at most this many times the bytes that came from
/// it (RFC 9000 section 8.1).
const AMPLIFICATION: u64 = 3;
/// Datagrams of one answer: CONNECTION_CLOSE may be sent in each packet number space (RFC 9000
/// section 10.2.3), and a challenge for a former path may come first.
const DATAGRAMS: u8 = 4;

/// Counts what arrives at a connection that is over, and decides when it may answer.
#[derive(Debug)]
pub(crate) struct Closing {
    /// Datagrams that may leave now.
    permits: u8,
    /// Some have left of this answer.
    begun: bool,
    /// No answer is complete yet: CONNECTION_CLOSE is sent for the first time.
    first: bool,
    /// Datagrams that have arrived since the last answer.
    arrived: u64,
    /// The number of them that is worth the next one.
    needed: u64,
    /// Bytes that have arrived since the close.
    received: u64,
    /// Bytes of all repetitions.
    repeated: u64,
    /// Bytes of the last answer, or of this one if it has begun: the next one is taken to have as
    /// many.
    last: u64,
}

impl Closing {
    pub(crate) const fn new() -> Self {
        Self { permits: DATAGRAMS, begun: false, first: true, arrived: 0, needed: 1, received: 0, repeated: 0, last: 0 }
    }

    /// A datagram has arrived.
    pub(crate) fn on_received(&mut self, bytes: usize) {
        self.arrived += 1;
        self.received += bytes as u64;
        if self.permits == 0 && self.arrived >= self.needed {
            self.permits = DATAGRAMS;
        }
    }

    /// Whether a datagram may leave.
    pub(crate) const fn may_send(&self) -> bool {
        let fits = self.repeated + self.last <= AMPLIFICATION * self.received;
        self.permits > 0 && (self.first || self.begun || fits)
    }

    /// A datagram has left; `None`: there was none.
    pub(crate) fn on_sent(&mut self, bytes: Option<usize>) {
        if let Some(bytes) = bytes {
            let bytes = bytes as u64;
            self.last = if self.begun { self.last + bytes } else { bytes };
            self.begun = true;
            self.permits = self.permits.saturating_sub(1);
            self.repeated += if self.first { 0 } else { bytes };
        }
        // An answer that has not begun may yet: a server may have to wait for more bytes before it
        // may send any.
        if self.begun && (bytes.is_none() || self.permits == 0) {
            self.needed = if self.first { 1 } else { self.needed.saturating_mul(2) };
            (self.permits, self.arrived, self.begun, self.first) = (0, 0, false, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends so many datagrams of `size` bytes to a connection that answers each with `answer`, if
    /// it may. Returns after how many it did.
    fn flood(closing: &mut Closing, packets: usize, size: usize, answer: usize) -> Vec<usize> {
        let mut answered = Vec::new();
        for n in 1..=packets {
            closing.on_received(size);
            if closing.may_send() {
                closing.on_sent(Some(answer));
                if closing.may_send() {
                    closing.on_sent(None);
                }
                answered.push(n);
            }
        }
        answered
    }

    fn closed(close: usize) -> Closing {
        let mut closing = Closing::new();
        assert!(closing.may_send());
        closing.on_sent(Some(close));
        closing.on_sent(None);
        assert!(!closing.may_send());
        closing
    }

    #[test]
    fn every_answer_takes_twice_as_many_packets() {
        assert_eq!(flood(&mut closed(60), 64, 1200, 60), [1, 3, 7, 15, 31, 63]);
    }

    #[test]
    fn answers_have_at_most_three_times_the_bytes_that_came() {
        // 400 bytes for the first, 400 more for the second.
        assert_eq!(flood(&mut closed(1200), 45, 40, 1200), [10, 20, 30, 40]);
        assert_eq!(flood(&mut closed(1200), 200_000, 40, 1200).len(), 17);
    }

    #[test]
    fn a_close_that_may_not_leave_yet_is_not_forgotten() {
        let mut closing = Closing::new();
        for _ in 0..10 {
            assert!(closing.may_send());
            closing.on_sent(None);
        }
        closing.on_sent(Some(1200));
        assert!(closing.may_send(), "in another packet number space, perhaps");
        closing.on_sent(None);
        assert!(!closing.may_send());
    }

    #[test]
    fn one_answer_has_an_end() {
        let mut closing = Closing::new();
        let mut sent = 0;
        while closing.may_send() {
            closing.on_sent(Some(1200));
            sent += 1;
        }
        assert_eq!(sent, usize::from(DATAGRAMS));
    }
}
