//! RFC 6525: requests about streams, asked and answered chunk by chunk.

use crate::support::raw::{FIRST, Raw};
use core::time::Duration;
use neater_sctp::{AssociationConfig, CloseReason, Event, Extensions, ReconfigError, SendOptions};
use neater_sctp_wire::chunk::{Data, IData, Part, ReConfig, Sack};
use neater_sctp_wire::parameter::{
    AddIncoming, AddOutgoing, IncomingReset, OutgoingReset, ReconfigResponse, ReconfigResult, SsnTsnReset,
    SupportedExtensions,
};
use neater_sctp_wire::{
    Array, Chunk, Fsn, Mid, Packet as Wire, Parameter, Parameters, Ppid, ReconfigSeq, Ssn, StreamId, Tsn,
};

const KIND: u8 = ReConfig::KIND;

fn connected() -> Raw {
    let config = AssociationConfig {
        outbound_streams: 10,
        inbound_streams: 110,
        extensions: Extensions { reconfiguration: true, ..Extensions::NONE },
        ..AssociationConfig::rfc9260()
    };
    let supported = [SupportedExtensions(&[KIND]).into()];
    Raw::connected_with(config, Parameters::new(&supported))
}

fn ask(raw: &mut Raw, parameters: &[Parameter<'_>]) -> Vec<(ReconfigSeq, ReconfigResult)> {
    raw.chunk(&ReConfig { parameters: Parameters::new(parameters) });
    answers(&raw.take())
}

fn parameters(packets: &[Vec<u8>], mut each: impl FnMut(&Parameter<'_>)) {
    for packet in packets {
        for chunk in Wire::parse(packet).unwrap().chunks().flatten() {
            if let Ok(Chunk::ReConfig(r)) = Chunk::decode(&chunk) {
                r.parameters.iter().flatten().for_each(|p| each(&p));
            }
        }
    }
}

fn answers(packets: &[Vec<u8>]) -> Vec<(ReconfigSeq, ReconfigResult)> {
    let mut found = Vec::new();
    parameters(packets, |p| {
        if let Parameter::ReconfigResponse(r) = p {
            found.push((r.response, r.result));
        }
    });
    found
}

fn reset(raw: &Raw, number: u32, streams: &[StreamId], last: u32) -> OutgoingReset<'static> {
    let streams: &'static [StreamId] = Box::leak(streams.to_vec().into_boxed_slice());
    OutgoingReset {
        request: ReconfigSeq(FIRST + number),
        response: ReconfigSeq(raw.initial.0.wrapping_sub(1)),
        last_tsn: Tsn(last),
        streams: Array::from(streams),
    }
}

fn data(tsn: u32, ssn: u16, payload: &[u8]) -> Data<'_> {
    Data { payload, ..Data::whole(Tsn(tsn), StreamId(3), Ssn(ssn), Ppid(0)) }
}

#[test]
fn requests_are_numbered_and_each_is_answered_once_and_again_if_it_comes_again() {
    let mut raw = connected();
    let seq = |n: u32| ReconfigSeq(FIRST + n);
    let (done, bad) = (ReconfigResult::PERFORMED, ReconfigResult::BAD_SEQUENCE_NUMBER);
    let add = |n: u32| Parameter::from(AddOutgoing { request: seq(n), streams: 2 });
    assert_eq!(ask(&mut raw, &[add(1)]), [(seq(1), bad)], "the first has the number of the first TSN");
    assert_eq!(ask(&mut raw, &[add(0)]), [(seq(0), done)]);
    assert_eq!(raw.server.streams(raw.id.unwrap()).1, 102);
    // The answer was lost.
    assert_eq!(ask(&mut raw, &[add(0)]), [(seq(0), done)]);
    assert_eq!(raw.server.streams(raw.id.unwrap()).1, 102, "and not done twice");
    assert_eq!(ask(&mut raw, &[add(1)]), [(seq(1), done)]);
    assert_eq!(ask(&mut raw, &[add(0)]), [(seq(0), bad)], "an old one");
    assert_eq!(ask(&mut raw, &[add(7)]), [(seq(7), bad)]);
    assert_eq!(raw.server.streams(raw.id.unwrap()).1, 104);
}

