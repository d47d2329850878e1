//! The measurements of B0, each with a lab of its own.

use super::journey::{self, Journey, Step};
use neater_base::Rng;
use neater_emulator::{Cmd, EmulatorReport, Kind, Lab, LiveError, Options, Output, Plan, Running};
use neater_link::{Jitter, LinkConfig, Loss, QueueLimit, Rate, RateSteps};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, LiveError>;

/// No command takes longer.
const LIMIT: Duration = Duration::from_secs(120);
/// The delay under jitter, long enough that hardly any packet would be early.
pub(super) const JITTER_BASE: Duration = Duration::from_millis(25);
/// Packets in the queue that bursts are sent at, mostly.
pub(super) const QUEUE: usize = 50;
/// Packets of a burst.
pub(super) const BURST: usize = 500;
/// Time in which a link that is held takes a burst.
const HOLD: Duration = Duration::from_millis(300);

/// A lab of pairs of hosts, each with a link of its own.
pub(super) struct Pairs {
    pub lab: Lab,
    configs: Vec<LinkConfig>,
    back: LinkConfig,
    seed: u64,
    began: u64,
}

/// What was sent from the first to the second host of a pair, as it was seen, and as it is in virtual time.
pub(super) struct Seen {
    pub steps: Vec<Step>,
    pub simulated: Vec<Option<u64>>,
}

impl Seen {
    /// By how much each packet was later than in virtual time, in milliseconds.
    pub(super) fn errors(&self) -> Vec<f64> {
        let both = self.steps.iter().zip(&self.simulated);
        both.filter_map(|(s, v)| Some((s.seen? as f64 - (*v)? as f64) / 1e6)).collect()
    }

    /// How long each packet was under way in virtual time, in milliseconds.
    pub(super) fn simulated_ms(&self) -> Vec<f64> {
        let both = self.steps.iter().zip(&self.simulated);
        both.filter_map(|(s, v)| Some(((*v)? as f64 - s.sent as f64) / 1e6)).collect()
    }

    /// How long each packet was under way in the lab, in milliseconds.
    pub(super) fn lab_ms(&self) -> Vec<f64> {
        self.steps.iter().filter_map(Step::ms).collect()
    }
}

fn client(i: usize) -> String {
    format!("c{i}")
}

fn server(i: usize) -> String {
    format!("s{i}")
}

/// Wall-clock time in nanoseconds, the clock of captures.
fn wall() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

impl Pairs {
    /// Pairs whose links are like this from the first host to the second, and like `back` the other way.
    pub(super) fn up(configs: &[LinkConfig], back: &LinkConfig, seed: u64) -> Result<Self> {
        let mut plan = Plan::new(seed);
        for (i, config) in configs.iter().enumerate() {
            let (c, s) = (plan.add(&client(i), Kind::Host), plan.add(&server(i), Kind::Host));
            plan.connect(&format!("link{i}"), c, s, config.clone(), back.clone());
        }
        let lab = Lab::up(&plan, &Options::default())?;
        Ok(Self { lab, configs: configs.to_vec(), back: back.clone(), seed, began: wall() })
    }

    /// What is wrong with what the lab did, if its emulator could not keep up.
    pub(super) fn disturbed(&self) -> Result<Option<String>> {
        self.lab.disturbance(f64::INFINITY)
    }

    fn watch(&self, filter: &str, dir: &Path) -> Result<Vec<Journey>> {
        (0..self.configs.len()).map(|i| Journey::watch(&self.lab, &client(i), &server(i), filter, dir)).collect()
    }

    fn end(&self, journeys: Vec<Journey>) -> Result<Vec<Seen>> {
        let mut all = Vec::new();
        for (i, journey) in journeys.into_iter().enumerate() {
            let steps = journey.end()?;
            let simulated = self.simulate(i, &self.configs[i], self.began, &steps)?;
            all.push(Seen { steps, simulated });
        }
        Ok(all)
    }

    /// The same packets over pair `i`'s link in the simulator, which has the lab's seed.
    fn simulate(&self, i: usize, there: &LinkConfig, began: u64, steps: &[Step]) -> Result<Vec<Option<u64>>> {
        journey::simulate(&format!("link{i}"), [there, &self.back], self.seed, began, steps)
    }

