//! Bulk transfers and web sessions.

use super::{Agent, AgentId, Kind, MAX_OBJECTS, Side, WebObject, WebState, after};
use crate::host::Owner;
use crate::sim::Sim;
use crate::tcp::Conn;
use crate::world::HostId;
use neater_base::net::ErrorKind;
use neater_base::{Instant, Key};
use std::net::SocketAddr;

/// How long after a failure a web session tries again.
const RETRY: f64 = 1.0;

impl Sim {
    /// The start, or the stop, of a bulk transfer.
    pub(super) fn bulk_timer(&mut self, id: AgentId) {
        self.agent_connect(id);
        if let Some(stop) = self.agents[id as usize].stop {
            self.wake_agent(id, stop);
        }
    }

    /// Asks for a new page.
    pub(super) fn web_page(&mut self, id: AgentId) {
        let now = self.now;
        let agent = &mut self.agents[id as usize];
        let Kind::Web(web) = &agent.kind else { return };
        let law = web.model.objects;
        let objects = agent.draw(&law).round().clamp(1.0, 10_000.0) as u32;
        if let Kind::Web(web) = &mut agent.kind {
            web.objects_left = objects;
            web.asking = false;
            web.page_at = now;
        }
        self.agent_connect(id);
    }

    /// Ends what an agent does: connections are reset, as by a program that is ended.
    pub(super) fn stop_agent(&mut self, id: AgentId) {
        for side in [Side::From, Side::To] {
            let agent = &mut self.agents[id as usize];
            let host = agent.end(side).0;
            let Some(key) = agent.conns[side as usize].take() else { continue };
            if let Some(entry) = self.host(host).conns.get_mut(key) {
                let retransmits = entry.conn.retransmits();
                entry.owner = Owner::Nobody;
                entry.conn.abort();
                if side == Side::From {
                    self.agents[id as usize].again.0 += retransmits;
                }
            }
            self.settle(host, key);
        }
    }

    /// Opens the connection of an agent.
    fn agent_connect(&mut self, id: AgentId) {
        let agent = &self.agents[id as usize];
        let side = agent.caller();
        let (host, own, remote) = agent.end(side);
        let remote = SocketAddr::new(remote, agent.port);
        let options = agent.options[side as usize];
        match self.open_conn(host, own, remote, options, Owner::Agent(id, side)) {
            Ok(key) => {
                self.agents[id as usize].conns[side as usize] = Some(key);
                self.settle(host, key);
            }
            Err(_) => self.agent_failed(id),
        }
    }

    fn agent_failed(&mut self, id: AgentId) {
        let now = self.now;
        let agent = &mut self.agents[id as usize];
        agent.stats.failures += 1;
        if matches!(agent.kind, Kind::Web(_)) {
            self.wake_agent(id, after(now, RETRY));
        }
    }

    /// A connection of an agent is no more.
    pub(crate) fn agent_lost(&mut self, id: AgentId, side: Side, key: Key, retransmits: u64) {
        let agent = &mut self.agents[id as usize];
        if side == Side::From {
            agent.again.0 += retransmits;
        }
        if agent.conns[side as usize] != Some(key) {
            return;
        }
        agent.conns[side as usize] = None;
        let broken = match &agent.kind {
            Kind::Bulk { .. } => {
                side == Side::From && agent.stats.finished.is_none() && agent.stop.is_none_or(|s| s > self.now)
            }
            Kind::Web(web) => side == Side::To && (web.asking || web.objects_left > 0),
            _ => false,
        };
        if broken {
            self.agent_failed(id);
        }
    }

    /// Something has happened to a connection of an agent.
    pub(crate) fn drive_agent(&mut self, host: HostId, key: Key, id: AgentId, side: Side) {
        let now = self.now;
        let Some(entry) = self.hosts[host.0].conns.get_mut(key) else { return };
        let agent = &mut self.agents[id as usize];
        let conn = &mut entry.conn;
        if !conn.was_established() || conn.is_closed() {
            return;
        }
        // A server may still have the connection of an earlier page, which is only being closed.
        if side == Side::From || agent.conns[side as usize].is_none() {
            agent.conns[side as usize] = Some(key);
        }
        if side == Side::From
            && agent.is_measured(now)
            && let Some(rtt) = conn.smoothed_rtt()
        {
            agent.stats.rtt.add(rtt.as_secs_f64());
        }
        let step =
            if matches!(agent.kind, Kind::Web(_)) { web(agent, side, now, conn) } else { bulk(agent, side, now, conn) };
        if step.closed {
            entry.owner = Owner::Finished(id, side);
        }
        if let Some(at) = step.wake {
            self.wake_agent(id, at);
        }
    }
}

