//! NR-SACK (Natarajan 2009, chapter 3): what has arrived and is not dropped again is not kept by
//! its sender.

use crate::support::raw::Raw;
use crate::support::{PORTS, World, config, ms};
use bytes::Bytes;
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{AssociationConfig, Burst, CloseReason, Extensions, Recovery, SendError, SendOptions};
use neater_sctp_wire::chunk::{GapBlock, NrSack};
use neater_sctp_wire::parameter::SupportedExtensions;
use neater_sctp_wire::{Array, Chunk, Packet, Parameters, StreamId, Tsn};

fn with(nr_sack: bool) -> AssociationConfig {
    let base = AssociationConfig::rfc9260();
    AssociationConfig {
        extensions: Extensions { nr_sack, ..Extensions::NONE },
        recovery: Recovery {
            initial_window: neater_cc::InitialWindow::Segments(10),
            burst: Burst::Unlimited,
            ..base.recovery
        },
        ..base
    }
}

/// A server whose peer has NR-SACK, ten chunks of 1,000 bytes under way.
fn raw() -> Raw {
    let kinds = SupportedExtensions(&[NrSack::KIND]);
    let mut raw = Raw::connected_with(with(true), Parameters::new(&[kinds.into()]));
    raw.send(&[1000; 10]);
    assert_eq!(raw.sent().len(), 10);
    raw
}

fn blocks(of: &[(u16, u16)]) -> Vec<GapBlock> {
    of.iter().map(|(start, end)| GapBlock { start: *start, end: *end }).collect()
}

/// Offsets count from the first chunk, whose number is 1.
fn nr_sack(raw: &mut Raw, count: u32, gaps: &[(u16, u16)], non_renegable: &[(u16, u16)]) {
    let cumulative = Tsn(raw.initial.0.wrapping_add(count).wrapping_sub(1));
    let (gaps, non_renegable) = (blocks(gaps), blocks(non_renegable));
    let (gaps, non_renegable) = (Array::new(&gaps), Array::new(&non_renegable));
    raw.chunk(&NrSack { cumulative, a_rwnd: 100_000, gaps, non_renegable, duplicates: Array::EMPTY, packets: 0 });
}

#[test]
fn what_is_not_renegable_is_not_kept() {
    let mut raw = raw();
    let kept = |raw: &Raw| raw.stats().retransmission_queue;
    let before = kept(&raw);
    nr_sack(&mut raw, 0, &[(2, 2)], &[(3, 4)]);
    assert_eq!(before - kept(&raw), 2000, "2 may be taken back");
    nr_sack(&mut raw, 0, &[(2, 2)], &[(3, 4)]);
    assert_eq!(before - kept(&raw), 2000, "and not twice");
    // The form of 2009: the second list is part of the first.
    nr_sack(&mut raw, 0, &[(2, 4)], &[(2, 4)]);
    assert_eq!(before - kept(&raw), 3000);
    nr_sack(&mut raw, 4, &[], &[]);
    assert_eq!(before - kept(&raw), 4000);
    // Blocks beyond what was sent are cut off.
    nr_sack(&mut raw, 4, &[], &[(2, 60_000)]);
    assert_eq!(kept(&raw), 1000);
    nr_sack(&mut raw, 10, &[], &[]);
    assert_eq!(kept(&raw), 0);
}

#[test]
fn what_may_be_taken_back_is_sent_again_when_it_is_and_the_rest_is_not() {
    let mut raw = raw();
    nr_sack(&mut raw, 0, &[(2, 3)], &[(6, 7)]);
    raw.take();
    let initial = raw.initial.0;
    // 2 cannot be missing above 1 if it was not dropped.
    nr_sack(&mut raw, 1, &[], &[(5, 6)]);
    let mut again = Vec::new();
    for bytes in raw.wait(Duration::from_secs(3)) {
        for chunk in Packet::parse(&bytes).unwrap().chunks().flatten() {
            if let Ok(Chunk::Data(data)) = Chunk::decode(&chunk) {
                again.push(data.tsn.0.wrapping_sub(initial).wrapping_add(1));
            }
        }
    }
    assert!(again.contains(&2), "{again:?}");
    assert!(!again.contains(&6) && !again.contains(&7), "{again:?}");
    raw.wait(Duration::from_secs(10));
    nr_sack(&mut raw, 10, &[], &[]);
    assert_eq!((raw.stats().retransmission_queue, raw.closed()), (0, None));
}

