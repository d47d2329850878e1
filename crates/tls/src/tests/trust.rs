//! Which peers are trusted and which are not.

use super::*;
use rustls::{AlertDescription, CipherSuite, RootCertStore, SignatureScheme};
use std::sync::Mutex;

fn client_error(world: &World) -> TlsError {
    world.pair().refused().0.unwrap()
}

#[test]
fn an_expired_certificate_is_refused_with_its_date() {
    let world = World::new(1);
    world.advance(Duration::from_secs(375 * 86_400));
    let e = client_error(&world);
    assert!(matches!(e, TlsError::CertificateExpired { now, not_after } if now - not_after == 10 * 86_400), "{e:?}");
    assert_eq!(e.blame(), Blame::PeerCertificate);
    assert!(e.to_string().contains("10 days ago"), "{e}");
}

#[test]
fn a_certificate_of_the_future_is_refused_with_its_date() {
    let world = World::new(1);
    world.crypto.clock.set(WallTime(WALL.0 - Duration::from_secs(3 * 86_400)));
    assert!(matches!(client_error(&world), TlsError::CertificateNotYetValid { now, not_before } if not_before > now));
}

#[test]
fn a_certificate_for_another_name_is_refused_with_both_names() {
    let mut world = World::new(1);
    let other = self_signed(&["other.example", "*.third.example"], WALL, [8; 32]);
    world.client.trust = Trust::Only(other.chain.clone());
    world.server.server_certificates = vec![other];
    let e = client_error(&world);
    assert!(
        matches!(&e, TlsError::WrongName { expected, presented } if &**expected == NAME && presented.contains("other.example")),
        "{e:?}"
    );
    // The peer gets an alert without detail.
    let (_, server) = world.pair().refused();
    assert_eq!(server, Some(TlsError::RefusedByPeer(AlertDescription::BadCertificate)));
}

#[test]
fn an_unknown_issuer_is_refused_and_the_server_learns_why() {
    let mut world = World::new(1);
    world.client.trust = Trust::Only(self_signed(&["root.example"], WALL, [8; 32]).chain);
    let (client, server) = world.pair().refused();
    assert_eq!(client, Some(TlsError::UnknownIssuer));
    assert_eq!(server, Some(TlsError::RefusedByPeer(AlertDescription::UnknownCA)));
}

#[test]
fn an_authority_vouches_for_the_certificates_it_issued() {
    let mut world = World::new(1);
    let issued = certificate_authority(&[NAME], WALL, [8; 32]).unwrap();
    world.server.server_certificates = vec![issued.clone()];
    assert_eq!(client_error(&world), TlsError::UnknownIssuer);
    world.client.trust = Trust::Only(vec![issued.chain[1].clone()]);
    world.pair().connected();
    world.client.trust = Trust::SystemAnd(vec![issued.chain[1].clone()]);
    world.pair().connected();
    let mut roots = RootCertStore::empty();
    roots.add(issued.chain[1].clone()).unwrap();
    world.crypto = world.crypto.clone().with_roots(roots, None);
    world.client.trust = Trust::System;
    world.pair().connected();
}

#[test]
fn missing_system_roots_are_reported_with_their_reason() {
    let mut world = World::new(1);
    world.client.trust = Trust::System;
    world.crypto = world.crypto.clone().with_roots(RootCertStore::empty(), Some("no bundle found".into()));
    let e = client_config(&world.client, &world.crypto, &[], false, &world.sessions).unwrap_err();
    assert_eq!(e, SecurityError::NoSystemRoots("no bundle found".into()));
}

