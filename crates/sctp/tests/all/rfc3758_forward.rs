//! RFC 3758 and RFC 8260 section 2.3: the peer gives messages up, chunk by chunk.

use crate::support::raw::{FIRST, Raw};
use crate::support::watch::reports;
use core::time::Duration;
use neater_sctp::{AssociationConfig, CloseReason, Event, Extensions, SendOptions};
use neater_sctp_wire::chunk::{Data, ForwardTsn, IData, IForwardTsn, Part, Sack, Skipped, SkippedMessage};
use neater_sctp_wire::parameter::{ForwardTsnSupported, SupportedExtensions};
use neater_sctp_wire::{Array, Chunk, Fsn, Mid, Packet as Wire, Parameters, Ppid, Ssn, StreamId, Tsn};

fn connected(interleaving: bool) -> Raw {
    let config = AssociationConfig {
        extensions: Extensions { partial_reliability: true, interleaving, ..Extensions::NONE },
        ..AssociationConfig::rfc9260()
    };
    let kinds = [IData::KIND, ForwardTsn::KIND, IForwardTsn::KIND];
    let list = [ForwardTsnSupported.into(), SupportedExtensions(&kinds).into()];
    let raw = Raw::connected_with(config, Parameters::new(if interleaving { &list } else { &list[..1] }));
    let agreed = raw.server.agreed(raw.id.unwrap()).unwrap().0;
    assert_eq!((agreed.partial_reliability, agreed.interleaving), (true, interleaving));
    raw
}

fn data(tsn: u32, ssn: u16, payload: &[u8]) -> Data<'_> {
    Data { payload, ..Data::whole(Tsn(FIRST + tsn), StreamId(1), Ssn(ssn), Ppid(0)) }
}

fn idata(tsn: u32, mid: u32, part: Part, ending: bool, payload: &[u8]) -> IData<'_> {
    IData {
        tsn: Tsn(FIRST + tsn),
        stream: StreamId(1),
        mid: Mid(mid),
        part,
        immediate: false,
        unordered: false,
        ending,
        payload,
    }
}

fn forward(raw: &mut Raw, tsn: u32, skipped: &[Skipped]) {
    raw.chunk(&ForwardTsn { cumulative: Tsn(FIRST + tsn), skipped: Array::new(skipped) });
}

fn read(raw: &mut Raw) -> Vec<Vec<u8>> {
    let id = raw.id.unwrap();
    core::iter::from_fn(|| raw.server.receive(id)).map(|m| m.payload).collect()
}

/// The cumulative TSNs of the SACK chunks that are sent now, counted from our first.
fn sacks(raw: &mut Raw) -> Vec<u32> {
    let mut found = Vec::new();
    for packet in raw.take() {
        for chunk in Wire::parse(&packet).unwrap().chunks().flatten() {
            if let Ok(Chunk::Sack(Sack { cumulative, .. })) = Chunk::decode(&chunk) {
                found.push(cumulative.0.wrapping_sub(FIRST));
            }
        }
    }
    found
}

#[test]
fn what_is_given_up_is_no_longer_waited_for() {
    let mut raw = connected(false);
    raw.chunk(&data(0, 0, b"zero"));
    raw.chunk(&data(2, 2, b"two"));
    assert_eq!(read(&mut raw), [b"zero"]);
    raw.take();
    let skipped = [Skipped { stream: StreamId(1), ssn: Ssn(1) }];
    forward(&mut raw, 1, &skipped);
    assert_eq!(read(&mut raw), [b"two"]);
    assert_eq!(sacks(&mut raw), [2], "at once, with what is behind it");
    // The chunk that was given up comes after all: a copy, and nothing is delivered.
    raw.chunk(&data(1, 1, b"one"));
    assert!(read(&mut raw).is_empty());
    raw.chunk(&data(3, 3, b"three"));
    assert_eq!(read(&mut raw), [b"three"]);
}

#[test]
fn an_old_one_is_answered_and_changes_nothing() {
    let mut raw = connected(false);
    for i in 0..4u32 {
        raw.chunk(&data(i, i as u16, &[i as u8]));
    }
    read(&mut raw);
    raw.wait(Duration::from_secs(1));
    forward(&mut raw, 1, &[]);
    assert_eq!(sacks(&mut raw), [3], "section 3.6: perhaps the SACK chunk was lost");
    raw.chunk(&data(4, 4, b"next"));
    assert_eq!(read(&mut raw), [b"next"]);
}

#[test]
fn unordered_fragments_below_it_are_thrown_away() {
    let mut raw = connected(false);
    let part = Data { beginning: true, ending: false, unordered: true, ..data(0, 0, b"begins and never ends") };
    raw.chunk(&part);
    forward(&mut raw, 1, &[]);
    raw.chunk(&Data { beginning: false, ending: true, unordered: true, ..data(1, 0, b"too late") });
    assert!(read(&mut raw).is_empty());
    raw.chunk(&Data { unordered: true, ..data(2, 0, b"whole") });
    assert_eq!((read(&mut raw), raw.closed()), (vec![b"whole".to_vec()], None));
}

