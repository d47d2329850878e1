//! Sessions that are resumed, and those that must not be.

use super::*;

/// One connection with an exchange, so that the client has its tickets; returns whether it was
/// resumed.
fn visit(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> bool {
    let mut pair = Pair::new(client.clone(), server.clone()).connected();
    write(&mut pair.server, b"hello");
    pair.run();
    assert_eq!(pair.at_client, b"hello");
    assert_eq!(pair.client.resumed(), pair.server.resumed());
    assert!(pair.client.peer_certificates().is_some());
    pair.client.resumed().unwrap()
}

#[test]
fn the_second_visit_resumes_in_both_versions_and_with_both_kinds_of_memory() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        for early_data in [true, false] {
            let mut world = World::new(1).only(version);
            // Without early data the server keeps nothing and seals tickets.
            world.server.early_data = early_data;
            let server = world.server_config();
            assert!(!visit(&world.client_config(), &server), "{version:?}");
            // A new configuration from equal parameters serves as well.
            world.client = world.client.clone();
            assert!(visit(&world.client_config(), &server), "{version:?} {early_data}");
            assert!(visit(&world.client_config(), &server), "{version:?} {early_data}");
        }
    }
}

#[test]
fn sessions_are_not_shared_across_isolation_keys() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let world = World::new(1).only(version);
        let server = world.server_config();
        let config =
            |key| client_config(&world.client, &world.crypto, &[], false, &world.sessions.isolated(key)).unwrap();
        assert!(!visit(&config(1), &server));
        assert!(!visit(&config(2), &server), "{version:?}");
        assert!(visit(&config(1), &server));
        world.sessions.isolated(2).forget();
        assert!(!visit(&config(2), &server));
        assert!(visit(&config(1), &server));
    }
}

#[test]
fn sessions_are_not_shared_across_trust_identity_or_protocol() {
    let world = World::new(1);
    let server = world.server_config();
    assert!(!visit(&world.client_config(), &server));
    let changes: [&dyn Fn(&mut SecurityParameters); 4] = [
        &|p| p.trust = Trust::Callback,
        &|p| p.client_certificates = vec![self_signed(&["me.example"], WALL, [3; 32])],
        &|p| p.pinned_server_certificates = vec![Pin::of(&world.server.server_certificates[0].chain[0])],
        &|p| p.alpn = vec![b"h2".to_vec()],
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut p = world.client.clone();
        if i == 0 {
            p.trust_verification = Some(Arc::new(|_, _| true));
        }
        change(&mut p);
        let config = client_config(&p, &world.crypto, &[], false, &world.sessions).unwrap();
        assert!(!visit(&config, &server), "change {i}");
        assert!(visit(&config, &server), "change {i} resumes its own");
    }
    assert!(visit(&world.client_config(), &server), "the first still resumes");
}

#[test]
fn an_unauthenticated_session_never_passes_for_an_authenticated_one() {
    let mut world = World::new(1);
    world.server.server_certificates = vec![self_signed(&[NAME], WALL, [66; 32])];
    let server = world.server_config();
    let lax = client_config(&SecurityParameters::opportunistic(), &world.crypto, &[], false, &world.sessions).unwrap();
    assert!(!visit(&lax, &server));
    assert!(visit(&lax, &server));
    assert_eq!(Pair::new(world.client_config(), server).refused().0, Some(TlsError::UnknownIssuer));
}

#[test]
fn sessions_end_with_their_lifetime_on_either_side() {
    let mut world = World::new(1);
    world.client.cached_session_lifetime = Some(Duration::from_secs(60));
    let server = world.server_config();
    visit(&world.client_config(), &server);
    world.advance(Duration::from_secs(61));
    assert!(!visit(&world.client_config(), &server), "the client has forgotten");
    world.client.cached_session_lifetime = None;
    world.server.cached_session_lifetime = Some(Duration::from_secs(60));
    let server = world.server_config();
    visit(&world.client_config(), &server);
    world.advance(Duration::from_secs(61));
    assert!(!visit(&world.client_config(), &server), "the server has forgotten");
}

