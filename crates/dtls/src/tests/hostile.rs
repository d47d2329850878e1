//! What a stranger, or a peer without manners, can do: nothing.

use super::link::{Faults, Pair};
use super::*;
use crate::{HANDSHAKE_LIMIT, Look, look};
use neater_base::{Instant, Rng};

fn hello(seed: u64, version: (TlsVersion, TlsVersion)) -> Vec<u8> {
    let mut p = client_parameters();
    versions(&mut p, version.0, version.1);
    let mut rng = Rng::from_number(seed);
    let mut client = Session::client(&client_config(&p, 1), name(), Instant::ZERO, &mut rng);
    client.poll_transmit().unwrap()
}

fn begins(datagram: &[u8]) -> bool {
    matches!(look(datagram), Look::Hello { .. })
}

#[test]
fn only_the_beginning_of_a_client_hello_begins_a_handshake() {
    for version in [V12, V13, BOTH] {
        let first = hello(1, version);
        assert!(begins(&first), "{version:?}");
        for n in 0..47 {
            assert!(!begins(&first[..n]), "{n} bytes");
        }
        for (at, bits) in [(0, 1), (13, 2), (4, 1), (21, 1)] {
            let mut other = first.clone();
            other[at] ^= bits;
            assert!(!begins(&other), "byte {at}");
        }
    }
    assert!(!begins(b""));
    assert!(!begins(&[22; 1200]));
}

#[test]
fn a_hello_shows_its_random_and_its_fragments_what_they_are() {
    let first = hello(1, V13);
    // After the headers of record and message, and the version.
    let random: crate::HelloRandom = first[27..59].try_into().unwrap();
    assert_eq!(look(&first), Look::Hello { random, whole: true });
    // The same message in two fragments.
    let fragment = |from: usize, to: usize| {
        let (header, body) = (&first[13..25], &first[25..]);
        let mut message = [header, &body[from..to]].concat();
        message[6..9].copy_from_slice(&(from as u32).to_be_bytes()[1..]);
        message[9..12].copy_from_slice(&((to - from) as u32).to_be_bytes()[1..]);
        let mut record = first[..13].to_vec();
        record[11..].copy_from_slice(&(message.len() as u16).to_be_bytes());
        [record, message].concat()
    };
    let end = first.len() - 25;
    assert_eq!(look(&fragment(0, 50)), Look::Hello { random, whole: false });
    assert_eq!(look(&fragment(0, 33)), Look::Clear, "no whole random");
    assert_eq!(look(&fragment(50, end)), Look::HelloFragment);
    assert_eq!(look(&fragment(0, end)), Look::Hello { random, whole: true });
    // Records in the clear, and protected ones of both versions.
    let record = |kind: u8, epoch: u8| [kind, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, 1, 0, 2, 1, 0];
    for (kind, epoch, what) in [
        (20, 0, Look::Clear),
        (21, 0, Look::Clear),
        (22, 0, Look::Clear),
        (26, 0, Look::Clear),
        (22, 1, Look::Protected),
        (21, 1, Look::Protected),
        (23, 1, Look::Data),
    ] {
        assert_eq!(look(&record(kind, epoch)), what, "{kind} {epoch}");
    }
    for (first, what) in [(0x2e, Look::Protected), (0x2f, Look::Data), (0x22, Look::Protected), (0x3d, Look::Data)] {
        assert_eq!(look(&[first; 40]), what, "{first:x}");
    }
    assert_eq!(look(b""), Look::Data);
}

/// The types of the extensions of a ClientHello in one record: behind session id, cookie, suites
/// and compression.
fn extensions(hello: &[u8]) -> Vec<u16> {
    let word = |at: usize| usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    let mut at = 59;
    for long in [false, false, true, false] {
        at += if long { 2 + word(at) } else { 1 + usize::from(hello[at]) };
    }
    let (mut at, end) = (at + 2, at + 2 + word(at));
    let mut all = Vec::new();
    while at < end {
        all.push(word(at) as u16);
        at += 4 + word(at + 2);
    }
    all
}

