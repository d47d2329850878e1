use super::super::Reliability;
use super::*;
use bytes::Bytes;
use neater_sctp_wire::Ppid;

fn message(id: u64, len: usize) -> Pending {
    Pending {
        id: MessageId(id),
        ppid: Ppid(0),
        unordered: false,
        immediate: false,
        report: false,
        reliability: Reliability::Full,
        payload: Bytes::from(vec![id as u8; len]),
        started: None,
    }
}

fn queues(scheduler: Scheduler, interleaving: bool, messages: &[(u16, usize)]) -> Queues {
    let mut q = Queues::new(scheduler, interleaving, 100);
    for (i, (stream, len)) in messages.iter().enumerate() {
        q.push(StreamId(*stream), message(i as u64, *len));
    }
    q
}

/// The ids in the order in which pieces of at most 100 bytes are cut, one packet each.
fn order(mut q: Queues) -> Vec<u64> {
    let ids = core::iter::from_fn(|| {
        let piece = q.take(100)?;
        q.end_of_packet();
        Some(piece.id.0)
    });
    let ids: Vec<u64> = ids.collect();
    assert_eq!((q.messages(), q.bytes(), q.is_empty()), (0, 0, true));
    ids
}

#[test]
fn the_first_come_is_first_served() {
    let q = queues(Scheduler::FirstCome, true, &[(1, 250), (2, 50), (1, 50), (3, 50)]);
    assert_eq!(order(q), [0, 0, 0, 1, 2, 3]);
}

#[test]
fn streams_take_turns_with_messages_or_with_fragments() {
    let load = [(1, 250), (2, 50), (1, 50), (2, 50)];
    assert_eq!(order(queues(Scheduler::RoundRobin, false, &load)), [0, 0, 0, 1, 2, 3]);
    assert_eq!(order(queues(Scheduler::RoundRobin, true, &load)), [0, 1, 0, 3, 0, 2]);
}

#[test]
fn streams_take_turns_with_packets() {
    let mut q = queues(Scheduler::RoundRobinPerPacket, true, &[(1, 10), (1, 10), (2, 10), (1, 10)]);
    let mut packet = |n| (0..n).map(|_| q.take(100).unwrap().id.0).collect::<Vec<_>>();
    assert_eq!(packet(2), [0, 1]);
    q.end_of_packet();
    assert_eq!(q.take(100).unwrap().id.0, 2);
    q.end_of_packet();
    assert_eq!(q.take(100).unwrap().id.0, 3);
    assert!(q.take(100).is_none());
}

#[test]
fn the_smaller_priority_value_goes_first_and_equal_ones_take_turns() {
    let mut q = queues(Scheduler::Priority, true, &[(1, 250), (2, 250)]);
    q.set_value(StreamId(1), 5);
    q.set_value(StreamId(2), 5);
    q.set_value(StreamId(3), 1);
    let mut ids: Vec<u64> = (0..2).map(|_| q.take(100).unwrap().id.0).collect();
    q.push(StreamId(3), message(9, 150));
    ids.extend((0..6).map(|_| q.take(100).unwrap().id.0));
    assert_eq!((ids[2], ids[3]), (9, 9), "{ids:?}");
    assert_eq!(ids.iter().filter(|i| **i == 0).count(), 3, "{ids:?}");
    assert_ne!(ids[0], ids[1], "{ids:?}");
    assert!(q.take(100).is_none());
}

#[test]
fn bandwidth_is_shared_by_bytes_and_by_weights() {
    let mut q = Queues::new(Scheduler::FairBandwidth, true, 100);
    for i in 0..300 {
        q.push(StreamId(1), message(i, 10));
        q.push(StreamId(2), message(1000 + i, 30));
    }
    let mut bytes = [0, 0];
    while bytes[0] + bytes[1] < 2000 {
        let piece = q.take(100).unwrap();
        bytes[usize::from(piece.stream.0) - 1] += piece.payload.len();
    }
    assert!(bytes[0].abs_diff(bytes[1]) <= 40, "{bytes:?}");

    let mut q = Queues::new(Scheduler::WeightedFair, true, 100);
    q.set_value(StreamId(1), 3);
    q.set_value(StreamId(2), 1);
    q.push(StreamId(1), message(0, 100_000));
    q.push(StreamId(2), message(1, 100_000));
    let mut bytes = [0, 0];
    while bytes[0] + bytes[1] < 40_000 {
        let piece = q.take(100).unwrap();
        bytes[usize::from(piece.stream.0) - 1] += piece.payload.len();
    }
    assert!(bytes[0].abs_diff(30_000) <= 300, "{bytes:?}");
}

