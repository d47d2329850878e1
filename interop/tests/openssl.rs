//! TLS with OpenSSL: s_server for our client, s_client for our listener. Versions, ALPN, resumption, early data, client
//! certificates and the key log.

use neater::tls::rustls::KeyLog;
use neater::tls::{ClientAuthentication, TlsVersion, Trust};
use neater::{Connection, Listener, MessageContext, Neater, SecurityParameters, SelectionProperty, Stack};
use neater_interop::{
    Certificate, LIMIT, Running, Scratch, certificate, free_port, run, security, skip, wait_for, which, within_limit,
};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncReadExt;

const VERSIONS: [(TlsVersion, &str, &str); 2] =
    [(TlsVersion::Tls12, "-tls1_2", "TLSv1.2"), (TlsVersion::Tls13, "-tls1_3", "TLSv1.3")];

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

fn only(mut security: SecurityParameters, version: TlsVersion) -> SecurityParameters {
    (security.min_version, security.max_version) = (version, version);
    security
}

fn s_server(openssl: &Path, certificate: &Certificate, options: &[&str]) -> (Running, u16) {
    let port = free_port();
    let mut command = Command::new(openssl);
    command.args(["s_server", "-accept", &format!("127.0.0.1:{port}"), "-naccept", "20"]).args(options);
    command.arg("-cert").arg(&certificate.cert).arg("-key").arg(&certificate.key);
    let server = Running::start(&mut command);
    wait_for(port);
    (server, port)
}

/// The status page of `s_server -www`, fetched in HTTP/1.0.
async fn status_page(neater: &Neater, port: u16, security: &SecurityParameters) -> Result<String, String> {
    let pre = neater.preconnection().remote(loopback(port)).security(security.clone()).stacks(&[Stack::Tls]);
    let mut stream = pre.connect_bytes().await.map_err(|e| e.to_string())?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.map_err(|e| e.to_string())?;
    let mut page = Vec::new();
    // s_server may close without close_notify; what matters is on the page.
    let end = stream.read_to_end(&mut page).await;
    let page = String::from_utf8_lossy(&page).into_owned();
    if page.contains("</pre>") { Ok(page) } else { Err(format!("{end:?} after {page:?}")) }
}

#[test]
fn our_client_and_s_server_agree_on_each_version_and_on_alpn() {
    let openssl = openssl!();
    let scratch = Scratch::new("openssl");
    let certificate = certificate(&scratch, "server");
    for (version, option, name) in VERSIONS {
        let (_server, port) = s_server(&openssl, &certificate, &[option, "-rev", "-alpn", "other,echo"]);
        within_limit(async {
            let neater = Neater::new().expect("engine");
            let mut security = only(security(&certificate).0, version);
            security.alpn = vec![b"echo".to_vec(), b"unknown".to_vec()];
            let pre = neater.preconnection().remote(loopback(port)).security(security).stacks(&[Stack::Tls]);
            let mut stream = pre.connect_bytes().await.expect("connected");
            assert_eq!(stream.connection().alpn().as_deref(), Some(&b"echo"[..]));
            let words = stream.connection().security().expect("encrypted");
            assert!(words.contains(&name[4..]), "{words}");
            stream.write_all(b"stressed\n").await.expect("written");
            let mut back = [0; 9];
            stream.read_exact(&mut back).await.expect("read");
            assert_eq!(&back, b"desserts\n");
        });
    }
}

#[test]
fn our_client_resumes_sessions_of_s_server() {
    let openssl = openssl!();
    let scratch = Scratch::new("resume");
    let certificate = certificate(&scratch, "server");
    for (version, option, name) in VERSIONS {
        let (_server, port) = s_server(&openssl, &certificate, &[option, "-www"]);
        within_limit(async {
            let neater = Neater::new().expect("engine");
            let security = only(security(&certificate).0, version);
            let first = status_page(&neater, port, &security).await.expect("a page");
            assert!(first.contains(&format!("New, {name}")), "{first}");
            let second = status_page(&neater, port, &security).await.expect("a page");
            assert!(second.contains(&format!("Reused, {name}")), "{second}");
            // Another engine has other sessions.
            let other = status_page(&Neater::new().expect("engine"), port, &security).await.expect("a page");
            assert!(other.contains(&format!("New, {name}")), "{other}");
        });
    }
}

