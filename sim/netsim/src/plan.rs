//! What a scenario says will happen, and what is looked at while it does.
//!
//! *Responsible for* changes of links, interfaces and NAT boxes at their times, samples of queues and connections, and packet records.
//! *Not responsible for* where rows and records end up: whoever runs the world takes them.
//!
//! *Invariants*: nothing here changes what packets do; a run with probes and captures is the same as one without.

use crate::capture::{Capture, Flow};
use crate::host::Owner;
use crate::nat::NatId;
use crate::packet::Packet;
use crate::sim::{Event, Sim};
use crate::world::{IfaceId, LinkId};
use core::time::Duration;
use neater_base::{Instant, Key};
use neater_link::{Counters, LinkConfig};
use neater_scenario::NatChange;

/// The most rows of one table of samples; later ones are left out, which [`Samples::truncated`] tells.
pub const MAX_SAMPLES: usize = 4 << 20;

/// One row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When, from the start of the run.
    pub at: Duration,
    /// Of what: an index into [`Samples::subjects`].
    pub subject: u32,
    /// As many as there are [`Samples::columns`], from the first.
    pub values: [f64; 5],
}

/// A table of samples of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// `queue`, `tcp` or `goodput`.
    pub name: &'static str,
    /// What was sampled: links and directions, or flows.
    pub subjects: Vec<String>,
    /// What the values are, with their units.
    pub columns: &'static [&'static str],
    /// The rows, in the order of time.
    pub rows: Vec<Sample>,
    /// There were more than [`MAX_SAMPLES`].
    pub truncated: bool,
}

impl Samples {
    fn push(&mut self, sample: Sample) {
        if self.rows.len() < MAX_SAMPLES {
            self.rows.push(sample);
        } else {
            self.truncated = true;
        }
    }

    /// The table as CSV, with a line of headings. Equal runs give equal bytes.
    #[must_use]
    pub fn to_csv(&self) -> String {
        use core::fmt::Write;
        let mut out = format!("time_s,subject,{}\n", self.columns.join(","));
        for row in &self.rows {
            let at = row.at;
            let subject = self.subjects.get(row.subject as usize).map_or("", String::as_str);
            let _ = write!(out, "{}.{:09},{subject}", at.as_secs(), at.subsec_nanos());
            for value in &row.values[..self.columns.len().min(5)] {
                out.push(',');
                if !value.is_nan() {
                    let _ = write!(out, "{value}");
                }
            }
            out.push('\n');
        }
        out
    }
}

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub(crate) enum Planned {
    Link(LinkId, Box<LinkConfig>),
    Interface(IfaceId, bool),
    Nat(NatId, NatChange),
    /// A probe's next sample.
    Probe(usize),
    /// The warm-up is over.
    Measure,
}

/// A probe.
#[derive(Clone, Debug)]
pub(crate) enum Probe {
    /// A direction of a link: its subject in the table of queues.
    Queue {
        link: LinkId,
        subject: u32,
    },
    /// A flow: its agent and its subject in the table of connections.
    Tcp {
        agent: u32,
        subject: u32,
    },
    Goodput {
        agent: u32,
        subject: u32,
        last: (Instant, u64),
    },
}

/// What is planned, and what was sampled.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) start: Instant,
    pub(crate) events: Vec<(Instant, Planned)>,
    pub(crate) probes: Vec<(Probe, Duration)>,
    /// Probes on change, by link and by agent.
    pub(crate) on_link: Vec<Option<u32>>,
    pub(crate) on_agent: Vec<Option<u32>>,
    pub(crate) tables: [Samples; 3],
    pub(crate) captures: Vec<Capture>,
    /// For links that are recorded: the records at their beginning and end.
    pub(crate) tapped: Vec<Option<(usize, usize)>>,
    /// What the links had done when the warm-up ended, by their numbers.
    pub(crate) warmed: Vec<Counters>,
}

const QUEUE: usize = 0;
const TCP: usize = 1;
const GOODPUT: usize = 2;

impl Plan {
    pub(crate) fn table(&mut self, name: &'static str) -> &mut Samples {
        let (at, columns): (usize, &'static [&'static str]) = match name {
            "queue" => (QUEUE, &["bytes", "packets"]),
            "tcp" => (TCP, &["cwnd_bytes", "ssthresh_bytes", "flight_bytes", "srtt_s", "retransmits"]),
            _ => (GOODPUT, &["bytes", "mbit_per_s"]),
        };
        let table = &mut self.tables[at];
        (table.name, table.columns) = (name, columns);
        table
    }
}