    /// Lets all clients ping their servers at once, `n` times every 20 ms, and follows the requests.
    pub(super) fn ping(&self, n: usize, payload: usize, dir: &Path) -> Result<Vec<Seen>> {
        let journeys = self.watch("icmp", dir)?;
        let mut running = Vec::new();
        for i in 0..self.configs.len() {
            // Not all at the same time: they are to measure links, not each other.
            thread::sleep(Duration::from_micros(1_300));
            let (n, payload) = (n.to_string(), payload.to_string());
            let cmd = Cmd::new("ping").args(["-4", "-n", "-q", "-i", "0.02", "-c", &n, "-s", &payload, &server(i)]);
            running.push(self.lab.spawn(&client(i), cmd.limit(LIMIT))?);
        }
        for r in running {
            r.wait()?.success()?;
        }
        self.end(journeys)
    }

    /// Sends `n` packets over each link at once, spread evenly over `time`, and follows them.
    pub(super) fn stream(&self, n: usize, len: u32, time: Duration, dir: &Path) -> Result<Vec<Seen>> {
        /// Packets that leave together, so that the sender sleeps between them.
        const TOGETHER: usize = 10;
        let journeys = self.watch("udp", dir)?;
        let gap = time.mul_f64(TOGETHER as f64 / n.max(1) as f64);
        let gaps = || (0..n).map(move |i| if i % TOGETHER == 0 { gap } else { Duration::ZERO });
        self.everywhere(|i| journey::send(&self.lab, &client(i), &server(i), len, gaps()))?;
        thread::sleep(Duration::from_millis(100));
        self.end(journeys)
    }

    fn everywhere(&self, f: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
        thread::scope(|scope| {
            let f = &f;
            let all: Vec<_> = (0..self.configs.len()).map(|i| scope.spawn(move || f(i))).collect();
            all.into_iter()
                .try_for_each(|t| t.join().unwrap_or_else(|_| Err(LiveError::Failed("a sender panicked".into()))))
        })
    }

    /// Sends `n` packets at once over each link while it is held, lets them go, and follows them.
    pub(super) fn bursts(&self, n: usize, len: u32, dir: &Path) -> Result<Vec<Seen>> {
        let journeys = self.watch("udp", dir)?;
        let mut longest = Duration::ZERO;
        let mut held = Vec::new();
        for (i, config) in self.configs.iter().enumerate() {
            let Rate::Fixed(rate) = config.rate else { continue };
            let steps = RateSteps::new([(Duration::ZERO, 0), (HOLD, rate)], None)
                .map_err(|e| LiveError::Failed(e.to_string()))?;
            let steps = LinkConfig { rate: Rate::Steps(Arc::new(steps)), ..config.clone() };
            held.push((wall(), steps.clone()));
            self.lab.set_link(&format!("link{i}"), 0, steps)?;
            let drained = Duration::from_secs_f64(n as f64 * f64::from(len) * 8.0 / rate as f64);
            longest = longest.max(HOLD + config.delay + drained / 2);
        }
        let start = Instant::now();
        let gaps = || std::iter::repeat_n(Duration::ZERO, n);
        self.everywhere(|i| journey::send(&self.lab, &client(i), &server(i), len, gaps()))?;
        if start.elapsed() > HOLD {
            return Err(LiveError::Failed(format!(
                "sending the bursts took {:.1?}: the machine is too busy",
                start.elapsed()
            )));
        }
        thread::sleep(longest + Duration::from_millis(100));
        let mut all = Vec::new();
        for (i, (journey, (began, config))) in journeys.into_iter().zip(held).enumerate() {
            let steps = journey.end()?;
            all.push(Seen { simulated: self.simulate(i, &config, began, &steps)?, steps });
        }
        Ok(all)
    }

    /// Sends packets in a Poisson process over each link, one link after the other, and follows them.
    pub(super) fn poisson(&self, mean: Duration, n: usize, len: u32, rng: &mut Rng, dir: &Path) -> Result<Vec<Seen>> {
        let journeys = self.watch("udp", dir)?;
        for i in 0..self.configs.len() {
            journey::send(&self.lab, &client(i), &server(i), len, journey::poisson(mean, n, rng))?;
        }
        thread::sleep(Duration::from_millis(200));
        self.end(journeys)
    }
}

/// Links that only delay, and one on which a packet takes its time to be sent.
pub(super) fn delays(ms: &[u64]) -> Vec<LinkConfig> {
    ms.iter().map(|ms| LinkConfig::delay(Duration::from_millis(*ms))).collect()
}

