//! Traffic without programs: agents that use TCP and UDP inside the simulator, without sockets and readiness.
//!
//! *Responsible for* bulk transfers, web sessions, video, on/off sources and echoes as `neater_scenario` describes them, and
//! for what they achieve. *Not responsible for* TCP itself: an agent writes to and reads from the same connections as
//! programs do, so it reacts to the network as they would.
//!
//! An agent is one flow and sits at both of its ends, because what a server answers is a function of what the client asked
//! and carrying it in payloads would only cost. Only numbers travel: payloads are zeros.
//!
//! *Invariants*: an agent's random choices follow from its own generator, so that one flow more or less, or a changed link,
//! changes no other flow's choices.

mod numbers;
mod stats;
mod tcp;
mod udp;

pub(crate) use numbers::Numbers;
pub use stats::{FlowStats, MAX_OBJECTS, Summary, WebObject};

use crate::sim::{Event, Lookup, Sim};
use crate::tcp::Options;
use crate::world::HostId;
use core::time::Duration;
use neater_base::{Instant, Key, Rng};
use neater_scenario::{Distribution, OnOff, Video, Web};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Names an agent: its index.
pub(crate) type AgentId = u32;

/// The end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Where data come from.
    From,
    /// Where they go to.
    To,
}

/// One flow.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    pub(crate) from_addr: IpAddr,
    pub(crate) to_addr: IpAddr,
    /// The port that it has at the host which is called: the receiver's, or the server's of web sessions.
    pub(crate) port: u16,
    /// The port that UDP is sent from.
    pub(crate) source_port: u16,
    pub(crate) rng: Rng,
    pub(crate) options: [Options; 2],
    pub(crate) begin: Instant,
    pub(crate) stop: Option<Instant>,
    /// The end of the warm-up.
    pub(crate) measure_from: Instant,
    pub(crate) kind: Kind,
    /// When it wants to be called; a call at another time means nothing.
    pub(crate) wake: Option<Instant>,
    /// Its connection at either end.
    pub(crate) conns: [Option<Key>; 2],
    /// The way of its datagrams, and the version of the world's routes that it is from.
    pub(crate) route: [Option<(u64, Arc<Lookup>)>; 2],
    pub(crate) stats: FlowStats,
    /// Web: the first [`MAX_OBJECTS`] objects.
    pub(crate) objects: Vec<WebObject>,
    /// Its datagrams.
    pub(crate) numbers: Numbers,
    /// Segments that connections which are no more have sent again, and how many of all had been sent again when the warm-up ended.
    pub(crate) again: (u64, u64),
}

/// What it does, and how far it is.
#[derive(Debug)]
pub(crate) enum Kind {
    Bulk { left: Option<u64>, total: Option<u64> },
    Web(Box<WebState>),
    Video(Video, VideoState),
    OnOff(Box<(OnOff, OnOffState)>),
    Ping { interval: Duration, size: u32 },
}

