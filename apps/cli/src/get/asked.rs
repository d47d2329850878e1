//! What `get` asks for beside the URL: method, content, fields, how fast.
//!
//! *Responsible for* options with curl's names, and what they mean for requests. *Not responsible
//! for* what becomes of the answer.

use crate::args::GetArgs;
use crate::failure::{Exit, Failure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, EXPECT, PROXY_AUTHORIZATION, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use neater_http::{Proxies, RequestOptions, Url};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tokio::time::{Duration, Instant};

/// The largest list of URLs that is read.
const LIST_MAX: u64 = 16 << 20;
/// The most content that is sent, in bytes: it is kept in memory.
const CONTENT_MAX: u64 = 256 << 20;
/// How far a transfer whose rate is limited may be ahead.
const AHEAD: Duration = Duration::from_millis(20);

/// What is asked of each URL.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) content: Bytes,
    pub(super) options: RequestOptions,
    /// By which proxies it is asked.
    pub(super) proxies: Proxies,
    /// Codings of the content are asked for, and undone.
    pub(super) compressed: bool,
    /// The part of the file that is asked for: its first and its last byte, or how many at its end.
    pub(super) part: Option<(Option<u64>, Option<u64>)>,
    /// Standard output is a terminal, and was not named.
    pub(super) terminal: bool,
    pub(super) pace: Option<Pace>,
}

impl Request {
    pub(super) fn new(args: &GetArgs) -> Result<Self, Failure> {
        let mut headers = headers(&args.headers)?;
        let content = content(args)?;
        let method = match (&args.request, &content) {
            (Some(name), _) => Method::from_bytes(name.as_bytes())
                .map_err(|_| Failure::usage(format!("-X {name}: this is no method of HTTP; POST or PUT are")))?,
            (None, Some(_)) => Method::POST,
            (None, None) if args.head => Method::HEAD,
            (None, None) => Method::GET,
        };
        if method == Method::CONNECT {
            return Err(Failure::usage(
                "-X CONNECT: neater asks proxies for tunnels itself, where --proxy or a variable names one",
            ));
        }
        // RFC 9110 section 9.3.8: it comes back as it was sent, perhaps where others see it.
        let secret = [AUTHORIZATION, COOKIE].iter().any(|name| headers.contains_key(name)) || args.user.is_some();
        if method == Method::TRACE && (content.is_some() || secret) {
            return Err(Failure::usage("-X TRACE: it has no content, and no password may be in it"));
        }
        if headers.contains_key(EXPECT) {
            return Err(Failure::usage("-H Expect: neater sends content at once, and waits for no leave to do so"));
        }
        if content.is_some() && args.request.is_none() && args.head {
            return Err(Failure::usage("-I asks for no content, and -d sends some: name the method with -X"));
        }
        if content.is_some() && !headers.contains_key(CONTENT_TYPE) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        }
        if let Some(user) = &args.user {
            headers.insert(AUTHORIZATION, basic(user)?);
        }
        let asked = args.range.as_deref().map(part).transpose()?;
        if let Some((field, _)) = &asked {
            headers.insert(RANGE, field.clone());
        }
        let pace = args.limit_rate.map(Pace::new);
        let terminal = args.output.is_none() && std::io::IsTerminal::is_terminal(&std::io::stdout());
        let proxies = super::proxies::wanted(args, &headers)?;
        Ok(Self {
            method,
            content: content.unwrap_or_default(),
            options: RequestOptions { headers, ..RequestOptions::default() },
            proxies,
            compressed: args.compressed,
            part: asked.map(|(_, part)| part),
            terminal,
            pace,
        })
    }

    /// Whether the request is one for the file itself, and can be made again for the rest of it.
    pub(super) fn is_plain(&self) -> bool {
        self.method == Method::GET && self.content.is_empty() && !self.compressed && self.part.is_none()
    }

    /// Whether a part of a file is the one that was asked for, as far as the file has it.
    pub(super) fn is_it(&self, range: super::transfer::Range) -> bool {
        match self.part {
            // As far as the file goes: a server that sends less has not sent what was asked for.
            Some((Some(first), last)) => {
                let end = range.total.map(|total| total - 1);
                let wanted = last.zip(end).map(|(last, end)| last.min(end)).or(last).or(end);
                range.first == first
                    && wanted.is_none_or(|wanted| range.last == wanted || end.is_none() && range.last < wanted)
            }
            // The last bytes, of which there may be fewer.
            Some((None, Some(count))) => {
                let length = range.last - range.first + 1;
                length <= count && range.total.is_none_or(|t| range.last + 1 == t && (length == count || length == t))
            }
            _ => false,
        }
    }
}

