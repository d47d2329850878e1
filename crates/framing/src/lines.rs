//! The framer for lines.

use crate::{Framer, FramerError, Input, Outbound, Readiness};
use bytes::{BufMut, Bytes, BytesMut};

/// Each message is a line, without its end.
///
/// Lines are sent with LF, or with CR LF; both are accepted. A line is any bytes but LF, and does
/// not end in CR, which would be taken for a part of its end; it may be empty. A stream that ends
/// within a line has lost the rest of it: that is an error, and not a message.
///
/// A message is sent whole: partial sends are gathered until their end, up to the longest line.
#[derive(Debug)]
pub struct Lines {
    max: usize,
    crlf: bool,
    /// Parts of a message whose end has not been sent.
    gathered: BytesMut,
    /// So many bytes of what has arrived hold no end of a line: a line that comes byte by byte is
    /// looked through once.
    searched: usize,
}

impl Lines {
    /// A framer for lines of up to `max` bytes without their end, which is sent as CR LF if `crlf`,
    /// and as LF if not.
    #[must_use]
    pub fn new(max: usize, crlf: bool) -> Self {
        Self { max, crlf, gathered: BytesMut::new(), searched: 0 }
    }

    fn too_long(&self) -> FramerError {
        let max = self.max;
        FramerError(format!("the peer sends a line of more than {max} bytes, the limit: is it using the same framer?"))
    }

    /// What is wrong with a line that is to be sent, or with the part of it that there is.
    fn fault(&self, length: usize, part: &[u8], last: Option<u8>) -> Option<FramerError> {
        if length > self.max {
            let max = self.max;
            return Some(FramerError(format!("a line of {length} bytes is over the framer's limit of {max}")));
        }
        if part.contains(&b'\n') {
            return Some(FramerError(
                "a message with an end of line (LF) in it would be several: send each line".into(),
            ));
        }
        let text = "a message that ends in CR would lose it: the end of the line is the framer's to add";
        (last == Some(b'\r')).then(|| FramerError(text.into()))
    }
}

impl Framer for Lines {
    fn name(&self) -> &str {
        "lines"
    }

    fn new_sent_message(&mut self, out: &mut Outbound, data: Bytes, first: bool, end: bool) -> Result<(), FramerError> {
        if first {
            // A part of another message may have been taken, and the next one refused above us.
            self.gathered.clear();
        }
        let last = if end { data.last().or(self.gathered.last()).copied() } else { None };
        let length = self.gathered.len().saturating_add(data.len());
        if let Some(fault) = self.fault(length, &data, last) {
            self.gathered.clear();
            return Err(fault);
        }
        let ending = if self.crlf { &b"\r\n"[..] } else { b"\n" };
        if first && end {
            out.send(data);
            out.send(ending);
            return Ok(());
        }
        self.gathered.extend_from_slice(&data);
        if end {
            self.gathered.put_slice(ending);
            out.send(self.gathered.split().freeze());
        }
        Ok(())
    }

    fn handle_received_data(&mut self, input: &mut Input<'_>) -> Result<Readiness, FramerError> {
        // The content of another datagram is no evidence about this one.
        let mut from = if input.is_datagram() { 0 } else { core::mem::take(&mut self.searched) };
        while let Some(at) = input.parse().get(from..).and_then(|rest| rest.iter().position(|b| *b == b'\n')) {
            let end = from + at;
            let line = input.parse().get(..end).unwrap_or_default();
            let length = line.strip_suffix(b"\r").unwrap_or(line).len();
            if length > self.max {
                return Err(self.too_long());
            }
            input.deliver_and_advance_receive_cursor(length as u64, true);
            input.advance_receive_cursor(end + 1 - length);
            from = 0;
        }
        let rest = input.parse();
        // The last byte may be the first of its end.
        if rest.strip_suffix(b"\r").unwrap_or(rest).len() > self.max {
            return Err(self.too_long());
        }
        if input.ended() && !rest.is_empty() {
            return Err(FramerError(format!("the peer ended the stream {} bytes into a line", rest.len())));
        }
        self.searched = rest.len();
        Ok(Readiness::Ready)
    }

