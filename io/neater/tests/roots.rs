//! The system's roots of trust are read when a request needs them. Alone in its process, because
//! where they are is in the environment.

#![allow(unsafe_code, reason = "the environment, and limits of the process")]

mod common;

use common::{echo, loopback, security};
use neater::{Neater, Role, SecurityParameters};
use std::path::PathBuf;

/// Where this test keeps its roots; removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn compile(neater: &Neater, security: SecurityParameters, role: Role) -> Result<(), String> {
    let mut pre = neater.preconnection().security(security);
    pre.compile(role).map(|_| ()).map_err(|e| e.to_string())
}

/// A certificate as text (RFC 7468).
fn pem(der: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----");
    for (i, three) in der.chunks(3).enumerate() {
        if i % 16 == 0 {
            text.push('\n');
        }
        let at = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit <= three.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    text + "\n-----END CERTIFICATE-----\n"
}

/// Runs something while the process may open no further descriptor.
fn without_descriptors<T>(f: impl FnOnce() -> T) -> T {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it is filled in.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut before) }, 0);
    let none = libc::rlimit { rlim_cur: 0, ..before };
    // SAFETY: it is read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) }, 0);
    let result = f();
    // SAFETY: it is read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &before) }, 0);
    result
}

#[tokio::test]
async fn the_systems_roots_are_read_when_needed_and_a_failure_to_read_them_is_not_remembered() {
    let folder = Folder(std::env::temp_dir().join(format!("neater-roots-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let file = folder.0.join("roots.pem");
    // SAFETY: the only test of its process, and no other thread reads the environment yet.
    unsafe {
        std::env::set_var("SSL_CERT_FILE", &file);
        std::env::remove_var("SSL_CERT_DIR");
    }
    let neater = Neater::new().expect("engine");
    let (client, server) = security();

    // There are none, which a request without need of them does not notice.
    let own = client.clone();
    compile(&neater, own.clone(), Role::Initiate).expect("roots of its own");
    compile(&neater, SecurityParameters::disabled(), Role::Initiate).expect("no TLS");
    compile(&neater, SecurityParameters::opportunistic(), Role::Initiate).expect("nobody is verified");
    compile(&neater, server.clone(), Role::Listen).expect("a server verifies nobody");
    let error = compile(&neater, SecurityParameters::new(), Role::Initiate).expect_err("there are no roots");
    assert!(error.contains("roots.pem") && error.contains("No such file"), "{error}");

    // They come, at first with nothing in them.
    std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----\n").expect("written");
    let error = compile(&neater, SecurityParameters::new(), Role::Initiate).expect_err("no certificate is in there");
    assert!(error.contains("no trust anchors"), "{error}");

    // They are not read for requests that do not need them, or they would be known when their file
    // is gone.
    let certificate = &server.server_certificates[0].chain[0];
    std::fs::write(&file, pem(certificate)).expect("written");
    compile(&neater, own.clone(), Role::Initiate).expect("roots of its own");
    compile(&neater, SecurityParameters::opportunistic(), Role::Initiate).expect("nobody is verified");
    compile(&neater, server.clone(), Role::Listen).expect("a server verifies nobody");
    std::fs::remove_file(&file).expect("removed");
    compile(&neater, SecurityParameters::new(), Role::Initiate).expect_err("they were read for somebody else");

    // No descriptor is left at the moment: an error with that reason, and no more than that.
    std::fs::write(&file, pem(certificate)).expect("written");
    let error = without_descriptors(|| compile(&neater, SecurityParameters::new(), Role::Initiate));
    assert!(error.as_ref().is_err_and(|e| e.contains("Too many open files")), "{error:?}");
    compile(&neater, SecurityParameters::new(), Role::Initiate).expect("the roots can be read now");

    // Once is enough.
    std::fs::remove_file(&file).expect("removed");
    compile(&neater, SecurityParameters::new(), Role::Initiate).expect("the roots are known");

    // And they serve.
    let listener = neater.preconnection().security(server).local(loopback(0)).listen().expect("listening");
    let at = loopback(listener.port());
    let echo = tokio::spawn(echo(listener));
    let connection =
        neater.preconnection().security(SecurityParameters::new()).remote(at).initiate().await.expect("connected");
    connection.send("hello").await.expect("sent");
    assert!(connection.receive().await.expect("alive").is_some());
    echo.abort();
}
