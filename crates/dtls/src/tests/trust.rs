//! Which peers are trusted, and which are not.

use super::link::{Faults, Pair};
use super::*;
use crate::DtlsError;
use neater_tls::{Answer, ClientAuthentication, Pin, SecurityError, TlsError};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const VERSIONS: [(TlsVersion, TlsVersion); 2] = [V12, V13];

fn run(client: &SecurityParameters, server: &SecurityParameters, version: (TlsVersion, TlsVersion)) -> Pair {
    let (mut c, mut s) = (client.clone(), server.clone());
    versions(&mut c, version.0, version.1);
    versions(&mut s, version.0, version.1);
    let mut pair = Pair::new(&client_config(&c, 1), &server_config(&s, 2), 1, Faults::NONE);
    pair.run_for(Duration::from_secs(100));
    pair
}

fn client_fails(client: &SecurityParameters, expected: impl Fn(&TlsError) -> bool) {
    for version in VERSIONS {
        let pair = run(client, &server_parameters(), version);
        let error = pair.events.iter().find_map(|(c, e)| match e {
            Event::Failed(DtlsError::Tls(e)) if *c => Some(e.clone()),
            _ => None,
        });
        assert!(error.as_ref().is_some_and(&expected), "{version:?}: {:?}", pair.events);
        // The server must not believe that there is a session: it waits for a Finished that never
        // comes.
        assert!(!pair.happened(Event::Connected), "{version:?}: {:?}", pair.events);
        assert!(pair.server.is_over());
    }
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let other = neater_tls::self_signed_p256(&["other.example"], WALL).unwrap();
    let mut s = server_parameters();
    s.server_certificates = vec![other.clone()];
    let mut c = client_parameters();
    c.trust = Trust::Only(other.chain);
    for version in VERSIONS {
        let pair = run(&c, &s, version);
        let wrong = |e: &Event| matches!(e, Event::Failed(DtlsError::Tls(TlsError::WrongName { .. })));
        assert!(pair.events.iter().any(|(c, e)| *c && wrong(e)), "{:?}", pair.events);
        assert!(!pair.happened(Event::Connected));
    }
}

#[test]
fn an_unknown_issuer_is_refused() {
    let mut c = client_parameters();
    c.trust = Trust::Only(neater_tls::self_signed_p256(&[NAME], WALL).unwrap().chain);
    client_fails(&c, |e| *e == TlsError::UnknownIssuer);
}

#[test]
fn an_expired_certificate_is_refused_and_so_is_any_without_a_clock() {
    let (c, s) = (client_parameters(), server_config(&server_parameters(), 2));
    let late = crypto(1);
    late.clock.set(WallTime(WALL.0 + Duration::from_secs(3 * 365 * 24 * 3600)));
    let unset = Crypto::deterministic([1; 32]);
    for (crypto, clock) in [(late, true), (unset, false)] {
        let config = ClientConfig::new(&c, &crypto, Tuning::default()).unwrap();
        let mut pair = Pair::new(&config, &s, 1, Faults::NONE);
        pair.run_for(Duration::from_secs(100));
        let expected = |e: &Event| match e {
            Event::Failed(DtlsError::Tls(TlsError::CertificateExpired { .. })) => clock,
            Event::Failed(DtlsError::Tls(TlsError::ClockNotSet)) => !clock,
            _ => false,
        };
        assert!(pair.events.iter().any(|(c, e)| *c && expected(e)), "{:?}", pair.events);
        assert!(!pair.happened(Event::Connected));
    }
}

#[test]
fn a_pin_decides() {
    let mut c = client_parameters();
    c.trust = Trust::Pinned(vec![Pin::of(&identity().chain[0])]);
    for version in VERSIONS {
        assert!(run(&c, &server_parameters(), version).client.is_connected());
    }
    c.trust = Trust::Pinned(vec![Pin::Sha256([7; 32])]);
    client_fails(&c, |e| *e == TlsError::NotPinned);
    // Besides trust, too.
    c.trust = Trust::Only(identity().chain);
    c.pinned_server_certificates = vec![Pin::Sha256([7; 32])];
    client_fails(&c, |e| *e == TlsError::NotPinned);
}

/// A session beside another one is with the same peer: a certificate that would do otherwise does
/// not.
#[test]
fn a_session_beside_another_one_takes_nothing_but_the_same_certificate() {
    let other = neater_tls::self_signed_p256(&[NAME], WALL).unwrap();
    let mut c = client_parameters();
    c.trust = Trust::Only([identity().chain, other.chain.clone()].concat());
    let mut twin = server_parameters();
    twin.server_certificates = vec![other];
    for version in VERSIONS {
        let mut early = Pair::new(&client_config(&c, 1), &server_config(&twin, 2), 1, Faults::NONE);
        assert!(early.beside(&client_config(&c, 1), &server_config(&twin, 2)).is_none(), "who it is with is not known");
        early.run_for(Duration::from_secs(1));
        let first = run(&c, &server_parameters(), version);
        assert!(first.client.is_connected(), "{:?}", first.events);
        for (server, same) in [(server_parameters(), true), (twin.clone(), false)] {
            let mut beside = first.beside(&client_config(&c, 3), &server_config(&server, 4)).expect("it is up");
            beside.run_for(Duration::from_secs(100));
            assert_eq!(beside.client.is_connected(), same, "{:?}", beside.events);
            let refused = |e: &Event| matches!(e, Event::Failed(DtlsError::Tls(TlsError::BadCertificate(_))));
            assert_eq!(beside.events.iter().any(|(by_client, e)| *by_client && refused(e)), !same);
        }
    }
}

