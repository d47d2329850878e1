//! What is answered: the files of one folder.
//!
//! *Responsible for* finding the file that a path names, the fields of the answer, conditions and
//! ranges. *Not responsible for* connections.
//!
//! *Invariants*: a path is only ever joined to the root from names that are neither `.` nor `..`
//! and hold no slash; what was opened is checked again by where it really is, so that neither a
//! link nor a race leads out of the root; only regular files are served.

use super::body::{FileBody, Reading};
use super::conditions::{Part, Validators, Verdict, judge, part};
use super::listing;
use super::reserve::{DescriptorReserve, Opened, is_exhausted};
use crate::url::unescape;
use http::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, LAST_MODIFIED, LOCATION,
    RETRY_AFTER, SERVER, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A folder of files.
#[derive(Clone, Debug)]
pub struct Files {
    root: PathBuf,
    /// The kernel can report that a call would need a disk (Linux 5.12).
    at_once: bool,
    /// The file system of the root, if that is memory.
    memory: Option<u64>,
    listings: bool,
    hidden: bool,
    reserve: Arc<DescriptorReserve>,
}

/// File systems that are memory (`statfs(2)`).
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// What a path led to.
enum Found {
    File(Opened, Metadata, PathBuf),
    Folder(PathBuf),
    Nothing(StatusCode),
}