#[test]
fn a_stream_that_was_silent_gets_no_arrears() {
    let mut q = Queues::new(Scheduler::FairBandwidth, true, 100);
    q.push(StreamId(1), message(0, 100_000));
    for _ in 0..500 {
        q.take(100);
    }
    q.push(StreamId(2), message(1, 100_000));
    let served: Vec<u16> = (0..20).map(|_| q.take(100).unwrap().stream.0).collect();
    assert!(served.iter().filter(|s| **s == 2).count() <= 11, "{served:?}");
}

/// What runs empty and comes back at once has its share like what never does; it is not made to
/// wait for its burst to be paid twice.
#[test]
fn a_stream_that_runs_empty_between_its_messages_gets_its_share() {
    for (weight, scheduler) in [(1, Scheduler::FairBandwidth), (3, Scheduler::WeightedFair)] {
        let mut q = Queues::new(scheduler, true, 100);
        q.set_value(StreamId(1), weight);
        q.push(StreamId(2), message(0, 1_000_000));
        let mut bytes = [0, 0];
        for i in 0..1000 {
            // The first is given its next message when the last one has gone.
            if !q.has_stream(StreamId(1)) {
                q.push(StreamId(1), message(1 + i, 100));
            }
            let piece = q.take(100).unwrap();
            bytes[usize::from(piece.stream.0) - 1] += piece.payload.len();
        }
        let share = 100_000 * usize::from(weight) / (usize::from(weight) + 1);
        assert!(bytes[0].abs_diff(share) <= 200, "{bytes:?}");
    }
}

/// Nor does coming and going win anything: a stream that has just sent a lot begins where it has
/// stopped.
#[test]
fn a_stream_that_empties_itself_does_not_begin_anew() {
    let mut q = Queues::new(Scheduler::FairBandwidth, false, 100);
    q.push(StreamId(1), message(0, 100_000));
    for i in 0..10 {
        q.push(StreamId(2), message(1 + i, 100));
    }
    let mut order = Vec::new();
    while order.len() < 10 {
        let piece = q.take(1000).unwrap();
        if piece.stream == StreamId(2) {
            order.push(2);
        } else if piece.ends {
            order.push(1);
            q.push(StreamId(1), message(99, 100));
        }
    }
    assert_eq!(order.iter().filter(|s| **s == 1).count(), 1, "{order:?}");
}

#[test]
fn pieces_are_numbered_and_cut() {
    let mut q = queues(Scheduler::FirstCome, true, &[(7, 250), (7, 10)]);
    q.push(StreamId(7), Pending { unordered: true, ..message(2, 5) });
    let pieces: Vec<_> = core::iter::from_fn(|| q.take(100)).collect();
    let said: Vec<_> = pieces.iter().map(|p| (p.number, p.fsn, p.begins, p.ends, p.payload.len())).collect();
    assert_eq!(
        said,
        [
            (0, 0, true, false, 100),
            (0, 1, false, false, 100),
            (0, 2, false, true, 50),
            (1, 0, true, true, 10),
            (0, 0, true, true, 5)
        ]
    );
    assert!(!q.is_unfinished(StreamId(7)));
    q.restart_numbers(StreamId(7));
    q.push(StreamId(7), message(3, 1));
    assert_eq!(q.take(100).unwrap().number, 0);
}

#[test]
fn messages_can_be_taken_back() {
    let mut q = queues(Scheduler::RoundRobin, true, &[(1, 250), (1, 50), (2, 50)]);
    q.take(100);
    assert!(q.is_unfinished(StreamId(1)));
    let left = q.remove(StreamId(1), MessageId(0)).unwrap();
    assert_eq!((left.payload.len(), left.started), (150, Some((0, 1))));
    assert!(q.remove(StreamId(1), MessageId(0)).is_none());
    assert!(q.remove(StreamId(50), MessageId(1)).is_none());
    q.remove(StreamId(2), MessageId(2)).unwrap();
    assert_eq!(order(q), [1]);
}

