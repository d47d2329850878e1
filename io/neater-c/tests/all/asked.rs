//! What the library asks: name servers for addresses, and the program for addresses, trust and
//! signatures.

use crate::border::checks_itself;
use crate::tools::{compile_with, folder, here, run, skip};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The name that the server below knows.
const SERVED: &str = "served.test";

/// The answer of a name server that knows one name (RFC 1035).
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    const HEAD: usize = 12;
    let mut name = String::new();
    let mut at = HEAD;
    while let length @ 1.. = usize::from(*query.get(at)?) {
        let label = core::str::from_utf8(query.get(at + 1..at + 1 + length)?).ok()?;
        name += if name.is_empty() { "" } else { "." };
        name += &label.to_ascii_lowercase();
        at += 1 + length;
    }
    let end = at + 5;
    let address = query.get(at + 1..at + 3)? == [0, 1];
    let (known, answers) = (name == SERVED, u8::from(name == SERVED && address));
    let mut reply = query.get(..2)?.to_vec();
    reply.extend([0x81, if known { 0x80 } else { 0x83 }, 0, 1, 0, answers, 0, 0, 0, 0]);
    reply.extend(query.get(HEAD..end)?);
    if answers > 0 {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend(Ipv4Addr::LOCALHOST.octets());
    }
    Some(reply)
}

/// A name server on loopback; returns its line of resolv.conf.
fn name_server() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let port = socket.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let mut query = [0; 1500];
        while let Ok((n, from)) = socket.recv_from(&mut query) {
            if let Some(reply) = answer(&query[..n]) {
                let _ = socket.send_to(&reply, from);
            }
        }
    });
    format!("nameserver 127.0.0.1:{port}\n")
}

/// A file for a program, and its path as text.
fn file(name: &str, contents: &str) -> String {
    let path: PathBuf = folder().join(name);
    std::fs::write(&path, contents).expect("written");
    path.into_os_string().into_string().expect("UTF-8")
}

#[test]
fn a_name_is_looked_up_as_for_every_program_or_by_the_program() {
    let resolv_conf = file("resolv.conf", &name_server());
    let hosts = file("hosts", "127.0.0.1 hosts-file.test\n");
    checks_itself("tests/names.c", &[&resolv_conf, &hosts, SERVED]);
}

/// A certificate and its key, in files.
fn identity(of: &str) -> [String; 2] {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let identity = neater_tls::self_signed_p256(&["localhost"], neater::WallTime(wall)).expect("made");
    let chain = neater_tls::certificates_to_pem(&identity.chain);
    [
        file(&format!("{of}-chain.pem"), &chain),
        file(&format!("{of}-key.pem"), &neater_tls::private_key_to_pem(&identity.key)),
    ]
}

#[test]
fn trust_and_signatures_are_the_programs_where_it_wants() {
    let [chain, key] = identity("callbacks");
    checks_itself("tests/security.c", &[&chain, &key]);
}

#[test]
fn a_program_signs_with_a_key_that_the_library_does_not_have() {
    if !PathBuf::from("/usr/include/openssl/evp.h").is_file() {
        skip!("no OpenSSL (apt-get install libssl-dev)");
    }
    let [chain, key] = identity("signs");
    let more = ["-DWITH_OPENSSL", "-lcrypto"];
    let Some(program) = compile_with(&here("tests/security.c"), &more) else { skip!("no C compiler (package gcc)") };
    let done = run(Command::new(program).args([chain, key]), Duration::from_secs(60));
    assert!(done.status.success(), "{}: {}{}", done.status, done.out, done.err);
}
