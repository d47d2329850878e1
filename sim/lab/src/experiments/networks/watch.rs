//! E5 to be watched: a page that shows one transfer after the other over both networks, with switches that act while they run.
//!
//! *Responsible for* the transfers, what is known of them over time, the switches, and for the page, which is served over a connection
//! of neater's own. *Not responsible for* the figures of E5.
//!
//! *Invariants*: only this host is served; a switch is thrown by a POST of the page itself; what is kept of the past is bounded.

use super::{BOTH, DELAY, Links, PATIENCE, Place, RATE, cut, queue};
use crate::experiments::Lab;
use crate::experiments::links::environments::{self, Queue};
use crate::measure::{MeasureError, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use neater::{LocalEndpoint, Neater, SecurityParameters, Stack};
use neater_emulator::{Cmd, Running};
use neater_link::{Filter, LinkConfig, Match, Protocol};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const PAGE: &str = include_str!("watch.html");
/// Of the page, in bytes: each transfer is that long.
const BYTES: usize = 64_000_000;
/// How often it is looked what has arrived.
const TICK: Duration = Duration::from_millis(500);
/// Samples that are kept: five minutes.
const SAMPLES: usize = 600;
/// What has happened that is kept.
const EVENTS: usize = 50;
/// Before the next transfer begins.
const PAUSE: Duration = Duration::from_millis(700);

/// A switch of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    Sctp,
    Link(usize),
}

impl Switch {
    fn named(name: &str) -> Option<Self> {
        match name {
            "sctp" => Some(Self::Sctp),
            "one" => Some(Self::Link(0)),
            "two" => Some(Self::Link(1)),
            _ => None,
        }
    }
}

/// What the two networks are like: those of E5, and the pairs of I1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice(usize);

impl Choice {
    const E5: Self = Self(0);

    fn all() -> impl Iterator<Item = Self> {
        (0..=environments::ALL.len()).map(Self)
    }

    fn name(self) -> &'static str {
        self.0.checked_sub(1).and_then(|i| environments::ALL.get(i)).map_or("E5", |e| e.name)
    }

    fn named(name: &str) -> Option<Self> {
        Self::all().find(|choice| choice.name() == name)
    }

    /// The links, and their rates in Mbit/s.
    fn links(self) -> [(LinkConfig, f64); 2] {
        match self.0.checked_sub(1).and_then(|i| environments::ALL.get(i)) {
            Some(e) => e.sides.map(|side| (side.link(Queue::Deep), side.rate as f64)),
            None => [0, 1].map(|_| (LinkConfig::rate(RATE, DELAY).with_queue(queue(RATE)), RATE as f64 * 1e-6)),
        }
    }

    /// In words.
    fn text(self) -> String {
        let Some(e) = self.0.checked_sub(1).and_then(|i| environments::ALL.get(i)) else {
            return "E5: two of 10 Mbit/s, 20 ms there and back".to_owned();
        };
        let [a, b] = e.sides.map(|s| {
            let jitter = if s.deviation > 0 { format!(" ±{}", s.deviation) } else { String::new() };
            let loss = if s.loss > 0.0 { format!(", {} % lost", s.loss * 100.0) } else { String::new() };
            format!("{} Mbit/s, {}{jitter} ms{loss}", s.rate, s.rtt)
        });
        format!("{}: {a}; {b}", e.name)
    }
}

/// What the page asks for, or whoever has started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Throw(Switch, bool),
    Choose(Choice),
    End,
}

type Shared = Arc<Mutex<String>>;

