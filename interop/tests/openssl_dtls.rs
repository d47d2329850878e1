//! DTLS 1.2 with OpenSSL: s_server for our client, s_client for our listener. Cookies, chains, client certificates, suites.
//! (DTLS 1.3 is in no released OpenSSL.)

use neater::tls::rustls::CipherSuite;
use neater::tls::{ClientAuthentication, Trust, certificates_from_pem};
use neater::{Connection, Neater, SecurityParameters, Stack, TransportProperties};
use neater_interop::{
    Certificate, LIMIT, Running, Scratch, certificate, free_port, run, security, skip, which, within_limit,
};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

macro_rules! openssl {
    () => {
        match which("openssl") {
            Some(openssl) => openssl,
            None => skip!("no openssl (package openssl)"),
        }
    };
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn datagrams() -> TransportProperties {
    TransportProperties::parse("unreliable-datagram").expect("words").properties
}

fn s_server(openssl: &Path, cert: &Path, key: &Path, options: &[&str]) -> (Running, u16) {
    let port = free_port();
    let mut command = Command::new(openssl);
    command.args(["s_server", "-dtls1_2", "-accept", &format!("127.0.0.1:{port}")]).args(options);
    command.arg("-cert").arg(cert).arg("-key").arg(key);
    let server = Running::start(&mut command);
    let _ = server.wait_to_say("ACCEPT");
    (server, port)
}

async fn connect(port: u16, security: SecurityParameters) -> Result<(Neater, Connection), String> {
    let neater = Neater::new().expect("engine");
    let pre = neater.preconnection().remote(loopback(port)).properties(datagrams()).security(security);
    let connection = pre.stacks(&[Stack::Dtls]).initiate().await.map_err(|e| e.to_string())?;
    Ok((neater, connection))
}

/// A message each way, where the peer is an OpenSSL that shows and sends what is told.
async fn converse(connection: &Connection, peer: &mut Running) {
    connection.send("a word from neater\n").await.expect("sent");
    tokio::task::block_in_place(|| {
        let _ = peer.wait_to_say("a word from neater");
        peer.tell("a word from OpenSSL\n");
    });
    let back = connection.receive().await.expect("alive").expect("a message");
    assert_eq!(&back[..], b"a word from OpenSSL\n");
}

fn on_two_threads<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(LIMIT, future).await.expect("the test is through in time") })
}