/// What follows for the connection and its agent.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    /// The agent has closed the connection and no longer looks at it.
    closed: bool,
    wake: Option<Instant>,
}

/// Writes up to `len` zeros and returns how many were taken.
fn push(conn: &mut Conn, now: Instant, len: u64) -> u64 {
    conn.write_zeros(now, usize::try_from(len).unwrap_or(usize::MAX)).map_or(0, |n| n as u64)
}

/// Reads everything and returns how much it was, and whether the peer has closed.
fn drain(conn: &mut Conn, now: Instant) -> (u64, bool) {
    match conn.discard(now, usize::MAX) {
        Ok(0) => (0, true),
        Ok(n) => (n as u64, false),
        Err(ErrorKind::WouldBlock) => (0, false),
        Err(_) => (0, true),
    }
}

fn bulk(agent: &mut Agent, side: Side, now: Instant, conn: &mut Conn) -> Step {
    if side == Side::To {
        let (n, ended) = drain(conn, now);
        if n > 0 {
            agent.deliver(now, n);
        }
        if let Kind::Bulk { total: Some(total), .. } = agent.kind
            && agent.stats.delivered >= total
        {
            agent.stats.finished.get_or_insert(now);
        }
        if ended {
            conn.close(now);
        }
        return Step { closed: ended, wake: None };
    }
    let Kind::Bulk { left, .. } = &mut agent.kind else { return Step::default() };
    if *left != Some(0) {
        let n = push(conn, now, left.unwrap_or(u64::MAX));
        if let Some(left) = left {
            *left -= n;
        }
    }
    let closed = *left == Some(0);
    if closed {
        conn.close(now);
    }
    Step { closed, wake: None }
}

fn web(agent: &mut Agent, side: Side, now: Instant, conn: &mut Conn) -> Step {
    match side {
        Side::To => web_client(agent, now, conn),
        Side::From => web_server(agent, now, conn),
    }
}

/// The reader: one object after another; then the connection is closed, and the next page comes after a time to think.
fn web_client(agent: &mut Agent, now: Instant, conn: &mut Conn) -> Step {
    let (n, ended) = drain(conn, now);
    if n > 0 {
        agent.deliver(now, n);
    }
    let measured = agent.is_measured(now);
    loop {
        let Kind::Web(web) = &mut agent.kind else { return Step::default() };
        if web.asking {
            let WebState { object, request, .. } = &mut **web;
            object.1 = object.1.saturating_sub(if request.1 == 0 { n } else { 0 });
            if request.0 > 0 {
                request.0 -= push(conn, now, request.0);
            }
            if request.1 > 0 || object.1 > 0 {
                // Broken off by the server: what is missing will never come, and that it is gone will be told as a failure.
                if ended {
                    conn.close(now);
                }
                return Step { closed: ended, wake: None };
            }
            web.asking = false;
            let object =
                WebObject { asked: web.asked_at, seconds: (now - web.asked_at).as_secs_f64(), bytes: web.size };
            if measured {
                agent.stats.object_time.add(object.seconds);
                if agent.objects.len() < MAX_OBJECTS {
                    agent.objects.push(object);
                }
            }
            continue;
        }
        if web.objects_left > 0 && !ended {
            web.objects_left -= 1;
            let (request, object) = (web.model.request, web.model.object);
            let request = agent.draw(&request).clamp(1.0, 1e6) as u64;
            let object = agent.draw(&object).clamp(1.0, 1e12) as u64;
            let Kind::Web(web) = &mut agent.kind else { return Step::default() };
            web.request = (request, request);
            (web.object, web.size) = ((object, object), object);
            (web.asking, web.asked_at) = (true, now);
            web.request.0 -= push(conn, now, request);
            return Step::default();
        }
        let (page_at, think) = (web.page_at, web.model.think);
        if measured {
            agent.stats.page_time.add((now - page_at).as_secs_f64());
        }
        web.objects_left = 0;
        agent.conns[Side::To as usize] = None;
        conn.close(now);
        let pause = agent.draw(&think);
        return Step { closed: true, wake: Some(after(now, pause)) };
    }
}

/// The server: once a request is complete, its object.
fn web_server(agent: &mut Agent, now: Instant, conn: &mut Conn) -> Step {
    let (n, ended) = drain(conn, now);
    let Kind::Web(web) = &mut agent.kind else { return Step::default() };
    web.request.1 = web.request.1.saturating_sub(n);
    if web.request.1 == 0 && web.object.0 > 0 {
        web.object.0 -= push(conn, now, web.object.0);
    }
    if ended {
        conn.close(now);
    }
    Step { closed: ended, wake: None }
}