/// Serves the page at a port of this host, 0 for a free one, until the process ends.
///
/// # Errors
/// The networks cannot be built, or the port is taken.
pub(crate) fn run(lab: &Lab, port: u16) -> Result<()> {
    let place = Place::build(lab, lab.seed, BYTES, Links::Equal, super::Core::Router)?;
    let (throw, thrown) = channel();
    let shared = Shared::default();
    let (told, address) = channel();
    let seen = shared.clone();
    std::thread::spawn(move || serve(port, &seen, &throw, &told));
    let address = address.recv().unwrap_or_else(|_| Err("the page is not served".to_owned()));
    let address = address.map_err(MeasureError::Failed)?;
    println!("http://{address}/");
    (lab.progress)("the page is there until this is interrupted");
    Show::new(lab, place, shared).go_on(&thrown)
}

/// What is shown.
struct Show<'a> {
    lab: &'a Lab,
    // Ends before its host does.
    transfer: Option<Running>,
    place: Place,
    shared: Shared,
    began: Instant,
    /// SCTP may pass, and each of the links works.
    sctp: bool,
    links: [bool; 2],
    choice: Choice,
    samples: VecDeque<Value>,
    events: VecDeque<Value>,
    over: String,
    /// Where transfers say what their paths do.
    status: PathBuf,
}

impl<'a> Show<'a> {
    fn new(lab: &'a Lab, place: Place, shared: Shared) -> Self {
        let status = place.dir.join("run");
        let (samples, events) = (VecDeque::new(), VecDeque::new());
        // As in the founding document: at first SCTP does not get through, and programs run over TCP.
        let (sctp, links, over, choice) = (false, [true; 2], String::new(), Choice::E5);
        let began = Instant::now();
        Self { lab, place, shared, began, sctp, links, choice, samples, events, transfer: None, over, status }
    }

