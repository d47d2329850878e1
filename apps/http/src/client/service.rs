//! How a connection serves, and what of that is reported to later races.
//!
//! *Responsible for* judging failures and silence: what is the peer's doing is reported against the
//! candidate that the race had chosen, so that the next connection tries others first. *Not
//! responsible for* whether there is a next one.

use super::busy::{Busy, Crowd};
use super::proxy::Wire;
use crate::error::{Fault, chain, of_h3, of_hyper};
use crate::{Error, HttpVersion, lock};
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use neater::{Carrier, MIN_TRANSFER, PathInfo, ServiceOutcome};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much of what a peer sends first is kept, to show what it speaks.
const BEGINNING: usize = 64;
/// How an answer of HTTP/1.1 begins.
const H1: &[u8] = b"HTTP/";
/// How a record of TLS begins: an alert, a handshake.
const TLS: [&[u8]; 2] = [&[21, 3], &[22, 3]];

/// How one connection serves.
pub(super) struct Service {
    version: HttpVersion,
    carrier: Option<Carrier>,
    /// What answers is behind a proxy, which is not to blame for how it serves.
    proxied: bool,
    /// The head of an answer has come.
    answered: AtomicBool,
    /// Its silence was reported, though its answer may still come.
    suspected: AtomicBool,
    /// No other request is to use it.
    retired: AtomicBool,
    /// It has ended.
    over: AtomicBool,
    /// The peer has broken the rules, or has ended it in place of an answer.
    broken: AtomicBool,
    /// The peer wants to be asked over HTTP/1.1.
    wants_http11: AtomicBool,
    /// Over HTTP/1.1, what has come before the first answer was understood: at most [`BEGINNING`]
    /// bytes.
    beginning: Mutex<Vec<u8>>,
    busy: Mutex<Busy>,
}

/// The connections of all clients of this process.
static CROWD: Mutex<Crowd> = Mutex::new(Crowd::new());

/// The body of an answer that is coming.
pub(super) struct Coming(Option<Arc<Service>>);

impl Coming {
    /// From its head on.
    pub(super) fn new(service: &Arc<Service>) -> Self {
        lock(&service.busy).begin(Instant::now(), &mut lock(&CROWD));
        Self(Some(service.clone()))
    }

    /// All of it has come, while the program was busy with what came for so long.
    pub(super) fn complete(mut self, bytes: u64, program: Duration) {
        let Some(service) = self.0.take() else { return };
        let done = lock(&service.busy).end(Instant::now(), Some(bytes), &mut lock(&CROWD));
        if let Some((bytes, took)) = done
            && bytes >= MIN_TRANSFER
            // Otherwise the rate is the program's.
            && program < took / 2
        {
            service.report(ServiceOutcome::Transferred { bytes, took });
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if let Some(service) = &self.0 {
            lock(&service.busy).end(Instant::now(), None, &mut lock(&CROWD));
        }
    }
}

fn is(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Acquire)
}

fn set(flag: &AtomicBool) {
    flag.store(true, Ordering::Release);
}

impl Service {
    pub(super) fn new(version: HttpVersion, carrier: Option<Carrier>) -> Arc<Self> {
        Self::with(version, carrier, false)
    }

    /// Of a connection through a proxy.
    pub(super) fn of_proxy(version: HttpVersion, carrier: Option<Carrier>) -> Arc<Self> {
        Self::with(version, carrier, true)
    }

    fn with(version: HttpVersion, carrier: Option<Carrier>, proxied: bool) -> Arc<Self> {
        Arc::new(Self {
            version,
            carrier,
            proxied,
            answered: AtomicBool::new(false),
            suspected: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            over: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            wants_http11: AtomicBool::new(false),
            beginning: Mutex::default(),
            busy: Mutex::default(),
        })
    }

    /// Of another stream of the same association.
    pub(super) fn sibling(&self) -> Arc<Self> {
        Self::new(self.version, self.carrier.clone())
    }

    /// What is known of the paths of the transport below.
    pub(super) fn paths(&self) -> Vec<PathInfo> {
        self.carrier.as_ref().map(Carrier::paths).unwrap_or_default()
    }

