//! The `neater` command with foreign peers: `neater get` from nginx and from quic-go, `neater serve` for curl and for quic-go.

use neater_interop::{
    Certificate, Running, Scratch, certificate, free_port, go_peer, neater_command, run, skip, wait_for, which,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BYTES: usize = 2_000_000;

fn contents() -> Vec<u8> {
    (0..BYTES).map(|i| (i % 251) as u8).collect()
}

macro_rules! command {
    ($subcommand:literal) => {
        match neater_command($subcommand) {
            Ok(command) => command,
            Err(why) => skip!("{why}"),
        }
    };
}

macro_rules! go {
    () => {
        match go_peer() {
            Ok(peer) => peer,
            Err(why) => skip!("{why}"),
        }
    };
}

/// A folder with one file, and a certificate beside it.
fn folder(name: &str) -> (Scratch, Certificate, PathBuf) {
    let scratch = Scratch::new(name);
    let certificate = certificate(&scratch, "server");
    let root = scratch.path().join("root");
    fs::create_dir(&root).expect("a folder");
    fs::write(root.join("file.bin"), contents()).expect("a file");
    (scratch, certificate, root)
}

/// `neater get` of the file, over this version of HTTP.
fn get(neater: &Path, scratch: &Scratch, certificate: &Certificate, port: u16, version: &str) {
    let out = scratch.path().join(format!("got-{version}"));
    let mut command = Command::new(neater);
    command.args(["get", "--noproxy", "*", "--http", version, "--ca"]).arg(&certificate.cert).arg("-o").arg(&out);
    command.arg(format!("https://127.0.0.1:{port}/file.bin")).env("NEATER_CACHE", "");
    let done = run(&mut command, Duration::from_secs(15));
    assert!(done.status.success(), "HTTP/{version}: {}: {}", done.status, done.said);
    assert!(fs::read(out).expect("what was fetched") == contents(), "HTTP/{version}");
}

/// `neater serve` of the folder.
fn serve(neater: &Path, certificate: &Certificate, root: &Path) -> (Running, u16) {
    let port = free_port();
    let mut command = Command::new(neater);
    command.args(["serve", "--bind", "127.0.0.1", "--port", &port.to_string()]);
    command.arg("--cert").arg(&certificate.cert).arg("--key").arg(&certificate.key).arg(root);
    let server = Running::start(&mut command);
    wait_for(port);
    (server, port)
}

#[test]
fn neater_get_from_nginx_in_http_1_and_2() {
    let neater = command!("get");
    let Some(nginx) = which("nginx") else { skip!("no nginx (package nginx-light)") };
    let (scratch, certificate, root) = folder("get-nginx");
    let port = free_port();
    let dir = scratch.path().display();
    let conf = format!(
        "daemon off; master_process off; pid {dir}/pid; error_log stderr; events {{ }}\n\
         http {{ access_log off; client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;\n\
         uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e; server {{ listen 127.0.0.1:{port} ssl http2; root {root};\n\
         ssl_certificate {cert}; ssl_certificate_key {key}; }} }}\n",
        root = root.display(),
        cert = certificate.cert.display(),
        key = certificate.key.display(),
    );
    let conf = scratch.file("nginx.conf", conf);
    let mut command = Command::new(nginx);
    let _server = Running::start(command.arg("-p").arg(scratch.path()).arg("-e").arg("stderr").arg("-c").arg(conf));
    wait_for(port);
    get(&neater, &scratch, &certificate, port, "1.1");
    get(&neater, &scratch, &certificate, port, "2");
}

#[test]
fn neater_get_from_quic_go_in_http_3() {
    let (neater, peer) = (command!("get"), go!());
    let (scratch, certificate, root) = folder("get-go");
    let mut command = Command::new(peer);
    let server = Running::start(command.arg("http3").arg(&certificate.cert).arg(&certificate.key).arg(&root));
    let port = server.wait_to_say("port ").parse().expect("a port");
    get(&neater, &scratch, &certificate, port, "3");
}

#[test]
fn curl_from_neater_serve_in_http_1_and_2() {
    let neater = command!("serve");
    let Some(curl) = which("curl") else { skip!("no curl (package curl)") };
    let (scratch, certificate, root) = folder("serve-curl");
    let (_server, port) = serve(&neater, &certificate, &root);
    for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let out = scratch.path().join(version);
        let mut command = Command::new(&curl);
        command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "10", option]);
        command.args(["-w", "version=%{http_version}\n", "--cacert"]).arg(&certificate.cert).arg("-o").arg(&out);
        let done = run(command.arg(format!("https://127.0.0.1:{port}/file.bin")), Duration::from_secs(15));
        assert!(done.status.success() && done.said.contains(&format!("version={version}")), "{}", done.said);
        assert!(fs::read(out).expect("what was fetched") == contents());
    }
}

#[test]
fn quic_go_from_neater_serve_in_http_3() {
    let (neater, peer) = (command!("serve"), go!());
    let (scratch, certificate, root) = folder("serve-go");
    let (_server, port) = serve(&neater, &certificate, &root);
    fetch(&peer, &scratch, &certificate, port);
}

fn fetch(peer: &Path, scratch: &Scratch, certificate: &Certificate, port: u16) {
    let out = scratch.path().join("fetched");
    let mut command = Command::new(peer);
    command.arg("fetch").arg(format!("https://127.0.0.1:{port}/file.bin")).arg(&certificate.cert).arg(&out);
    let done = run(&mut command, Duration::from_secs(15));
    assert!(done.status.success() && done.said.contains("HTTP/3.0 200"), "{}", done.said);
    assert!(fs::read(out).expect("what was fetched") == contents());
}

#[test]
fn the_peers_in_go_understand_each_other() {
    // What the other tests blame on us must not be theirs.
    let peer = go!();
    let (scratch, certificate, root) = folder("go-go");
    let mut command = Command::new(&peer);
    let server = Running::start(command.arg("http3").arg(&certificate.cert).arg(&certificate.key).arg(&root));
    let port = server.wait_to_say("port ").parse().expect("a port");
    fetch(&peer, &scratch, &certificate, port);
}