#[test]
fn the_application_has_the_last_word_and_sees_the_chain() {
    let seen = Arc::new(AtomicUsize::new(0));
    let mut c = client_parameters();
    let counter = seen.clone();
    c.trust_verification = Some(Arc::new(move |chain, name| {
        counter.fetch_add(chain.len(), Ordering::Relaxed);
        name == NAME && chain[0] == identity().chain[0]
    }));
    for version in VERSIONS {
        assert!(run(&c, &server_parameters(), version).client.is_connected());
    }
    assert_eq!(seen.load(Ordering::Relaxed), 2, "asked once per session");
    c.trust_verification = Some(Arc::new(|_, _| false));
    client_fails(&c, |e| *e == TlsError::RefusedByApplication);
}

/// An authority, and an identity that it has issued.
fn issued(name: &str) -> (neater_tls::CertificateDer<'static>, Identity) {
    let validity = |params: &mut CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
    };
    // Issuers are looked up by name: were they alike, a stranger would look like a forger.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority
        .distinguished_name
        .push(rcgen::DnType::CommonName, format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed)));
    validity(&mut authority);
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    validity(&mut params);
    params.extended_key_usages =
        vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = neater_tls::rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    (authority_certificate.der().clone(), Identity { chain: vec![certificate.der().clone()], key })
}

#[test]
fn an_authority_vouches_for_servers_and_clients() {
    let (authority, server) = issued(NAME);
    let (client_authority, client) = issued("client.example");
    let mut s = server_parameters();
    s.server_certificates = vec![server];
    s.client_authentication = ClientAuthentication::Required;
    s.trust = Trust::Only(vec![client_authority]);
    let mut c = client_parameters();
    c.trust = Trust::Only(vec![authority]);
    c.client_certificates = vec![client.clone()];
    for version in VERSIONS {
        let pair = run(&c, &s, version);
        assert!(pair.client.is_connected() && pair.server.is_connected(), "{version:?}: {:?}", pair.events);
        assert_eq!(pair.server.peer_certificates(), client.chain);
    }
}

#[test]
fn clients_without_a_good_certificate_are_refused() {
    let (authority, _) = issued("client.example");
    let (_, stranger) = issued("client.example");
    let mut s = server_parameters();
    s.client_authentication = ClientAuthentication::Required;
    s.trust = Trust::Only(vec![authority]);
    for version in VERSIONS {
        let mut c = client_parameters();
        let pair = run(&c, &s, version);
        // In 1.3 the client is through before the server has looked (RFC 8446 section 4.4.2.4), and
        // no alert reports it.
        assert!(pair.server.is_over() && (version == V13 || pair.client.is_over()), "{version:?}: {:?}", pair.events);
        assert!(!pair.events.iter().any(|(client, e)| !client && *e == Event::Connected), "{:?}", pair.events);
        c.client_certificates = vec![stranger.clone()];
        let pair = run(&c, &s, version);
        assert!(pair.server.is_over(), "{version:?}: {:?}", pair.events);
        let refused = Event::Failed(DtlsError::Tls(TlsError::UnknownIssuer));
        assert!(pair.events.contains(&(false, refused)), "{version:?}: {:?}", pair.events);
        assert!(!pair.events.iter().any(|(client, e)| !client && *e == Event::Connected));
    }
}

#[test]
fn the_application_may_refuse_to_sign() {
    let mut s = server_parameters();
    s.identity_challenge = Some(Arc::new(|_| Answer::Refuse));
    for version in VERSIONS {
        let pair = run(&client_parameters(), &s, version);
        assert!(pair.server.is_over() && !pair.happened(Event::Connected), "{:?}", pair.events);
    }
    s.identity_challenge = Some(Arc::new(|_| Answer::Sign));
    for version in VERSIONS {
        assert!(run(&client_parameters(), &s, version).client.is_connected());
    }
}

#[test]
fn signature_algorithms_of_the_parameters_bind_the_peer() {
    let mut c = client_parameters();
    c.signature_algorithms = vec![rustls::SignatureScheme::ECDSA_NISTP384_SHA384];
    client_fails(&c, |e| *e == TlsError::NoCommonSignature);
}

#[test]
fn what_dtls_does_not_have_is_refused_when_it_is_configured() {
    let refuse = |p: &SecurityParameters| ServerConfig::new(p, &crypto(1), Tuning::default()).err();
    let mut p = server_parameters();
    p.alpn = vec![b"h3".to_vec()];
    assert!(matches!(refuse(&p), Some(SecurityError::Unsupported(_))));
    p = server_parameters();
    p.client_authentication = ClientAuthentication::Optional;
    p.trust = Trust::Only(identity().chain);
    assert!(matches!(refuse(&p), Some(SecurityError::Unsupported(_))));
    p = server_parameters();
    p.server_certificates = vec![neater_tls::self_signed(&[NAME], WALL, [1; 32])];
    assert!(matches!(refuse(&p), Some(SecurityError::BadKey(_))));
    p.server_certificates.clear();
    assert_eq!(refuse(&p), Some(SecurityError::NoServerCertificate));
    p = server_parameters();
    p.ciphersuites = vec![CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
    assert!(matches!(refuse(&p), Some(SecurityError::NothingLeft(_))));
}