/// A connection to s_server that has got its tickets, which come before the server's first word.
async fn visit(neater: &Neater, server: &mut Running, port: u16, security: &SecurityParameters) {
    let pre = neater.preconnection().remote(loopback(port)).security(security.clone()).stacks(&[Stack::Tls]);
    let connection = pre.initiate().await.expect("connected");
    connection.send("knock\n").await.expect("sent");
    tokio::task::block_in_place(|| server.wait_to_say("knock"));
    server.tell("welcome\n");
    assert_eq!(&connection.receive().await.expect("alive").expect("a word")[..], b"welcome\n");
}

fn on_two_threads<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(LIMIT, future).await.expect("the test is through in time") })
}

#[test]
fn s_server_takes_the_first_message_of_our_second_connection_as_early_data() {
    let openssl = openssl!();
    let scratch = Scratch::new("early");
    let certificate = certificate(&scratch, "server");
    let (mut server, port) = s_server(&openssl, &certificate, &["-tls1_3", "-early_data"]);
    on_two_threads(async {
        let neater = Neater::new().expect("engine");
        let security = security(&certificate).0;
        visit(&neater, &mut server, port, &security).await;
        let pre = neater.preconnection().remote(loopback(port)).security(security).stacks(&[Stack::Tls]);
        let replayable = MessageContext::new().safely_replayable_as(true).final_as(true);
        let connection = pre.initiate_with_send("early bird\n", &replayable).await.expect("connected");
        tokio::task::block_in_place(|| {
            let _ = server.wait_to_say("Early data received:");
            let _ = server.wait_to_say("End of early data");
        });
        // The message was final: the server has seen our end, and ends, too.
        while connection.receive().await.expect("an orderly end").is_some() {}
        assert_eq!(server.said().matches("early bird").count(), 1, "{}", server.said());
    });
}

#[test]
fn early_data_that_s_server_refuses_is_sent_after_the_handshake_once() {
    let openssl = openssl!();
    let scratch = Scratch::new("refused");
    let certificate = certificate(&scratch, "server");
    let (mut first, port) = s_server(&openssl, &certificate, &["-tls1_3", "-early_data"]);
    on_two_threads(async {
        let neater = Neater::new().expect("engine");
        let security = security(&certificate).0;
        visit(&neater, &mut first, port, &security).await;
        drop(first);
        // Another process has other ticket keys.
        let mut command = Command::new(&openssl);
        command.args(["s_server", "-accept", &format!("127.0.0.1:{port}"), "-tls1_3", "-early_data"]);
        command.arg("-cert").arg(&certificate.cert).arg("-key").arg(&certificate.key);
        let second = Running::start(&mut command);
        tokio::task::block_in_place(|| wait_for(port));
        let pre = neater.preconnection().remote(loopback(port)).security(security).stacks(&[Stack::Tls]);
        let replayable = MessageContext::new().safely_replayable_as(true);
        let connection = pre.initiate_with_send("early bird\n", &replayable).await.expect("connected");
        connection.send("late bird\n").await.expect("sent");
        tokio::task::block_in_place(|| second.wait_to_say("late bird"));
        let said = second.said();
        assert!(said.contains("Early data was rejected"), "it was not even offered: {said}");
        assert_eq!(said.matches("early bird").count(), 1, "{said}");
        assert!(said.find("early bird") < said.find("late bird"), "{said}");
    });
}

#[test]
fn s_server_demands_a_certificate_of_our_client() {
    let openssl = openssl!();
    let scratch = Scratch::new("client");
    let (server, ours) = (certificate(&scratch, "server"), certificate(&scratch, "client"));
    let ca = ours.cert.to_str().expect("a path in UTF-8");
    for (version, option, _) in VERSIONS {
        let options = [option, "-www", "-Verify", "1", "-verify_return_error", "-CAfile", ca];
        let (_server, port) = s_server(&openssl, &server, &options);
        within_limit(async {
            let neater = Neater::new().expect("engine");
            let without = only(security(&server).0, version);
            let refused = status_page(&neater, port, &without).await;
            assert!(refused.is_err(), "{refused:?}");
            let mut with = without;
            with.client_certificates = vec![ours.identity.clone()];
            let page = status_page(&neater, port, &with).await.expect("a page");
            assert!(page.contains("Verify return code: 0"), "{page}");
        });
    }
}

