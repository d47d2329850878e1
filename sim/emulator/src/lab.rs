//! The lab: a plan made real, for as long as this object lives.

use super::capture::{Capture, Captured};
use super::command::{self, Cmd, Output, Place, Running};
use super::emulator::{Emulator, EmulatorReport};
use super::error::{LiveError, Result};
use super::hosts::{Happened, Hosts};
use super::netns::Netns;
use super::pid_namespace::PidNamespace;
use super::plan::{Kind, Plan, Routes};
use super::record::Record;
use super::settle;
use super::tun::{self, Tun};
use super::{privileges, record};
use neater_base::Instant;
use neater_link::LinkConfig;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a lab is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Packet buffers of the emulator: the most packets that wait or travel in all links together.
    pub buffers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { buffers: 32_768 }
    }
}

#[derive(Debug)]
struct Host {
    node: usize,
    netns: Netns,
}

/// What one direction of a link did.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// The wire's name.
    pub link: String,
    /// Where packets come from.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// Packets offered.
    pub offered: u64,
    /// Packets delivered or on their way.
    pub delivered: u64,
    /// Bytes of them.
    pub delivered_bytes: u64,
    /// Lost on the wire.
    pub lost: u64,
    /// Dropped by the full queue.
    pub queue_full: u64,
    /// Dropped by the discipline of the queue: CoDel, RED.
    pub managed: u64,
    /// Marked by it with ECN, and not dropped.
    pub marked: u64,
    /// Dropped for other reasons: filters, MTU, link down.
    pub other: u64,
}

/// Hosts, links and the emulator between them. Everything is gone when this is dropped, and also when the process is killed.
#[derive(Debug)]
pub struct Lab {
    // Dropped in this order: commands first, so that nobody sees the network go.
    pid_namespace: PidNamespace,
    happenings: Hosts,
    emulator: Emulator,
    hosts: Vec<Host>,
    plan: Plan,
    hosts_file: String,
    ipv6: bool,
    record: Record,
    start: Instant,
}

impl Lab {
    /// Builds a plan.
    ///
    /// # Errors
    /// The plan makes no sense, the machine or the user does not allow it, or a tool is missing.
    pub fn up(plan: &Plan, options: &Options) -> Result<Self> {
        plan.check().map_err(LiveError::Usage)?;
        privileges::check()?;
        let record = Record::begin();
        let ipv6 = settle::has_ipv6();
        let pid_namespace = PidNamespace::new()?;
        let routes = plan.routes();
        let (emulator, hosts) = Self::over_tun(plan, options, &routes, ipv6)?;
        let netns = |node: usize| match hosts.iter().find(|h: &&Host| h.node == node) {
            Some(host) => host.netns.again(),
            None => Err(LiveError::Failed(format!("node {node} is no host"))),
        };
        let restore = |node: usize, i: usize| settle::restore(plan, node, i, &routes[node], ipv6);
        // The emulator answers only when it runs, so a lab that is up is ready.
        let start = emulator.report()?.start;
        let happenings = Hosts::start(plan, start, netns, restore)?;
        let hosts_file = settle::hosts_file(plan, ipv6);
        Ok(Self { pid_namespace, happenings, emulator, hosts, plan: plan.clone(), hosts_file, ipv6, record, start })
    }

    /// The hosts, their interfaces TUN devices of the emulator.
    fn over_tun(plan: &Plan, options: &Options, routes: &[Routes], ipv6: bool) -> Result<(Emulator, Vec<Host>)> {
        let (mut hosts, mut tuns) = (Vec::new(), Vec::new());
        for (node, planned) in plan.nodes.iter().enumerate().filter(|(_, n)| n.kind == Kind::Host) {
            let netns = Netns::new()?;
            settle::sysctls(&netns, &planned.sysctls, ipv6)?;
            for i in &planned.interfaces {
                tuns.push(netns.with(|| {
                    let tun = Tun::create(&i.name)?;
                    tun::offloads_off(&i.name)?;
                    Ok(tun)
                })?);
            }
            netns.ip(&settle::batch(plan, node, &routes[node], ipv6))?;
            hosts.push(Host { node, netns });
        }
        Ok((Emulator::start(plan.clone(), tuns, options.buffers)?, hosts))
    }

