//! Reading stream by stream: order, the window, resets, messages that come in parts, and streams
//! that are not read.

use crate::support::raw::{FIRST, Raw};
use crate::support::watch::reports;
use crate::support::{World, ms};
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{AssociationConfig, AssociationId, CloseReason, Event, Extensions, Message, SendOptions, StreamUse};
use neater_sctp_wire::chunk::{Abort, Data, ForwardTsn, IData, IForwardTsn, Part, ReConfig, Skipped, SkippedMessage};
use neater_sctp_wire::parameter::{ForwardTsnSupported, OutgoingReset, SupportedExtensions};
use neater_sctp_wire::{Array, Causes, Fsn, Mid, Parameters, Ppid, ReconfigSeq, Ssn, StreamId, Tsn};

/// The receive buffer of the server.
const BUFFER: u32 = 20_000;
/// What is charged for a message beside its bytes.
const OVERHEAD: usize = 64;
const WORD: Ppid = Ppid(77);

/// A client made by hand that numbers its chunks.
struct Peer {
    raw: Raw,
    id: AssociationId,
    tsn: u32,
    resets: u32,
}

impl Peer {
    fn new(interleaving: bool) -> Self {
        let config = AssociationConfig {
            receive_buffer: BUFFER,
            inbound_streams: 1000,
            heartbeat_interval: None,
            extensions: Extensions {
                partial_reliability: true,
                reconfiguration: true,
                interleaving,
                ..Extensions::NONE
            },
            ..AssociationConfig::rfc9260()
        };
        let kinds = [ReConfig::KIND, ForwardTsn::KIND, IData::KIND, IForwardTsn::KIND];
        let kinds = if interleaving { &kinds[..] } else { &kinds[..2] };
        let list = [ForwardTsnSupported.into(), SupportedExtensions(kinds).into()];
        let raw = Raw::connected_with(config, Parameters::new(&list));
        let id = raw.id.unwrap();
        Self { raw, id, tsn: FIRST, resets: 0 }
    }

    /// A whole ordered message in a DATA chunk.
    fn say(&mut self, stream: u16, ssn: u16, payload: &[u8]) {
        self.raw.chunk(&Data { payload, ..Data::whole(Tsn(self.tsn), StreamId(stream), Ssn(ssn), Ppid(0)) });
        self.tsn += 1;
    }

    /// A fragment in an I-DATA chunk.
    fn piece(&mut self, stream: u16, unordered: bool, (mid, fsn): (u32, u32), ending: bool, payload: &[u8]) {
        self.with_ppid(Ppid(0), stream, unordered, (mid, fsn), ending, payload);
    }

    fn with_ppid(
        &mut self,
        ppid: Ppid,
        stream: u16,
        unordered: bool,
        (mid, fsn): (u32, u32),
        ending: bool,
        payload: &[u8],
    ) {
        let part = if fsn == 0 { Part::First(ppid) } else { Part::Later(Fsn(fsn)) };
        let (tsn, stream, mid) = (Tsn(self.tsn), StreamId(stream), Mid(mid));
        self.raw.chunk(&IData { tsn, stream, mid, part, immediate: false, unordered, ending, payload });
        self.tsn += 1;
    }

    /// Resets its streams after everything that it has sent.
    fn reset(&mut self, streams: &[StreamId]) {
        let request = OutgoingReset {
            request: ReconfigSeq(FIRST + self.resets),
            response: ReconfigSeq(self.raw.initial.0.wrapping_sub(1)),
            last_tsn: Tsn(self.tsn - 1),
            streams: Array::new(streams),
        };
        self.raw.chunk(&ReConfig { parameters: Parameters::new(&[request.into()]) });
        self.resets += 1;
    }

    fn next(&mut self, stream: u16, reset: u32) -> Option<Message> {
        self.raw.server.receive_from(self.id, of(stream, reset))
    }

    /// Everything of a stream.
    fn read(&mut self, stream: u16, reset: u32) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| self.next(stream, reset)).map(|m| m.payload).collect()
    }

    fn readable(&mut self) -> Vec<(u16, u32)> {
        core::iter::from_fn(|| self.raw.server.next_readable(self.id)).map(|s| (s.stream.0, s.reset)).collect()
    }

    fn has_unread(&self, stream: u16, reset: u32) -> bool {
        self.raw.server.has_unread(self.id, of(stream, reset))
    }

    /// The window that the last SACK chunk of those that are sent now advertises.
    fn window(&mut self) -> Option<u32> {
        reports(&self.raw.take()).pop().map(|r| r.window)
    }

    /// The same, of one that must come.
    fn next_window(&mut self) -> u32 {
        reports(&self.raw.wait(ms(300))).pop().expect("what was received is acknowledged").window
    }
}

