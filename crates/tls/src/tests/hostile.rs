//! Peers that are no peers.

use super::*;
use proptest::prelude::*;

/// Gives bytes to one end, in whatever pieces it takes them, then the end of the stream; returns
/// its error.
fn feed(tls: &mut TlsStream, bytes: &[u8]) -> Option<TlsError> {
    let mut pipe = Pipe { bytes: bytes.to_vec().into(), ended: true, ..Pipe::default() };
    let mut plain = [0; 4096];
    // A client sends its ClientHello before it reads.
    while tls.wants_write() {
        tls.write_tls(&mut Pipe::default()).unwrap();
    }
    while tls.wants_read() {
        tls.read_tls(&mut pipe).unwrap();
        if let Err(e) = tls.process() {
            return Some(e);
        }
        while tls.read_plain(&mut plain).is_ok() {}
    }
    None
}

#[test]
fn a_peer_that_speaks_something_else_is_named() {
    let world = World::new(1);
    let pair = || world.pair();
    let http = feed(&mut pair().client, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    assert_eq!((http.blame(), &http), (Blame::Peer, &TlsError::NotTls(Looks::Http)));
    assert!(http.to_string().contains("plain HTTP"), "{http}");
    assert_eq!(feed(&mut pair().server, b"GET / HTTP/1.1\r\n\r\n"), Some(TlsError::NotTls(Looks::Http)));
    assert_eq!(feed(&mut pair().client, b"SSH-2.0-OpenSSH_9.6\r\n"), Some(TlsError::NotTls(Looks::Ssh)));
    assert_eq!(feed(&mut pair().client, b"220 mail.example ESMTP\r\n"), Some(TlsError::NotTls(Looks::MailOrFtp)));
    assert_eq!(feed(&mut pair().client, b"hi"), Some(TlsError::NotTls(Looks::Text)));
    assert_eq!(feed(&mut pair().server, &[0; 100]), Some(TlsError::NotTls(Looks::Unknown)));
    assert_eq!(feed(&mut pair().server, b""), Some(TlsError::ClosedDuringHandshake));
}

#[test]
fn an_answer_of_another_kind_of_record_is_misbehaviour() {
    let world = World::new(1);
    // Application data before any handshake.
    let e = feed(&mut world.pair().server, &[23, 3, 3, 0, 1, 0]).unwrap();
    assert!(matches!(e, TlsError::PeerMisbehaved(_)), "{e:?}");
    // A handshake message that claims to be larger than any may be.
    let e = feed(&mut world.pair().server, &[22, 3, 3, 0, 4, 1, 0xff, 0xff, 0xff]).unwrap();
    assert!(matches!(e, TlsError::PeerMisbehaved(_)), "{e:?}");
}

#[test]
fn a_failed_session_stays_failed_and_sends_its_alert() {
    let world = World::new(1);
    let mut server = world.pair().server;
    let e = feed(&mut server, &[23, 3, 3, 0, 1, 0]).unwrap();
    assert_eq!(server.process(), Err(e.clone()));
    assert_eq!(server.error(), Some(&e));
    assert_eq!(server.read_plain(&mut [0; 1]), Err(ReadState::Failed(e)));
    assert_eq!(write(&mut server, b"x"), 0);
    assert!(!server.wants_read());
    assert_eq!(server.read_tls(&mut &b"more"[..]).unwrap(), 0);
    let mut alert = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut alert).unwrap();
    }
    assert_eq!(alert.first(), Some(&21), "an alert record");
    server.close_notify();
    assert!(!server.wants_write(), "nothing follows a fatal alert");
}

#[test]
fn a_cut_connection_is_not_an_orderly_end() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let mut pair = World::new(1).only(version).pair().connected();
        write(&mut pair.server, b"Content: pay nobody, except...");
        pair.run();
        // The attacker ends the stream here; `close_notify` never comes.
        pair.down.ended = true;
        pair.run();
        assert_eq!(pair.at_client, b"Content: pay nobody, except...");
        assert_eq!(pair.client.read_plain(&mut [0; 1]), Err(ReadState::UnexpectedEof), "{version:?}");
        assert!(!pair.client.wants_read());
    }
}