    /// What it was built from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How long the network has been there: the time that schedules count.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        super::sys::now().saturating_since(self.start)
    }

    /// The first address of a host or router.
    ///
    /// # Errors
    /// There is no such node, or it has no address of this family.
    pub fn address(&self, name: &str, v6: bool) -> Result<IpAddr> {
        let node = self.plan.node(name).ok_or_else(|| self.unknown(name))?;
        let found = self.plan.address(node, v6).filter(|a| self.ipv6 || a.is_ipv4());
        found.ok_or_else(|| LiveError::Usage(format!("{name} has no such address")))
    }

    fn host(&self, name: &str) -> Result<&Host> {
        let known = self.hosts.iter().find(|h| self.plan.nodes[h.node].name == name);
        known.ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> LiveError {
        let names: Vec<&str> = self.hosts.iter().map(|h| self.plan.nodes[h.node].name.as_str()).collect();
        let why = match self.plan.node(name) {
            Some(_) => "is a router, which is part of the emulator: commands run in hosts",
            None => "is not in this scenario",
        };
        LiveError::Usage(format!("{name} {why}; hosts are {}", names.join(", ")))
    }

    /// The network of a host, for what no command does.
    ///
    /// # Errors
    /// There is no such host.
    pub fn netns(&self, host: &str) -> Result<&Netns> {
        Ok(&self.host(host)?.netns)
    }

    /// Starts a command in a host and leaves it running.
    ///
    /// # Errors
    /// There is no such host or program.
    pub fn spawn(&self, host: &str, cmd: Cmd) -> Result<Running> {
        let place =
            Place { pid_namespace: &self.pid_namespace, netns: &self.host(host)?.netns, hosts: &self.hosts_file, host };
        command::start(&place, &cmd)
    }

    /// Runs a command in a host to its end, or to the end of its limit.
    ///
    /// # Errors
    /// There is no such host or program. A command that fails is no error here: see [`Output::success`].
    pub fn run(&self, host: &str, cmd: Cmd) -> Result<Output> {
        self.spawn(host, cmd)?.wait()
    }

    /// Starts a server in a host and waits until it listens at a TCP port, asked from inside the host.
    ///
    /// # Errors
    /// As [`Lab::spawn`]; and nobody listens within `limit`, with what the server said.
    pub fn serve(&self, host: &str, cmd: Cmd, port: u16, limit: Duration) -> Result<Running> {
        let running = self.spawn(host, cmd)?;
        match self.wait_for_tcp(host, port, limit) {
            Ok(()) => Ok(running),
            Err(e) => {
                let said = running.stop(libc::SIGTERM)?;
                Err(LiveError::Failed(format!("{e}; {} said: {}", said.command, said.errors().trim())))
            }
        }
    }

    /// Waits until somebody listens at a TCP port of a host, asked from inside the host.
    ///
    /// # Errors
    /// There is no such host, or nobody listens within `limit`.
    pub fn wait_for_tcp(&self, host: &str, port: u16, limit: Duration) -> Result<()> {
        let address = SocketAddr::new(self.address(host, false)?, port);
        self.wait_for(host, address, limit)
    }

    /// The same for an address of either family.
    ///
    /// # Errors
    /// As [`Lab::wait_for_tcp`].
    pub fn wait_for(&self, host: &str, address: SocketAddr, limit: Duration) -> Result<()> {
        command::wait_for_tcp(&self.host(host)?.netns, address, limit)
    }

    /// Starts a capture at an interface of a host; an empty filter lets everything through.
    ///
    /// # Errors
    /// There is no such host or interface, or tcpdump does not begin.
    pub fn capture(&self, host: &str, interface: &str, filter: &str, snap: usize, file: &Path) -> Result<Capture> {
        Capture::start(self, host, interface, filter, snap, file)
    }

    /// Starts captures at all interfaces of all hosts, in files `HOST-INTERFACE.pcap` under `dir`.
    ///
    /// # Errors
    /// As [`Lab::capture`].
    pub fn capture_all(&self, dir: &Path, snap: usize) -> Result<Vec<Capture>> {
        let mut all = Vec::new();
        for host in &self.hosts {
            let node = &self.plan.nodes[host.node];
            for i in &node.interfaces {
                let file: PathBuf = dir.join(format!("{}-{}.pcap", node.name, i.name));
                all.push(self.capture(&node.name, &i.name, "", snap, &file)?);
            }
        }
        Ok(all)
    }

    /// Changes a link from now on: both directions, or one (0 there, 1 back).
    ///
    /// # Errors
    /// There is no such link.
    pub fn set_link(&self, link: &str, side: usize, config: LinkConfig) -> Result<()> {
        let wire = self.plan.wire(link);
        let wire = wire.ok_or_else(|| LiveError::Usage(format!("there is no link {link}")))?;
        self.emulator.set(wire, side.min(1), config)
    }

    /// What the emulator did so far.
    ///
    /// # Errors
    /// It does not answer.
    pub fn emulator(&self) -> Result<EmulatorReport> {
        self.emulator.report()
    }

    /// What the links did so far, there and back for each.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub fn links(&self) -> Result<Vec<LinkReport>> {
        let counters = self.emulator.links()?;
        let report = |(i, c): (usize, &neater_link::Counters)| {
            let wire = self.plan.wires.get(i / 2)?;
            let name = |side: usize| self.plan.nodes[wire.ends[side].0].name.clone();
            Some(LinkReport {
                link: wire.name.clone(),
                from: name(i % 2),
                to: name(1 - i % 2),
                offered: c.offered,
                delivered: c.delivered,
                delivered_bytes: c.delivered_bytes,
                lost: c.lost,
                queue_full: c.queue_full,
                managed: c.managed,
                marked: c.marked,
                other: c.filtered + c.too_big + c.down,
            })
        };
        Ok(counters.iter().enumerate().filter_map(report).collect())
    }

    /// What the schedule has done to hosts so far.
    #[must_use]
    pub fn happened(&self) -> Vec<Happened> {
        self.happenings.changes()
    }

    /// Packets that hosts' kernels dropped before the emulator could read them: its fault, not the scenario's.
    ///
    /// # Errors
    /// A host's counters cannot be read.
    pub fn unread(&self) -> Result<u64> {
        let mut total = 0;
        for host in &self.hosts {
            total += host.netns.with(record::tx_dropped)?;
        }
        Ok(total)
    }

    /// What happened that is no property of the scenario, so that this run says nothing of what ran in it; `None` if there is
    /// no such thing. `late_max_us`: how late the 99th percentile of all packets may be, in microseconds; infinite for
    /// whoever judges that otherwise.
    ///
    /// # Errors
    /// The emulator does not answer, or a host's counters cannot be read.
    pub fn disturbance(&self, late_max_us: f64) -> Result<Option<String>> {
        let unread = self.unread()?;
        Ok(self.emulator.report()?.disturbance(unread, late_max_us))
    }

    /// Writes `run.json`: what ran, on what, how busy the machine was, and what the emulator and the links did.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_record(&self, dir: &Path, commands: &[Output], captures: &[Captured]) -> Result<()> {
        record::keep(self, &self.record, dir, commands, captures)
    }

    /// The hosts with their settings, for the record.
    pub(crate) fn settings(&self) -> Vec<(String, Vec<(String, String)>)> {
        let read = |host: &Host| {
            let pairs = settle::RECORDED.iter().filter_map(|key| {
                let value = host.netns.read_sysctl(key).ok()?;
                Some(((*key).to_owned(), value))
            });
            (self.plan.nodes[host.node].name.clone(), pairs.collect())
        };
        self.hosts.iter().map(read).collect()
    }

    /// What `nsenter --net=` takes to enter a host from another terminal.
    ///
    /// # Errors
    /// There is no such host.
    pub fn netns_path(&self, host: &str) -> Result<String> {
        Ok(format!("/proc/{}/fd/{}", std::process::id(), self.host(host)?.netns.raw()))
    }

    /// The process with which all commands end.
    #[must_use]
    pub fn init_pid(&self) -> i32 {
        self.pid_namespace.pid()
    }
}
