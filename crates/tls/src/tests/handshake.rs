//! Handshakes that succeed, data, the orderly end, and repeatability.

use super::*;
use neater_base::Rng;
use proptest::prelude::*;
use rustls::{CipherSuite, KeyLog, NamedGroup, ProtocolVersion, SignatureScheme};
use std::sync::Mutex;

const VERSIONS: [(TlsVersion, ProtocolVersion); 2] =
    [(TlsVersion::Tls12, ProtocolVersion::TLSv1_2), (TlsVersion::Tls13, ProtocolVersion::TLSv1_3)];

/// Handshake, data both ways, orderly end; returns all bytes of both directions.
fn transcript(seed: u8, version: TlsVersion) -> (Vec<u8>, Vec<u8>) {
    let mut pair = World::new(seed).only(version).pair().connected();
    assert_eq!(write(&mut pair.client, b"question"), 8);
    pair.run();
    assert_eq!(write(&mut pair.server, b"answer"), 6);
    pair.client.close_notify();
    pair.server.close_notify();
    pair.run();
    assert_eq!((&pair.at_server[..], &pair.at_client[..]), (&b"question"[..], &b"answer"[..]));
    (pair.up.seen, pair.down.seen)
}

#[test]
fn the_same_seed_gives_byte_identical_transcripts() {
    for (version, _) in VERSIONS {
        assert_eq!(transcript(1, version), transcript(1, version), "{version:?}");
        let (a, b) = (transcript(1, version), transcript(2, version));
        assert_ne!(a.0, b.0, "{version:?}");
        assert_ne!(a.1, b.1, "{version:?}");
    }
}

#[test]
fn both_versions_are_spoken_and_the_newer_is_preferred() {
    for (version, protocol) in VERSIONS {
        let pair = World::new(1).only(version).pair().connected();
        assert_eq!(pair.client.version(), Some(protocol));
        assert_eq!(pair.server.version(), Some(protocol));
        assert_eq!(pair.client.resumed(), Some(false));
        assert_eq!(pair.server.server_name(), Some(NAME));
        assert_eq!(pair.client.peer_certificates().map(<[_]>::len), Some(1));
        assert_eq!(pair.client.cipher(), pair.server.cipher());
        assert!(pair.client.cipher().is_some());
    }
    assert_eq!(World::new(1).pair().connected().client.version(), Some(ProtocolVersion::TLSv1_3));
}

#[test]
fn the_provider_of_the_operating_system_works_with_p256_and_ed25519() {
    for identity in [self_signed_p256(&[NAME], WALL).unwrap(), self_signed(&[NAME], WALL, [1; 32])] {
        let mut world = World::new(1);
        world.crypto = Crypto::system();
        world.crypto.clock.set(WALL);
        world.sessions = SessionStore::new(world.crypto.clock.clone());
        world.client.trust = Trust::Only(identity.chain.clone());
        world.server.server_certificates = vec![identity];
        let mut pair = world.pair().connected();
        write(&mut pair.client, b"hello");
        pair.run();
        assert_eq!(pair.at_server, b"hello");
    }
}

#[test]
fn the_application_protocol_is_the_servers_choice_among_the_clients() {
    let mut world = World::new(1);
    world.client_alpn = vec![b"http/1.1", b"h2"];
    world.server_alpn = vec![b"h2", b"http/1.1"];
    let pair = world.pair().connected();
    assert_eq!(pair.client.alpn(), Some(&b"h2"[..]));
    assert_eq!(pair.server.alpn(), Some(&b"h2"[..]));
    // What the application sets replaces what the stack suggests.
    world.client.alpn = vec![b"http/1.1".to_vec()];
    assert_eq!(world.pair().connected().client.alpn(), Some(&b"http/1.1"[..]));
}

#[test]
fn restrictions_decide_what_is_negotiated() {
    let mut world = World::new(1);
    world.client.ciphersuites = vec![CipherSuite::TLS13_CHACHA20_POLY1305_SHA256];
    world.client.supported_groups = vec![NamedGroup::X25519];
    world.client.signature_algorithms = vec![SignatureScheme::ED25519];
    let pair = world.pair().connected();
    assert_eq!(pair.client.cipher(), Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256));
    // Only suites of 1.3 are left, so 1.2 is not offered either.
    world.server.max_version = TlsVersion::Tls12;
    let (client, server) = world.pair().refused();
    assert_eq!(client, Some(TlsError::NoCommonVersion));
    assert_eq!(server, Some(TlsError::NoCommonVersion));
}

#[test]
fn a_server_shows_the_certificate_of_the_name_asked_for() {
    let mut world = World::new(1);
    let other = self_signed(&["other.example"], WALL, [9; 32]);
    world.server.server_certificates.insert(0, other.clone());
    let shown = |pair: Pair| pair.client.peer_certificates().unwrap()[0].clone();
    assert_eq!(shown(world.pair().connected()), world.server.server_certificates[1].chain[0]);
    // For a name that no certificate is for, the first is shown and the client judges it.
    let mut pair = world.pair();
    let unknown = world.client.name_for("unknown.example").unwrap();
    pair.client = TlsStream::client(world.client_config(), &unknown).unwrap();
    let (client, _) = pair.refused();
    assert_eq!(client, Some(TlsError::UnknownIssuer), "the first one is not among the client's authorities");
}