fn of(stream: u16, reset: u32) -> StreamUse {
    StreamUse { stream: StreamId(stream), reset }
}

#[test]
fn each_stream_is_read_in_its_order_whatever_is_unread_on_others() {
    let mut p = Peer::new(false);
    p.say(1, 0, b"one 0");
    p.say(2, 1, b"two 1");
    p.say(3, 0, b"three 0");
    p.say(1, 1, b"one 1");
    assert!(p.next(4, 0).is_none() && p.next(2, 0).is_none(), "there is none, and its turn has not come");
    assert_eq!(p.read(3, 0), [b"three 0"]);
    p.say(2, 0, b"two 0");
    assert_eq!(p.read(2, 0), [b"two 0", b"two 1"]);
    p.say(1, 2, b"one 2");
    assert_eq!(p.next(1, 0).map(|m| m.payload), Some(b"one 0".to_vec()));
    assert_eq!(p.read(1, 0), [b"one 1", b"one 2"]);
    assert_eq!(p.raw.server.unread(), 0);
    // Without streams everything comes in the order of arrival.
    p.say(5, 0, b"a");
    p.say(4, 0, b"b");
    p.say(5, 1, b"c");
    assert_eq!(
        p.raw.read().into_iter().map(|m| (m.stream.0, m.payload[0])).collect::<Vec<_>>(),
        [(5, b'a'), (4, b'b'), (5, b'c')]
    );
}

#[test]
fn a_message_can_be_looked_at_before_it_is_taken() {
    let mut p = Peer::new(false);
    assert_eq!(p.raw.server.peek(p.id, of(1, 0)), None);
    let first = Data::whole(Tsn(FIRST), StreamId(1), Ssn(0), Ppid(9));
    p.raw.chunk(&Data { payload: b"first", ..first });
    p.tsn += 1;
    p.say(1, 1, b"second");
    let peek = |p: &Peer| p.raw.server.peek(p.id, of(1, 0)).map(|m| (m.ppid, m.payload.clone()));
    assert_eq!(peek(&p), Some((Ppid(9), b"first".to_vec())));
    assert_eq!(peek(&p), Some((Ppid(9), b"first".to_vec())), "it is still there");
    assert!(p.next(1, 0).is_some() && p.has_unread(1, 0));
    assert_eq!(peek(&p), Some((Ppid(0), b"second".to_vec())));
    assert!(p.next(1, 0).is_some() && !p.has_unread(1, 0) && peek(&p).is_none());
}

#[test]
fn a_stream_is_reported_once_until_it_has_nothing_in_the_order_of_arrival() {
    let mut p = Peer::new(false);
    for (stream, ssn) in [(7, 0), (3, 0), (7, 1), (90, 0), (3, 1)] {
        p.say(stream, ssn, b"x");
    }
    assert_eq!(p.raw.events(), [Event::Readable]);
    assert_eq!(p.readable(), [(7, 0), (3, 0), (90, 0)]);
    assert!(p.readable().is_empty());
    // It is known that there is something to read: more of it is no news, on another stream it is.
    p.say(7, 2, b"x");
    assert_eq!((p.raw.events(), p.readable()), (vec![], vec![]));
    p.say(8, 0, b"x");
    assert_eq!((p.raw.events(), p.readable()), (vec![Event::Readable], vec![(8, 0)]));
    // Read, but not to the end.
    assert!(p.next(7, 0).is_some());
    p.say(7, 3, b"x");
    assert!(p.readable().is_empty());
    assert_eq!(p.read(7, 0).len(), 3);
    p.say(7, 4, b"x");
    assert_eq!((p.raw.events(), p.readable()), (vec![Event::Readable], vec![(7, 0)]));
    // What was read or thrown away before it was reported is not reported.
    p.read(3, 0);
    p.say(3, 2, b"x");
    p.say(4, 0, b"x");
    p.say(5, 0, b"x");
    p.read(3, 0);
    p.raw.server.discard(p.id, of(4, 0));
    assert_eq!(p.readable(), [(5, 0)]);
}

