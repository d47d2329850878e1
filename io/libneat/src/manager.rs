//! A policy manager that speaks NEAT's own protocol: JSON over a Unix socket.
//!
//! *Responsible for* asking it before a flow is opened, twice as NEAT does (before and after names
//! are resolved), and for going on without it where it does not answer.
//! *Not responsible for* neater's own manager, whose tables the engine follows, nor for what its
//! candidates are opened with (`open.rs`).
//!
//! *Invariants*: nothing here waits; a manager that is not there, hangs, or sends nonsense costs a
//! flow [`PATIENCE`] at most, and never its security.

use crate::context::{Context, Core, freed, make_handle};
use crate::flow::{Flow, Phase};
use crate::log::Level;
use crate::uv::{self, UvHandle};
use crate::{dispatch, open};
use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use neater_property::neat::read;
use serde_json::{Map, Value, json};
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a manager may take for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest answer.
const ANSWER_MAX: usize = 1 << 20;
/// The most candidates of one that are looked at, and what resolving names may make of them.
const CANDIDATES_MAX: usize = 1024;

/// Where a manager may be, and whether it was there when that was last looked at.
#[derive(Debug)]
pub(crate) struct Place {
    path: Option<PathBuf>,
    there: bool,
}

impl Place {
    /// What the environment names.
    pub(crate) fn of_environment() -> Self {
        let named = std::env::var_os("NEAT_PM_SOCKET").map(PathBuf::from);
        let path = named.or_else(|| std::env::home_dir().map(|home| home.join(".neat/neat_pm_socket")));
        let mut this = Self { path: path.filter(|p| !p.as_os_str().is_empty()), there: false };
        this.look();
        this
    }

    /// Looks for the socket, which is done once a second.
    fn look(&mut self) {
        self.there = self.path.as_ref().is_some_and(|p| p.exists());
    }

    /// A connection to the manager, if one listens.
    fn connect(&self) -> Option<UnixStream> {
        let path = self.path.as_ref().filter(|_| self.there)?;
        neater::policies::Follower::connect(path).ok()
    }
}

/// A candidate: its properties.
pub(crate) type Candidate = Map<String, Value>;

/// What is being found out.
enum Step {
    /// Before names are resolved.
    First,
    /// The engine resolves the name; these are the candidates so far.
    Names(Vec<Candidate>),
    Second,
}

/// A question on its way, and its answer.
pub(crate) struct Asked {
    step: Step,
    stream: Option<UnixStream>,
    handle: Option<NonNull<UvHandle>>,
    unsent: Vec<u8>,
    answer: Vec<u8>,
    until: Instant,
}

/// What has come of it.
pub(crate) enum Found {
    /// These candidates, best first.
    Candidates(Vec<Candidate>),
    /// Policies leave none.
    Nothing,
    /// No answer that can be used.
    NoManager,
}

/// Asks the manager about a flow that is being opened. False: there is none.
pub(crate) fn ask(ctx: &Context, core: &mut Core, f: &Flow) -> bool {
    // Neater's own manager was understood: its policies are in the engine.
    if core.policies.as_ref().is_some_and(neater::policies::Follower::has_manager) {
        return false;
    }
    let Some(stream) = core.manager.connect() else { return false };
    let request = {
        let s = f.state.borrow();
        let mut request = s.props.as_ref().map(|p| p.json().clone()).unwrap_or_default();
        let name = s.name.as_deref().unwrap_or_default();
        let names: Vec<Value> = name.split(',').map(|n| json!({"value": n.trim(), "precedence": 2})).collect();
        let here: Vec<Value> = local_endpoints().into_iter().map(|e| json!({"value": e, "precedence": 2})).collect();
        request.insert("local_endpoint".into(), here.into());
        request.insert("port".into(), json!({"value": s.port, "precedence": 2}));
        request.insert("__request_type".into(), json!({"value": "pre-resolve"}));
        request.insert("domain_name".into(), names.into());
        request
    };
    let asked = Asked {
        step: Step::First,
        stream: None,
        handle: None,
        unsent: Vec::new(),
        answer: Vec::new(),
        until: Instant::now() + PATIENCE,
    };
    f.state.borrow_mut().more().asked = Some(Box::new(asked));
    core.asking += 1;
    if !begin(ctx, f, stream, &json!([request])) {
        drop_question(core, f);
        return false;
    }
    true
}

