//! Samples of several programs that take turns of some milliseconds, so that whatever changes on the machine meets all of them alike.
//!
//! Virtual machines switch between speeds, and neighbours come and go, within a second. Samples that are taken one after the other meet
//! different ones; the turns of this module are far shorter than that.
//!
//! *Invariants*: at any time one pair runs, and both processes of all the others are stopped (SIGSTOP); each is measured from its mark to
//! its result, and has then done all of its work; the order of turns is drawn anew each time around.

use super::cpu::{Interleaved, Series};
use super::{Child, Exit, Result, Server, failed};
use crate::programs::Program;
use neater_base::Rng;
use serde_json::Value;
use std::time::{Duration, Instant};

/// How long a turn is.
const TURN: Duration = Duration::from_millis(10);

/// So many rounds are taken again, as a whole, in which a program failed. A kernel whose table of TIME_WAIT is full gives ports out again
/// at once, and a server that has not yet heard of the end of a flow loses it to the next one from that port.
const AGAIN: usize = 3;

/// Which of the two is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who opens the flows.
    Client,
    /// Who accepts them.
    Server,
}

/// A client and its server, both started, that wait for the word. Both are on one processor.
#[derive(Debug)]
pub struct Pair {
    /// Was started with `--mark`, and has said that it is ready.
    pub client: Child,
    /// Listens.
    pub server: Server,
    /// The one of interest, which was started with `--mark`.
    pub measured: Side,
}

/// A pair at work.
struct Running {
    series: Series,
    pair: Pair,
    before: Duration,
    /// What the measured one has told at its end.
    line: Option<Value>,
    /// What it had taken by then.
    cpu: Duration,
}

impl Pair {
    fn measured(&mut self) -> &mut Child {
        match self.measured {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server.child,
        }
    }

    /// Lets the client begin as soon as it has its turn.
    fn begin(mut self, series: Series) -> Result<Running> {
        self.pause()?;
        self.client.say("go")?;
        let before = self.measured().cpu_so_far()?;
        Ok(Running { series, pair: self, before, line: None, cpu: Duration::ZERO })
    }

    /// The server stops after its client, so that none of their work is left to another pair's turn.
    fn pause(&self) -> Result<()> {
        self.client.pause()?;
        self.server.child.pause()
    }

    fn resume(&self) -> Result<()> {
        self.server.child.resume()?;
        self.client.resume()
    }
}

impl Running {
    /// One turn. True: there is no more to do.
    fn turn(&mut self, limit: Duration) -> Result<bool> {
        self.pair.resume()?;
        std::thread::sleep(TURN);
        self.line = self.pair.client.line_if_any()?;
        if self.line.is_some() {
            if self.pair.measured == Side::Server {
                // What it has left to do belongs to this turn.
                self.line = Some(self.pair.server.child.line(limit)?);
            }
            self.cpu = self.pair.measured().cpu_so_far()?.saturating_sub(self.before);
        }
        self.pair.pause()?;
        Ok(self.line.is_some())
    }

    /// The measured one, which has told its result, and what CPU time it took.
    fn end(self, limit: Duration) -> Result<Exit> {
        let (line, cpu, pair) = (self.line.unwrap_or_default(), self.cpu, self.pair);
        pair.resume()?;
        let exit = match pair.measured {
            Side::Client => {
                let exit = pair.client.wait(limit)?;
                pair.server.stop()?;
                exit
            }
            Side::Server => {
                let exit = pair.server.child.wait(limit)?;
                pair.client.wait(limit)?;
                exit
            }
        };
        Ok(Exit { cpu, line, ..exit })
    }
}

/// Takes `rounds` samples of each program and of the control, in seconds of CPU time. `start` starts a pair; `check` says whether it has
/// done what it was to do.
///
/// A round in which a program fails is taken again, a few times in all. After that, a program other than the reference that fails is left out
/// from then on.
///
/// # Errors
/// The reference failed, or a pair took longer than `limit`.
pub fn in_turns(
    reference: Program,
    programs: &[Program],
    rounds: usize,
    rng: &mut Rng,
    limit: Duration,
    start: &dyn Fn(Program) -> Result<Pair>,
    check: &dyn Fn(Exit) -> Result<Exit>,
) -> Result<Interleaved> {
    let mut out = Interleaved::default();
    let mut series: Vec<Series> = programs.iter().map(|p| Series::Of(*p)).collect();
    series.extend([Series::Of(reference), Series::Control]);
    let (mut taken, mut again) = (0, AGAIN);
    while taken < rounds {
        rng.shuffle(&mut series);
        let (mut samples, mut failed) = (Vec::new(), Vec::new());
        for (series, sample) in one_round(reference, &series, rng, limit, start)? {
            match sample.and_then(check) {
                Ok(exit) => samples.push((series, exit.cpu.as_secs_f64())),
                Err(e) => failed.push((series, e)),
            }
        }
        if !failed.is_empty() && again > 0 {
            again -= 1;
            continue;
        }
        for (series, error) in failed {
            out.leave_out(series, reference, error)?;
        }
        for (series, value) in samples {
            out.samples.entry(series).or_default().push(value);
        }
        series.retain(|s| !matches!(s, Series::Of(p) if out.missing.contains_key(p)));
        taken += 1;
    }
    Ok(out)
}