#[test]
fn thousands_of_streams_are_reported_and_read_without_looking_at_the_others() {
    let association = AssociationConfig { outbound_streams: 5000, ..AssociationConfig::default() };
    let mut w = World::new(1, association, LinkConfig::delay(ms(10)));
    let [a, b] = w.established();
    let mut expected = Vec::new();
    for i in 0..5000u32 {
        let stream = (i * 1237 % 5000) as u16;
        w.send(0, a, stream, &[stream as u8; 3]);
        expected.push(of(stream, 0));
    }
    let mut found = Vec::new();
    for _ in 0..100 {
        w.run(ms(30));
        found.extend(core::iter::from_fn(|| w.ends[1].next_readable(b)));
    }
    assert_eq!(found, expected, "each once, in the order of arrival");
    for from in found.into_iter().rev() {
        assert_eq!(w.ends[1].receive_from(b, from).map(|m| m.payload), Some(vec![from.stream.0 as u8; 3]));
    }
    assert_eq!(w.ends[1].unread(), 0);
}

#[test]
fn what_is_unread_on_one_stream_closes_the_window_and_taking_it_opens_it() {
    let mut p = Peer::new(false);
    let message = [5; 1000];
    for ssn in 0..16 {
        p.say(1, ssn, &message);
    }
    let full = 16 * (message.len() + OVERHEAD);
    assert_eq!((p.raw.server.unread(), p.next_window()), (full, BUFFER - full as u32));
    // What is read on another stream makes no difference.
    p.say(2, 0, &message);
    p.say(2, 1, &message);
    assert_eq!(p.next_window(), 0, "too little to be worth advertising");
    assert_eq!(p.read(2, 0).len(), 2);
    assert_eq!((p.window(), p.raw.server.unread()), (None, full));
    // Nor a little of this one; when it is a quarter of the buffer, a SACK chunk is sent at once.
    p.next(1, 0);
    assert_eq!(p.window(), None);
    p.next(1, 0);
    assert_eq!(p.window(), Some(BUFFER - (full - 2 * (message.len() + OVERHEAD)) as u32));
    p.read(1, 0);
    assert_eq!((p.window(), p.raw.server.unread()), (None, 0), "it was not closed any more");
}

#[test]
fn a_stream_that_is_discarded_takes_no_room_until_the_peer_resets_it() {
    for interleaving in [false, true] {
        let mut p = Peer::new(interleaving);
        let long = [5; 1000];
        let say = |p: &mut Peer, stream: u16, number: u16, payload: &[u8]| match interleaving {
            true => p.piece(stream, false, (u32::from(number), 0), true, payload),
            false => p.say(stream, number, payload),
        };
        for number in 0..16 {
            say(&mut p, 1, number, &long);
        }
        // Two that wait for another, and the beginning of a third.
        say(&mut p, 1, 20, &long);
        say(&mut p, 1, 22, &long);
        match interleaving {
            true => p.piece(1, true, (0, 0), false, &long[..500]),
            false => {
                let begins = Data::whole(Tsn(p.tsn), StreamId(1), Ssn(0), Ppid(0));
                p.raw.chunk(&Data { unordered: true, ending: false, payload: &long[..500], ..begins });
                p.tsn += 1;
            }
        }
        assert_eq!((p.raw.server.unread(), p.next_window()), (18 * 1064 + 564, 0));
        say(&mut p, 2, 0, b"another");
        p.raw.wait(ms(300));
        p.raw.server.discard(p.id, of(1, 0));
        assert_eq!((p.raw.server.unread(), p.window()), (7 + OVERHEAD, Some(BUFFER - 71)), "{interleaving}");
        assert!(!p.has_unread(1, 0) && p.next(1, 0).is_none());
        // More than the buffer holds, in whatever order and however little is complete.
        match interleaving {
            true => (1..60).for_each(|fsn| p.piece(1, true, (0, fsn), false, &long)),
            false => (30..90).for_each(|ssn| p.say(1, ssn, &long)),
        }
        assert_eq!((p.next_window(), p.raw.stats().dropped), (BUFFER - 71, 0), "{interleaving}");
        assert_eq!(p.readable(), [(2, 0)]);
        // Full of something else, it takes what nothing is kept of all the same.
        (1..19).for_each(|number| say(&mut p, 2, number, &long));
        say(&mut p, 2, 19, &long);
        let before = p.raw.stats();
        assert_eq!(before.dropped, 1, "beyond the buffer");
        p.tsn -= 1;
        say(&mut p, 1, 100, &long);
        assert_eq!(p.raw.stats().chunks_received, before.chunks_received + 1);
        // The next use is another stream.
        p.reset(&[StreamId(1)]);
        p.read(2, 0);
        say(&mut p, 1, 0, b"new");
        assert_eq!((p.read(1, 0), p.read(1, 1)), (vec![], vec![b"new".to_vec()]), "{interleaving}");
        assert_eq!(p.raw.closed(), None);
    }
}