#[test]
fn more_than_may_be_are_denied_and_so_is_beginning_everything_anew() {
    let mut raw = connected();
    let seq = |n: u32| ReconfigSeq(FIRST + n);
    let denied = ReconfigResult::DENIED;
    assert_eq!(ask(&mut raw, &[AddOutgoing { request: seq(0), streams: 11 }.into()]), [(seq(0), denied)]);
    assert_eq!(ask(&mut raw, &[AddIncoming { request: seq(1), streams: 1 }.into()]), [(seq(1), denied)]);
    assert_eq!(ask(&mut raw, &[SsnTsnReset { request: seq(2) }.into()]), [(seq(2), denied)]);
    assert_eq!(raw.server.streams(raw.id.unwrap()), (10, 100));
    assert!(raw.events().is_empty());
}

#[test]
fn a_reset_waits_for_the_data_before_it() {
    let mut raw = connected();
    let three = [StreamId(3)];
    raw.chunk(&data(FIRST, 0, b"before"));
    raw.take();
    // One TSN is missing: not yet.
    let request = reset(&raw, 0, &three, FIRST + 1);
    assert_eq!(ask(&mut raw, &[request.into()]), [(ReconfigSeq(FIRST), ReconfigResult::IN_PROGRESS)]);
    // Asked again, with other traffic counted meanwhile: the first word counts, for the stream is
    // silent.
    let again = reset(&raw, 0, &three, FIRST + 9);
    assert_eq!(ask(&mut raw, &[again.into()]), [(ReconfigSeq(FIRST), ReconfigResult::IN_PROGRESS)]);
    raw.chunk(&data(FIRST + 1, 1, b"and this"));
    let performed = [(ReconfigSeq(FIRST), ReconfigResult::PERFORMED)];
    assert_eq!(answers(&raw.take()), performed, "section 5.2.2, E2 to E6: without being asked again");
    assert_eq!(ask(&mut raw, &[request.into()]), [(ReconfigSeq(FIRST), ReconfigResult::PERFORMED)]);
    assert!(raw.events().contains(&Event::IncomingReset { streams: three.to_vec(), number: 1 }));
    // The numbers restart.
    raw.chunk(&data(FIRST + 2, 0, b"after"));
    let id = raw.id.unwrap();
    let got: Vec<_> = core::iter::from_fn(|| raw.server.receive(id)).map(|m| m.payload).collect();
    assert_eq!(got, [&b"before"[..], b"and this", b"after"]);
}

#[test]
fn streams_that_are_held_for_as_long_as_the_peer_likes_keep_no_processor_busy() {
    let mut raw = connected();
    raw.send(&[100]);
    raw.take();
    // The window is closed, and there is more to be sent: it will be probed.
    raw.sack(1, 0, &[]);
    raw.send(&[1000; 3]);
    raw.take();
    // All streams are to restart; the peer is never ready for it.
    let request = IncomingReset { request: ReconfigSeq(FIRST), streams: Array::EMPTY };
    raw.chunk(&ReConfig { parameters: Parameters::new(&[request.into()]) });
    let end = raw.now + Duration::from_secs(60);
    let mut turns = 0;
    while let Some(next) = raw.server.next_timeout().filter(|at| *at <= end) {
        raw.now = raw.now.max(next);
        raw.server.handle_timeout(raw.now);
        let mut asked = Vec::new();
        parameters(&raw.take(), |p| {
            if let Parameter::OutgoingReset(r) = p {
                asked.push(r.request);
            }
        });
        for response in asked {
            let wait = ReconfigResponse { response, result: ReconfigResult::IN_PROGRESS, next_tsns: None };
            raw.chunk(&ReConfig { parameters: Parameters::new(&[wait.into()]) });
            raw.take();
        }
        turns += 1;
        assert!(turns < 1000, "at {:?}, due at {:?}", raw.now, raw.server.next_timeout());
    }
}

#[test]
fn streams_that_there_are_not_cannot_be_reset() {
    let mut raw = connected();
    let wrong = ReconfigResult::WRONG_SSN;
    let request = reset(&raw, 0, &[StreamId(3), StreamId(100)], FIRST - 1);
    assert_eq!(ask(&mut raw, &[request.into()]), [(ReconfigSeq(FIRST), wrong)]);
    let streams = [StreamId(10)];
    let request = IncomingReset { request: ReconfigSeq(FIRST + 1), streams: Array::new(&streams) };
    assert_eq!(ask(&mut raw, &[request.into()]), [(ReconfigSeq(FIRST + 1), wrong)]);
    assert!(raw.events().is_empty());
}

