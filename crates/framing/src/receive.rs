//! The receiving side of a framed connection.

use crate::{Framer, FramerError, Input, Outbound, Readiness};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// A message or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The bytes.
    pub data: Bytes,
    /// Whether the message ends with them.
    pub end_of_message: bool,
}

/// Holds what has arrived and not been consumed, and what the framer has delivered and the program
/// not taken.
#[derive(Debug, Default)]
pub struct Receiver {
    buffer: BytesMut,
    delivered: VecDeque<Delivered>,
    earmarked: Option<(u64, bool)>,
    ended: bool,
    /// Bytes in `delivered`.
    waiting: usize,
    /// Why the framer has given up.
    failure: Option<FramerError>,
}

impl Receiver {
    /// Room for bytes from the transport.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Bytes held, in all.
    #[must_use]
    pub fn held(&self) -> usize {
        self.buffer.len() + self.waiting
    }

    /// Whether a message, or a part, is there to be taken.
    #[must_use]
    pub fn has_delivered(&self) -> bool {
        !self.delivered.is_empty()
    }

    /// Takes the next message or part.
    pub fn take(&mut self) -> Option<Delivered> {
        let d = self.delivered.pop_front()?;
        self.waiting -= d.data.len();
        Some(d)
    }

    /// Nothing more is wanted than what is there whole: the end comes behind that.
    pub fn stop(&mut self) {
        self.ended = true;
        self.buffer.clear();
        self.earmarked = None;
    }