#[test]
fn a_stream_that_ends_in_the_handshake_fails_it() {
    let world = World::new(1);
    let mut pair = world.pair();
    while pair.client.wants_write() {
        pair.client.write_tls(&mut pair.up).unwrap();
    }
    pair.down.ended = true;
    let (client, _) = pair.refused();
    assert_eq!(client, Some(TlsError::ClosedDuringHandshake));
}

#[test]
fn a_forged_record_ends_the_session() {
    let mut pair = World::new(1).pair().connected();
    write(&mut pair.client, b"first");
    pair.run();
    write(&mut pair.client, b"second");
    while pair.client.wants_write() {
        pair.client.write_tls(&mut pair.up).unwrap();
    }
    let last = pair.up.bytes.len() - 1;
    pair.up.bytes[last] ^= 1;
    pair.run();
    assert_eq!(pair.server_error, Some(TlsError::Decrypt));
    assert_eq!(pair.at_server, b"first");
    assert!(pair.client_error.is_some(), "the alert tells the client");
}

#[test]
fn an_endless_handshake_is_given_up() {
    let world = World::new(1);
    let mut server = world.pair().server;
    // Pieces of a ClientHello that takes for ever: one byte to a record.
    let mut bytes = vec![22, 3, 1, 0, 4, 1, 0, 0xff, 0xff];
    for _ in 0..200_000 {
        bytes.extend_from_slice(&[22, 3, 1, 0, 1, 0]);
    }
    let mut pipe = Pipe { bytes: bytes.into(), ended: false, ..Pipe::default() };
    let before = pipe.bytes.len();
    let error = loop {
        server.read_tls(&mut pipe).unwrap();
        if let Err(e) = server.process() {
            break e;
        }
    };
    let eaten = before - pipe.bytes.len();
    assert_eq!(error.blame(), Blame::Peer, "{error:?}");
    assert!(eaten <= HANDSHAKE_LIMIT + 65_536, "{error:?} after {eaten} bytes");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn prop_noise_ends_in_an_error(bytes in proptest::collection::vec(any::<u8>(), 1..2000), record: bool) {
        let world = World::new(1);
        let mut noise = bytes;
        if record {
            // Noise in the shape of a handshake record goes deeper.
            let len = (noise.len() as u16).to_be_bytes();
            noise.splice(0..0, [22, 3, 1, len[0], len[1]]);
        }
        prop_assert!(feed(&mut world.pair().client, &noise).is_some());
        prop_assert!(feed(&mut world.pair().server, &noise).is_some());
    }

    /// One flipped byte anywhere in either direction: it never connects to something else, and
    /// nothing panics.
    #[test]
    fn prop_a_flipped_byte_never_yields_other_data(seed: u64, at in 0..1500usize, upwards: bool, tls13: bool) {
        let version = if tls13 { TlsVersion::Tls13 } else { TlsVersion::Tls12 };
        let mut pair = World::new(1).only(version).pair().in_pieces(seed);
        write(&mut pair.client, b"question");
        write(&mut pair.server, b"answer");
        let mut flipped = false;
        for _ in 0..2000 {
            let pipe = if upwards { &mut pair.up } else { &mut pair.down };
            let gone = pipe.seen.len() - pipe.bytes.len();
            if !flipped && at >= gone && let Some(b) = pipe.bytes.get_mut(at - gone) {
                *b ^= 0x20;
                flipped = true;
            }
            let Pair { client, server, up, down, at_client, at_server, client_error, server_error } = &mut pair;
            turn(client, down, up, at_client, client_error);
            let pipe = if upwards { &mut *up } else { &mut *down };
            let gone = pipe.seen.len() - pipe.bytes.len();
            if !flipped && at >= gone && let Some(b) = pipe.bytes.get_mut(at - gone) {
                *b ^= 0x20;
                flipped = true;
            }
            turn(server, up, down, at_server, server_error);
        }
        prop_assert!(b"question".starts_with(&pair.at_server[..]));
        prop_assert!(b"answer".starts_with(&pair.at_client[..]));
        if !flipped {
            prop_assert_eq!(&pair.at_server[..], b"question");
        }
    }
}