impl Files {
    /// The files below `root`.
    ///
    /// # Errors
    /// `root` does not exist, or is no folder.
    pub fn new(root: impl AsRef<Path>) -> io::Result<Self> {
        let root = root.as_ref().canonicalize()?;
        if !root.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a folder"));
        }
        let memory = rustix::fs::statfs(&root).is_ok_and(|fs| [TMPFS, RAMFS].contains(&fs.f_type));
        let memory = if memory { Some(root.metadata()?.dev()) } else { None };
        let at_once = !matches!(look_up_at_once(&root, OFlags::PATH), Err(Errno::NOSYS | Errno::INVAL | Errno::PERM));
        Ok(Self { root, at_once, memory, listings: true, hidden: false, reserve: Arc::default() })
    }

    /// As on a kernel that cannot report what would need a disk.
    #[cfg(test)]
    pub(super) fn never_at_once(mut self) -> Self {
        self.at_once = false;
        self
    }

    /// Keeps these descriptors back for files.
    pub(super) fn keep_back(&mut self, reserve: Arc<DescriptorReserve>) {
        self.reserve = reserve;
    }

    /// Whether a folder without `index.html` is answered with a page that lists it. Default: yes.
    #[must_use]
    pub fn listings(mut self, yes: bool) -> Self {
        self.listings = yes;
        self
    }

    /// Whether what has a name that begins with a dot (`.env`, `.git`) is served and listed, as far
    /// as its name is asked for; what a link of another name leads to is served in any case.
    /// Default: no.
    #[must_use]
    pub fn hidden(mut self, yes: bool) -> Self {
        self.hidden = yes;
        self
    }

    /// The folder, as it really is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Answers a request. Looks at the file system, so it may take its time.
    #[must_use]
    pub fn answer<B>(&self, request: &Request<B>) -> Response<FileBody> {
        let response = match *request.method() {
            Method::GET | Method::HEAD => self.get(request),
            Method::OPTIONS => allow(StatusCode::NO_CONTENT),
            // RFC 9110 section 15.6.2: what is not known at all is another thing than what is not
            // allowed here.
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE | Method::TRACE | Method::CONNECT => {
                allow(StatusCode::METHOD_NOT_ALLOWED)
            }
            _ => allow(StatusCode::NOT_IMPLEMENTED),
        };
        let mut response = complete(request, response);
        response.body_mut().read_ahead();
        response
    }

    /// Answers a request for a file if that needs no disk: its name and its beginning are in
    /// memory, and no link is on the way. `None`: [`Self::answer`] finds out.
    pub(super) fn answer_at_once<B>(&self, request: &Request<B>) -> Option<Response<FileBody>> {
        let get = request.method() == Method::GET;
        if !self.at_once || !get && request.method() != Method::HEAD {
            return None;
        }
        let path = request.uri().path();
        let mut file = self.named(path).ok()?;
        if path.ends_with('/') {
            file.push(INDEX);
        }
        let (opened, meta) = self.open_at_once(&file)?;
        if is_made(&opened, &meta, &file) {
            return None;
        }
        let response = serve((opened, self.reading(&meta)), &meta, &file, request.headers(), get);
        let mut response = complete(request, response);
        response.body_mut().read_ahead_at_once().then_some(response)
    }

    fn get<B>(&self, request: &Request<B>) -> Response<FileBody> {
        let path = request.uri().path();
        match self.find(path) {
            Found::Nothing(status) => text(status),
            Found::File(..) if path.ends_with('/') => text(StatusCode::NOT_FOUND),
            Found::File(file, meta, name) if is_made(&file, &meta, &name) => {
                made_now(request.headers(), made(&file, &name))
            }
            Found::File(file, meta, name) => {
                // RFC 9110 section 14.2: Range is for GET.
                serve((file, self.reading(&meta)), &meta, &name, request.headers(), request.method() == Method::GET)
            }
            Found::Folder(folder) => self.folder(&folder, path, request),
        }
    }

    fn folder<B>(&self, folder: &Path, path: &str, request: &Request<B>) -> Response<FileBody> {
        if !path.ends_with('/') {
            // Relative links of the page need the slash. Only the last name is given: it is right
            // behind any proxy.
            let last = path.rsplit('/').next().unwrap_or_default();
            let query = request.uri().query().map(|q| format!("?{q}")).unwrap_or_default();
            let mut response = text(StatusCode::MOVED_PERMANENTLY);
            if let Ok(location) = HeaderValue::from_str(&format!("./{last}/{query}")) {
                response.headers_mut().insert(LOCATION, location);
            }
            return response;
        }
        match self.open(&folder.join(INDEX)) {
            Found::File(file, meta, name) => {
                return serve(
                    (file, self.reading(&meta)),
                    &meta,
                    &name,
                    request.headers(),
                    request.method() == Method::GET,
                );
            }
            Found::Folder(_) | Found::Nothing(StatusCode::NOT_FOUND) => {}
            // An index page that cannot be served must not open the folder's listing.
            Found::Nothing(status) => return text(status),
        }
        if !self.listings {
            return text(StatusCode::FORBIDDEN);
        }
        let shown = unescape(path).unwrap_or_else(|| path.to_owned());
        let listed = self.reserve.with(|| listing::page(folder, &shown, &self.root, self.hidden));
        self.reserve.refill();
        match listed {
            Ok(page) => made_now(request.headers(), with_length(StatusCode::OK, "text/html; charset=utf-8", page)),
            Err(e) => text(status_of(&e)),
        }
    }

    fn find(&self, path: &str) -> Found {
        match self.named(path) {
            Ok(file) => self.open(&file),
            Err(status) => Found::Nothing(status),
        }
    }

    /// The file that a path names, below the root.
    fn named(&self, path: &str) -> Result<PathBuf, StatusCode> {
        // RFC 9112 section 3.2.1: a path begins with a slash, or the target is of another form.
        if !path.starts_with('/') {
            return Err(StatusCode::BAD_REQUEST);
        }
        let mut file = self.root.clone();
        for name in path.split('/') {
            let Some(name) = unescape(name) else { return Err(StatusCode::BAD_REQUEST) };
            match name.as_str() {
                "" | "." => {}
                // A client that means well has worked this out itself (RFC 3986 section 5.2.4).
                ".." => return Err(StatusCode::BAD_REQUEST),
                name if name.contains(['/', '\0']) => return Err(StatusCode::BAD_REQUEST),
                name if name.starts_with('.') && !self.hidden => return Err(StatusCode::NOT_FOUND),
                name => file.push(name),
            }
        }
        Ok(file)
    }

    /// How a file is read without waiting for a disk.
    fn reading(&self, meta: &Metadata) -> Reading {
        match self.memory {
            _ if !self.at_once => Reading::Elsewhere,
            Some(dev) if dev == meta.dev() => Reading::Memory,
            _ => Reading::Cached,
        }
    }

    /// As [`Self::open`], if that needs no disk. The root is where it really is, and the names
    /// behind it are plain: where no link is followed nothing leads out.
    fn open_at_once(&self, path: &Path) -> Option<(Opened, Metadata)> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.reserve.open(|| Ok(File::from(look_up_at_once(path, flags)?))).ok()?;
        let meta = file.metadata().ok()?;
        meta.is_file().then_some((file, meta))
    }

    fn open(&self, path: &Path) -> Found {
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(e) => return Found::Nothing(status_of(&e)),
        };
        if !real.starts_with(&self.root) {
            tracing::warn!(target: "neater::serve", "refused: {} leads out of the folder", path.display());
            return Found::Nothing(StatusCode::FORBIDDEN);
        }
        // Without O_NONBLOCK a pipe would block until there is a writer.
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY;
        let opened = self.reserve.open(|| OpenOptions::new().read(true).custom_flags(flags).open(&real));
        let (file, meta) = match opened.and_then(|f| f.metadata().map(|m| (f, m))) {
            Ok(both) => both,
            Err(e) => return Found::Nothing(status_of(&e)),
        };
        // A folder above may have been replaced by a link since: ask where the open file is.
        let actual = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).or_else(|_| real.canonicalize());
        match actual {
            Ok(actual) if actual.starts_with(&self.root) => {}
            _ => return Found::Nothing(StatusCode::FORBIDDEN),
        }
        if meta.is_dir() {
            Found::Folder(real)
        } else if meta.is_file() {
            Found::File(file, meta, real)
        } else {
            Found::Nothing(StatusCode::FORBIDDEN)
        }
    }
}