/// Servers that know no profile of SRTP refuse a client that offers it (RFC 5764 section 4.1); RFC
/// 5746 section 3.4 wants `renegotiation_info`, or the suite that stands for it.
#[test]
fn a_hello_offers_no_srtp() {
    for version in [V12, V13, BOTH] {
        let all = extensions(&hello(1, version));
        assert!(!all.contains(&14) && all.len() > 3, "{version:?}: {all:?}");
        assert_eq!(all.contains(&0xff01), version != V13, "{version:?}: {all:?}");
    }
}

/// A client with no version in common gets one alert, no longer than its hello, and numbered like
/// it.
#[test]
fn a_hello_with_nothing_in_common_is_answered_by_an_alert() {
    let mut p = server_parameters();
    versions(&mut p, V13.0, V13.1);
    let mut server = Session::server(&server_config(&p, 1), Instant::ZERO, &mut Rng::from_number(5));
    let first = hello(1, V12);
    server.handle_datagram(Instant::ZERO, &first);
    assert!(server.is_over());
    let alert = server.poll_transmit().expect("an alert");
    let protocol_version = [0, 2, 2, 70];
    assert_eq!(
        (&alert[..5], &alert[5..11], &alert[11..]),
        (&[21, 0xfe, 0xfd, 0, 0][..], &first[5..11], &protocol_version[..])
    );
    assert!(server.poll_transmit().is_none());
}

#[test]
fn an_address_is_verified_by_the_cookie_and_by_nothing_else() {
    for version in [V12, V13, BOTH] {
        let mut pair = pair(version, version, 1);
        let first = pair.client.poll_transmit().unwrap();
        let Look::Hello { random, .. } = look(&first) else { panic!("no hello") };
        for _ in 0..3 {
            pair.server.handle_datagram(pair.now, &first);
        }
        assert!(!pair.server.is_verified(), "{version:?}");
        // The answer to a first ClientHello is the request alone, and the client's answer repeats
        // the random.
        let request = pair.server.poll_transmit().unwrap();
        pair.client.handle_datagram(pair.now, &request);
        let second = pair.client.poll_transmit().unwrap();
        assert!(matches!(look(&second), Look::Hello { random: same, .. } if same == random), "{version:?}");
        // The cookie of another client is invalid.
        let config = server_config(&server_parameters(), 2);
        let mut other = Session::server(&config, pair.now, &mut Rng::from_number(77));
        other.handle_datagram(pair.now, &second);
        assert!(!other.is_verified(), "{version:?}");
        // Nor is it answered (`specs/exceptions/rfc9147-5.1-invalid-cookie.toml`).
        assert_eq!(other.poll_transmit(), None, "{version:?}");
        pair.server.handle_datagram(pair.now, &second);
        assert!(pair.server.is_verified(), "{version:?}");
    }
}

#[test]
fn an_unproven_address_gets_no_more_than_it_has_sent() {
    for version in [V12, V13, BOTH] {
        let first = hello(1, version);
        let config = server_config(&server_parameters(), 2);
        let mut server = Session::server(&config, Instant::ZERO, &mut Rng::from_number(3));
        let mut now = Instant::ZERO;
        let (mut received, mut sent) = (0, 0);
        // Once with the repetitions of a client that gets no answer, then with those of a server
        // that is left alone.
        for round in 0..40 {
            if round < 5 {
                server.handle_datagram(now, &first);
                received += first.len();
            }
            sent += core::iter::from_fn(|| server.poll_transmit()).map(|d| d.len()).sum::<usize>();
            assert!(sent <= received, "{version:?}, round {round}: {sent} > {received}");
            now = server.next_timeout().map_or(now + Duration::from_secs(1), |t| t.max(now));
            server.handle_timeout(now);
        }
        assert!(sent > 0, "{version:?}: an address has to be able to prove itself");
    }
}

