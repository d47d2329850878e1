//! Answers, looked at without a connection.

use super::*;
use http_body_util::BodyExt;

/// A folder that is removed again.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("neater-files-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("root/sub")).expect("made");
        std::fs::write(path.join("root/a.txt"), b"0123456789").expect("written");
        std::fs::write(path.join("root/sub/b <&>.bin"), b"b").expect("written");
        std::fs::write(path.join("secret"), b"secret").expect("written");
        std::os::unix::fs::symlink("../secret", path.join("root/leak")).expect("linked");
        std::os::unix::fs::symlink("..", path.join("root/up")).expect("linked");
        std::os::unix::fs::symlink("a.txt", path.join("root/inside")).expect("linked");
        Self(path)
    }

    fn files(&self) -> Files {
        Files::new(self.0.join("root")).expect("a folder")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ask(files: &Files, method: Method, path: &str, fields: &[(&str, &str)]) -> Response<FileBody> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    files.answer(&request.body(()).expect("a request"))
}

fn field<'a>(r: &'a Response<FileBody>, name: &str) -> &'a str {
    r.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

async fn body(r: Response<FileBody>) -> Vec<u8> {
    r.into_body().collect().await.expect("a body").to_bytes().to_vec()
}

#[tokio::test]
async fn a_file_comes_with_what_is_known_of_it() {
    let folder = Folder::new("file");
    let r = ask(&folder.files(), Method::GET, "/a.txt", &[]);
    assert_eq!(r.status(), StatusCode::OK);
    assert_eq!((field(&r, "content-length"), field(&r, "accept-ranges")), ("10", "bytes"));
    assert_eq!(field(&r, "content-type"), "text/plain; charset=utf-8");
    assert!(field(&r, "etag").starts_with('"') && field(&r, "etag").ends_with('"'));
    assert!(httpdate::parse_http_date(field(&r, "last-modified")).is_ok());
    assert!(httpdate::parse_http_date(field(&r, "date")).is_ok());
    assert_eq!(body(r).await, b"0123456789");
}

#[tokio::test]
async fn a_head_says_what_a_get_would_and_has_no_body() {
    let folder = Folder::new("head");
    let r = ask(&folder.files(), Method::HEAD, "/a.txt", &[("range", "bytes=2-3")]);
    assert_eq!((r.status(), field(&r, "content-length")), (StatusCode::OK, "10"));
    assert!(body(r).await.is_empty());
}

#[tokio::test]
async fn a_part_is_a_part_and_one_beyond_the_end_is_refused() {
    let folder = Folder::new("part");
    let files = folder.files();
    let r = ask(&files, Method::GET, "/a.txt", &[("range", "bytes=2-3")]);
    assert_eq!((r.status(), field(&r, "content-range")), (StatusCode::PARTIAL_CONTENT, "bytes 2-3/10"));
    assert_eq!(body(r).await, b"23");
    let r = ask(&files, Method::GET, "/a.txt", &[("range", "bytes=10-")]);
    assert_eq!((r.status(), field(&r, "content-range")), (StatusCode::RANGE_NOT_SATISFIABLE, "bytes */10"));
    let r = ask(&files, Method::GET, "/a.txt", &[("range", "bytes=0-1,4-5")]);
    assert_eq!(r.status(), StatusCode::OK);
    assert_eq!(body(r).await.len(), 10);
}

#[test]
fn a_tag_that_is_still_good_spares_the_body() {
    let folder = Folder::new("tag");
    let files = folder.files();
    let tag = field(&ask(&files, Method::GET, "/a.txt", &[]), "etag").to_owned();
    let r = ask(&files, Method::GET, "/a.txt", &[("if-none-match", &tag)]);
    assert_eq!((r.status(), field(&r, "etag")), (StatusCode::NOT_MODIFIED, &tag[..]));
    assert_eq!(r.body().left(), 0);
    std::fs::write(folder.0.join("root/a.txt"), b"other").expect("written");
    assert_eq!(ask(&files, Method::GET, "/a.txt", &[("if-none-match", &tag)]).status(), StatusCode::OK);
    let range = [("range", "bytes=2-"), ("if-range", &tag[..])];
    assert_eq!(ask(&files, Method::GET, "/a.txt", &range).status(), StatusCode::OK);
    assert_eq!(ask(&files, Method::GET, "/a.txt", &[("if-match", &tag)]).status(), StatusCode::PRECONDITION_FAILED);
    // Rewritten with the same length, and with the time put back.
    let path = folder.0.join("root/a.txt");
    let before = field(&ask(&files, Method::GET, "/a.txt", &[]), "etag").to_owned();
    let modified = path.metadata().and_then(|m| m.modified()).expect("a time");
    std::thread::sleep(Duration::from_millis(20));
    std::fs::write(&path, b"OTHER").expect("written");
    std::fs::File::options().write(true).open(&path).and_then(|f| f.set_modified(modified)).expect("set");
    assert_ne!(field(&ask(&files, Method::GET, "/a.txt", &[]), "etag"), before);
}