#[test]
fn our_client_and_s_server_with_and_without_cookies_and_with_every_suite() {
    let openssl = openssl!();
    let scratch = Scratch::new("dtls");
    let certificate = certificate(&scratch, "server");
    for options in [
        &["-listen"][..],
        &[],
        &["-listen", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
        &["-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"],
        &["-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
        &["-groups", "P-256"],
        &["-groups", "P-384"],
        &["-mtu", "300"],
    ] {
        let (mut server, port) = s_server(&openssl, &certificate.cert, &certificate.key, options);
        on_two_threads(async {
            let (neater, connection) =
                connect(port, security(&certificate).0).await.unwrap_or_else(|e| panic!("{options:?}: {e}"));
            assert_eq!(connection.stack(), Some(Stack::Dtls));
            assert_eq!(connection.security().as_deref(), Some("DTLS 1.2"), "{options:?}");
            converse(&connection, &mut server).await;
            connection.close().await.expect("closed");
            // It has noticed.
            tokio::task::block_in_place(|| drop(server.wait_to_say("DONE")));
            drop(neater);
        });
    }
}

/// A root, an intermediate authority and a server's certificate, made by OpenSSL: paths of the three, and of the key.
fn chain(openssl: &Path, scratch: &Scratch) -> [PathBuf; 4] {
    let path = |name: &str| scratch.file(name, String::new());
    let [root, root_key, middle, middle_key, leaf, leaf_key] =
        ["root.crt", "root.key", "middle.crt", "middle.key", "leaf.crt", "leaf.key"].map(path);
    let ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"];
    let make = |args: &[&str], files: &[(&str, &Path)]| {
        let mut command = Command::new(openssl);
        command.args(["req", "-x509"]).args(ec).args(args);
        for (option, file) in files {
            command.arg(option).arg(file);
        }
        let made = run(&mut command, Duration::from_secs(10));
        assert!(made.status.success(), "{}", made.said);
    };
    let authority = "basicConstraints=critical,CA:TRUE";
    make(&["-subj", "/CN=root"], &[("-keyout", &root_key), ("-out", &root)]);
    make(
        &["-subj", "/CN=middle", "-addext", authority],
        &[("-keyout", &middle_key), ("-out", &middle), ("-CA", &root), ("-CAkey", &root_key)],
    );
    make(
        &["-subj", "/CN=leaf", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"],
        &[("-keyout", &leaf_key), ("-out", &leaf), ("-CA", &middle), ("-CAkey", &middle_key)],
    );
    [root, middle, leaf, leaf_key]
}

#[test]
fn a_chain_that_s_server_sends_is_verified_up_to_our_root() {
    let openssl = openssl!();
    let scratch = Scratch::new("dtls-chain");
    let [root, middle, leaf, key] = chain(&openssl, &scratch);
    let roots = certificates_from_pem(&std::fs::read(root).expect("a file")).expect("PEM");
    let mut security = SecurityParameters::new();
    security.trust = Trust::Only(roots);
    security.server_name = Some("localhost".to_owned());
    let middle = middle.to_string_lossy().into_owned();
    for (options, trusted) in [(vec!["-cert_chain", middle.as_str()], true), (vec![], false)] {
        let (mut server, port) = s_server(&openssl, &leaf, &key, &options);
        on_two_threads(async {
            match (connect(port, security.clone()).await, trusted) {
                (Ok((_neater, connection)), true) => {
                    assert_eq!(connection.peer_certificates().len(), 2);
                    converse(&connection, &mut server).await;
                }
                (Err(e), false) => assert!(e.contains("not issued by an authority"), "{e}"),
                (Ok(_), false) => panic!("a certificate without its issuer was believed"),
                (Err(e), true) => panic!("{e}"),
            }
        });
    }
}

#[test]
fn s_server_gets_our_certificate_and_refuses_us_without() {
    let openssl = openssl!();
    let scratch = Scratch::new("dtls-client");
    let (server_side, ours) = (certificate(&scratch, "server"), certificate(&scratch, "client"));
    let authority = ours.cert.to_string_lossy().into_owned();
    let options = ["-Verify", "1", "-verify_return_error", "-CAfile", authority.as_str()];
    let (mut server, port) = s_server(&openssl, &server_side.cert, &server_side.key, &options);
    on_two_threads(async {
        let mut security = security(&server_side).0;
        security.client_certificates = vec![ours.identity.clone()];
        let (_neater, connection) = connect(port, security).await.expect("connected");
        converse(&connection, &mut server).await;
    });
    let (_server, port) = s_server(&openssl, &server_side.cert, &server_side.key, &options);
    within_limit(async {
        let error = connect(port, security(&server_side).0).await.map(|_| ()).expect_err("we have no certificate");
        assert!(error.contains("asks for a certificate"), "{error}");
    });
}

#[test]
fn an_s_server_that_is_not_the_one_meant_is_refused() {
    let openssl = openssl!();
    let scratch = Scratch::new("dtls-wrong");
    let (right, wrong) = (certificate(&scratch, "right"), certificate(&scratch, "wrong"));
    let (_server, port) = s_server(&openssl, &wrong.cert, &wrong.key, &[]);
    within_limit(async {
        let error = connect(port, security(&right).0).await.map(|_| ()).expect_err("another certificate");
        assert!(error.contains("not issued by an authority"), "{error}");
    });
    let (_server, port) = s_server(&openssl, &right.cert, &right.key, &[]);
    within_limit(async {
        let mut security = security(&right).0;
        security.server_name = Some("other.example".to_owned());
        let error = connect(port, security).await.map(|_| ()).expect_err("another name");
        assert!(error.contains("other.example"), "{error}");
    });
}

fn s_client(openssl: &Path, port: u16, certificate: &Certificate, options: &[&str]) -> Running {
    let mut command = Command::new(openssl);
    command.args(["s_client", "-dtls1_2", "-connect", &format!("127.0.0.1:{port}"), "-verify_return_error"]);
    command.args(["-verify_hostname", "localhost"]).arg("-CAfile").arg(&certificate.cert).args(options);
    Running::start(&mut command)
}

#[test]
fn s_client_and_our_listener() {
    let openssl = openssl!();
    let scratch = Scratch::new("dtls-listen");
    let certificate = certificate(&scratch, "server");
    on_two_threads(async {
        let neater = Neater::new().expect("engine");
        let pre = neater.preconnection().properties(datagrams()).security(security(&certificate).1);
        let listener = pre.stacks(&[Stack::Dtls]).local(loopback(0)).listen().expect("listening");
        let port = listener.local_addrs()[0].1.port();
        for options in [
            &[][..],
            &["-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
            &["-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"],
            &["-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
            &["-groups", "P-256"],
            &["-mtu", "300"],
        ] {
            let mut peer = s_client(&openssl, port, &certificate, options);
            let connection = listener.accept().await.expect("a connection");
            assert_eq!(connection.security().as_deref(), Some("DTLS 1.2"), "{options:?}");
            tokio::task::block_in_place(|| {
                assert!(peer.wait_to_say("Verify return code:").contains("0 (ok)"), "{}", peer.said());
                peer.tell("a word from OpenSSL\n");
            });
            let message = connection.receive().await.expect("alive").expect("a message");
            assert_eq!(&message[..], b"a word from OpenSSL\n", "{options:?}");
            connection.send("a word from neater\n").await.expect("sent");
            tokio::task::block_in_place(|| {
                let _ = peer.wait_to_say("a word from neater");
                peer.end_input();
                let _ = peer.finish(Duration::from_secs(10));
            });
            // Its close_notify ends the connection.
            assert!(!matches!(connection.receive().await, Ok(Some(_))), "{options:?}");
        }
    });
}

#[test]
fn our_listener_wants_a_certificate_of_s_client() {
    let openssl = openssl!();
    let scratch = Scratch::new("dtls-mutual");
    let (server_side, theirs) = (certificate(&scratch, "server"), certificate(&scratch, "client"));
    on_two_threads(async {
        let neater = Neater::new().expect("engine");
        let mut security = security(&server_side).1;
        security.client_authentication = ClientAuthentication::Required;
        security.trust = Trust::Only(theirs.identity.chain.clone());
        // One suite, so that it is seen that the parameter reaches the handshake.
        security.ciphersuites = vec![CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];
        let pre = neater.preconnection().properties(datagrams()).security(security).stacks(&[Stack::Dtls]);
        let listener = pre.local(loopback(0)).listen().expect("listening");
        let port = listener.local_addrs()[0].1.port();
        let refused = s_client(&openssl, port, &server_side, &[]);
        let (cert, key) = (theirs.cert.to_string_lossy().into_owned(), theirs.key.to_string_lossy().into_owned());
        let mut welcome = s_client(&openssl, port, &server_side, &["-cert", &cert, "-key", &key]);
        let connection = listener.accept().await.expect("a connection");
        let shown: Vec<_> = theirs.identity.chain.iter().map(|c| c.to_vec()).collect();
        assert_eq!(connection.peer_certificates(), shown, "the first to come in is the one with the certificate");
        converse_with_client(&connection, &mut welcome).await;
        assert!(!refused.said().contains("Verify return code"), "{}", refused.said());
    });
}

async fn converse_with_client(connection: &Connection, peer: &mut Running) {
    let said = tokio::task::block_in_place(|| peer.wait_to_say("Cipher is "));
    assert_eq!(said, "ECDHE-ECDSA-AES128-GCM-SHA256");
    converse(connection, peer).await;
}
