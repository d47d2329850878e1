use super::*;
use neater_base::Rng;

fn fragment(tsn: u64, begins: bool, ends: bool, payload: &[u8]) -> Fragment<'_> {
    Fragment {
        place: Place::data(tsn),
        stream: StreamId(1),
        unordered: false,
        number: 7,
        ppid: Ppid(9),
        begins,
        ends,
        payload,
    }
}

#[test]
fn a_whole_message_passes_through() {
    let (mut r, mut b) = (Reassembly::default(), Buffers::default());
    let run = r.insert(&fragment(5, true, true, b"hello"), &mut b, None).unwrap().unwrap();
    assert_eq!((run.stream, run.number, run.ppid), (StreamId(1), 7, Ppid(9)));
    assert_eq!(run.into_payload(&mut b), b"hello");
    assert_eq!((r.charged(), r.is_empty()), (0, true));
}

#[test]
fn fragments_in_order_share_one_buffer() {
    let (mut r, mut b) = (Reassembly::default(), Buffers::default());
    assert!(r.insert(&fragment(5, true, false, b"he"), &mut b, None).unwrap().is_none());
    assert!(r.insert(&fragment(6, false, false, b"ll"), &mut b, None).unwrap().is_none());
    assert_eq!(r.charged(), 4 + OVERHEAD);
    let run = r.insert(&fragment(7, false, true, b"o"), &mut b, None).unwrap().unwrap();
    assert!(run.tail.is_empty());
    assert_eq!(run.into_payload(&mut b), b"hello");
    assert_eq!(r.charged(), 0);
}

#[test]
fn fragments_that_contradict_each_other_are_refused() {
    let misfit = |first: Fragment<'_>, second: Fragment<'_>| {
        let (mut r, mut b) = (Reassembly::default(), Buffers::default());
        assert!(r.insert(&first, &mut b, None).unwrap().is_none());
        r.insert(&second, &mut b, None).is_err()
    };
    assert!(misfit(fragment(5, true, false, b"a"), fragment(6, true, false, b"b")));
    assert!(misfit(fragment(6, true, false, b"a"), fragment(5, true, false, b"b")));
    assert!(misfit(fragment(5, false, true, b"a"), fragment(6, false, true, b"b")));
    assert!(misfit(fragment(6, false, true, b"a"), fragment(5, false, true, b"b")));
    assert!(misfit(fragment(5, true, false, b"a"), Fragment { number: 8, ..fragment(6, false, true, b"b") }));
    assert!(misfit(fragment(6, false, true, b"a"), Fragment { unordered: true, ..fragment(5, true, false, b"b") }));
    assert!(!misfit(fragment(5, false, true, b"a"), fragment(6, true, false, b"b")), "neighbours of two messages");
    assert!(!misfit(fragment(6, true, false, b"a"), fragment(5, false, true, b"b")), "neighbours of two messages");
}

/// Whatever the order in which fragments arrive: messages that break off are found, once each, and
/// nothing of them is left.
#[test]
fn messages_that_break_off_are_found_in_any_order() {
    for seed in 0..300 {
        let mut rng = Rng::from_number(seed);
        let (mut r, mut b, mut arrivals) = (Reassembly::default(), Buffers::default(), Arrivals::new(1));
        let (mut fragments, mut expected, mut tsn) = (Vec::new(), Vec::new(), 1);
        for number in 0..12 {
            let len = 1 + rng.u64() % 4;
            // The last one is whole: what follows a message that breaks off shows that it does.
            let whole = number == 11 || !rng.u64().is_multiple_of(3);
            for i in 0..len {
                fragments.push((tsn, Fragment { number, ..fragment(tsn, i == 0, whole && i == len - 1, b"x") }));
                tsn += 1;
            }
            expected.push((number, whole));
        }
        while !fragments.is_empty() {
            // Mostly in order, as on real paths.
            let at = if rng.u64().is_multiple_of(3) { (rng.u64() as usize) % fragments.len() } else { 0 };
            let (tsn, f) = fragments.remove(at);
            let whole = r.insert(&f, &mut b, Some(&arrivals)).unwrap();
            arrivals.insert(tsn);
            let found = whole.map(|run| (run.number, true)).into_iter();
            for found in found.chain(core::mem::take(&mut r.cut).into_iter().map(|run| (run.number, false))) {
                let at = expected.iter().position(|e| *e == found);
                expected.remove(at.unwrap_or_else(|| panic!("seed {seed}: {found:?} is not expected")));
            }
        }
        assert_eq!((expected, r.charged(), r.is_empty()), (vec![], 0, true), "seed {seed}");
    }
}