#[test]
fn asked_to_reset_it_answers_with_its_own_request() {
    let mut raw = connected();
    let streams = [StreamId(2)];
    let request = IncomingReset { request: ReconfigSeq(FIRST), streams: Array::new(&streams) };
    raw.chunk(&ReConfig { parameters: Parameters::new(&[request.into()]) });
    let mut ours = None;
    parameters(&raw.take(), |p| match p {
        Parameter::OutgoingReset(r) => ours = Some((r.request, r.response, r.last_tsn, r.streams.len())),
        other => panic!("{other:?}"),
    });
    let initial = raw.initial;
    assert_eq!(ours, Some((ReconfigSeq(initial.0), ReconfigSeq(FIRST), initial.minus(1), 1)));
    // No answer comes: it is sent again, the same, with growing pauses.
    let mut times = 0;
    parameters(&raw.wait(Duration::from_secs(8)), |p| times += u32::from(matches!(p, Parameter::OutgoingReset(_))));
    assert_eq!(times, 3, "after 1, 3 and 7 s");
    let response =
        ReconfigResponse { response: ReconfigSeq(initial.0), result: ReconfigResult::PERFORMED, next_tsns: None };
    raw.chunk(&ReConfig { parameters: Parameters::new(&[response.into()]) });
    let done = Event::OutgoingReset { streams: streams.to_vec(), done: true };
    assert!(raw.events().contains(&done));
    assert!(answers(&raw.wait(Duration::from_secs(20))).is_empty());
}

#[test]
fn an_answer_in_progress_keeps_the_association_alive_and_a_refusal_ends_the_request() {
    for result in [ReconfigResult::DENIED, ReconfigResult::NOTHING_TO_DO] {
        let mut raw = connected();
        let id = raw.id.unwrap();
        raw.server.add_outgoing(id, 3).unwrap();
        assert_eq!(raw.server.add_incoming(id, 3), Err(ReconfigError::Busy));
        raw.take();
        let answer = |raw: &mut Raw, result| {
            let response = ReconfigResponse { response: ReconfigSeq(raw.initial.0), result, next_tsns: None };
            raw.chunk(&ReConfig { parameters: Parameters::new(&[response.into()]) });
        };
        for _ in 0..100 {
            answer(&mut raw, ReconfigResult::IN_PROGRESS);
            raw.wait(Duration::from_secs(70));
        }
        assert_eq!(raw.closed(), None);
        answer(&mut raw, result);
        let done = result == ReconfigResult::NOTHING_TO_DO;
        let outbound = if done { 13 } else { 10 };
        assert!(raw.events().contains(&Event::StreamsAdded { outbound, done }));
        // The same answer again means nothing.
        answer(&mut raw, ReconfigResult::PERFORMED);
        assert!(raw.events().is_empty() && raw.server.streams(id).0 == outbound);
        raw.server.add_outgoing(id, 1).unwrap();
    }
}

#[test]
fn a_request_that_nobody_answers_is_the_end() {
    let mut raw = connected();
    let id = raw.id.unwrap();
    raw.server.reset_outgoing(id, &[]).unwrap();
    let sent = raw.wait(Duration::from_secs(2000));
    assert_eq!(raw.closed(), Some(CloseReason::Unreachable));
    let mut times = 0;
    parameters(&sent, |_| times += 1);
    assert!((2..=11).contains(&times), "{times}");
}

