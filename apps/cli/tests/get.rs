//! `neater get`, as people and scripts run it.

mod common;

use common::{Folder, Serving, neater, noise, of, run, signal};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn programs_are_told_how_far_it_is() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut c in listener.incoming().flatten() {
            let _ = c.read(&mut [0; 4096]);
            let _ = c.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n");
            for byte in b"slow" {
                std::thread::sleep(Duration::from_millis(700));
                let _ = c.write_all(&[*byte]);
            }
        }
    });
    let r = run(neater().args(["get", "--json", "-o", "/dev/null", &format!("http://{at}/a")]));
    let events = r.events();
    let told = of(&events, "progress");
    assert!(r.code == 0 && !told.is_empty(), "{}{}", r.out, r.err);
    let bytes: Vec<_> = told.iter().filter_map(|p| p["bytes"].as_u64()).collect();
    assert!(bytes.is_sorted() && bytes.iter().all(|n| (1..=4).contains(n)), "{}", r.out);
    assert!(told.iter().all(|p| p["total"] == 4 && p["bytes_per_second"].is_u64()), "{}", r.out);
    // Progress is printed every ten seconds, which this does not take.
    let r = run(neater().args(["get", "-o", "/dev/null", &format!("http://{at}/a")]));
    assert!(r.code == 0 && !r.err.contains(" left"), "{}", r.err);
}