/// Sends a document, and has the loop wait for the answer.
fn begin(ctx: &Context, f: &Flow, stream: UnixStream, document: &Value) -> bool {
    let mut s = f.state.borrow_mut();
    let Some(asked) = s.more.as_mut().and_then(|m| m.asked.as_mut()) else { return false };
    let Some(handle) = make_handle(uv::POLL).and_then(NonNull::new) else { return false };
    // SAFETY: the loop is initialised, and the handle is memory of the size that libuv asks for its
    // type; the flow outlives it, for closing the flow closes it.
    let failed = unsafe {
        match uv::uv_poll_init(ctx.events.ptr, handle.as_ptr(), stream.as_raw_fd()) {
            0 => {
                uv::uv_handle_set_data(handle.as_ptr(), f.as_ptr().cast::<c_void>());
                uv::uv_poll_start(handle.as_ptr(), uv::READABLE | uv::WRITABLE, on_manager)
            }
            _ => {
                libc::free(handle.as_ptr().cast());
                return false;
            }
        }
    };
    asked.until = Instant::now() + PATIENCE;
    asked.unsent = document.to_string().into_bytes();
    asked.answer.clear();
    (asked.stream, asked.handle) = (Some(stream), Some(handle));
    failed == 0
}

/// Takes leave of the manager's socket.
fn hang_up(asked: &mut Asked) {
    if let Some(handle) = asked.handle.take() {
        // SAFETY: the handle was initialised when it was put there, and is closed once: it is
        // taken.
        unsafe {
            uv::uv_handle_set_data(handle.as_ptr(), core::ptr::null_mut());
            uv::uv_close(handle.as_ptr(), freed);
        }
    }
    asked.stream = None;
}

/// Forgets a question, with its socket.
pub(crate) fn drop_question(core: &mut Core, f: &Flow) {
    let asked = f.state.borrow_mut().more.as_mut().and_then(|m| m.asked.take());
    if let Some(mut asked) = asked {
        hang_up(&mut asked);
        core.asking -= 1;
    }
}

/// The manager's socket is ready.
extern "C" fn on_manager(handle: *mut UvHandle, _status: c_int, _events: c_int) {
    // SAFETY: the data is the flow, until the handle is closed.
    let Some(flow) = NonNull::new(unsafe { uv::uv_handle_get_data(handle) }.cast::<Flow>()) else { return };
    // SAFETY: closing a flow closes the handle, before it is freed.
    let f = unsafe { flow.as_ref() };
    dispatch::outer(f.ctx, || {
        let _ = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| exchange(Context::of(f.ctx), f)));
    });
}

/// Sends and receives what can be; at the end of the answer, goes on.
fn exchange(ctx: &Context, f: &Flow) {
    let Ok(mut core) = ctx.core.try_borrow_mut() else { return };
    let core = &mut *core;
    let finished = {
        let mut s = f.state.borrow_mut();
        let Some(asked) = s.more.as_mut().and_then(|m| m.asked.as_mut()) else { return };
        asked.exchange()
    };
    match finished {
        None => {}
        Some(Ok(text)) => answered(ctx, core, f, &text),
        Some(Err(why)) => give_up(ctx, core, f, &why),
    }
    ctx.after_call(core);
}

impl Asked {
    /// `Some`: the answer is complete, or there is none.
    fn exchange(&mut self) -> Option<Result<String, String>> {
        let stream = self.stream.as_mut()?;
        while !self.unsent.is_empty() {
            match send(stream, &self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return None,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Some(Err(e.to_string())),
            }
            if self.unsent.is_empty() {
                // A half-close is the end of the request.
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let handle = self.handle?;
                // SAFETY: the handle is initialised and not closing.
                unsafe { uv::uv_poll_start(handle.as_ptr(), uv::READABLE, on_manager) };
            }
        }
        let mut piece = [0; 4096];
        loop {
            match stream.read(&mut piece) {
                Ok(0) => {
                    let text = String::from_utf8(core::mem::take(&mut self.answer));
                    return Some(text.map_err(|_| "its answer is not UTF-8".to_owned()));
                }
                Ok(n) => self.answer.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return None,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Some(Err(e.to_string())),
            }
            if self.answer.len() > ANSWER_MAX {
                return Some(Err("its answer is too long".to_owned()));
            }
        }
    }
}