/// Linux (6.1) gives a message up when part of it is acknowledged and the rest was never sent, has
/// nothing left to skip by FORWARD TSN, and goes on with the next message: found with its kernel as
/// a peer.
#[test]
fn a_message_that_breaks_off_without_a_word_is_passed_over() {
    let mut raw = connected(false);
    raw.chunk(&data(0, 0, b"zero"));
    raw.chunk(&Data { ending: false, ..data(1, 1, b"begins") });
    raw.chunk(&Data { beginning: false, ending: false, ..data(2, 1, b"and never ends") });
    raw.chunk(&Data { ending: false, ..data(3, 2, b"tw") });
    raw.chunk(&Data { beginning: false, ..data(4, 2, b"o") });
    assert_eq!((read(&mut raw), raw.closed()), (vec![b"zero".to_vec(), b"two".to_vec()], None));
    // In another order: what follows is there before the last of what breaks off.
    raw.chunk(&data(7, 4, b"four"));
    raw.chunk(&Data { beginning: false, ending: false, ..data(6, 3, b"and never ends") });
    assert_eq!((read(&mut raw), raw.closed()), (vec![], None));
    raw.chunk(&Data { ending: false, ..data(5, 3, b"begins") });
    assert_eq!((read(&mut raw), raw.closed()), (vec![b"four".to_vec()], None));
    // Without the extension no endpoint may do that.
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    raw.chunk(&Data { ending: false, ..data(0, 0, b"begins") });
    raw.chunk(&data(1, 1, b"one"));
    assert!(matches!(raw.closed(), Some(CloseReason::PeerMisbehaved(_))));
}

/// The same, but another message was given up by FORWARD TSN meanwhile, which moves past what broke
/// off and does not name it.
#[test]
fn a_message_that_breaks_off_and_is_not_named_is_passed_over() {
    let mut raw = connected(false);
    raw.chunk(&data(0, 0, b"zero"));
    raw.chunk(&Data { ending: false, ..data(1, 1, b"begins") });
    raw.chunk(&Data { beginning: false, ending: false, ..data(2, 1, b"and never ends") });
    raw.chunk(&data(5, 2, b"two"));
    assert_eq!(read(&mut raw), [b"zero"]);
    forward(&mut raw, 4, &[Skipped { stream: StreamId(2), ssn: Ssn(0) }]);
    assert_eq!((read(&mut raw), raw.closed()), (vec![b"two".to_vec()], None));
}

/// RFC 8260 section 2.1 numbers fragments from 0, the first included; Linux (6.1) begins with 0
/// behind it.
#[test]
fn fragments_are_numbered_as_the_standard_has_it_or_as_linux_does() {
    let mut raw = connected(true);
    raw.chunk(&idata(0, 0, Part::First(Ppid(0)), false, b"be"));
    raw.chunk(&idata(1, 0, Part::Later(Fsn(0)), true, b"gin"));
    assert!(matches!(raw.closed(), Some(CloseReason::PeerMisbehaved(what)) if what.contains("Linux")));

    let config = AssociationConfig {
        extensions: Extensions { interleaving: true, ..Extensions::NONE },
        linux_fragments: true,
        ..AssociationConfig::rfc9260()
    };
    let list = [SupportedExtensions(&[IData::KIND]).into()];
    let mut raw = Raw::connected_with(config, Parameters::new(&list));
    raw.chunk(&idata(0, 0, Part::First(Ppid(0)), false, b"be"));
    raw.chunk(&idata(1, 0, Part::Later(Fsn(0)), false, b"g"));
    raw.chunk(&idata(2, 0, Part::Later(Fsn(1)), true, b"in"));
    assert_eq!((read(&mut raw), raw.closed()), (vec![b"begin".to_vec()], None));
    // And ours.
    raw.take();
    let id = raw.id.unwrap();
    raw.server.send(id, StreamId(0), vec![1; 3000].into(), SendOptions::default()).unwrap();
    let mut numbers = Vec::new();
    for packet in raw.take() {
        for chunk in Wire::parse(&packet).unwrap().chunks().flatten() {
            if let Ok(Chunk::IData(IData { part: Part::Later(fsn), .. })) = Chunk::decode(&chunk) {
                numbers.push(fsn.0);
            }
        }
    }
    assert_eq!(numbers.first(), Some(&0), "{numbers:?}");
}

#[test]
fn messages_are_given_up_by_their_number_with_interleaving() {
    let mut raw = connected(true);
    raw.chunk(&idata(0, 0, Part::First(Ppid(0)), false, b"never "));
    raw.chunk(&idata(2, 1, Part::First(Ppid(0)), true, b"one"));
    assert!(read(&mut raw).is_empty());
    let skipped = [SkippedMessage { stream: StreamId(1), unordered: false, mid: Mid(0) }];
    raw.chunk(&IForwardTsn { cumulative: Tsn(FIRST + 1), skipped: Array::new(&skipped) });
    assert_eq!(read(&mut raw), [b"one"]);
    raw.chunk(&idata(1, 0, Part::Later(Fsn(1)), true, b"complete"));
    assert!(read(&mut raw).is_empty());
    raw.chunk(&idata(3, 2, Part::First(Ppid(0)), true, b"two"));
    assert_eq!((read(&mut raw), raw.closed()), (vec![b"two".to_vec()], None));
}