#[test]
fn a_pin_is_demanded_besides_trust() {
    let mut world = World::new(1);
    let certificate = world.server.server_certificates[0].chain[0].clone();
    for pin in [Pin::of(&certificate), Pin::Chain(vec![certificate.clone()])] {
        world.client.pinned_server_certificates = vec![Pin::Sha256([0; 32]), pin];
        world.pair().connected();
    }
    world.client.pinned_server_certificates = vec![Pin::Sha256([0; 32]), Pin::Chain(Vec::new())];
    let e = client_error(&world);
    assert_eq!((e.blame(), e), (Blame::PeerCertificate, TlsError::NotPinned));
    // A pin does not replace the authority.
    world.client.pinned_server_certificates = vec![Pin::of(&certificate)];
    world.client.trust = Trust::Only(self_signed(&["root.example"], WALL, [8; 32]).chain);
    assert_eq!(client_error(&world), TlsError::UnknownIssuer);
}

#[test]
fn trust_by_pin_looks_at_nothing_but_the_pin() {
    let mut world = World::new(1);
    let certificate = world.server.server_certificates[0].chain[0].clone();
    world.client.trust = Trust::Pinned(vec![Pin::of(&certificate)]);
    world.advance(Duration::from_secs(1000 * 86_400));
    world.pair().connected();
    // The peer that answers must still have its key: here one that shows the certificate with
    // another.
    world.client.trust = Trust::Pinned(vec![Pin::of(&self_signed(&[NAME], WALL, [8; 32]).chain[0])]);
    assert_eq!(client_error(&world), TlsError::NotPinned);
    world.client.pinned_server_certificates = vec![Pin::of(&certificate)];
    let e = client_config(&world.client, &world.crypto, &[], false, &world.sessions).unwrap_err();
    assert_eq!(e, SecurityError::NothingTrusted, "no certificate can be both");
}

#[test]
fn the_application_has_the_last_word_on_trust() {
    let mut world = World::new(1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (answer, log) = (Arc::new(Mutex::new(true)), seen.clone());
    let (says, asked) = (answer.clone(), seen.clone());
    world.client.trust_verification = Some(Arc::new(move |chain, name| {
        log.lock().unwrap().push((chain.len(), name.to_owned()));
        *says.lock().unwrap()
    }));
    world.pair().connected();
    assert_eq!(*seen.lock().unwrap(), [(1, NAME.to_owned())]);
    *answer.lock().unwrap() = false;
    // A fresh store: the earlier session would be resumed without asking again.
    world.sessions = SessionStore::new(world.crypto.clock.clone());
    assert_eq!(client_error(&world), TlsError::RefusedByApplication);
    // A panic is no consent.
    world.client.trust_verification = Some(Arc::new(|_, _| panic!("a defect of the application's")));
    assert_eq!(client_error(&world), TlsError::RefusedByApplication);
    world.client.trust_verification = Some(Arc::new(move |chain, name| {
        asked.lock().unwrap().push((chain.len(), name.to_owned()));
        true
    }));
    // It is not asked about what failed before.
    seen.lock().unwrap().clear();
    world.client.trust = Trust::Only(self_signed(&["root.example"], WALL, [8; 32]).chain);
    assert_eq!(client_error(&world), TlsError::UnknownIssuer);
    assert!(seen.lock().unwrap().is_empty());
    // Unless it alone decides.
    *answer.lock().unwrap() = true;
    world.client.trust = Trust::Callback;
    world.pair().connected();
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[test]
fn opportunistic_security_takes_any_certificate_but_heeds_pins() {
    let mut world = World::new(1);
    world.client = SecurityParameters::opportunistic();
    world.advance(Duration::from_secs(1000 * 86_400));
    world.pair().connected();
    world.client.pinned_server_certificates = vec![Pin::Sha256([0; 32])];
    assert_eq!(client_error(&world), TlsError::NotPinned);
}

fn with_client_authentication(mode: ClientAuthentication) -> World {
    let mut world = World::new(1);
    let client = self_signed(&["client.example"], WALL, [5; 32]);
    world.server.trust = Trust::Only(client.chain.clone());
    world.server.client_authentication = mode;
    world.client.client_certificates = vec![client];
    world
}

#[test]
fn a_client_shows_its_certificate_when_asked() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let world = with_client_authentication(ClientAuthentication::Required).only(version);
        let pair = world.pair().connected();
        assert_eq!(pair.server.peer_certificates().unwrap(), &world.client.client_certificates[0].chain[..]);
        let world = with_client_authentication(ClientAuthentication::None).only(version);
        assert!(world.pair().connected().server.peer_certificates().is_none());
    }
}