#[test]
fn who_takes_back_what_is_not_renegable_is_left() {
    let mut raw = raw();
    nr_sack(&mut raw, 0, &[], &[(2, 3)]);
    nr_sack(&mut raw, 1, &[], &[]);
    assert!(matches!(raw.closed(), Some(CloseReason::PeerMisbehaved(why)) if why.contains("non-renegable")));
}

#[test]
fn where_it_was_not_agreed_the_chunk_is_not_known() {
    let mut raw = Raw::connected(with(true));
    raw.send(&[1000]);
    raw.sent();
    nr_sack(&mut raw, 1, &[], &[]);
    assert_eq!(raw.stats().retransmission_queue, 1000);
}

/// Chunk types that end 1 sends, between ends of which these have the extension.
fn acknowledgments(ours: bool, theirs: bool) -> Vec<u8> {
    let configs = [ours, theirs].map(with);
    let mut end = 0;
    let configs = configs.map(|c| {
        end += 1;
        config(end - 1, 1, c)
    });
    let mut w = World::with(1, configs, vec![LinkConfig::delay(ms(10))]);
    let [a, b] = w.established();
    let log = crate::support::record(&mut w);
    for _ in 0..20 {
        w.send(0, a, 0, &[1; 1000]);
    }
    w.run(Duration::from_secs(2));
    assert_eq!(w.read(1, b).len(), 20);
    let seen = log.borrow();
    seen.iter().filter(|(end, _)| *end == 1).flat_map(|(_, p)| crate::support::kinds(p)).collect()
}

#[test]
fn it_is_used_between_two_that_have_it() {
    let kinds = acknowledgments(true, true);
    assert!(!kinds.is_empty() && kinds.iter().all(|k| *k == NrSack::KIND), "{kinds:?}");
    for (ours, theirs) in [(true, false), (false, true), (false, false)] {
        assert!(acknowledgments(ours, theirs).iter().all(|k| *k == 3));
    }
}

/// Unordered messages over a path with losses, from a send buffer that is the limit: how long it
/// takes, the most that the sender kept, and whether everything that was acknowledged out of order
/// was non-renegable.
fn lossy(nr_sack: bool) -> (Duration, bool) {
    let configs = [0, 1].map(|end| config(end, 1, AssociationConfig { send_buffer: 40_000, ..with(nr_sack) }));
    assert_eq!(configs[0].port, PORTS[0]);
    let mut w = World::with(4, configs, vec![LinkConfig::rate(10_000_000, ms(50)).with_loss(0.02)]);
    let [a, b] = w.established();
    let begin = w.now;
    let (payload, options) = (Bytes::from(vec![1; 1000]), SendOptions { unordered: true, ..SendOptions::default() });
    let log = crate::support::record(&mut w);
    let (mut sent, mut read) = (0, 0);
    while read < 1500 {
        while sent < 1500 {
            match w.ends[0].send(a, StreamId(0), payload.clone(), options) {
                Ok(_) => sent += 1,
                Err(SendError::Blocked) => break,
                Err(other) => panic!("{other}"),
            }
        }
        w.run(ms(5));
        read += w.read(1, b).len();
        assert!(w.now - begin < Duration::from_secs(300));
    }
    let mut any = false;
    for (_, bytes) in log.borrow().iter().filter(|(end, _)| *end == 1) {
        for chunk in Packet::parse(bytes).unwrap().chunks().flatten() {
            if let Ok(Chunk::NrSack(sack)) = Chunk::decode(&chunk) {
                assert!(sack.gaps.is_empty());
                any |= !sack.non_renegable.is_empty();
            }
        }
    }
    (w.now - begin, any)
}

#[test]
fn a_send_buffer_goes_further() {
    let ((without, none), (with, some)) = (lossy(false), lossy(true));
    assert!(!none && some);
    assert!(with.as_secs_f64() < 0.95 * without.as_secs_f64(), "{with:?} {without:?}");
}