#[test]
fn the_number_of_sessions_is_bounded() {
    let mut world = World::new(1);
    world.sessions = SessionStore::with_limits(world.crypto.clock.clone(), 6, Duration::from_secs(3600));
    let names: Vec<String> = (0..20).map(|i| format!("s{i}.example")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let identity = self_signed(&names, WALL, [4; 32]);
    world.client.trust = Trust::Only(identity.chain.clone());
    world.server.server_certificates = vec![identity];
    let server = world.server_config();
    let visit = |name: &str| {
        let mut pair = Pair::new(world.client_config(), server.clone());
        pair.client = TlsStream::client(world.client_config(), &world.client.name_for(name).unwrap()).unwrap();
        let pair = pair.connected();
        assert!(world.sessions.len() <= 6, "{}", world.sessions.len());
        pair.client.resumed().unwrap()
    };
    for name in &names {
        assert!(!visit(name));
        visit(name);
    }
    assert!(visit(names[19]), "the latest is kept");
    assert!(!visit(names[0]), "the first made room");
    world.sessions.forget();
    assert!(world.sessions.is_empty());
    assert!(!visit(names[19]));
}

#[test]
fn a_limit_of_zero_keeps_no_session_and_a_small_one_keeps_as_many() {
    let mut world = World::new(1);
    world.client.max_cached_sessions = Some(0);
    let server = world.server_config();
    visit(&world.client_config(), &server);
    assert!(!visit(&world.client_config(), &server));
    assert!(world.sessions.is_empty());
    world.client.max_cached_sessions = Some(1);
    visit(&world.client_config(), &server);
    assert_eq!(world.sessions.len(), 1);
    assert!(visit(&world.client_config(), &server));
    world.client.max_cached_sessions = None;
    world.server.max_cached_sessions = Some(0);
    let server = world.server_config();
    visit(&world.client_config(), &server);
    assert!(!visit(&world.client_config(), &server), "a server can do without, too");
}

#[test]
fn early_data_travels_with_the_first_flight_and_is_read_first() {
    let world = World::new(1);
    let (client, server) = (world.client_config(), world.server_config());
    visit(&client, &server);
    let mut pair = Pair::new(client, server);
    assert_eq!(pair.client.early_capacity(), EARLY_DATA_LIMIT as usize);
    assert_eq!(pair.client.early_write(b"GET / "), 6);
    assert_eq!(write(&mut pair.client, b"and the rest"), 12);
    // One flight is enough for the server to have it.
    while pair.client.wants_write() {
        pair.client.write_tls(&mut pair.up).unwrap();
    }
    pair.server.read_tls(&mut pair.up).unwrap();
    assert_eq!(pair.server.process().unwrap(), State { handshaking: true, plain: 6, peer_closed: false });
    assert_eq!(pair.server.pending_plain(), 6);
    assert_eq!(pair.client.early_data_accepted(), None);
    let mut pair = pair.connected();
    assert_eq!(pair.at_server, b"GET / and the rest");
    assert_eq!(pair.server.early_data_received(), 6);
    assert_eq!(pair.client.early_data_accepted(), Some(true));
    assert_eq!(pair.client.early_write(b"too late"), 0);
}

#[test]
fn without_a_session_there_is_no_early_data() {
    let mut pair = World::new(1).pair();
    assert_eq!(pair.client.early_capacity(), 0);
    assert_eq!(pair.client.early_write(b"GET /"), 0);
    assert_eq!(pair.server.early_write(b"GET /"), 0);
    let pair = pair.connected();
    assert_eq!(pair.client.early_data_accepted(), Some(false));
}

#[test]
fn refused_early_data_is_dropped_and_the_client_can_tell() {
    let world = World::new(1);
    let (client, server) = (world.client_config(), world.server_config());
    visit(&client, &server);
    // A server that has lost its memory.
    let mut pair = Pair::new(client, world.server_config());
    assert_eq!(pair.client.early_write(b"GET / "), 6);
    let mut pair = pair.connected();
    assert_eq!(pair.client.early_data_accepted(), Some(false));
    assert_eq!((pair.server.early_data_received(), pair.at_server.len()), (0, 0));
    write(&mut pair.client, b"GET / ");
    pair.run();
    assert_eq!(pair.at_server, b"GET / ");
}

#[test]
fn a_replayed_first_flight_gets_nowhere() {
    let world = World::new(1);
    let (client, server) = (world.client_config(), world.server_config());
    visit(&client, &server);
    let mut pair = Pair::new(client, server.clone());
    pair.client.early_write(b"pay 100");
    while pair.client.wants_write() {
        pair.client.write_tls(&mut pair.up).unwrap();
    }
    let recorded = pair.up.seen.clone();
    let pair = pair.connected();
    assert_eq!(pair.at_server, b"pay 100");
    let mut replayed = TlsStream::server(server).unwrap();
    let mut pipe = Pipe { bytes: recorded.into(), ..Pipe::default() };
    while replayed.wants_read() && !pipe.bytes.is_empty() {
        replayed.read_tls(&mut pipe).unwrap();
        if replayed.process().is_err() {
            break;
        }
    }
    assert_eq!(replayed.early_data_received(), 0);
    assert_eq!(replayed.pending_plain(), 0);
}

#[test]
fn early_data_beyond_the_limit_is_not_taken() {
    let world = World::new(1);
    let (client, server) = (world.client_config(), world.server_config());
    visit(&client, &server);
    let mut pair = Pair::new(client, server);
    let big = vec![1; EARLY_DATA_LIMIT as usize + 1000];
    let mut taken = 0;
    loop {
        match pair.client.early_write(&big[taken..]) {
            0 => break,
            n => taken += n,
        }
    }
    assert_eq!(taken, EARLY_DATA_LIMIT as usize);
    let pair = pair.connected();
    assert_eq!(pair.at_server.len(), EARLY_DATA_LIMIT as usize);
}

/// What a client's early data comes to where the server speaks other protocols than when the
/// session was made.
#[test]
fn early_data_of_another_application_protocol_is_refused_and_can_be_sent_again() {
    let mut world = World::new(1);
    world.server.alpn = vec![b"new".to_vec(), b"old".to_vec()];
    world.client.alpn = vec![b"old".to_vec()];
    let server = world.server_config();
    visit(&world.client_config(), &server);
    // The same sessions, but the server has come to prefer another protocol, which this client
    // offers, too.
    let mut client = ClientConfig::clone(&world.client_config());
    client.alpn_protocols = vec![b"new".to_vec(), b"old".to_vec()];
    let mut pair = Pair::new(Arc::new(client), server);
    assert_eq!(pair.client.early_write(b"GET / "), 6);
    let mut pair = pair.connected();
    assert_eq!(pair.client.alpn(), Some(&b"new"[..]));
    assert_eq!(pair.client.early_data_accepted(), Some(false));
    assert_eq!((pair.server.early_data_received(), pair.at_server.len()), (0, 0));
    write(&mut pair.client, b"GET / ");
    pair.run();
    assert_eq!(pair.at_server, b"GET / ", "once");
}

#[test]
fn early_data_before_a_hello_retry_request_is_refused_and_can_be_sent_again() {
    let mut world = World::new(1);
    let mut provider = rustls::crypto::CryptoProvider::clone(&world.crypto.provider);
    provider.kx_groups.push(rustls::crypto::ring::kx_group::SECP384R1);
    world.crypto.provider = Arc::new(provider);
    let server = world.server_config();
    visit(&world.client_config(), &server);
    // The same sessions, but the server has given up the group that the client remembers.
    world.server.supported_groups = vec![rustls::NamedGroup::secp384r1];
    let mut strict = ServerConfig::clone(&world.server_config());
    strict.session_storage = server.session_storage.clone();
    let mut pair = Pair::new(world.client_config(), Arc::new(strict));
    assert_eq!(pair.client.early_write(b"GET / "), 6);
    let mut pair = pair.connected();
    assert_eq!(pair.client.early_data_sent(), 6);
    assert_eq!(pair.client.early_data_accepted(), Some(false));
    assert_eq!((pair.server.early_data_received(), pair.at_server.len()), (0, 0));
    write(&mut pair.client, b"GET / ");
    pair.run();
    assert_eq!(pair.at_server, b"GET / ", "once");
}

#[test]
fn a_server_may_answer_early_data_before_the_client_has_finished() {
    let world = World::new(1);
    let (client, server) = (world.client_config(), world.server_config());
    visit(&client, &server);
    let mut pair = Pair::new(client, server);
    pair.client.early_write(b"GET / ");
    while pair.client.wants_write() {
        pair.client.write_tls(&mut pair.up).unwrap();
    }
    pair.server.read_tls(&mut pair.up).unwrap();
    assert!(pair.server.process().unwrap().handshaking);
    write(&mut pair.server, b"200");
    while pair.server.wants_write() {
        pair.server.write_tls(&mut pair.down).unwrap();
    }
    while !pair.down.bytes.is_empty() {
        pair.client.read_tls(&mut pair.down).unwrap();
        pair.client.process().unwrap();
    }
    let mut answer = [0; 10];
    assert_eq!(pair.client.read_plain(&mut answer), Ok(3));
    assert!(pair.server.is_handshaking(), "and has not heard from the client since");
}