    fn report(&self, outcome: ServiceOutcome) {
        if let Some(carrier) = self.carrier.as_ref().filter(|_| !self.proxied) {
            carrier.report(outcome);
        }
    }

    /// Whether another request may use the connection.
    pub(super) fn is_usable(&self) -> bool {
        !is(&self.over) && !is(&self.retired)
    }

    pub(super) fn has_answered(&self) -> bool {
        is(&self.answered)
    }

    /// Whether another candidate may do better: this one does not serve.
    pub(super) fn is_broken(&self) -> bool {
        is(&self.broken)
    }

    pub(super) fn wants_http11(&self) -> bool {
        is(&self.wants_http11)
    }

    /// Its driver has ended.
    pub(super) fn end(&self) {
        set(&self.over);
    }

    /// The head of an answer has come.
    pub(super) fn answer(&self) {
        if !self.answered.swap(true, Ordering::AcqRel) {
            *lock(&self.beginning) = Vec::new();
        }
        if self.suspected.swap(false, Ordering::AcqRel) {
            self.retired.store(false, Ordering::Release);
            self.report(ServiceOutcome::Answered);
        }
    }

    /// It has been silent for so long that another candidate is asked beside it.
    pub(super) fn suspect(&self) {
        set(&self.suspected);
        set(&self.retired);
        self.report(ServiceOutcome::Silent);
    }

    /// Takes a failure in: before the head of an answer, or in the middle of its body.
    pub(super) fn note(&self, fault: Fault) {
        let outcome = match fault {
            Fault::Excused => return,
            Fault::Refused { going } => {
                self.retired.fetch_or(going, Ordering::AcqRel);
                return;
            }
            // Where an answer has come before, it is the way that has gone, or the program behind
            // it that is slow.
            Fault::Ended | Fault::Shown(ServiceOutcome::Silent) if self.has_answered() => return,
            Fault::Ended => ServiceOutcome::Broken,
            Fault::Shown(outcome) => outcome,
        };
        match outcome {
            ServiceOutcome::WantsOther => set(&self.wants_http11),
            ServiceOutcome::Broken => set(&self.broken),
            _ => {}
        }
        set(&self.retired);
        // HTTP/1.1 is spoken by the same stack at the same address as HTTP/2.
        if outcome != ServiceOutcome::WantsOther || self.version == HttpVersion::Http3 {
            self.report(outcome);
        }
    }

    /// A request has ended with this error: what its connection is to blame for, the next request
    /// is spared.
    pub(super) fn after(&self, e: &Error) {
        if matches!(e, Error::Silent(_) | Error::Interrupted { .. }) {
            set(&self.retired);
        }
    }

    /// The error that a failure of hyper's is, before or in the middle of an answer.
    pub(super) fn failed(&self, e: &hyper::Error, received: u64, expected: Option<u64>) -> Error {
        self.note(Fault::of_hyper(e));
        self.nonsense().map_or_else(|| of_hyper(e, received, expected), Error::Protocol)
    }

    /// The error that a failure of h3's is.
    pub(super) fn failed_h3(&self, e: &h3::error::StreamError, received: u64, expected: Option<u64>) -> Error {
        self.note(Fault::of_h3(e));
        of_h3(e, received, expected)
    }