#[test]
fn our_reset_waits_until_what_was_sent_is_acknowledged() {
    let mut raw = connected();
    let id = raw.id.unwrap();
    let send = |raw: &mut Raw, payload: &'static [u8]| {
        raw.server.send(id, StreamId(4), payload.into(), SendOptions::default()).unwrap();
    };
    send(&mut raw, b"zero");
    let first = raw.take();
    raw.server.reset_outgoing(id, &[StreamId(4)]).unwrap();
    send(&mut raw, b"held");
    assert!(raw.take().iter().all(|p| !crate::support::kinds(p).contains(&KIND)), "not before it is acknowledged");
    assert_eq!(first.len(), 1);
    let cumulative = raw.initial;
    raw.chunk(&Sack { cumulative, a_rwnd: 50_000, gaps: Array::EMPTY, duplicates: Array::EMPTY, packets: 0 });
    let sent = raw.take();
    let mut last = None;
    parameters(&sent, |p| {
        if let Parameter::OutgoingReset(r) = p {
            last = Some(r.last_tsn);
        }
    });
    assert_eq!(last, Some(cumulative));
    assert!(sent.iter().all(|p| !crate::support::kinds(p).contains(&Data::KIND)), "what waits begins after the reset");
    let response =
        ReconfigResponse { response: ReconfigSeq(cumulative.0), result: ReconfigResult::PERFORMED, next_tsns: None };
    raw.chunk(&ReConfig { parameters: Parameters::new(&[response.into()]) });
    let ssns: Vec<Ssn> = raw
        .take()
        .iter()
        .flat_map(|p| {
            let wire = Wire::parse(p).unwrap();
            wire.chunks()
                .flatten()
                .filter_map(|c| match Chunk::decode(&c) {
                    Ok(Chunk::Data(d)) => Some(d.ssn),
                    _ => None,
                })
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(ssns, [Ssn(0)]);
}

#[test]
fn a_reset_that_is_sent_again_names_the_same_last_tsn_whatever_else_was_sent_meanwhile() {
    let mut raw = connected();
    let id = raw.id.unwrap();
    raw.server.reset_outgoing(id, &[StreamId(4)]).unwrap();
    let mut named = Vec::new();
    for _ in 0..3 {
        raw.server.send(id, StreamId(5), b"others go on".as_slice().into(), SendOptions::default()).unwrap();
        parameters(&raw.wait(Duration::from_secs(10)), |p| {
            if let Parameter::OutgoingReset(r) = p {
                named.push((r.request, r.last_tsn));
            }
        });
    }
    assert!(named.len() >= 3, "{named:?}");
    let initial = raw.initial;
    assert!(named.iter().all(|n| *n == (ReconfigSeq(initial.0), initial.minus(1))), "{named:?}");
}

#[test]
fn what_had_come_of_a_message_is_forgotten_when_its_stream_begins_anew() {
    let config = AssociationConfig {
        extensions: Extensions { reconfiguration: true, interleaving: true, ..Extensions::NONE },
        ..AssociationConfig::rfc9260()
    };
    let supported = [SupportedExtensions(&[KIND, IData::KIND]).into()];
    let mut raw = Raw::connected_with(config, Parameters::new(&supported));
    let piece = |tsn: u32, part, ending, payload: &'static [u8]| IData {
        tsn: Tsn(FIRST + tsn),
        stream: StreamId(3),
        mid: Mid(0),
        part,
        immediate: false,
        unordered: false,
        ending,
        payload,
    };
    raw.chunk(&piece(0, Part::Later(Fsn(2)), true, b"an old end"));
    let request = reset(&raw, 0, &[StreamId(3)], FIRST);
    assert_eq!(ask(&mut raw, &[request.into()]), [(ReconfigSeq(FIRST), ReconfigResult::PERFORMED)]);
    raw.chunk(&piece(1, Part::First(Ppid(0)), false, b"a new "));
    raw.chunk(&piece(2, Part::Later(Fsn(1)), false, b"message"));
    assert!(raw.read().is_empty(), "it has not ended");
    raw.chunk(&piece(3, Part::Later(Fsn(2)), true, b" and its own end"));
    let got: Vec<_> = raw.read().into_iter().map(|m| m.payload).collect();
    assert_eq!((got, raw.closed()), (vec![b"a new message and its own end".to_vec()], None));
}

#[test]
fn a_request_outlives_neither_the_shutdown_nor_does_it_end_it() {
    // Answered after the SHUTDOWN chunk was sent.
    let done = |done| Event::OutgoingReset { streams: vec![StreamId(4)], done };
    let ending = |answered: bool| {
        let mut raw = connected();
        let id = raw.id.unwrap();
        raw.server.reset_outgoing(id, &[StreamId(4)]).unwrap();
        raw.take();
        raw.server.shutdown(raw.now, id);
        assert!(crate::support::watch::all_kinds(&raw.take()).contains(&7));
        if answered {
            let response = ReconfigSeq(raw.initial.0);
            let response = ReconfigResponse { response, result: ReconfigResult::PERFORMED, next_tsns: None };
            raw.chunk(&ReConfig { parameters: Parameters::new(&[response.into()]) });
        }
        // The peer has still much to send, and little time for anything else.
        let mut requests = 0;
        for i in 0..40u32 {
            raw.chunk(&data(FIRST + i, i as u16, b"more"));
            raw.read();
            parameters(&raw.wait(Duration::from_secs(6)), |_| requests += 1);
        }
        assert!(requests <= 1, "{requests} times");
        raw.events()
    };
    assert!(ending(true).contains(&done(true)));
    let events = ending(false);
    assert!(events.contains(&done(false)) && !events.iter().any(|e| matches!(e, Event::Closed(_))), "{events:?}");
}