#[test]
fn nothing_outside_the_folder_is_served() {
    let folder = Folder::new("outside");
    let files = folder.files();
    for (path, status) in [
        ("/../secret", 400),
        ("/%2e%2e/secret", 400),
        ("/sub/../../secret", 400),
        ("/..%2fsecret", 400),
        ("/%2e%2e%2fsecret", 400),
        ("/a.txt%00", 400),
        ("/%zz", 400),
        ("/leak", 403),
        ("/up/secret", 403),
        ("/up/root/a.txt", 200),
        ("/inside", 200),
        ("//a.txt", 200),
        ("/./a.txt", 200),
        ("/a.txt/", 404),
        ("/a.txt/x", 404),
        ("/nothing", 404),
    ] {
        assert_eq!(ask(&files, Method::GET, path, &[]).status().as_u16(), status, "{path}");
    }
    let long = format!("/{}", "x".repeat(5000));
    assert_eq!(ask(&files, Method::GET, &long, &[]).status(), StatusCode::NOT_FOUND);
}

#[test]
fn only_regular_files_are_served() {
    let folder = Folder::new("regular");
    let socket = std::os::unix::net::UnixListener::bind(folder.0.join("root/socket")).expect("bound");
    let status = ask(&folder.files(), Method::GET, "/socket", &[]).status();
    assert!(status.is_client_error() || status.is_server_error(), "{status}");
    drop(socket);
}

#[tokio::test]
async fn a_folder_is_listed_or_shows_its_index() {
    let folder = Folder::new("folder");
    let files = folder.files();
    let r = ask(&files, Method::GET, "/sub", &[]);
    assert_eq!((r.status(), field(&r, "location")), (StatusCode::MOVED_PERMANENTLY, "./sub/"));
    assert_eq!(ask(&files, Method::GET, "sub", &[]).status(), StatusCode::BAD_REQUEST, "no path, but an authority");
    let page = String::from_utf8(body(ask(&files, Method::GET, "/sub/", &[])).await).expect("text");
    assert!(page.contains("b &lt;&amp;&gt;.bin") && page.contains("./b%20%3C%26%3E.bin"), "{page}");
    let page = String::from_utf8(body(ask(&files, Method::GET, "/", &[])).await).expect("text");
    assert!(page.contains("inside") && !page.contains("leak") && !page.contains("./up"), "{page}");
    let quiet = files.clone().listings(false);
    assert_eq!(ask(&quiet, Method::GET, "/sub/", &[]).status(), StatusCode::FORBIDDEN);
    std::fs::write(folder.0.join("root/sub/index.html"), b"index").expect("written");
    assert_eq!(body(ask(&quiet, Method::GET, "/sub/", &[])).await, b"index");
}

#[test]
fn conditions_count_for_listings() {
    let folder = Folder::new("listed-if");
    let files = folder.files();
    let status = |name: &'static str, value: &'static str| ask(&files, Method::GET, "/sub/", &[(name, value)]).status();
    assert_eq!(status("if-match", "\"x\""), StatusCode::PRECONDITION_FAILED);
    assert_eq!(status("if-match", "*"), StatusCode::OK);
    assert_eq!(status("if-none-match", "*"), StatusCode::NOT_MODIFIED);
    assert_eq!(status("if-none-match", "\"x\""), StatusCode::OK);
    // It has no date, so none decides.
    assert_eq!(status("if-unmodified-since", "Sun, 09 Sep 2001 01:46:39 GMT"), StatusCode::OK);
    // Where the answer is no 2xx, conditions do not count.
    assert_eq!(ask(&files, Method::GET, "/sub", &[("if-match", "\"x\"")]).status(), StatusCode::MOVED_PERMANENTLY);
}

/// Over plain TCP what leaves after the head would wait for an acknowledgement.
#[tokio::test]
async fn the_first_piece_is_there_with_the_head() {
    let folder = Folder::new("ahead");
    let mut response = ask(&folder.files(), Method::GET, "/a.txt", &[]);
    let mut frame = core::pin::pin!(response.body_mut().frame());
    let first = core::future::poll_fn(|cx| core::task::Poll::Ready(frame.as_mut().poll(cx))).await;
    assert!(matches!(first, core::task::Poll::Ready(Some(Ok(f))) if f.data_ref().is_some_and(|d| d.len() == 10)));
}

