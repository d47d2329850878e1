//! E5 and E6: the commands that users run, between hosts with two networks, with real packets: how much one transfer gets out of both,
//! and what it notices when one of them fails.

pub(crate) mod watch;

use super::links::{environments, failover};
use super::{Lab, Outcome};
use crate::measure::{MeasureError, Result, failed};
use crate::plot::{Axis, Curve, Drawing, Lines, Panel};
use crate::programs::Program;
use crate::report::{Bound, Figure};
use neater_emulator::plan::{Change, NatPlan, What};
use neater_emulator::{self as live, Cmd, Kind, Options, Plan, Running};
use neater_link::{LinkConfig, NatConfig, QueueLimit};
use neater_peers::paced::Load;
use neater_scenario::NatChange;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const RATE: u64 = 10_000_000;
const DELAY: Duration = Duration::from_millis(10);
/// Of each network, in both directions: 100 ms.
fn queue(rate: u64) -> QueueLimit {
    QueueLimit::Bytes(rate / 80)
}
/// What is transferred, in bytes: full and quick.
const BYTES: (usize, usize) = (64_000_000, 4_000_000);
/// Of E6: as much as both networks carry in half a minute.
const BYTES_E6: usize = 64_000_000;
const RUNS: (usize, usize) = (10, 1);
const PORT: u16 = 8080;
/// Of the server on noq.
const NOQ_PORT: u16 = 9443;
/// Where links die: by its default noq keeps a dead path, and loses the connection with it.
const NOQ_PATH_IDLE_MS: &str = "1500";
/// Of the server that sends messages by a plan.
const PACED_PORT: u16 = 9444;
const START: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(300);
/// A server serves all runs of its place.
const SERVING: Duration = Duration::from_secs(4 * 3600);
/// How often it is looked how much has arrived.
const TICK: Duration = Duration::from_millis(10);
pub(in crate::experiments) const BOTH: &str = "multipath=Active,multipathPolicy=Aggregate";
pub(in crate::experiments) const ONE: &str = "multipath=Active";
/// SCTP over DTLS, by the server that has a certificate.
const DTLS: &str = "SCTP/DTLS";

/// A client with two networks, and a server that serves one file.
pub(in crate::experiments) struct Place {
    // Ends before its host does.
    server: Option<Running>,
    net: live::Lab,
    dir: PathBuf,
    url: String,
    contents: Vec<u8>,
    /// Serves the same over DTLS.
    secure: Option<(Running, String)>,
    /// Sends as many bytes as it is asked for, by QUIC with several paths.
    noq: Option<Running>,
    /// Sends messages by a plan.
    paced: Option<Running>,
    /// What the links are like.
    links: Links,
    /// The address that the client's second interface has at first, and the one that it gets.
    addresses: [String; 2],
    /// When the networks came up.
    up: Instant,
}

/// What the client's two networks are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiments) enum Links {
    /// Both of 10 Mbit/s and 20 ms there and back.
    Equal,
    /// Both of 10 Mbit/s, 10 and 100 ms there and back.
    Rtts,
    /// 2 and 18 Mbit/s, 20 ms there and back.
    Rates,
    /// Those of I2, whose links die.
    Deaths,
    /// A pair of I1, by its place in the list, with queues of 1,000 packets.
    Pair(usize),
}

impl Links {
    const ALL: [Self; 3] = [Self::Equal, Self::Rtts, Self::Rates];

    fn configs(self) -> [LinkConfig; 2] {
        if self == Self::Deaths {
            return [failover::link(), failover::link()];
        }
        if let Some(pair) = self.pair() {
            return pair.sides.map(|side| side.link(environments::Queue::Deep));
        }
        let (rates, delays) = match self {
            Self::Equal | Self::Pair(_) | Self::Deaths => ([RATE; 2], [DELAY; 2]),
            Self::Rtts => ([RATE; 2], [Duration::from_millis(5), Duration::from_millis(50)]),
            Self::Rates => ([2_000_000, 18_000_000], [DELAY; 2]),
        };
        [0, 1].map(|i| LinkConfig::rate(rates[i], delays[i]).with_queue(queue(rates[i])))
    }