/// What came of each.
fn one_round(
    reference: Program,
    series: &[Series],
    rng: &mut Rng,
    limit: Duration,
    start: &dyn Fn(Program) -> Result<Pair>,
) -> Result<Vec<(Series, Result<Exit>)>> {
    let mut out = Vec::new();
    let mut active = Vec::new();
    for s in series {
        match start(s.program(reference)).and_then(|pair| pair.begin(*s)) {
            Ok(running) => active.push(running),
            Err(e) => out.push((*s, Err(e))),
        }
    }
    let mut done = Vec::new();
    let until = Instant::now() + limit;
    while !active.is_empty() {
        if Instant::now() > until {
            return failed(format!("taking turns, {} programs are not done after {limit:?}", active.len()));
        }
        rng.shuffle(&mut active);
        for mut running in core::mem::take(&mut active) {
            match running.turn(limit) {
                Ok(true) => done.push(running),
                Ok(false) => active.push(running),
                Err(e) => out.push((running.series, Err(e))),
            }
        }
    }
    // Processes begin and end outside of every turn.
    out.extend(done.into_iter().map(|running| (running.series, running.end(limit))));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::process::on_one_processor;
    use std::process::Command;

    const LIMIT: Duration = Duration::from_secs(60);

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        on_one_processor(&command, false).expect("util-linux")
    }

    /// Counts to `n`, as a client would open flows.
    fn counting(n: u32) -> Result<Pair> {
        let server = Server::start(&mut sh("echo '{\"listening\":\"127.0.0.1:1\"}'; cat >/dev/null"))?;
        let count = format!(
            "echo '{{\"ready\":1}}'; read x; i=0; while [ $i -lt {n} ]; do i=$((i+1)); done; echo \"{{\\\"done\\\":$i}}\"; cat >/dev/null"
        );
        let mut client = Child::start(&mut sh(&count))?;
        client.line(LIMIT)?;
        Ok(Pair { client, server, measured: Side::Client })
    }

    #[test]
    fn each_does_all_of_its_work_and_is_measured_by_it() {
        let start = |p| counting(if p == Program::Epoll { 300_000 } else { 100_000 });
        let check = |exit: Exit| if exit.line["done"].is_u64() { Ok(exit) } else { failed("not done") };
        let mut rng = Rng::from_number(1);
        let got = in_turns(Program::Libuv, &[Program::Epoll], 3, &mut rng, LIMIT, &start, &check).expect("measured");
        for series in [Series::Of(Program::Epoll), Series::Of(Program::Libuv), Series::Control] {
            assert_eq!(got.samples[&series].len(), 3, "{series:?}");
        }
        let [three, one] = [Series::Of(Program::Epoll), Series::Control].map(|s| got.median(s).expect("samples"));
        assert!((2.0..4.5).contains(&(three / one)), "three times the work: {three} s and {one} s");
    }

    #[test]
    fn one_that_ends_early_is_named_and_the_others_go_on() {
        let start = |p| {
            if p == Program::Tokio {
                let server = Server::start(&mut sh("echo '{\"listening\":\"127.0.0.1:1\"}'; cat >/dev/null"))?;
                let mut client = Child::start(&mut sh("echo '{\"ready\":1}'; read x; echo broke >&2; exit 1"))?;
                client.line(LIMIT)?;
                return Ok(Pair { client, server, measured: Side::Client });
            }
            counting(1000)
        };
        let mut rng = Rng::from_number(1);
        let got = in_turns(Program::Libuv, &[Program::Tokio], 2, &mut rng, LIMIT, &start, &Ok).expect("measured");
        assert!(got.missing[&Program::Tokio].contains("broke"), "{:?}", got.missing);
        assert_eq!(got.samples[&Series::Control].len(), 2);
        let none = in_turns(Program::Tokio, &[], 1, &mut rng, LIMIT, &start, &Ok);
        assert!(none.is_err_and(|e| e.to_string().contains("broke")), "the reference must not fail");
    }
}
