//! Targets in `crates/framing`: a byte stream from a peer, cut anywhere.

use neater_framing::{Framer, LengthPrefixed, Lines, Outbound, Receiver};

/// The messages that the framer finds in `chunks`, parts joined, and whether it refused the stream.
fn receive<'a>(framer: &mut dyn Framer, chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, bool) {
    let (mut receiver, mut out) = (Receiver::default(), Outbound::default());
    let (mut messages, mut current) = (Vec::new(), Vec::new());
    let mut given = 0;
    let mut taken = 0;
    for (chunk, ended) in chunks.map(|c| (c, false)).chain([(&[][..], true)]) {
        receiver.buffer().extend_from_slice(chunk);
        given += chunk.len();
        let refused = receiver.run(framer, ended, &mut out).is_err();
        assert!(receiver.held() + taken <= given, "more came out than went in");
        while let Some(delivered) = receiver.take() {
            taken += delivered.data.len();
            current.extend_from_slice(&delivered.data);
            if delivered.end_of_message {
                messages.push(core::mem::take(&mut current));
            }
        }
        if refused {
            return (messages, true);
        }
    }
    (messages, false)
}

/// Reads `data` as a stream: where it is cut must not matter. Then sends its pieces as messages: they must come out.
pub fn framing_length(data: &[u8]) {
    let Some((&setting, stream)) = data.split_first() else { return };
    let width = setting & 15;
    let max = if setting & 16 == 0 { u64::MAX } else { 1 << (setting >> 5) };
    let make = || LengthPrefixed::new(width, max);
    let whole = receive(&mut make(), core::iter::once(stream));
    for size in [1, 1 + usize::from(setting)] {
        assert_eq!(receive(&mut make(), stream.chunks(size)), whole, "in chunks of {size}");
    }

    let mut sender = make();
    let mut out = Outbound::default();
    let messages = stream.chunks(1 + usize::from(setting)).map(<[u8]>::to_vec);
    let sent: Vec<Vec<u8>> =
        messages.filter(|m| sender.new_sent_message(&mut out, m.clone().into(), true, true).is_ok()).collect();
    assert_eq!(receive(&mut make(), out.pieces.iter().map(|piece| &piece[..])), (sent, false));
}

/// Reads `data` as lines: where the stream is cut must not matter. Then sends its pieces as lines: those that are taken must come out.
pub fn framing_lines(data: &[u8]) {
    let Some((&setting, stream)) = data.split_first() else { return };
    let max = if setting & 1 == 0 { usize::MAX } else { usize::from(setting >> 2) };
    let make = || Lines::new(max, setting & 2 == 0);
    let whole = receive(&mut make(), core::iter::once(stream));
    assert!(whole.0.iter().all(|line| line.len() <= max && !line.contains(&b'\n')));
    for size in [1, 1 + usize::from(setting)] {
        assert_eq!(receive(&mut make(), stream.chunks(size)), whole, "in chunks of {size}");
    }

    let (mut sender, mut out) = (make(), Outbound::default());
    let messages = stream.split(|b| *b == b'\n').map(<[u8]>::to_vec);
    let sent: Vec<Vec<u8>> =
        messages.filter(|m| sender.new_sent_message(&mut out, m.clone().into(), true, true).is_ok()).collect();
    assert_eq!(receive(&mut make(), out.pieces.iter().map(|piece| &piece[..])), (sent, false));
}