/// A web session.
#[derive(Debug)]
pub(crate) struct WebState {
    pub(crate) model: Web,
    /// Objects of the page that are still to be asked for.
    pub(crate) objects_left: u32,
    /// Bytes of the request that are still to be written, and to be read by the server.
    pub(crate) request: (u64, u64),
    /// Bytes of the object that are still to be written, and to be read by the client.
    pub(crate) object: (u64, u64),
    /// An object was asked for and is not complete.
    pub(crate) asking: bool,
    pub(crate) asked_at: Instant,
    /// The length of the object.
    pub(crate) size: u64,
    pub(crate) page_at: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VideoState {
    /// Bits of the frames so far that have not become whole bytes.
    pub(crate) credit: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OnOffState {
    /// Until when it sends; before the first burst, nothing.
    pub(crate) on_until: Option<Instant>,
    pub(crate) weights: f64,
}

impl Agent {
    /// The host, local address and remote address of one end, ports left out.
    pub(crate) fn end(&self, side: Side) -> (HostId, IpAddr, IpAddr) {
        match side {
            Side::From => (self.from, self.from_addr, self.to_addr),
            Side::To => (self.to, self.to_addr, self.from_addr),
        }
    }

    /// Who opens connections: the sender of a bulk transfer, the reader of web pages.
    pub(crate) fn caller(&self) -> Side {
        if matches!(self.kind, Kind::Web(_)) { Side::To } else { Side::From }
    }

    /// The end at a host, if both ends are not at the same.
    pub(crate) fn side_at(&self, host: HostId) -> Side {
        if host == self.from { Side::From } else { Side::To }
    }

    pub(crate) fn draw(&mut self, law: &Distribution) -> f64 {
        let (u, v) = (self.rng.unit(), self.rng.unit());
        law.at(u, v)
    }

    /// Whether it sends by TCP.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.kind, Kind::Bulk { .. } | Kind::Web(_))
    }

    fn is_stopped(&self, now: Instant) -> bool {
        self.stop.is_some_and(|stop| now >= stop)
    }

    fn is_measured(&self, now: Instant) -> bool {
        now >= self.measure_from
    }

    fn deliver(&mut self, now: Instant, bytes: u64) {
        self.stats.delivered += bytes;
        if self.is_measured(now) {
            self.stats.measured += bytes;
        }
    }
}

/// A time of some seconds from now, at least a microsecond so that nothing stands still.
fn after(now: Instant, seconds: f64) -> Instant {
    now + Duration::from_secs_f64(seconds.clamp(1e-6, 1e8))
}

impl Sim {
    /// Adds an agent, which begins at its time.
    pub(crate) fn add_agent(&mut self, agent: Agent) {
        let id = self.agents.len() as AgentId;
        let called = match agent.caller() {
            Side::From => agent.to,
            Side::To => agent.from,
        };
        self.host(called).agent_ports.insert(agent.port, id);
        if agent.source_port != 0 {
            self.host(agent.from).agent_ports.insert(agent.source_port, id);
        }
        let begin = agent.begin;
        self.agents.push(agent);
        self.wake_agent(id, begin);
    }

    /// Calls an agent at a time, and not at the time it wanted before.
    pub(crate) fn wake_agent(&mut self, id: AgentId, at: Instant) {
        self.agents[id as usize].wake = Some(at);
        self.schedule(at, Event::Agent(id));
    }

    /// An agent's time has come, or one that it no longer wants.
    pub(crate) fn agent_timer(&mut self, id: AgentId) {
        let now = self.now;
        let agent = &mut self.agents[id as usize];
        if agent.wake.is_none_or(|at| at > now) {
            return;
        }
        agent.wake = None;
        if agent.is_stopped(now) {
            return self.stop_agent(id);
        }
        agent.stats.started.get_or_insert(now);
        match agent.kind {
            Kind::Bulk { .. } => self.bulk_timer(id),
            Kind::Web(_) => self.web_page(id),
            Kind::Video(..) => self.video_frame(id),
            Kind::OnOff(_) => self.on_off_packet(id),
            Kind::Ping { .. } => self.ping(id),
        }
    }

    /// The way of one end's packets: looked up again when the world has changed.
    pub(crate) fn agent_route(&mut self, id: AgentId, side: Side) -> Option<Arc<Lookup>> {
        let version = self.version;
        let agent = &self.agents[id as usize];
        if let Some((v, found)) = &agent.route[side as usize]
            && *v == version
        {
            return Some(found.clone());
        }
        let (host, own, remote) = agent.end(side);
        let found = Arc::new(self.lookup(host, remote, None, Some(own), None).ok()?);
        self.agents[id as usize].route[side as usize] = Some((version, found.clone()));
        Some(found)
    }

    /// Segments that an agent's sender has sent again so far.
    pub(crate) fn sent_again(&self, agent: &Agent) -> u64 {
        let live = agent.conns[Side::From as usize].and_then(|key| self.hosts[agent.from.0].conns.get(key));
        agent.again.0 + live.map_or(0, |e| e.conn.retransmits())
    }

    /// The addresses of a packet from one end.
    pub(crate) fn agent_addresses(agent: &Agent, side: Side) -> (SocketAddr, SocketAddr) {
        let from = SocketAddr::new(agent.from_addr, agent.source_port);
        let to = SocketAddr::new(agent.to_addr, agent.port);
        match side {
            Side::From => (from, to),
            Side::To => (to, from),
        }
    }
}