impl Sim {
    /// Something planned is due.
    pub(crate) fn planned(&mut self, index: u32) {
        let Some((_, planned)) = self.plan.events.get(index as usize).cloned() else { return };
        match planned {
            Planned::Link(link, config) => self.set_link(link, *config),
            Planned::Interface(iface, up) => self.change_interface(iface, |i| i.public.up = up),
            Planned::Nat(nat, what) => {
                let (now, nat) = (self.now, &mut self.nats[nat.0].nat);
                match what {
                    NatChange::Rebind => nat.rebind(now),
                    NatChange::Restart => nat.forget(),
                    NatChange::Move(to) => {
                        nat.rebind(now);
                        nat.set_external(to.into());
                    }
                }
            }
            Planned::Measure => self.measure(),
            Planned::Probe(probe) => {
                self.sample(probe);
                let interval = self.plan.probes[probe].1;
                let at = self.now + interval;
                self.schedule(at, Event::Planned(index));
            }
        }
    }

    /// From now on it is measured.
    fn measure(&mut self) {
        let now = self.now;
        self.plan.warmed = self.links_mut().map(|link| link.restart_peak(now)).collect();
        let again: Vec<u64> = self.agents.iter().map(|agent| self.sent_again(agent)).collect();
        self.agents.iter_mut().zip(again).for_each(|(agent, again)| agent.again.1 = again);
    }

    fn sample(&mut self, index: usize) {
        let now = self.now;
        match self.plan.probes[index].0.clone() {
            Probe::Queue { link, subject } => self.sample_queue(link, subject),
            Probe::Tcp { agent, subject } => self.sample_tcp(agent, subject),
            Probe::Goodput { agent, subject, last } => {
                let delivered = self.agents[agent as usize].stats.delivered;
                let (bytes, seconds) = (delivered - last.1, (now - last.0).as_secs_f64());
                let rate = if seconds > 0.0 { bytes as f64 * 8e-6 / seconds } else { 0.0 };
                let at = now - self.plan.start;
                self.plan.tables[GOODPUT].push(Sample { at, subject, values: [bytes as f64, rate, 0.0, 0.0, 0.0] });
                if let Probe::Goodput { last, .. } = &mut self.plan.probes[index].0 {
                    *last = (now, delivered);
                }
            }
        }
    }

    fn sample_queue(&mut self, link: LinkId, subject: u32) {
        let now = self.now;
        let link = self.link_mut(link);
        let values = [link.queued_bytes(now) as f64, link.queued_packets(now) as f64, 0.0, 0.0, 0.0];
        let at = now - self.plan.start;
        self.plan.tables[QUEUE].push(Sample { at, subject, values });
    }

    fn sample_tcp(&mut self, id: u32, subject: u32) {
        let now = self.now;
        let agent = &self.agents[id as usize];
        let Some(key) = agent.conns[0] else { return };
        let Some(entry) = self.hosts[agent.from.0].conns.get(key) else { return };
        let probe = entry.conn.probe();
        let values = [
            probe.window as f64,
            // No threshold yet: a cell without a number.
            probe.threshold.map_or(f64::NAN, |t| t as f64),
            probe.in_flight as f64,
            probe.srtt.map_or(f64::NAN, |r| r.as_secs_f64()),
            (agent.again.0 + probe.retransmits) as f64,
        ];
        let at = now - self.plan.start;
        self.plan.tables[TCP].push(Sample { at, subject, values });
    }

    /// Records a packet that enters a link or leaves it, if somebody wants it.
    #[inline]
    pub(crate) fn tap(&mut self, link: LinkId, at: Instant, flow: Flow, packet: &Packet, hop_limit: u8) {
        if let Some(Some((begin, end))) = self.plan.tapped.get(link.0).copied() {
            let record = if flow == Flow::Out { begin } else { end };
            self.plan.captures[record].packet(at, flow, packet, hop_limit);
        }
    }

    /// A link has been touched: samples its queue if somebody wants to know of changes.
    #[inline]
    pub(crate) fn link_changed(&mut self, link: LinkId) {
        if let Some(Some(subject)) = self.plan.on_link.get(link.0).copied() {
            self.sample_queue(link, subject);
            let rows = &mut self.plan.tables[QUEUE].rows;
            // Equal to the row before of the same queue: no change.
            let last = rows.len().saturating_sub(1);
            let before = rows[..last].iter().rev().find(|r| r.subject == subject);
            if before.is_some_and(|b| b.values == rows[last].values) {
                rows.truncate(last);
            }
        }
    }

    /// A connection has been touched.
    #[inline]
    pub(crate) fn conn_changed(&mut self, host: usize, key: Key) {
        if self.plan.on_agent.is_empty() {
            return;
        }
        let Some(entry) = self.hosts[host].conns.get(key) else { return };
        let (Owner::Agent(agent, side) | Owner::Finished(agent, side)) = entry.owner else { return };
        if side == crate::agent::Side::From
            && let Some(Some(subject)) = self.plan.on_agent.get(agent as usize).copied()
        {
            self.sample_tcp(agent, subject);
        }
    }
}