/// The URLs of the command line and of a list.
pub(super) fn urls(args: &GetArgs) -> Result<Vec<Url>, Failure> {
    let mut all = args.urls.iter().map(|u| Url::parse(u)).collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = &args.input_file {
        let bytes = whole(path, LIST_MAX)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::usage(format!("--input-file {}: this is no text", path.display())))?;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let url = Url::parse(line)
                .map_err(|e| Failure::new(Exit::Usage, "url", format!("{}:{}: {e}", path.display(), number + 1)))?;
            all.push(url);
        }
    }
    if all.is_empty() {
        return Err(Failure::usage("there is no URL: give one, or a list with --input-file"));
    }
    Ok(all)
}

/// A file, or standard input where it is called `-`.
fn whole(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    use std::io::Read as _;
    let bad = |e: &std::io::Error| Failure::file("read", path, e);
    let mut all = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().lock().take(most + 1).read_to_end(&mut all),
        false => std::fs::File::open(path).and_then(|f| f.take(most + 1).read_to_end(&mut all)),
    };
    read.map_err(|e| bad(&e))?;
    if all.len() as u64 > most {
        return Err(Failure::usage(format!("{}: more than {} MB are too many for this", path.display(), most >> 20)));
    }
    Ok(all)
}

/// What is sent: each -d behind the one before, with `&` between them. `@FILE` is what is in a
/// file; of text, without its line ends.
fn content(args: &GetArgs) -> Result<Option<Bytes>, Failure> {
    let mut all: Option<Vec<u8>> = None;
    let texts = args.data.iter().map(|d| (d, true)).chain(args.data_binary.iter().map(|d| (d, false)));
    for (data, text) in texts {
        let mut piece = match data.strip_prefix('@') {
            Some(file) => whole(Path::new(file), CONTENT_MAX)?,
            None => data.clone().into_bytes(),
        };
        if text && data.starts_with('@') {
            piece.retain(|b| !matches!(b, b'\r' | b'\n' | 0));
        }
        match &mut all {
            None => all = Some(piece),
            Some(all) => {
                all.push(b'&');
                all.extend(piece);
            }
        }
    }
    Ok(all.map(Bytes::from))
}

/// What a server is shown of a name and a password (RFC 7617).
fn basic(user: &str) -> Result<HeaderValue, Failure> {
    if !user.contains(':') {
        return Err(Failure::usage("-u: a name and a password are wanted, as NAME:PASSWORD")
            .advise("the list of processes shows it to other users of this host; -H @FILE keeps a field in a file"));
    }
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(user)))
        .map_err(|_| Failure::usage("-u: this cannot travel"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// A part of a file: `0-99`, `100-` or `-5`, which are the last five bytes.
#[allow(clippy::type_complexity, reason = "as the request keeps it")]
fn part(range: &str) -> Result<(HeaderValue, (Option<u64>, Option<u64>)), Failure> {
    let bad = || Failure::usage(format!("-r {range}: one part is wanted, such as 0-99, 100- or -5"));
    let (first, last) = range.split_once('-').ok_or_else(bad)?;
    let number = |text: &str| -> Result<Option<u64>, Failure> {
        match text {
            "" => Ok(None),
            text if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().map(Some).map_err(|_| bad()),
            _ => Err(bad()),
        }
    };
    let part = (number(first)?, number(last)?);
    match part {
        (None, None) => Err(bad()),
        (Some(first), Some(last)) if first > last => Err(bad()),
        _ => HeaderValue::try_from(format!("bytes={range}")).map(|field| (field, part)).map_err(|_| bad()),
    }
}

fn headers(lines: &[String]) -> Result<HeaderMap, Failure> {
    let mut all = HeaderMap::new();
    for line in lines {
        match line.strip_prefix('@') {
            None => add(&mut all, line, &format!("-H '{line}'"))?,
            Some(file) => {
                let text = String::from_utf8(whole(Path::new(file), LIST_MAX)?)
                    .map_err(|_| Failure::usage(format!("-H @{file}: this is no text")))?;
                for (number, line) in text.lines().enumerate() {
                    // What is in it may be secret.
                    if !line.trim().is_empty() {
                        add(&mut all, line.trim(), &format!("-H @{file}, line {}", number + 1))?;
                    }
                }
            }
        }
    }
    Ok(all)
}

/// One field more; `shown` is what an error calls it.
fn add(all: &mut HeaderMap, line: &str, shown: &str) -> Result<(), Failure> {
    let bad = |why: &str| Failure::usage(format!("{shown}: {why}"));
    let (name, value) = line.split_once(':').ok_or_else(|| bad("a field is `Name: value`"))?;
    let name: HeaderName = name.trim().parse().map_err(|_| bad("this is no field name"))?;
    let mut value =
        HeaderValue::from_str(value.trim()).map_err(|_| bad("the value has characters that cannot travel"))?;
    if matches!(name.as_str(), "content-length" | "transfer-encoding" | "range" | "if-range") {
        return Err(bad("neater sets this field itself"));
    }
    // It is kept out of the tables of header compression.
    value.set_sensitive(matches!(name, AUTHORIZATION | COOKIE | PROXY_AUTHORIZATION));
    all.append(name, value);
    Ok(())
}

/// `HOST:PORT:ADDRESS[,ADDRESS]`: where a host is, whatever names give.
pub(super) fn place(text: &str) -> Result<(String, u16, Vec<IpAddr>), Failure> {
    let bad =
        || Failure::usage(format!("--resolve {text}: HOST:PORT:ADDRESS is wanted, such as example.com:443:192.0.2.1"));
    let mut parts = text.splitn(3, ':');
    let (host, port, addresses) =
        parts.next().zip(parts.next()).zip(parts.next()).map(|((h, p), a)| (h, p, a)).ok_or_else(bad)?;
    let port = port.parse().ok().filter(|p| *p > 0).ok_or_else(bad)?;
    let bare = |a: &str| a.trim().trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().map_err(|_| bad());
    let addresses = addresses.split(',').map(bare).collect::<Result<Vec<_>, _>>()?;
    if host.is_empty() {
        return Err(bad());
    }
    Ok((host.to_owned(), port, addresses))
}

/// Bytes in a second, as curl has them: `500k` are 500 times 1,024.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let bad = || "a number of bytes in a second is wanted, such as 500k or 2M".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return Err(bad()),
    };
    let number: f64 = digits.parse().map_err(|_| bad())?;
    let rate = number * f64::from(factor);
    if !(1.0..=1e15).contains(&rate) {
        return Err(bad());
    }
    Ok(rate as u64)
}

