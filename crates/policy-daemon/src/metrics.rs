//! What is counted, and how Prometheus reads it.

use crate::store::Daemon;
use core::fmt::Write as _;
use core::time::Duration;
use neater_base::WallTime;
use neater_policy::protocol::Door;

/// Upper bounds of the stretches in which times of answers are counted, in seconds.
const STRETCHES: [f64; 8] = [5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 1e-3, 1e-2, 1e-1];

/// What happened since the daemon started.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Decisions that were asked for.
    pub decisions: u64,
    /// Those that had been made before.
    pub cached: u64,
    /// Nodes that were received.
    pub nodes_told: u64,
    /// How often the directories were read.
    pub loads: u64,
    /// Measurements of connections that were received.
    pub facts_told: u64,
    /// Files that could not be used when they were read last.
    pub faults: u64,
    /// Connections on the Unix sockets now.
    pub sessions: u64,
    /// Connections that were closed because there were too many.
    pub turned_away: u64,
    taken: [u64; Door::ALL.len()],
    refused: [u64; Door::ALL.len()],
    rest_taken: u64,
    rest_refused: u64,
    stretches: [u64; STRETCHES.len()],
    answers: u64,
    seconds: f64,
}

impl Counters {
    pub(crate) fn taken(&mut self, door: Door) {
        self.taken[door as usize] += 1;
    }

    pub(crate) fn refused(&mut self, door: Door) {
        self.refused[door as usize] += 1;
    }

    /// Counts an answer over REST.
    pub const fn rest(&mut self, status: u16) {
        self.rest_taken += 1;
        self.rest_refused += (status >= 400) as u64;
    }

    /// Takes note of how long the daemon worked on what came on a socket.
    pub fn worked(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        if let Some(at) = STRETCHES.iter().position(|most| seconds <= *most) {
            self.stretches[at] += 1;
        }
        self.answers += 1;
        self.seconds += seconds;
    }
}

impl Daemon {
    /// Everything that is counted, in the text format of Prometheus (version 0.0.4).
    pub fn metrics(&mut self, now: WallTime) -> String {
        let rows = self.rows(now);
        let (rows, truncated) = (rows.rows.len(), rows.truncated);
        let base = self.base();
        let (profiles, policies) = (base.profiles().rules().len(), base.policies().rules().len());
        let (nodes, guests, facts) = (base.cib().nodes().count(), self.guests(), self.facts.len());
        let c = &self.counters;
        let mut out = String::new();
        let mut put = |name: &str, kind: &str, help: &str, values: &[(&str, f64)]| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# HELP neater_pm_{name} {help}\n# TYPE neater_pm_{name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(out, "neater_pm_{name}{labels} {value}");
            }
        };
        put("decisions_total", "counter", "Decisions that were asked for.", &[("", c.decisions as f64)]);
        put("decisions_cached_total", "counter", "Decisions that had been made before.", &[("", c.cached as f64)]);
        put("nodes_told_total", "counter", "CIB nodes that were received from programs.", &[("", c.nodes_told as f64)]);
        put(
            "facts_told_total",
            "counter",
            "Measurements of connections that were received from programs.",
            &[("", c.facts_told as f64)],
        );
        put("loads_total", "counter", "How often the directories were read.", &[("", c.loads as f64)]);
        let by_door = |counts: &[u64; Door::ALL.len()], rest: u64| {
            let mut all: Vec<(String, f64)> = Door::ALL
                .iter()
                .map(|d| (format!("{{socket=\"{}\"}}", d.word()), counts[*d as usize] as f64))
                .collect();
            all.push(("{socket=\"rest\"}".into(), rest as f64));
            all
        };
        for (name, help, values) in [
            ("requests_total", "Documents, frames and REST requests that came.", by_door(&c.taken, c.rest_taken)),
            ("refused_total", "Those that were refused.", by_door(&c.refused, c.rest_refused)),
        ] {
            let values: Vec<(&str, f64)> = values.iter().map(|(labels, n)| (labels.as_str(), *n)).collect();
            put(name, "counter", help, &values);
        }
        put("turned_away_total", "counter", "Connections beyond the bounds.", &[("", c.turned_away as f64)]);
        put("sessions", "gauge", "Connections on the Unix sockets.", &[("", c.sessions as f64)]);
        put("profiles", "gauge", "Profiles that apply to all users.", &[("", profiles as f64)]);
        put("policies", "gauge", "Policies that apply to all users.", &[("", policies as f64)]);
        put("nodes", "gauge", "CIB nodes that apply to all users.", &[("", nodes as f64)]);
        put("rows", "gauge", "CIB rows that apply to all users.", &[("", rows as f64)]);
        put("rows_truncated", "gauge", "1 if there would be more rows.", &[("", f64::from(u8::from(truncated)))]);
        put("guests", "gauge", "Users with rules or nodes of their own.", &[("", guests as f64)]);
        put("facts", "gauge", "What is known of ways to other ends.", &[("", facts as f64)]);
        put("broken_files", "gauge", "Files that could not be used when read last.", &[("", c.faults as f64)]);
        let mut sum = 0;
        let mut stretches: Vec<(String, f64)> = Vec::new();
        for (most, n) in STRETCHES.iter().zip(c.stretches) {
            sum += n;
            stretches.push((format!("_bucket{{le=\"{most}\"}}"), sum as f64));
        }
        stretches.push(("_bucket{le=\"+Inf\"}".into(), c.answers as f64));
        stretches.push(("_sum".into(), c.seconds));
        stretches.push(("_count".into(), c.answers as f64));
        let stretches: Vec<(&str, f64)> = stretches.iter().map(|(suffix, n)| (suffix.as_str(), *n)).collect();
        put("work_seconds", "histogram", "How long the daemon worked on what came on a socket.", &stretches);
        out
    }
}
