//! The options of `neater get` that have curl's names, against a server that shows what it was
//! asked, and against other people's.

mod common;

use common::{Folder, Serving, neater, of, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A server that answers each request with the same, and keeps what it was asked.
struct Mirror {
    at: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Mirror {
    fn new(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let at = listener.local_addr().expect("bound");
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let (log, answer) = (seen.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (log.clone(), answer.clone());
                std::thread::spawn(move || {
                    let mut out = stream.try_clone().expect("a descriptor");
                    let mut reader = BufReader::new(stream);
                    let (mut text, mut length) = (String::new(), 0);
                    loop {
                        let mut line = String::new();
                        if reader.read_line(&mut line).unwrap_or(0) == 0 {
                            return;
                        }
                        if let Some((_, n)) = line.to_ascii_lowercase().split_once("content-length:") {
                            length = n.trim().parse().unwrap_or(0);
                        }
                        text += &line;
                        if line == "\r\n" {
                            break;
                        }
                    }
                    let mut body = vec![0; length];
                    let _ = reader.read_exact(&mut body);
                    text += &String::from_utf8_lossy(&body);
                    let answer = answer(&text);
                    log.lock().expect("ours").push(text);
                    let _ = out.write_all(&answer);
                });
            }
        });
        Self { at, seen }
    }

    fn url(&self) -> String {
        format!("http://{}/a", self.at)
    }

    fn last(&self) -> String {
        self.seen.lock().expect("ours").last().cloned().unwrap_or_default()
    }
}

fn ok(body: &[u8], fields: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn methods_content_and_passwords_travel_as_curl_sends_them() {
    let f = Folder::new("asked");
    let form = f.put("form", "b=2\r\nc=3\n");
    let server = Mirror::new(|_| ok(b"done\n", ""));
    let at = |file: &std::path::Path| format!("@{}", file.display());
    let cases: [(&[&str], &str, &str); 6] = [
        (&["-d", "a=1", "-d", &at(&form)], "POST /a", "a=1&b=2c=3"),
        (&["--data-binary", &at(&form)], "POST /a", "b=2\r\nc=3\n"),
        (&["-X", "PUT", "-d", "x"], "PUT /a", "x"),
        (&["-X", "DELETE"], "DELETE /a", ""),
        (&["-X", "POST"], "POST /a", ""),
        (&[], "GET /a", ""),
    ];
    for (options, line, content) in cases {
        let mine = run(neater().arg("get").args(options).arg(server.url()));
        assert_eq!((mine.code, mine.out.as_str()), (0, "done\n"), "{options:?}: {}", mine.err);
        let asked = server.last();
        let (head, body) = asked.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with(line) && body == content, "{options:?}: {asked}");
        let theirs = Command::new("curl").arg("-s").args(options).arg(server.url()).output().expect("curl");
        assert_eq!(theirs.stdout, b"done\n");
        let curl = server.last();
        let field = |text: &str, name: &str| {
            text.lines().find_map(|l| Some(l.to_ascii_lowercase().strip_prefix(name)?.trim().to_owned()))
        };
        assert_eq!(field(&asked, "content-type:"), field(&curl, "content-type:"), "{options:?}");
        assert_eq!(curl.split_once("\r\n\r\n").expect("a head").1, content, "{options:?}");
    }
    let r = run(neater().args(["get", "-u", "Aladdin:open sesame"]).arg(server.url()));
    assert!(
        server.last().to_ascii_lowercase().contains("authorization: basic qwxhzgrpbjpvcgvuihnlc2ftzq=="),
        "{}",
        r.err
    );
    let secret = f.put("secret", "Authorization: Bearer abc\nX-More: 1\n");
    run(neater().args(["get", "-H", &at(&secret)]).arg(server.url()));
    let asked = server.last().to_ascii_lowercase();
    assert!(asked.contains("authorization: bearer abc") && asked.contains("x-more: 1"), "{asked}");
}

/// What may have been done is not asked for again; what the server can be asked for twice is.
#[test]
fn only_what_may_be_repeated_is_repeated() {
    let server = Mirror::new(|_| Vec::new());
    for (options, times) in [(&["-d", "x"][..], 1), (&["-X", "PUT", "-d", "x"], 2)] {
        let before = server.seen.lock().expect("ours").len();
        let r = run(neater().args(["get", "--retries", "1"]).args(options).arg(server.url()));
        assert_eq!(r.code, 1, "{}", r.err);
        let asked = server.seen.lock().expect("ours").len() - before;
        assert!(if times == 1 { asked == 1 } else { asked >= 2 }, "{options:?}: {asked}");
    }
}