/// Links with normally distributed jitter, and reordering as it comes.
pub(super) fn jitters(ms: &[u64]) -> Vec<LinkConfig> {
    let jitter = |ms: &u64| match ms {
        0 => Jitter::None,
        ms => Jitter::Normal(Duration::from_millis(*ms)),
    };
    ms.iter().map(|ms| LinkConfig { jitter: jitter(ms), reorder: true, ..LinkConfig::delay(JITTER_BASE) }).collect()
}

/// Links that lose packets independently, and one that loses them in runs.
pub(super) fn losses(parts: &[f64], runs: Loss) -> Vec<LinkConfig> {
    let all = parts.iter().map(|p| if *p > 0.0 { Loss::Random(*p) } else { Loss::None });
    all.chain([runs]).map(|loss| LinkConfig { loss, ..LinkConfig::delay(Duration::from_millis(1)) }).collect()
}

/// A link whose queue is looked at.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub config: LinkConfig,
    /// Its rate, in Mbit/s.
    pub mbit: u64,
    /// How many packets fit.
    pub packets: usize,
}

impl Queue {
    /// Rate and queue in words.
    pub(super) fn setting(&self) -> String {
        match self.config.queue {
            QueueLimit::Packets(QUEUE) => format!("{} Mbit/s", self.mbit),
            QueueLimit::Packets(n) => format!("{} Mbit/s, {n} packets", self.mbit),
            QueueLimit::Bytes(n) => format!("{} Mbit/s, {n} bytes", self.mbit),
        }
    }

    /// Whether it is one of the published ones.
    pub(super) fn is_published(&self) -> bool {
        matches!(self.config.queue, QueueLimit::Packets(QUEUE))
    }
}

/// Links with these rates and a queue of [`QUEUE`] packets, and others with queues of other lengths, in packets and in bytes, for
/// packets of `len` bytes.
pub(super) fn queues(mbit: &[u64], len: u32) -> Vec<Queue> {
    let link = |mbit: u64, queue: QueueLimit, packets: usize| {
        let config = LinkConfig::rate(mbit * 1_000_000, Duration::from_millis(50)).with_queue(queue);
        Queue { config, mbit, packets }
    };
    let mut all: Vec<Queue> = mbit.iter().map(|m| link(*m, QueueLimit::Packets(QUEUE), QUEUE)).collect();
    for packets in [5, 20, 200] {
        all.push(link(10, QueueLimit::Packets(packets), packets));
    }
    for bytes in [25_999, 120_000] {
        all.push(link(10, QueueLimit::Bytes(bytes), bytes as usize / len as usize));
    }
    all
}

/// Sends a burst at the kernel's token bucket filter with a queue of [`QUEUE`] packets of `len` bytes, at each rate, and counts what
/// arrives: rate in Mbit/s and packets.
pub(super) fn tbf_queues(mbit: &[u64], len: u32, seed: u64, dir: &Path) -> Result<Vec<(u64, usize)>> {
    /// What an Ethernet header adds to the length that the kernel counts.
    const ETHERNET: u32 = 14;
    let configs: Vec<LinkConfig> = mbit.iter().map(|_| LinkConfig::delay(Duration::from_millis(1))).collect();
    let pairs = Pairs::up(&configs, &LinkConfig::default(), seed)?;
    let mut slowest = Duration::ZERO;
    for (i, m) in mbit.iter().enumerate() {
        let limit = QUEUE * (len + ETHERNET) as usize;
        let bucket = 2 * (len + ETHERNET);
        let netns = pairs.lab.netns(&client(i))?;
        netns.tc(&format!("qdisc add dev eth0 root tbf rate {m}mbit burst {bucket} limit {limit}\n"))?;
        slowest = slowest.max(Duration::from_secs_f64(limit as f64 * 8.0 / (*m as f64 * 1e6)));
    }
    // What does not fit is dropped before it is seen to leave: arrivals alone are counted.
    let journeys = pairs.watch("udp", dir)?;
    let gaps = || std::iter::repeat_n(Duration::ZERO, BURST);
    pairs.everywhere(|i| journey::send(&pairs.lab, &client(i), &server(i), len, gaps()))?;
    thread::sleep(2 * slowest + Duration::from_millis(300));
    let arrived = journeys.into_iter().map(|j| Ok(j.end()?.iter().filter(|s| s.seen.is_some()).count()));
    mbit.iter().zip(arrived).map(|(m, n)| Ok((*m, n?))).collect()
}

