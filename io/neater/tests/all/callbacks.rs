//! The callbacks of RFC 9622 section 6.3.8 over real sockets. They are called while the engine is
//! at work, which is why they must not call back into it; anything else they may do.

use crate::common::{LIMIT, loopback, security};
use neater::tls::{Answer, Trust};
use neater::{Neater, Role, SecurityParameters, Stack};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connects with these parameters over one stack: whether it succeeded, or why not.
async fn connect(stack: Stack, client: SecurityParameters, server: SecurityParameters) -> Result<(), String> {
    let neater = Neater::new().expect("engine");
    let pre = neater.preconnection().stacks(&[stack]);
    let listener = pre.clone().security(server).local(loopback(0)).listen().expect("listening");
    let pre = pre.security(client).remote(loopback(listener.port()));
    let connecting = tokio::time::timeout(LIMIT, pre.initiate());
    connecting.await.expect("it ends").map(drop).map_err(|e| e.to_string())
}

#[tokio::test]
async fn the_trust_callback_decides_whom_to_connect_to_and_may_use_another_engine() {
    let other = Neater::new().expect("engine");
    for stack in [Stack::Tls, Stack::Quic] {
        for trusted in [true, false] {
            let (mut client, server) = security();
            client.trust = Trust::Callback;
            let (asked, other) = (Arc::new(AtomicUsize::new(0)), other.clone());
            let count = asked.clone();
            client.trust_verification = Some(Arc::new(move |chain, name| {
                assert_eq!((chain.len(), name), (1, "127.0.0.1"));
                // Only the engine that asks is at work.
                let mut pre = other.preconnection().security(SecurityParameters::disabled());
                pre.compile(Role::Initiate).expect("another engine answers");
                count.fetch_add(1, Ordering::Relaxed);
                trusted
            }));
            let result = connect(stack, client, server).await;
            assert_eq!(result.is_ok(), trusted, "{stack}: {result:?}");
            assert_eq!(asked.load(Ordering::Relaxed), 1, "{stack}: once");
        }
    }
}

#[tokio::test]
async fn the_identity_callback_is_asked_for_the_servers_signature() {
    for stack in [Stack::Tls, Stack::Quic] {
        for answer in [Answer::Sign, Answer::Refuse] {
            let (client, mut server) = security();
            let asked = Arc::new(AtomicUsize::new(0));
            let (count, says) = (asked.clone(), answer.clone());
            server.identity_challenge = Some(Arc::new(move |challenge| {
                assert!(!challenge.message.is_empty() && challenge.chain.len() == 1);
                count.fetch_add(1, Ordering::Relaxed);
                says.clone()
            }));
            let result = connect(stack, client, server).await;
            assert_eq!(result.is_ok(), answer == Answer::Sign, "{stack}: {result:?}");
            assert!(asked.load(Ordering::Relaxed) >= 1, "{stack}");
        }
    }
}