#[test]
fn a_client_without_a_certificate_is_refused_or_served_as_configured() {
    let mut world = with_client_authentication(ClientAuthentication::Required);
    let certificates = std::mem::take(&mut world.client.client_certificates);
    // The server's own kind of certificate does not stand in for one.
    world.client.server_certificates = certificates;
    let (client, server) = world.pair().refused();
    assert_eq!(server, Some(TlsError::NoPeerCertificate));
    assert_eq!(client, Some(TlsError::RefusedByPeer(AlertDescription::CertificateRequired)));
    world.server.client_authentication = ClientAuthentication::Optional;
    world.pair().connected();
    // One that is shown must be good, though.
    world.client.client_certificates = vec![self_signed(&["mallory.example"], WALL, [6; 32])];
    assert_eq!(world.pair().refused().1, Some(TlsError::UnknownIssuer));
}

#[test]
fn clients_can_be_known_by_pin_or_by_the_application() {
    let mut world = with_client_authentication(ClientAuthentication::Required);
    world.server.trust = Trust::Pinned(vec![Pin::of(&world.client.client_certificates[0].chain[0])]);
    world.pair().connected();
    world.server.trust = Trust::Callback;
    world.server.trust_verification = Some(Arc::new(|_, name| name.is_empty()));
    world.pair().connected();
    world.server.trust_verification = Some(Arc::new(|_, _| false));
    assert_eq!(world.pair().refused().1, Some(TlsError::RefusedByApplication));
}

#[test]
fn nothing_in_common_is_said_as_such() {
    let mut world = World::new(1);
    world.client_alpn = vec![b"h2"];
    world.server_alpn = vec![b"imap"];
    assert_eq!(world.pair().refused(), (Some(TlsError::NoCommonAlpn), Some(TlsError::NoCommonAlpn)));
    let mut world = World::new(1).only(TlsVersion::Tls12);
    world.server.min_version = TlsVersion::Tls13;
    assert_eq!(world.pair().refused(), (Some(TlsError::NoCommonVersion), Some(TlsError::NoCommonVersion)));
    let mut world = World::new(1);
    world.client.ciphersuites = vec![CipherSuite::TLS13_AES_128_GCM_SHA256];
    world.server.ciphersuites = vec![CipherSuite::TLS13_AES_256_GCM_SHA384];
    let (client, server) = world.pair().refused();
    assert_eq!(client, Some(TlsError::RefusedByPeer(AlertDescription::HandshakeFailure)));
    assert_eq!(
        (server.as_ref().map(TlsError::blame), server),
        (Some(Blame::NoOverlap), Some(TlsError::NoCommonCipher))
    );
}

#[test]
fn a_key_of_a_kind_that_the_client_excludes_is_nothing_in_common() {
    let mut world = World::new(1);
    world.client.signature_algorithms = vec![SignatureScheme::ECDSA_NISTP256_SHA256];
    let (_, server) = world.pair().refused();
    assert_eq!(server, Some(TlsError::NoCommonSignature));
    // And the same from the other side: a server that will not sign with the kind of key it has.
    let mut world = World::new(1);
    world.server.signature_algorithms = vec![SignatureScheme::ECDSA_NISTP256_SHA256];
    let (_, server) = world.pair().refused();
    assert_eq!(server, Some(TlsError::NoCommonSignature));
}