/// The rate at which IP bytes arrive when more are sent than a link takes.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Bits per second.
    pub rate: f64,
    /// The part of one processor that the emulator used.
    pub cpu: f64,
    /// The processors that the whole machine used, of so many.
    pub machine: f64,
    pub processors: usize,
    /// Why it says nothing, if it does not.
    pub why: Option<String>,
}

/// Seconds of processor time that the whole machine has spent on anything, and how many processors it has.
fn machine_cpu() -> (f64, usize) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal, in hundredths of a second.
    let ticks: Vec<f64> = line.split_whitespace().skip(1).take(8).filter_map(|t| t.parse().ok()).collect();
    let idle = ticks.iter().skip(3).take(2).sum::<f64>();
    let processors = text.lines().filter(|l| l.starts_with("cpu") && !l.starts_with("cpu ")).count();
    ((ticks.iter().sum::<f64>() - idle) / 100.0, processors)
}

/// IP bytes that a host's first interface has received.
fn received(lab: &Lab, host: &str) -> Result<(Instant, u64)> {
    lab.netns(host)?.with(|| {
        let at = Instant::now();
        let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        let line = text.lines().find_map(|l| l.trim().strip_prefix("eth0:"));
        let bytes = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
        bytes.map(|b| (at, b)).ok_or_else(|| LiveError::Failed(format!("{host} has no counter of bytes")))
    })
}

/// The rate between the first and the last packet that arrives in `time`, by the receiver's counter: read often enough that
/// a packet more or less does not matter.
fn arrival_rate(lab: &Lab, host: &str, time: Duration) -> Result<f64> {
    // From one arrival to another, so that no part of a gap is counted.
    let next = |after: u64| -> Result<(Instant, u64)> {
        let end = Instant::now() + Duration::from_secs(2);
        loop {
            let now = received(lab, host)?;
            if now.1 != after {
                return Ok(now);
            }
            if now.0 > end {
                return Err(LiveError::Failed(format!("nothing arrives at {host}")));
            }
        }
    };
    let first = next(received(lab, host)?.1)?;
    thread::sleep(time);
    let last = next(received(lab, host)?.1)?;
    Ok((last.1 - first.1) as f64 * 8.0 / last.0.duration_since(first.0).as_secs_f64())
}

/// Starts iperf3's server in a host, and waits until it says that it listens.
fn iperf_server(lab: &Lab, host: &str) -> Result<Running> {
    let mut running = lab.spawn(host, Cmd::new("iperf3").args(["-s", "--forceflush"]).limit(LIMIT * 10))?;
    running.wait_for_output("Server listening", Duration::from_secs(10))?;
    Ok(running)
}

/// Packets that a queue holds so that it does not run empty while the sender waits for a processor: 50 ms, 100 packets at
/// least.
fn backlog(mbit: u64) -> usize {
    usize::try_from(mbit * 1_000_000 / 20 / 8 / 1500).unwrap_or(usize::MAX).max(100)
}

/// Fills a link of each rate by iperf3 over UDP, and measures what arrives. With `tbf` the link is unlimited and the kernel's
/// token bucket filter shapes the sender's interface instead.
pub(super) fn rates(mbit: &[u64], tbf: bool, time: Duration, seed: u64) -> Result<Vec<Measured>> {
    let config = |m: &u64| match tbf {
        true => LinkConfig::default(),
        false => LinkConfig::rate(m * 1_000_000, Duration::from_millis(5)).with_queue(QueueLimit::Packets(backlog(*m))),
    };
    let configs: Vec<LinkConfig> = mbit.iter().map(config).collect();
    let pairs = Pairs::up(&configs, &LinkConfig::default(), seed)?;
    let lab = &pairs.lab;
    let mut running = Vec::new();
    for (i, m) in mbit.iter().enumerate() {
        if tbf {
            // The bucket holds what 2 ms bring, and two packets at least; the queue as many bytes as the emulator's.
            let bucket = (m * 250).max(3_000);
            lab.netns(&client(i))?.tc(&format!(
                "qdisc add dev eth0 root tbf rate {m}mbit burst {bucket} limit {}\n",
                backlog(*m) * 1500
            ))?;
        }
        running.push(iperf_server(lab, &server(i))?);
        let rate = format!("{}k", m * 1200);
        let seconds = format!("{:.0}", time.as_secs_f64().ceil() + 2.0);
        let args = ["-4", "-u", "-l", "1472", "-b", &rate, "-t", &seconds, "-c", &server(i)];
        running.push(lab.spawn(&client(i), Cmd::new("iperf3").args(args).limit(LIMIT))?);
    }
    // Queues fill within the first second.
    thread::sleep(Duration::from_millis(1000));
    let (before, began) = ((lab.emulator()?, machine_cpu().0), Instant::now());
    let measured: Vec<Result<f64>> = thread::scope(|scope| {
        let all: Vec<_> = (0..mbit.len()).map(|i| scope.spawn(move || arrival_rate(lab, &server(i), time))).collect();
        all.into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(LiveError::Failed("a measuring thread panicked".into()))))
            .collect()
    });
    let used = used(lab, &before, began)?;
    let why = pairs.disturbed()?;
    measured.into_iter().map(|rate| Ok(Measured { rate: rate?, why: why.clone(), ..used.clone() })).collect()
}