    /// What has come of hyper's asking.
    pub(super) fn asked<T>(&self, asked: Result<Result<T, hyper::Error>, Error>) -> Result<T, Error> {
        match asked {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(e)) => {
                // hyper gives back a request that it has not begun to send: the connection was
                // ending already.
                let given_back = self.version == HttpVersion::Http2 && e.is_canceled();
                let fault = if given_back { Fault::Refused { going: true } } else { Fault::of_hyper(&e) };
                Err(self.refused(fault, || chain(&e)).unwrap_or_else(|| self.failed(&e, 0, None)))
            }
            Err(silent) => Err(self.silent(silent)),
        }
    }

    /// The error of a request that the peer has not looked at, if this is one.
    pub(super) fn refused(&self, fault: Fault, why: impl FnOnce() -> String) -> Option<Error> {
        matches!(fault, Fault::Refused { .. }).then(|| {
            self.note(fault);
            Error::Refused(why())
        })
    }

    /// Nothing has come in time.
    pub(super) fn silent(&self, e: Error) -> Error {
        self.note(Fault::Shown(ServiceOutcome::Silent));
        // What is no beginning of an answer, and does not go on.
        self.nonsense().map_or(e, |what| {
            set(&self.broken);
            Error::Protocol(what)
        })
    }

    /// The protocol has not even begun in time: where there is another candidate, that is better
    /// waited for.
    pub(super) fn not_begun(&self, e: Error) -> Error {
        set(&self.broken);
        self.silent(e)
    }

    /// What a peer speaks that has not begun as HTTP/1.1 does, in words.
    fn nonsense(&self) -> Option<String> {
        let beginning = lock(&self.beginning);
        // Empty lines are no answer, but do no harm before one.
        let blank = beginning.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        let text = &beginning[blank..];
        if text.is_empty() || text.iter().zip(H1).all(|(a, b)| a == b) {
            return None;
        }
        if TLS.iter().any(|record| text.starts_with(record)) {
            return Some("the server speaks TLS there, and not HTTP in the clear: ask for https".into());
        }
        let line = text.split(|b| matches!(b, b'\r' | b'\n')).next().unwrap_or_default();
        let shown = String::from_utf8_lossy(line);
        Some(format!("the server does not speak HTTP there: it begins with {shown:?}"))
    }

    /// Bytes have come over HTTP/1.1.
    fn came(&self, bytes: &[u8]) {
        if !self.has_answered() {
            let mut beginning = lock(&self.beginning);
            let room = BEGINNING - beginning.len();
            beginning.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }
}

/// The bytes of a connection of HTTP/1.1, whose first ones are looked at.
pub(super) struct Tap {
    bytes: Wire,
    service: Arc<Service>,
}

impl Tap {
    pub(super) fn new(bytes: Wire, service: Arc<Service>) -> Self {
        Self { bytes, service }
    }
}

impl AsyncRead for Tap {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.bytes).poll_read(cx, buf))?;
        self.service.came(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tap {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.bytes.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_begin_as_http_is_shown() {
        let shown = |bytes: &[u8]| {
            let service = Service::new(HttpVersion::Http11, None);
            // As it may come, a byte at a time.
            bytes.iter().for_each(|b| service.came(&[*b]));
            service.nonsense().unwrap_or_default()
        };
        for fine in [&b""[..], b"H", b"HTTP/1.1 200 OK\r\n", b"\r\nHTTP/1.0 200", b"\r\n"] {
            assert_eq!(shown(fine), "");
        }
        assert_eq!(
            shown(b"SSH-2.0-OpenSSH_9.9\r\n"),
            "the server does not speak HTTP there: it begins with \"SSH-2.0-OpenSSH_9.9\""
        );
        assert!(shown(&[21, 3, 3, 0, 2, 2, 10]).contains("ask for https"));
        let long = shown(&[b'x'; 1000]);
        assert!(long.len() < 150 && long.contains("xxx"), "{long}");
        assert!(shown(b"\x1b[31m").contains("\\u{1b}"), "a terminal gets no escapes");
        let service = Service::new(HttpVersion::Http11, None);
        service.answer();
        service.came(b"what belongs to a body");
        assert_eq!(service.nonsense(), None);
    }

    #[test]
    fn what_ends_before_an_answer_is_broken_and_what_ends_later_is_not() {
        let service = Service::new(HttpVersion::Http2, None);
        service.answer();
        service.note(Fault::Ended);
        service.note(Fault::Shown(ServiceOutcome::Silent));
        assert!(service.is_usable() && !service.is_broken());
        service.note(Fault::Shown(ServiceOutcome::Broken));
        assert!(!service.is_usable() && service.is_broken());
        let service = Service::new(HttpVersion::Http2, None);
        service.note(Fault::Excused);
        assert!(service.is_usable() && !service.is_broken());
        service.note(Fault::Ended);
        assert!(!service.is_usable() && service.is_broken());
    }

    #[test]
    fn an_answer_after_all_makes_a_suspected_connection_good() {
        let service = Service::new(HttpVersion::Http2, None);
        service.suspect();
        assert!(!service.is_usable());
        service.answer();
        assert!(service.is_usable() && service.has_answered());
        service.end();
        assert!(!service.is_usable());
    }
}