#[test]
fn part_of_a_long_message_can_be_taken_out() {
    let (mut r, mut b) = (Reassembly::default(), Buffers::default());
    r.insert(&fragment(5, true, false, b"abc"), &mut b, None).unwrap();
    r.insert(&fragment(7, false, true, b"g"), &mut b, None).unwrap();
    assert!(r.take_partial(4, &mut b, 77, |_| true).is_none(), "too little");
    assert!(r.take_partial(1, &mut b, 77, |_| false).is_none(), "not its turn");
    r.turn(StreamId(1), 6);
    assert!(r.take_partial(1, &mut b, 77, |_| true).is_none(), "that was another's turn");
    r.turn(StreamId(1), 7);
    let p = r.take_partial(1, &mut b, 77, |_| true).unwrap();
    assert_eq!((p.payload.as_slice(), p.first, p.stream), (&b"abc"[..], true, StreamId(1)));
    assert!(r.take_partial(1, &mut b, 77, |_| true).is_none(), "nothing new");
    let run = r.insert(&fragment(6, false, false, b"def"), &mut b, None).unwrap().unwrap();
    assert_eq!(run.continues, Some(77));
    assert_eq!(run.into_payload(&mut b), b"defg");
    assert_eq!(r.charged(), 0);
}

#[test]
fn what_the_peer_gave_up_is_dropped() {
    let (mut r, mut b) = (Reassembly::default(), Buffers::default());
    r.insert(&fragment(5, true, false, b"abc"), &mut b, None).unwrap();
    r.insert(&fragment(9, true, false, b"xyz"), &mut b, None).unwrap();
    r.cut_data_to(6);
    assert!(r.cut.iter().all(|run| run.continues.is_none()));
    r.cut.clear();
    assert_eq!(r.charged(), 3 + OVERHEAD);
    assert!(r.take_partial(1, &mut b, 77, |_| true).is_some());
    r.cut_data_to(9);
    assert_eq!(
        r.cut.iter().filter_map(|run| run.continues).collect::<Vec<_>>(),
        [77],
        "its beginning had been delivered"
    );
    assert!(r.is_empty());
    assert_eq!(r.charged(), 0);
    let interleaved = |mid, fsn| Fragment {
        place: Place::idata(StreamId(1), false, mid, fsn),
        number: mid,
        ..fragment(0, fsn == 0, false, b"i")
    };
    r.insert(&interleaved(u32::MAX, 0), &mut b, None).unwrap();
    r.insert(&interleaved(1, 0), &mut b, None).unwrap();
    r.drop_messages_to(StreamId(1), true, 5, &mut b);
    r.drop_messages_to(StreamId(2), false, 5, &mut b);
    assert_eq!(r.charged(), 2 * (1 + OVERHEAD));
    r.drop_messages_to(StreamId(1), false, 0, &mut b);
    assert_eq!(r.charged(), 1 + OVERHEAD);
}

