//! WEB0: what users look at first. Downloads beside curl, serving beside nginx, and the async API beside tokio-rustls and quinn.
//!
//! *Responsible for* the rows. How pairs are taken and judged is in [`super::pairs`]; servers, clients and the processors that they have
//! are in [`bench`], downloads in [`fetch`], serving in [`load`].

mod bench;
mod fetch;
mod load;

use super::pairs::{CPU, RATE, Ratio, Row, Run, Side, pairs};
use super::{Lab, Outcome, bulk};
use crate::measure::Result;
use crate::programs::Program;
use crate::report::Bound;
use bench::Bench;

const ID: &str = "WEB0";
const GET: &[Ratio] = &[
    Ratio {
        name: "get_ratio_vs_curl",
        pick: RATE,
        of: "megabytes_per_second",
        bound: Some(Bound::AtLeast(0.97)),
        low: Some(0.93),
        by_generator: false,
    },
    Ratio {
        name: "get_cpu_ratio_vs_curl",
        pick: CPU,
        of: "cpu_seconds",
        bound: Some(Bound::AtMost(1.10)),
        low: None,
        by_generator: false,
    },
];

const SMALL: &[Ratio] = &[Ratio {
    name: "small_files_ratio_vs_curl",
    pick: RATE,
    of: "files_per_second",
    bound: Some(Bound::AtLeast(0.97)),
    low: Some(0.93),
    by_generator: false,
}];

const SMALL_AT_ONCE: &[Ratio] = &[Ratio {
    name: "small_files_ratio_vs_curl",
    pick: RATE,
    of: "files_per_second",
    bound: None,
    low: None,
    by_generator: false,
}];

/// The ratios of a load; `cpu`: the unit of its CPU time.
fn of_serving(cpu: &'static str) -> [Ratio; 2] {
    [
        Ratio {
            name: "serve_cpu_ratio_vs_nginx",
            pick: CPU,
            of: cpu,
            bound: Some(Bound::AtMost(1.25)),
            low: None,
            by_generator: false,
        },
        Ratio {
            name: "serve_ratio_vs_nginx",
            pick: RATE,
            of: "requests_per_second",
            bound: Some(Bound::AtLeast(0.8)),
            low: None,
            by_generator: true,
        },
    ]
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome { runs: Some(pairs(lab)), ..Outcome::default() };
    {
        let bench = Bench::new(lab)?;
        downloads(&bench, &mut out);
        serving(&bench, &mut out);
    }
    // Without other servers on the machine.
    peers(lab, &mut out);
    for (name, title, unit) in [
        ("get_ratio_vs_curl", "Throughput of a download over curl's", "ratio"),
        ("get_cpu_ratio_vs_curl", "CPU time of a download over curl's", "ratio"),
        ("small_files_ratio_vs_curl", "Small files in a second over curl's", "ratio"),
        ("serve_cpu_ratio_vs_nginx", "CPU time of serving over nginx's", "ratio"),
        ("serve_ratio_vs_nginx", "Requests in a second over nginx's", "ratio"),
        ("tls_ratio_vs_tokio_rustls", "TLS through the async API over tokio-rustls", "ratio"),
        ("quic_ratio_vs_quinn", "QUIC through the async API over quinn", "ratio"),
        ("startup_ms", "A command that fetches one byte", "ms"),
        ("syscalls_per_request", "System calls for a request of 1 kB", "calls"),
    ] {
        if out.figures.iter().any(|f| f.name == name) {
            out.panel(name, title, unit, |f| {
                let program = f.extra.get("program").and_then(|p| p.as_str()).unwrap_or("neater");
                (f.variant.clone(), program.to_owned())
            });
        }
    }
    Ok(out)
}

fn downloads(bench: &Bench<'_>, out: &mut Outcome) {
    let lab = bench.lab;
    for (point, variant, tls) in [("get-plain", "plain", false), ("get-tls", "tls", true)] {
        let row = Row { id: ID, point, variant, reference: "curl", ratios: GET };
        row.measure(lab, out, &mut |side| fetch::large(bench, tls, side));
    }
    for (point, variant, tls, at_once, ratios) in [
        ("small-plain", "plain", false, 1, SMALL),
        ("small-tls", "tls", true, 1, SMALL),
        ("small-plain-4", "plain-4-at-once", false, 4, SMALL_AT_ONCE),
    ] {
        let row = Row { id: ID, point, variant, reference: "curl", ratios };
        row.measure(lab, out, &mut |side| fetch::small(bench, tls, at_once, side));
    }
    if lab.is_wanted("startup") {
        fetch::startup(bench, out);
    }
}

fn serving(bench: &Bench<'_>, out: &mut Outcome) {
    for load in &load::LOADS {
        let ratios = of_serving(load.unit());
        let point = format!("serve-{}", load.name);
        let row = Row { id: ID, point: &point, variant: load.name, reference: "nginx", ratios: &ratios };
        row.measure(bench.lab, out, &mut |side| load.run(bench, side));
    }
    if bench.lab.is_wanted("syscalls") {
        load::syscalls(bench, out);
    }
}

/// The same comparison as that of BULK, by the rules of this experiment.
fn peers(lab: &Lab, out: &mut Outcome) {
    for (point, name, security, reference) in [
        ("peers-tls", "tls_ratio_vs_tokio_rustls", "tls", Program::Tokio),
        ("peers-quic", "quic_ratio_vs_quinn", "quic", Program::Quinn),
    ] {
        let ratios = [Ratio {
            name,
            pick: RATE,
            of: "bytes_per_second",
            bound: Some(Bound::AtLeast(0.97)),
            low: None,
            by_generator: false,
        }];
        let row = Row { id: ID, point, variant: security, reference: reference.name(), ratios: &ratios };
        row.measure(lab, out, &mut |side| {
            let program = if side == Side::Ours { Program::Neater } else { reference };
            Ok(Run { rate: bulk::throughput(lab, program, security)?, ..Run::default() })
        });
    }
}