#[test]
fn without_agreement_requests_are_neither_made_nor_answered() {
    let mut raw = Raw::connected(AssociationConfig::rfc9260());
    let id = raw.id.unwrap();
    assert_eq!(raw.server.reset_outgoing(id, &[]), Err(ReconfigError::NotSupported));
    let add = AddOutgoing { request: ReconfigSeq(FIRST), streams: 2 };
    assert_eq!(ask(&mut raw, &[add.into()]), []);
    assert_eq!(raw.server.streams(id).1, 100);
}

fn respond(raw: &mut Raw, result: ReconfigResult) {
    let response = ReconfigResponse { response: ReconfigSeq(raw.initial.0), result, next_tsns: None };
    raw.chunk(&ReConfig { parameters: Parameters::new(&[response.into()]) });
}

#[test]
fn two_that_ask_each_other_at_once_do_not_wait_for_each_other() {
    let streams = [StreamId(1)];
    let theirs = IncomingReset { request: ReconfigSeq(FIRST), streams: Array::from(&streams[..]) };
    for adding in [false, true] {
        let mut raw = connected();
        let id = raw.id.unwrap();
        if adding {
            raw.server.add_incoming(id, 3).unwrap();
        } else {
            raw.server.reset_incoming(id, &streams).unwrap();
        }
        raw.take();
        // Result 4: that ends the peer's request, as the same answer ends ours.
        assert_eq!(ask(&mut raw, &[theirs.into()]), [(ReconfigSeq(FIRST), ReconfigResult::ALREADY_IN_PROGRESS)]);
        respond(&mut raw, ReconfigResult::ALREADY_IN_PROGRESS);
        let refused = match adding {
            true => Event::IncomingAddRefused { more: 3 },
            false => Event::IncomingResetRefused { streams: streams.to_vec() },
        };
        assert_eq!(raw.events(), [refused]);
        // Now it is done.
        let theirs = IncomingReset { request: ReconfigSeq(FIRST + 1), ..theirs };
        assert_eq!(ask(&mut raw, &[theirs.into()]), []);
    }
}

/// Section 5.2.3: while our own request is under way there is nothing to do if it names all of
/// these streams.
#[test]
fn what_is_being_reset_already_need_not_be_and_what_is_not_waits() {
    let mut raw = connected();
    let id = raw.id.unwrap();
    raw.server.reset_outgoing(id, &[StreamId(1), StreamId(2)]).unwrap();
    raw.take();
    let asked = |number: u32, stream: u16| -> Parameter<'static> {
        let streams: &'static [StreamId] = Box::leak(Box::new([StreamId(stream)]));
        IncomingReset { request: ReconfigSeq(FIRST + number), streams: Array::from(streams) }.into()
    };
    assert_eq!(ask(&mut raw, &[asked(0, 2)]), [(ReconfigSeq(FIRST), ReconfigResult::NOTHING_TO_DO)]);
    assert_eq!(ask(&mut raw, &[asked(1, 3)]), [(ReconfigSeq(FIRST + 1), ReconfigResult::IN_PROGRESS)]);
    respond(&mut raw, ReconfigResult::PERFORMED);
    assert_eq!(ask(&mut raw, &[asked(1, 3)]), [], "the answer is a request of its own");
}

/// Section 5.2.7, H2: an answer is no error, of the path neither.
#[test]
fn a_peer_that_is_at_it_makes_no_errors() {
    let mut raw = connected();
    let id = raw.id.unwrap();
    raw.server.add_outgoing(id, 3).unwrap();
    raw.take();
    let mut asked = 0;
    for _ in 0..20 {
        respond(&mut raw, ReconfigResult::IN_PROGRESS);
        parameters(&raw.wait(Duration::from_secs(1)), |p| asked += u32::from(matches!(p, Parameter::AddOutgoing(_))));
        assert_eq!(raw.path().errors, 0);
    }
    assert!(asked >= 5, "and it is asked again, not later each time: {asked}");
    // One that sends nothing more makes some.
    raw.wait(Duration::from_secs(10));
    assert!(raw.path().errors > 0);
}