#[test]
fn a_redirected_post_becomes_a_get_where_it_should() {
    for (status, after) in [("301 Moved", "GET"), ("302 Found", "GET"), ("303 See", "GET"), ("307 Temporary", "POST")] {
        let server = Mirror::new(move |asked| {
            if asked.starts_with("POST /a ") {
                format!("HTTP/1.1 {status}\r\nLocation: /b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .into_bytes()
            } else {
                ok(b"", "")
            }
        });
        let r = run(neater().args(["get", "-d", "x=1"]).arg(server.url()));
        assert_eq!(r.code, 0, "{}", r.err);
        let last = server.last();
        assert!(last.starts_with(&format!("{after} /b ")), "{status}: {last}");
        assert_eq!(last.ends_with("x=1"), after == "POST", "{status}: {last}");
    }
}

#[test]
fn a_head_a_part_and_a_list_of_urls() {
    let f = Folder::new("heads");
    f.put("srv/a", "0123456789");
    f.put("srv/b", "bbb");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let r = run(server.get().arg("-I").arg(server.url("a")));
    let lines = r.out.to_ascii_lowercase();
    assert!(r.code == 0 && lines.starts_with("http/3 200 ok\n") && lines.contains("content-length: 10"), "{}", r.out);
    let r = run(server.get().args(["-I", "--json"]).args([server.url("a"), server.url("nothing")]));
    let events = r.events();
    let heads = of(&events, "head");
    assert_eq!((r.code, &heads[0]["status"], &heads[1]["status"]), (3, &200.into(), &404.into()), "{}", r.out);
    for (range, text) in [("2-4", "234"), ("8-", "89"), ("-3", "789")] {
        let r = run(server.get().args(["-r", range]).arg(server.url("a")));
        assert_eq!((r.code, r.out.as_str()), (0, text), "{}", r.err);
        let theirs =
            Command::new("curl").args(["-s", "-r", range, "--cacert"]).arg(&server.ca).arg(server.url("a")).output();
        assert_eq!(theirs.expect("curl").stdout, text.as_bytes());
    }
    let list = f.put("list", format!("# two\n{}\n\n  {}  \n", server.url("a"), server.url("b")));
    let r = run(server.get().args(["-q", "--output-dir"]).arg(f.path("new/folder")).arg("-i").arg(&list));
    assert_eq!((r.code, r.err.as_str(), r.out.as_str()), (0, "", ""));
    assert_eq!((f.read("new/folder/a"), f.read("new/folder/b")), (b"0123456789".to_vec(), b"bbb".to_vec()));
    let bad = f.put("bad", "https://h/\nhttp://[\n");
    let r = run(neater().args(["get", "-O", "-i"]).arg(&bad));
    assert!(r.code == 2 && r.err.contains("bad:2:"), "{}", r.err);
    // One that sends the whole all the same is not taken for the part.
    let whole = Mirror::new(|_| ok(b"0123456789", ""));
    let r = run(neater().args(["get", "-r", "0-1"]).arg(whole.url()));
    assert!(r.code == 1 && r.out.is_empty() && r.err.contains("the whole file"), "{}", r.err);
    for (range, part) in
        [("2-4", "Content-Range: bytes 0-2/10\r\n"), ("-3", "Content-Range: bytes 0-2/10\r\n"), ("0-2", "")]
    {
        let part = format!("HTTP/1.1 206 Partial Content\r\n{part}Content-Length: 3\r\nConnection: close\r\n\r\nabc");
        let other = Mirror::new(move |_| part.clone().into_bytes());
        let r = run(neater().args(["get", "-r", range]).arg(other.url()));
        assert!(r.code == 1 && r.out.is_empty() && r.err.contains("another part"), "{range}: {}", r.err);
    }
}

#[test]
fn compressed_content_is_saved_as_it_was_before() {
    let plain = b"the same again, the same again, the same again\n".repeat(20_000);
    let f = Folder::new("coded");
    let file = f.put("plain", &plain);
    let gzip = Command::new("gzip").arg("-c").arg(&file).output().expect("gzip").stdout;
    assert!(gzip.len() < plain.len() / 100);
    let (whole, cut) = (gzip.clone(), gzip[..gzip.len() - 20].to_vec());
    let server = Mirror::new(move |asked| {
        assert!(asked.to_ascii_lowercase().contains("accept-encoding: gzip"), "{asked}");
        ok(if asked.starts_with("GET /cut") { &cut } else { &whole }, "Content-Encoding: gzip\r\nETag: \"1\"\r\n")
    });
    let out = f.path("out");
    let r = run(neater().args(["get", "--compressed", "-o"]).arg(&out).arg(server.url()));
    assert_eq!(r.code, 0, "{}", r.err);
    assert!(f.read("out") == plain);
    let r =
        run(neater().args(["get", "--compressed", "-o"]).arg(f.path("cut")).arg(format!("http://{}/cut", server.at)));
    assert!(r.code == 1 && !f.path("cut").exists(), "{}", r.err);
    let other = Mirror::new(|_| ok(b"x", "Content-Encoding: br\r\n"));
    let r = run(neater().args(["get", "--compressed", "-o"]).arg(f.path("other")).arg(other.url()));
    assert!(r.code == 1 && r.err.contains("coded as br"), "{}", r.err);
}

#[test]
fn a_limited_transfer_takes_its_time_and_a_host_is_where_it_is_said_to_be() {
    let server = Mirror::new(|_| ok(&[b'x'; 200_000], ""));
    let begun = Instant::now();
    let url = format!("http://nowhere.test:{}/a", server.at.port());
    let place = format!("nowhere.test:{}:127.0.0.1", server.at.port());
    let r = run(neater().args(["get", "--resolve", &place, "--limit-rate", "200k", "-o", "/dev/null", &url]));
    assert_eq!(r.code, 0, "{}", r.err);
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(800), "{took:?}");
    assert!(server.last().to_ascii_lowercase().contains(&format!("host: nowhere.test:{}", server.at.port())));
}