#[test]
fn a_folder_whose_index_cannot_be_served_is_not_listed_instead() {
    let folder = Folder::new("index-out");
    std::os::unix::fs::symlink("../../secret", folder.0.join("root/sub/index.html")).expect("linked");
    assert_eq!(ask(&folder.files(), Method::GET, "/sub/", &[]).status(), StatusCode::FORBIDDEN);
    // A folder of that name is none, and neither is a link that leads nowhere.
    std::fs::remove_file(folder.0.join("root/sub/index.html")).expect("removed");
    std::fs::create_dir(folder.0.join("root/sub/index.html")).expect("made");
    assert_eq!(ask(&folder.files(), Method::GET, "/sub/", &[]).status(), StatusCode::OK);
    std::fs::remove_dir(folder.0.join("root/sub/index.html")).expect("removed");
    std::os::unix::fs::symlink("nowhere", folder.0.join("root/sub/index.html")).expect("linked");
    assert_eq!(ask(&folder.files(), Method::GET, "/sub/", &[]).status(), StatusCode::OK);
}

#[test]
fn other_methods_are_told_what_is_allowed() {
    let folder = Folder::new("methods");
    let r = ask(&folder.files(), Method::DELETE, "/a.txt", &[]);
    assert_eq!((r.status(), field(&r, "allow")), (StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD, OPTIONS"));
    assert_eq!(ask(&folder.files(), Method::OPTIONS, "/a.txt", &[]).status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_served_ends_in_an_error() {
    let folder = Folder::new("shrink");
    let path = folder.0.join("root/big");
    std::fs::write(&path, vec![7; 1 << 20]).expect("written");
    let mut body = ask(&folder.files(), Method::GET, "/big", &[]).into_body();
    body.frame().await.expect("a frame").expect("data");
    std::fs::File::options().write(true).open(&path).and_then(|f| f.set_len(1000)).expect("cut");
    let mut last = body.frame().await;
    while let Some(Ok(_)) = last {
        last = body.frame().await;
    }
    assert!(matches!(last, Some(Err(_))));
}

/// What is answered without another thread is what would be answered by one; links, folders and
/// what is refused are not for it.
#[tokio::test]
async fn what_is_in_memory_is_answered_at_once_and_as_it_would_be_otherwise() {
    let folder = Folder::new("at-once");
    std::fs::write(folder.0.join("root/empty"), b"").expect("written");
    std::fs::write(folder.0.join("root/sub/index.html"), b"<p>").expect("written");
    let files = folder.files();
    for path in ["/a.txt", "/empty", "/sub/b%20%3C&%3E.bin", "/sub/", "/./a.txt"] {
        for (method, fields) in [
            (Method::GET, &[][..]),
            (Method::HEAD, &[]),
            (Method::GET, &[("range", "bytes=0-0")]),
            (Method::GET, &[("if-none-match", "*")]),
        ] {
            let mut request = Request::builder().method(method.clone()).uri(path);
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            let request = request.body(()).expect("a request");
            let slow = files.answer(&request);
            let Some(fast) = files.answer_at_once(&request) else {
                // A kernel or file system that knows no such flags.
                println!("SKIP: nothing is opened at once here");
                return;
            };
            assert_eq!(fast.status(), slow.status(), "{method} {path} {fields:?}");
            let but_date = |r: &Response<FileBody>| {
                let mut all = r.headers().clone();
                all.remove(DATE);
                all
            };
            assert_eq!(but_date(&fast), but_date(&slow), "{method} {path} {fields:?}");
            assert_eq!(body(fast).await, body(slow).await, "{method} {path} {fields:?}");
        }
    }
    for path in ["/leak", "/up/secret", "/inside", "/", "/sub", "/a.txt/", "/nothing", "/..", "/.hidden", "/%00"] {
        let request = Request::builder().uri(path).body(()).expect("a request");
        assert!(files.answer_at_once(&request).is_none(), "{path}");
    }
    let post = Request::builder().method(Method::POST).uri("/a.txt").body(()).expect("a request");
    assert!(files.answer_at_once(&post).is_none());
}

/// Files whose length has no meaning: their content is what reading returns.
#[test]
fn files_that_are_made_when_they_are_read_are_served_whole() {
    for (root, path) in [("/proc/self", "/status"), ("/sys/kernel", "/uevent_seqnum")] {
        let Ok(expected) = std::fs::read(format!("{root}{path}")) else { continue };
        let files = Files::new(root).expect("a folder");
        let request = http::Request::get(path).body(()).expect("a request");
        assert!(files.answer_at_once(&request).is_none(), "{root}");
        let response = files.answer(&request);
        let length: usize = response.headers()["content-length"].to_str().expect("text").parse().expect("a number");
        assert!(response.status() == 200 && length > 0, "{root}: {}", response.status());
        // The status of a process changes from one moment to the next, by a few letters.
        assert!(length.abs_diff(expected.len()) < 100, "{root}: {length} of {}", expected.len());
        assert!(!response.headers().contains_key("etag") && response.body().left() == length as u64);
    }
}