    fn pair(self) -> Option<&'static environments::Environment> {
        if let Self::Pair(at) = self { environments::ALL.get(at) } else { None }
    }

    /// What is fetched over them in E5: a name, the transport, what is needed of it.
    fn rows(self) -> &'static [(&'static str, &'static str, &'static str)] {
        match self {
            Self::Equal => &[
                ("tcp", "TCP", "reliable"),
                ("one", "SCTP", ONE),
                ("equal", "SCTP", BOTH),
                ("equal-dtls", DTLS, BOTH),
                ("mptcp-equal", "TCP", ONE),
            ],
            Self::Rtts => &[("rtt-10-100", "SCTP", BOTH), ("mptcp-rtt-10-100", "TCP", ONE)],
            Self::Pair(_) | Self::Deaths => &[],
            Self::Rates => &[("rate-2-18", "SCTP", BOTH), ("mptcp-rate-2-18", "TCP", ONE)],
        }
    }
}

/// What is between the client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiments) enum Core {
    Router,
    /// A NAT box, which at [`REBINDS`] gives every mapping another port.
    Nat,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.server.take();
        self.secure.take();
        self.noq.take();
        self.paced.take();
    }
}

/// What became of one transfer.
struct Transfer {
    /// When how much had arrived, from the start of the command.
    course: Vec<(f64, u64)>,
    seconds: f64,
    /// The command has succeeded, and the file is the server's.
    whole: bool,
}