#[test]
fn a_use_that_has_ended_can_be_discarded_and_the_next_goes_on() {
    let mut p = Peer::new(false);
    p.say(1, 0, b"old");
    p.reset(&[StreamId(1)]);
    p.say(1, 0, b"new");
    p.raw.server.discard(p.id, of(1, 0));
    assert!(!p.has_unread(1, 0));
    p.say(1, 1, b"newer");
    assert_eq!(p.read(1, 1), [&b"new"[..], b"newer"]);
    // Nor do those matter that have not begun, or cannot.
    p.raw.server.discard(p.id, of(1, 2));
    p.raw.server.discard(p.id, of(60_000, 0));
    p.say(1, 2, b"newest");
    assert_eq!(p.read(1, 1), [b"newest"]);
}

/// Linux goes on with another message when it gives one up (see `rfc3758_forward`), and that one
/// may be on a stream that is discarded.
#[test]
fn a_message_breaks_off_before_one_that_is_discarded() {
    let mut p = Peer::new(false);
    p.raw.server.discard(p.id, of(2, 0));
    let begins = Data::whole(Tsn(FIRST), StreamId(1), Ssn(0), Ppid(0));
    p.raw.chunk(&Data { ending: false, payload: b"begins and never ends", ..begins });
    p.tsn += 1;
    p.say(2, 0, b"of no interest");
    p.say(1, 1, b"one");
    assert_eq!((p.read(1, 0), p.raw.server.unread()), (vec![b"one".to_vec()], 0));
    assert_eq!(p.raw.closed(), None);
}

#[test]
fn uses_of_a_stream_are_not_mixed_and_can_be_read_in_any_order() {
    let mut p = Peer::new(false);
    p.say(1, 0, b"old 0");
    p.say(1, 2, b"old 2");
    p.say(2, 0, b"other");
    assert_eq!(p.raw.server.stream_use(p.id, StreamId(1)), of(1, 0));
    p.reset(&[StreamId(1)]);
    assert_eq!(p.raw.server.stream_use(p.id, StreamId(1)), of(1, 1));
    p.say(1, 0, b"new 0");
    p.say(2, 1, b"other 1");
    let reset = |streams: &[u16], number| Event::IncomingReset {
        streams: streams.iter().copied().map(StreamId).collect(),
        number,
    };
    assert_eq!(p.raw.events(), [Event::Readable, reset(&[1], 1)]);
    assert_eq!(p.readable(), [(1, 0), (2, 0), (1, 1)], "both uses, and one of the stream that was not reset");
    assert_eq!(p.read(1, 1), [b"new 0"]);
    p.say(1, 1, b"new 1");
    assert_eq!(p.read(1, 0), [b"old 0", b"old 2"], "it was never in order, and is delivered as it is");
    // All of them: those that were never used, too.
    p.reset(&[]);
    p.say(1, 0, b"newest");
    p.say(3, 0, b"first");
    assert_eq!(p.raw.events(), [Event::Readable, reset(&[], 2)]);
    assert_eq!(p.readable(), [(1, 1), (1, 2), (3, 2)]);
    assert_eq!(
        (p.read(1, 1), p.read(1, 2), p.read(3, 2)),
        (vec![b"new 1".to_vec()], vec![b"newest".to_vec()], vec![b"first".to_vec()])
    );
    // Without streams they come in the order of arrival, and state which use they are of.
    assert_eq!(p.raw.read().iter().map(Message::origin).collect::<Vec<_>>(), [of(2, 0), of(2, 0)]);
}

#[test]
fn a_peer_that_resets_a_stream_again_and_again_fills_its_window_and_no_more() {
    let mut p = Peer::new(false);
    let size = |p: &Peer| format!("{:?}", p.raw.server).len();
    let mut most = 0;
    for round in 0..2000u32 {
        p.say(1, 0, b"x");
        p.tsn = p.tsn.min(FIRST + p.raw.stats().chunks_received as u32);
        p.reset(&[StreamId(1)]);
        p.raw.take();
        p.raw.events();
        if round == 400 {
            most = size(&p);
        }
    }
    assert_eq!(p.raw.stats().chunks_received, u64::from(BUFFER) / (1 + OVERHEAD as u64) + 1, "and then nothing more");
    assert!(size(&p) < most + 1000, "{} {most}", size(&p));
    // Each use has what came on it.
    let uses = p.readable();
    assert_eq!(uses.len() as u64, p.raw.stats().chunks_received);
    assert!(uses.into_iter().all(|(stream, reset)| p.read(stream, reset).len() == 1));
    assert_eq!(p.raw.server.unread(), 0);
}

