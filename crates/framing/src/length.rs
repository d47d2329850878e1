//! The length-prefixed framer.

use crate::{Framer, FramerError, Input, Outbound, Readiness};
use bytes::{BufMut, Bytes, BytesMut};

/// Each message is preceded by its length, big-endian, in 1, 2, 4 or 8 bytes.
///
/// A message is sent whole: partial sends are gathered until their end, up to the largest message.
/// A received message longer than the buffer limit is delivered in parts.
#[derive(Debug)]
pub struct LengthPrefixed {
    width: usize,
    max: u64,
    /// Parts of a message whose end has not been sent.
    gathered: BytesMut,
}

impl LengthPrefixed {
    /// A framer with a length field of `width` bytes (rounded up to 1, 2, 4 or 8) that accepts
    /// messages of up to `max` bytes, or as many as the field can express.
    #[must_use]
    pub fn new(width: u8, max: u64) -> Self {
        let width = usize::from(width.clamp(1, 8)).next_power_of_two();
        let tellable = if width == 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
        Self { width, max: max.min(tellable), gathered: BytesMut::new() }
    }

    fn header(&self, length: u64) -> Bytes {
        let mut header = BytesMut::with_capacity(self.width);
        header.put_uint(length, self.width);
        header.freeze()
    }
}

impl Framer for LengthPrefixed {
    fn name(&self) -> &str {
        "length-prefixed"
    }

    fn new_sent_message(&mut self, out: &mut Outbound, data: Bytes, first: bool, end: bool) -> Result<(), FramerError> {
        if first {
            // A part of another message may have been taken, and the next one refused above us.
            self.gathered.clear();
        }
        let length = (self.gathered.len() + data.len()) as u64;
        if length > self.max {
            self.gathered.clear();
            return Err(FramerError(format!("a message of {length} bytes is over the framer's limit of {}", self.max)));
        }
        if first && end {
            out.send(self.header(length));
            out.send(data);
            return Ok(());
        }
        self.gathered.extend_from_slice(&data);
        if end {
            out.send(self.header(length));
            out.send(self.gathered.split().freeze());
        }
        Ok(())
    }

    fn handle_received_data(&mut self, input: &mut Input<'_>) -> Result<Readiness, FramerError> {
        while let Some(header) = input.parse().get(..self.width) {
            let length = header.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
            if length > self.max {
                return Err(FramerError(format!(
                    "the peer announces a message of {length} bytes, over the limit of {}: is it using the same framer?",
                    self.max
                )));
            }
            let here = (input.parse().len() - self.width) as u64;
            if here < length && length <= self.buffer_limit() as u64 && !input.ended() {
                return Ok(Readiness::Ready); // wait for the whole message
            }
            if here < length && input.ended() {
                break;
            }
            input.advance_receive_cursor(self.width);
            input.deliver_and_advance_receive_cursor(length, true);
            if here < length {
                return Ok(Readiness::Ready);
            }
        }
        if input.ended() && !input.parse().is_empty() {
            return Err(FramerError(format!("the peer ended the stream {} bytes into a message", input.parse().len())));
        }
        Ok(Readiness::Ready)
    }
}