/// Our listener: a line comes, and goes back in capitals.
async fn serve(listener: Listener) {
    while let Some(connection) = listener.accept().await {
        tokio::spawn(shout(connection));
    }
}

async fn shout(connection: Connection) {
    while let Ok(Some(line)) = connection.receive().await {
        let mut text = String::from_utf8_lossy(&line).to_uppercase();
        if line.context.is_early_data() {
            text.insert_str(0, "EARLY: ");
        }
        if text.starts_with("WHO") {
            let _ = writeln!(text, "{} CERTIFICATES", connection.peer_certificates().len());
        }
        if connection.send(text).await.is_err() {
            return;
        }
    }
}

/// Runs s_client against our listener: says `line`, and returns what it printed once the answer is there.
fn s_client(openssl: &Path, port: u16, ca: &Path, options: &[&str], line: &str, answer: &str) -> String {
    let mut command = Command::new(openssl);
    command.args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-servername", "localhost"]);
    command.args(["-verify_return_error", "-CAfile"]).arg(ca).args(options);
    let mut client = Running::start(&mut command);
    client.tell(line);
    let _ = client.wait_to_say(answer);
    client.end_input();
    let done = client.finish(Duration::from_secs(5));
    assert!(done.status.success(), "{}: {}", done.status, done.said);
    done.said
}

/// Runs `test` with the port of our listener on another thread, while this one drives.
fn listening(security: SecurityParameters, test: impl FnOnce(u16) + Send + 'static) {
    within_limit(async {
        let neater = Neater::new().expect("engine");
        let pre = neater.preconnection().local(loopback(0)).security(security).stacks(&[Stack::Tls]);
        let listener = pre.prefer(SelectionProperty::ZeroRttMsg).listen().expect("listening");
        let port = listener.port();
        let task = tokio::spawn(serve(listener));
        let tested = tokio::task::spawn_blocking(move || test(port)).await;
        task.abort();
        if let Err(e) = tested {
            std::panic::resume_unwind(e.into_panic());
        }
    });
}

#[test]
fn s_client_and_our_listener_agree_on_each_version_and_on_alpn_and_resume() {
    let openssl = openssl!();
    let scratch = Scratch::new("s_client");
    let certificate = certificate(&scratch, "server");
    let mut security = security(&certificate).1;
    security.alpn = vec![b"echo".to_vec()];
    let (ca, session) = (certificate.cert.clone(), scratch.path().join("session"));
    listening(security, move |port| {
        for (_, option, name) in VERSIONS {
            let file = session.with_extension(name).to_str().expect("UTF-8").to_owned();
            let options = [option, "-alpn", "other,echo", "-sess_out", &file];
            let said = s_client(&openssl, port, &ca, &options, "hello\n", "HELLO");
            assert!(said.contains("ALPN protocol: echo"), "{said}");
            assert!(said.contains(&format!("New, {name}")), "{said}");
            let said = s_client(&openssl, port, &ca, &[option, "-alpn", "echo", "-sess_in", &file], "again\n", "AGAIN");
            assert!(said.contains(&format!("Reused, {name}")), "{said}");
        }
    });
}

