//! What one download over two paths gets of a bottleneck that both share, beside one flow of the kernel's
//! TCP with CUBIC, with real packets.

use super::fairness::{FROM, UNTIL, link};
use crate::experiments::networks::{BOTH, ONE};
use crate::experiments::{Lab, Outcome};
use crate::measure::{MeasureError, Result, failed};
use crate::plot::Row;
use crate::report::{Bound, Figure};
use neater_emulator::{self as live, Cmd, Kind, Options, Plan, Running};
use neater_link::LinkConfig;
use std::fs::{self, File};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Runs of each row: full and quick.
const RUNS: (usize, usize) = (5, 1);
const PORT: u16 = 8080;
const START: Duration = Duration::from_secs(20);
/// More than the bottleneck carries in a run.
const FILE: u64 = 400_000_000;
/// What downloads beside TCP: a name, the transport, what is needed of it. The last one is the control.
const SERIES: [(&str, &str, &str); 3] =
    [("sctp", "SCTP", BOTH), ("mptcp", "TCP", ONE), ("tcp", "TCP", "multipath=Disabled")];

/// A client with two links to a router, another with one, and a server behind the bottleneck.
struct Shared {
    // Ends before its host does.
    server: Option<Running>,
    net: live::Lab,
    dir: PathBuf,
    url: String,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.server.take();
    }
}

impl Shared {
    fn build(lab: &Lab) -> Result<Self> {
        let mut plan = Plan::new(lab.seed);
        let hosts = [("client", Kind::Host), ("other", Kind::Host), ("core", Kind::Router), ("server", Kind::Host)];
        let [client, other, core, server] = hosts.map(|(name, kind)| plan.add(name, kind));
        for (name, host) in [("one", client), ("two", client), ("beside", other)] {
            plan.connect(name, host, core, LinkConfig::default(), LinkConfig::default());
        }
        plan.connect("far", core, server, link(), link());
        plan.sysctl_everywhere("net.ipv4.tcp_congestion_control", "cubic");
        // What a run has learnt is not the next one's.
        plan.sysctl_everywhere("net.ipv4.tcp_no_metrics_save", "1");
        plan.check().map_err(MeasureError::Failed)?;
        let net = live::Lab::up(&plan, &Options::default())?;
        let second = plan.nodes[client].interfaces.get(1).and_then(|i| i.addresses.iter().find(|(a, _)| a.is_ipv4()));
        let Some((second, _)) = second else { return failed("the client's second interface has no IPv4 address") };
        let limits = "mptcp limits set subflows 2 add_addr_accepted 2\n";
        net.netns("server")?.ip(limits)?;
        net.netns("client")?.ip(&format!("{limits}mptcp endpoint add {second} dev eth1 subflow\n"))?;
        let dir = lab.scratch.join("bottleneck");
        fs::create_dir_all(dir.join("www"))?;
        let dir = dir.canonicalize()?;
        File::create(dir.join("www").join("file"))?.set_len(FILE)?;
        let url = format!("http://{}:{PORT}/file", net.address("server", false)?);
        let serve = Cmd::new(lab.programs.neater()?).args(["serve", "--plain", "--transport", "TCP,SCTP"]);
        let serve = serve.args(["--bind", "0.0.0.0", "--port", &PORT.to_string()]).arg(dir.join("www"));
        let server = net.serve("server", serve.limit(Duration::from_secs(4 * 3600)), PORT, START)?;
        Ok(Self { server: Some(server), net, dir, url })
    }

    fn get(&self, lab: &Lab, host: &str, transport: &str, needs: &str) -> Result<Running> {
        let file = self.dir.join(host);
        for end in ["", ".part", ".part.json"] {
            let _ = fs::remove_file(self.dir.join(format!("{host}{end}")));
        }
        let get = Cmd::new(lab.programs.neater()?).args(["get", &self.url, "--transport", transport, "--needs", needs]);
        Ok(self.net.spawn(host, get.arg("-o").arg(&file).limit(3 * UNTIL))?)
    }

    /// Bytes that have reached both clients.
    fn carried(&self) -> Result<[u64; 2]> {
        let all = self.net.links()?;
        let to = |host: &str| all.iter().filter(|l| l.to == host).map(|l| l.delivered_bytes).sum();
        Ok(["client", "other"].map(to))
    }

    /// The share of the client. Either may be first.
    fn share(&self, lab: &Lab, (transport, needs): (&str, &str), starts: [Duration; 2]) -> Result<f64> {
        let begin = Instant::now();
        let until = |time: Duration| sleep(time.saturating_sub(begin.elapsed()));
        let ours = || -> Result<Running> {
            until(starts[0]);
            self.get(lab, "client", transport, needs)
        };
        let theirs = || -> Result<Running> {
            until(starts[1]);
            self.get(lab, "other", "TCP", "multipath=Disabled")
        };
        let running = if starts[0] < starts[1] { [ours()?, theirs()?] } else { [theirs()?, ours()?] };
        until(FROM);
        let before = self.carried()?;
        until(UNTIL);
        let after = self.carried()?;
        for one in running {
            let lasted = one.is_running();
            let output = one.stop(libc::SIGTERM)?;
            if !lasted {
                return failed(format!("a download has ended before its time: {}", output.errors().trim()));
            }
        }
        // What is left of a flow is gone before the next one begins.
        sleep(Duration::from_secs(2));
        let [ours, theirs] = [0, 1].map(|i| (after[i] - before[i]) as f64);
        Ok(ours / (ours + theirs))
    }
}

pub(super) fn bottleneck(lab: &Lab, out: &mut Outcome) -> Result<Vec<Row>> {
    let wanted: Vec<_> = SERIES.iter().filter(|s| lab.is_wanted(&format!("bottleneck-{}", s.0))).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let count = lab.seeds.unwrap_or(if lab.quick { RUNS.1 } else { RUNS.0 });
    let shared = Shared::build(lab)?;
    let mut rng = lab.rng(43);
    let mut rows = Vec::new();
    for (name, transport, needs) in wanted {
        let mut shares = Vec::new();
        for run in 0..count {
            (lab.progress)(&format!("a shared bottleneck, {name} beside TCP, run {} of {count}", run + 1));
            let starts = [0, 1].map(|_| Duration::from_millis(rng.below(2000)));
            let share = shared.share(lab, (transport, needs), starts)?;
            out.sample("bottleneck_share", name, "bottleneck", run, share);
            shares.push(share);
        }
        let e = super::estimate(&shares);
        let f = Figure::new("I1L", "bottleneck_share", *name, "1").estimate(e, count);
        out.figures.push(if *name == SERIES[0].0 { f.needs(RUNS.0).judge(Bound::LowAtMost(0.6)) } else { f });
        rows.push(Row {
            label: (*name).to_owned(),
            series: (*name).to_owned(),
            value: Some(e.value),
            interval: Some((e.low, e.high)),
            bound: (*name == SERIES[0].0).then_some(0.6),
        });
    }
    if let Some(why) = shared.net.disturbance(f64::INFINITY)? {
        out.remarks.push(why);
    }
    Ok(rows)
}