#[test]
fn what_comes_late_of_a_message_that_was_given_up_is_counted_and_not_kept() {
    for unordered in [false, true] {
        let mut raw = connected(true);
        let piece = |tsn, mid, part, ending, payload| IData { unordered, ..idata(tsn, mid, part, ending, payload) };
        raw.chunk(&piece(0, 7, Part::First(Ppid(0)), false, b"never "));
        let skipped = [SkippedMessage { stream: StreamId(1), unordered, mid: Mid(7) }];
        raw.chunk(&IForwardTsn { cumulative: Tsn(FIRST + 1), skipped: Array::new(&skipped) });
        let empty = reports(&raw.take()).pop().expect("at once").window;
        // Sent before it was given up, behind other messages, and overtaken.
        raw.chunk(&piece(3, 7, Part::Later(Fsn(2)), false, &[1; 1000]));
        raw.chunk(&piece(2, 7, Part::Later(Fsn(1)), false, &[1; 1000]));
        raw.chunk(&piece(4, 6, Part::Later(Fsn(1)), true, &[1; 1000]));
        let last = reports(&raw.wait(Duration::from_secs(1))).pop().expect("acknowledged");
        assert_eq!((last.cumulative, last.window, last.gaps.len()), (FIRST + 4, empty, 0), "{unordered}");
        raw.chunk(&piece(5, 8, Part::First(Ppid(0)), true, b"the next"));
        assert_eq!((read(&mut raw), raw.closed()), (vec![b"the next".to_vec()], None), "{unordered}");
    }
}

#[test]
fn the_wrong_kind_or_one_that_was_not_agreed_is_a_violation() {
    for (interleaving, old) in [(false, false), (true, true)] {
        let mut raw = connected(interleaving);
        if old {
            forward(&mut raw, 1, &[]);
        } else {
            raw.chunk(&IForwardTsn { cumulative: Tsn(FIRST + 1), skipped: Array::EMPTY });
        }
        assert!(matches!(raw.closed(), Some(CloseReason::PeerMisbehaved(_))), "{interleaving}");
    }
    for interleaving in [false, true] {
        let mut raw = connected(interleaving);
        if interleaving {
            raw.chunk(&data(0, 0, b"x"));
        } else {
            raw.chunk(&idata(0, 0, Part::First(Ppid(0)), true, b"x"));
        }
        assert!(matches!(raw.closed(), Some(CloseReason::PeerMisbehaved(_))), "RFC 8260 section 2.2.1");
    }
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    forward(&mut raw, 1, &[]);
    assert!(matches!(raw.closed(), Some(CloseReason::PeerMisbehaved(_))));
}

#[test]
fn absurd_lists_cost_nothing_and_break_nothing() {
    let mut raw = connected(false);
    let skipped: Vec<Skipped> = (0..200).map(|i| Skipped { stream: StreamId(60_000 + i), ssn: Ssn(i) }).collect();
    forward(&mut raw, 5, &skipped);
    raw.chunk(&data(6, 0, b"after"));
    assert_eq!((read(&mut raw), raw.closed()), (vec![b"after".to_vec()], None));
    // More than half the numbers ahead is behind.
    forward(&mut raw, (1 << 31) + 10, &[]);
    raw.chunk(&data(7, 1, b"still"));
    assert_eq!((read(&mut raw), raw.closed()), (vec![b"still".to_vec()], None));
    assert!(!raw.events().iter().any(|e| matches!(e, Event::PartLost { .. })));
}

#[test]
fn a_message_of_which_a_part_was_read_is_reported_when_it_is_given_up() {
    let config = AssociationConfig {
        receive_buffer: 5000,
        extensions: Extensions { partial_reliability: true, ..Extensions::NONE },
        ..AssociationConfig::rfc9260()
    };
    let list = [ForwardTsnSupported.into()];
    let mut raw = Raw::connected_with(config, Parameters::new(&list));
    let payload = [7; 900];
    for i in 0..5 {
        raw.chunk(&Data { beginning: i == 0, ending: false, ..data(i, 0, &payload) });
    }
    let got = read(&mut raw);
    assert!(!got.is_empty(), "longer than the buffer: it comes in parts");
    let skipped = [Skipped { stream: StreamId(1), ssn: Ssn(0) }];
    forward(&mut raw, 6, &skipped);
    assert!(raw.events().iter().any(|e| matches!(e, Event::PartLost { stream: StreamId(1), .. })));
    raw.chunk(&data(7, 1, b"the next"));
    assert_eq!(read(&mut raw).pop(), Some(b"the next".to_vec()));
}
