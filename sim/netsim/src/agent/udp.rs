//! Video, on/off sources and echoes.

use super::{Agent, AgentId, Kind, Side, after};
use crate::packet::{Body, Packet, UDP_HEADER, ip_header};
use crate::sim::Sim;
use crate::world::HostId;
use bytes::Bytes;
use neater_base::net::Ecn;
use std::net::SocketAddr;

/// What payloads consist of.
static ZEROS: [u8; 1500] = [0; 1500];

/// The bytes of a number at the beginning of a payload.
const NUMBER: usize = 8;

/// The number that a payload begins with.
fn number(payload: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(payload.get(..NUMBER)?.try_into().ok()?))
}

impl Sim {
    /// Sends zeros behind a number, if there is room for one.
    fn agent_zeros(&mut self, id: AgentId, len: u32) {
        if self.agent_route(id, Side::From).is_none() {
            return;
        }
        let now = self.now;
        let agent = &mut self.agents[id as usize];
        let measured = agent.is_measured(now);
        let len = (len as usize).min(ZEROS.len());
        let payload = if len < NUMBER {
            if measured {
                agent.numbers.short(true);
            }
            Bytes::from_static(&ZEROS[..len])
        } else {
            let mut payload = vec![0; len];
            payload[..NUMBER].copy_from_slice(&agent.numbers.send(now, measured).to_be_bytes());
            payload.into()
        };
        self.agent_datagram(id, Side::From, payload);
    }

    fn agent_datagram(&mut self, id: AgentId, side: Side, payload: Bytes) {
        let Some(found) = self.agent_route(id, side) else { return };
        let agent = &mut self.agents[id as usize];
        if side == Side::From {
            agent.stats.datagrams.0 += 1;
        }
        let (source, destination) = Self::agent_addresses(agent, side);
        let body = Body::Udp(payload);
        let packet = Packet { source, destination, ecn: Ecn::NotEct, pieces: Some(found.mtu), body };
        self.send_packet(packet, found.route.clone());
    }

    /// Sends a payload back to where it came from, which a NAT box may have made another place than it was sent from.
    fn echo(&mut self, id: AgentId, to: SocketAddr, payload: Bytes) {
        let agent = &self.agents[id as usize];
        let (source, usual) = Self::agent_addresses(agent, Side::To);
        if to == usual {
            return self.agent_datagram(id, Side::To, payload);
        }
        let (host, own, _) = agent.end(Side::To);
        let Ok(found) = self.lookup(host, to.ip(), None, Some(own), None) else { return };
        let body = Body::Udp(payload);
        let packet = Packet { source, destination: to, ecn: Ecn::NotEct, pieces: Some(found.mtu), body };
        self.send_packet(packet, found.route);
    }

    /// Sends one frame and waits for the next.
    pub(super) fn video_frame(&mut self, id: AgentId) {
        let now = self.now;
        let agent = &mut self.agents[id as usize];
        let Kind::Video(video, state) = &mut agent.kind else { return };
        state.credit += video.rate as f64 / 8.0 / video.frames_per_second;
        let mut bytes = state.credit as u64;
        state.credit -= bytes as f64;
        let (packet, interval) = (video.packet, 1.0 / video.frames_per_second);
        while bytes > 0 {
            let len = bytes.min(u64::from(packet));
            bytes -= len;
            self.agent_zeros(id, len as u32);
        }
        self.wake_agent(id, after(now, interval));
    }

    /// Sends one packet of a burst, or waits for the next burst.
    pub(super) fn on_off_packet(&mut self, id: AgentId) {
        let now = self.now;
        let agent = &mut self.agents[id as usize];
        let (on, off) = match &agent.kind {
            Kind::OnOff(both) => (both.0.on, both.0.off),
            _ => return,
        };
        let until = match &agent.kind {
            Kind::OnOff(both) => both.1.on_until,
            _ => None,
        };
        let next = match until {
            Some(until) if now >= until => {
                let quiet = agent.draw(&off);
                set_on(agent, None);
                return self.wake_agent(id, after(now, quiet));
            }
            Some(until) => until,
            None => {
                let busy = agent.draw(&on);
                after(now, busy)
            }
        };
        set_on(agent, Some(next));
        let luck = agent.rng.unit();
        let Kind::OnOff(both) = &agent.kind else { return };
        let (model, state) = &**both;
        let mut left = luck * state.weights;
        let pick = model.packets.iter().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        let size = pick.or(model.packets.last()).map_or(1500, |p| p.0);
        let gap = f64::from(size) * 8.0 / model.rate as f64;
        let headers = ip_header(&agent.to_addr) + UDP_HEADER;
        self.agent_zeros(id, size.saturating_sub(headers));
        self.wake_agent(id, after(now, gap));
    }

    /// Sends one echo request, which carries its number and time.
    pub(super) fn ping(&mut self, id: AgentId) {
        let now = self.now;
        let agent = &mut self.agents[id as usize];
        let Kind::Ping { interval, size } = &agent.kind else { return };
        let (interval, mut payload) = (*interval, vec![0; (*size as usize).max(16)]);
        if self.agent_route(id, Side::From).is_some() {
            let agent = &mut self.agents[id as usize];
            let number = agent.numbers.send(now, agent.is_measured(now));
            payload[..NUMBER].copy_from_slice(&number.to_be_bytes());
            payload[NUMBER..16].copy_from_slice(&now.as_nanos().to_be_bytes());
            self.agent_datagram(id, Side::From, payload.into());
        }
        self.wake_agent(id, now + interval);
    }

    /// A datagram has arrived at an agent's port.
    pub(crate) fn agent_udp(&mut self, id: AgentId, host: HostId, source: SocketAddr, payload: &Bytes) {
        let now = self.now;
        let agent = &mut self.agents[id as usize];
        let side = agent.side_at(host);
        let echo = matches!(agent.kind, Kind::Ping { .. });
        if !echo || side == Side::From {
            agent.stats.datagrams.1 += 1;
            match number(payload) {
                Some(number) => agent.numbers.arrive(now, number),
                None if agent.is_measured(now) => agent.numbers.short(false),
                None => {}
            }
        }
        if echo && side == Side::To {
            return self.echo(id, source, payload.clone());
        }
        if echo && let Some(bytes) = payload.get(8..16).and_then(|b| b.try_into().ok()) {
            let sent = neater_base::Instant::from_nanos(u64::from_be_bytes(bytes));
            if agent.is_measured(now) {
                agent.stats.rtt.add((now - sent).as_secs_f64());
            }
        }
        agent.deliver(now, payload.len() as u64);
    }
}

fn set_on(agent: &mut Agent, until: Option<neater_base::Instant>) {
    if let Kind::OnOff(both) = &mut agent.kind {
        both.1.on_until = until;
    }
}