/// The same link of the simulator, filled by a source of UDP that sends a fifth more than it takes: the rate of the IP packets that
/// arrive, in bits per second.
pub(super) fn simulated_rate(mbit: u64, time: Duration, seed: u64) -> Result<f64> {
    const PAYLOAD: u64 = 1452;
    let text = format!(
        "name = \"rate\"\nwarm-up = \"1 s\"\nduration = \"{} ms\"\n[host.c]\n[host.s]\n[link.only]\nfrom = \"c\"\nto = \"s\"\n\
         rate = \"{mbit} Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"{} packets\"\n[traffic.fill]\nfrom = \"c\"\nto = \"s\"\nkind = \"video\"\n\
         rate = \"{} kbit/s\"\nframes-per-second = 1000\npacket = {PAYLOAD}\n",
        time.as_millis(),
        backlog(mbit),
        mbit * 1200,
    );
    let scenario = neater_scenario::Scenario::parse(&text, &[]).map_err(|e| LiveError::Failed(e.to_string()))?;
    let network = neater_netsim::World::build(&scenario, seed).map_err(LiveError::Failed)?;
    network.run(|_| true);
    let arrived = network.measured().first().map_or(0, |link| link[0].delivered_bytes);
    Ok(arrived as f64 * 8.0 / time.as_secs_f64())
}

/// Four TCP connections through a link that is wider than this machine: what the emulator can move. Four, because one that
/// leaves slow start early would be what is measured.
pub(super) fn capacity(time: Duration, seed: u64) -> Result<Measured> {
    let wide = LinkConfig::rate(10_000_000_000, Duration::from_millis(1)).with_queue(QueueLimit::Packets(1000));
    let pairs = Pairs::up(&[wide], &LinkConfig::delay(Duration::from_millis(1)), seed)?;
    let lab = &pairs.lab;
    let _server = iperf_server(lab, &server(0))?;
    let seconds = format!("{:.0}", time.as_secs_f64().ceil() + 2.0);
    let client = lab
        .spawn(&client(0), Cmd::new("iperf3").args(["-4", "-P", "4", "-t", &seconds, "-c", &server(0)]).limit(LIMIT))?;
    thread::sleep(Duration::from_millis(1000));
    let (before, began) = ((lab.emulator()?, machine_cpu().0), Instant::now());
    let rate = arrival_rate(lab, &server(0), time)?;
    let used = used(lab, &before, began)?;
    drop(client);
    Ok(Measured { rate, ..used })
}

/// What was used of processors since `began`, when the emulator's report and the machine's processor time were `before`.
fn used(lab: &Lab, before: &(EmulatorReport, f64), began: Instant) -> Result<Measured> {
    let (after, (busy, processors)) = (lab.emulator()?, machine_cpu());
    let cpu = (after.cpu * after.seconds - before.0.cpu * before.0.seconds) / (after.seconds - before.0.seconds);
    let machine = (busy - before.1) / began.elapsed().as_secs_f64();
    Ok(Measured { rate: 0.0, cpu, machine, processors, why: None })
}

/// A setting in which three connections share a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The kernel's name of the congestion control.
    pub control: &'static str,
    /// The rate of the link they share, in Mbit/s.
    pub mbit: u64,
}

/// Connections that share a link.
pub(super) const FLOWS: usize = 3;