/// How fast all transfers together may be.
pub(super) struct Pace {
    /// Bytes in a second.
    rate: u64,
    /// When what was taken so far is due.
    due: Mutex<Instant>,
}

impl Pace {
    fn new(rate: u64) -> Self {
        Self { rate, due: Mutex::new(Instant::now()) }
    }

    /// Waits until so many bytes more may have come.
    pub(super) async fn take(&self, bytes: u64) {
        let due = {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            // What was not used earlier is gone.
            *due = (*due).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / self.rate as f64);
            *due
        };
        tokio::time::sleep_until(due - AHEAD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_fields_are_checked() {
        assert_eq!(
            headers(&["X-A: b c".into()]).ok().and_then(|h| h.get("x-a").cloned()),
            Some("b c".parse().unwrap())
        );
        for bad in ["nothing", "a b: c", "x: \u{7}", "Range: bytes=0-"] {
            assert!(headers(&[bad.into()]).is_err(), "{bad}");
        }
    }

    /// The vector of RFC 7617 section 2.
    #[test]
    fn a_name_and_a_password_travel_in_base64() {
        let shown = basic("Aladdin:open sesame").unwrap();
        assert!(shown == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==" && shown.is_sensitive());
        assert!(basic("name").is_err());
    }

    #[test]
    fn parts_rates_and_places_are_checked() {
        for (good, field) in [("0-99", "bytes=0-99"), ("100-", "bytes=100-"), ("-5", "bytes=-5")] {
            assert_eq!(part(good).unwrap().0, field);
        }
        for bad in ["", "-", "5", "9-1", "0-1,3-4", "a-b", "+1-2"] {
            assert!(part(bad).is_err(), "{bad}");
        }
        assert_eq!((rate("100"), rate("500k"), rate("1.5M")), (Ok(100), Ok(512_000), Ok(1_572_864)));
        for bad in ["", "k", "-1", "0", "1x", "1e400", "inf"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        let (host, port, at) = place("h.test:443:192.0.2.1,[2001:db8::1]").unwrap();
        assert_eq!((&host[..], port, at.len()), ("h.test", 443, 2));
        for bad in ["", "h", "h:1", ":1:192.0.2.1", "h:0:192.0.2.1", "h:x:192.0.2.1", "h:1:name"] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn transfers_together_are_as_fast_as_they_may_be() {
        let pace = Pace::new(1000);
        let begun = Instant::now();
        for _ in 0..10 {
            tokio::join!(pace.take(100), pace.take(100));
        }
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(1900) && took < Duration::from_millis(2100), "{took:?}");
    }
}