#[test]
fn every_version_fetches_the_same_bytes() {
    let f = Folder::new("versions");
    let (small, large) = (noise(1_000_000, 1), noise(20_000_000, 2));
    f.put("srv/small", &small);
    f.put("srv/large", &large);
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    for (version, stack, http) in [("1.1", "TLS/TCP", "HTTP/1.1"), ("2", "TLS/TCP", "HTTP/2"), ("3", "QUIC", "HTTP/3")]
    {
        let dir = f.path(&format!("out{version}"));
        std::fs::create_dir(&dir).expect("made");
        let r = run(server
            .get()
            .args(["--json", "--http", version, "--output-dir"])
            .arg(&dir)
            .args([server.url("small"), server.url("large")]));
        assert_eq!(r.code, 0, "{}", r.err);
        let events = r.events();
        let done = of(&events, "done");
        assert_eq!(done.len(), 2);
        assert!(done.iter().all(|d| d["transport"] == stack && d["http"] == http), "{events:?}");
        assert!(f.read(&format!("out{version}/small")) == small && f.read(&format!("out{version}/large")) == large);
        let left: Vec<_> = std::fs::read_dir(&dir).expect("a folder").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
    let (code, last) = server.stop();
    assert_eq!((code, &last["event"], &last["requests"]), (0, &"stopped".into(), &6.into()), "{last}");
}

#[test]
fn one_url_goes_to_standard_output() {
    let f = Folder::new("stdout");
    f.put("srv/a.txt", "hello\n");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let r = run(server.get().arg(server.url("a.txt")));
    assert_eq!((r.code, r.out.as_str()), (0, "hello\n"), "{}", r.err);
    assert!(r.err.contains("HTTP/3 over QUIC"), "{}", r.err);
    // The data and the objects do not mix.
    let r = run(server.get().args(["--json", "-o", "-"]).arg(server.url("a.txt")));
    assert_eq!(r.out, "hello\n");
    assert_eq!(of(&common::parse(&r.err), "done").len(), 1);
}

#[test]
fn a_partial_file_is_continued_if_it_is_still_the_same() {
    let f = Folder::new("resume");
    let contents = noise(3_000_000, 3);
    f.put("srv/big", &contents);
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let out = f.path("big");
    let fetch =
        |resume: &[&str]| run(server.get().args(["--json"]).args(resume).arg("-o").arg(&out).arg(server.url("big")));
    assert_eq!(fetch(&[]).code, 0);
    // What an interrupted run leaves behind: the first part, and the server's description of the
    // file.
    let tag = server_tag(&server, "big");
    let cut = |tag: &str| {
        let _ = std::fs::remove_file(&out);
        f.put("big.part", &contents[..1_000_000]);
        f.put("big.part.json", format!(r#"{{"url":{:?},"etag":{tag:?},"total":3000000}}"#, server.url("big")));
    };
    cut(&tag);
    let r = fetch(&["-C"]);
    let events = r.events();
    let done = of(&events, "done")[0];
    assert_eq!((&done["outcome"], &done["received"]), (&"continued".into(), &2_000_000.into()), "{}", r.err);
    assert!(f.read("big") == contents);
    // Another version of the file is fetched from the beginning.
    cut("\"another\"");
    let r = fetch(&["-C"]);
    let events = r.events();
    assert_eq!(of(&events, "done")[0]["received"], 3_000_000, "{}", r.err);
    assert!(of(&events, "restart")[0]["message"].as_str().is_some_and(|m| m.contains("starting again")), "{}", r.out);
    assert!(f.read("big") == contents);
    // What is complete is left alone.
    let r = fetch(&["-C"]);
    let events = r.events();
    assert_eq!((r.code, &of(&events, "done")[0]["outcome"]), (0, &"already-there".into()));
    // A part that is whole only needs its name.
    std::fs::remove_file(&out).expect("removed");
    f.put("big.part", &contents);
    f.put("big.part.json", format!(r#"{{"url":{:?},"etag":{tag:?},"total":3000000}}"#, server.url("big")));
    assert_eq!(fetch(&["-C"]).code, 0);
    assert!(f.read("big") == contents);
}

fn server_tag(server: &Serving, path: &str) -> String {
    let r = std::process::Command::new("curl")
        .args(["-sSI", "--cacert"])
        .arg(&server.ca)
        .arg(server.url(path))
        .output()
        .expect("curl");
    let head = String::from_utf8_lossy(&r.stdout).into_owned();
    let tag = head.lines().find_map(|l| l.strip_prefix("etag: ")).unwrap_or_else(|| panic!("{head}"));
    tag.trim().to_owned()
}

#[test]
fn statuses_and_partial_success_have_their_exit_codes() {
    let f = Folder::new("status");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let r = run(server.get().arg(server.url("nothing")));
    assert_eq!((r.code, r.out.as_str()), (5, ""));
    assert!(r.err.contains("404 Not Found"), "{}", r.err);
    let r = run(server.get().arg("--output-dir").arg(f.path("")).args([server.url("a"), server.url("nothing")]));
    assert_eq!(r.code, 3, "{}", r.err);
    assert_eq!(f.read("a"), b"a");
    assert!(!f.path("nothing").exists() && !f.path("nothing.part").exists());
}

#[test]
fn a_full_disk_and_an_unwritable_folder_say_what_to_do() {
    let f = Folder::new("full");
    f.put("srv/a", noise(1_000_000, 4));
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let r = run(server.get().args(["-o", "/dev/full"]).arg(server.url("a")));
    assert_eq!(r.code, 4);
    assert!(r.err.contains("no space left") && r.err.contains("free some space"), "{}", r.err);
    let r = run(server.get().arg("-o").arg(f.path("no/such/folder")).arg(server.url("a")));
    assert_eq!(r.code, 4);
    assert!(r.err.contains("does not exist"), "{}", r.err);
    let r = run(server.get().arg("-o").arg(f.path("srv")).arg(server.url("a")));
    assert_eq!((r.code, r.err.contains("is a folder")), (4, true), "{}", r.err);
    // A file that another process is writing is not touched.
    let part = f.put("b.part", "theirs");
    let held = std::fs::File::open(&part).expect("opened");
    held.lock().expect("locked");
    let r = run(server.get().arg("-o").arg(f.path("b")).arg(server.url("a")));
    assert_eq!((r.code, r.err.contains("another neater")), (4, true), "{}", r.err);
    assert_eq!(f.read("b.part"), b"theirs");
}

#[test]
fn a_command_line_that_makes_no_sense_is_answered_with_what_would() {
    for (args, word) in [
        (&["--needs", "reliabel", "https://h/"][..], "reliable"),
        (&["ftp://h/"], "http and https are known"),
        (&["https://h:0/"], "port"),
        (&["https://a/", "https://b/"], "--output-dir DIR"),
        (&["-o", "x", "https://a/", "https://b/"], "-O"),
        (&["-O", "https://a/x", "https://b/x"], "same file"),
        (&["-C", "https://a/x"], "-o FILE"),
        (&["-H", "nonsense", "https://a/"], "Name: value"),
        (&["--transport", "sctp-ip", "https://a/"], "QUIC"),
        (&["--pin", "12", "https://a/"], "64 hexadecimal"),
        (&["--needs", "encrypted", "http://a/"], "in the clear"),
        (&["--transport", "UDP", "https://a/"], "can be reached over"),
        (&["--needs", "datagrams", "https://127.0.0.1:1/"], "ruled out"),
        (&["--http", "4", "https://a/"], "1.1"),
        (&["--ca", "/dev/null", "https://a/"], "empty"),
    ] {
        let r = run(neater().arg("get").args(args));
        assert_eq!(r.code, 2, "{args:?}: {}", r.err);
        assert!(r.err.contains(word), "{args:?}: {}", r.err);
        assert!(r.out.is_empty());
    }
}

#[test]
fn nobody_there_is_a_failure_with_every_candidate_named() {
    let r = run(neater().args(["get", "--json", "https://127.0.0.1:1/"]));
    assert_eq!(r.code, 1);
    let events = common::parse(&r.err);
    let failed = of(&events, "failed")[0];
    assert_eq!((&failed["kind"], &failed["exit"]), (&"establishment".into(), &1.into()));
    let message = failed["message"].as_str().expect("text");
    assert!(message.contains("QUIC to 127.0.0.1:1") && message.contains("TLS/TCP to 127.0.0.1:1"), "{message}");
}

#[test]
fn certificates_that_are_not_acceptable_say_what_to_do() {
    let f = Folder::new("security");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let hosts = f.put("hosts", "127.0.0.1 other.test localhost\n");
    for version in ["2", "3"] {
        let r = run(neater().args(["get", "--http", version]).arg(server.url("a")));
        assert_eq!((r.code, r.err.contains("--ca FILE")), (6, true), "{}", r.err);
        // The certificate that was seen is named by its pin.
        assert!(r.err.contains(&format!("--pin {}", server.sha256)), "{}", r.err);
        let other = format!("https://other.test:{}/a", server.port);
        let r = run(server.get().args(["--http", version, "--hosts"]).arg(&hosts).arg(&other));
        assert_eq!((r.code, r.err.contains("a name that the certificate has")), (6, true), "{}", r.err);
        assert!(r.err.contains(&format!("--pin {} without --ca", server.sha256)), "{}", r.err);
        let r = run(neater().args(["get", "--http", version, "--pin", &"0".repeat(64)]).arg(server.url("a")));
        assert_eq!((r.code, r.err.contains("pin that")), (6, true), "{}", r.err);
        let r = run(neater().args(["get", "--http", version, "--pin", &server.sha256]).arg(server.url("a")));
        assert_eq!((r.code, r.out.as_str()), (0, "a"), "{}", r.err);
        let r = run(neater().args(["get", "--http", version, "-k"]).arg(server.url("a")));
        assert_eq!((r.code, r.out.as_str(), r.err.contains("--insecure")), (0, "a", true), "{}", r.err);
    }
    // Two years ago, for one year.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let then = neater_base::WallTime(now - Duration::from_secs(2 * 365 * 86_400));
    let old = neater::tls::self_signed(&["localhost"], then, [3; 32]);
    let cert = f.put("old.pem", pem("CERTIFICATE", &old.chain[0]));
    let key = f.put("old.key", pem("PRIVATE KEY", old.key.secret_der()));
    let (c, k) = (cert.to_str().expect("text"), key.to_str().expect("text"));
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--cert", c, "--key", k]);
    for version in ["2", "3"] {
        let r = run(server.get().args(["--http", version]).arg(server.url("a")));
        assert_eq!((r.code, r.err.contains("must renew it")), (6, true), "{}", r.err);
    }
    // The server has mentioned it when it started.
    let (_, events) = server.stop_with_events();
    let mentioned = of(&events, "certificate");
    assert!(mentioned.len() == 1 && mentioned[0]["message"].to_string().contains("expired"), "{events:?}");
}

#[test]
fn a_link_local_address_without_its_interface_says_so() {
    for url in ["http://[fe80::1]:1/a", "https://[fe80::1]:1/a"] {
        let r = run(neater().args(["get", "--retries", "0", "--timeout", "5"]).arg(url));
        // Where a host has no IPv6 at all, that is what is wrong.
        let none = r.err.contains("not supported") || r.err.contains("unreachable");
        assert!(r.code == 1 && (none || r.err.contains("as in fe80::1%eth0")), "{url}: {}", r.err);
        assert!(!r.err.contains("invalid argument"), "{url}: {}", r.err);
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    // openssl is not needed for this: base64 of coreutils is.
    let mut child =
        std::process::Command::new("base64").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("base64");
    child.stdin.take().expect("a pipe").write_all(der).expect("written");
    let out = child.wait_with_output().expect("ended");
    format!("-----BEGIN {label}-----\n{}-----END {label}-----\n", String::from_utf8_lossy(&out.stdout))
}

/// A server over TCP that cuts the first `cuts` answers off after `piece` bytes each.
fn breaking(contents: Vec<u8>, piece: usize, cuts: usize, ranges: bool) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}/file", listener.local_addr().expect("bound"));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for mut c in listener.incoming().flatten() {
            let n = count.fetch_add(1, Ordering::SeqCst);
            let head = head(&mut c);
            let from = head
                .lines()
                .find_map(|l| l.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned))
                .and_then(|r| r.split('-').next().and_then(|n| n.trim().parse::<usize>().ok()))
                .filter(|_| ranges)
                .unwrap_or(0);
            let rest = &contents[from..];
            let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
            let mut answer = format!("HTTP/1.1 {status}\r\nETag: \"v1\"\r\nContent-Length: {}\r\n", rest.len());
            if ranges {
                answer += "Accept-Ranges: bytes\r\n";
            }
            if from > 0 {
                answer += &format!("Content-Range: bytes {from}-{}/{}\r\n", contents.len() - 1, contents.len());
            }
            let _ = c.write_all((answer + "Connection: close\r\n\r\n").as_bytes());
            let _ = c.write_all(if n < cuts { &rest[..piece.min(rest.len())] } else { rest });
        }
    });
    (url, asked)
}

