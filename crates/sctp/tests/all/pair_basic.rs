//! Two associations talk: the handshake, messages, the end.

use crate::support::{World, ms};
use bytes::Bytes;
use core::time::Duration;
use neater_link::LinkConfig;
use neater_sctp::{AssociationConfig, CloseReason, Event, SendError, SendOptions};
use neater_sctp_wire::StreamId;

fn world() -> World {
    World::new(1, AssociationConfig::default(), LinkConfig::delay(ms(10)))
}

#[test]
fn a_message_crosses_and_the_association_ends() {
    let mut w = world();
    let [a, b] = w.established();
    // INIT, INIT ACK, COOKIE ECHO: two trips to be accepted, and one more to be connected.
    assert_eq!(w.now.saturating_since(neater_base::Instant::ZERO), Duration::from_millis(1_000_040));
    assert!(w.saw(0, &Event::Reachable));
    w.send(0, a, 3, b"hello");
    w.run(ms(50));
    assert!(w.saw(1, &Event::Readable));
    let got = w.read(1, b);
    assert_eq!(got.len(), 1);
    assert_eq!(
        (got[0].stream, got[0].payload.as_slice(), got[0].first, got[0].last),
        (StreamId(3), &b"hello"[..], true, true)
    );
    w.send(1, b, 0, b"and back");
    w.run(ms(50));
    assert_eq!(w.read(0, a)[0].payload, b"and back");
    let now = w.now;
    w.ends[0].shutdown(now, a);
    w.run(ms(500));
    assert_eq!((w.closed(0), w.closed(1)), (Some(CloseReason::Shutdown), Some(CloseReason::Shutdown)));
    assert!(w.saw(1, &Event::PeerShutdown));
    assert_eq!((w.ends[0].kept(), w.ends[1].kept()), (0, 0));
    assert_eq!((w.ends[0].next_timeout(), w.ends[1].next_timeout()), (None, None));
}

#[test]
fn early_data_goes_with_the_cookie() {
    let mut w = world();
    let a = w.connect(0);
    w.send(0, a, 0, b"early");
    w.run_until(ms(1000), |w| w.saw(1, &Event::Readable));
    // Three trips: INIT, INIT ACK, COOKIE ECHO with the data.
    assert_eq!(w.now.as_nanos(), 1_000_030_000_000);
    assert_eq!(w.packets, [2, 2], "the last is COOKIE ACK");
    let b = w.events[1][0].0;
    assert_eq!(w.read(1, b)[0].payload, b"early");
}

#[test]
fn long_messages_are_cut_and_joined() {
    for association in [AssociationConfig::default(), AssociationConfig::rfc9260()] {
        let mut w = World::new(2, association, LinkConfig::delay(ms(5)));
        let [a, b] = w.established();
        for len in [1, 1000, 1200, 1201, 5000, 65_536, 300_000] {
            let message: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            w.send(0, a, 1, &message);
            w.run(Duration::from_secs(5));
            let got = w.read(1, b);
            assert_eq!(got.len(), 1, "{len} bytes");
            assert!(got[0].payload == message, "{len} bytes");
        }
        assert_eq!(w.ends[0].buffered(a), 0);
        assert_eq!(w.ends[0].association_stats(a).unwrap().retransmissions, 0);
    }
}

#[test]
fn a_message_longer_than_the_receive_buffer_comes_in_parts() {
    let association = AssociationConfig { receive_buffer: 20_000, ..AssociationConfig::default() };
    let mut w = World::new(3, association, LinkConfig::delay(ms(5)));
    let [a, b] = w.established();
    let message: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    w.send(0, a, 1, &message);
    let (mut got, mut parts) = (Vec::new(), 0);
    for _ in 0..2000 {
        w.run(ms(10));
        for m in w.read(1, b) {
            assert_eq!(m.first, got.is_empty());
            got.extend_from_slice(&m.payload);
            parts += 1;
            assert_eq!(m.last, got.len() == message.len());
        }
        if got.len() == message.len() {
            break;
        }
    }
    assert!(got == message, "{} of {} bytes in {parts} parts", got.len(), message.len());
    assert!(parts > 5);
}

#[test]
fn a_closed_window_is_probed_and_opens_again() {
    let association = AssociationConfig { receive_buffer: 8000, ..AssociationConfig::default() };
    let mut w = World::new(4, association, LinkConfig::delay(ms(5)));
    let [a, b] = w.established();
    for i in 0..60u8 {
        w.send(0, a, 0, &[i; 500]);
    }
    // The application reads nothing for minutes; the peer stays.
    w.run(Duration::from_secs(300));
    assert_eq!((w.closed(0), w.closed(1)), (None, None));
    let mut got = Vec::new();
    for _ in 0..100 {
        got.extend(w.read(1, b).into_iter().map(|m| m.payload[0]));
        w.run(ms(500));
    }
    assert_eq!(got, (0..60).collect::<Vec<u8>>());
}

#[test]
fn the_send_buffer_blocks_and_says_when_it_does_not() {
    let association = AssociationConfig { send_buffer: 10_000, ..AssociationConfig::default() };
    let mut w = World::new(5, association, LinkConfig::delay(ms(5)));
    let [a, _] = w.established();
    let payload = Bytes::from(vec![0; 4000]);
    let send = |w: &mut World| w.ends[0].send(a, StreamId(0), payload.clone(), SendOptions::default());
    assert!(send(&mut w).is_ok() && send(&mut w).is_ok());
    assert_eq!(send(&mut w), Err(SendError::Blocked));
    assert!(!w.saw(0, &Event::Writable));
    w.run(ms(500));
    assert!(w.saw(0, &Event::Writable));
    assert!(send(&mut w).is_ok());
}

#[test]
fn what_cannot_be_sent_is_said() {
    let association = AssociationConfig { outbound_streams: 10, max_message: 5000, ..AssociationConfig::default() };
    let mut w = World::new(6, association, LinkConfig::delay(ms(5)));
    let [a, _] = w.established();
    let mut send = |stream, len: usize, whole| {
        let options = SendOptions { whole, ..SendOptions::default() };
        w.ends[0].send(a, StreamId(stream), Bytes::from(vec![0; len]), options).map(|_| ())
    };
    assert_eq!(send(10, 1, false), Err(SendError::NoSuchStream { streams: 10 }));
    assert_eq!(send(0, 0, false), Err(SendError::Empty));
    assert_eq!(send(0, 5001, false), Err(SendError::TooLong { most: 5000 }));
    assert!(matches!(send(0, 3000, true), Err(SendError::TooLong { most: 1200 })));
    assert_eq!(send(9, 1, false), Ok(()));
    let now = w.now;
    w.ends[0].shutdown(now, a);
    let late = w.ends[0].send(a, StreamId(0), Bytes::from_static(b"x"), SendOptions::default());
    assert_eq!(late, Err(SendError::ShuttingDown));
    w.run(ms(1000));
    let late = w.ends[0].send(a, StreamId(0), Bytes::from_static(b"x"), SendOptions::default());
    assert_eq!(late, Err(SendError::Closed));
}