impl Place {
    pub(in crate::experiments) fn build(
        lab: &Lab,
        seed: u64,
        bytes: usize,
        links: Links,
        core_is: Core,
    ) -> Result<Self> {
        let mut plan = Plan::new(seed);
        let [client, core, server] =
            [("client", Kind::Host), ("core", Kind::Router), ("server", Kind::Host)].map(|(n, k)| plan.add(n, k));
        for (name, link) in ["one", "two"].into_iter().zip(links.configs()) {
            plan.connect(name, client, core, link.clone(), link);
        }
        plan.connect("far", core, server, LinkConfig::default(), LinkConfig::default());
        plan.sysctl_everywhere("net.ipv4.tcp_congestion_control", "cubic");
        // The network knows both addresses of the second interface from the beginning, and the host has one of them at a time.
        let second = &mut plan.nodes[client].interfaces[1].addresses;
        let Some((IpAddr::V4(old), prefix)) = second.iter().find(|(a, _)| a.is_ipv4()).copied() else {
            return failed("the client's second interface has no IPv4 address");
        };
        let new = Ipv4Addr::new(10, 77, 0, 1);
        second.push((new.into(), prefix));
        if core_is == Core::Nat {
            let outside = plan.wires.len() - 1;
            let own = plan.nodes[core].interfaces.iter().find(|i| i.wire.0 == outside);
            let Some((external, _)) = own.and_then(|i| i.addresses.iter().find(|(a, _)| a.is_ipv4())).copied() else {
                return failed("the router has no IPv4 address outside");
            };
            plan.nodes[core].nat = Some(NatPlan { outside, config: NatConfig::port_restricted_cone(external) });
            plan.changes.push(Change { at: REBINDS, what: What::Nat { node: core, what: NatChange::Rebind } });
        }
        plan.check().map_err(MeasureError::Failed)?;
        let net = live::Lab::up(&plan, &Options::default())?;
        let up = Instant::now();
        net.netns("client")?.ip(&format!("addr del {new}/{prefix} dev eth1\n"))?;
        let dir = lab.scratch.join(format!("networks-{seed}"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("www"))?;
        let dir = dir.canonicalize()?;
        let mut contents = vec![0; bytes];
        neater_base::Rng::from_number(seed).fill(&mut contents);
        fs::write(dir.join("www").join("file"), &contents)?;
        let url = format!("http://{}:{PORT}/file", net.address("server", false)?);
        let mut place = Self {
            server: None,
            net,
            dir,
            url,
            contents,
            secure: None,
            noq: None,
            paced: None,
            links,
            addresses: [format!("{old}/{prefix}"), format!("{new}/{prefix}")],
            up,
        };
        // Where links die, another program has SCTP's port.
        if links != Links::Deaths {
            place.serve(lab)?;
        }
        Ok(place)
    }

    /// Starts a server that serves the file over TCP and SCTP.
    fn serve(&mut self, lab: &Lab) -> Result<()> {
        let serve = Cmd::new(lab.programs.neater()?).args(["serve", "--plain", "--transport", "TCP,SCTP"]);
        let serve = serve.args(["--bind", "0.0.0.0", "--port", &PORT.to_string()]).arg(self.dir.join("www"));
        self.server = Some(self.net.serve("server", serve.limit(SERVING), PORT, START)?);
        Ok(())
    }

    /// The address that the client's second interface has at first.
    fn second(&self) -> &str {
        self.addresses[0].split('/').next().unwrap_or_default()
    }

    /// Tells the kernels that TCP with several paths may open one from the client's second address (RFC 8684): their path
    /// managers open none by themselves.
    pub(in crate::experiments) fn manage_paths(&self) -> Result<()> {
        let limits = "mptcp limits set subflows 2 add_addr_accepted 2\n";
        let second = self.second();
        self.net.netns("server")?.ip(limits)?;
        self.net.netns("client")?.ip(&format!("{limits}mptcp endpoint add {second} dev eth1 subflow\n"))?;
        Ok(())
    }

    /// Starts a server that serves the file over SCTP over DTLS, with a certificate that it makes.
    fn serve_secure(&mut self, lab: &Lab) -> Result<()> {
        let at = self.net.address("server", false)?.to_string();
        let certificates = self.dir.join("certificates");
        let serve = Cmd::new(lab.programs.neater()?).args(["serve", "--transport", "SCTP", "--bind", "0.0.0.0"]);
        // A port for SCTP that the server in the clear does not have.
        let serve = serve.args(["--port", "8443", "--udp-port", "9900", "--name", &at]).arg("--cert-dir");
        let serve = serve.arg(&certificates).arg(self.dir.join("www")).limit(SERVING);
        let running = self.net.spawn("server", serve)?;
        let begin = Instant::now();
        let shown = |file: &fs::DirEntry| {
            let name = file.file_name().to_string_lossy().into_owned();
            name.ends_with(".pem") && !name.ends_with(".key.pem")
        };
        while begin.elapsed() < START {
            let made = fs::read_dir(&certificates).ok().and_then(|all| all.flatten().find(shown));
            if let Some(file) = made {
                // It is written before the port is open.
                std::thread::sleep(Duration::from_millis(500));
                self.secure = Some((running, file.path().display().to_string()));
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
        failed("the server over DTLS has not made a certificate")
    }

    /// Starts a server on noq.
    pub(in crate::experiments) fn serve_noq(&mut self, lab: &Lab) -> Result<()> {
        let mut serve = lab.programs.command(Program::Noq, "serve")?;
        serve.args(["--bind", "0.0.0.0", "--port", &NOQ_PORT.to_string(), "--limit", &SERVING.as_secs().to_string()]);
        self.add_to_noq(lab, &mut serve);
        let serve = Cmd::new(serve.get_program()).args(serve.get_args()).limit(SERVING);
        let mut running = self.net.spawn("server", serve)?;
        running.wait_for_output("listening", START)?;
        self.noq = Some(running);
        Ok(())
    }

    /// Starts a server that sends messages by a plan, over SCTP and TCP.
    pub(in crate::experiments) fn serve_paced(&mut self, lab: &Lab) -> Result<()> {
        let mut serve = lab.programs.command(Program::Paced, "serve")?;
        serve.args(["--bind", "0.0.0.0", "--port", &PACED_PORT.to_string(), "--limit", &SERVING.as_secs().to_string()]);
        let serve = Cmd::new(serve.get_program()).args(serve.get_args()).limit(SERVING);
        let mut running = self.net.spawn("server", serve)?;
        running.wait_for_output("listening", START)?;
        self.paced = Some(running);
        Ok(())
    }

    /// A client of one of the servers that send messages, which says when it is connected. `transport`:
    /// that of the server over SCTP and TCP; otherwise it is the one on noq.
    pub(in crate::experiments) fn ask_messages(
        &self,
        lab: &Lab,
        transport: Option<&str>,
        load: Load,
        time: Duration,
    ) -> Result<Running> {
        let at = self.net.address("server", false)?;
        let (program, port) = if transport.is_some() { (Program::Paced, PACED_PORT) } else { (Program::Noq, NOQ_PORT) };
        let mut get = lab.programs.command(program, "get")?;
        get.args(["--addr", &format!("{at}:{port}"), "--load", load.name(), "--ms", &time.as_millis().to_string()]);
        match transport {
            Some(transport) => {
                get.args(["--transport", transport]);
            }
            None => {
                let [first, second] = self.client_addresses()?;
                get.args(["--local", &format!("{first}%eth0"), "--local", &format!("{second}%eth1")]);
                self.add_to_noq(lab, &mut get);
            }
        }
        let get = Cmd::new(get.get_program()).args(get.get_args()).limit(PATIENCE);
        let mut running = self.net.spawn("client", get)?;
        running.wait_for_output("open", START)?;
        Ok(running)
    }

    /// The options of both ends on noq.
    fn add_to_noq(&self, lab: &Lab, command: &mut Command) {
        lab.programs.add_credentials(command);
        if self.links == Links::Deaths {
            command.args(["--path-idle", NOQ_PATH_IDLE_MS]);
        }
    }

    /// The client's addresses, by their interfaces.
    pub(in crate::experiments) fn client_addresses(&self) -> Result<[String; 2]> {
        Ok([self.net.address("client", false)?.to_string(), self.second().to_owned()])
    }

    /// Bytes that each link has carried to the client so far.
    pub(in crate::experiments) fn carried(&self) -> Result<[u64; 2]> {
        let all = self.net.links()?;
        let of = |name: &str| {
            let towards = all.iter().filter(|l| l.link == name && l.to == "client");
            towards.map(|l| l.delivered_bytes).sum()
        };
        Ok(["one", "two"].map(of))
    }

    /// Lets one of the links swallow everything from now on, or work again.
    pub(in crate::experiments) fn set_down(&self, link: usize, down: bool) -> Result<()> {
        let config = self.links.configs()[link].clone().with_down(down);
        cut(&self.net, ["one", "two"][link], &config)
    }

    /// What happened that is no property of the links, and how late packets were.
    pub(in crate::experiments) fn disturbance(&self) -> Result<Option<String>> {
        Ok(self.net.disturbance(f64::INFINITY)?)
    }

    /// Fetches as many bytes as the file has from the server on noq, over a path by each of these
    /// interfaces; in seconds from the call to connect to the last byte.
    pub(in crate::experiments) fn fetch_noq(&self, lab: &Lab, interfaces: &[&str]) -> Result<f64> {
        let at = self.net.address("server", false)?;
        let mut get = lab.programs.command(Program::Noq, "get")?;
        get.args(["--addr", &format!("{at}:{NOQ_PORT}"), "--bytes", &self.contents.len().to_string()]);
        for interface in interfaces {
            let [first, second] = self.client_addresses()?;
            let own = if *interface == "eth0" { first } else { second };
            get.args(["--local", &format!("{own}%{interface}")]);
        }
        get.args(["--limit", &PATIENCE.as_secs().to_string()]);
        lab.programs.add_credentials(&mut get);
        let get = Cmd::new(get.get_program()).args(get.get_args()).limit(PATIENCE);
        let said = self.net.run("client", get)?.success()?.text();
        let seen: serde_json::Value =
            serde_json::from_str(said.trim()).map_err(|e| MeasureError::Failed(e.to_string()))?;
        match seen["seconds"].as_f64() {
            Some(seconds) if seen["bytes"] == self.contents.len() => Ok(seconds),
            _ => failed(format!("over noq the bytes did not all arrive: {said}")),
        }
    }

    /// Fetches the file over this transport, as `get` does with these options besides.
    pub(in crate::experiments) fn fetch_by(
        &self,
        lab: &Lab,
        transport: &str,
        needs: &str,
        more: &[&str],
    ) -> Result<f64> {
        let transfer = self.fetch_with(lab, transport, needs, more, |_, _| Ok(()))?;
        if transfer.whole {
            Ok(transfer.seconds)
        } else {
            failed(format!("over {transport} the file did not arrive whole"))
        }
    }

    /// Fetches the file over this transport. `happens` is called again and again with the time since the start.
    fn fetch(
        &self,
        lab: &Lab,
        transport: &str,
        needs: &str,
        happens: impl FnMut(&live::Lab, Duration) -> Result<()>,
    ) -> Result<Transfer> {
        self.fetch_with(lab, transport, needs, &[], happens)
    }

    fn fetch_with(
        &self,
        lab: &Lab,
        transport: &str,
        needs: &str,
        more: &[&str],
        mut happens: impl FnMut(&live::Lab, Duration) -> Result<()>,
    ) -> Result<Transfer> {
        let file = self.dir.join("got");
        let beside = |end: &str| self.dir.join(format!("got{end}"));
        for old in ["", ".part", ".part.json"] {
            let _ = fs::remove_file(beside(old));
        }
        let secure = self.secure.as_ref().filter(|_| transport == DTLS);
        let (url, how) = match secure {
            Some((_, ca)) => {
                let at = self.net.address("server", false)?;
                (format!("https://{at}:8443/file"), vec!["SCTP", "--udp-port", "9900", "--ca", ca])
            }
            None => (self.url.clone(), vec![transport]),
        };
        let get =
            Cmd::new(lab.programs.neater()?).args(["get", &url, "--needs", needs, "--transport"]).args(how).args(more);
        let get = get.arg("-o").arg(&file).limit(PATIENCE);
        let begin = Instant::now();
        let running = self.net.spawn("client", get)?;
        let mut course = vec![(0.0, 0)];
        while running.is_running() {
            std::thread::sleep(TICK);
            let (at, size) = (begin.elapsed(), |f: PathBuf| fs::metadata(f).map(|m| m.len()).ok());
            let now = size(beside(".part")).or_else(|| size(file.clone())).unwrap_or(0);
            if course.last().is_none_or(|(_, before)| now > *before) {
                course.push((at.as_secs_f64(), now));
            }
            happens(&self.net, at)?;
        }
        let output = running.wait()?;
        let seconds = begin.elapsed().as_secs_f64();
        let whole = output.success().is_ok() && fs::read(&file).is_ok_and(|got| got == self.contents);
        Ok(Transfer { course, seconds, whole })
    }
}

impl Transfer {
    /// The longest time in which nothing arrived, of what began in this one, in seconds.
    fn stall(&self, from: f64, to: f64) -> f64 {
        let gaps = self.course.windows(2).filter(|w| w[1].0 > from && w[0].0 < to).map(|w| w[1].0 - w[0].0.max(from));
        gaps.fold(0.0, f64::max)
    }

    /// When something arrived first after that, in seconds from then.
    fn resumes(&self, after: f64) -> Option<f64> {
        self.course.iter().find(|(at, _)| *at > after).map(|(at, _)| at - after)
    }

    fn curve(&self, name: &str) -> Curve {
        let each = (0..=self.seconds.ceil() as usize * 4).map(|i| i as f64 / 4.0);
        let by = |t: f64| self.course.iter().rev().find(|(at, _)| *at <= t).map_or(0, |(_, n)| *n);
        Curve::plain(name, each.map(|t| (t, by(t) as f64 / 1e6)))
    }
}

fn runs(lab: &Lab) -> usize {
    lab.seeds.unwrap_or(if lab.quick { RUNS.1 } else { RUNS.0 })
}

fn drawing(out: &mut Outcome, title: &str, curves: Vec<Curve>) {
    let (x, y) = (Axis::linear("time", "s"), Axis::linear("received", "MB"));
    let panel = Panel::Lines(Lines { title: title.into(), x, y, curves });
    let caption =
        "Two networks of 10 Mbit/s, 20 ms there and back, unless the name says otherwise; the first run of each.";
    out.drawings.push(Drawing::new("course", title.to_owned(), caption, vec![panel]));
}

pub(super) fn e5(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome { runs: Some(runs(lab)), ..Outcome::default() };
    let mut curves = Vec::new();
    for links in Links::ALL {
        let wanted = |(variant, ..): &&(&str, &str, &str)| lab.is_wanted(variant);
        let rows: Vec<_> = links.rows().iter().filter(wanted).collect();
        if rows.is_empty() {
            continue;
        }
        let bytes = if lab.quick { BYTES.1 } else { BYTES.0 };
        let mut place = Place::build(lab, lab.seed, bytes, links, Core::Router)?;
        if rows.iter().any(|(_, transport, _)| *transport == DTLS) {
            place.serve_secure(lab)?;
        }
        if rows.iter().any(|(variant, ..)| variant.starts_with("mptcp")) {
            place.manage_paths()?;
        }
        for (variant, transport, needs) in rows {
            let (rates, course) = e5_row(lab, &place, variant, (transport, needs), &mut out)?;
            curves.push(course);
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let f = Figure::new("E5", "goodput_mbit", *variant, "Mbit/s").value(mean, rates.len()).needs(RUNS.0);
            out.figures.push(match *variant {
                "equal" => f.published("18").judge(Bound::AtLeast(18.5)),
                "rtt-10-100" | "rate-2-18" => f.judge(Bound::AtLeast(18.5)),
                "equal-dtls" => f.published("18").judge(Bound::AtLeast(18.0)),
                "tcp" => f.published("9"),
                _ => f,
            });
        }
        if let Some(why) = place.net.disturbance(f64::INFINITY)? {
            (lab.progress)(&why);
        }
    }
    drawing(&mut out, "E5: one file over two networks", curves);
    Ok(out)
}

/// The rates of all runs of one row, in Mbit/s, and the course of the first.
fn e5_row(
    lab: &Lab,
    place: &Place,
    variant: &str,
    (transport, needs): (&str, &str),
    out: &mut Outcome,
) -> Result<(Vec<f64>, Curve)> {
    let mut rates = Vec::new();
    let mut course = None;
    for run in 0..runs(lab) {
        (lab.progress)(&format!("{variant}, run {} of {}", run + 1, runs(lab)));
        let transfer = place.fetch(lab, transport, needs, |_, _| Ok(()))?;
        if !transfer.whole {
            return failed(format!("{variant}: the file did not arrive whole"));
        }
        let rate = place.contents.len() as f64 * 8e-6 / transfer.seconds;
        out.sample("goodput_mbit", variant, "", run, rate);
        rates.push(rate);
        course.get_or_insert_with(|| transfer.curve(variant));
    }
    match course {
        Some(course) => Ok((rates, course)),
        None => failed("no run was asked for"),
    }
}

/// What happens to the networks in E6, from 5 s on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The first swallows everything until 15 s.
    Blackhole,
    /// The first network's interface goes down until 15 s.
    Interface,
    /// The second interface gets another address.
    Address,
    /// Both swallow everything until 15 s; then the second works again.
    Both,
    /// The NAT box in front of both gives every mapping another port.
    Rebind,
}

const FAILS: Duration = Duration::from_secs(5);
const RETURNS: Duration = Duration::from_secs(15);
/// From the start of the networks.
const REBINDS: Duration = Duration::from_secs(10);

impl Failure {
    const ALL: [Self; 5] = [Self::Blackhole, Self::Interface, Self::Address, Self::Both, Self::Rebind];

    const fn name(self) -> &'static str {
        match self {
            Self::Blackhole => "blackhole",
            Self::Interface => "interface",
            Self::Address => "address",
            Self::Both => "both",
            Self::Rebind => "rebind",
        }
    }

    fn begins(self, net: &live::Lab, [old, new]: &[String; 2]) -> Result<()> {
        let dead = LinkConfig::rate(RATE, DELAY).with_queue(queue(RATE)).with_down(true);
        let client = net.netns("client")?;
        match self {
            Self::Blackhole => cut(net, "one", &dead)?,
            Self::Both => {
                cut(net, "one", &dead)?;
                cut(net, "two", &dead)?;
            }
            Self::Interface => client.ip("link set eth0 down\n")?,
            Self::Address => {
                client.ip(&format!("addr add {new} dev eth1\naddr del {old} dev eth1\n"))?;
                client.ip("route replace default dev eth1 metric 1001\n")?;
            }
            Self::Rebind => {}
        }
        Ok(())
    }

    fn ends(self, net: &live::Lab) -> Result<()> {
        let alive = LinkConfig::rate(RATE, DELAY).with_queue(queue(RATE));
        match self {
            Self::Blackhole => cut(net, "one", &alive),
            Self::Both => cut(net, "two", &alive),
            Self::Interface => {
                Ok(net.netns("client")?.ip("link set eth0 up\nroute replace default dev eth0 metric 1000\n")?)
            }
            Self::Address | Self::Rebind => Ok(()),
        }
    }
}

fn cut(net: &live::Lab, link: &str, config: &LinkConfig) -> Result<()> {
    for side in 0..2 {
        net.set_link(link, side, config.clone())?;
    }
    Ok(())
}

pub(super) fn e6(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome { runs: Some(runs(lab)), ..Outcome::default() };
    let mut curves = Vec::new();
    let failures: &[Failure] = if lab.quick { &[Failure::Blackhole] } else { &Failure::ALL };
    for failure in failures.iter().filter(|f| lab.is_wanted(f.name())) {
        let (mut whole, mut stalls, mut resumes) = (0, Vec::new(), Vec::new());
        for run in 0..runs(lab) {
            (lab.progress)(&format!("{}, run {} of {}", failure.name(), run + 1, runs(lab)));
            // What has happened to a host stays with it.
            let bytes = if lab.quick { BYTES_E6 / 4 } else { BYTES_E6 };
            let core = if *failure == Failure::Rebind { Core::Nat } else { Core::Router };
            let place = Place::build(lab, lab.seed + run as u64, bytes, Links::Equal, core)?;
            let (mut begun, mut ended) = (None, None);
            let fails = match failure {
                Failure::Rebind => REBINDS.saturating_sub(place.up.elapsed()),
                _ => FAILS,
            };
            let transfer = place.fetch(lab, "SCTP", BOTH, |net, at| {
                if at >= fails && begun.is_none() {
                    failure.begins(net, &place.addresses)?;
                    begun = Some(at.as_secs_f64());
                }
                if at >= RETURNS && ended.is_none() {
                    ended = Some(at.as_secs_f64());
                    failure.ends(net)?;
                }
                Ok(())
            })?;
            whole += usize::from(transfer.whole);
            let begun = begun.unwrap_or(transfer.seconds);
            match failure {
                Failure::Both => resumes.extend(ended.and_then(|at| transfer.resumes(at))),
                _ => stalls.push(transfer.stall(begun, ended.unwrap_or(transfer.seconds))),
            }
            if run == 0 {
                curves.push(transfer.curve(failure.name()));
            }
        }
        let name = failure.name();
        let f = Figure::new("E6", "whole", name, "1").value(whole as f64 / runs(lab) as f64, runs(lab));
        out.figures.push(f.judge(Bound::AtLeast(1.0)));
        let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if !stalls.is_empty() {
            let f = Figure::new("E6", "stall_s", name, "s").value(most(&stalls), stalls.len());
            out.figures.push(f.with("mean_s", stalls.iter().sum::<f64>() / stalls.len() as f64));
        }
        if *failure == Failure::Both {
            let f = Figure::new("E6", "resumes_s", name, "s").value(most(&resumes), resumes.len());
            out.figures.push(f.judge(Bound::AtMost(1.0)));
        }
    }
    drawing(&mut out, "E6: networks that fail", curves);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_and_what_follows_it_are_read_from_the_course() {
        let course = vec![(0.0, 0), (1.0, 10), (2.0, 20), (6.5, 30), (7.0, 40)];
        let t = Transfer { course, seconds: 7.0, whole: true };
        assert!((t.stall(0.0, 7.0) - 4.5).abs() < 1e-9 && (t.stall(3.0, 7.0) - 3.5).abs() < 1e-9);
        assert!((t.resumes(6.0).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(t.resumes(7.0), None);
    }
}