fn head(c: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") && c.read(&mut byte).is_ok_and(|n| n == 1) {
        text.push(byte[0]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_connection_that_breaks_is_made_again_for_the_rest() {
    let f = Folder::new("breaks");
    let contents = noise(500_000, 5);
    let (url, asked) = breaking(contents.clone(), 100_000, 3, true);
    let r = run(neater().args(["get", "--json", "-o"]).arg(f.path("file")).arg(&url));
    assert_eq!(r.code, 0, "{}{}", r.out, r.err);
    let events = r.events();
    assert_eq!((of(&events, "retry").len(), asked.load(Ordering::SeqCst)), (3, 4));
    assert_eq!(of(&events, "done")[0]["retries"], 3);
    assert!(f.read("file") == contents);
    // To standard output as well: what was written stays written.
    let (url, _) = breaking(contents.clone(), 200_000, 1, true);
    let out = neater().args(["get", &url]).output().expect("ran");
    assert!(out.status.success() && out.stdout == contents, "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn what_came_is_kept_when_the_rest_does_not_come() {
    let f = Folder::new("kept");
    let contents = noise(500_000, 6);
    let (url, _) = breaking(contents.clone(), 50_000, 2, true);
    let r = run(neater().args(["get", "--retries", "1", "-o"]).arg(f.path("file")).arg(&url));
    assert_eq!(r.code, 1, "{}", r.err);
    assert!(
        r.err.contains("100000 of 500000 bytes are kept in") && r.err.contains("go on with: neater get -C"),
        "{}",
        r.err
    );
    assert!(f.read("file.part") == contents[..100_000] && !f.path("file").exists());
    // The printed command does what it promises, once the server has recovered.
    let r = run(neater().args(["get", "-C", "-o"]).arg(f.path("file")).arg(&url));
    assert_eq!(r.code, 0, "{}", r.err);
    assert!(f.read("file") == contents && !f.path("file.part.json").exists());
    // A server that cannot send the rest alone is not asked for it.
    let (url, asked) = breaking(contents.clone(), 50_000, usize::MAX, false);
    let r = run(neater().args(["get", "-o"]).arg(f.path("other")).arg(&url));
    assert_eq!((r.code, asked.load(Ordering::SeqCst)), (1, 1), "{}", r.err);
    assert!(
        r.err.contains("50000 of 500000 bytes") && r.err.contains("does not state that it can send the rest"),
        "{}",
        r.err
    );
}

#[test]
fn an_interruption_keeps_what_came_and_says_how_to_go_on_where_that_is_possible() {
    for validator in ["ETag: \"one\"\r\n", ""] {
        let f = Folder::new("interrupt");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let url = format!("http://{}/file", listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            let (mut c, _) = listener.accept().expect("a client");
            head(&mut c);
            let answer = format!("HTTP/1.1 200 OK\r\n{validator}Content-Length: 1000\r\n\r\nbeginning");
            let _ = c.write_all(answer.as_bytes());
            std::thread::sleep(Duration::from_secs(30));
        });
        let mut get = neater();
        get.args(["get", "--json", "-o"]).arg(f.path("file")).arg(&url).stderr(Stdio::piped());
        let mut child = get.stdout(Stdio::piped()).spawn().expect("started");
        let until = Instant::now() + Duration::from_secs(10);
        while std::fs::read(f.path("file.part")).unwrap_or_default() != b"beginning" {
            assert!(Instant::now() < until, "nothing came");
            std::thread::sleep(Duration::from_millis(10));
        }
        signal(&child, "-INT");
        let mut said = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert_eq!(child.wait().expect("ended").code(), Some(130), "{said}");
        // Without a validator, the advised command would be refused.
        assert_eq!(said.contains("go on with: neater get -C"), !validator.is_empty(), "{said}");
        let events = common::parse(&said);
        assert_eq!(events.iter().rev().nth(1).map(|e| &e["event"]), Some(&"failed".into()), "{said}");
        let summary = said.lines().find(|l| l.contains("\"summary\"")).expect("a summary");
        assert!(summary.contains("\"failed\":1"), "{summary}");
        assert_eq!(f.read("file.part"), b"beginning");
    }
}

#[test]
fn a_pipe_that_nobody_reads_does_not_keep_an_interruption_from_ending_it() {
    let f = Folder::new("stalled-pipe");
    f.put("srv/a", noise(4_000_000, 7));
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let fifo = f.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    // Standard output is not read; the pipe is not opened; the open pipe is not read.
    for (to, open) in [("-", false), ("fifo", false), ("fifo", true)] {
        let target = if to == "-" { "-".into() } else { fifo.clone() };
        let reader = open.then(|| {
            let both = std::fs::OpenOptions::new().read(true).write(true).open(&fifo);
            both.expect("opened")
        });
        let mut child = server
            .get()
            .arg("-o")
            .arg(target)
            .arg(server.url("a"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        std::thread::sleep(Duration::from_millis(1500));
        assert!(child.try_wait().expect("known").is_none(), "{to}: it should be waiting");
        signal(&child, "-INT");
        let until = Instant::now() + Duration::from_secs(3);
        let status = loop {
            if let Some(status) = child.try_wait().expect("known") {
                break status;
            }
            if Instant::now() > until {
                let _ = child.kill();
                panic!("{to}: it did not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut err = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
        assert_eq!((status.code(), err.contains("interrupted"), err.contains("-C")), (Some(130), true, false), "{err}");
        drop(reader);
    }
}

/// Without a word from the new server, the client would wait for its idle timeout of 30 s.
#[test]
fn a_server_that_was_started_anew_tells_quic_clients_so() {
    let f = Folder::new("anew");
    let what = noise(40_000_000, 9);
    f.put("srv/a", &what);
    let first = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let (port, fifo) = (first.port, f.path("fifo"));
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let mut get = first.get();
    get.args(["--transport", "quic", "--json", "-o"]).arg(&fifo).arg(first.url("a"));
    let child = get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut reader = std::fs::File::open(&fifo).expect("opened");
    let mut got = vec![0; 1_000_000];
    reader.read_exact(&mut got).expect("the beginning");
    // As in a crash: nothing is closed in order.
    drop(first);
    let more = ["--port".to_owned(), port.to_string()];
    let _second = Serving::new(&f.path("srv"), &f.path("state"), &[&more[0], &more[1]]);
    let since = Instant::now();
    reader.read_to_end(&mut got).expect("the rest, or its end");
    let r = child.wait_with_output().expect("ended");
    let told = String::from_utf8_lossy(&r.stderr).into_owned();
    assert!(since.elapsed() < Duration::from_secs(12), "{:?}: {told}", since.elapsed());
    assert!(what.starts_with(&got) && (r.status.success() == (got.len() == what.len())), "{} bytes; {told}", got.len());
    println!("{} bytes in all, {:?}: {told}{}", got.len(), since.elapsed(), String::from_utf8_lossy(&r.stdout));
}

#[test]
fn a_silent_server_is_given_up_after_the_time_that_was_given() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let started = Instant::now();
    let r = run(neater().args(["get", "--timeout", "0.3", "--retries", "0", &url]));
    assert_eq!((r.code, r.err.contains("nothing came for 0.3 s")), (1, true), "{}", r.err);
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_policy_file_that_breaks_on_the_way_is_told_at_the_end_and_once() {
    let f = Folder::new("breaks-policy");
    let policy =
        f.put("policy/one.policy", r#"{"uid": "one", "match": {"app": {"value": "nobody"}}, "properties": {}}"#);
    let servers = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("bound"));
    let urls = servers.each_ref().map(|s| format!("http://{}/", s.local_addr().expect("bound")));
    let answering = std::thread::spawn(move || {
        for (i, server) in servers.into_iter().enumerate() {
            let (mut s, _) = server.accept().expect("a client");
            let _ = s.read(&mut [0; 4096]);
            if i == 0 {
                std::fs::write(&policy, "broken").expect("written");
                // Folders are looked at once a second.
                std::thread::sleep(Duration::from_millis(1200));
            }
            s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").expect("sent");
        }
    });
    let mut c = neater();
    c.args(["get", "--json", "--parallel", "1", "--output-dir"])
        .arg(f.path(""))
        .args(["--policy"])
        .arg(f.path("policy"));
    c.args(urls.iter().enumerate().map(|(i, url)| format!("{url}{i}")));
    let r = run(&mut c);
    answering.join().expect("answered");
    let events = r.events();
    let faults = of(&events, "fault");
    assert_eq!((r.code, faults.len()), (0, 1), "{} {}", r.out, r.err);
    assert!(faults[0]["file"].as_str().is_some_and(|file| file.ends_with("one.policy")), "{}", faults[0]);
    assert_eq!(events.last().map(|e| &e["event"]), Some(&"summary".into()));
}

#[test]
fn steps_of_establishment_are_told_live() {
    let f = Folder::new("verbose");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let r = run(server.get().arg("-v").arg(server.url("a")));
    assert!(r.err.contains("QUIC to 127.0.0.1") && r.err.contains("chosen"), "{}", r.err);
    let r = run(server.get().args(["-v", "--json", "-o"]).arg(f.path("a")).arg(server.url("a")));
    let events = r.events();
    let steps: Vec<_> = of(&events, "timeline").iter().map(|e| e["step"].as_str().unwrap_or_default()).collect();
    assert!(steps.contains(&"started") && steps.last() == Some(&"chosen"), "{steps:?}");
    let r = run(server.get().args(["--log", "neater::race=debug"]).arg(server.url("a")));
    assert!(r.err.contains("neater::race") && r.err.contains("chosen"), "{}", r.err);
}

#[test]
fn with_json_every_answer_is_for_programs() {
    for args in [
        &["--json"][..],
        &["get", "--json"],
        &["--json", "get", "--no-such-option", "https://a/"],
        &["--json", "nonsense"],
        &["get", "--json", "--http", "4", "https://a/"],
    ] {
        let r = run(neater().args(args));
        assert_eq!((r.code, r.err.as_str()), (2, ""), "{args:?}");
        let events = r.events();
        assert_eq!((events.len(), &events[0]["event"], &events[0]["kind"]), (1, &"failed".into(), &"usage".into()));
        assert!(!events[0]["message"].as_str().unwrap_or_default().is_empty(), "{events:?}");
    }
}

#[test]
fn an_answer_that_could_not_be_written_is_a_failure() {
    let f = Folder::new("devfull");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("opened");
    let mut fetch = server.get();
    fetch.args(["--json", "-o"]).arg(f.path("a")).arg(server.url("a"));
    let mut explain = neater();
    explain.args(["explain", "127.0.0.1:1"]);
    let mut explain_json = neater();
    explain_json.args(["explain", "--json", "127.0.0.1:1"]);
    let help = [["--help"], ["--version"]].map(|args| {
        let mut c = neater();
        c.args(args);
        c
    });
    for mut c in [fetch, explain, explain_json].into_iter().chain(help) {
        let out = c.stdout(full()).stderr(Stdio::piped()).spawn().expect("started").wait_with_output().expect("ended");
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.code(), err.contains("no space left")), (Some(4), true), "{err}");
    }
}

/// A reader of the data of a pipe takes no object for a part of it.
#[test]
fn what_fails_before_anything_was_asked_for_is_not_said_among_the_data() {
    for wrong in
        [&["--ca", "/nonexistent"][..], &["--pin", "00"], &["--needs", "foo"], &["--resolv-conf", "/nonexistent"]]
    {
        for (to, objects) in [(&["-o", "-"][..], false), (&[], false), (&["-O"], true)] {
            let r = run(neater().args(["get", "--json"]).args(wrong).args(to).arg("https://127.0.0.1:1/a"));
            let (data, said) = if objects { (&r.err, &r.out) } else { (&r.out, &r.err) };
            assert!(r.code > 0 && data.is_empty(), "{wrong:?} {to:?}: {data}");
            assert_eq!(common::of(&common::parse(said), "failed").len(), 1, "{wrong:?} {to:?}: {said}");
        }
    }
}

/// What came is kept, as after Ctrl-C, and what was begun for nothing is not left behind.
#[test]
fn sigterm_ends_a_download_in_order() {
    let f = Folder::new("sigterm");
    let stall = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/a", stall.local_addr().expect("bound"));
    let mut get = neater();
    get.args(["get", "-o"]).arg(f.path("a")).arg(&url).stderr(std::process::Stdio::piped());
    let child = get.spawn().expect("started");
    let _held = stall.accept().expect("it has connected");
    std::thread::sleep(std::time::Duration::from_millis(200));
    let killed = std::process::Command::new("kill").arg(child.id().to_string()).status().expect("kill");
    assert!(killed.success());
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!f.path("a").exists() && !f.path("a.part").exists());
}

#[test]
fn nobody_waits_for_a_goodbye_that_needs_no_saying() {
    let f = Folder::new("goodbye");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--max-connections", "1"]);
    let quickest = |make: &dyn Fn() -> std::process::Command| {
        let one = || {
            let started = Instant::now();
            run(&mut make());
            started.elapsed()
        };
        (0..5).map(|_| one()).min().expect("several")
    };
    let nothing = quickest(&|| {
        let mut c = neater();
        c.arg("--version");
        c
    });
    // A local failure after the client was made. How long transfers take is the machine's affair.
    let local = quickest(&|| {
        let mut c = server.get();
        c.arg("-o").arg(f.path("no/such/folder")).arg(server.url("a"));
        c
    });
    assert!(local < nothing + Duration::from_millis(80), "{local:?} and {nothing:?}");
}

/// QUIC's sockets are of one family, and ::ffff:127.0.0.1 is an address of IPv4 (RFC 4291 section
/// 2.5.5.2).
#[test]
fn an_ipv4_address_in_the_form_of_ipv6_is_reached_by_every_version() {
    let f = Folder::new("mapped");
    f.put("srv/a", "abc");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--bind", "127.0.0.1"]);
    let hosts = f.put("hosts", "::ffff:127.0.0.1 localhost\n");
    for version in ["1.1", "2", "3"] {
        let url = format!("https://localhost:{}/a", server.port);
        let r = run(server.get().args(["--http", version, "--timeout", "5", "--hosts"]).arg(&hosts).arg(url));
        assert_eq!((r.code, r.out.as_str()), (0, "abc"), "HTTP/{version}: {}", r.err);
    }
}

#[test]
fn local_files_that_cannot_be_read_have_an_exit_code_of_their_own() {
    for (option, what) in [("--hosts", "hosts"), ("--resolv-conf", "resolv"), ("--policy", "policy")] {
        let missing = format!("/nonexistent/{what}");
        for command in ["get", "explain"] {
            let target = if command == "get" { "https://localhost:1/" } else { "localhost:1" };
            let r = run(neater().args([command, "--json", option, &missing, target]));
            assert_eq!(r.code, 4, "{command} {option}: {} {}", r.out, r.err);
            assert!(r.err.contains(&missing) || r.out.contains(&missing), "{command} {option}: {} {}", r.out, r.err);
        }
    }
}

#[test]
fn connections_come_from_where_the_command_line_says() {
    let f = Folder::new("from");
    f.put("srv/a", "abc");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let hosts = f.put("hosts", "127.0.0.1 localhost\n::1 localhost\n");
    let both = std::net::TcpListener::bind("[::1]:0").is_ok();
    let from: &[(&[&str], &str)] = &[
        (&["-4"], "127.0.0.1:"),
        (&["-6"], "[::1]:"),
        (&["--interface", "lo"], ""),
        (&["--interface", "lo", "-4"], "127.0.0.1:"),
        (&["--interface", "lo", "--ipv6"], "[::1]:"),
        (&["--interface", "127.0.0.1"], "127.0.0.1:"),
        // Another address of this host, which the server sees.
        (&["--interface", "127.0.0.9"], "127.0.0.1:"),
        (&["--interface", "::1"], "[::1]:"),
    ];
    for (args, at) in from {
        if at.starts_with('[') && !both {
            common::say_skipped("connections by IPv6: none on this machine");
            continue;
        }
        for version in ["2", "3"] {
            let r = run(server
                .get()
                .args(["--json", "--http", version, "--hosts"])
                .arg(&hosts)
                .arg("-o")
                .arg(f.path("a"))
                .args(*args)
                .arg(server.url("a")));
            assert_eq!(r.code, 0, "{args:?}: {} {}", r.out, r.err);
            let events = r.events();
            let remote = of(&events, "connected")[0]["address"].as_str().expect("an address");
            assert!(remote.starts_with(at), "{args:?}, HTTP/{version}: {remote}");
        }
    }
    for (args, word) in [
        (&["--interface", "nosuch0"][..], "nosuch0"),
        (&["--interface", "192.0.2.77"], "not available on this host"),
        (&["--interface", "::1", "-4"], "the other family"),
        (&["--interface", "0.0.0.0"], "choose a family"),
        (&["-4", "-6"], "cannot be used with"),
        (&["--interface", "lo", "--multi", "-o", "a"], "cannot be used with"),
    ] {
        let r = run(server.get().arg("--hosts").arg(&hosts).args(args).arg(server.url("a")));
        assert!(r.code != 0 && r.err.contains(word), "{args:?}: {} {}", r.code, r.err);
    }
    let r = run(neater().args(["explain", "--json", "-6", "localhost:443", "--hosts"]).arg(&hosts));
    let events = r.events();
    assert!(
        !of(&events, "planned").is_empty()
            && of(&events, "planned").iter().all(|a| a["address"].as_str().is_some_and(|a| a.starts_with('['))),
        "{events:?}"
    );
}