/// Messages cut at random, interleaved or not, in random order: each comes out whole and once, and
/// nothing stays behind.
#[test]
fn any_order_of_fragments_gives_the_messages() {
    for seed in 0..200 {
        let mut rng = Rng::from_number(seed);
        let interleaved = rng.chance(0.5);
        let mut tsn = 100;
        let mut pieces = Vec::new();
        let mut sent = Vec::new();
        for number in 0..1 + rng.below(8) as u32 {
            let payload: Vec<u8> = (0..1 + rng.below(50)).map(|_| rng.u32() as u8).collect();
            let (mut at, mut fsn) = (0, 0);
            while at < payload.len() {
                let len = (1 + rng.below(12) as usize).min(payload.len() - at);
                let ends = at + len == payload.len();
                let stream = StreamId(number as u16 % 3);
                let place = if interleaved { Place::idata(stream, false, number, fsn) } else { Place::data(tsn) };
                pieces.push((place, stream, number, at == 0, ends, payload[at..at + len].to_vec()));
                (at, fsn, tsn) = (at + len, fsn + 1, tsn + 1);
            }
            sent.push(payload);
        }
        if rng.chance(0.2) {
            pieces.reverse();
        } else if rng.chance(0.8) {
            rng.shuffle(&mut pieces);
        }
        let (mut r, mut b) = (Reassembly::default(), Buffers::default());
        let mut got = vec![Vec::new(); sent.len()];
        for (place, stream, number, begins, ends, payload) in &pieces {
            let f = Fragment {
                place: *place,
                stream: *stream,
                unordered: false,
                number: *number,
                ppid: Ppid(0),
                begins: *begins,
                ends: *ends,
                payload,
            };
            if let Some(run) = r.insert(&f, &mut b, None).unwrap() {
                let n = run.number as usize;
                assert!(got[n].is_empty(), "seed {seed}: twice");
                got[n] = run.into_payload(&mut b);
            }
        }
        assert_eq!(got, sent, "seed {seed}");
        assert_eq!((r.charged(), r.is_empty()), (0, true), "seed {seed}");
    }
}

/// A peer chooses what is recycled when, and what begins and never ends.
#[test]
fn beginnings_do_not_keep_large_buffers() {
    let (mut r, mut b) = (Reassembly::default(), Buffers::default());
    for i in 0..400 {
        b.recycle(Vec::with_capacity(400_000));
        let beginning = Fragment {
            place: Place::idata(StreamId(0), true, i, 0),
            unordered: true,
            ..fragment(0, true, false, b"x")
        };
        assert!(r.insert(&beginning, &mut b, None).unwrap().is_none());
    }
    let kept: usize = r.hot.iter().chain(r.cold.values()).map(|run| run.head.capacity()).sum();
    assert!(kept <= 1 << 20, "{kept}");
    // What is handed over, in whole or in part, is in a buffer of its size.
    let part = r.take_partial(1, &mut b, 7, |_| true).unwrap();
    assert!(part.payload.capacity() < 100);
    let mut sum = 0;
    for i in 0..400 {
        let end = Fragment {
            place: Place::idata(StreamId(0), true, i, 1),
            unordered: true,
            ..fragment(0, false, true, b"y")
        };
        let end = Fragment { number: 7, ..end };
        if let Some(run) = r.insert(&end, &mut b, None).unwrap() {
            sum += run.into_payload(&mut b).capacity();
        }
    }
    assert!(sum < 400 * 100, "{sum}");
    assert_eq!((r.charged(), r.lent), (0, 0));
}

/// Neither those that were delivered as far as they came nor those whose turn has not come are
/// looked at for each packet.
#[test]
fn thousands_of_beginnings_are_looked_at_once_each() {
    let (mut r, mut b) = (Reassembly::default(), Buffers::default());
    const EACH: u32 = 3000;
    let looks = core::cell::Cell::new(0);
    let mut parts = 0;
    let mut taken = |r: &mut Reassembly, b: &mut Buffers, next: u32| {
        let is_next = |run: &Run| {
            looks.set(looks.get() + 1);
            run.unordered || run.number == next
        };
        if r.has_partial(1, is_next) {
            parts += u32::from(r.take_partial(1, b, 7, is_next).is_some());
        }
    };
    for i in 0..EACH {
        let of = |unordered, mid| Fragment {
            place: Place::idata(StreamId(0), unordered, mid, 0),
            unordered,
            number: mid,
            stream: StreamId(0),
            ..fragment(0, true, false, b"x")
        };
        r.insert(&of(true, i), &mut b, None).unwrap();
        r.insert(&of(false, i + 1), &mut b, None).unwrap();
        taken(&mut r, &mut b, 0);
    }
    r.turn(StreamId(0), 1);
    taken(&mut r, &mut b, 1);
    assert_eq!(parts, EACH + 1, "each that is unordered, and the ordered one whose turn it is");
    assert!(looks.get() < 8 * EACH, "{}", looks.get());
    // Those that a FORWARD-TSN chunk names are found without looking at the others.
    r.drop_messages_to(StreamId(0), false, EACH / 2, &mut b);
    r.drop_messages_to(StreamId(0), true, u32::MAX, &mut b);
    assert_eq!(r.cold.len() + usize::from(r.hot.is_some()), (EACH + EACH / 2) as usize);
}