    fn buffer_limit(&self) -> usize {
        // With its end.
        self.max.saturating_add(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Receiver;

    fn receive(max: usize, wire: &[u8], step: usize) -> (Vec<Vec<u8>>, Option<String>) {
        let (mut framer, mut rx, mut out) = (Lines::new(max, false), Receiver::default(), Outbound::default());
        let mut error = None;
        for (chunk, ended) in wire.chunks(step).map(|c| (c, false)).chain([(&[][..], true)]) {
            rx.buffer().extend_from_slice(chunk);
            if let Err(e) = rx.run(&mut framer, ended, &mut out) {
                error = Some(e.0);
                break;
            }
        }
        let lines = core::iter::from_fn(|| rx.take());
        (lines.inspect(|d| assert!(d.end_of_message)).map(|d| d.data.to_vec()).collect(), error)
    }

    #[test]
    fn lines_survive_every_chunking_with_either_end() {
        let wire = b"one\r\n\ntwo\n\r\nth\rree\r\n";
        for step in 1..=wire.len() {
            let (lines, error) = receive(100, wire, step);
            assert_eq!(
                (lines, error),
                ([&b"one"[..], b"", b"two", b"", b"th\rree"].map(<[u8]>::to_vec).to_vec(), None)
            );
        }
    }

    #[test]
    fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
        for step in [1, 3, 100] {
            for end in ["\n", "\r\n"] {
                assert_eq!(receive(5, format!("12345{end}").as_bytes(), step), (vec![b"12345".to_vec()], None));
                let (lines, error) = receive(5, format!("1\n123456{end}").as_bytes(), step);
                assert_eq!(lines, [b"1"], "what came before it can be taken");
                assert!(error.is_some_and(|e| e.contains("more than 5 bytes")));
            }
            // It need not end to be too long.
            assert!(receive(5, b"123456", step).1.is_some_and(|e| e.contains("more than 5 bytes")));
        }
        assert_eq!(receive(0, b"\n\r\n", 1), (vec![Vec::new(); 2], None));
    }

    #[test]
    fn a_stream_that_ends_within_a_line_is_cut() {
        for step in [1, 100] {
            let (lines, error) = receive(100, b"whole\nhal", step);
            assert_eq!(
                (lines, error),
                (vec![b"whole".to_vec()], Some("the peer ended the stream 3 bytes into a line".into()))
            );
        }
    }

    #[test]
    fn a_line_is_sent_with_its_end_and_nothing_else_is_sent() {
        let sent = |framer: &mut Lines, parts: &[&str]| {
            let mut out = Outbound::default();
            for (i, part) in parts.iter().enumerate() {
                let data = Bytes::copy_from_slice(part.as_bytes());
                framer.new_sent_message(&mut out, data, i == 0, i + 1 == parts.len()).map_err(|e| e.0)?;
            }
            Ok::<_, String>(String::from_utf8(out.pieces.concat()).expect("text"))
        };
        let (mut lf, mut crlf) = (Lines::new(5, false), Lines::new(5, true));
        assert_eq!(sent(&mut lf, &["hello"]).as_deref(), Ok("hello\n"));
        assert_eq!(sent(&mut crlf, &["hello"]).as_deref(), Ok("hello\r\n"));
        assert_eq!(sent(&mut crlf, &["he", "", "llo"]).as_deref(), Ok("hello\r\n"));
        assert_eq!(sent(&mut lf, &[""]).as_deref(), Ok("\n"));
        assert_eq!(sent(&mut lf, &["a\r", "b"]).as_deref(), Ok("a\rb\n"));
        for (bad, why) in [
            (&["123456"][..], "over the framer's limit of 5"),
            (&["123", "456"], "over the framer's limit of 5"),
            (&["a\nb"], "would be several"),
            (&["a\n"], "would be several"),
            (&["a\r"], "ends in CR"),
            (&["a\r", ""], "ends in CR"),
        ] {
            let e = sent(&mut lf, bad).expect_err("refused");
            assert!(e.contains(why), "{bad:?}: {e}");
        }
        assert_eq!(sent(&mut lf, &["after"]).as_deref(), Ok("after\n"), "it is still usable");
    }

    #[test]
    fn a_datagram_without_an_end_spoils_no_other() {
        let (mut framer, mut rx, mut out) = (Lines::new(100, false), Receiver::default(), Outbound::default());
        let mut cut = Vec::new();
        assert!(!rx.run_datagram(&mut framer, b"no end of a line", &mut out, &mut cut));
        assert!(rx.run_datagram(&mut framer, b"a\nb\n", &mut out, &mut cut));
        let lines: Vec<_> = core::iter::from_fn(|| rx.take()).map(|d| d.data).collect();
        assert_eq!((lines, cut), (vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")], Vec::new()));
    }
}
