//! Congestion marks (RFC 3168, RFC 4960 appendix A), with queues that mark.

use crate::support::{World, kinds, ms, record};
use core::time::Duration;
use neater_link::{Codel, Discipline, LinkConfig, QueueLimit};
use neater_sctp::{AssociationConfig, AssociationId, Extensions};
use neater_sctp_wire::chunk::{Cwr, Ecne};

fn world(ecn: [bool; 2], marks: bool) -> World {
    let link = LinkConfig::rate(10_000_000, ms(20))
        .with_queue(QueueLimit::Packets(1000))
        .with_discipline(Discipline::Codel(Codel { ecn: marks, ..Codel::default() }));
    let configs = [0, 1].map(|end| {
        let association = AssociationConfig {
            extensions: Extensions { ecn: ecn[end], ..Extensions::default() },
            ..AssociationConfig::default()
        };
        crate::support::config(end, 1, association)
    });
    World::with(2, configs, vec![link])
}

fn transfer(w: &mut World, [a, b]: [AssociationId; 2], bytes: usize) -> Duration {
    let begin = w.now;
    let (mut sent, mut got) = (0, 0);
    while got < bytes {
        while sent < bytes
            && w.ends[0].send(a, neater_sctp_wire::StreamId(0), vec![1; 10_000].into(), Default::default()).is_ok()
        {
            sent += 10_000;
        }
        w.run(ms(20));
        got += w.read(1, b).iter().map(|m| m.payload.len()).sum::<usize>();
        assert!(w.now < begin + Duration::from_secs(60), "{got}");
    }
    w.now - begin
}

#[test]
fn a_queue_marks_the_marks_are_echoed_and_the_window_comes_down_without_loss() {
    let mut w = world([true, true], true);
    let log = record(&mut w);
    let ids = w.established();
    assert!(w.ends[0].agreed(ids[0]).unwrap().0.ecn);
    let took = transfer(&mut w, ids, 5_000_000);
    assert!(w.marks > 5, "{} marks", w.marks);
    let (sender, receiver) =
        (w.ends[0].association_stats(ids[0]).unwrap(), w.ends[1].association_stats(ids[1]).unwrap());
    assert_eq!(receiver.marked, w.marks);
    assert_eq!((sender.retransmissions, sender.timeouts), (0, 0), "the queue dropped nothing");
    let count = |end, kind| log.borrow().iter().filter(|(e, b)| *e == end && kinds(b).contains(&kind)).count();
    assert!(count(1, Ecne::KIND) > 5 && count(0, Cwr::KIND) > 5);
    // CoDel aims at 5 ms of queue: the window cannot have stayed large.
    let path = w.ends[0].paths(ids[0])[0];
    assert!(path.threshold.is_some() && path.srtt.unwrap() < ms(100), "{path:?}");
    assert!(took < Duration::from_secs(6), "{took:?}: 4 s at the rate of the link");
}

#[test]
fn an_echo_goes_on_until_it_is_answered() {
    let mut w = world([true, true], true);
    let hidden = std::rc::Rc::new(std::cell::Cell::new(3));
    let left = hidden.clone();
    let log = crate::support::Log::default();
    let seen = log.clone();
    w.tap = Some(Box::new(move |end, packet| {
        let kinds = kinds(&packet.bytes);
        seen.borrow_mut().push((end, packet.bytes.clone()));
        // The first answers are lost.
        let hide = end == 0 && kinds.contains(&Cwr::KIND) && left.get() > 0;
        left.set(left.get() - i32::from(hide));
        !hide
    }));
    let ids = w.established();
    transfer(&mut w, ids, 3_000_000);
    assert_eq!(hidden.get(), 0);
    w.run(Duration::from_secs(1));
    let last = log.borrow().iter().rev().find(|(end, _)| *end == 1).unwrap().1.clone();
    assert!(!kinds(&last).contains(&Ecne::KIND), "the last one was answered");
}

#[test]
fn without_agreement_nothing_is_marked_and_nothing_said() {
    for ecn in [[true, false], [false, true]] {
        let mut w = world(ecn, true);
        let log = record(&mut w);
        let ids = w.established();
        transfer(&mut w, ids, 2_000_000);
        assert_eq!(w.marks, 0, "CoDel drops what cannot be marked");
        assert!(w.ends[0].association_stats(ids[0]).unwrap().retransmissions > 0);
        assert!(log.borrow().iter().all(|(_, b)| !kinds(b).contains(&Ecne::KIND)));
    }
}

#[test]
fn what_is_sent_again_cannot_be_marked() {
    // RFC 3168 section 6.1.5: a copy that a forger or a loop made must not reduce anything; SCTP
    // follows it.
    let mut w = world([true, true], true);
    let mut seen = std::collections::BTreeSet::new();
    let mut dice = 0u32;
    w.tap = Some(Box::new(move |end, packet| {
        if end == 1 {
            return true;
        }
        let wire = neater_sctp_wire::Packet::parse(&packet.bytes).unwrap();
        let mut again = false;
        for raw in wire.chunks().flatten().filter(|c| c.kind == 64) {
            let tsn = u32::from_be_bytes(raw.value[..4].try_into().unwrap());
            again |= !seen.insert(tsn);
        }
        assert!(!(again && packet.ect));
        dice += 1;
        !dice.is_multiple_of(50)
    }));
    let ids = w.established();
    transfer(&mut w, ids, 1_000_000);
    assert!(w.ends[0].association_stats(ids[0]).unwrap().retransmissions > 10);
}

#[test]
fn chunks_without_agreement_or_sense_are_ignored() {
    use neater_sctp_wire::Tsn;
    for ecn in [true, false] {
        let mut w = world([ecn, true], false);
        let log = record(&mut w);
        let [a, _] = w.established();
        w.run(ms(100));
        let window = w.ends[0].paths(a)[0].window;
        let tag = {
            let log = log.borrow();
            let (_, b) = log.iter().rev().find(|(end, _)| *end == 1).unwrap();
            neater_sctp_wire::Packet::parse(b).unwrap().header.tag
        };
        // Of a TSN that was not sent, and a CWR chunk for nothing.
        for far in [0, 1 << 30, 1 << 31, 3 << 30] {
            let chunks = [Ecne { lowest: Tsn(far) }.into(), Cwr { lowest: Tsn(far) }.into()];
            let bytes = crate::support::packet([crate::support::PORTS[1], crate::support::PORTS[0]], tag, &chunks);
            let (from, to) = (crate::support::address(1, 0), crate::support::address(0, 0));
            w.deliver(0, 0, &crate::support::Packet { from, to, bytes, ect: false, whole: true }, false);
        }
        w.flush();
        assert_eq!((w.closed(0), w.ends[0].paths(a)[0].window <= window), (None, true));
    }
}
