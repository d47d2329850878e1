//! The simulator: a scenario run in virtual time, with the programs of neater's engine in it.

use crate::errors;
use neater_base::Instant;
use neater_link::Counters;
use neater_netsim::{FlowStats, Samples, Summary, WebObject};
use neater_scenario::{FileContent, FileKind, SHIPPED, Scenario, shipped, shipped_file};
use neater_testkit::Programs;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The largest file of a scenario that is read, in bytes.
const FILE_MOST: u64 = 64 << 20;

fn file(directory: Option<&Path>, name: &str, kind: FileKind) -> Result<FileContent, String> {
    if let (None, Some(text)) = (directory, shipped_file(name)) {
        return kind.read(text);
    }
    let path = directory.unwrap_or(Path::new("")).join(name);
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    // Opened only if it is a file: a pipe would wait for its writer.
    if !std::fs::metadata(&path).map_err(failed)?.is_file() {
        return Err(format!("{}: not an ordinary file", path.display()));
    }
    let mut text = String::new();
    std::fs::File::open(&path).map_err(failed)?.take(FILE_MOST + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_MOST {
        return Err(format!("{}: longer than {FILE_MOST} bytes", path.display()));
    }
    kind.read(&text)
}

fn parse(text: &str, set: &[(String, String)], directory: Option<&Path>) -> PyResult<Scenario> {
    Scenario::parse_with(text, set, |name, kind| file(directory, name, kind)).map_err(errors::value)
}

/// The scenarios that come with neater: names and texts.
#[pyfunction]
pub(crate) fn shipped_scenarios() -> Vec<(&'static str, &'static str)> {
    SHIPPED.iter().filter_map(|(name, _)| Some((*name, shipped(name)?))).collect()
}

/// Reads a scenario: its name, description, first seed and number of seeds.
#[pyfunction]
#[pyo3(signature = (text, overrides, directory=None))]
pub(crate) fn check_scenario(
    text: &str,
    overrides: Vec<(String, String)>,
    directory: Option<PathBuf>,
) -> PyResult<(String, String, u64, u32)> {
    let s = parse(text, &overrides, directory.as_deref())?;
    Ok((s.name.clone(), s.description.clone(), s.seed, s.seeds))
}

fn summary(d: &Bound<'_, PyDict>, name: &str, of: Summary) -> PyResult<()> {
    let known = |v: f64| (of.count > 0).then_some(v);
    d.set_item(format!("{name}_count"), of.count)?;
    d.set_item(format!("{name}_mean_s"), known(of.mean))?;
    d.set_item(format!("{name}_min_s"), known(of.min))?;
    d.set_item(format!("{name}_max_s"), known(of.max))
}

fn flow<'py>(py: Python<'py>, s: &Scenario, f: &FlowStats, start: Instant) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    let since = |at: Option<Instant>| at.map(|at| (at - start).as_secs_f64());
    d.set_item("traffic", s.traffic.get(f.traffic).map(|t| t.name.as_str()))?;
    d.set_item("flow", f.flow)?;
    d.set_item("goodput_mbit", f.goodput(s.duration) / 1e6)?;
    d.set_item("delivered_bytes", f.delivered)?;
    d.set_item("measured_bytes", f.measured)?;
    d.set_item("started_s", since(f.started))?;
    d.set_item("finished_s", since(f.finished))?;
    d.set_item("datagrams_sent", f.datagrams.0)?;
    d.set_item("datagrams_received", f.datagrams.1)?;
    d.set_item("loss", f.loss())?;
    d.set_item("retransmits", f.retransmits)?;
    d.set_item("failures", f.failures)?;
    summary(&d, "rtt", f.rtt)?;
    summary(&d, "object", f.object_time)?;
    summary(&d, "page", f.page_time)?;
    Ok(d)
}

/// What came of a run.
struct Ran {
    flows: Vec<FlowStats>,
    links: Vec<[Counters; 2]>,
    objects: Vec<(usize, u32, WebObject)>,
    samples: Vec<Samples>,
    start: Instant,
    hops: u64,
    digest: u64,
}

impl Ran {
    fn of(mut programs: Programs) -> Self {
        let (samples, flows) = (programs.take_samples(), programs.flows());
        let network = programs.network();
        Self {
            flows,
            links: network.measured(),
            objects: network.objects(),
            samples,
            start: network.start(),
            hops: network.packet_hops(),
            digest: network.world.digest(),
        }
    }