#[tokio::test]
async fn a_callback_that_calls_its_own_engine_is_a_no_instead_of_waiting_for_ever() {
    for stack in [Stack::Tls, Stack::Quic] {
        let neater = Neater::new().expect("engine");
        let (mut client, server) = security();
        let (own, asked) = (neater.clone(), Arc::new(AtomicUsize::new(0)));
        let count = asked.clone();
        client.trust_verification = Some(Arc::new(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            own.stats().connections > 0
        }));
        let pre = neater.preconnection().stacks(&[stack]);
        let listener = pre.clone().security(server).local(loopback(0)).listen().expect("listening");
        let pre = pre.security(client).remote(loopback(listener.port()));
        let result = tokio::time::timeout(LIMIT, pre.initiate()).await.expect("it ends");
        assert!(result.is_err(), "{stack}: nobody said that it may be trusted");
        assert_eq!(asked.load(Ordering::Relaxed), 1, "{stack}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_refused_is_seen_over_every_stack() {
    for stack in [Stack::Tls, Stack::Quic, Stack::SctpDtls] {
        let (mut client, mut server) = security();
        // A key that DTLS signs with, too.
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let identity = neater::tls::self_signed_p256(&["127.0.0.1"], neater_base::WallTime(wall));
        server.server_certificates = vec![identity.expect("a certificate")];
        let certificate = neater::tls::Pin::of(&server.server_certificates[0].chain[0]);
        client.trust = Trust::Pinned(vec![neater::tls::Pin::Sha256([0; 32])]);
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = seen.clone();
        client.refused_certificate = Some(Arc::new(move |chain, name| {
            log.lock().expect("whole").push((neater::tls::Pin::of(&chain[0]), name.to_owned()));
        }));
        let result = connect(stack, client, server).await;
        assert!(result.is_err(), "{stack}");
        let seen = seen.lock().expect("whole");
        assert!(seen.first() == Some(&(certificate, "127.0.0.1".to_owned())), "{stack}: {seen:?}");
    }
}

/// A key log that calls its own engine.
#[derive(Debug)]
struct Curious(Neater);

impl neater::tls::rustls::KeyLog for Curious {
    fn log(&self, _: &str, _: &[u8], _: &[u8]) {
        let _ = self.0.stats();
    }
}

#[tokio::test]
async fn a_key_log_that_calls_its_own_engine_loses_what_it_would_have_written_and_nothing_else() {
    let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (mut client, server) = security();
    client.key_log = Some(Arc::new(Curious(near.clone())));
    let listener = far.preconnection().stacks(&[Stack::Tls]).security(server).local(loopback(0)).listen();
    let listener = listener.expect("listening");
    let pre = near.preconnection().stacks(&[Stack::Tls]).security(client).remote(loopback(listener.port()));
    let connecting = tokio::time::timeout(LIMIT, pre.initiate());
    connecting.await.expect("it does not wait for itself").expect("connected");
}

/// Calls its engine when it is dropped.
#[derive(Debug)]
struct Calls(Neater, std::sync::mpsc::Sender<u64>);

impl Drop for Calls {
    fn drop(&mut self) {
        let connections = self.0.stats().connections;
        let _ = self.1.send(connections);
    }
}

/// What a program's functions have captured is the program's, too: its destructor may call the
/// engine that has let go of it.
#[test]
fn destructors_of_what_factories_have_captured_may_call_the_engine() {
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let (far, near) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
            let plain = |n: &Neater| n.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp]);
            let prefixed = neater::FramerSpec::LengthPrefixed { width: 2, max: 100 };
            let listener = plain(&far).framer(prefixed).local(loopback(0)).listen().expect("listening");
            let calls = Calls(near.clone(), tx);
            let spec = neater::FramerSpec::Custom(Arc::new(move || {
                let _captured = &calls;
                Box::new(neater::LengthPrefixed::new(2, 100))
            }));
            let pre = plain(&near).framer(spec).remote(loopback(listener.port()));
            let connection = pre.initiate().await.expect("connected");
            drop(pre);
            let accepted = listener.accept().await.expect("accepted");
            connection.send("x").await.expect("sent");
            assert_eq!(accepted.receive().await.expect("open").as_deref(), Some(&b"x"[..]));
            // The engine is the last that has the function.
            drop((connection, accepted));
            tokio::time::sleep(LIMIT).await;
        });
    });
    rx.recv_timeout(LIMIT).expect("the destructor waits for its engine for ever");
}

/// A key log whose destructor opens another connection with one.
#[derive(Debug)]
struct Restless(Option<(Neater, std::sync::mpsc::Sender<()>)>);

impl neater::tls::rustls::KeyLog for Restless {
    fn log(&self, _: &str, _: &[u8], _: &[u8]) {}
}

impl Drop for Restless {
    fn drop(&mut self) {
        let Some((near, tx)) = self.0.take() else { return };
        let mut security = SecurityParameters::new();
        security.key_log = Some(Arc::new(Self(None)));
        security.trust_verification = Some(Arc::new(|_, _| true));
        drop(near.preconnection().security(security).remote(loopback(9)).stacks(&[Stack::Tls]).initiate());
        let _ = tx.send(());
    }
}

#[test]
fn the_destructor_of_a_key_log_or_a_callback_may_open_a_connection_with_another() {
    for place in ["key log", "verification", "challenge"] {
        let (tx, rx) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let near = Neater::new().expect("engine");
                let with = |log| {
                    let mut security = SecurityParameters::new();
                    let restless = Restless(log);
                    match place {
                        "key log" => security.key_log = Some(Arc::new(restless)),
                        "verification" => {
                            security.trust_verification = Some(Arc::new(move |_, _| restless.0.is_none()))
                        }
                        _ => {
                            security.identity_challenge = Some(Arc::new(move |_| {
                                let _ = &restless;
                                neater::tls::Answer::Refuse
                            }));
                        }
                    }
                    near.preconnection().security(security).remote(loopback(1)).stacks(&[Stack::Tls])
                };
                // There is no listener: nothing uses the key log any more.
                let _ = with(Some((near.clone(), tx))).initiate().await;
                // Callbacks of some further requests are kept for the sessions that may be resumed.
                for _ in 0..100 {
                    let _ = with(None).initiate().await;
                }
                tokio::time::sleep(LIMIT).await;
            });
        });
        rx.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("the destructor waits for ever: {place}"));
    }
}