/// The beginning of a long message, which is delivered when more than half of the buffer is full of
/// it.
fn begins(p: &mut Peer) -> u64 {
    for fsn in 0..11 {
        p.piece(1, false, (0, fsn), false, &[1; 1000]);
    }
    assert_eq!(p.readable(), [(1, 0)]);
    let m = p.next(1, 0).unwrap();
    assert_eq!((m.first, m.last, m.payload), (true, false, vec![1; 11_000]));
    assert!(p.next(1, 0).is_none() && !p.has_unread(1, 0));
    m.number
}

#[test]
fn parts_of_a_message_follow_each_other_whatever_comes_between() {
    let mut p = Peer::new(true);
    let number = begins(&mut p);
    p.piece(1, true, (0, 0), true, b"between");
    p.piece(2, false, (0, 0), true, b"elsewhere");
    assert_eq!(p.readable(), [(2, 0)], "what is between cannot be taken yet");
    assert!(p.next(1, 0).is_none() && p.has_unread(1, 0));
    assert_eq!(p.raw.server.peek(p.id, of(1, 0)), None);
    p.piece(1, false, (0, 11), true, b"end");
    p.piece(1, false, (1, 0), true, b"after");
    assert_eq!(p.readable(), [(1, 0)]);
    let end = p.next(1, 0).unwrap();
    assert_eq!((end.number, end.first, end.last, &end.payload[..]), (number, false, true, &b"end"[..]));
    assert_eq!(p.read(1, 0), [&b"between"[..], b"after"]);
    assert_eq!(p.read(2, 0), [b"elsewhere"]);
    assert_eq!(p.raw.server.unread(), 0);
}

#[test]
fn parts_that_were_not_taken_stand_together() {
    let mut p = Peer::new(true);
    for fsn in 0..11 {
        p.piece(1, false, (0, fsn), false, &[1; 1000]);
    }
    assert_eq!(p.readable(), [(1, 0)]);
    p.piece(1, true, (0, 0), true, b"between");
    for fsn in 11..18 {
        p.piece(1, false, (0, fsn), false, &[2; 1000]);
    }
    // The buffer is nearly full: more of it is delivered when another stream is asked for.
    assert!(p.readable().is_empty() && p.next(2, 0).is_none());
    p.piece(1, false, (0, 18), true, &[3; 1000]);
    let got: Vec<_> = core::iter::from_fn(|| p.next(1, 0)).collect();
    let lens: Vec<_> = got.iter().map(|m| (m.first, m.last, m.payload.len())).collect();
    assert_eq!(lens, [(true, false, 11_000), (false, false, 7000), (false, true, 1000), (true, true, 7)]);
    assert!(got[..3].iter().all(|m| m.number == got[0].number) && got[3].number != got[0].number);
    assert_eq!(p.raw.server.unread(), 0);
}

#[test]
fn a_stream_can_be_read_without_being_reported() {
    let mut p = Peer::new(true);
    for fsn in 0..11 {
        p.piece(1, false, (0, fsn), false, &[1; 1000]);
        p.piece(2, false, (0, fsn), false, &[2; 500]);
    }
    // The longest is delivered first, and there is no need for more.
    assert_eq!(p.next(1, 0).map(|m| (m.first, m.last, m.payload.len())), Some((true, false, 11_000)));
    assert_eq!((p.next(1, 0), p.next(2, 0), p.readable()), (None, None, vec![]));
    assert_eq!(p.raw.events(), [Event::Readable]);
    p.piece(1, false, (0, 11), true, b"end");
    assert_eq!(p.read(1, 0), [b"end"]);
    assert_eq!((p.raw.events(), p.readable()), (vec![Event::Readable], vec![]));
}