#[test]
fn data_written_during_the_handshake_arrives_before_the_end() {
    for (version, _) in VERSIONS {
        let mut pair = World::new(1).only(version).pair();
        assert_eq!(write(&mut pair.client, b"early bird"), 10);
        pair.client.close_notify();
        assert!(!pair.client.close_notify_queued(), "{version:?}");
        assert_eq!(write(&mut pair.client, b"too late"), 0);
        pair.run();
        assert!(pair.client.close_notify_queued());
        assert_eq!(pair.at_server, b"early bird", "{version:?}");
        assert_eq!(pair.server.read_plain(&mut [0; 1]), Err(ReadState::Closed));
        // The other direction stays open.
        assert_eq!(write(&mut pair.server, b"answer"), 6);
        pair.run();
        assert_eq!(pair.at_client, b"answer");
        assert_eq!(pair.client.read_plain(&mut [0; 1]), Err(ReadState::WouldBlock));
    }
}

#[test]
fn written_data_is_bounded_by_the_buffer_limit() {
    let mut pair = World::new(1).pair();
    let big = vec![1; 200_000];
    assert_eq!(write(&mut pair.client, &big), DEFAULT_BUFFER_LIMIT);
    assert_eq!(write(&mut pair.client, &big), 0);
    let mut pair = pair.connected();
    pair.client.set_buffer_limit(1000);
    let halves = [IoSlice::new(&big[..600]), IoSlice::new(&big[..600])];
    assert_eq!(pair.client.write_plain(&halves), 1000);
    pair.run();
    assert_eq!(pair.at_server.len(), DEFAULT_BUFFER_LIMIT + 1000);
}

#[test]
fn unread_plaintext_holds_the_peer_back() {
    let mut pair = World::new(1).pair().connected();
    let mut sent = 0;
    for _ in 0..20 {
        sent += write(&mut pair.client, &[5; 16_000]);
        while pair.client.wants_write() {
            pair.client.write_tls(&mut pair.up).unwrap();
        }
        while pair.server.wants_read() && !pair.up.bytes.is_empty() {
            pair.server.read_tls(&mut pair.up).unwrap();
            pair.server.process().unwrap();
        }
    }
    assert!(!pair.server.wants_read());
    let pending = pair.server.pending_plain();
    assert!(pending > 0 && pending < 100_000, "{pending}");
    // A caller that reads on regardless is stopped, and can distinguish that from a stream without
    // bytes.
    let refused = (0..100).find_map(|_| pair.server.read_tls(&mut pair.up).map(|_| pair.server.process()).err());
    assert_eq!(refused.map(|e| e.kind()), Some(io::ErrorKind::QuotaExceeded));
    pair.run();
    assert_eq!(pair.at_server.len(), sent);
    assert_eq!(pair.server.pending_plain(), 0);
}

#[derive(Debug, Default)]
struct Log(Mutex<Vec<String>>);

impl KeyLog for Log {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        assert!(!secret.is_empty());
        self.0.lock().unwrap().push(label.to_owned());
    }
}

#[test]
fn keys_are_logged_where_asked_for() {
    for (version, label) in [(TlsVersion::Tls12, "CLIENT_RANDOM"), (TlsVersion::Tls13, "CLIENT_TRAFFIC_SECRET_0")] {
        let mut world = World::new(1).only(version);
        let (client, server) = (Arc::new(Log::default()), Arc::new(Log::default()));
        world.client.key_log = Some(client.clone());
        world.server.key_log = Some(server.clone());
        world.pair().connected();
        for log in [client, server] {
            assert!(log.0.lock().unwrap().iter().any(|l| l == label), "{version:?}");
        }
    }
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().to_vec()
}

#[test]
fn a_big_transfer_arrives_unchanged() {
    for (version, _) in VERSIONS {
        let mut pair = World::new(3).only(version).pair().in_pieces(3).connected();
        let mut data = vec![0; 2_000_000];
        Rng::from_number(4).fill(&mut data);
        let (mut up, mut down) = (&data[..], &data[..500_000]);
        while !up.is_empty() || !down.is_empty() {
            up = &up[write(&mut pair.client, up)..];
            down = &down[write(&mut pair.server, down)..];
            pair.run();
        }
        assert_eq!(sha256(&pair.at_server), sha256(&data));
        assert_eq!(sha256(&pair.at_client), sha256(&data[..500_000]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever pieces the stream is cut into, both versions connect, carry data whole and end in
    /// order.
    #[test]
    fn prop_pieces_do_not_matter(seed: u64, tls13: bool, up in 0..40_000usize, down in 0..40_000usize) {
        let version = if tls13 { TlsVersion::Tls13 } else { TlsVersion::Tls12 };
        let mut pair = World::new(seed as u8).only(version).pair().in_pieces(seed);
        let (question, answer) = (vec![b'q'; up], vec![b'a'; down]);
        prop_assert_eq!(write(&mut pair.client, &question), up);
        pair.client.close_notify();
        pair.run();
        prop_assert_eq!(write(&mut pair.server, &answer), down);
        pair.server.close_notify();
        pair.run();
        prop_assert_eq!(&pair.client_error, &None);
        prop_assert_eq!(&pair.server_error, &None);
        prop_assert_eq!(&pair.at_server, &question);
        prop_assert_eq!(&pair.at_client, &answer);
        prop_assert_eq!(pair.client.read_plain(&mut [0; 1]), Err(ReadState::Closed));
        prop_assert_eq!(pair.server.read_plain(&mut [0; 1]), Err(ReadState::Closed));
    }
}