/// A terminal is shown no binary content, unless that is asked for.
#[test]
fn a_terminal_is_spared_what_is_no_text() {
    let server = Mirror::new(|asked| ok(if asked.starts_with("GET /text") { b"text" } else { b"a\0b" }, ""));
    // script(1) gives a terminal.
    let on_terminal = |options: &str, path: &str| {
        let command = format!("{} get {options} http://{}/{path}", env!("CARGO_BIN_EXE_neater"), server.at);
        let out = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("NEATER_CACHE", "")
            .stdin(Stdio::null())
            .output();
        let out = out.expect("script");
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let (code, shown) = on_terminal("", "binary");
    assert!(code == Some(4) && !shown.contains('\0') && shown.contains("-o FILE saves it"), "{shown:?}");
    let (code, shown) = on_terminal("-o -", "binary");
    assert!(code == Some(0) && shown.contains("a\0b"), "{shown:?}");
    let (code, shown) = on_terminal("", "text");
    assert!(code == Some(0) && shown.contains("text"), "{shown:?}");
}

/// RFC 9110 section 15.3.7: the part of a file that has a tag has it, too; one without may be of
/// another version.
#[test]
fn a_part_without_the_tag_of_the_file_is_not_joined_to_it() {
    let f = Folder::new("untagged");
    let whole = b"0123456789".repeat(100);
    let (first, rest) = (whole[..400].to_vec(), vec![b'x'; 600]);
    let answers = Mutex::new(0);
    let server = Mirror::new(move |asked| {
        let n = {
            let mut n = answers.lock().expect("ours");
            *n += 1;
            *n
        };
        let ranged = asked.to_ascii_lowercase().contains("range: bytes=400-");
        assert_eq!(ranged, n == 2, "{asked}");
        match n {
            1 => {
                let head =
                    "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nAccept-Ranges: none, bytes\r\nContent-Length: 1000\r\n\r\n";
                [head.as_bytes(), &first].concat()
            }
            2 => {
                let head =
                    "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 400-999/1000\r\nContent-Length: 600\r\n\r\n";
                [head.as_bytes(), &rest].concat()
            }
            _ => ok(&whole, "ETag: \"1\"\r\n"),
        }
    });
    let r = run(neater().args(["get", "-o"]).arg(f.path("out")).arg(server.url()));
    assert_eq!(r.code, 0, "{}", r.err);
    assert!(f.read("out") == b"0123456789".repeat(100), "{}", r.err);
}

/// RFC 9110 section 10.2.3: a server that is busy in the middle of a file is asked again when it
/// wants to be.
#[test]
fn a_server_that_is_busy_for_a_moment_is_asked_again() {
    let f = Folder::new("busy");
    let whole = b"0123456789".repeat(100);
    let (first, rest) = (whole[..400].to_vec(), whole[400..].to_vec());
    let answers = Mutex::new(0);
    let server = Mirror::new(move |_| {
        let n = {
            let mut n = answers.lock().expect("ours");
            *n += 1;
            *n
        };
        match n {
            1 => {
                let head = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nAccept-Ranges: bytes\r\nContent-Length: 1000\r\n\r\n";
                [head.as_bytes(), &first].concat()
            }
            2 => b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n".to_vec(),
            _ => {
                let head = "HTTP/1.1 206 Part\r\nETag: \"1\"\r\nContent-Range: bytes 400-999/1000\r\nContent-Length: 600\r\n\r\n";
                [head.as_bytes(), &rest].concat()
            }
        }
    });
    let begun = Instant::now();
    let r = run(neater().args(["get", "-o"]).arg(f.path("out")).arg(server.url()));
    assert_eq!(r.code, 0, "{}", r.err);
    assert!(f.read("out") == whole && r.err.contains("503") && begun.elapsed() > Duration::from_secs(1), "{}", r.err);
    // One that has never given anything, and does not state when, is not waited for.
    let busy = Mirror::new(|_| b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec());
    let begun = Instant::now();
    let r = run(neater().args(["get"]).arg(busy.url()));
    assert!(r.code == 5 && begun.elapsed() < Duration::from_secs(2), "{}", r.err);
}

/// A part of a file without a validator cannot be resumed, and that is reported.
#[test]
fn a_part_that_cannot_be_gone_on_with_is_named_as_such() {
    let f = Folder::new("lost");
    let server = Mirror::new(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbeginning".to_vec());
    let r = run(neater().args(["get", "--retries", "0", "-o"]).arg(f.path("out")).arg(server.url()));
    assert!(r.code == 1 && r.err.contains("fetched again") && !r.err.contains("go on with"), "{}", r.err);
}