#[test]
fn a_clock_that_was_never_set_fails_the_handshake() {
    let mut world = World::new(1);
    let crypto = Crypto::deterministic([2; 32]);
    world.sessions = SessionStore::new(crypto.clock.clone());
    let client = client_config(&world.client, &crypto, &[], false, &world.sessions).unwrap();
    let (client, _) = Pair::new(client, world.server_config()).refused();
    assert_eq!(client, Some(TlsError::ClockNotSet));
}

#[test]
fn parameters_that_make_no_sense_are_refused_before_anything_is_sent() {
    let world = World::new(1);
    let (crypto, store) = (&world.crypto, &world.sessions);
    let refused = |change: &dyn Fn(&mut SecurityParameters), for_quic| {
        let (mut client, mut server) = (world.client.clone(), world.server.clone());
        change(&mut client);
        change(&mut server);
        let server = server_config(&server, crypto, &[], for_quic).unwrap_err();
        (client_config(&client, crypto, &[], for_quic, store).unwrap_err() == server).then_some(server)
    };
    use SecurityError as E;
    assert_eq!(refused(&|p| p.protection = Protection::Disabled, false), Some(E::Disabled));
    assert_eq!(refused(&|p| p.alpn = vec![Vec::new()], false), Some(E::BadAlpn));
    assert_eq!(refused(&|p| p.alpn = vec![vec![0; 256]], false), Some(E::BadAlpn));
    assert_eq!(refused(&|p| p.alpn = vec![vec![0; 255]; 257], false), Some(E::BadAlpn));
    assert_eq!(refused(&|p| p.max_version = TlsVersion::Tls12, true), Some(E::QuicNeedsTls13));
    assert_eq!(
        refused(&|p| (p.min_version, p.max_version) = (TlsVersion::Tls13, TlsVersion::Tls12), false),
        Some(E::VersionRange)
    );
    assert_eq!(
        refused(&|p| p.ciphersuites = vec![CipherSuite::TLS_NULL_WITH_NULL_NULL], false),
        Some(E::NothingLeft("ciphersuites"))
    );
    let key = PreSharedKey { key: vec![1; 32], identity: b"me".to_vec() };
    assert_eq!(refused(&|p| p.pre_shared_key = Some(key.clone()), false), Some(E::Unsupported("pre_shared_key")));
    let client = |change: &dyn Fn(&mut SecurityParameters)| {
        let mut p = world.client.clone();
        change(&mut p);
        client_config(&p, crypto, &[], false, store).unwrap_err()
    };
    assert_eq!(client(&|p| p.trust = Trust::Only(Vec::new())), E::NothingTrusted);
    assert_eq!(client(&|p| p.trust = Trust::Pinned(Vec::new())), E::NothingTrusted);
    assert_eq!(client(&|p| p.trust = Trust::Callback), E::NothingTrusted);
    assert!(matches!(client(&|p| p.trust = Trust::Only(vec![b"junk".to_vec().into()])), E::BadCertificate(_)));
    let server = |change: &dyn Fn(&mut SecurityParameters)| {
        let mut p = world.server.clone();
        change(&mut p);
        server_config(&p, crypto, &[], false).unwrap_err()
    };
    assert_eq!(server(&|p| p.server_certificates.clear()), E::NoServerCertificate);
    assert_eq!(server(&|p| p.client_authentication = ClientAuthentication::Required), E::ClientTrust);
    assert_eq!(server(&|p| p.server_certificates[0].key = self_signed(&["x"], WALL, [9; 32]).key), E::KeyMismatch);
    assert!(matches!(server(&|p| p.server_certificates[0].chain.clear()), E::BadCertificate(_)));
    // Of P-256 the simulator's provider can repeat the lengths; of other curves, nothing.
    let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let p384 = PrivateKeyDer::Pkcs8(p384.serialize_der().into());
    assert!(matches!(server(&|p| p.server_certificates[0].key = p384.clone_key()), E::BadKey(_)), "not repeatable");
    // A key on P-521, of which no more than its curve is read.
    let p521 =
        [0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0, 0x23];
    let p521 = PrivateKeyDer::Pkcs8(p521.to_vec().into());
    let e = server(&|p| p.server_certificates[0].key = p521.clone_key()).to_string();
    assert!(e.contains("P-521, which is not supported: use"), "{e}");
}