/// Writes without a signal to the program if the manager is gone.
fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    let fd = stream.as_raw_fd();
    // SAFETY: so many bytes are there, and the descriptor is open.
    let n = unsafe { libc::send(fd, bytes.as_ptr().cast::<c_void>(), bytes.len(), libc::MSG_NOSIGNAL) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// The candidates of an answer.
fn candidates(text: &str) -> Result<Vec<Candidate>, String> {
    let Value::Array(list) = read(text).map_err(|e| e.to_string())? else { return Err("it is no list".to_owned()) };
    let object = |v: Value| match v {
        Value::Object(o) => Ok(o),
        _ => Err("a candidate is no object".to_owned()),
    };
    list.into_iter().take(CANDIDATES_MAX).map(object).collect()
}

/// The text that a candidate has for a property.
pub(crate) fn text_of<'a>(candidate: &'a Candidate, name: &str) -> Option<&'a str> {
    candidate.get(name)?.get("value")?.as_str()
}

/// An answer is complete.
fn answered(ctx: &Context, core: &mut Core, f: &Flow, text: &str) {
    let found = match candidates(text) {
        Ok(found) => found,
        Err(why) => return give_up(ctx, core, f, &why),
    };
    let step = {
        let mut s = f.state.borrow_mut();
        let Some(asked) = s.more.as_mut().and_then(|m| m.asked.as_mut()) else { return };
        hang_up(asked);
        core::mem::replace(&mut asked.step, Step::Second)
    };
    if found.is_empty() {
        drop_question(core, f);
        return open::decided(ctx, core, f, Found::Nothing);
    }
    match step {
        Step::First => {
            let is_name = |c: &Candidate| text_of(c, "domain_name").is_none_or(|n| n.parse::<IpAddr>().is_err());
            if found.iter().any(is_name) {
                if let Some(asked) = f.state.borrow_mut().more().asked.as_mut() {
                    asked.step = Step::Names(found);
                }
                if !open::resolve(core, f) {
                    give_up(ctx, core, f, "the name cannot be looked up");
                }
                return;
            }
            second(ctx, core, f, found, &[]);
        }
        _ => {
            drop_question(core, f);
            open::decided(ctx, core, f, Found::Candidates(found));
        }
    }
}

/// Whether the engine resolves a name for this flow's manager.
pub(crate) fn resolves(f: &Flow) -> bool {
    let s = f.state.borrow();
    s.more.as_ref().and_then(|m| m.asked.as_ref()).is_some_and(|a| matches!(a.step, Step::Names(_)))
}

