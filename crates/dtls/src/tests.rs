//! Two sessions and a link between them that loses, reorders, repeats and damages.

mod hostile;
mod link;
mod trust;

use crate::{ClientConfig, Event, OVERHEAD_13, ServerConfig, Session, Tuning, Version};
use core::time::Duration;
use link::{Faults, Pair};
use neater_base::WallTime;
use neater_tls::{Crypto, Identity, SecurityParameters, ServerName, TlsVersion, Trust};
use rustls::CipherSuite;
use std::sync::OnceLock;

pub(super) const WALL: WallTime = WallTime(Duration::from_secs(1_700_000_000));
pub(super) const NAME: &str = "server.example";

/// A self-signed identity; P-256, as DTLS has to have it.
pub(super) fn identity() -> Identity {
    static ONE: OnceLock<Identity> = OnceLock::new();
    ONE.get_or_init(|| neater_tls::self_signed_p256(&[NAME], WALL).unwrap()).clone()
}

pub(super) fn crypto(seed: u8) -> Crypto {
    let crypto = Crypto::deterministic([seed; 32]);
    crypto.clock.set(WALL);
    crypto
}

pub(super) fn client_parameters() -> SecurityParameters {
    let mut p = SecurityParameters::new();
    p.trust = Trust::Only(identity().chain);
    p
}

pub(super) fn server_parameters() -> SecurityParameters {
    let mut p = SecurityParameters::new();
    p.server_certificates = vec![identity()];
    p
}

pub(super) fn versions(p: &mut SecurityParameters, min: TlsVersion, max: TlsVersion) {
    (p.min_version, p.max_version) = (min, max);
}

pub(super) fn client_config(p: &SecurityParameters, seed: u8) -> ClientConfig {
    ClientConfig::new(p, &crypto(seed), Tuning::default()).unwrap()
}

pub(super) fn server_config(p: &SecurityParameters, seed: u8) -> ServerConfig {
    ServerConfig::new(p, &crypto(seed), Tuning::default()).unwrap()
}

pub(super) fn name() -> ServerName<'static> {
    ServerName::try_from(NAME).unwrap().to_owned()
}

const V12: (TlsVersion, TlsVersion) = (TlsVersion::Tls12, TlsVersion::Tls12);
const V13: (TlsVersion, TlsVersion) = (TlsVersion::Tls13, TlsVersion::Tls13);
const BOTH: (TlsVersion, TlsVersion) = (TlsVersion::Tls12, TlsVersion::Tls13);

pub(super) fn pair(client: (TlsVersion, TlsVersion), server: (TlsVersion, TlsVersion), seed: u64) -> Pair {
    let (mut c, mut s) = (client_parameters(), server_parameters());
    versions(&mut c, client.0, client.1);
    versions(&mut s, server.0, server.1);
    Pair::new(&client_config(&c, 1), &server_config(&s, 2), seed, Faults::NONE)
}

#[test]
fn every_combination_of_versions_shakes_hands_and_carries_messages() {
    for (client, server, expected) in [
        (V12, V12, Version::V12),
        (V13, V13, Version::V13),
        (BOTH, BOTH, Version::V13),
        (BOTH, V12, Version::V12),
        (V12, BOTH, Version::V12),
        (BOTH, V13, Version::V13),
        (V13, BOTH, Version::V13),
    ] {
        let mut pair = pair(client, server, 1);
        pair.run_until_connected();
        assert_eq!(pair.client.version(), Some(expected), "{client:?} {server:?}");
        assert_eq!(pair.server.version(), Some(expected));
        assert_eq!(pair.client.peer_certificates(), identity().chain);
        assert!(pair.server.peer_certificates().is_empty());
        for (n, length) in [0, 1, 2, 100, 1163, 1400, 9000, crate::MAX_MESSAGE].into_iter().enumerate() {
            let message = vec![n as u8; length];
            pair.client.send(pair.now, &message).unwrap();
            pair.server.send(pair.now, &message).unwrap();
            pair.run_for(Duration::from_millis(100));
            assert_eq!(pair.server.recv().as_deref(), Some(&message[..]), "{length} bytes, {expected}");
            assert_eq!(pair.client.recv().as_deref(), Some(&message[..]));
        }
        let too_long = vec![0; crate::MAX_MESSAGE + 1];
        assert_eq!(pair.client.send(pair.now, &too_long), Err(crate::SendError::TooLarge));
        assert!(pair.client.is_connected() && pair.server.is_connected());
    }
}

#[test]
fn versions_that_do_not_meet_fail_on_both_sides() {
    for (client, server) in [(V12, V13), (V13, V12)] {
        let mut pair = pair(client, server, 1);
        pair.run_for(Duration::from_secs(200));
        assert!(pair.client.is_over() && pair.server.is_over(), "{client:?} {server:?}");
        assert!(!pair.happened(Event::Connected));
    }
}