/// Goodput of each connection in each setting, in Mbit/s, and why it says nothing, if it does not. All settings run at once, each over
/// a dumbbell of its own, with 100 ms of round trip and a queue of one bandwidth-delay product.
pub(super) fn sharing(settings: &[Share], time: u64, omit: u64, seed: u64) -> Result<(Vec<Vec<f64>>, Option<String>)> {
    let mut plan = Plan::new(seed);
    for (k, s) in settings.iter().enumerate() {
        let queue = s.mbit * 1_000_000 / 8 / 10;
        let link = LinkConfig::rate(s.mbit * 1_000_000, Duration::from_millis(50))
            .with_queue(QueueLimit::Bytes(queue.max(1500)));
        let [left, right] = ["left", "right"].map(|side| plan.add(&format!("{side}{k}"), Kind::Router));
        plan.connect(&format!("middle{k}"), left, right, link.clone(), link);
        for f in 0..FLOWS {
            for (side, router) in [("c", left), ("s", right)] {
                let host = plan.add(&format!("{side}{k}-{f}"), Kind::Host);
                let control = s.control.to_owned();
                if let Some(node) = plan.nodes.get_mut(host) {
                    node.sysctls.insert("net.ipv4.tcp_congestion_control".into(), control);
                }
                plan.connect(&format!("{side}{k}-{f}"), host, router, LinkConfig::default(), LinkConfig::default());
            }
        }
    }
    let lab = Lab::up(&plan, &Options::default())?;
    let all = (0..settings.len()).flat_map(|k| (0..FLOWS).map(move |f| (k, f)));
    let mut servers = Vec::new();
    for (k, f) in all.clone() {
        servers.push(iperf_server(&lab, &format!("s{k}-{f}"))?);
    }
    let mut clients = Vec::new();
    for (k, f) in all {
        let to = format!("s{k}-{f}");
        let (time, omit) = (time.to_string(), omit.to_string());
        let cmd = Cmd::new("iperf3").args(["-4", "-J", "-t", &time, "-O", &omit, "-c", &to]);
        clients.push(lab.spawn(&format!("c{k}-{f}"), cmd.limit(LIMIT * 3))?);
    }
    let outputs: Vec<Output> = clients.into_iter().map(|c| c.wait()?.success()).collect::<Result<_>>()?;
    let goodputs = outputs.iter().map(goodput).collect::<Result<Vec<f64>>>()?;
    Ok((goodputs.chunks(FLOWS).map(<[f64]>::to_vec).collect(), lab.disturbance(f64::INFINITY)?))
}

/// What iperf3 says that its server received, in Mbit/s.
fn goodput(out: &Output) -> Result<f64> {
    let json: serde_json::Value =
        serde_json::from_slice(&out.stdout).map_err(|e| LiveError::Failed(format!("{}: {e}", out.command)))?;
    let rate = json["end"]["sum_received"]["bits_per_second"].as_f64();
    rate.map(|r| r / 1e6).ok_or_else(|| LiveError::Failed(format!("{}: no rate in its JSON", out.command)))
}

/// The same connections over the same dumbbell in the simulator: goodput of each in Mbit/s.
pub(super) fn simulated_sharing(share: Share, time: u64, omit: u64, seed: u64) -> Result<Vec<f64>> {
    let control = if share.control == "reno" { "newreno" } else { share.control };
    let mut text = format!(
        "name = \"sharing\"\nwarm-up = \"{omit} s\"\nduration = \"{time} s\"\n[topology]\nkind = \"dumbbell\"\n\
         pairs = {FLOWS}\nbottleneck = {{ rate = \"{} Mbit/s\", delay = \"50 ms\", queue = \"1 BDP\" }}\n",
        share.mbit
    );
    for f in 1..=FLOWS {
        text += &format!("[traffic.f{f}]\nfrom = \"l{f}\"\nto = \"r{f}\"\ntcp = {{ congestion = \"{control}\" }}\n");
    }
    let scenario = neater_scenario::Scenario::parse(&text, &[]).map_err(|e| LiveError::Failed(e.to_string()))?;
    let network = neater_netsim::World::build(&scenario, seed).map_err(LiveError::Failed)?;
    network.run(|_| true);
    let time = Duration::from_secs(time);
    Ok(network.flows().iter().map(|f| f.goodput(time) / 1e6).collect())
}