#[test]
fn quic_gets_tls_1_3_and_its_early_data_mark() {
    let world = World::new(1);
    let server = server_config(&world.server, &world.crypto, &[b"h3"], true).unwrap();
    assert_eq!(server.max_early_data_size, u32::MAX);
    assert_eq!(world.server_config().max_early_data_size, EARLY_DATA_LIMIT);
    let client = client_config(&world.client, &world.crypto, &[b"h3"], true, &world.sessions).unwrap();
    assert!(client.enable_early_data);
    assert_eq!(client.alpn_protocols, [b"h3"]);
    assert!(quic_initial_suite(&world.crypto).is_some());
    // Over a stream these configurations speak 1.3 alone.
    let mut old = World::new(1).only(TlsVersion::Tls12);
    old.client.alpn = vec![b"h3".to_vec()];
    assert_eq!(Pair::new(old.client_config(), server).refused().1, Some(TlsError::NoCommonVersion));
}

/// A callback that notes what it was asked, and answers.
fn noting(
    asked: &Arc<std::sync::Mutex<Vec<(usize, rustls::SignatureScheme)>>>,
    answer: impl Fn(&Challenge<'_>) -> Answer + Send + Sync + 'static,
) -> Option<IdentityChallenge> {
    let asked = asked.clone();
    Some(Arc::new(move |c: &Challenge<'_>| {
        asked.lock().unwrap().push((c.chain.len(), c.scheme));
        answer(c)
    }))
}

#[test]
fn the_application_is_asked_for_each_signature_of_either_side_and_may_refuse() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let asked = Arc::default();
        let mut world = with_client_authentication(ClientAuthentication::Required).only(version);
        world.server.identity_challenge = noting(&asked, |_| Answer::Sign);
        world.client.identity_challenge = noting(&asked, |_| Answer::Sign);
        world.pair().connected();
        assert_eq!(asked.lock().unwrap().len(), 2, "{version:?}: the server's and the client's");
        assert!(asked.lock().unwrap().iter().all(|(certificates, _)| *certificates == 1));
        world.client.identity_challenge = noting(&asked, |_| Answer::Refuse);
        let (client, _) = world.pair().refused();
        let words = client.expect("the client fails itself").to_string();
        assert!(words.contains("identity challenge callback refused"), "{words}");
        world.client.identity_challenge = noting(&asked, |_| panic!("a defect of the application's"));
        let (client, _) = world.pair().refused();
        assert!(client.unwrap().to_string().contains("identity challenge callback panicked"));
        world.client.identity_challenge = None;
        world.server.identity_challenge = noting(&asked, |_| Answer::Refuse);
        let (_, server) = world.pair().refused();
        assert!(server.unwrap().to_string().contains("identity challenge callback refused"));
    }
}