/// Several long messages share a small buffer; each comes whole, though it is read stream by
/// stream.
#[test]
fn long_messages_on_several_streams_go_on_when_they_fill_the_buffer_together() {
    let association = AssociationConfig {
        receive_buffer: 50_000,
        scheduler: neater_sctp::Scheduler::RoundRobinPerPacket,
        ..AssociationConfig::default()
    };
    let mut w = World::new(1, association, LinkConfig::delay(ms(10)));
    let [a, b] = w.established();
    for stream in 0..6 {
        w.send(0, a, stream, &vec![stream as u8; 60_000]);
        let options = SendOptions { unordered: true, ..SendOptions::default() };
        w.ends[0].send(a, StreamId(stream), vec![stream as u8; 3].into(), options).unwrap();
    }
    let mut got = std::collections::BTreeMap::<u16, Vec<Message>>::new();
    let mut open = std::collections::BTreeSet::new();
    for _ in 0..400 {
        w.run(ms(30));
        open.extend(core::iter::from_fn(|| w.ends[1].next_readable(b)));
        for from in core::mem::take(&mut open) {
            got.entry(from.stream.0).or_default().extend(core::iter::from_fn(|| w.ends[1].receive_from(b, from)));
        }
    }
    for (stream, messages) in got {
        let mut unfinished = None;
        for m in &messages {
            assert_eq!(unfinished.is_none(), m.first, "stream {stream}");
            assert!(unfinished.is_none_or(|n| n == m.number) && m.payload.iter().all(|x| u16::from(*x) == stream));
            unfinished = (!m.last).then_some(m.number);
        }
        let bytes: usize = messages.iter().map(|m| m.payload.len()).sum();
        assert_eq!((unfinished, bytes), (None, 60_003), "stream {stream}");
    }
}

#[test]
fn a_message_that_is_given_up_in_part_lets_go_what_waited_for_its_end() {
    let mut p = Peer::new(true);
    let number = begins(&mut p);
    p.piece(1, true, (0, 0), true, b"between");
    p.piece(2, false, (0, 0), true, b"elsewhere");
    assert_eq!(p.readable(), [(2, 0)]);
    p.raw.events();
    let skipped = [SkippedMessage { stream: StreamId(1), unordered: false, mid: Mid(0) }];
    p.raw.chunk(&IForwardTsn { cumulative: Tsn(p.tsn), skipped: Array::new(&skipped) });
    p.tsn += 1;
    assert_eq!(p.raw.events(), [Event::PartLost { stream: StreamId(1), number }, Event::Readable]);
    assert_eq!((p.readable(), p.read(1, 0)), (vec![(1, 0)], vec![b"between".to_vec()]));
    p.piece(1, false, (1, 0), true, b"after");
    assert_eq!(p.read(1, 0), [b"after"]);
    p.read(2, 0);
    assert_eq!((p.raw.server.unread(), p.raw.closed()), (0, None));
}

#[test]
fn parts_of_a_message_that_is_given_up_are_dropped_and_reported_if_any_was_taken() {
    for interleaving in [false, true] {
        for taken in [false, true] {
            let mut p = Peer::new(interleaving);
            let piece = |p: &mut Peer, n: u32| match interleaving {
                true => p.piece(1, false, (0, n), false, &[1; 1000]),
                false => {
                    let whole = Data::whole(Tsn(p.tsn), StreamId(1), Ssn(0), Ppid(0));
                    p.raw.chunk(&Data { beginning: n == 0, ending: false, payload: &[1; 1000], ..whole });
                    p.tsn += 1;
                }
            };
            (0..11).for_each(|n| piece(&mut p, n));
            assert_eq!(p.readable(), [(1, 0)]);
            let number = if taken { p.next(1, 0).map(|m| m.number) } else { None };
            (11..19).for_each(|n| piece(&mut p, n));
            // More of it is delivered and not taken.
            p.readable();
            assert_eq!(p.raw.server.peek(p.id, of(1, 0)).map(|m| m.first), (!taken).then_some(true));
            p.raw.events();
            let (cumulative, stream) = (Tsn(p.tsn), StreamId(1));
            if interleaving {
                let skipped = [SkippedMessage { stream, unordered: false, mid: Mid(0) }];
                p.raw.chunk(&IForwardTsn { cumulative, skipped: Array::new(&skipped) });
            } else {
                let skipped = [Skipped { stream, ssn: Ssn(0) }];
                p.raw.chunk(&ForwardTsn { cumulative, skipped: Array::new(&skipped) });
            }
            let lost: Vec<_> = number.map(|number| Event::PartLost { stream, number }).into_iter().collect();
            assert_eq!(p.raw.events(), lost, "{interleaving} {taken}");
            assert_eq!((p.next(1, 0), p.has_unread(1, 0), p.raw.server.unread()), (None, false, 0));
        }
    }
}

#[test]
fn a_reset_and_a_discarded_stream_end_messages_that_were_taken_in_part() {
    for discard in [false, true] {
        let mut p = Peer::new(true);
        let number = begins(&mut p);
        p.piece(1, true, (0, 0), true, b"between");
        p.raw.events();
        if discard {
            p.raw.server.discard(p.id, of(1, 0));
        }
        p.reset(&[StreamId(1)]);
        p.piece(1, false, (0, 0), true, b"new");
        let lost = Event::PartLost { stream: StreamId(1), number };
        assert_eq!(p.raw.events().contains(&lost), !discard);
        assert_eq!(p.read(1, 0), if discard { vec![] } else { vec![b"between".to_vec()] });
        assert_eq!((p.read(1, 1), p.raw.server.unread()), (vec![b"new".to_vec()], 0));
    }
}