    fn go_on(mut self, asked: &Receiver<Asked>) -> Result<()> {
        self.set_links()?;
        self.happened("SCTP is blocked: what is there is TCP");
        let mut pause = Instant::now();
        let mut next = Instant::now();
        loop {
            if self.transfer.as_ref().is_none_or(|t| !t.is_running()) {
                if let Some(done) = self.transfer.take() {
                    let whole = done.wait()?.success().is_ok();
                    self.happened(if whole { "the file has arrived" } else { "the transfer has ended" });
                    self.over.clear();
                    pause = Instant::now() + PAUSE;
                }
                if Instant::now() >= pause {
                    self.begin()?;
                }
            }
            self.look();
            next += TICK;
            match asked.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Asked::Throw(switch, on)) => self.throw(switch, on)?,
                Ok(Asked::Choose(choice)) => self.choose(choice)?,
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Asked::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn begin(&mut self) -> Result<()> {
        fs::create_dir_all(&self.status)?;
        for old in ["shown", "shown.part", "shown.part.json"] {
            let _ = fs::remove_file(self.place.dir.join(old));
        }
        let get = Cmd::new(self.lab.programs.neater()?).args(["get", &self.place.url, "--no-policy"]);
        let get = get.args(["--transport", "SCTP,TCP", "--needs", BOTH, "--timeout", "5"]).arg("-o");
        let get = get.arg(self.place.dir.join("shown")).env("XDG_RUNTIME_DIR", &self.status).limit(PATIENCE);
        self.transfer = Some(self.place.net.spawn("client", get)?);
        Ok(())
    }

    fn throw(&mut self, switch: Switch, on: bool) -> Result<()> {
        match switch {
            Switch::Sctp if self.sctp != on => {
                self.sctp = on;
                self.happened(if on {
                    "SCTP is allowed: the next transfer"
                } else {
                    "SCTP is blocked: the next transfer"
                });
                // Ends it.
                self.transfer = None;
                self.over.clear();
            }
            Switch::Link(i) if self.links[i] != on => {
                self.links[i] = on;
                let name = ["one", "two"][i];
                self.happened(&format!("network {name} {}", if on { "works again" } else { "swallows everything" }));
            }
            _ => return Ok(()),
        }
        self.set_links()
    }

    fn choose(&mut self, choice: Choice) -> Result<()> {
        if self.choice == choice {
            return Ok(());
        }
        self.choice = choice;
        let text = format!("other networks: {}", choice.text());
        self.happened(&text);
        self.set_links()
    }

    fn set_links(&self) -> Result<()> {
        for ((name, up), (link, _)) in ["one", "two"].into_iter().zip(self.links).zip(self.choice.links()) {
            let mut link = link.with_down(!up);
            if !self.sctp {
                link = link.with_filter(Filter::drop(Match::Service(Protocol::Udp, neater_sctp::UDP_PORT)));
            }
            cut(&self.place.net, name, &link)?;
        }
        Ok(())
    }

    fn happened(&mut self, text: &str) {
        self.events.push_back(json!({"at": self.at(), "text": text}));
        if self.events.len() > EVENTS {
            self.events.pop_front();
        }
    }

    fn at(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Looks at what the transfer says of itself, and makes the page's next view of it.
    fn look(&mut self) {
        let files = fs::read_dir(self.status.join("neater")).into_iter().flatten().flatten();
        let status = files.filter(|f| f.path().extension().is_some_and(|e| e == "json"));
        let status = status.filter_map(|f| serde_json::from_slice::<Value>(&fs::read(f.path()).ok()?).ok()).next();
        let running = self.transfer.as_ref().is_some_and(Running::is_running);
        let status = status.filter(|_| running).unwrap_or(Value::Null);
        let over = status["over"].as_str().unwrap_or_default();
        if !over.is_empty() && over != self.over {
            self.over = over.to_owned();
            let text = format!("carried by {over}");
            self.happened(&text);
        }
        let mbit = |of: &Value| of["bytes_per_second"].as_f64().unwrap_or(0.0) * 8e-6;
        let by = |name: &str| {
            let paths = status["paths"].as_array().into_iter().flatten();
            paths.filter(|p| p["interface"] == name).map(mbit).fold(0.0, |sum, rate| sum + rate)
        };
        self.samples.push_back(json!({"at": self.at(), "all": mbit(&status), "one": by("eth0"), "two": by("eth1")}));
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
        let view = json!({
            "at": self.at(), "sctp": self.sctp, "one": self.links[0], "two": self.links[1], "transfer": status,
            "samples": self.samples, "events": self.events, "rate": self.choice.links().map(|(_, rate)| rate).iter().sum::<f64>() / 2.0,
            "links": self.choice.name(),
            "choices": Choice::all().map(|c| json!([c.name(), c.text()])).collect::<Vec<_>>(),
        });
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = view.to_string();
    }
}

/// Serves the page over TCP by neater.
fn serve(port: u16, shared: &Shared, throw: &Sender<Asked>, told: &Sender<core::result::Result<SocketAddr, String>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return drop(told.send(Err(e.to_string()))),
    };
    runtime.block_on(async {
        let listening = async {
            let neater = Neater::new().map_err(|e| e.to_string())?;
            let local = LocalEndpoint::from(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
            let plain = SecurityParameters::disabled();
            let listener = neater.preconnection().local(local).security(plain).stacks(&[Stack::Tcp]).listen();
            Ok::<_, String>((listener.map_err(|e| e.to_string())?, neater))
        };
        let (listener, _neater) = match listening.await {
            Ok(listening) => listening,
            Err(why) => return drop(told.send(Err(why))),
        };
        let end = throw.clone();
        tokio::spawn(async move {
            interrupted().await;
            let _ = end.send(Asked::End);
        });
        let _ = told.send(Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.port())));
        while let Some(connection) = listener.accept().await {
            let Ok(bytes) = connection.into_bytes() else { continue };
            let (shared, throw) = (shared.clone(), throw.clone());
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let answer = answer(&request, &shared, &throw);
                    async { Ok::<_, core::convert::Infallible>(answer) }
                });
                // A browser that goes away is no failure.
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(bytes), service).await;
            });
        }
    });
}

/// Ctrl-C, or SIGTERM.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(_) => core::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

