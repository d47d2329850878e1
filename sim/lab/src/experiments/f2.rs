//! F2: what policies cost: the daemon's memory with 1,000 of them, and the processor time of a download with them.

use super::{CONTROL_MAX, LIMIT, Lab, Outcome, PAIRS};
use crate::measure::process::together;
use crate::measure::stats::{median, quantile, ratio_of_medians};
use crate::measure::{Child, MeasureError, Result, memory};
use crate::programs::Program;
use crate::report::{Bound, Figure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many policies there are.
const POLICIES: &str = "1000";
/// The daemon's anonymous memory may be this much, in bytes.
const MEMORY: f64 = 5e6;
/// Processor time with policies over that without.
const RATIO: f64 = 1.05;
/// What is downloaded, in bytes: a full run and a quick one. The file is a hole, so that the disk takes no part.
const BYTES: (u64, u64) = (1 << 30, 256 << 20);
/// Starts of a daemon in a full run, which a verdict needs, and in a quick one.
const RUNS: (usize, usize) = (10, 2);
const PUBLISHED: &str = "18.1 % of a processor over 13.8 % (1.31)";
/// Without policies, once more without, with those of a folder, with those of a manager.
const SERIES: [&str; 4] = ["off", "control", "folder", "daemon"];

/// Where everything lies.
struct Place {
    dir: PathBuf,
}

impl Place {
    /// A folder with the tables and the file.
    fn new(lab: &Lab) -> Result<Self> {
        let dir = lab.scratch.join("f2");
        let _ = std::fs::remove_dir_all(&dir);
        for folder in ["sock", "www"] {
            std::fs::create_dir_all(dir.join(folder))?;
        }
        let mut command = lab.programs.command(Program::Policy, "files")?;
        command.arg(&dir).arg(POLICIES);
        let mut child = Child::start(&mut command)?;
        child.line(LIMIT)?;
        child.wait(LIMIT)?;
        // A program's folder has policies and nodes in one.
        std::fs::rename(dir.join("cib"), dir.join("pib").join("cib"))?;
        concern_the_download(&dir.join("pib"))?;
        File::create(dir.join("www").join("file"))?.set_len(if lab.quick { BYTES.1 } else { BYTES.0 })?;
        Ok(Self { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The manager, when its tables count and have decided something; with everything that the service of a host has, or with nothing but
    /// these tables.
    fn manager(&self, neater: &Path, service: bool) -> Result<Child> {
        let mut command = Command::new(neater);
        command.args(["--json", "pm", "--rows", "100", "--candidates", "10"]);
        if service {
            let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr())?;
            command.args(["--rest", &free.to_string()]);
        } else {
            command.args(["--bare", "--no-rest", "--no-interfaces"]);
        }
        command.arg("--pib").arg(self.path("pib")).arg("--cib").arg(self.path("pib/cib"));
        let child = Child::start(&mut together(command.arg("--sock").arg(self.path("sock")))?)?;
        let mut ask = Command::new(neater);
        let request = r#"[{"app": {"value": "neater"}, "port": {"value": 443}, "transport": {"value": "TCP"}}]"#;
        ask.args(["policy", "ask", request, "--sock"]).arg(self.path("sock"));
        let begin = std::time::Instant::now();
        while !ask.output().is_ok_and(|out| out.status.success()) {
            if begin.elapsed() > LIMIT {
                return Err(other("the manager does not answer"));
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Ok(child)
    }
}

/// Twenty of the policies are about what `neater get` is asked for, and one wants to know what connections have seen: programs that no policy
/// concerned would be asked for nothing.
fn concern_the_download(pib: &Path) -> Result<()> {
    for i in 0..20 {
        let path = pib.join(format!("p{i:05}.policy"));
        let text = std::fs::read_to_string(&path)?;
        let mine = text.replace("\"video\"", "\"neater\"").replace("\"end\":1000", "\"end\":65535");
        if mine == text {
            return Err(other("the policies of the peer are not as this experiment knows them"));
        }
        std::fs::write(path, mine)?;
    }
    let seen = r#"{"uid": "seen", "match": {"measured_rtt": {"value": {"start": 0, "end": 50}}},
        "properties": {"measured_rtt": {"value": {"start": 0, "end": 50}, "score": 5}}}"#;
    Ok(std::fs::write(pib.join("seen.policy"), seen)?)
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn other(what: &str) -> MeasureError {
    MeasureError::from(std::io::Error::other(what.to_owned()))
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    let neater = lab.programs.neater()?.to_owned();
    (lab.progress)("writing 1,000 policies");
    let place = Place::new(lab)?;
    let runs = if lab.quick { RUNS.1 } else { RUNS.0 };
    for (variant, service) in [("daemon", false), ("daemon_as_service", true)] {
        let mut sizes = Vec::new();
        for run in 0..runs {
            (lab.progress)(&format!("memory of the {variant}, {} of {runs}", run + 1));
            let manager = place.manager(&neater, service)?;
            let bytes = memory::resident(manager.pid())? as f64;
            out.sample("anonymous_bytes", variant, "1000 policies", run, bytes);
            sizes.push(bytes);
        }
        let figure = Figure::new("F2", "anonymous_bytes", variant, "bytes").value(median(&sizes), runs);
        let figure =
            figure.needs(RUNS.0).judge(Bound::AtMost(MEMORY)).published("21.6 MB, and 8.3 MB for a CIB source");
        out.figures.push(figure.with("least", quantile(&sizes, 0.0)).with("most", quantile(&sizes, 1.0)));
    }
    downloads(lab, &neater, &place, &mut out)?;
    out.runs = Some(runs);
    out.panel("cpu_ratio", "Processor time of a download over that without policies", "ratio", |f| {
        (f.variant.clone(), "neater".to_owned())
    });
    Ok(out)
}

/// Processor time of a client, by what tells it policies, in turn and in an order drawn anew for each round.
fn downloads(lab: &Lab, neater: &Path, place: &Place, out: &mut Outcome) -> Result<()> {
    let manager = place.manager(neater, false)?;
    let mut command = Command::new(neater);
    command.args(["--json", "serve", "--plain", "--port", "0", "--bind", "127.0.0.1"]).arg(place.path("www"));
    let mut server = Child::start(&mut together(&command)?)?;
    let said: Value = server.line(LIMIT)?;
    let url = said["urls"][0].as_str().ok_or_else(|| other("the server does not say where it is"))?;
    let url = format!("{}/file", url.trim_end_matches('/'));
    let (mut times, mut rng) = (BTreeMap::<&str, Vec<f64>>::new(), lab.rng(1));
    let mut order = SERIES;
    // Round 0 warms caches and is not kept.
    for round in 0..=lab.pairs() {
        (lab.progress)(&format!("downloads, {round} of {}", lab.pairs()));
        rng.shuffle(&mut order);
        for series in order {
            let mut command = Command::new(neater);
            command.args(["--json", "get", "--noproxy", "*", "-o", "/dev/null"]);
            command.env("NEATER_POLICY", "").env("NEAT_PM_SOCKET", place.path("nobody"));
            match series {
                "folder" => drop(command.arg("--policy").arg(place.path("pib"))),
                "daemon" => drop(command.env("NEAT_PM_SOCKET", place.path("sock/neat_pm_socket"))),
                _ => drop(command.arg("--no-policy")),
            }
            let exit = Child::start(&mut together(command.arg(&url))?)?.wait(LIMIT)?;
            if round > 0 {
                out.sample("cpu_seconds", series, "download", round - 1, exit.cpu.as_secs_f64());
                times.entry(series).or_default().push(exit.cpu.as_secs_f64());
            }
        }
    }
    drop((server, manager));
    let compare = |series: &str, rng: &mut neater_base::Rng| ratio_of_medians(&times[series], &times["off"], rng);
    let control = compare("control", &mut rng);
    let void = control.is_none_or(|c| c.width() > CONTROL_MAX);
    for series in ["folder", "daemon", "control"] {
        let name = if series == "control" { "cpu_ratio_aa" } else { "cpu_ratio" };
        let figure = Figure::new("F2", name, series, "1");
        let figure = match compare(series, &mut rng) {
            Some(e) => figure.estimate(e, lab.pairs()).void_if(void).with("median_seconds", median(&times[series])),
            None => figure.missing("no samples"),
        };
        let (judged, figure) = (series != "control", figure.needs(PAIRS.0));
        out.figures.push(if judged { figure.judge(Bound::LowAtMost(RATIO)).published(PUBLISHED) } else { figure });
    }
    Ok(())
}