    /// As lists of dictionaries.
    fn tables<'py>(self, py: Python<'py>, s: &Scenario, seed: u64) -> PyResult<Bound<'py, PyDict>> {
        let result = PyDict::new(py);
        let flows = PyList::empty(py);
        for f in &self.flows {
            flows.append(flow(py, s, f, self.start)?)?;
        }
        let objects = PyList::empty(py);
        for (traffic, flow, o) in &self.objects {
            let d = PyDict::new(py);
            d.set_item("traffic", s.traffic.get(*traffic).map(|t| t.name.as_str()))?;
            d.set_item("flow", flow)?;
            d.set_item("asked_s", (o.asked - self.start).as_secs_f64())?;
            d.set_item("seconds", o.seconds)?;
            d.set_item("bytes", o.bytes)?;
            objects.append(d)?;
        }
        let probes = PyDict::new(py);
        for table in &self.samples {
            let rows = PyList::empty(py);
            for row in &table.rows {
                let d = PyDict::new(py);
                d.set_item("at_s", row.at.as_secs_f64())?;
                d.set_item("subject", table.subjects.get(row.subject as usize))?;
                for (name, value) in table.columns.iter().zip(row.values) {
                    d.set_item(*name, value)?;
                }
                rows.append(d)?;
            }
            probes.set_item(table.name, rows)?;
        }
        result.set_item("scenario", &s.name)?;
        result.set_item("seed", seed)?;
        result.set_item("flows", flows)?;
        result.set_item("links", links(py, s, &self.links)?)?;
        result.set_item("objects", objects)?;
        result.set_item("samples", probes)?;
        result.set_item("packet_hops", self.hops)?;
        result.set_item("digest", format!("{:016x}", self.digest))?;
        Ok(result)
    }
}

fn links<'py>(py: Python<'py>, s: &Scenario, measured: &[[Counters; 2]]) -> PyResult<Bound<'py, PyList>> {
    let links = PyList::empty(py);
    for (link, pair) in s.links.iter().zip(measured) {
        for (way, c) in ["forward", "backward"].iter().zip(pair) {
            let d = PyDict::new(py);
            d.set_item("link", &link.name)?;
            d.set_item("direction", way)?;
            let counts = [
                ("offered", c.offered),
                ("delivered", c.delivered),
                ("delivered_bytes", c.delivered_bytes),
                ("queue_full", c.queue_full),
                ("managed", c.managed),
                ("marked", c.marked),
                ("lost", c.lost),
                ("corrupted", c.corrupted),
                ("duplicated", c.duplicated),
                ("overtakers", c.overtakers),
                ("too_big", c.too_big),
                ("filtered", c.filtered),
                ("down", c.down),
                ("max_queued_bytes", c.max_queued_bytes),
            ];
            for (name, n) in counts {
                d.set_item(name, n)?;
            }
            links.append(d)?;
        }
    }
    Ok(links)
}

/// Runs a scenario once, without the interpreter; `progress` is called with the share that is done
/// and may return False to stop.
#[pyfunction]
#[pyo3(signature = (text, seed, overrides, directory=None, progress=None))]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    text: &str,
    seed: u64,
    overrides: Vec<(String, String)>,
    directory: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let scenario = parse(text, &overrides, directory.as_deref())?;
    let mut stopped = None;
    let ran = py.detach(|| {
        let mut programs = Programs::build(&scenario, seed)?;
        programs.run(|share| {
            let goes_on = Python::attach(|py| {
                py.check_signals()?;
                let Some(progress) = &progress else { return Ok(true) };
                let answer = progress.call1(py, (share,))?;
                Ok::<_, PyErr>(!answer.bind(py).is(pyo3::types::PyBool::new(py, false)))
            });
            match goes_on {
                Ok(true) => true,
                Ok(false) => {
                    stopped = Some(PyKeyboardInterrupt::new_err("the run was stopped by its progress function"));
                    false
                }
                Err(e) => {
                    stopped = Some(e);
                    false
                }
            }
        })?;
        Ok::<_, String>(Ran::of(programs))
    });
    if let Some(e) = stopped {
        return Err(e);
    }
    match ran {
        Ok(ran) => ran.tables(py, &scenario, seed),
        Err(e) if e.is_empty() => Err(PyRuntimeError::new_err("the run failed")),
        Err(e) => Err(PyValueError::new_err(e)),
    }
}