#[test]
fn what_waits_for_the_rest_of_a_message_can_be_taken_when_the_association_is_over() {
    let mut p = Peer::new(true);
    begins(&mut p);
    p.piece(1, true, (0, 0), true, b"between");
    p.piece(2, true, (0, 0), true, b"news");
    assert!(p.next(1, 0).is_none());
    p.raw.chunk(&Abort { reflected: false, causes: Causes::EMPTY });
    assert!(matches!(p.raw.closed(), Some(CloseReason::PeerAborted { .. })));
    assert_eq!(p.raw.server.kept(), 1);
    assert_eq!(p.readable(), [(2, 0), (1, 0)]);
    assert_eq!((p.read(1, 0), p.read(2, 0)), (vec![b"between".to_vec()], vec![b"news".to_vec()]));
    assert_eq!(p.raw.server.kept(), 0, "and then nothing is left of it");
}

#[test]
fn words_are_received_before_what_is_unread_and_also_where_nothing_is_read() {
    let mut p = Peer::new(true);
    let word = |m: Option<Message>| m.map(|m| (m.stream.0, m.reset, m.payload));
    p.with_ppid(WORD, 1, false, (0, 0), true, b"early");
    p.piece(1, false, (1, 0), true, b"data");
    p.raw.server.set_word(p.id, WORD);
    assert_eq!(word(p.raw.server.receive_word(p.id)), Some((1, 0, b"early".to_vec())));
    assert_eq!(p.readable(), [(1, 0)]);
    p.raw.events();
    // In order: not before what was sent before it has arrived.
    p.with_ppid(WORD, 1, false, (3, 0), true, b"stop");
    assert_eq!((p.raw.server.receive_word(p.id), p.raw.events()), (None, vec![]));
    p.piece(1, false, (2, 0), true, b"more");
    assert_eq!(p.raw.events(), [Event::Readable]);
    let unread = p.raw.server.unread();
    assert_eq!(word(p.raw.server.receive_word(p.id)), Some((1, 0, b"stop".to_vec())));
    assert_eq!(p.raw.server.unread(), unread - 4 - OVERHEAD, "it counts until it is received");
    assert_eq!(p.read(1, 0), [b"data", b"more"], "and is not among the messages");
    // One whose parts are not together is no word.
    p.with_ppid(WORD, 1, false, (4, 0), false, b"too ");
    p.piece(1, false, (4, 1), true, b"long");
    assert_eq!(word(p.raw.server.receive_word(p.id)), Some((1, 0, b"too long".to_vec())), "but they are");
    p.raw.server.discard(p.id, of(1, 0));
    p.with_ppid(WORD, 1, false, (9, 0), true, b"still");
    p.with_ppid(WORD, 1, false, (9, 0), false, b"not whole");
    assert_eq!(word(p.raw.server.receive_word(p.id)), Some((1, 0, b"still".to_vec())));
    assert_eq!((p.raw.server.receive_word(p.id), p.raw.server.unread()), (None, 0));
    // As many as there is room for.
    let mut mid = 10;
    while p.raw.stats().dropped == 0 {
        p.with_ppid(WORD, 1, false, (mid, 0), true, &[1; 1000]);
        mid += 1;
    }
    assert_eq!(p.raw.server.unread(), 18 * 1064);
    p.raw.chunk(&Abort { reflected: false, causes: Causes::EMPTY });
    assert!(p.raw.closed().is_some() && p.raw.server.kept() == 1);
    while p.raw.server.receive_word(p.id).is_some() {}
    assert_eq!(p.raw.server.kept(), 0);
}

/// A word that waits for its turn is received although the stream is discarded meanwhile.
#[test]
fn a_word_behind_a_lost_message_survives_that_its_stream_is_discarded() {
    let mut p = Peer::new(true);
    p.raw.server.set_word(p.id, WORD);
    p.piece(1, false, (0, 0), true, b"data");
    p.with_ppid(WORD, 1, false, (2, 0), true, b"stop");
    p.piece(1, false, (3, 0), true, b"more");
    assert!(p.raw.server.receive_word(p.id).is_none(), "the message before it is missing");
    p.raw.server.discard(p.id, of(1, 0));
    assert_eq!(p.raw.server.receive_word(p.id).map(|m| m.payload), Some(b"stop".to_vec()));
    p.piece(1, false, (1, 0), true, b"late");
    assert_eq!((p.raw.server.receive_word(p.id), p.raw.server.unread()), (None, 0));
}