fn answer<B>(request: &Request<B>, shared: &Shared, throw: &Sender<Asked>) -> Response<Full<Bytes>> {
    let text = |name| request.headers().get(name).and_then(|v: &hyper::header::HeaderValue| v.to_str().ok());
    let host = text(HOST).unwrap_or_default();
    // Another site's page must not throw switches, nor be told this one's name for this host.
    let here = ["127.0.0.1", "localhost"].contains(&host.rsplit_once(':').map_or(host, |(name, _)| name));
    let own = text(ORIGIN).is_none_or(|origin| origin == format!("http://{host}"));
    let make = |status: StatusCode, kind: &'static str, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
        let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'";
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, hyper::header::HeaderValue::from_static(policy));
        response
    };
    let refuse = |status: StatusCode, why: &str| make(status, "text/plain; charset=utf-8", format!("{why}\n"));
    if !here || !own {
        return refuse(StatusCode::FORBIDDEN, "this page is for a browser on this host");
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/") => make(StatusCode::OK, "text/html; charset=utf-8", PAGE.to_owned()),
        (&Method::GET, "/state") => {
            let state = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
            make(StatusCode::OK, "application/json", state)
        }
        (&Method::POST, path) => {
            let mut words = path.trim_start_matches('/').split('/');
            let (name, word) = (words.next().unwrap_or_default(), words.next());
            let choice = word.filter(|_| name == "links").and_then(Choice::named);
            match (Switch::named(name), word) {
                _ if choice.is_some() => {
                    let _ = choice.map(|choice| throw.send(Asked::Choose(choice)));
                    make(StatusCode::ACCEPTED, "application/json", "{}".to_owned())
                }
                (Some(switch), Some(on @ ("on" | "off"))) => {
                    let _ = throw.send(Asked::Throw(switch, on == "on"));
                    make(StatusCode::ACCEPTED, "application/json", "{}".to_owned())
                }
                _ => refuse(
                    StatusCode::NOT_FOUND,
                    "a switch is /sctp, /one or /two, and then /on or /off; networks are /links/ and a name",
                ),
            }
        }
        _ => refuse(StatusCode::NOT_FOUND, "there are / and /state"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: Method, path: &str, headers: &[(&str, &str)]) -> (StatusCode, Option<Asked>) {
        let (throw, thrown) = channel();
        let shared = Shared::default();
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        (answer(&request.body(()).unwrap(), &shared, &throw).status(), thrown.try_recv().ok())
    }

    #[test]
    fn switches_are_thrown_by_the_page_and_by_no_other_site() {
        let host = ("host", "127.0.0.1:81");
        let own = ("origin", "http://127.0.0.1:81");
        assert_eq!(ask(Method::GET, "/", &[host]).0, StatusCode::OK);
        let done = ask(Method::POST, "/two/off", &[host, own]);
        assert_eq!(done, (StatusCode::ACCEPTED, Some(Asked::Throw(Switch::Link(1), false))));
        assert_eq!(ask(Method::POST, "/sctp/on", &[host, own]).1, Some(Asked::Throw(Switch::Sctp, true)));
        assert_eq!(ask(Method::POST, "/links/lte-geo", &[host, own]).1, Some(Asked::Choose(Choice(15))));
        assert_eq!(ask(Method::POST, "/links/E5", &[host, own]).1, Some(Asked::Choose(Choice::E5)));
        for (path, headers, status) in [
            ("/links/none", &[host, own][..], StatusCode::NOT_FOUND),
            ("/two/maybe", &[host, own][..], StatusCode::NOT_FOUND),
            ("/three/on", &[host, own], StatusCode::NOT_FOUND),
            ("/two/off", &[host, ("origin", "http://evil.example")], StatusCode::FORBIDDEN),
            ("/two/off", &[("host", "evil.example")], StatusCode::FORBIDDEN),
        ] {
            assert_eq!(ask(Method::POST, path, headers), (status, None), "{path} {headers:?}");
        }
    }
}