#[test]
fn a_key_that_is_not_in_memory_signs_through_the_application() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let mut world = World::new(1).only(version);
        let identity = world.server.server_certificates[0].clone();
        // The hardware of this test.
        let key = world.crypto.provider.key_provider.load_private_key(identity.key.clone_key()).unwrap();
        world.server.server_certificates = vec![Identity::with_key_elsewhere(identity.chain)];
        let refused = server_config(&world.server, &world.crypto, &[], false).unwrap_err();
        assert!(refused.to_string().contains("identity challenge callback"), "{refused}");
        let asked = Arc::default();
        world.server.identity_challenge = noting(&asked, move |c| {
            let signer = key.choose_scheme(&[c.scheme]).expect("the scheme fits the key");
            Answer::Signature(signer.sign(c.message).expect("signed"))
        });
        let mut pair = world.pair().connected();
        write(&mut pair.server, b"hello");
        pair.run();
        assert_eq!((&pair.at_client[..], asked.lock().unwrap().len()), (&b"hello"[..], 1), "{version:?}");
        world.server.identity_challenge = noting(&asked, |_| Answer::Signature(vec![0; 64]));
        let (client, _) = Pair::new(
            client_config(&world.client, &world.crypto, &[], false, &world.sessions.isolated(9)).unwrap(),
            world.server_config(),
        )
        .refused();
        assert!(client.is_some(), "{version:?}: a wrong signature is found out");
        world.server.identity_challenge = noting(&asked, |_| Answer::Sign);
        let (_, server) = Pair::new(
            client_config(&world.client, &world.crypto, &[], false, &world.sessions.isolated(10)).unwrap(),
            world.server_config(),
        )
        .refused();
        assert!(server.unwrap().to_string().contains("not in memory"), "{version:?}");
    }
}

#[test]
fn a_listed_certificate_is_accepted_although_it_says_that_it_is_an_authority() {
    let own = crate::self_signed::authority_of_its_own(&[NAME], WALL, [8; 32]);
    let mut world = World::new(1);
    world.server.server_certificates = vec![own.clone()];
    for trust in [Trust::Only(own.chain.clone()), Trust::SystemAnd(own.chain.clone())] {
        world.client.trust = trust;
        world.pair().connected();
    }
    // Its dates and names count, and another one with the same name and key is another.
    world.client.trust = Trust::Only(own.chain.clone());
    world.advance(Duration::from_secs(375 * 86_400));
    assert!(matches!(client_error(&world), TlsError::CertificateExpired { .. }));
    world.crypto.clock.set(WALL);
    let other = crate::self_signed::authority_of_its_own(&["other.example"], WALL, [8; 32]);
    world.server.server_certificates = vec![other.clone()];
    let e = client_error(&world).to_string();
    assert!(e.contains("not listed as trusted") && !e.contains("CaUsed"), "{e}");
    world.client.trust = Trust::Only(other.chain);
    assert!(matches!(client_error(&world), TlsError::WrongName { .. }));
}

#[test]
fn what_rustls_says_in_its_own_words_is_said_in_ours() {
    use rustls::pki_types::UnixTime;
    use rustls::{CertificateError as C, Error, OtherError};
    let at = |s| UnixTime::since_unix_epoch(Duration::from_secs(s));
    let not_pinned = C::Other(OtherError(Arc::new(crate::error::NotPinned)));
    for (e, wanted) in [
        (C::UnknownIssuer, TlsError::UnknownIssuer),
        (C::Revoked, TlsError::CertificateRevoked),
        (C::ApplicationVerificationFailure, TlsError::RefusedByApplication),
        (not_pinned, TlsError::NotPinned),
        (
            C::ExpiredContext { time: at(1_795_770_228), not_after: at(1_580_515_200) },
            TlsError::CertificateExpired { now: 1_795_770_228, not_after: 1_580_515_200 },
        ),
        (
            C::NotValidYetContext { time: at(5), not_before: at(70) },
            TlsError::CertificateNotYetValid { now: 5, not_before: 70 },
        ),
    ] {
        assert_eq!(TlsError::from_text(&Error::InvalidCertificate(e).to_string()), Some(wanted));
    }
    for (presented, wanted) in [
        (&[][..], ""),
        (&["DnsName(\"a.test\")"], "a.test"),
        (&["DnsName(\"a.test\")", "DnsName(\"b.test\")", "IpAddress(192.0.2.1)"], "a.test, b.test, 192.0.2.1"),
    ] {
        let presented = presented.iter().map(|p| (*p).to_owned()).collect();
        let expected = ServerName::try_from("c.test").unwrap();
        let e = Error::InvalidCertificate(C::NotValidForNameContext { expected, presented });
        let said = TlsError::WrongName { expected: "c.test".into(), presented: wanted.into() };
        assert_eq!((TlsError::from_text(&e.to_string()), TlsError::from(e)), (Some(said.clone()), said));
    }
    let other = C::Other(OtherError(Arc::new(std::io::Error::other("odd"))));
    let text = TlsError::from_text(&Error::InvalidCertificate(other).to_string()).unwrap().to_string();
    assert!(text.contains("odd") && !text.contains("OtherError"), "{text}");
    assert_eq!(TlsError::from_text("received fatal alert: UnknownCA"), None);
    assert_eq!(TlsError::from_text(""), None);
}

