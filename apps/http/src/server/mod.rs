//! Serving files over every version of HTTP on one port number.
//!
//! *Responsible for* accepting from neater's listeners, how many connections and requests there may
//! be, idle limits, and ending in order. *Not responsible for* what is answered: that is [`Files`].
//!
//! *Invariants*: every bound of [`ServerLimits`] holds at any time, and what is turned away at one
//! is counted and reported; a connection that has nothing to deliver and asks for nothing for
//! [`ServerLimits::idle`] is ended, and one that has and of which nothing is taken for
//! [`ServerLimits::standstill`]; after [`Server::run`] returns, nothing of it runs any more.

mod admission;
mod body;
pub(crate) mod conditions;
mod connection;
mod files;
mod listing;
mod liveness;
mod reports;
mod reserve;
mod slots;
mod stream;
mod target;

pub use body::FileBody;
pub use files::Files;
pub use liveness::Answered;
pub use reports::TurnedAway;

use admission::{Admission, Bounds, ClientKey};
use core::time::Duration;
use liveness::{Activity, OnAnswer};
use neater::{Accepted, EstablishmentError, Listener, Preconnection};
use reports::Reports;
use reserve::DescriptorReserve;
use slots::Slots;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use target::ServesHost;
use tokio::sync::watch as signal;
use tokio::task::JoinSet;

/// Descriptors that connections cannot have, so that files can be opened when these have all
/// others.
const RESERVE: usize = 8;

/// Bounds of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections at once, and up to 64 that are about to end. When another comes, one ends for it
    /// that has been idle for [`ServerLimits::stall`], of an address that has no less than the
    /// newcomer's; else one of the address that has most, if that has at least two more; else one
    /// that has taken nothing for [`ServerLimits::idle`], of an address that has no less. Where
    /// there is none, the newcomer is turned away. Default 1,024.
    pub connections: usize,
    /// Connections at once of one address (of IPv6: of one network of 64 bits), also where there is
    /// room for others; more are turned away. Many people may be behind one address. Default: any
    /// number.
    pub connections_per_address: usize,
    /// Requests at once on one connection; more wait. Default 100 (RFC 9113 section 6.5.2, RFC 9114
    /// section 6.1: at least).
    pub requests_per_connection: usize,
    /// Requests at once in all; more wait, and the client with fewest comes first. Each has a file
    /// and a buffer. Default 512.
    pub requests: usize,
    /// Requests at once of one address (of IPv6: of one network of 64 bits); more wait.
    /// Default 256.
    pub requests_per_address: usize,
    /// How long an answer may not move, while another waits whose address or connection has fewer
    /// answers: then it is ended in favour of that. Default 2 s.
    pub stall: Duration,
    /// Bytes of a request's head. Default 16 kB.
    pub head: usize,
    /// How long a request's head may take: over HTTP/1.1 from the end of the answer before it,
    /// which ends a connection that asks for nothing more. A request for which there is no file
    /// descriptor waits as long for one. Default 10 s.
    pub head_time: Duration,
    /// How long a connection may do nothing, from when all of its answers are delivered (over
    /// HTTP/1.1 see `head_time`). Default 60 s.
    pub idle: Duration,
    /// How long a client may take nothing of its answers: nothing of a connection is acknowledged
    /// for so long, or no 128 kB (HTTP/2) or 4 kB (HTTP/3) of one answer taken while others are. A
    /// reader that has paused seems so, and one that is very slow for most of the time, because
    /// systems report room when a good part of their buffer is free. A connection of HTTP is not
    /// ended sooner unless others want its place (see `connections`, `requests`). Default 5
    /// minutes.
    pub standstill: Duration,
    /// How long answers may take to end when the server stops. Default 10 s.
    pub grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_address: usize::MAX,
            requests_per_connection: 100,
            requests: 512,
            requests_per_address: 256,
            stall: Duration::from_secs(2),
            head: 16 << 10,
            head_time: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            standstill: Duration::from_secs(300),
            grace: Duration::from_secs(10),
        }
    }
}

/// What a server has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Requests answered.
    pub requests: u64,
    /// Bytes of bodies handed to connections.
    pub bytes: u64,
    /// Connections turned away at the limit.
    pub refused: u64,
    /// Connections that were ended for others at the limit.
    pub ended_for_others: u64,
    /// Connections that were cut off when the grace ended.
    pub cut_off: u64,
}

/// Counters that all connections share.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// What all connections of a server share.
pub(crate) struct Common {
    files: Files,
    limits: ServerLimits,
    counters: Counters,
    admission: Arc<Admission>,
    alt_svc: Option<http::HeaderValue>,
    on_answer: Option<OnAnswer>,
    serves_host: Option<ServesHost>,
}

/// A server of files.
pub struct Server {
    files: Files,
    limits: ServerLimits,
    alt_svc: Option<u16>,
    reports: Reports,
    on_answer: Option<OnAnswer>,
    serves_host: Option<ServesHost>,
}

impl Server {
    /// A server of these files.
    #[must_use]
    pub fn new(files: Files) -> Self {
        let (limits, reports) = (ServerLimits::default(), Reports::default());
        Self { files, limits, alt_svc: None, reports, on_answer: None, serves_host: None }
    }

    /// Other bounds than the default ones.
    #[must_use]
    pub fn limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Calls this with each answer, when its connection has delivered it or has ended: from any
    /// thread, so it must not take long.
    #[must_use]
    pub fn on_answer(mut self, call: impl Fn(&Answered) + Send + Sync + 'static) -> Self {
        self.on_answer = Some(Arc::new(call));
        self
    }