/// Opens what no link is on the way to, if its name is in memory.
fn look_up_at_once(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::CACHED;
    rustix::fs::openat2(rustix::fs::CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), how)
}

/// What stands in for a folder.
const INDEX: &str = "index.html";

/// The fields that the answer with a file has at most, with Alt-Svc: room for them is made once.
const FIELDS: usize = 10;

/// What every answer has.
pub(super) fn complete<B>(request: &Request<B>, mut response: Response<FileBody>) -> Response<FileBody> {
    let h = response.headers_mut();
    h.insert(DATE, date_of_now());
    h.insert(SERVER, HeaderValue::from_static(concat!("neater/", env!("CARGO_PKG_VERSION"))));
    h.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if request.method() == Method::HEAD {
        response = response.map(|_| FileBody::empty());
    }
    response
}

fn status_of(e: &io::Error) -> StatusCode {
    match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
            StatusCode::NOT_FOUND
        }
        io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
        _ => match e.raw_os_error() {
            // A link, and a socket, which cannot be opened.
            Some(libc::ELOOP | libc::ENXIO) => StatusCode::FORBIDDEN,
            _ if is_exhausted(e) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

thread_local! {
    /// The second that was written last, and how: all answers within it have the same.
    static WRITTEN: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

fn date_of_now() -> HeaderValue {
    let now = SystemTime::now();
    let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.as_secs());
    WRITTEN.with_borrow_mut(|written| match written {
        Some((same, value)) if *same == second => value.clone(),
        _ => written.insert((second, date(now))).1.clone(),
    })
}

pub(super) fn date(t: SystemTime) -> HeaderValue {
    HeaderValue::from_str(&httpdate::fmt_http_date(t)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// An answer that is nothing but its status, for people.
pub(super) fn text(status: StatusCode) -> Response<FileBody> {
    let mut response = with_length(status, "text/plain; charset=utf-8", format!("{status}\n"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, 1.into());
    }
    response
}

fn with_length(status: StatusCode, kind: &'static str, body: String) -> Response<FileBody> {
    let mut response = Response::new(FileBody::text(body));
    *response.status_mut() = status;
    let length = response.body().left();
    let h = response.headers_mut();
    h.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    h.insert(CONTENT_LENGTH, length.into());
    response
}

fn allow(status: StatusCode) -> Response<FileBody> {
    let mut response = if status == StatusCode::NO_CONTENT { Response::new(FileBody::empty()) } else { text(status) };
    *response.status_mut() = status;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
    response
}

/// Whether the contents of a file are made when it is read, as those of /proc and /sys are: its
/// length has no meaning then.
///
/// Those that are used up by reading, or show what a program keeps to itself, stay as empty as
/// their length.
fn is_made(file: &File, meta: &Metadata, name: &Path) -> bool {
    /// proc, sysfs and cgroup2 (statfs(2)).
    const MADE: [u64; 3] = [0x9fa0, 0x6265_6572, 0x6367_7270];
    const PRIVATE: [&str; 4] = ["kmsg", "environ", "auxv", "cmdline"];
    if name.file_name().is_some_and(|own| PRIVATE.iter().any(|private| own == *private)) {
        return false;
    }
    let kind = || rustix::fs::fstatfs(file).ok().and_then(|s| u64::try_from(s.f_type).ok());
    matches!(meta.len(), 0 | 4096) && kind().is_some_and(|kind| MADE.contains(&kind))
}

/// An answer with what was made for it, if conditions let it be (RFC 9110 section 13.2.1): it
/// exists, and has neither tag nor date.
fn made_now(headers: &HeaderMap, response: Response<FileBody>) -> Response<FileBody> {
    if !response.status().is_success() {
        return response;
    }
    match judge(headers, &Validators::NONE) {
        Verdict::Go => response,
        Verdict::Failed => text(StatusCode::PRECONDITION_FAILED),
        Verdict::NotModified => not_modified(),
    }
}

fn not_modified() -> Response<FileBody> {
    let mut response = Response::new(FileBody::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}

/// The most bytes of such a file: what is longer may have no end.
const MADE_MAX: u64 = 4 << 20;

/// The contents as they are now. They may be others the next time, so there is no tag and no date.
fn made(file: &File, name: &Path) -> Response<FileBody> {
    let mut all = Vec::new();
    match io::Read::read_to_end(&mut io::Read::take(file, MADE_MAX + 1), &mut all) {
        Ok(n) if n as u64 > MADE_MAX => text(StatusCode::INTERNAL_SERVER_ERROR),
        Ok(n) => {
            let mut response = Response::new(FileBody::text(all));
            let h = response.headers_mut();
            h.insert(CONTENT_TYPE, HeaderValue::from_static(kind_of(name)));
            h.insert(CONTENT_LENGTH, n.into());
            h.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        Err(e) => text(status_of(&e)),
    }
}

/// The state of a file: any change of contents changes the time of its last change, which cannot be
/// set, its length or its number.
fn validators(meta: &Metadata) -> Validators {
    // HTTP's dates have whole seconds; a file from before 1970 has no date.
    let modified = u64::try_from(meta.mtime()).ok().map(|s| SystemTime::UNIX_EPOCH + Duration::from_secs(s));
    // RFC 9110 section 8.8.2.1: a date in the future is replaced by the present, which is no
    // validator.
    let modified = modified.filter(|m| *m <= SystemTime::now());
    let (second, nano, length, number) = (meta.ctime(), meta.ctime_nsec(), meta.len(), meta.ino());
    Validators { etag: Some(format!("\"{second:x}.{nano:x}-{length:x}-{number:x}\"")), modified }
}

fn serve(
    (file, reading): (Opened, Reading),
    meta: &Metadata,
    name: &Path,
    headers: &HeaderMap,
    ranges: bool,
) -> Response<FileBody> {
    let v = validators(meta);
    let total = meta.len();
    let mut response = match judge(headers, &v) {
        Verdict::Failed => return text(StatusCode::PRECONDITION_FAILED),
        Verdict::NotModified => not_modified(),
        Verdict::Go => match if ranges { part(headers, total, &v) } else { Part::Whole } {
            Part::Unsatisfiable => {
                let mut r = text(StatusCode::RANGE_NOT_SATISFIABLE);
                if let Ok(range) = HeaderValue::from_str(&format!("bytes */{total}")) {
                    r.headers_mut().insert(CONTENT_RANGE, range);
                }
                r
            }
            Part::Whole => {
                let mut r = Response::new(FileBody::file((file, reading), 0, total));
                *r.headers_mut() = HeaderMap::with_capacity(FIELDS);
                r.headers_mut().insert(CONTENT_LENGTH, total.into());
                r.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind_of(name)));
                r
            }
            Part::From { start, length } => {
                let mut r = Response::new(FileBody::file((file, reading), start, length));
                *r.status_mut() = StatusCode::PARTIAL_CONTENT;
                let h = r.headers_mut();
                if let Ok(range) = HeaderValue::from_str(&format!("bytes {start}-{}/{total}", start + length - 1)) {
                    h.insert(CONTENT_RANGE, range);
                }
                h.insert(CONTENT_LENGTH, length.into());
                h.insert(CONTENT_TYPE, HeaderValue::from_static(kind_of(name)));
                r
            }
        },
    };
    let h = response.headers_mut();
    h.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(Ok(tag)) = v.etag.as_deref().map(HeaderValue::from_str) {
        h.insert(ETAG, tag);
    }
    if let Some(modified) = v.modified {
        h.insert(LAST_MODIFIED, date(modified));
    }
    response
}

/// The media type by the end of the name; bytes where it is unknown.
fn kind_of(name: &Path) -> &'static str {
    let end = name.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match end.as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "ics" => "text/calendar; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "vtt" => "text/vtt; charset=utf-8",
        "txt" | "md" | "log" | "toml" | "rs" | "c" | "h" | "py" | "sh" | "go" | "yaml" | "yml" | "ini" | "conf"
        | "diff" | "patch" | "tex" => "text/plain; charset=utf-8",
        "json" | "map" => "application/json",
        "jsonld" => "application/ld+json",
        "webmanifest" => "application/manifest+json",
        "xml" => "application/xml",
        "xhtml" => "application/xhtml+xml",
        "rss" => "application/rss+xml",
        "atom" => "application/atom+xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "apng" => "image/apng",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "jxl" => "image/jxl",
        "heic" => "image/heic",
        "bmp" => "image/bmp",
        "tif" | "tiff" => "image/tiff",
        "ico" => "image/x-icon",
        "pdf" => "application/pdf",
        "epub" => "application/epub+zip",
        "wasm" => "application/wasm",
        "mp3" => "audio/mpeg",
        "flac" => "audio/flac",
        "ogg" | "oga" | "opus" => "audio/ogg",
        "m4a" => "audio/mp4",
        "aac" => "audio/aac",
        "wav" => "audio/wav",
        "mp4" | "m4v" => "video/mp4",
        "webm" => "video/webm",
        "mkv" => "video/matroska",
        "mov" => "video/quicktime",
        "ogv" => "video/ogg",
        "ts" => "video/mp2t",
        "m3u8" => "application/vnd.apple.mpegurl",
        "mpd" => "application/dash+xml",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "otf" => "font/otf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "bz2" => "application/x-bzip2",
        "xz" => "application/x-xz",
        "zst" => "application/zstd",
        "7z" => "application/x-7z-compressed",
        "tar" => "application/x-tar",
        "doc" => "application/msword",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "odt" => "application/vnd.oasis.opendocument.text",
        "ods" => "application/vnd.oasis.opendocument.spreadsheet",
        "sqlite" => "application/vnd.sqlite3",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests;