/// A server with a certificate of version 1, as `openssl x509 -req` makes it without extensions,
/// and with this key.
fn of_version_1(world: &World, key: &PrivateKeyDer<'static>) -> Arc<ServerConfig> {
    let chain = certificates_from_pem(include_bytes!("version_1.pem")).unwrap();
    let key = world.crypto.provider.key_provider.load_private_key(key.clone_key()).unwrap();
    let mut config = ServerConfig::clone(&world.server_config());
    config.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(rustls::sign::CertifiedKey::new(chain, key)));
    Arc::new(config)
}

#[test]
fn a_certificate_of_version_1_is_as_good_as_its_pin() {
    let certificate = certificates_from_pem(include_bytes!("version_1.pem")).unwrap().remove(0);
    let key = private_key_from_pem(include_bytes!("version_1.pem")).unwrap();
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let other = PrivateKeyDer::Pkcs8(other.serialize_der().into());
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let mut world = World::new(1).only(version);
        world.client.trust = Trust::Pinned(vec![Pin::of(&certificate)]);
        Pair::new(world.client_config(), of_version_1(&world, &key)).connected();
        // The peer that answers must have its key.
        let (client, _) = Pair::new(world.client_config(), of_version_1(&world, &other)).refused();
        assert!(matches!(client, Some(TlsError::BadCertificate(_))), "{version:?}: {client:?}");
        world.client.trust = Trust::Pinned(vec![Pin::Sha256([7; 32])]);
        let (client, _) = Pair::new(world.client_config(), of_version_1(&world, &key)).refused();
        assert_eq!(client, Some(TlsError::NotPinned), "{version:?}");
        // By authorities it is refused, also if it is listed as one.
        world.client.trust = Trust::SystemAnd(vec![certificate.clone()]);
        let (client, _) = Pair::new(world.client_config(), of_version_1(&world, &key)).refused();
        assert!(matches!(client, Some(TlsError::BadCertificate(_))), "{version:?}: {client:?}");
    }
}

#[test]
fn a_chain_that_is_refused_is_shown_to_the_application() {
    let mut world = World::new(1);
    let certificate = world.server.server_certificates[0].chain[0].clone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    world.client.refused_certificate = Some(Arc::new(move |chain: &[CertificateDer<'_>], name: &str| {
        log.lock().unwrap().push((Pin::of(&chain[0]), name.to_owned()));
    }));
    world.pair().connected();
    assert!(seen.lock().unwrap().is_empty(), "it is good");
    world.client.trust = Trust::Only(self_signed(&["root.example"], WALL, [8; 32]).chain);
    assert_eq!(client_error(&world), TlsError::UnknownIssuer);
    world.client.trust = Trust::Pinned(vec![Pin::Sha256([0; 32])]);
    assert_eq!(client_error(&world), TlsError::NotPinned);
    assert_eq!(*seen.lock().unwrap(), vec![(Pin::of(&certificate), NAME.to_owned()); 2]);
    // A defect of it is no consent, and no other error.
    world.client.refused_certificate = Some(Arc::new(|_, _| panic!("a defect of the application's")));
    assert_eq!(client_error(&world), TlsError::NotPinned);
}
