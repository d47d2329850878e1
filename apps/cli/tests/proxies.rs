//! `neater get` by way of proxies: one of Debian's, one that does as it should, and some that do
//! not.

mod common;

use common::{Folder, Serving, neater, noise, of, run, say_skipped};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// `me:hush` in base64: neither may be in anything that is shown.
const TOKEN: &str = "bWU6aHVzaA==";

fn head(c: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") && c.read(&mut byte).is_ok_and(|n| n == 1) {
        text.push(byte[0]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// A listener whose every connection has a thread, with what its first request was.
fn listen(serve: impl Fn(&str, TcpStream) + Send + Sync + 'static) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = listener.local_addr().expect("bound");
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let (seen, serve) = (heads.clone(), Arc::new(serve));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (seen, serve) = (seen.clone(), serve.clone());
            std::thread::spawn(move || {
                let head = head(&mut stream);
                seen.lock().expect("ours").push(head.clone());
                serve(&head, stream);
            });
        }
    });
    (at, heads)
}

/// Copies until one end has ended, at most so many bytes.
fn copy(mut from: TcpStream, mut to: TcpStream, most: usize) {
    let (mut buffer, mut left) = ([0; 16 << 10], most);
    while left > 0 {
        let room = left.min(buffer.len());
        match from.read(&mut buffer[..room]) {
            Ok(n) if n > 0 && to.write_all(&buffer[..n]).is_ok() => left -= n,
            _ => break,
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// A proxy that does as it should, except that of the server's bytes on its first connection no
/// more than `first` get through.
fn proxy(first: usize) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let count = AtomicUsize::new(0);
    listen(move |head, mut client| {
        let most = if count.fetch_add(1, Ordering::Relaxed) == 0 { first } else { usize::MAX };
        let (method, rest) = head.split_once(' ').expect("a request");
        let target = rest.split(' ').next().expect("a target");
        let (to, request) = match method {
            // As tinyproxy answers.
            "CONNECT" => {
                client.write_all(b"HTTP/1.0 200 Connection established\r\nProxy-agent: mine\r\n\r\n").expect("sent");
                (target, String::new())
            }
            _ => {
                let (to, path) = target.strip_prefix("http://").and_then(|t| t.split_once('/')).expect("a whole URL");
                let fields = head.lines().skip(1).filter(|l| !l.is_empty() && !l.starts_with("proxy-"));
                let fields: String = fields.map(|l| format!("{l}\r\n")).collect();
                (to, format!("{method} /{path} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n"))
            }
        };
        let mut server = TcpStream::connect(to).expect("connected");
        server.write_all(request.as_bytes()).expect("sent");
        let (c, s) = (client.try_clone().expect("ours"), server.try_clone().expect("ours"));
        std::thread::spawn(move || copy(c, s, usize::MAX));
        copy(server, client, most);
    })
}

fn lines(heads: &Mutex<Vec<String>>) -> Vec<String> {
    heads.lock().expect("ours").iter().map(|h| h.lines().next().unwrap_or_default().to_owned()).collect()
}

/// What is shown has no password in it.
fn discreet(texts: &[&str]) {
    for text in texts {
        assert!(!text.contains("hush") && !text.contains(TOKEN), "{text}");
    }
}

#[test]
fn http_is_asked_for_by_the_whole_url_and_the_server_sees_no_password() {
    let f = Folder::new("proxy-http");
    let (server, asked) = listen(|_, mut c| {
        let _ = c.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let (at, seen) = proxy(usize::MAX);
    let url = format!("http://{server}/a?b");
    let get = |more: &[&str]| {
        let mut c = neater();
        c.env("http_proxy", format!("http://me:hush@{at}")).args(["get", "--no-policy", "-o"]).arg(f.path("a"));
        run(c.args(more).arg(&url))
    };
    let r = get(&["--json", "-H", "Host: other.example"]);
    assert_eq!((r.code, &f.read("a")[..]), (0, &b"ok"[..]), "{}{}", r.out, r.err);
    let events = r.events();
    for event in ["connected", "done"] {
        assert_eq!(of(&events, event)[0]["proxy"], format!("http://{at}"), "{}", r.out);
    }
    discreet(&[&r.out, &r.err]);
    let to_proxy = seen.lock().expect("ours")[0].to_ascii_lowercase();
    assert!(
        to_proxy.starts_with(&format!("get http://{server}/a?b http/1.1\r\nhost: other.example\r\n")),
        "{to_proxy}"
    );
    assert!(
        to_proxy.contains(&format!("\r\nproxy-authorization: basic {}\r\n", TOKEN.to_ascii_lowercase())),
        "{to_proxy}"
    );
    let r = get(&["-v"]);
    assert!(r.code == 0 && r.err.contains(&format!("through the proxy http://{at}")), "{}", r.err);
    discreet(&[&r.out, &r.err]);
    // Neither variable nor field reaches the server, with the proxy or without.
    let field = ["-H", "Proxy-Authorization: Bearer hush"];
    assert_eq!(get(&field).code, 0);
    assert_eq!(get(&[&field[..], &["--noproxy", "127.0.0.0/8"]].concat()).code, 0);
    assert!(seen.lock().expect("ours").last().is_some_and(|h| h.contains("Bearer hush")));
    assert_eq!((seen.lock().expect("ours").len(), asked.lock().expect("ours").len()), (3, 4));
    assert!(asked.lock().expect("ours").iter().all(|h| !h.to_ascii_lowercase().contains("proxy-")));
    // Nor is a proxy asked that was not meant.
    let mut c = neater();
    c.env("HTTP_PROXY", format!("http://{at}")).env("https_proxy", format!("http://{at}"));
    assert_eq!(run(c.args(["get", "-o"]).arg(f.path("a")).arg(&url)).code, 0);
    assert_eq!(get(&["-x", ""]).code, 0);
    assert_eq!(seen.lock().expect("ours").len(), 3);
}

#[test]
fn https_goes_through_a_tunnel_and_is_as_secure_as_without() {
    let f = Folder::new("proxy-https");
    let contents = noise(300_000, 7);
    f.put("root/file", &contents);
    let serving = Serving::new(&f.path("root"), &f.path("state"), &[]);
    let (at, seen) = proxy(usize::MAX);
    let url = serving.url("file");
    let with = |mut c: Command, more: &[&str]| {
        c.env("https_proxy", format!("me:hush@{at}")).args(["--json", "-o"]).arg(f.path("got"));
        let _ = std::fs::remove_file(f.path("got"));
        let r = run(c.args(more).arg(&url));
        discreet(&[&r.out, &r.err]);
        r
    };
    let plain = || {
        let mut c = neater();
        c.arg("get");
        c
    };
    for (more, http) in [(&[][..], "HTTP/2"), (&["--http", "1.1"], "HTTP/1.1")] {
        let r = with(serving.get(), more);
        assert_eq!(r.code, 0, "{}{}", r.out, r.err);
        assert!(f.read("got") == contents);
        let events = r.events();
        let connected = of(&events, "connected")[0];
        let (transport, security) = (&connected["transport"], &connected["security"]);
        assert_eq!((transport, security), (&"TLS/TCP".into(), &"TLS 1.3".into()), "{connected}");
        assert_eq!((&connected["http"], &connected["proxy"]), (&http.into(), &format!("http://{at}").into()));
    }
    let asked = seen.lock().expect("ours")[0].clone();
    assert!(asked.starts_with(&format!("CONNECT localhost:{} HTTP/1.1\r\n", serving.port)), "{asked}");
    assert!(asked.contains(&format!("Basic {TOKEN}")), "{asked}");
    // The certificate is of no known authority; it passes with its pin, and where none is checked.
    let r = with(plain(), &[]);
    let (events, proxy) = (r.events(), format!("http://{at}"));
    let failed = of(&events, "failed")[0];
    assert_eq!((r.code, &failed["kind"]), (6, &"security".into()), "{}", r.out);
    assert!(failed["message"].as_str().is_some_and(|m| m.contains(&proxy)), "{failed}");
    assert_eq!(with(plain(), &["--pin", &serving.sha256]).code, 0);
    let wrong = "0".repeat(64);
    assert_eq!(with(plain(), &["--pin", &wrong]).code, 6);
    let mut logged = plain();
    logged.env("SSLKEYLOGFILE", f.path("keys"));
    assert_eq!(with(logged, &["-k"]).code, 0);
    assert!(String::from_utf8_lossy(&f.read("keys")).contains("CLIENT_TRAFFIC_SECRET_0 "));
    assert!(lines(&seen).iter().all(|l| l.starts_with("CONNECT ")), "{:?}", lines(&seen));
}

#[test]
fn what_breaks_in_a_tunnel_is_gone_on_with() {
    let f = Folder::new("proxy-again");
    let contents = noise(3_000_000, 8);
    f.put("root/file", &contents);
    let serving = Serving::new(&f.path("root"), &f.path("state"), &[]);
    let get = |at: SocketAddr, more: &[&str]| {
        let mut c = serving.get();
        c.args(["--json", "-x", &at.to_string(), "-o"]).arg(f.path("got"));
        run(c.args(more).arg(serving.url("file")))
    };
    let (at, seen) = proxy(1_000_000);
    let r = get(at, &[]);
    assert_eq!((r.code, of(&r.events(), "retry").len()), (0, 1), "{}{}", r.out, r.err);
    assert!(f.read("got") == contents && lines(&seen).len() == 2, "{:?}", lines(&seen));
    std::fs::remove_file(f.path("got")).expect("there");
    let (at, _) = proxy(1_000_000);
    assert_eq!(get(at, &["--retries", "0"]).code, 1);
    let r = get(at, &["-C"]);
    assert_eq!((r.code, &of(&r.events(), "done")[0]["outcome"]), (0, &"continued".into()), "{}{}", r.out, r.err);
    assert!(f.read("got") == contents);
}

#[test]
fn each_redirection_is_asked_by_the_proxy_that_its_host_has() {
    let f = Folder::new("proxy-redirect");
    let (there, _) = listen(|_, mut c| {
        let _ = c.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let location = format!("http://localhost:{}/b", there.port());
    let (here, _) = listen(move |_, mut c| {
        let _ = c.write_all(format!("HTTP/1.1 302 F\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n").as_bytes());
    });
    let (at, seen) = proxy(usize::MAX);
    let get = |except: &str| {
        let mut c = neater();
        c.env("all_proxy", at.to_string()).env("no_proxy", except).args(["get", "-4", "-o"]).arg(f.path("a"));
        let r = run(c.arg(format!("http://{here}/a")));
        assert_eq!(r.code, 0, "{}", r.err);
        core::mem::take(&mut *seen.lock().expect("ours")).len()
    };
    assert_eq!((get("localhost"), get("127.0.0.1"), get(""), get("*")), (1, 1, 2, 0));
}

#[test]
fn what_does_not_go_by_a_proxy_is_refused_with_words() {
    let f = Folder::new("proxy-refused");
    let proxy = ["-x", "http://me:hush@127.0.0.1:9"];
    for (more, code, words) in [
        (&["--http", "3"][..], 2, "HTTP/3 goes over UDP"),
        (&["--transport", "quic"], 2, "carries TLS/TCP alone"),
        (&["--multi"], 2, "--multi"),
        (&["-x", "socks5h://me:hush@127.0.0.1:9"], 2, "SOCKS"),
        (&["-x", "https://me:hush@127.0.0.1:9"], 2, "https://"),
        (&["-X", "CONNECT"], 2, "tunnels itself"),
        // Nothing listens there.
        (&[], 1, "127.0.0.1:9"),
    ] {
        let first = if more.contains(&"-x") { &[][..] } else { &proxy };
        let mut c = neater();
        c.args(["get", "--no-policy"]).args(first).args(more).arg("-o").arg(f.path("a"));
        let r = run(c.arg("https://example.invalid/a"));
        assert!(r.code == code && r.err.contains(words), "{more:?}: {} {}", r.code, r.err);
        discreet(&[&r.out, &r.err]);
    }
    let mut c = neater();
    c.env("ALL_PROXY", "socks5://me:hush@127.0.0.1:9").args(["get", "-o"]).arg(f.path("a"));
    let r = run(c.arg("http://example.invalid/a"));
    assert!(r.code == 2 && r.err.contains("ALL_PROXY: ") && r.err.contains("is supported"), "{}", r.err);
    discreet(&[&r.err]);
}

#[test]
fn hostile_proxies_are_errors_within_bounds() {
    let f = Folder::new("proxy-hostile");
    type Serve = fn(&str, TcpStream);
    let cases: &[(&str, Serve)] = &[
        ("does not answer as a proxy", |_, mut c| {
            let _ = c.write_all(b"HTTP/1.1 200 OK\r\n");
            while c.write_all(b"X-Endless: yes, and so on\r\n").is_ok() {}
        }),
        ("does not answer as a proxy", |_, mut c| {
            let _ = c.write_all(b"SSH-2.0-hush\r\n");
        }),
        ("no tunnel", |_, _| ()),
        // The tunnel ends as soon as it is there.
        ("no TLS with https://localhost", |_, mut c| {
            let _ = c.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            let _ = c.shutdown(Shutdown::Write);
            let _ = c.read_to_end(&mut Vec::new());
        }),
        ("no TLS with https://localhost", |_, mut c| {
            let _ = c.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            let _ = c.read(&mut [0; 4000]);
            let _ = c.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = c.read_to_end(&mut Vec::new());
        }),
        ("before the server was asked", |_, mut c| {
            let _ = c.write_all(b"HTTP/1.1 200 OK\r\n\r\nforged");
            let _ = c.read_to_end(&mut Vec::new());
        }),
        ("it offers Negotiate, and neater knows Basic", |_, mut c| {
            let _ = c.write_all(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\nContent-Length: 0\r\n\r\n");
        }),
        // It repeats what it was shown, and without end.
        ("does not take the name and the password", |head, mut c| {
            let _ = c.write_all(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n<p>not hush: ");
            while c.write_all(head.as_bytes()).is_ok() {}
        }),
        ("502 Bad Gateway, and with it: No way to it", |_, mut c| {
            let _ = c.write_all(b"HTTP/1.0 502 x\r\n\r\n<html><head><title>x</title></head><h1>No way\nto it\x1b</h1>");
        }),
        // Silence, also between the lines.
        ("opened no tunnel to https://localhost:1 within 1.0 s", |_, mut c| {
            let _ = c.read_to_end(&mut Vec::new());
        }),
        ("opened no tunnel to https://localhost:1 within 1.0 s", |_, mut c| {
            let _ = c.write_all(b"HTTP/1.1 200 OK\r\n");
            while c.write_all(b"a: b\r\n").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        }),
        ("timed out", |_, mut c| {
            let _ = c.write_all(b"HTTP/1.1 201 Fine\r\nContent-Length: 7\r\n\r\n");
            let _ = c.read_to_end(&mut Vec::new());
        }),
    ];
    for (words, serve) in cases {
        let (at, _) = listen(serve);
        let begun = Instant::now();
        let mut c = neater();
        c.args(["get", "--no-policy", "--timeout", "1", "-x", &format!("me:hush@{at}"), "-o"]).arg(f.path("a"));
        let r = run(c.arg("https://localhost:1/a"));
        assert!(r.code == 1 && r.err.contains(words), "{words}: {} {}", r.code, r.err);
        assert!(r.err.len() < 2000 && begun.elapsed() < Duration::from_secs(10), "{}", r.err);
        discreet(&[&r.out, &r.err]);
    }
    // In the clear the proxy's answer is the answer.
    let (at, _) = listen(|_, mut c| {
        let _ = c.write_all(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n");
    });
    let mut c = neater();
    c.env("http_proxy", at.to_string()).args(["get", "-o"]).arg(f.path("a"));
    let r = run(c.arg("http://localhost:1/a"));
    assert!(r.code == 5 && r.err.contains(&format!("the proxy http://{at} wants a name")), "{}", r.err);
}

/// A program that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// tinyproxy with a password, on a free port; `None` if it is not installed.
fn tinyproxy(folder: &Folder) -> Option<(Running, u16)> {
    let program = ["/usr/bin/tinyproxy", "/usr/sbin/tinyproxy"].into_iter().find(|p| Path::new(p).exists())?;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let config =
        format!("Port {port}\nListen 127.0.0.1\nTimeout 20\nMaxClients 20\nBasicAuth me hush\nAllow 127.0.0.1\n");
    let config = folder.put("tinyproxy.conf", config);
    let mut command = Command::new(program);
    let child = command.arg("-d").arg("-c").arg(config).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let running = Running(child.expect("started"));
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "tinyproxy does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some((running, port))
}

#[test]
fn tinyproxy_carries_both_and_is_asked_for_its_password() {
    let f = Folder::new("tinyproxy");
    let Some((_running, port)) = tinyproxy(&f) else {
        return say_skipped("no tinyproxy (package tinyproxy-bin)");
    };
    let contents = noise(2_000_000, 9);
    f.put("root/file", &contents);
    let secured = Serving::new(&f.path("root"), &f.path("state"), &[]);
    let plain = Serving::new(&f.path("root"), &f.path("state"), &["--plain"]);
    let urls = [format!("http://localhost:{}/file", plain.port), secured.url("file")];
    for (url, refused) in urls.iter().zip([5, 1]) {
        let get = |user: &str| {
            let mut c = neater();
            let insecure = if url.starts_with("https") { &["-k"][..] } else { &[] };
            c.env("all_proxy", format!("http://{user}127.0.0.1:{port}")).args(["get", "--json"]).args(insecure);
            run(c.arg("-o").arg(f.path("got")).arg(url))
        };
        let r = get("me:hush@");
        assert_eq!((r.code, of(&r.events(), "done").len()), (0, 1), "{url}: {}{}", r.out, r.err);
        assert!(f.read("got") == contents);
        discreet(&[&r.out, &r.err]);
        // It answers a wrong password with 401.
        for (user, status) in [("", "407"), ("me:hushed@", "401")] {
            let r = get(user);
            assert!(r.code == refused && r.out.contains(status), "{url}: {}{}", r.out, r.err);
            discreet(&[&r.out, &r.err]);
        }
    }
}