#[test]
fn our_listener_takes_early_data_of_s_client_and_can_tell() {
    let openssl = openssl!();
    let scratch = Scratch::new("s_client_early");
    let certificate = certificate(&scratch, "server");
    let security = security(&certificate).1;
    let path = |p: &Path| p.to_str().expect("UTF-8").to_owned();
    let (ca, session) = (certificate.cert.clone(), path(&scratch.path().join("session")));
    let file = path(&scratch.file("early", "early bird\n"));
    listening(security, move |port| {
        let said = s_client(&openssl, port, &ca, &["-tls1_3", "-sess_out", &session], "hello\n", "HELLO");
        assert!(said.contains("Max Early Data: 16384"), "{said}");
        let options = ["-tls1_3", "-sess_in", &session, "-early_data", &file];
        let said = s_client(&openssl, port, &ca, &options, "late bird\n", "LATE BIRD");
        assert!(said.contains("Early data was accepted"), "{said}");
        // On loopback the end of the handshake is often there by the time the data is read: then it cannot be a replay any
        // more, and does not say so. That it does before is shown in virtual time.
        assert_eq!(said.matches("EARLY BIRD").count(), 1, "{said}");
        assert!(said.find("EARLY BIRD") < said.find("LATE BIRD"), "{said}");
        assert!(!said.contains("EARLY: LATE"), "{said}");
        // The same session again: it was taken once, and what is early now may be a replay.
        let said = s_client(&openssl, port, &ca, &options, "late bird\n", "LATE BIRD");
        assert!(said.contains("Early data was rejected"), "{said}");
        assert!(!said.contains("EARLY BIRD"), "{said}");
    });
}

#[test]
fn our_listener_demands_a_certificate_of_s_client() {
    let openssl = openssl!();
    let scratch = Scratch::new("demand");
    let (server, client) = (certificate(&scratch, "server"), certificate(&scratch, "client"));
    let mut security = security(&server).1;
    security.client_authentication = ClientAuthentication::Required;
    security.trust = Trust::Only(client.identity.chain.clone());
    let path = |p: &PathBuf| p.to_str().expect("UTF-8").to_owned();
    let (ca, cert, key) = (server.cert.clone(), path(&client.cert), path(&client.key));
    listening(security, move |port| {
        for (_, option, _) in VERSIONS {
            let options = [option, "-cert", &cert, "-key", &key];
            s_client(&openssl, port, &ca, &options, "who am i\n", "1 CERTIFICATES");
            let mut command = Command::new(&openssl);
            command.args(["s_client", "-connect", &format!("127.0.0.1:{port}"), option]);
            let said = run(command.args(["-ign_eof", "-CAfile"]).arg(&ca), Duration::from_secs(5)).said;
            assert!(said.contains("alert") && said.contains("certificate"), "refused without: {said}");
        }
    });
}

#[derive(Debug, Default)]
struct Log(Mutex<BTreeSet<String>>);

impl KeyLog for Log {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |s, b| format!("{s}{b:02x}"));
        let line = format!("{label} {} {}", hex(client_random), hex(secret));
        self.0.lock().expect("not poisoned").insert(line);
    }
}

#[test]
fn our_key_log_holds_the_secrets_that_s_client_logs() {
    let openssl = openssl!();
    let scratch = Scratch::new("keylog");
    let certificate = certificate(&scratch, "server");
    let log = Arc::new(Log::default());
    let mut security = security(&certificate).1;
    security.key_log = Some(log.clone());
    let (ca, file) = (certificate.cert.clone(), scratch.path().join("keys"));
    listening(security, move |port| {
        for (_, option, _) in VERSIONS {
            // OpenSSL appends.
            let _ = std::fs::remove_file(&file);
            let options = [option, "-keylogfile", file.to_str().expect("UTF-8")];
            s_client(&openssl, port, &ca, &options, "hello\n", "HELLO");
            let theirs = std::fs::read_to_string(&file).expect("the key log of s_client");
            let theirs: BTreeSet<String> =
                theirs.lines().filter(|l| !l.starts_with('#')).map(|l| unify(&l.to_lowercase())).collect();
            let ours: BTreeSet<String> =
                log.0.lock().expect("not poisoned").iter().map(|l| unify(&l.to_lowercase())).collect();
            assert!(!theirs.is_empty());
            for line in theirs.iter().filter(|l| known(l)) {
                assert!(ours.contains(line), "{option}: {line} is not in our log:\n{ours:#?}");
            }
            assert!(theirs.iter().any(|l| known(l)), "{theirs:#?}");
        }
    });
}

fn unify(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether both libraries log this secret: with these the records of either version can be decrypted.
fn known(line: &str) -> bool {
    ["client_random ", "client_traffic_secret_0 ", "server_traffic_secret_0 ", "client_handshake_traffic_secret "]
        .iter()
        .any(|l| line.starts_with(l))
}