    /// Whether the peer's direction has ended and everything was consumed: what the framer has
    /// given up on never is.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.ended && self.delivered.is_empty() && self.failure.is_none()
    }

    /// Why the framer has given up, if it has: it is not to be asked again. Messages before that
    /// can still be taken.
    #[must_use]
    pub fn failure(&self) -> Option<&FramerError> {
        self.failure.as_ref()
    }

    /// Lets the framer look at one datagram, which holds whole messages or is no good: what it
    /// leaves over is not joined to the next one. False if the datagram, or the rest of it, was no
    /// good; whole messages before that are delivered, and `cut` gets what the framer has delivered
    /// of another one.
    pub fn run_datagram(
        &mut self,
        framer: &mut dyn Framer,
        datagram: &[u8],
        out: &mut Outbound,
        cut: &mut Vec<Bytes>,
    ) -> bool {
        self.buffer.clear();
        self.buffer.extend_from_slice(datagram);
        let before = self.delivered.len();
        let run = self.run_on(framer, out, true);
        let good = run.is_ok() && self.earmarked.is_none() && self.buffer.is_empty();
        self.earmarked = None;
        self.buffer.clear();
        while self.delivered.len() > before && self.delivered.back().is_some_and(|d| !d.end_of_message) {
            // The end of this message was not in the datagram.
            if let Some(d) = self.delivered.pop_back() {
                self.waiting -= d.data.len();
                cut.push(d.data);
            }
        }
        good
    }

    /// Lets the framer look at the bytes that were appended to [`Receiver::buffer`]; `ended`: no
    /// more will come.
    ///
    /// # Errors
    /// From the framer, or when it lets more than its limit pile up without consuming any.
    pub fn run(&mut self, framer: &mut dyn Framer, ended: bool, out: &mut Outbound) -> Result<Readiness, FramerError> {
        self.ended |= ended;
        let run = self.run_on(framer, out, false);
        if let Err(e) = &run {
            self.failure = Some(e.clone());
        }
        run
    }

    fn run_on(
        &mut self,
        framer: &mut dyn Framer,
        out: &mut Outbound,
        datagram: bool,
    ) -> Result<Readiness, FramerError> {
        let mut readiness = Readiness::Ready;
        loop {
            if let Some((rest, end)) = self.earmarked.take() {
                let here = usize::try_from(rest).unwrap_or(usize::MAX).min(self.buffer.len());
                let left = rest - here as u64;
                if here > 0 {
                    let data = self.buffer.split_to(here).freeze();
                    self.waiting += data.len();
                    self.delivered.push_back(Delivered { data, end_of_message: end && left == 0 });
                }
                if left > 0 {
                    if self.ended {
                        return Err(FramerError(format!(
                            "the peer ended the stream {left} bytes before the end of a message"
                        )));
                    }
                    self.earmarked = Some((left, end));
                    return Ok(readiness);
                }
            }
            let (bytes_before, count_before) = (self.buffer.len(), self.delivered.len());
            let mut input = Input {
                buffer: &mut self.buffer,
                delivered: &mut self.delivered,
                earmarked: &mut self.earmarked,
                out,
                ended: self.ended,
                datagram,
            };
            let handled = framer.handle_received_data(&mut input);
            // What was delivered before an error can still be taken, so it counts.
            self.waiting += self.delivered.iter().skip(count_before).map(|d| d.data.len()).sum::<usize>();
            readiness = handled?;
            if self.earmarked.is_none() {
                let stuck = self.buffer.len() == bytes_before && self.delivered.len() == count_before;
                // A whole message at the limit needs its header beside it.
                if stuck && self.buffer.len() > framer.buffer_limit().saturating_add(64) {
                    return Err(FramerError(format!(
                        "no message found in {} bytes (limit {})",
                        self.buffer.len(),
                        framer.buffer_limit()
                    )));
                }
                return Ok(readiness);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FramerSpec, LengthPrefixed};

    fn frame(framer: &mut dyn Framer, message: &[u8]) -> Vec<u8> {
        let mut out = Outbound::default();
        framer.new_sent_message(&mut out, Bytes::copy_from_slice(message), true, true).expect("framed");
        out.pieces.concat()
    }

    /// Feeds `wire` in chunks of `step` and returns whole messages.
    fn receive(framer: &mut dyn Framer, wire: &[u8], step: usize) -> Result<Vec<Vec<u8>>, FramerError> {
        let (mut rx, mut messages, mut current) = (Receiver::default(), Vec::new(), Vec::new());
        let chunks = wire.chunks(step).count();
        for (i, chunk) in wire.chunks(step).enumerate() {
            rx.buffer().extend_from_slice(chunk);
            rx.run(framer, i + 1 == chunks, &mut Outbound::default())?;
            while let Some(d) = rx.take() {
                current.extend_from_slice(&d.data);
                if d.end_of_message {
                    messages.push(core::mem::take(&mut current));
                }
            }
        }
        assert_eq!(rx.held(), 0);
        Ok(messages)
    }

    #[test]
    fn messages_survive_every_chunking_and_width() {
        let messages: Vec<Vec<u8>> = vec![vec![], vec![1], vec![2; 200], vec![], vec![3; 97]];
        for width in [1, 2, 4, 8] {
            let mut tx = LengthPrefixed::new(width, 1 << 20);
            let wire: Vec<u8> = messages.iter().flat_map(|m| frame(&mut tx, m)).collect();
            for step in [1, 2, 3, 7, 64, 10_000] {
                let got = receive(&mut LengthPrefixed::new(width, 1 << 20), &wire, step).expect("parsed");
                assert_eq!(got, messages, "width {width}, step {step}");
            }
        }
    }

    #[test]
    fn a_message_over_the_buffer_limit_is_delivered_in_parts() {
        let big = vec![7; 3 << 20];
        let wire = frame(&mut LengthPrefixed::new(4, 1 << 30), &big);
        let mut rx = Receiver::default();
        let mut framer = LengthPrefixed::new(4, 1 << 30);
        let (mut total, mut ends, mut most) = (0, 0, 0);
        for chunk in wire.chunks(100_000) {
            rx.buffer().extend_from_slice(chunk);
            rx.run(&mut framer, false, &mut Outbound::default()).expect("parsed");
            most = most.max(rx.held());
            while let Some(d) = rx.take() {
                total += d.data.len();
                ends += usize::from(d.end_of_message);
            }
        }
        assert_eq!((total, ends), (big.len(), 1));
        assert!(most <= 200_000, "held {most}");
    }

    #[test]
    fn an_announced_length_over_the_limit_and_a_cut_message_are_errors() {
        let e = receive(&mut LengthPrefixed::new(4, 1000), &[0xff; 8], 8).expect_err("too long");
        assert!(e.0.contains("limit of 1000"), "{e}");
        let e = receive(&mut LengthPrefixed::new(2, 1000), &[0, 9, 1, 2], 4).expect_err("cut");
        assert!(e.0.contains("into a message"), "{e}");
        let e = receive(&mut LengthPrefixed::new(2, 1000), &[0], 1).expect_err("cut in the header");
        assert!(e.0.contains("into a message"), "{e}");
    }

    #[test]
    fn partial_sends_make_one_message() {
        let mut framer = LengthPrefixed::new(2, 100);
        let mut out = Outbound::default();
        framer.new_sent_message(&mut out, Bytes::from_static(b"ab"), true, false).expect("kept");
        assert!(out.pieces.is_empty());
        framer.new_sent_message(&mut out, Bytes::from_static(b"cd"), false, true).expect("framed");
        assert_eq!(out.pieces.concat(), b"\0\x04abcd");
        assert!(framer.new_sent_message(&mut out, Bytes::from(vec![0; 101]), true, true).is_err());
    }

    #[test]
    fn messages_before_a_broken_one_can_be_taken() {
        let mut rx = Receiver::default();
        rx.buffer().extend_from_slice(&[0, 2, b'o', b'k', 0xff, 0xff]);
        let e = rx.run(&mut LengthPrefixed::new(2, 10), false, &mut Outbound::default());
        assert!(e.is_err());
        assert_eq!(rx.take().expect("delivered").data, "ok");
        assert_eq!(rx.held(), 2, "only the broken header is left after the cursor");
    }

    #[test]
    fn a_bad_datagram_spoils_no_other() {
        let mut framer = LengthPrefixed::new(2, 100);
        let mut rx = Receiver::default();
        let mut run = |datagram: &[u8]| {
            let good = rx.run_datagram(&mut framer, datagram, &mut Outbound::default(), &mut Vec::new());
            let mut messages = Vec::new();
            while let Some(d) = rx.take() {
                assert!(d.end_of_message, "nothing but whole messages");
                messages.push(d.data);
            }
            assert_eq!(rx.held(), 0);
            (good, messages)
        };
        assert_eq!(run(b"\0\x01a"), (true, vec![Bytes::from("a")]));
        assert_eq!(run(b"\0\x09cut"), (false, vec![]), "cut short");
        assert_eq!(run(b"\0"), (false, vec![]), "cut in the length");
        assert_eq!(run(b"\xff\xffx"), (false, vec![]), "over the limit");
        assert_eq!(run(b"\0\x01b\0\x01c"), (true, vec![Bytes::from("b"), Bytes::from("c")]));
        assert_eq!(run(b"\0\x01d\0\x05e"), (false, vec![Bytes::from("d")]), "the whole ones of a cut one");
        assert_eq!(run(b"\0\x01f"), (true, vec![Bytes::from("f")]));
    }

    /// A framer that never consumes anything.
    struct Sponge;
    impl Framer for Sponge {
        fn name(&self) -> &str {
            "sponge"
        }
        fn new_sent_message(&mut self, _: &mut Outbound, _: Bytes, _: bool, _: bool) -> Result<(), FramerError> {
            Ok(())
        }
        fn handle_received_data(&mut self, _: &mut Input<'_>) -> Result<Readiness, FramerError> {
            Ok(Readiness::Ready)
        }
        fn buffer_limit(&self) -> usize {
            1000
        }
    }

    #[test]
    fn a_framer_that_finds_nothing_is_stopped_at_its_limit() {
        let mut rx = Receiver::default();
        rx.buffer().extend_from_slice(&[0; 1000]);
        assert!(rx.run(&mut Sponge, false, &mut Outbound::default()).is_ok());
        rx.buffer().extend_from_slice(&[0; 1000]);
        assert!(rx.run(&mut Sponge, false, &mut Outbound::default()).is_err());
    }

    #[test]
    fn specs_make_what_they_name() {
        assert!(FramerSpec::Raw.make().is_none());
        assert_eq!(FramerSpec::LengthPrefixed { width: 3, max: 10 }.make().expect("framer").name(), "length-prefixed");
        assert_eq!(FramerSpec::Lines { max: 10, crlf: true }.make().expect("framer").name(), "lines");
        let own = FramerSpec::Custom(Arc::new(|| Box::new(Sponge)));
        assert_eq!(own.make().expect("framer").name(), "sponge");
    }

    use std::sync::Arc;
}