#[test]
fn what_is_behind_a_word_is_reported_when_that_was_all_that_was_news() {
    let mut p = Peer::new(true);
    begins(&mut p);
    p.with_ppid(WORD, 1, true, (0, 0), true, b"word");
    p.piece(1, true, (1, 0), true, b"data");
    assert!(p.readable().is_empty());
    let skipped = [SkippedMessage { stream: StreamId(1), unordered: false, mid: Mid(0) }];
    p.raw.chunk(&IForwardTsn { cumulative: Tsn(p.tsn), skipped: Array::new(&skipped) });
    p.tsn += 1;
    p.raw.server.set_word(p.id, WORD);
    assert_eq!(p.raw.server.receive_word(p.id).map(|m| m.payload), Some(b"word".to_vec()));
    assert_eq!((p.readable(), p.read(1, 0)), (vec![(1, 0)], vec![b"data".to_vec()]));
}

#[test]
fn buffers_of_payloads_are_used_again() {
    let mut p = Peer::new(false);
    p.say(1, 0, &[1; 900]);
    p.say(2, 0, &[2; 900]);
    let m = p.next(2, 0).unwrap();
    p.raw.server.recycle(p.id, m.payload);
    // In a buffer of its own it would have no more room than it needs.
    let next = |p: &mut Peer, ssn| {
        p.say(3, ssn, &[3; 500]);
        let payload = p.next(3, 0).unwrap().payload;
        assert_eq!(payload, [3; 500]);
        payload.capacity()
    };
    assert_eq!((next(&mut p, 0), next(&mut p, 1)), (900, 500));
    // So is that of what is thrown away.
    p.raw.server.discard(p.id, of(1, 0));
    assert_eq!((next(&mut p, 2), next(&mut p, 3)), (900, 500));
}

#[test]
fn nothing_of_a_new_life_of_the_peer_is_read_before_its_restart_is_known() {
    let association = AssociationConfig { outlives_restart: false, ..AssociationConfig::default() };
    let mut w = World::new(1, association, LinkConfig::delay(ms(10)));
    let [a, b] = w.established();
    w.run(ms(100));
    w.send(0, a, 0, b"first life");
    w.run(ms(100));
    let first = of(0, 0);
    assert_eq!(w.ends[1].next_readable(b), Some(first));
    // The client forgets everything; its events are not taken at the other end.
    let config = crate::support::config(0, 1, AssociationConfig::default());
    w.ends[0] = neater_sctp::Endpoint::new(config, [9; 32], &[9; 32]);
    let route = w.route(1, 0);
    let a = w.ends[0].connect(w.now, crate::support::PORTS[1], &[route]).unwrap();
    w.send(0, a, 0, b"second life");
    let mut seen = false;
    let mut buffer = vec![0; 2000];
    for _ in 0..6 {
        for (from, to) in [(0, 1), (1, 0)] {
            while let Some(t) = w.ends[from].poll_transmit(w.now, &mut buffer) {
                let route = w.route(from, 0);
                w.ends[to].handle_packet(w.now, route, false, &buffer[..t.len]);
            }
        }
        w.now += Duration::from_millis(300);
        w.ends.iter_mut().for_each(|e| e.handle_timeout(w.now));
        // Until then there is the message of the first life.
        if w.ends[1].unread() == 10 + OVERHEAD {
            continue;
        }
        seen = true;
        let server = &mut w.ends[1];
        server.set_word(b, Ppid(0));
        server.discard(b, first);
        assert_eq!((server.receive_from(b, first), server.peek(b, first)), (None, None));
        assert_eq!((server.next_readable(b), server.receive_word(b), server.has_unread(b, first)), (None, None, false));
    }
    assert!(seen, "the message of the second life is there");
    while w.ends[1].poll_event().is_some_and(|(_, e)| e != Event::Restarted) {}
    assert_eq!(w.ends[1].next_readable(b), Some(first));
    assert_eq!(w.ends[1].receive_from(b, first).map(|m| m.payload), Some(b"second life".to_vec()));
    // Of one that there is not, there is nothing.
    w.ends[1].release(b);
    assert_eq!((w.ends[1].next_readable(b), w.ends[1].peek(b, first)), (None, None));
    assert_eq!((w.ends[1].stream_use(b, StreamId(3)), w.ends[1].has_unread(b, first)), (of(3, 0), false));
}