    /// Serves a host only if `serves` returns true for it; requests that name another are answered
    /// with 421 (RFC 9110 sections 7.4 and 15.5.20). It is called for each request, from any
    /// thread, with the name or address in lower case, without port, brackets and a final dot. By
    /// default every host is served: then a page of another origin, whose name leads here in a
    /// browser beside this server (DNS rebinding), can read what is served. Whether a request names
    /// a host at all, HTTP/1.0 leaves open: one that does not is served.
    #[must_use]
    pub fn serves_host(mut self, serves: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.serves_host = Some(Arc::new(serves));
        self
    }

    /// Advertises HTTP/3 at this port to clients of older versions (RFC 7838).
    #[must_use]
    pub fn alt_svc(mut self, port: u16) -> Self {
        self.alt_svc = Some(port);
        self
    }

    /// What is called when connections were turned away or ended at a limit: at once, and then
    /// every ten seconds at most, with what was since. It is also logged.
    #[must_use]
    pub fn on_turned_away(mut self, call: impl FnMut(TurnedAway) + Send + 'static) -> Self {
        self.reports.call(call);
        self
    }

    /// A listener for [`Server::run`]: one that delivers whole sessions where the transport has
    /// streams, from the first on.
    ///
    /// # Errors
    /// As [`Preconnection::listen`].
    pub fn listen(preconnection: &Preconnection) -> Result<Listener, EstablishmentError> {
        let listener = preconnection.listen()?;
        listener.deliver_groups(true);
        Ok(listener)
    }

    /// Serves what `listeners` (of [`Server::listen`]) receive until `stop` ends, then ends in
    /// order: nothing new is accepted, clients are notified (GOAWAY, `connection: close`), and what
    /// is being answered has [`ServerLimits::grace`] to end. Eight file descriptors, or half of
    /// those that are left, are kept back from connections meanwhile, so that there is one for a
    /// file.
    pub async fn run(mut self, listeners: Vec<Listener>, stop: impl Future<Output = ()>) -> Summary {
        let reserve = DescriptorReserve::new(RESERVE);
        self.files.keep_back(reserve.clone());
        let common = Arc::new(Common {
            files: self.files,
            limits: self.limits,
            counters: Counters::default(),
            admission: Admission::new(Bounds {
                total: self.limits.requests,
                per_address: self.limits.requests_per_address,
                stall: self.limits.stall,
                idle: self.limits.standstill,
            }),
            on_answer: self.on_answer,
            serves_host: self.serves_host,
            alt_svc: self.alt_svc.and_then(|p| format!("h3=\":{p}\"; ma=86400").parse().ok()),
        });
        let mut summary = Summary::default();
        let (stopping, told) = signal::channel(false);
        let mut connections = JoinSet::new();
        let slots = Slots::new(slots::Bounds {
            total: self.limits.connections,
            per_address: self.limits.connections_per_address,
            stall: self.limits.stall,
            idle: self.limits.idle,
        });
        let mut reports = self.reports;
        let mut number = 0;
        let mut look_around = tokio::time::interval(common.admission.pace());
        look_around.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = next(&listeners) => accepted,
                Some(_) = connections.join_next() => continue,
                _ = look_around.tick() => {
                    common.admission.look_around();
                    if !reserve.refill() {
                        slots.relieve();
                    }
                    reports.ended(slots.take_evicted());
                    reports.look();
                    continue;
                }
            };
            // Every listener has stopped: there is nothing to wait for but the end.
            let Some(accepted) = accepted else { break };
            number += 1;
            let client_key = ClientKey::new(address(&accepted), number);
            let activity = Activity::new();
            let slot = match slots.take(client_key.address(), &activity) {
                Ok(slot) => slot,
                Err(why) => {
                    reports.refused(why);
                    refuse(accepted);
                    continue;
                }
            };
            let served = connection::serve(common.clone(), accepted, (client_key, activity), told.clone());
            connections.spawn(async move {
                served.await;
                drop(slot);
            });
        }
        reports.ended(slots.take_evicted());
        (summary.refused, summary.ended_for_others) = reports.finish();
        for l in &listeners {
            l.stop();
        }
        let _ = stopping.send(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.limits.grace, all).await.is_err() {
            summary.cut_off = connections.len() as u64;
            connections.shutdown().await;
        }
        summary.requests = common.counters.requests.load(Ordering::Relaxed);
        summary.bytes = common.counters.bytes.load(Ordering::Relaxed);
        summary
    }
}

fn address(accepted: &Accepted) -> Option<IpAddr> {
    match accepted {
        Accepted::Connection(c) => c.remote_addr(),
        Accepted::Group(g) => g.remote_addr(),
    }
    .map(|a| a.ip())
}

/// The next connection of any listener; `None` when all have stopped.
async fn next(listeners: &[Listener]) -> Option<Accepted> {
    use futures_util::stream::{FuturesUnordered, StreamExt};
    let mut all: FuturesUnordered<_> = listeners.iter().map(Listener::accept_any).collect();
    while let Some(accepted) = all.next().await {
        if accepted.is_some() {
            return accepted;
        }
    }
    None
}

fn refuse(accepted: Accepted) {
    match accepted {
        Accepted::Connection(c) => c.abort(),
        // RFC 9114 section 8.1: a peer that asks for too much, or here: one of too many.
        Accepted::Group(g) => g.close_session(h3::error::Code::H3_EXCESSIVE_LOAD.value(), b"too many connections"),
    }
}