#[test]
fn every_suite_works_and_overhead_is_what_is_stated() {
    use CipherSuite as C;
    for (suite, overhead) in [
        (C::TLS13_AES_256_GCM_SHA384, OVERHEAD_13),
        (C::TLS13_AES_128_GCM_SHA256, OVERHEAD_13),
        (C::TLS13_CHACHA20_POLY1305_SHA256, OVERHEAD_13),
        (C::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, crate::OVERHEAD_12_GCM),
        (C::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, crate::OVERHEAD_12_GCM),
        (C::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, crate::OVERHEAD_12_CHACHA),
    ] {
        let mut c = client_parameters();
        c.ciphersuites = vec![suite];
        let mut pair = Pair::new(&client_config(&c, 1), &server_config(&server_parameters(), 2), 3, Faults::NONE);
        pair.run_until_connected();
        assert!(pair.client.overhead() >= overhead, "{suite:?}");
        pair.client.send(pair.now, b"hello").unwrap();
        let sent = pair.client.poll_transmit().unwrap();
        assert_eq!((sent.len() - 5, pair.client.overhead()), (overhead, overhead), "{suite:?}");
        assert_eq!(pair.client.max_message(1200), 1200 - overhead);
        pair.server.handle_datagram(pair.now, &sent);
        assert_eq!(pair.server.recv().as_deref(), Some(&b"hello"[..]));
    }
}

#[test]
fn handshakes_and_messages_survive_a_bad_link() {
    let faults = Faults { loss: 0.1, duplicate: 0.1, delay: Duration::from_millis(30), damage: 0.0 };
    for version in [V12, V13, BOTH] {
        let (mut c, mut s) = (client_parameters(), server_parameters());
        versions(&mut c, version.0, version.1);
        versions(&mut s, version.0, version.1);
        let (c, s) = (client_config(&c, 1), server_config(&s, 2));
        let mut connected = 0;
        for seed in 0..12 {
            let mut pair = Pair::new(&c, &s, seed, faults);
            pair.run_for(Duration::from_secs(40));
            if !(pair.client.is_connected() && pair.server.is_connected()) {
                continue;
            }
            connected += 1;
            for n in 0..200u32 {
                pair.client.send(pair.now, &n.to_be_bytes()).unwrap();
                pair.run_for(Duration::from_millis(2));
            }
            pair.run_for(Duration::from_secs(1));
            let mut got: Vec<_> = core::iter::from_fn(|| pair.server.recv()).collect();
            let all = got.len();
            got.sort();
            got.dedup();
            assert_eq!(got.len(), all, "seed {seed}: a message came twice");
            assert!(got.iter().all(|m| m.len() == 4 && u32::from_be_bytes(m[..].try_into().unwrap()) < 200));
            assert!((140..=200).contains(&all), "seed {seed}: {all} of 200");
        }
        // Six retries against a loss of a tenth: failures are accidents.
        assert!(connected >= 11, "{version:?}: {connected} of 12");
    }
}

#[test]
fn a_run_follows_from_its_seed() {
    let run = |seed| {
        let faults = Faults { loss: 0.2, duplicate: 0.1, delay: Duration::from_millis(30), damage: 0.0 };
        let config = (client_config(&client_parameters(), 7), server_config(&server_parameters(), 8));
        let mut pair = Pair::new(&config.0, &config.1, seed, faults);
        pair.run_for(Duration::from_secs(40));
        pair.trace
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn closing_is_told_to_the_peer_and_final() {
    for version in [V12, V13] {
        let mut pair = pair(version, version, 1);
        pair.run_until_connected();
        pair.client.close(pair.now);
        pair.run_for(Duration::from_millis(100));
        assert!(pair.happened(Event::Closed) && pair.server.is_over() && pair.client.is_over());
        assert_eq!(pair.server.send(pair.now, b"x"), Err(crate::SendError::Closed));
        assert_eq!((pair.server.next_timeout(), pair.client.next_timeout()), (None, None));
    }
}

#[test]
fn a_peer_that_says_nothing_is_given_up() {
    let mut rng = neater_base::Rng::from_number(1);
    let mut now = neater_base::Instant::ZERO;
    let mut session = Session::client(&client_config(&client_parameters(), 1), name(), now, &mut rng);
    let mut sent = 0;
    while let Some(at) = session.next_timeout() {
        while let Some(datagram) = session.poll_transmit() {
            assert!(datagram.len() <= usize::from(Tuning::default().mtu));
            sent += 1;
        }
        assert!(at > now);
        now = at;
        session.handle_timeout(now);
    }
    assert_eq!(session.poll_event(), Some(Event::Failed(crate::DtlsError::NoAnswer)));
    assert!(sent >= 5, "{sent}");
    assert!(
        (Duration::from_secs(20)..=Duration::from_secs(40)).contains(&now.saturating_since(neater_base::Instant::ZERO))
    );
}

#[test]
fn an_idle_session_has_no_timer_and_messages_not_fetched_are_bounded() {
    for version in [V12, V13] {
        let mut pair = pair(version, version, 1);
        pair.run_until_connected();
        pair.run_for(Duration::from_secs(5));
        assert_eq!((pair.client.next_timeout(), pair.server.next_timeout()), (None, None));
        for _ in 0..300 {
            pair.client.send(pair.now, &[1; 1000]).unwrap();
            pair.run_for(Duration::from_millis(1));
        }
        pair.run_for(Duration::from_millis(100));
        let kept = core::iter::from_fn(|| pair.server.recv()).count();
        assert_eq!(kept as u64 + pair.server.dropped(), 300);
        assert!(kept <= crate::RECEIVE_LIMIT / 1000 && pair.server.dropped() > 0);
    }
}