/// The name has these addresses.
pub(crate) fn resolved(ctx: &Context, core: &mut Core, f: &Flow, addresses: &[SocketAddr]) {
    let found = {
        let mut s = f.state.borrow_mut();
        let Some(asked) = s.more.as_mut().and_then(|m| m.asked.as_mut()) else { return };
        match core::mem::replace(&mut asked.step, Step::Second) {
            Step::Names(found) => found,
            _ => return,
        }
    };
    let mut ips: Vec<IpAddr> = Vec::new();
    for a in addresses {
        let ip = a.ip().to_canonical();
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    second(ctx, core, f, found, &ips);
}

/// Asks again, with addresses.
fn second(ctx: &Context, core: &mut Core, f: &Flow, found: Vec<Candidate>, ips: &[IpAddr]) {
    let document: Vec<Value> = found.iter().flat_map(|c| with_addresses(c, ips)).take(CANDIDATES_MAX).collect();
    if document.is_empty() {
        return give_up(ctx, core, f, "none of its candidates has an address");
    }
    let begun = match core.manager.connect() {
        Some(stream) => begin(ctx, f, stream, &document.into()),
        None => false,
    };
    if !begun {
        give_up(ctx, core, f, "it is gone");
    }
}

/// A candidate with each address of its name that its own address can reach.
fn with_addresses(candidate: &Candidate, ips: &[IpAddr]) -> Vec<Value> {
    let literal = text_of(candidate, "domain_name").and_then(|n| n.parse::<IpAddr>().ok());
    let from = text_of(candidate, "local_ip").and_then(|ip| ip.parse::<IpAddr>().ok());
    let to = literal.as_ref().map_or(ips, core::slice::from_ref);
    let fits = |ip: &&IpAddr| from.is_none_or(|from| from.is_ipv4() == ip.is_ipv4());
    let with = |ip: &IpAddr| {
        let mut candidate = candidate.clone();
        candidate.insert("remote_ip".into(), json!({"value": ip.to_string(), "precedence": 2}));
        Value::Object(candidate)
    };
    to.iter().filter(fits).map(with).collect()
}

/// Goes on as without a manager.
fn give_up(ctx: &Context, core: &mut Core, f: &Flow, why: &str) {
    ctx.log.line(Level::Warning, format_args!("the policy manager is not asked any more for this flow: {why}"));
    drop_question(core, f);
    if f.state.borrow().phase == Phase::Opening {
        open::decided(ctx, core, f, Found::NoManager);
    }
}

/// A second has passed: looks for the manager, and goes on without one that has let its time go by.
pub(crate) fn look_at_the_clock(ctx: &Context, core: &mut Core) {
    core.manager.look();
    if core.asking == 0 {
        return;
    }
    let now = Instant::now();
    let flows: Vec<_> = core.flows.iter().flatten().copied().collect();
    for flow in flows {
        // SAFETY: flows in the context's list are alive.
        let f = unsafe { flow.as_ref() };
        let late = {
            let s = f.state.borrow();
            let asked = s.more.as_ref().and_then(|m| m.asked.as_ref());
            // Names have their own time.
            asked.is_some_and(|a| now >= a.until && !matches!(a.step, Step::Names(_)))
        };
        if late {
            give_up(ctx, core, f, "it does not answer");
        }
    }
}

/// The addresses of this host as NEAT names them: `address@interface`, without those of a link
/// alone.
fn local_endpoints() -> Vec<String> {
    let mut all = Vec::new();
    let mut list = core::ptr::null_mut();
    // SAFETY: the list is the system's; each entry and its name and address live until it is freed.
    unsafe {
        if libc::getifaddrs(&raw mut list) != 0 {
            return all;
        }
        let mut at = list;
        while let Some(entry) = at.as_ref() {
            at = entry.ifa_next;
            let Some(address) = entry.ifa_addr.as_ref() else { continue };
            let ip = match c_int::from(address.sa_family) {
                libc::AF_INET => {
                    let a = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    IpAddr::from(a.sin_addr.s_addr.to_ne_bytes())
                }
                libc::AF_INET6 => {
                    let a = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    IpAddr::from(a.sin6_addr.s6_addr)
                }
                _ => continue,
            };
            let of_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
            if !of_link {
                let name = core::ffi::CStr::from_ptr(entry.ifa_name).to_string_lossy();
                all.push(format!("{ip}@{name}"));
            }
        }
        libc::freeifaddrs(list);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_gets_the_addresses_of_its_family() {
        let text = r#"[{"domain_name": {"value": "a.example"}, "local_ip": {"value": "192.0.2.1"}},
                       {"domain_name": {"value": "::1"}}, {"domain_name": {"value": "a.example"}}]"#;
        let found = candidates(text).expect("a list");
        let ips = ["192.0.2.7", "2001:db8::7"].map(|ip| ip.parse().expect("an address"));
        let of = |i: usize| -> Vec<String> {
            let with = with_addresses(&found[i], &ips);
            with.iter().map(|c| c["remote_ip"]["value"].as_str().expect("a text").to_owned()).collect()
        };
        assert_eq!(of(0), ["192.0.2.7"]);
        assert_eq!(of(1), ["::1"], "a literal needs no name server");
        assert_eq!(of(2), ["192.0.2.7", "2001:db8::7"]);
    }

    #[test]
    fn what_is_no_list_of_candidates_is_no_answer() {
        assert!(candidates("[]").expect("a list").is_empty());
        for text in ["", "{}", "[1]", "[{}", "null", "[{\"a\": NaN}]"] {
            assert!(candidates(text).is_err(), "{text}");
        }
    }

    #[test]
    fn this_host_has_an_address() {
        let all = local_endpoints();
        assert!(all.iter().any(|e| e.starts_with("127.0.0.1@")), "{all:?}");
        assert!(!all.iter().any(|e| e.starts_with("fe80")), "{all:?}");
    }
}
