//! What `neater get` does with what is there already: parts of earlier runs, files of the user's,
//! and answers that do not belong behind them.

mod common;

use common::{Folder, Ran, neater, noise, of, run, say_skipped};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A server over TCP: every request's head goes to `answer`, whose bytes are sent before the
/// connection is closed.
fn scripted(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let origin = format!("http://{}", listener.local_addr().expect("bound"));
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    std::thread::spawn(move || {
        for mut c in listener.incoming().flatten() {
            let head = head(&mut c);
            let _ = c.write_all(&answer(&head));
            seen.lock().expect("sound").push(head);
        }
    });
    (origin, heads)
}

fn head(c: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") && c.read(&mut byte).is_ok_and(|n| n == 1) {
        text.push(byte[0]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// A field of a request's head.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().filter_map(|l| l.split_once(": ")).find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
}

fn from(head: &str) -> usize {
    let range = field(head, "range").and_then(|r| r.strip_prefix("bytes="));
    range.and_then(|r| r.trim_end_matches('-').parse().ok()).unwrap_or(0)
}

/// `contents` from where it was asked for, of which only `send` bytes are sent.
fn rest(head: &str, fields: &str, contents: &[u8], send: usize) -> Vec<u8> {
    let (from, n) = (from(head), contents.len());
    let status = match from {
        0 => "200 OK\r\n".to_owned(),
        from => format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{n}\r\n", n - 1),
    };
    let length = n - from;
    let mut all = format!(
        "HTTP/1.1 {status}{fields}Accept-Ranges: bytes\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )
    .into_bytes();
    all.extend_from_slice(&contents[from..][..send.min(length)]);
    all
}

fn get(f: &Folder, more: &[&str], name: &str, url: &str) -> Ran {
    let retries: &[&str] = if more.contains(&"--retries") { &[] } else { &["--retries", "0"] };
    run(neater().arg("get").args(retries).args(more).arg("-o").arg(f.path(name)).arg(url))
}

fn names(f: &Folder) -> Vec<String> {
    let mut all: Vec<String> = std::fs::read_dir(f.path(""))
        .expect("a folder")
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    all.sort();
    all
}

#[test]
fn nothing_is_touched_when_the_server_is_down() {
    let f = Folder::new("down");
    let url = "http://127.0.0.1:1/mine";
    // The user's own file, which has the name by accident.
    f.put("mine.part", "my own");
    f.put("mine", "complete");
    let r = get(&f, &[], "mine", url);
    assert_eq!(r.code, 4, "{}", r.err);
    assert!(r.err.contains("nothing shows that neater wrote it") && r.err.contains("move it away"), "{}", r.err);
    assert_eq!((f.read("mine.part"), f.read("mine")), (b"my own".to_vec(), b"complete".to_vec()));
    // A part of an earlier run, with and without something that vouches for it, and a note without
    // a part.
    for etag in [r#""\"v1\"""#, "null"] {
        let note = format!(r#"{{"url":"{url}","etag":{etag},"modified":null,"total":9}}"#);
        f.put("mine.part", "begin");
        f.put("mine.part.json", &note);
        for more in [&[][..], &["-C"]] {
            let r = get(&f, more, "mine", url);
            assert!(r.code == 1 || r.code == 4, "{}", r.err);
            assert_eq!((f.read("mine.part"), f.read("mine")), (b"begin".to_vec(), b"complete".to_vec()), "{}", r.err);
            assert_eq!(f.read("mine.part.json"), note.as_bytes());
        }
    }
    for name in ["mine.part", "mine.part.json"] {
        std::fs::remove_file(f.path(name)).expect("removed");
    }
    f.put("mine.part.json", "my own notes");
    let r = get(&f, &[], "mine", url);
    assert_eq!((r.code, r.err.contains("is not neater's")), (4, true), "{}", r.err);
    assert_eq!(f.read("mine.part.json"), b"my own notes");
    std::fs::remove_file(f.path("mine.part.json")).expect("removed");
    // What was made for nothing goes again.
    assert_eq!(get(&f, &[], "mine", url).code, 1);
    assert_eq!(names(&f), ["mine"]);
}

#[test]
fn a_status_of_the_servers_leaves_a_part_and_a_file_alone() {
    let f = Folder::new("refused");
    let contents = noise(1000, 1);
    let (origin, heads) = scripted(move |head| {
        if head.starts_with("GET /file ") {
            return rest(head, "ETag: \"v1\"\r\n", &contents, 400);
        }
        b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()
    });
    f.put("mine", "complete");
    assert_eq!(get(&f, &[], "mine", &format!("{origin}/file")).code, 1);
    let part = f.read("mine.part");
    assert_eq!(part.len(), 400);
    // The same name, for something else: the part is named with its owner, and nothing is asked
    // for.
    let asked = heads.lock().expect("sound").len();
    for more in [&[][..], &["-C"]] {
        let r = get(&f, more, "mine", &format!("{origin}/gone"));
        assert!(r.code == 4 && r.err.contains("/file, and http"), "{}", r.err);
    }
    assert_eq!(heads.lock().expect("sound").len(), asked);
    let note = String::from_utf8(f.read("mine.part.json")).expect("text").replace("/file", "/gone");
    f.put("mine.part.json", note);
    for more in [&[][..], &["-C"]] {
        let r = get(&f, more, "mine", &format!("{origin}/gone"));
        assert_eq!((r.code, r.err.contains("503")), (5, true), "{}", r.err);
    }
    assert!(f.read("mine.part") == part && f.read("mine") == b"complete");
}

#[test]
fn a_part_is_given_up_only_for_an_answer_that_says_it_is_of_no_use() {
    let f = Folder::new("given-up");
    let (old, new) = (noise(1000, 1), noise(900, 2));
    let expected = new.clone();
    let changed = Arc::new(Mutex::new(false));
    let now = changed.clone();
    let (origin, heads) = scripted(move |head| {
        if !*now.lock().expect("sound") {
            return rest(head, "ETag: \"v1\"\r\n", &old, 400);
        }
        // If-Range does not hold: the whole (RFC 9110 section 13.1.5).
        rest("", "ETag: \"v2\"\r\n", &new, usize::MAX)
    });
    let url = format!("{origin}/file");
    assert_eq!(get(&f, &[], "mine", &url).code, 1);
    assert_eq!(f.read("mine.part").len(), 400);
    *changed.lock().expect("sound") = true;
    let r = get(&f, &["-C"], "mine", &url);
    assert_eq!((r.code, r.err.contains("starting again")), (0, true), "{}", r.err);
    assert!(f.read("mine") == expected);
    assert_eq!(names(&f), ["mine"]);
    let heads = heads.lock().expect("sound");
    assert_eq!((field(&heads[1], "range"), field(&heads[1], "if-range")), (Some("bytes=400-"), Some("\"v1\"")));
}

#[test]
fn a_part_of_one_url_is_never_continued_with_another() {
    let f = Folder::new("mixed");
    let (one, two) = (noise(1000, 1), noise(1000, 2));
    let (origin, _) = scripted(move |head| {
        let contents = if head.starts_with("GET /one") { &one } else { &two };
        rest(head, "ETag: \"same\"\r\n", contents, 600)
    });
    assert_eq!(get(&f, &[], "mine", &format!("{origin}/one")).code, 1);
    let r = get(&f, &["-C"], "mine", &format!("{origin}/two"));
    assert_eq!(r.code, 4, "{}", r.err);
    assert!(r.err.contains("/one, and http") && r.err.contains("/two is asked for"), "{}", r.err);
    assert!(!f.path("mine").exists() && f.read("mine.part").len() == 600);
}

#[test]
fn without_a_strong_validator_nothing_is_continued() {
    let strong = "Last-Modified: Sat, 21 Nov 2026 07:00:46 GMT\r\nDate: Sat, 21 Nov 2026 08:00:46 GMT\r\n";
    for (fields, continued) in [
        ("", false),
        (
            "ETag: W/\"v1\"\r\nLast-Modified: Sat, 21 Nov 2026 07:00:46 GMT\r\nDate: Sat, 21 Nov 2026 08:00:46 GMT\r\n",
            false,
        ),
        ("Last-Modified: Sat, 21 Nov 2026 07:00:46 GMT\r\nDate: Sat, 21 Nov 2026 07:00:46 GMT\r\n", false),
        (strong, true),
    ] {
        let f = Folder::new("weak");
        let contents = noise(1000, 1);
        let expected = contents.clone();
        let (origin, heads) = scripted(move |head| rest(head, fields, &contents, 600));
        let url = format!("{origin}/file");
        let r = get(&f, &["--retries", "2"], "mine", &url);
        let heads = heads.lock().expect("sound").clone();
        if continued {
            assert_eq!(r.code, 0, "{}", r.err);
            assert!(f.read("mine") == expected);
            assert_eq!(field(&heads[1], "if-range"), Some("Sat, 21 Nov 2026 07:00:46 GMT"));
            continue;
        }
        // The rest could be that of another version: it is not asked for, neither now nor later.
        assert_eq!((r.code, heads.len()), (1, 1), "{}", r.err);
        assert!(r.err.contains("600 of 1000 bytes are kept") && !r.err.contains("go on with"), "{}", r.err);
        let r = get(&f, &["-C"], "mine", &url);
        assert_eq!((r.code, r.err.contains("without -C")), (4, true), "{}", r.err);
        assert_eq!(f.read("mine.part").len(), 600);
        // To standard output what was written stays written, and the rest must not follow it.
        let out = neater().args(["get", &url]).output().expect("ran");
        assert_eq!((out.status.code(), &out.stdout[..]), (Some(1), &expected[..600]));
    }
}

#[test]
fn a_part_that_nobody_asked_for_is_no_file() {
    let f = Folder::new("unasked");
    let (origin, _) = scripted(|_| {
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 5-7/100\r\nContent-Length: 3\r\n\r\nabc".to_vec()
    });
    f.put("mine", "complete");
    let r = get(&f, &["--json"], "mine", &format!("{origin}/file"));
    assert_eq!(r.code, 1, "{}", r.err);
    assert_eq!(of(&r.events(), "failed")[0]["kind"], "protocol");
    assert_eq!((names(&f), f.read("mine")), (vec!["mine".to_owned()], b"complete".to_vec()));
    let r = run(neater().arg("get").arg(format!("{origin}/file")));
    assert_eq!((r.code, r.out.as_str()), (1, ""), "{}", r.err);
}

#[test]
fn a_part_that_is_not_the_one_asked_for_is_not_appended() {
    for range in
        ["bytes 399-999/1000", "bytes 400-999/2000", "bytes 400-500/1000", "bytes 400-999", "lines 400-999/1000"]
    {
        let f = Folder::new("wrong-part");
        let contents = noise(1000, 1);
        let (origin, _) = scripted(move |head| {
            if from(head) == 0 {
                return rest(head, "ETag: \"v1\"\r\n", &contents, 400);
            }
            let mut all =
                format!("HTTP/1.1 206 P\r\nETag: \"v1\"\r\nContent-Range: {range}\r\nContent-Length: 600\r\n\r\n")
                    .into_bytes();
            all.extend_from_slice(&contents[400..]);
            all
        });
        let r = get(&f, &["--retries", "1"], "mine", &format!("{origin}/file"));
        assert_eq!(r.code, 1, "{range}: {}", r.err);
        assert!(!f.path("mine").exists() && f.read("mine.part").len() == 400, "{range}");
    }
}

#[test]
fn a_server_that_sends_less_than_was_asked_for_is_asked_for_more_as_long_as_it_sends_any() {
    let f = Folder::new("pieces");
    let contents = noise(5000, 1);
    let whole = contents.clone();
    let (origin, heads) = scripted(move |head| {
        let from = from(head);
        if from == 0 {
            return rest(head, "ETag: \"v1\"\r\n", &contents, 400);
        }
        let to = (from + 500).min(contents.len());
        let range =
            format!("Content-Range: bytes {from}-{}/{}\r\nContent-Length: {}", to - 1, contents.len(), to - from);
        let mut all = format!("HTTP/1.1 206 P\r\nETag: \"v1\"\r\n{range}\r\nConnection: close\r\n\r\n").into_bytes();
        all.extend_from_slice(&contents[from..to]);
        all
    });
    // One retry, for the answer that broke.
    let r = get(&f, &["--retries", "1"], "mine", &format!("{origin}/file"));
    assert_eq!((r.code, f.read("mine") == whole), (0, true), "{}", r.err);
    assert_eq!(heads.lock().expect("sound").len(), 11);
}

#[test]
fn what_http_cannot_do_is_refused_before_anything_is_sent() {
    let f = Folder::new("one-way");
    let (origin, heads) = scripted(|head| rest(head, "", b"hello", 5));
    for needs in ["send-only", "receive-only"] {
        let r = get(&f, &["--needs", needs], "mine", &format!("{origin}/file"));
        assert_eq!(r.code, 2, "{needs}: {}", r.err);
        assert!(r.err.contains("both directions"), "{}", r.err);
    }
    assert!(heads.lock().expect("sound").is_empty() && names(&f).is_empty());
}

#[test]
fn a_redirection_that_cannot_be_followed_is_the_servers_fault() {
    let f = Folder::new("nowhere");
    let (origin, _) = scripted(|head| match head.split(' ').nth(1) {
        Some("/login?next=http://elsewhere/") => rest(head, "", b"hello", 5),
        Some("/file") => b"HTTP/1.1 302 F\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => b"HTTP/1.1 302 F\r\nLocation: /login?next=http://elsewhere/\r\nContent-Length: 0\r\n\r\n".to_vec(),
    });
    let r = get(&f, &["--json"], "mine", &format!("{origin}/file"));
    assert_eq!((r.code, &of(&r.events(), "failed")[0]["kind"]), (1, &"redirect".into()), "{}", r.err);
    let r = get(&f, &[], "mine", &format!("{origin}/other"));
    assert_eq!((r.code, f.read("mine")), (0, b"hello".to_vec()), "{}", r.err);
}

fn serving(contents: &'static [u8]) -> String {
    scripted(move |head| rest(head, "ETag: \"one\"\r\n", contents, contents.len())).0
}

#[test]
fn nothing_is_written_through_a_link() {
    let origin = serving(b"new");
    let f = Folder::new("links");
    let victim = f.put("victim", "");
    std::os::unix::fs::symlink(&victim, f.path("y.part")).expect("linked");
    let r = get(&f, &[], "y", &format!("{origin}/y"));
    assert_eq!((r.code, f.read("victim").len()), (4, 0), "{}", r.err);
    assert!(r.err.contains("y.part is a link"), "{}", r.err);
    // Nor through one that leads nowhere yet.
    std::os::unix::fs::symlink(f.path("nowhere"), f.path("z.part.json")).expect("linked");
    let r = get(&f, &[], "z", &format!("{origin}/z"));
    assert_eq!((r.code, f.path("nowhere").exists()), (4, false), "{}", r.err);
    // Nor into a file that has another name, too.
    let other = f.put("other", "");
    std::fs::hard_link(&other, f.path("x.part")).expect("linked");
    let r = get(&f, &[], "x", &format!("{origin}/x"));
    assert_eq!((r.code, f.read("other").len()), (4, 0), "{}", r.err);
    assert_eq!(names(&f), ["other", "victim", "x.part", "y.part", "z.part.json"]);
}

#[test]
fn a_file_for_few_stays_one_for_few() {
    use std::os::unix::fs::PermissionsExt;
    let origin = serving(b"new");
    let f = Folder::new("modes");
    let secret = f.put("secret", "old");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("allowed");
    let r = get(&f, &[], "secret", &format!("{origin}/secret"));
    assert_eq!((r.code, f.read("secret")), (0, b"new".to_vec()), "{}", r.err);
    assert_eq!(secret.metadata().expect("there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn no_file_takes_the_name_of_anothers_part() {
    let origin = serving(b"new");
    let f = Folder::new("names");
    for pair in [["w", "w.part"], ["w.part.json", "w"]] {
        let urls = pair.map(|n| format!("{origin}/{n}"));
        let r = run(neater().args(["get", "--output-dir"]).arg(f.path("")).args(&urls));
        assert_eq!((r.code, names(&f).len()), (2, 0), "{pair:?}: {}", r.err);
    }
}

#[test]
fn a_name_that_is_too_long_for_more_is_saved_all_the_same() {
    let origin = serving(b"new");
    let f = Folder::new("long");
    for name in ["n".repeat(248), "n".repeat(255), format!("{}\u{fc}", "\u{fc}".repeat(124))] {
        let escaped: String = name.bytes().map(|b| format!("%{b:02x}")).collect();
        let r = run(neater().args(["get", "--output-dir"]).arg(f.path("")).arg(format!("{origin}/{escaped}")));
        assert_eq!((r.code, names(&f)), (0, vec![name.clone()]), "{}", r.err);
        std::fs::remove_file(f.path(&name)).expect("removed");
    }
}

#[test]
fn a_url_whose_last_part_is_no_name_is_not_saved_as_another() {
    let origin = serving(b"new");
    let f = Folder::new("unnamed");
    f.put("index.html", "mine");
    let r = run(neater().args(["get", "--output-dir"]).arg(f.path("")).arg(format!("{origin}/esc%1b%5B31mred.txt")));
    assert_eq!((r.code, f.read("index.html")), (2, b"mine".to_vec()), "{}", r.err);
    assert!(r.err.contains("no file's name") && r.err.contains("-o FILE"), "{}", r.err);
    let r = run(neater().args(["get", "--output-dir"]).arg(f.path("")).arg(format!("{origin}/folder/")));
    assert_eq!((r.code, f.read("index.html")), (0, b"new".to_vec()), "{}", r.err);
}

/// Another user may make a file of that name in a folder that all may write to, such as /tmp: it
/// would be theirs with what we write into it.
#[test]
fn what_is_another_users_is_neither_written_to_nor_believed() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let f = Folder::new("others");
    let contents = noise(1000, 1);
    let whole = contents.clone();
    let (origin, heads) = scripted(move |head| rest(head, "ETag: \"v1\"\r\n", &contents, usize::MAX));
    let url = format!("{origin}/file");
    let theirs = |name: &str, text: &str| {
        let path = f.put(name, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("ours");
        chown(&path, Some(65534), None).is_ok()
    };
    if !theirs("mine.part", "") {
        return say_skipped("files of other users: only root can give a file away");
    }
    let note = format!(r#"{{"url":"{url}","etag":"\"v1\"","modified":null,"date":null,"total":1000}}"#);
    for more in [&[][..], &["-C"]] {
        let r = get(&f, more, "mine", &url);
        assert_eq!((r.code, r.err.contains("another user's")), (4, true), "{}", r.err);
        assert!(f.read("mine.part").is_empty() && !f.path("mine").exists());
    }
    // Not the note alone, either: our own part, with another user's note on what it is, or an empty
    // one to be filled.
    std::fs::remove_file(f.path("mine.part")).expect("removed");
    for text in [note.as_str(), ""] {
        f.put("mine.part", "evil");
        assert!(theirs("mine.part.json", text));
        let r = get(&f, &[], "mine", &url);
        assert_eq!((r.code, r.err.contains("is not neater's")), (4, true), "{}", r.err);
        assert_eq!((f.read("mine.part"), f.read("mine.part.json")), (b"evil".to_vec(), text.as_bytes().to_vec()));
        std::fs::remove_file(f.path("mine.part")).expect("removed");
    }
    std::fs::remove_file(f.path("mine.part.json")).expect("removed");
    assert!(heads.lock().expect("sound").is_empty(), "nothing was asked for");
    let r = get(&f, &[], "mine", &url);
    assert!(r.code == 0 && f.read("mine") == whole, "{}", r.err);
}

#[test]
fn a_file_without_a_part_is_complete_only_if_it_is_as_long_as_the_servers() {
    let f = Folder::new("complete");
    let contents = noise(1000, 1);
    let whole = contents.clone();
    let (origin, heads) = scripted(move |head| {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let close = "Connection: close\r\n\r\n";
        match (head.starts_with("HEAD "), path.as_str()) {
            (true, "/parts") => format!("HTTP/1.1 405 No\r\nContent-Length: 0\r\n{close}").into_bytes(),
            (true, "/empty" | "/empty-unknown") => {
                format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{close}").into_bytes()
            }
            (true, "/unknown") => format!("HTTP/1.1 200 OK\r\n{close}").into_bytes(),
            (true, "/gone") => format!("HTTP/1.1 404 No\r\n{close}").into_bytes(),
            (true, _) => rest("", "", &contents, 0),
            (false, "/parts" | "/empty") => {
                format!("HTTP/1.1 206 P\r\nContent-Range: bytes 0-0/1000\r\nContent-Length: 1\r\n{close}x").into_bytes()
            }
            (false, "/gone") => format!("HTTP/1.1 404 No\r\nContent-Length: 0\r\n{close}").into_bytes(),
            (false, _) => [format!("HTTP/1.1 200 OK\r\n{close}").as_bytes(), &contents[..]].concat(),
        }
    });
    f.put("whole", &whole);
    f.put("half", &whole[..500]);
    for path in ["/file", "/parts", "/empty"] {
        let r = get(&f, &["-C", "--json"], "whole", &format!("{origin}{path}"));
        assert_eq!((r.code, &of(&r.events(), "done")[0]["outcome"]), (0, &"already-there".into()), "{path}: {}", r.out);
        // As curl leaves it when it is interrupted.
        let r = get(&f, &["-C"], "half", &format!("{origin}{path}"));
        assert_eq!((r.code, r.err.contains("500 bytes") && r.err.contains("1000")), (4, true), "{path}: {}", r.err);
        assert!(f.read("half") == whole[..500]);
    }
    for path in ["/unknown", "/empty-unknown"] {
        let r = get(&f, &["-C"], "half", &format!("{origin}{path}"));
        assert_eq!((r.code, r.err.contains("not known whether this one is complete")), (0, true), "{path}: {}", r.err);
    }
    assert_eq!(get(&f, &["-C"], "whole", &format!("{origin}/gone")).code, 5);
    assert_eq!(get(&f, &["-C"], "whole", "http://127.0.0.1:1/file").code, 1, "nobody can be asked");
    let asked = heads.lock().expect("sound").len();
    // A folder is no file that is there.
    std::fs::create_dir(f.path("folder")).expect("made");
    let r = get(&f, &["-C"], "folder", &format!("{origin}/file"));
    assert_eq!((r.code, r.err.contains("is a folder")), (4, true), "{}", r.err);
    assert_eq!(heads.lock().expect("sound").len(), asked);
    assert_eq!(names(&f), ["folder", "half", "whole"]);
}

#[test]
fn a_part_without_a_length_is_no_longer_than_it_says() {
    let f = Folder::new("chunked");
    let contents = noise(1000, 1);
    let (origin, _) = scripted(move |head| {
        if from(head) == 0 {
            return rest(head, "ETag: \"v1\"\r\n", &contents, 400);
        }
        let fields = "ETag: \"v1\"\r\nContent-Range: bytes 400-499/1000\r\nTransfer-Encoding: chunked\r\n";
        let chunk = |data: &[u8]| [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat();
        let head = format!("HTTP/1.1 206 P\r\n{fields}Connection: close\r\n\r\n").into_bytes();
        [head, chunk(&contents[400..500]), chunk(&[b'!'; 100]), b"0\r\n\r\n".to_vec()].concat()
    });
    let r = get(&f, &["--retries", "1", "--json"], "mine", &format!("{origin}/file"));
    assert_eq!((r.code, &of(&r.events(), "failed")[0]["kind"]), (1, &"protocol".into()), "{}", r.out);
    assert_eq!(f.read("mine.part"), noise(1000, 1)[..f.read("mine.part").len()], "none of what is too much");
    assert!(!f.path("mine").exists());
}

#[test]
fn a_file_that_became_shorter_is_begun_again_at_once() {
    let f = Folder::new("shorter");
    let (old, new) = (noise(1000, 1), noise(300, 2));
    let expected = new.clone();
    let (origin, heads) = scripted({
        let asked = std::sync::atomic::AtomicUsize::new(0);
        move |head| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => rest(head, "ETag: \"v1\"\r\n", &old, 400),
            _ if from(head) > 0 => {
                b"HTTP/1.1 416 R\r\nContent-Range: bytes */300\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    .to_vec()
            }
            _ => rest(head, "ETag: \"v2\"\r\n", &new, usize::MAX),
        }
    });
    let url = format!("{origin}/file");
    assert_eq!(get(&f, &[], "mine", &url).code, 1);
    let r = get(&f, &["-C"], "mine", &url);
    assert_eq!((r.code, r.err.contains("became shorter: starting again")), (0, true), "{}", r.err);
    assert!(f.read("mine") == expected && names(&f) == ["mine"]);
    assert_eq!(heads.lock().expect("sound").len(), 3);
}

/// Breaks that each come after much has been brought are no reason to give up; a server that brings
/// next to nothing each time is.
#[test]
fn repetitions_that_bring_something_are_not_used_up() {
    let f = Folder::new("breaks");
    let contents = noise(8 << 20, 5);
    let all = contents.clone();
    // Six answers of 1.5 MB, of which all but the last break.
    let (origin, heads) = scripted(move |head| rest(head, "ETag: \"v1\"\r\n", &all, 3 << 19));
    let r = get(&f, &["--retries", "1", "--json"], "whole", &format!("{origin}/a"));
    assert_eq!(r.code, 0, "{}{}", r.out, r.err);
    assert!(f.read("whole") == contents);
    assert_eq!(heads.lock().expect("sound").len(), 6);
    assert_eq!(of(&r.events(), "done")[0]["retries"], 5, "{}", r.out);

    let (origin, heads) = scripted(move |head| rest(head, "ETag: \"v1\"\r\n", &contents, 1000));
    let r = get(&f, &["--retries", "2"], "drops", &format!("{origin}/a"));
    assert_eq!((r.code, r.err.contains("after 2 repetitions")), (1, true), "{}", r.err);
    assert_eq!(heads.lock().expect("sound").len(), 3);
}

#[test]
fn a_server_that_sends_a_little_each_time_is_not_asked_without_end() {
    let f = Folder::new("crumbs");
    let contents = noise(50_000, 1);
    let (origin, heads) = scripted(move |head| {
        let from = from(head);
        if from == 0 {
            return rest(head, "ETag: \"v1\"\r\n", &contents, 100);
        }
        let to = (from + 99).min(contents.len() - 1);
        let range = format!("Content-Range: bytes {from}-{to}/{}\r\nContent-Length: {}", contents.len(), to + 1 - from);
        let head = format!("HTTP/1.1 206 P\r\nETag: \"v1\"\r\n{range}\r\nConnection: close\r\n\r\n");
        [head.as_bytes(), &contents[from..=to]].concat()
    });
    let r = get(&f, &["--json", "--retries", "1"], "mine", &format!("{origin}/file"));
    assert_eq!((r.code, &of(&r.events(), "failed")[0]["kind"]), (1, &"parts".into()), "{}", r.out);
    let asked = heads.lock().expect("sound").len();
    assert!((60..80).contains(&asked), "{asked}");
    // What came is kept, and can be gone on with.
    assert_eq!(f.read("mine.part").len(), asked * 100);
}