#[test]
fn a_held_stream_sends_what_came_before_and_nothing_that_comes_after() {
    use Scheduler as S;
    for scheduler in [S::FirstCome, S::RoundRobin, S::RoundRobinPerPacket, S::Priority, S::FairBandwidth] {
        for interleaving in [false, true] {
            let mut q = queues(scheduler, interleaving, &[(1, 150), (1, 50), (2, 50)]);
            let mut ids = vec![q.take(100).unwrap().id.0];
            q.hold(&[StreamId(1)]);
            assert!(q.is_unfinished(StreamId(1)) && !q.is_unfinished(StreamId(2)));
            q.push(StreamId(1), message(3, 10));
            q.push(StreamId(2), message(4, 10));
            while let Some(piece) = q.take(100) {
                ids.push(piece.id.0);
                q.end_of_packet();
            }
            ids.sort_unstable();
            assert_eq!((&ids[..], q.messages()), (&[0, 0, 1, 2, 4][..], 1), "{scheduler:?} {interleaving}");
            assert!(!q.is_unfinished(StreamId(1)) && !q.is_any_unfinished());
            q.let_go(StreamId(1));
            assert_eq!(q.take(100).unwrap().id.0, 3);
        }
    }
}

/// What was sent on a stream after its reset was asked for would have numbers of before, and the
/// peer would restart the count (seed 9896 of sim_pair).
#[test]
fn a_held_stream_whose_message_is_given_up_or_ends_in_a_packet_begins_no_other() {
    for interleaving in [false, true] {
        let held = |scheduler| {
            let mut q = queues(scheduler, interleaving, &[(1, 150)]);
            assert_eq!(q.take(100).unwrap().id.0, 0);
            q.hold(&[StreamId(1)]);
            q.push(StreamId(1), message(1, 50));
            q.push(StreamId(2), message(2, 50));
            q
        };
        let mut q = held(Scheduler::FirstCome);
        q.remove(StreamId(1), MessageId(0)).unwrap();
        let ids: Vec<u64> = core::iter::from_fn(|| q.take(100)).map(|p| p.id.0).collect();
        assert_eq!(ids, [2]);
        q.let_go(StreamId(1));
        assert_eq!(q.take(100).unwrap().id.0, 1);

        let mut q = held(Scheduler::RoundRobinPerPacket);
        let ids: Vec<u64> = core::iter::from_fn(|| q.take(100)).map(|p| p.id.0).collect();
        assert_eq!(ids, [0, 2]);
    }
}

#[test]
fn the_least_important_message_is_found_and_everything_can_be_drained() {
    let mut q = queues(Scheduler::FirstCome, true, &[(1, 10)]);
    for (id, p) in [(5, 3), (6, 9), (7, 4)] {
        q.push(StreamId(2), Pending { reliability: Reliability::Priority(p), ..message(id, 10) });
    }
    assert_eq!(q.least_important(3), Some((StreamId(2), MessageId(6))));
    assert_eq!(q.least_important(9), None);
    assert_eq!(q.drain().iter().map(|(_, m)| m.id.0).collect::<Vec<_>>(), [0, 5, 6, 7]);
    assert_eq!((q.messages(), q.bytes()), (0, 0));
    q.push(StreamId(1), message(8, 1));
    assert_eq!(order(q), [8]);
}

#[test]
fn memory_is_given_back_when_nothing_waits_and_not_before() {
    let mut q = Queues::new(Scheduler::RoundRobin, true, 100);
    for stream in 0..100 {
        q.push(StreamId(stream), message(u64::from(stream), 10));
    }
    q.trim();
    assert_eq!(core::iter::from_fn(|| q.take(100)).count(), 100, "what waits stays");
    q.trim();
    assert_eq!((q.queues.capacity(), q.free.capacity(), q.heap.capacity()), (0, 0, 0));
    q.push(StreamId(7), message(100, 10));
    let piece = q.take(100).unwrap();
    assert_eq!((piece.stream, piece.number), (StreamId(7), 1), "streams keep their numbers");
}

#[test]
fn first_come_goes_on_with_a_stream_only_while_nothing_older_waits_elsewhere() {
    let mut q = Queues::new(Scheduler::FirstCome, true, 10);
    for (id, stream) in [(0, 1), (1, 1), (2, 2), (3, 1), (4, 2), (5, 2)] {
        q.push(StreamId(stream), message(id, 10));
    }
    let order: Vec<u64> = core::iter::from_fn(|| q.take(100)).map(|p| p.id.0).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
}