#[test]
fn strangers_cannot_end_a_handshake_or_a_session() {
    for version in [V12, V13, BOTH] {
        for seed in 0..8 {
            let mut pair = pair(version, version, seed);
            let mut stranger = Rng::from_number(seed ^ 99);
            let mut throw = |pair: &mut Pair| {
                for _ in 0..20 {
                    let mut junk = vec![0; stranger.below(300) as usize];
                    stranger.fill(&mut junk);
                    // Half of them look like records of this version.
                    if let (true, [kind, a, b, ..]) = (stranger.chance(0.5), &mut junk[..]) {
                        (*kind, *a, *b) = (20 + *kind % 7, 0xfe, 0xfd);
                    }
                    pair.client.handle_datagram(pair.now, &junk);
                    pair.server.handle_datagram(pair.now, &junk);
                }
            };
            throw(&mut pair);
            pair.run_until_connected();
            throw(&mut pair);
            // Alerts in the clear, fatal and closing, and a ClientHello and a ServerHello in the
            // clear.
            let alert = |description| [21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 99, 0, 2, 2, description];
            for forged in [alert(40).to_vec(), alert(0).to_vec(), hello(7, version)] {
                pair.client.handle_datagram(pair.now, &forged);
                pair.server.handle_datagram(pair.now, &forged);
            }
            // Everything that was ever sent, once more and in the other direction.
            for (by_client, datagram) in pair.recorded.clone() {
                pair.server.handle_datagram(pair.now, &datagram);
                pair.client.handle_datagram(pair.now, &datagram);
                let _ = by_client;
            }
            pair.run_for(Duration::from_secs(2));
            assert!(pair.client.is_connected() && pair.server.is_connected(), "{version:?} {seed}: {:?}", pair.events);
            pair.client.send(pair.now, b"still here").unwrap();
            pair.run_for(Duration::from_millis(100));
            let got: Vec<_> = core::iter::from_fn(|| pair.server.recv()).collect();
            assert_eq!(got, [&b"still here"[..]], "{version:?} {seed}");
        }
    }
}

#[test]
fn damage_on_the_way_is_loss() {
    let faults = Faults { loss: 0.0, duplicate: 0.0, delay: Duration::ZERO, damage: 0.2 };
    for version in [V12, V13] {
        let mut pair = pair(version, version, 4);
        pair.run_until_connected();
        pair.faults = faults;
        for n in 0..100u8 {
            pair.client.send(pair.now, &[n; 100]).unwrap();
            pair.run_for(Duration::from_millis(1));
        }
        pair.run_for(Duration::from_secs(1));
        let got: Vec<_> = core::iter::from_fn(|| pair.server.recv()).collect();
        assert!(got.iter().all(|m| m.len() == 100 && m.iter().all(|b| *b == m[0])), "{version:?}");
        assert!((50..100).contains(&got.len()), "{version:?}: {}", got.len());
        assert!(pair.server.is_connected());
    }
}

#[test]
fn a_handshake_without_end_is_ended() {
    let config = server_config(&server_parameters(), 2);
    let mut server = Session::server(&config, Instant::ZERO, &mut Rng::from_number(3));
    let mut fragment = vec![22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0x03, 0xf4];
    // A ClientHello of 16 MB, and always another thousand bytes of it.
    fragment.extend([1, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0x03, 0xe8]);
    fragment.extend([0; 1000]);
    let mut taken = 0;
    while !server.is_over() && taken < 2 * HANDSHAKE_LIMIT {
        taken += fragment.len();
        fragment[19..22].copy_from_slice(&(taken as u32).to_be_bytes()[1..]);
        fragment[10] = fragment[10].wrapping_add(1);
        server.handle_datagram(Instant::ZERO, &fragment);
    }
    assert!(server.is_over(), "{taken} bytes");
    assert!(taken <= HANDSHAKE_LIMIT + fragment.len());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn any_datagrams_are_taken(datagrams in proptest::collection::vec(
        proptest::collection::vec(proptest::num::u8::ANY, 0..200), 0..20)) {
        let mut server = Session::server(&shared(), Instant::ZERO, &mut Rng::from_number(3));
        let first = hello(1, BOTH);
        for mut datagram in datagrams {
            server.handle_datagram(Instant::ZERO, &datagram);
            // As something that nearly fits.
            let n = datagram.len().min(first.len());
            datagram.truncate(n);
            let mut near = first.clone();
            near[first.len() - n..].copy_from_slice(&datagram);
            server.handle_datagram(Instant::ZERO, &near);
            while server.poll_transmit().is_some() {}
        }
    }
}

fn shared() -> ServerConfig {
    static CONFIG: std::sync::OnceLock<ServerConfig> = std::sync::OnceLock::new();
    CONFIG.get_or_init(|| server_config(&server_parameters(), 2)).clone()
}
